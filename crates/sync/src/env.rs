//! Environment variables with which a user configures the library.

use std::ffi::OsString;

/// Returns the environment variable `name`. Returns `None` if it is not set, or if the program has
/// more rights than the user who started it.
///
/// The kernel marks such programs: those with a set-user-ID or set-group-ID bit, or with file
/// capabilities. A variable could make them create files and signals with the owner's rights.
pub fn var(name: &str) -> Option<OsString> {
    if is_privileged() {
        return None;
    }
    std::env::var_os(name)
}

/// Returns `true` if this program has more rights than the user who started it (`AT_SECURE`).
fn is_privileged() -> bool {
    if cfg!(miri) {
        return false;
    }
    // SAFETY: the call takes a number and returns one.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}
