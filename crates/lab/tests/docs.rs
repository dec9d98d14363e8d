//! Checks that the book's lists are complete.

use std::fs;
use std::path::Path;

fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn tuning_has_every_key_with_its_default() {
    let page = page("troubleshooting.md");
    let (_, page) = page.split_once("### All keys").expect("a heading");
    let listed: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let keys: Vec<&str> = afterwork::params::keys().map(|key| key.name).collect();
    let missing: Vec<_> = keys.iter().filter(|key| !listed.contains(key)).collect();
    let unknown: Vec<_> = listed.iter().filter(|key| !keys.contains(key)).collect();
    assert!(missing.is_empty() && unknown.is_empty(), "missing {missing:?}, unknown {unknown:?}");
    for key in afterwork::params::keys() {
        let default = key.value(&afterwork::params::Params::default());
        let row =
            page.lines().find(|line| line.starts_with(&format!("| `{}` ", key.name))).unwrap();
        let cell = row.split('|').nth(2).unwrap().trim().trim_matches('`');
        let said = match cell {
            "2 MiB" => "2097152",
            cell => cell,
        };
        assert_eq!(said, default, "{}", key.name);
    }
}

#[test]
fn every_report_has_its_row_in_troubleshooting() {
    let page = page("troubleshooting.md");
    for word in
        ["a stall", "a hog", "a long drain", "a flush dependency", "a grace period does not end"]
    {
        assert!(page.contains(word), "{word}");
    }
}
