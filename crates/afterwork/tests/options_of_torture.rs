//! The command line of the torture programs, without running a torture test.

#![cfg(not(any(loom, shuttle)))]

#[path = "torture/options.rs"]
mod options;

use std::path::Path;

#[test]
fn misspelled_word_is_rejected_with_the_nearest_ones() {
    let configs = ["TREE01", "TREE02", "SRCU-P", "QSBR"];
    assert_eq!(options::find("QSBR", &configs), Ok("QSBR"));
    let refused = options::find("TREE1", &configs).unwrap_err();
    let expected = "`TREE1` is not known; did you mean TREE01, or TREE02?";
    assert_eq!(refused, expected);
    let refused = options::find("SRCU", &configs).unwrap_err();
    assert_eq!(refused, "`SRCU` is not known; did you mean SRCU-P?");
    let refused = options::find("xyz", &configs).unwrap_err();
    let expected = "`xyz` is not known; there are TREE01, TREE02, SRCU-P, QSBR";
    assert_eq!(refused, expected);
    assert!(options::find("", &configs).is_err());
}

#[test]
fn torture_bugs_are_found_in_the_sources() {
    let find = |asked| {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        options::find_twin(asked, &crates)
    };
    // The list has one bug for each kind of call that names a bug, and one whose name is on the
    // next line.
    for name in [
        "srcu: single flip",
        "rcu: relaxed answer",
        "event count: no fence in notify",
        "rcu: a driver that stops wakes one",
    ] {
        assert_eq!(find(name), Ok(()));
    }
    let refused = find("srcu: single flp").unwrap_err();
    assert!(refused.contains("did you mean srcu: single flip"), "{refused}");
    let refused = find("nosuch").unwrap_err();
    let expected = "--twin: `nosuch` is not known; the nearest are ";
    assert!(refused.starts_with(expected), "{refused}");
    let refused = find("srcu:single").unwrap_err();
    let expected = "--twin: `srcu:single` is not known; did you mean srcu: single flip?";
    assert_eq!(refused, expected);
    // This name is only in a comment.
    assert!(find("park: asleep forever").is_err());
}
