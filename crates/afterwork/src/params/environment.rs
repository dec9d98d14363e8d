//! The environment variable.
//!
//! It is written by hand, mostly by another person than the author of the program, and read by several subsystems. So a wrong pair
//! stops no program: it is ignored, and reported once.

use sync::unmodelled::AtomicU32;

use super::{ParamError, Params, STRICT, VARIABLE, pairs};

impl Params {
    /// Returns the defaults, changed by the environment variable.
    ///
    /// A pair that is wrong is ignored. The first call writes a line on stderr for each of them. If the word `strict` is among the
    /// pairs, a wrong one is an error instead. In a program that has more rights than its user the variable is ignored.
    ///
    /// # Errors
    ///
    /// If the variable has the word `strict`: the [`ParamError`] of the first wrong pair, or
    /// [`NotUnicode`](ParamError::NotUnicode).
    pub fn from_env() -> Result<Self, ParamError> {
        /// 1 once the wrong pairs are reported.
        static IS_REPORTED: AtomicU32 = AtomicU32::new(0);

        let mut params = Self::default();
        let Some(text) = sync::env::var(VARIABLE) else {
            return Ok(params);
        };
        let lossy = text.to_string_lossy();
        if !is_strict(&lossy) {
            let mut errors = Vec::new();
            params.set_all(&lossy, |error| {
                errors.push(error);
                Ok(())
            })?;
            if !errors.is_empty() && is_first(&IS_REPORTED) {
                errors.iter().for_each(report);
            }
            return Ok(params);
        }
        text.to_str().ok_or(ParamError::NotUnicode)?.parse()
    }
}

/// Returns the error of a value of the environment variable that cannot be used, if the variable has the word `strict`. Otherwise
/// reports it, if `is_reported` is 0, and then sets that to 1.
pub(crate) fn ignore(error: ParamError, is_reported: &AtomicU32) -> Result<(), ParamError> {
    let text = sync::env::var(VARIABLE).unwrap_or_default();
    if is_strict(&text.to_string_lossy()) {
        return Err(error);
    }
    if is_first(is_reported) {
        report(&error);
    }
    Ok(())
}

fn is_strict(text: &str) -> bool {
    pairs(text).any(|pair| pair == STRICT)
}

fn is_first(is_reported: &AtomicU32) -> bool {
    is_reported.swap(1, sync::atomic::Ordering::Relaxed) == 0
}

fn report(error: &ParamError) {
    #[cfg(not(any(loom, shuttle)))]
    sync::process::write_line(&format!(
        "{VARIABLE}: {error}; it is ignored: correct or remove it, or add the word {STRICT} to make it an error"
    ));
    #[cfg(any(loom, shuttle))]
    let _ = error;
}
