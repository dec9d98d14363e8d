//! The answers of the command to lines that people type.

use std::process::{Command, Output, Stdio};

fn afterwork(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_afterwork"))
        .args(args)
        .output()
        .expect("the command starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the command speaks UTF-8")
}

#[test]
fn without_arguments_it_teaches() {
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
        assert!(
            !output.stdout.is_empty() && output.stderr.is_empty(),
            "{args:?}"
        );
    }
}

#[test]
fn bad_input_is_one_line_that_says_what_is_valid() {
    let bad: &[(&[&str], &str)] = &[
        (
            &["nosuch"],
            "; commands: topology, top, demo, completions, man",
        ),
        (
            &["topology", "--sysfs", "/nosuch"],
            "--sysfs /nosuch: there is no such directory",
        ),
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
    for (args, valid) in bad {
        let output = afterwork(args);
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {err}");
        assert_eq!(err.lines().count(), 1, "{args:?}: {err}");
        assert!(
            err.starts_with("error: ") && err.contains(valid),
            "{args:?}: {err}"
        );
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn help_into_a_closed_pipe_is_no_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_afterwork"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("the command ends");
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
}
