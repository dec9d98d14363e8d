//! Helpers for the tests of the commands `afterwork` and `afterwork-lab`. Each function takes the
//! path of the command's binary.

// No test program uses all of these functions.
#![allow(dead_code)]

use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

pub fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the command speaks UTF-8")
}

/// Asserts that the command rejects each of `lines`. A line has the arguments and a part of the
/// error. Arguments that are empty or contain spaces are quoted.
pub fn assert_rejected(command: &str, lines: &str) {
    for line in lines.trim().lines() {
        let (args, reason) = line.trim().split_once(" | ").expect(line);
        // Every second part is between quotes.
        let args = args.split('\'').enumerate().flat_map(|(i, part)| match i % 2 {
            0 => part.split_whitespace().collect(),
            _ => vec![part],
        });
        assert_fails(Command::new(command).args(args), reason);
    }
}

/// Asserts that a command cannot run: it exits with status 2, and its only output is one line on
/// stderr, which contains `reason`.
pub fn assert_fails(command: &mut Command, reason: &str) {
    let output = command.stdin(Stdio::null()).output().expect("the command starts");
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{command:?}: {err}");
    assert!(err.lines().count() == 1 && output.stdout.is_empty(), "{command:?}: {err}");
    assert!(err.starts_with("error: ") && err.contains(reason), "{command:?}: {err}");
}

/// Asserts that the command prints its help and its version on stdout, and succeeds even if no
/// process reads them. Without arguments, it prints an introduction, which contains `words`. `name`
/// is a subcommand.
pub fn assert_helps(command: &str, name: &str, words: &[&str]) {
    let lines: [&[&str]; 5] =
        [&[], &["--help"], &["--version"], &[name, "--help"], &["help", name]];
    for args in lines {
        for is_read in [true, false] {
            let mut child = Command::new(command);
            child.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = child.spawn().expect("the command starts");
            if !is_read {
                drop(child.stdout.take());
            }
            let output = child.wait_with_output().expect("the command ends");
            assert_eq!(output.status.code(), Some(0), "{args:?}");
            assert!(output.stderr.is_empty(), "{args:?}: {}", text(&output.stderr));
            assert!(!is_read || !output.stdout.is_empty(), "{args:?}");
        }
    }
    let output = Command::new(command).output().expect("the command starts");
    let out = text(&output.stdout);
    for word in words {
        assert!(out.contains(word), "{word} is missing in:\n{out}");
    }
    assert!(out.lines().all(|line| line.chars().count() <= 100), "{out}");
}

/// Waits until `is_so` returns `true`. Panics after two minutes.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..12_000 {
        if is_so() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("{what}");
}
