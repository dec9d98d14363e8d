//! SIGINT as a flag, so that what was measured by then can be printed.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::SIGINT;
use signal_hook::flag;

use crate::exit::INTERRUPTED_CODE;

/// Returns `true` if the user has asked to stop.
///
/// A run asks at least once in a hundred milliseconds, so that the command answers within a second.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Takes SIGINT over: the first one sets the flag, a second one ends the process at once.
    ///
    /// # Errors
    ///
    /// What the system says when it refuses the handler.
    pub fn install() -> io::Result<Self> {
        let interrupt = Self::default();
        // In this order: at the first signal the flag is still down when the shutdown looks at it.
        flag::register_conditional_shutdown(
            SIGINT,
            i32::from(INTERRUPTED_CODE),
            Arc::clone(&interrupt.0),
        )?;
        flag::register(SIGINT, Arc::clone(&interrupt.0))?;
        Ok(interrupt)
    }

    /// Returns whether to stop; costs a load.
    #[inline]
    #[must_use]
    pub fn requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Asks to stop, as SIGINT does.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_clone_hears_of_the_request() {
        let interrupt = Interrupt::default();
        let clone = interrupt.clone();
        assert!(!clone.requested());
        interrupt.request();
        assert!(clone.requested());
    }
}
