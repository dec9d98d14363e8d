//! The values of a torture command line, and near matches for a misspelled value. `cargo xtask
//! torture` also includes this file, to reject a misspelled bug before it builds the program.

use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, io};

#[path = "../../../base/src/params/edits.rs"]
mod edits;

use edits::edits;

/// The functions that name an injectable bug.
const NAMING: &[&str] = &["armed(", "linger(", "twin::order(", "twin::fence("];
const MOST_NEAR: usize = 3;

/// Returns the element of `choices` that equals `asked`, or a message with the nearest choices.
pub fn find<'a>(asked: &str, choices: &[&'a str]) -> Result<&'a str, String> {
    if let Some(found) = choices.iter().find(|choice| **choice == asked) {
        return Ok(found);
    }
    // This is a guess: a word in which half of the letters differ is a different word.
    let most = asked.chars().count() / 2;
    let mut ranked: Vec<_> =
        choices.iter().map(|choice| (distance(asked, choice), *choice)).collect();
    ranked.sort_unstable();
    let is_near = |ranked: &&(usize, &str)| ranked.0 <= most;
    let near: Vec<_> = ranked.iter().filter(is_near).map(|it| it.1).collect();
    let hint = if !near.is_empty() {
        let near = &near[..near.len().min(MOST_NEAR)];
        format!("did you mean {}?", near.join(", or "))
    } else if choices.len() < 30 {
        format!("there are {}", choices.join(", "))
    } else {
        let nearest: Vec<_> = ranked.iter().take(MOST_NEAR).map(|it| it.1).collect();
        format!("the nearest are {}", nearest.join(", and "))
    };
    Err(format!("`{asked}` is not known; {hint}"))
}

/// Returns the edit distance of two words, or 0 if `choice` contains the letters of `asked`.
fn distance(asked: &str, choice: &str) -> usize {
    let letters = |word: &str| word.replace(|letter: char| !letter.is_alphanumeric(), "");
    let part = letters(asked);
    if part.len() > 2 && letters(choice).contains(&part) { 0 } else { edits(asked, choice) }
}

/// Returns an error with the nearest names if no source in the folder `crates` has the bug `asked`.
pub fn find_twin(asked: &str, crates: &Path) -> Result<(), String> {
    let names = twins(crates).map_err(|e| format!("--twin: the sources that name bugs: {e}"))?;
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    find(asked, &names).map(drop).map_err(|e| format!("--twin: {e}"))
}

/// Returns the names of all bugs that a build can inject, found in its own sources.
fn twins(crates: &Path) -> io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    let mut folders = Vec::new();
    for entry in fs::read_dir(crates)? {
        folders.push(entry?.path().join("src"));
    }
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") {
                let text = fs::read_to_string(path)?;
                names.extend(names_in(&text).map(str::to_owned));
            }
        }
    }
    Ok(names)
}

/// Returns the bugs that a source file can inject. A name may be on the line after the call.
fn names_in(text: &str) -> impl Iterator<Item = &str> {
    NAMING.iter().flat_map(move |call| {
        text.match_indices(call).filter_map(move |(at, _)| {
            let line = text[..at].rfind('\n').map_or(0, |before| before + 1);
            let is_code = !text[line..at].trim_start().starts_with("//");
            let argument = text[at + call.len()..].trim_start();
            let (name, _) = argument.strip_prefix('"')?.split_once('"')?;
            is_code.then_some(name)
        })
    })
}
