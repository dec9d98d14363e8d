//! A cursor over a short text, and the errors of parsing it.

/// The position at which a text is invalid, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mismatch {
    pub(crate) at: usize,
    /// The text that would have been valid there.
    pub(crate) expected: String,
    /// The text at that position, ready to be printed.
    pub(crate) found: String,
}

/// A cursor that moves forward through a text.
pub(crate) struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.rest().is_empty()
    }

    pub(crate) fn skip_whitespace(&mut self) {
        self.take_while(char::is_whitespace);
    }

    /// Consumes the next character if it is one of these.
    pub(crate) fn eat(&mut self, any_of: &[char]) -> bool {
        match self.rest().chars().next() {
            Some(c) if any_of.contains(&c) => {
                self.at += c.len_utf8();
                true
            }
            _ => false,
        }
    }

    /// Consumes characters while `fits` returns `true`.
    pub(crate) fn take_while(&mut self, fits: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let taken = &rest[..rest.find(|c| !fits(c)).unwrap_or(rest.len())];
        self.at += taken.len();
        taken
    }

    /// Parses a decimal number from `min` to `max`. `what` names it in the error message.
    pub(crate) fn number(&mut self, what: &str, min: u32, max: u32) -> Result<u32, Mismatch> {
        let start = self.at;
        let digits = self.take_while(|c| c.is_ascii_digit());
        if digits.is_empty() {
            return Err(self.mismatch_at(start, what.to_owned()));
        }
        match digits.parse::<u32>() {
            Ok(number) if (min..=max).contains(&number) => Ok(number),
            _ => Err(self.mismatch_at(start, format!("{what} from {min} to {max}"))),
        }
    }

    pub(crate) fn mismatch(&self, expected: impl Into<String>) -> Mismatch {
        self.mismatch_at(self.at, expected.into())
    }

    pub(crate) fn mismatch_at(&self, at: usize, expected: String) -> Mismatch {
        Mismatch { at, expected, found: excerpt(&self.text[at..]) }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }
}

/// Converts an offset into a line and a column, both counted from 1. The column is in characters.
///
/// An offset inside a character counts as the start of that character.
pub(crate) fn position(text: &[u8], at: usize) -> (usize, usize) {
    let before = &text[..at.min(text.len())];
    let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
    let line_start =
        before.iter().rposition(|&byte| byte == b'\n').map_or(0, |newline| newline + 1);
    (line, 1 + String::from_utf8_lossy(&before[line_start..]).chars().count())
}

/// Quotes the first word of a text on one line, shortened if it is long.
pub(crate) fn excerpt(text: &str) -> String {
    /// Maximum length of an excerpt: enough to recognize a word, in a message of one line.
    const MAX_CHARS: usize = 24;

    let Some(first) = text.chars().next() else {
        return "the end".to_owned();
    };
    let ends_word = |c: char| c.is_whitespace() || c == ',';
    let word: String = if ends_word(first) {
        first.into()
    } else {
        text.chars().take_while(|&c| !ends_word(c)).collect()
    };
    match word.char_indices().nth(MAX_CHARS) {
        Some((cut, _)) => format!("{:?}...", &word[..cut]),
        None => format!("{word:?}"),
    }
}

/// Escapes the characters that would break a one-line message.
#[cfg(feature = "detect")]
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { line.extend(c.escape_default()) } else { line.push(c) }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_counts_lines_and_characters_from_one() {
        let text = "0-3\n×y".as_bytes();
        let found = [0, 2, 4, 6, 99].map(|at| position(text, at));
        assert_eq!(found, [(1, 1), (1, 3), (2, 1), (2, 2), (2, 3)]);
    }

    #[test]
    fn excerpt_is_one_short_line() {
        assert_eq!(excerpt(""), "the end");
        assert_eq!(excerpt("\n3"), "\"\\n\"");
        assert_eq!(excerpt("ab,c"), "\"ab\"");
        let found = excerpt(&"é".repeat(50));
        assert_eq!(found, format!("\"{}\"...", "é".repeat(24)));
    }
}
