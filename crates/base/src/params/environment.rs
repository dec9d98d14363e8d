//! Reads the environment variable. A user usually writes it, not the author of the program, so an
//! invalid pair does not stop the program: it is ignored and reported once.

use sync::unmodelled::AtomicU32;

use super::{ParamError, Params, STRICT, VARIABLE, pairs};
use crate::panics::write_line;

impl Params {
    /// Returns the default values, changed by the environment variable.
    ///
    /// An invalid pair is ignored, and the first call writes a line on stderr for each invalid
    /// pair. If the word `strict` is among the pairs, an invalid pair is an error instead. A
    /// program that has more rights than the user who started it ignores the variable.
    ///
    /// # Errors
    ///
    /// If the variable contains the word `strict`, returns the [`ParamError`] of the first invalid
    /// pair, or [`NotUnicode`](ParamError::NotUnicode).
    pub fn from_env() -> Result<Self, ParamError> {
        // 1 once the invalid pairs have been reported.
        static IS_REPORTED: AtomicU32 = AtomicU32::new(0);

        let mut params = Self::default();
        let Some(text) = sync::env::var(VARIABLE) else {
            return Ok(params);
        };
        let lossy = text.to_string_lossy();
        if !is_strict(&lossy) {
            let mut reports = None;
            params.set_all(&lossy, |error| {
                if *reports.get_or_insert_with(|| is_first(&IS_REPORTED)) {
                    report(&error);
                }
                Ok(())
            })?;
            return Ok(params);
        }
        text.to_str().ok_or(ParamError::NotUnicode)?.parse()
    }
}

/// Handles an invalid value of the environment variable. If the variable contains the word
/// `strict`, returns the error. Otherwise, if `is_reported` is 0, reports the error and sets
/// `is_reported` to 1.
pub fn ignore(error: ParamError, is_reported: &AtomicU32) -> Result<(), ParamError> {
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
    write_line(&format!(
        "{VARIABLE}: {error}; it is ignored: correct or remove it, or add the word {STRICT} to make it an error"
    ));
}
