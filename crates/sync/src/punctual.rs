//! Sleeps that end when they were asked to.
//!
//! The kernel may let a timer of a thread ring late by the thread's *timer slack*, so that several ring at once and
//! the machine sleeps longer in between. It is 50 us unless somebody set it, which is nothing to a timeout of a
//! second and a quarter of one of 200 us.

use std::num::NonZeroU64;
use std::time::Duration;

use rustix::thread::{current_timer_slack, set_current_timer_slack};

/// From here on the default slack is a hundredth of the span at most, and stays.
const LONG: Duration = Duration::from_millis(5);

/// The least slack that the kernel takes as one; zero would ask for the default.
const NONE: NonZeroU64 = NonZeroU64::MIN;

/// While it lives, timers of this thread ring on time.
#[derive(Debug)]
pub(crate) struct Punctual {
    /// What the thread had, and gets back.
    slack_ns: NonZeroU64,
}

impl Punctual {
    /// Puts the thread's slack aside if it would matter for a sleep of `span`.
    ///
    /// `None` where it would not, where there is none (threads of real-time classes), or where the kernel refuses:
    /// then the sleep is as punctual as it would have been.
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
        // It was granted when it was put aside. Should it be refused, the thread stays punctual.
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
