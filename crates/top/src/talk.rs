//! Prints messages to standard error. Data never goes there.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

/// Writes a line to standard error. A closed stream is not an error.
pub fn say(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Returns `true` if the output to a stream may be colored: the stream is a terminal, and the user
/// has not set `NO_COLOR`.
#[must_use]
pub fn may_color(stream: &impl IsTerminal) -> bool {
    color_allowed(stream.is_terminal(), std::env::var_os("NO_COLOR").as_deref())
}

/// Returns `true` if colors are allowed. `NO_COLOR` has an effect if it is set and not empty, as
/// <https://no-color.org> specifies.
fn color_allowed(terminal: bool, no_color: Option<&std::ffi::OsStr>) -> bool {
    terminal && no_color.is_none_or(std::ffi::OsStr::is_empty)
}

#[cfg(test)]
mod tests {
    use super::color_allowed;

    #[test]
    fn color_needs_a_terminal_and_no_objection() {
        assert!(color_allowed(true, None));
        assert!(color_allowed(true, Some("".as_ref())));
        assert!(!color_allowed(true, Some("1".as_ref())));
        assert!(!color_allowed(false, None));
    }
}
