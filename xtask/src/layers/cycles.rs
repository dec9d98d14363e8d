//! Finds files of a crate that name each other in a circle.
//!
//! A file names another one by a `use` or a path to what lies there; what a `mod.rs` gives on by `pub use` lies where it
//! comes from, so that a folder's door makes no circle. Test code does not count. Files that can all be reached from each
//! other are a *knot*: none of them is understood without the rest.

use std::collections::BTreeMap;

use super::check::{File, absolute, is_test_file};
use super::rules::{self, KNOT};
use crate::report::Finding;

/// Re-exports of re-exports that are followed: more than there are, and an end where two give each other on.
const MOST_STEPS: usize = 8;

/// The files of one crate by module.
struct Crate<'a> {
    files: Vec<&'a File>,
    by_module: BTreeMap<&'a [String], usize>,
}

/// Finds knots that are larger than their folder's row allows, and rows that allow more than there is.
pub fn check(files: &[File]) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, Vec<&File>> = BTreeMap::new();
    for file in files {
        crates.entry(file.place.krate()).or_default().push(file);
    }
    let of_crate = |of_crate: Vec<&File>| knots(&Crate::new(of_crate, files));
    let knots: Vec<Vec<String>> = crates.into_values().flat_map(of_crate).collect();
    let broken = judge(&knots, rules::KNOTS).into_iter();
    broken
        .map(|rule| Finding::new("xtask/src/layers/rules.rs", 0, rule))
        .collect()
}

/// Returns what is wrong with `knots` or with the rows about them.
fn judge(knots: &[Vec<String>], rows: &[(&str, usize)]) -> Vec<String> {
    let mut broken = Vec::new();
    for knot in knots {
        let row = rows.iter().find(|row| row.0 == folder(knot));
        let most = row.map_or(KNOT, |row| row.1);
        if knot.len() > most {
            broken.push(format!(
                "{} files of `{}` name each other in a circle, at most {most} may: {}",
                knot.len(),
                folder(knot),
                knot.join(", ")
            ));
        }
    }
    for (name, most) in rows {
        let there = knots.iter().filter(|knot| folder(knot) == *name);
        let largest = there.map(Vec::len).max().unwrap_or(0);
        if largest < *most {
            broken.push(format!(
                "`{name}` may have a circle of {most} files and has one of {largest}: its row may only fall"
            ));
        }
    }
    broken
}

/// Returns the folder below `crates/` that all files of a knot lie in, without `src`.
fn folder(knot: &[String]) -> String {
    let folders = knot.iter().map(|file| {
        let (folder, _) = file.rsplit_once('/').unwrap_or_default();
        folder
            .split('/')
            .filter(|part| !matches!(*part, "crates" | "src"))
            .collect::<Vec<_>>()
    });
    let common = folders.reduce(|common, folder| {
        let pairs = common.into_iter().zip(folder);
        pairs.take_while(|(a, b)| a == b).map(|(a, _)| a).collect()
    });
    common.unwrap_or_default().join("/")
}

impl<'a> Crate<'a> {
    fn new(files: Vec<&'a File>, all: &[File]) -> Self {
        let shipped = files.into_iter().filter(|file| !is_test_file(file, all));
        let files: Vec<&File> = shipped.collect();
        let modules = files.iter().map(|file| file.place.module());
        let by_module = modules.zip(0..).collect();
        Self { files, by_module }
    }

    /// Returns the files that `file` names.
    fn names(&self, file: usize) -> Vec<usize> {
        let module = self.files[file].place.module();
        let mentions = self.files[file].outline.mentions.iter();
        let named = mentions.filter(|mention| !mention.in_test && mention.given_on.is_none());
        let named = named.filter_map(|mention| {
            let path =
                absolute(module, mention).or_else(|| self.below(module, &mention.segments))?;
            self.file_of(&path, MOST_STEPS)
        });
        named.filter(|&other| other != file).collect()
    }

    /// Returns a path that begins with a module of this one.
    fn below(&self, module: &[String], segments: &[String]) -> Option<Vec<String>> {
        let child = [module, segments.get(..1)?].concat();
        let is_module = self.by_module.contains_key(child.as_slice());
        is_module.then(|| [module, segments].concat())
    }

    /// Returns where `path` leads.
    fn file_of(&self, path: &[String], steps: usize) -> Option<usize> {
        let prefixes = (0..=path.len()).rev();
        let (length, file) = prefixes
            .filter_map(|n| Some((n, *self.by_module.get(&path[..n])?)))
            .next()?;
        let (Some(name), Some(steps)) = (path.get(length), steps.checked_sub(1)) else {
            return Some(file);
        };
        let mut mentions = self.files[file].outline.mentions.iter();
        let origin =
            mentions.find(|it| it.given_on.as_ref() == Some(name) && it.modules.is_empty());
        let origin = origin.and_then(|it| {
            let module = &path[..length];
            absolute(module, it).or_else(|| self.below(module, &it.segments))
        });
        match origin {
            Some(origin) => self.file_of(&[&origin, &path[length + 1..]].concat(), steps),
            None => Some(file),
        }
    }
}

