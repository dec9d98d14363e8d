//! Rules about files as text: words that do not belong, and length.

use crate::report::{Failure, Finding, Findings};
use crate::workspace::Workspace;

/// The most lines of a Rust file: beyond, not even a long noun is read at a sitting.
const MAX_LINES: usize = 1000;

/// A word that no file may hold.
struct Word {
    text: &'static str,
    /// Whether letters around it make it another word.
    whole: bool,
    instead: &'static str,
}

// Cut in two, so that this file does not break its own rule.
const WORDS: &[Word] = &[
    Word {
        text: concat!("todo", "!("),
        whole: false,
        instead: "finish it or leave it out",
    },
    Word {
        text: concat!("unimplemented", "!("),
        whole: false,
        instead: "finish it or leave it out",
    },
    Word {
        text: concat!("#[", "ignore"),
        whole: false,
        instead: "a test that does not run proves nothing",
    },
    Word {
        text: concat!("rust,", "ignore"),
        whole: false,
        instead: "an example that does not compile rots",
    },
    Word {
        text: concat!("```", "ignore"),
        whole: false,
        instead: "an example that does not compile rots",
    },
    Word {
        text: concat!("FIX", "ME"),
        whole: true,
        instead: "mend it, or state the limit in the docs",
    },
    Word {
        text: concat!("XX", "X"),
        whole: true,
        instead: "mend it, or state the limit in the docs",
    },
];

/// Finds forbidden words in every text file.
pub fn words(workspace: &Workspace) -> Result<Findings, Failure> {
    let mut found = Findings::default();
    let mut texts = 0;
    for file in workspace.files()? {
        let Some(text) = workspace.text(&file)? else {
            continue;
        };
        texts += 1;
        for (line, word) in forbidden(&text) {
            let rule = format!("`{}` does not belong here: {}", word.text, word.instead);
            found.broken.push(Finding::new(&file, line, rule));
        }
    }
    found.looked_at = format!("{texts} text files");
    Ok(found)
}

/// Finds Rust files that are too long.
pub fn lines(workspace: &Workspace) -> Result<Findings, Failure> {
    let mut found = Findings::default();
    let files = workspace.rust_files()?;
    let mut longest = 0;
    for file in &files {
        let count = workspace.text(file)?.map_or(0, |text| text.lines().count());
        longest = longest.max(count);
        if count > MAX_LINES {
            let rule =
                format!("{count} lines, at most {MAX_LINES}: a file is one noun, this may be two");
            found.broken.push(Finding::new(file, 0, rule));
        }
    }
    found.looked_at = format!(
        "{} Rust files, the longest has {longest} lines",
        files.len()
    );
    Ok(found)
}

fn forbidden(text: &str) -> Vec<(u32, &'static Word)> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for word in WORDS {
            if holds(line, word) {
                found.push((index as u32 + 1, word));
            }
        }
    }
    found
}

fn holds(line: &str, word: &Word) -> bool {
    line.match_indices(word.text).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.text.len()..].chars().next();
        !word.whole
            || ![before, after]
                .into_iter()
                .flatten()
                .any(char::is_alphanumeric)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<u32> {
        forbidden(text).into_iter().map(|(line, _)| line).collect()
    }

    #[test]
    fn each_word_is_found_with_its_line() {
        for word in WORDS {
            assert_eq!(
                found(&format!("fine\n  {} later", word.text)),
                [2],
                "{}",
                word.text
            );
        }
    }

    #[test]
    fn part_of_a_longer_word_is_no_mark() {
        let mark = concat!("XX", "X");
        assert!(found(&format!("mktemp run.{mark}{mark}")).is_empty());
        assert_eq!(found(&format!("// {mark}: later")), [1]);
    }
}
