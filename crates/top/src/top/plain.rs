//! Makes untrusted text safe to print. Other programs choose the names of queues, processes and
//! paths.
//!
//! A terminal obeys control characters, reverses the direction of text at some characters, and does
//! not show others, so that different names may look the same. This module writes all of these
//! characters as numbers.

use std::borrow::Cow;

pub fn plain(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let escaped = |c: char| if is_plain(c) { c.into() } else { c.escape_unicode().to_string() };
    Cow::Owned(text.chars().map(escaped).collect())
}

fn is_plain(c: char) -> bool {
    let is_hidden = matches!(c,
        // These are a soft hyphen, direction marks, joiners, and characters without width.
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
        | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
        // These are the ends of lines and paragraphs, and characters that reverse the direction of
        // text.
        | '\u{2028}'..='\u{202e}');
    // Combining marks would be drawn over the text that precedes the name.
    let is_mark = matches!(c, '\u{300}'..='\u{36f}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}' | '\u{20d0}'..='\u{20ff}' | '\u{fe20}'..='\u{fe2f}');
    !(c.is_control() || is_hidden || is_mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_hidden_characters_are_escaped() {
        assert_eq!(plain("kworker/µ 日本 é"), "kworker/µ 日本 é");
        let hostile = "\x1b[2J|a\rb|\u{9b}31m|\u{202e}txt|\u{2066}a|a\u{200b}b|\u{2028}|\u{feff}\
                       |e\u{301}|\u{e0041}|\u{7f}|a\u{ad}b";
        for hostile in hostile.split('|') {
            let escaped = plain(hostile);
            assert!(escaped.contains("\\u{") && escaped.chars().all(is_plain), "{escaped}");
        }
    }
}
