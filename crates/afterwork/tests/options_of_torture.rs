//! The command line of the torture programs, without running a torture test.

#![cfg(not(any(loom, shuttle)))]

#[path = "torture/options.rs"]
mod options;

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
    let names = options::twins().unwrap();
    // The list has one bug for each kind of call that names a bug, and one whose name is on the
    // next line.
    for name in [
        "srcu: single flip",
        "rcu: relaxed answer",
        "event count: no fence in notify",
        "rcu: a driver that stops wakes one",
    ] {
        assert!(names.contains(name), "{name}");
    }
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let refused = options::find("srcu: single flp", &names).unwrap_err();
    assert!(refused.contains("did you mean srcu: single flip"), "{refused}");
    let refused = options::find("nosuch", &names).unwrap_err();
    let expected = "`nosuch` is not known; the nearest are ";
    assert!(refused.starts_with(expected), "{refused}");
    let refused = options::find("srcu:single", &names).unwrap_err();
    let expected = "`srcu:single` is not known; did you mean srcu: single flip?";
    assert_eq!(refused, expected);
}
