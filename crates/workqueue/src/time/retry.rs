//! Repeats an attempt that fails, after growing pauses.

use std::time::Duration;

use sync::time::nanos;

use super::sleep::global;
use crate::queues::registry::Registry;

/// The number of attempts and the pauses between them: each pause is twice as long as the previous
/// one, up to a limit.
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
    /// limit on later pauses.
    ///
    /// # Panics
    ///
    /// If `nr_attempts` is 0.
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
/// If a queue runs this future, a drain of the queue waits for it, even during a pause. Put an
/// attempt that blocks into an item: `retry(policy, || queue.spawn(…))`. In that case, the errors
/// are those of a join.
///
/// # Panics
///
/// The same as [`sleep`](crate::sleep()).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use afterwork::workqueue::{Backoff, block_on, retry};
///
/// let policy = Backoff::new(5, Duration::from_millis(1)).longest(Duration::from_secs(1));
/// let mut nr_attempts = 0;
/// let outcome = block_on(retry(policy, || {
///     nr_attempts += 1;
///     let number = nr_attempts;
///     async move { if number < 3 { Err("busy") } else { Ok(number) } }
/// }));
/// assert_eq!(outcome, Ok(3));
/// ```
#[doc(alias("backoff", "repeat"))]
pub async fn retry<T, E, F>(policy: Backoff, attempt: impl FnMut() -> F) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
{
    retry_if(policy, attempt, |_| true).await
}

/// Calls `attempt` as [`retry`] does, but stops at the first error for which `is_transient` returns
/// `false`, and returns that error without a pause.
///
/// # Panics
///
/// The same as [`sleep`](crate::sleep()).
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
