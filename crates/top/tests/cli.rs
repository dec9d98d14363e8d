//! Tests the command's answers to lines that people type.

mod support;

use std::process::Output;

use support::{assert_help_into_closed_pipe, assert_rejected, run, text};

const COMMAND: &str = env!("CARGO_BIN_EXE_afterwork");

fn afterwork(args: &[&str]) -> Output {
    run(COMMAND, args)
}

#[test]
fn without_arguments_the_introduction_is_printed() {
    let output = afterwork(&[]);
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0));
    for word in ["Try:", "afterwork demo", "standard output", "Exit status"] {
        assert!(out.contains(word), "{word} is missing in:\n{out}");
    }
    assert!(out.lines().all(|line| line.chars().count() <= 100), "{out}");
    assert!(output.stderr.is_empty());
}

#[test]
fn help_and_version_are_data() {
    for args in [["--help"].as_slice(), &["--version"], &["help", "top"]] {
        let output = afterwork(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert!(!output.stdout.is_empty() && output.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn bad_input_is_reported_in_one_line_with_valid_values() {
    let bad: &[(&[&str], &str)] = &[
        (&["nosuch"], "; commands: topology, top, demo, completions, man"),
        (&["topology", "--sysfs", "/nosuch"], "--sysfs /nosuch: there is no such directory"),
        (
            &["topology", "--sysfs", "/usr"],
            "--sysfs /usr: not laid out as /sys: it has no devices/system/cpu",
        ),
        (
            &["demo", "--seconds", "x"],
            "invalid value 'x' for '--seconds <S>': not a whole number from 1 to 86400",
        ),
        (&["demo", "--seconds", "0"], "from 1 to 86400"),
    ];
    assert_rejected(COMMAND, bad);
}

#[test]
fn help_into_a_closed_pipe_is_not_an_error() {
    assert_help_into_closed_pipe(COMMAND);
}
