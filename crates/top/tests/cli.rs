//! Tests the command's answers to lines that people type.

mod support;

use support::{assert_helps, assert_rejected};

const COMMAND: &str = env!("CARGO_BIN_EXE_afterwork");

#[test]
fn introduction_help_and_version_are_data() {
    let words = ["Try:", "afterwork demo", "standard output", "Exit status"];
    assert_helps(COMMAND, "top", &words);
}

#[test]
fn bad_input_is_reported_in_one_line_with_valid_values() {
    let bad = "
        nosuch | ; commands: topology, top, demo, completions, man
        topology --sysfs /nosuch | --sysfs /nosuch: there is no such directory
        topology --sysfs /usr | --sysfs /usr: not laid out as /sys: it has no devices/system/cpu
        demo --seconds x | invalid value 'x' for '--seconds <S>': not a whole number from 1 to 86400
        demo --seconds 0 | from 1 to 86400
    ";
    assert_rejected(COMMAND, bad);
}
