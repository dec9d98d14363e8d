//! Environment variables with which a user configures the library.

use std::ffi::OsString;

/// Returns the environment variable `name`. Returns `None` if it is not set, or if the program has
/// more rights than the user who started it: a set-user-ID or set-group-ID bit, or file
/// capabilities. A variable could make it create files and signals with the owner's rights.
pub fn var(name: &str) -> Option<OsString> {
    // SAFETY: the call takes a number and returns one.
    let is_privileged = || !cfg!(miri) && unsafe { libc::getauxval(libc::AT_SECURE) != 0 };
    std::env::var_os(name).filter(|_| !is_privileged())
}
