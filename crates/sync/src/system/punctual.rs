//! Sleeps that end on time.
//!
//! The kernel may end a thread's timed sleep late by the thread's *timer slack*, so that several
//! sleeps end together. The slack is 50 us by default, which is a quarter of a timeout of 200 us.

use std::num::NonZeroU64;
use std::time::Duration;

/// The shortest span for which the slack is not changed: 100 times the default slack.
const LONG: Duration = Duration::from_millis(5);

/// The minimum slack. Setting zero would select the default.
const NONE: NonZeroU64 = NonZeroU64::MIN;

/// Keeps this thread's slack at its minimum until it is dropped.
#[derive(Debug)]
pub(crate) struct Punctual {
    /// The previous slack, which is restored.
    slack_ns: NonZeroU64,
}

impl Punctual {
    /// Sets the minimum slack if the current one would matter for a sleep of `span`. Returns `None`
    /// if the slack does not matter, if the kernel rejects the change, or on a real-time thread,
    /// which has no slack.
    pub fn for_span(span: Duration) -> Option<Self> {
        if span >= LONG || cfg!(miri) {
            return None;
        }
        let slack_ns = NonZeroU64::new(slack_ns()?)?;
        (slack_ns > NONE && set_slack(NONE)).then_some(Self { slack_ns })
    }
}

impl Drop for Punctual {
    fn drop(&mut self) {
        // If the kernel rejects its earlier value, the thread keeps the minimum slack.
        set_slack(self.slack_ns);
    }
}

// The C library's `prctl` would truncate the slack to 32 bits.

/// Returns this thread's slack, if the kernel reports it. A real-time thread has 0.
pub(crate) fn slack_ns() -> Option<u64> {
    // SAFETY: the call only returns a number.
    let slack = unsafe { libc::syscall(libc::SYS_prctl, libc::PR_GET_TIMERSLACK, 0, 0, 0, 0) };
    u64::try_from(slack).ok()
}

/// Sets this thread's slack. Returns `false` if the kernel rejects it.
pub(crate) fn set_slack(slack_ns: NonZeroU64) -> bool {
    let slack_ns = slack_ns.get() as libc::c_ulong;
    // SAFETY: the call accesses no memory of the process.
    unsafe { libc::syscall(libc::SYS_prctl, libc::PR_SET_TIMERSLACK, slack_ns, 0, 0, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri knows no timer slack")]
    fn short_sleep_sets_and_restores_the_slack() {
        let before = slack_ns();
        let punctual = Punctual::for_span(LONG / 2).unwrap();
        assert_eq!(slack_ns(), Some(NONE.get()));
        assert!(Punctual::for_span(LONG / 2).is_none());
        drop(punctual);
        assert_eq!(slack_ns(), before);
    }

    #[test]
    fn a_long_sleep_leaves_the_slack_alone() {
        assert!(Punctual::for_span(LONG).is_none());
    }
}
