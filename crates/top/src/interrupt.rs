//! Turns SIGINT into a flag, so that the results up to that point can be printed.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::SIGINT;
use signal_hook::flag;

use crate::exit::INTERRUPTED_CODE;

/// A flag that is set when the user asks to stop.
///
/// A run checks it at least once every hundred milliseconds, so that the command stops within a
/// second.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Handles SIGINT: the first one sets the flag, a second one ends the process at once.
    ///
    /// # Errors
    ///
    /// Returns the system's error if the handler cannot be installed.
    pub fn install() -> io::Result<Self> {
        let interrupt = Self::default();
        // The order matters: at the first signal, the flag is not set yet when the shutdown checks
        // it.
        let code = i32::from(INTERRUPTED_CODE);
        flag::register_conditional_shutdown(SIGINT, code, interrupt.0.clone())?;
        flag::register(SIGINT, interrupt.0.clone())?;
        Ok(interrupt)
    }

    /// Returns `true` if the user has asked to stop. The cost is one load.
    #[inline]
    #[must_use]
    pub fn requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the flag, as SIGINT does.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_clone_sees_the_request() {
        let interrupt = Interrupt::default();
        let clone = interrupt.clone();
        assert!(!clone.requested());
        interrupt.request();
        assert!(clone.requested());
    }
}