/// Returns the knots of a crate, each with its files in order.
fn knots(krate: &Crate<'_>) -> Vec<Vec<String>> {
    let all = 0..krate.files.len();
    let names: Vec<Vec<usize>> = all.clone().map(|file| krate.names(file)).collect();
    let reached: Vec<Vec<bool>> = all.clone().map(|file| reached_from(file, &names)).collect();
    let knots = all.clone().filter_map(|file| {
        let both = |&other: &usize| reached[file][other] && reached[other][file];
        let knot: Vec<usize> = all.clone().filter(both).collect();
        // Told once, by the first of its files.
        let name = |&file: &usize| krate.files[file].name.clone();
        (knot.first() == Some(&file)).then(|| knot.iter().map(name).collect())
    });
    knots.collect()
}

fn reached_from(file: usize, names: &[Vec<usize>]) -> Vec<bool> {
    let mut reached = vec![false; names.len()];
    let mut left = names[file].clone();
    while let Some(next) = left.pop() {
        if !std::mem::replace(&mut reached[next], true) {
            left.extend(&names[next]);
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::super::check::Place;
    use super::*;
    use crate::source::outline;

    fn knot(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<File> = files
            .iter()
            .map(|(name, text)| {
                let name = format!("crates/topology/src/{name}");
                File {
                    place: Place::of(&name).unwrap(),
                    name,
                    outline: outline(text).unwrap(),
                }
            })
            .collect();
        let knots = knots(&Crate::new(files.iter().collect(), &files));
        let short = |name: &String| name.rsplit("src/").next().unwrap_or_default().to_string();
        let mut names: Vec<String> = knots.iter().flatten().map(short).collect();
        names.sort();
        names
    }

    #[test]
    fn files_that_name_each_other_are_a_knot() {
        let a = ("a.rs", "use crate::b::B;");
        let c = ("c.rs", "fn f() { super::a::g() }");
        assert_eq!(
            knot(&[a, ("b.rs", "use super::c::C;"), c]),
            ["a.rs", "b.rs", "c.rs"]
        );
        assert_eq!(knot(&[a, ("b.rs", ""), c]).len(), 0);
    }

    #[test]
    fn what_a_folder_gives_on_lies_where_it_comes_from() {
        let files = |below| {
            [
                (
                    "m/mod.rs",
                    "mod a; mod b; pub use a::A; pub(crate) use self::b::{B as Bee};",
                ),
                ("m/a.rs", "use super::Bee;"),
                ("m/b.rs", below),
            ]
        };
        assert_eq!(knot(&files("use super::A;")), ["m/a.rs", "m/b.rs"]);
        assert_eq!(knot(&files("use crate::m::A::x;")), ["m/a.rs", "m/b.rs"]);
        assert_eq!(knot(&files("use super::Nothing;")).len(), 0);
    }

    #[test]
    fn what_a_folder_uses_itself_is_named() {
        let door = ("m/mod.rs", "mod a; pub struct M(a::A);");
        assert_eq!(
            knot(&[door, ("m/a.rs", "use super::M;")]),
            ["m/a.rs", "m/mod.rs"]
        );
    }

    #[test]
    fn tests_may_name_all() {
        let child = ("a/tests.rs", "use super::*;");
        assert_eq!(
            knot(&[
                (
                    "a.rs",
                    "#[cfg(test)] mod tests; #[cfg(test)] use self::tests::T;"
                ),
                child
            ])
            .len(),
            0
        );
    }

    #[test]
    fn re_exports_in_a_circle_end() {
        let files = [
            ("a.rs", "pub use crate::b::X;"),
            ("b.rs", "pub use crate::a::X;"),
            ("c.rs", "use crate::a::X;"),
        ];
        assert_eq!(knot(&files).len(), 0);
    }

    #[test]
    fn a_knot_may_neither_grow_nor_be_forgotten() {
        let knot = |folder: &str, count: usize| -> Vec<String> {
            (0..count)
                .map(|number| format!("crates/afterwork/src/{folder}/{number}.rs"))
                .collect()
        };
        let rows = [("afterwork/rcu", 7)];
        let rules = |folder, count| judge(&[knot(folder, count)], &rows);
        assert_eq!(rules("rcu", 7), Vec::<String>::new());
        assert!(rules("rcu", 8)[0].starts_with("8 files of `afterwork/rcu` name each other"));
        assert!(rules("rcu", 6)[0].contains("its row may only fall"));
        let all = [knot("rcu", 7), knot("wake", KNOT), knot("percpu", KNOT + 1)];
        let [rule] = &judge(&all, &rows)[..] else {
            panic!("one is too large")
        };
        assert!(rule.starts_with("6 files of `afterwork/percpu`"), "{rule}");
    }

    #[test]
    fn a_knot_belongs_to_the_folder_that_has_all_of_it() {
        let knot =
            |files: [&str; 2]| folder(&files.map(|it| format!("crates/afterwork/src/{it}.rs")));
        assert_eq!(
            knot(["workqueue/pool/a", "workqueue/pool/b"]),
            "afterwork/workqueue/pool"
        );
        assert_eq!(
            knot(["workqueue/pool/a", "workqueue/flush/a"]),
            "afterwork/workqueue"
        );
        assert_eq!(knot(["workqueue/a", "rcu/a"]), "afterwork");
    }
}
