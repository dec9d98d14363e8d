//! Sleeps that end on time.
//!
//! The kernel may end a thread's timed sleep late by the thread's *timer slack*, so that several sleeps end together and the
//! CPU sleeps longer. The slack is 50 us by default: little for a timeout of a second, a quarter of one of 200 us.

use std::num::NonZeroU64;
use std::time::Duration;

use rustix::thread::{current_timer_slack, set_current_timer_slack};

/// From this span on the default slack is at most a hundredth of the span, and is left alone.
const LONG: Duration = Duration::from_millis(5);

/// The least slack. Zero would set the default.
const NONE: NonZeroU64 = NonZeroU64::MIN;

/// Keeps this thread's slack at the least value until dropped.
#[derive(Debug)]
pub(crate) struct Punctual {
    /// The slack before, which is restored.
    slack_ns: NonZeroU64,
}

impl Punctual {
    /// Sets the least slack if the present one would matter for a sleep of `span`.
    ///
    /// Returns `None` if it would not, if the thread has no slack (real-time threads), or if the kernel refuses.
    pub fn for_span(span: Duration) -> Option<Self> {
        if span >= LONG || cfg!(miri) {
            return None;
        }
        let slack_ns = NonZeroU64::new(current_timer_slack().ok()?)?;
        if slack_ns <= NONE {
            return None;
        }
        set_current_timer_slack(Some(NONE)).ok()?;
        Some(Self { slack_ns })
    }
}

impl Drop for Punctual {
    fn drop(&mut self) {
        // The kernel allowed the change before. If it refuses now, the thread keeps the least slack.
        let _ = set_current_timer_slack(Some(self.slack_ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri knows no timer slack")]
    fn a_short_sleep_puts_the_slack_aside_and_gives_it_back() {
        let before = current_timer_slack().unwrap();
        let punctual =
            Punctual::for_span(LONG / 2).expect("a thread of the normal class has a slack");
        assert_eq!(current_timer_slack().unwrap(), NONE.get());
        assert!(
            Punctual::for_span(LONG / 2).is_none(),
            "there is nothing left to put aside"
        );
        drop(punctual);
        assert_eq!(current_timer_slack().unwrap(), before);
    }

    #[test]
    fn a_long_sleep_leaves_the_slack_alone() {
        assert!(Punctual::for_span(LONG).is_none());
    }
}
