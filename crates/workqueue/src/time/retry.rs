//! Repeats an attempt that fails, after growing pauses.

use std::time::Duration;

use sync::time::nanos;

use super::sleep::global;
use crate::queues::registry::Registry;

/// The number of attempts and the pauses between them: each pause is twice the last, up to a limit.
///
/// Each pause is shortened at random, to at least half of its length, so that many clients that
/// failed at the same time do not all try again at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias("jitter", "ExponentialBackoff"))]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    nr_attempts: u32,
}

impl Backoff {
    /// Creates a policy of at most `nr_attempts` attempts, with a first pause of `first` and no
    /// limit on later pauses. Panics if `nr_attempts` is 0.
    pub const fn new(nr_attempts: u32, first: Duration) -> Self {
        assert!(nr_attempts > 0, "a policy of 0 attempts: pass 1 for no repetition");
        Self { first, longest: Duration::MAX, nr_attempts }
    }

    /// Sets the longest pause.
    pub const fn longest(self, longest: Duration) -> Self {
        Self { longest, ..self }
    }

    /// Returns the pause after attempt number `attempt`, from 1; `None` after the last attempt.
    fn pause(self, attempt: u32, random: u64) -> Option<Duration> {
        if attempt >= self.nr_attempts {
            return None;
        }
        let factor = 1u32.checked_shl(attempt - 1).unwrap_or(u32::MAX);
        let whole_ns = nanos(self.first.saturating_mul(factor).min(self.longest));
        let half_ns = whole_ns / 2;
        Some(Duration::from_nanos(whole_ns - random % (half_ns + 1)))
    }
}

/// Calls `attempt` until it returns `Ok` or the attempts of `policy` are used up, pausing between
/// attempts as `policy` specifies, and returns the last result.
///
/// [`retry_if`] also stops at an error that another attempt would return again.
///
/// Put an attempt that blocks into an item. `retry(policy, || queue.spawn(job))` repeats only after
/// an error of the join: a panic, a cancel or a rejection. If the job returns a `Result`, flatten
/// the two, as the first example does.
///
/// If a queue runs this future, a drain of the queue waits for it, even during a pause. To end it
/// at the time limit of a [`shutdown`](crate::Workqueue::shutdown), use its
/// [token](crate::CancellationToken::current), as the second example does. If the attempts use
/// another queue, [`retry_if`] can stop at [`JoinError::Closed`](crate::JoinError::Closed), which
/// that queue also returns while it is drained.
///
/// # Panics
///
/// Panics as [`sleep`](crate::sleep()) does.
///
/// # Examples
///
/// ```
/// use std::{io::{Error, ErrorKind}, time::Duration};
/// use afterwork::workqueue::{Backoff, Workqueue, block_on, retry};
///
/// let disk = Workqueue::builder("disk").build()?;
/// let policy = Backoff::new(5, Duration::from_millis(1)).longest(Duration::from_secs(1));
/// let mut nr_attempts = 0;
/// let outcome: Result<u32, Error> = block_on(retry(policy, || {
///     nr_attempts += 1;
///     let number = nr_attempts;
///     let job = move || if number < 3 { Err(ErrorKind::TimedOut.into()) } else { Ok(number) };
///     let handle = disk.spawn(job);
///     async { handle.await? } // the error of the join, or that of the job
/// }));
/// assert_eq!(outcome?, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The retry ends at the time limit of its queue's shutdown:
///
/// ```
/// use std::{future::ready, sync::mpsc, time::Duration};
/// use afterwork::workqueue::{Backoff, CancellationToken, Workqueue, retry};
///
/// let queue = Workqueue::builder("clients").build()?;
/// let (send, attempted) = mpsc::channel();
/// let task = queue.spawn_async(async move {
///     let policy = Backoff::new(5, Duration::from_secs(60));
///     let attempts = retry(policy, || {
///         _ = send.send(());
///         ready(Err::<(), _>("busy"))
///     });
///     CancellationToken::current().until_cancelled(attempts).await
/// });
/// attempted.recv()?;
/// assert!(queue.shutdown(Duration::from_millis(1)).is_err(), "the future remained");
/// assert_eq!(task.join()?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("backoff", "repeat"))]
pub async fn retry<T, E, F>(policy: Backoff, attempt: impl FnMut() -> F) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
{
    retry_if(policy, attempt, |_| true).await
}

/// Calls `attempt` as [`retry`] does, but stops at the first error for which `is_transient` returns
/// `false`, and returns that error without a pause. Panics as [`retry`] does.
///
/// # Examples
///
/// ```
/// use std::{io::{Error, ErrorKind}, time::Duration};
/// use afterwork::workqueue::{Backoff, block_on, retry_if};
///
/// let policy = Backoff::new(5, Duration::from_millis(1));
/// let mut kinds = [ErrorKind::TimedOut, ErrorKind::PermissionDenied].into_iter();
/// let outcome: Result<(), Error> = block_on(retry_if(
///     policy,
///     || std::future::ready(Err(Error::from(kinds.next().unwrap()))),
///     |error| error.kind() == ErrorKind::TimedOut,
/// ));
/// assert_eq!(outcome.unwrap_err().kind(), ErrorKind::PermissionDenied);
/// ```
#[doc(alias("backoff", "permanent", "transient", "when"))]
pub async fn retry_if<T, E, F>(
    policy: Backoff,
    attempt: impl FnMut() -> F,
    is_transient: impl FnMut(&E) -> bool,
) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
{
    global().retry_if(policy, attempt, is_transient).await
}

impl Registry {
    /// Repeats `attempt` as [`retry`] does, but pauses according to this registry's clock.
    pub fn retry<T, E, F, A>(
        &self,
        policy: Backoff,
        attempt: A,
    ) -> impl Future<Output = Result<T, E>> + use<T, E, F, A>
    where
        F: Future<Output = Result<T, E>>,
        A: FnMut() -> F,
    {
        self.retry_if(policy, attempt, |_| true)
    }

    /// Repeats `attempt` as [`retry_if`] does, but pauses according to this registry's clock.
    pub fn retry_if<T, E, F, A, P>(
        &self,
        policy: Backoff,
        mut attempt: A,
        mut is_transient: P,
    ) -> impl Future<Output = Result<T, E>> + use<T, E, F, A, P>
    where
        F: Future<Output = Result<T, E>>,
        A: FnMut() -> F,
        P: FnMut(&E) -> bool,
    {
        let registry = self.clone();
        async move {
            for nr_attempts in 1.. {
                let outcome = attempt().await;
                if outcome.as_ref().err().is_none_or(|error| !is_transient(error)) {
                    return outcome;
                }
                let random = scrambled(registry.now_ns().wrapping_add(nr_attempts.into()));
                match policy.pause(nr_attempts, random) {
                    Some(pause) => registry.sleep(pause).await,
                    None => return outcome,
                }
            }
            unreachable!("a policy ends at the last number")
        }
    }
}

/// Returns a number without apparent relation to `seed`: the step of SplitMix64.
const fn scrambled(seed: u64) -> u64 {
    let mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
