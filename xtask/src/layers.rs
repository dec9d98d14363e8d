//! Checks that the crates above `sync` use atomics, locks, threads, clocks and system calls only
//! through `sync`. Models do not see a direct use.
//!
//! The check reads each source file up to its unit tests, without comments. Unit tests and the
//! programs in `tests/`, `benches/` and `examples/` may start threads of their own.

use crate::report::{Failure, Finding, Findings};
use crate::source;
use crate::workspace::Workspace;

/// The crates that may use the machine directly: those on the level of `sync`, and programs that
/// measure the machine.
const FREE: &[&str] =
    &["topology", "sync", "simachine", "stacks", "lab", "lab-peers", "top", "probes", "sim"];

/// The modules and items of `std` that only `sync` may name, each with its replacement.
const STD: &[(&str, &str)] = &[
    ("sync", "`sync`"),
    ("thread", "`sync::thread`"),
    ("thread_local", "`sync::thread_local!`"),
    ("time", "`sync::time`"),
    ("hint::spin_loop", "`sync::hint`"),
    ("fs", "`topology`"),
    ("net", "`sync`"),
    ("*", "each item"),
];

const CRATES: &[&str] = &["libc", "rustix", "nix", "loom", "shuttle", "parking_lot"];

/// The back end of `sync`, which is public only for the macros of `sync`.
const PRIVATE: &[&str] = &["sync::backend"];

pub fn check(workspace: &Workspace) -> Result<Findings, Failure> {
    let sources = workspace.texts(is_above_sync)?;
    let mut broken = Vec::new();
    for (file, text) in &sources {
        broken.extend(named(text).into_iter().map(|(line, path, instead)| {
            let rule = format!("uses `{path}`, which bypasses `sync`: use {instead}");
            Finding::new(file, line, rule)
        }));
    }
    Ok(Findings { broken, looked_at: format!("{} source files", sources.len()) })
}

/// Returns `true` if `file` is a source of a crate above `sync`, and not a test.
pub fn is_above_sync(file: &str) -> bool {
    let name = file.strip_prefix("crates/");
    let name = name.and_then(|name| name.split_once("/src/"));
    let is_above = name.is_some_and(|(name, _)| !FREE.contains(&name));
    is_above && source::is_rust(file) && !source::is_test(file)
}

fn named(text: &str) -> Vec<(u32, &'static str, &'static str)> {
    let code = source::code(text);
    let line = |rest: &str| 1 + code[..code.len() - rest.len()].matches('\n').count() as u32;
    let mut found = Vec::new();
    for name in CRATES {
        let is_named = |rest: &&str| rest.starts_with("::") || rest.starts_with(" as ");
        let paths = paths(&code, name).filter(is_named);
        found.extend(paths.map(|rest| (line(rest), *name, "`sync`")));
    }
    for path in PRIVATE {
        found.extend(paths(&code, path).map(|rest| (line(rest), *path, "`sync`")));
    }
    for root in ["std", "core", "alloc"] {
        let below = paths(&code, root).filter_map(|rest| rest.strip_prefix("::"));
        let leaves = below.flat_map(leaves);
        found.extend(leaves.filter_map(|leaf| {
            let (name, instead) = forbidden(leaf)?;
            Some((line(leaf), *name, *instead))
        }));
    }
    found
}

/// Returns the beginnings of the paths in a group in braces. If `rest` is not a group, returns
/// `rest`.
fn leaves(rest: &str) -> Vec<&str> {
    if !rest.starts_with('{') {
        return vec![rest];
    }
    let (mut leaves, mut depth, mut is_start) = (Vec::new(), 0, false);
    for (at, letter) in rest.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 1 => break,
            '}' => depth -= 1,
            _ if depth == 1 && is_start && !letter.is_whitespace() => leaves.push(&rest[at..]),
            _ => {}
        }
        is_start = matches!(letter, '{' | ',') || is_start && letter.is_whitespace();
    }
    leaves
}

/// Returns the row for a path below `std`, if the path is forbidden. `Duration` is allowed, because
/// it is only a number.
fn forbidden(path: &str) -> Option<&'static (&'static str, &'static str)> {
    STD.iter().find(|(name, _)| {
        path.strip_prefix(name).is_some_and(|rest| {
            let is_part = rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
            !is_part && !rest.starts_with("::Duration")
        })
    })
}

/// For each path that begins with `name`, returns the rest of `code` after the name.
fn paths<'a>(code: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    code.match_indices(name).filter_map(move |(at, _)| {
        let before = &code[..at];
        let is_inside = before.ends_with(|c: char| c.is_alphanumeric() || "_:".contains(c));
        let is_root = before.strip_suffix("::").is_some_and(|before| {
            !before.ends_with(|c: char| c.is_alphanumeric() || "_>".contains(c))
        });
        (!is_inside || is_root).then(|| &code[at + name.len()..])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<&str> {
        named(text).into_iter().map(|(_, path, _)| path).collect()
    }

    #[test]
    fn every_bypass_of_sync_is_found() {
        for (text, path) in [
            ("use std::sync::Mutex;", "sync"),
            ("use ::core::sync::atomic::Ordering;", "sync"),
            ("let x = std::thread::spawn(f);", "thread"),
            ("std::thread_local!(static X: u8 = 1);", "thread_local"),
            ("use std::time;", "time"),
            ("use std::time::Instant;", "time"),
            ("core::hint::spin_loop()", "hint::spin_loop"),
            ("use std::{cell::Cell, sync::Arc};", "sync"),
            ("use std::{\n    cell::{self, Cell},\n    fs,\n};", "fs"),
            ("use std::*;", "*"),
            ("fn f(x: libc::c_int) {}", "libc"),
            ("use rustix::thread;", "rustix"),
            ("use libc as c;", "libc"),
            ("use sync::backend::thread;", "sync::backend"),
        ] {
            assert_eq!(found(text), [path], "{text}");
        }
    }

    #[test]
    fn paths_that_models_need_not_see_are_free() {
        for text in [
            "use std::time::Duration;",
            "use std::{pin::Pin, task::{Context, sync}, time::Duration};\nsync::thread::spawn(f);",
            "use sync::{thread, time};",
            "a::std::sync(); mylibc::x(); std::synchrony();",
            "// std::sync::Mutex",
            "fn f() {}\n#[cfg(test)]\nmod tests {\n    use std::thread;\n}",
        ] {
            assert_eq!(found(text), [""; 0], "{text}");
        }
    }
}
