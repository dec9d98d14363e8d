//! Synthetic machines, described by a line of text.
//!
//! ```text
//!   machine  =  level { ("x" | "×" | "*")  level }      outermost first
//!   level    =  count  name
//! ```
//!
//! | names | members |
//! |---|---|
//! | `socket`, `package` | packages |
//! | `numa`, `node` | NUMA nodes |
//! | `llc`, `cache` | last-level caches |
//! | `core` | cores |
//! | `smt`, `thread` | SMT siblings of a core |
//!
//! Packages, nodes and caches may nest in any order, except that a package within a cache is
//! rejected. For example, `1 socket x 1 llc x 2 numa x 8 core` is a cache that spans nodes. Cores
//! nest within them, and SMT siblings within cores. A level that is left out has one member, at its
//! place in the table above: `2 socket x 8 core` has one node and one cache for each socket.

use std::fmt;
use std::sync::Arc;

use crate::cpu_id::CpuId;
use crate::cpuset::CpuSet;
use crate::machine::build::{CacheFacts, CpuFacts, Facts, build};
use crate::machine::error::Error;
use crate::machine::sorted::Sorted;
use crate::machine::topology::Topology;
use crate::text::{Cursor, Mismatch};

/// The level of synthetic last-level caches, as on most real machines.
const SYNTHETIC_LLC_LEVEL: u32 = 3;

/// The error of parsing a synthetic machine: the position, and the text expected there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntheticError {
    description: String,
    column: usize,
    expected: String,
    found: String,
}

impl SyntheticError {
    /// Returns the column, counted in characters from 1.
    #[must_use]
    pub fn column(&self) -> usize {
        self.column
    }
}

impl fmt::Display for SyntheticError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { description, column, expected, found } = self;
        write!(f, "synthetic machine {description:?}, column {column}: ")?;
        write!(f, "expected {expected}, found {found}")
    }
}

impl std::error::Error for SyntheticError {}

crate::into_io_error!(SyntheticError, |_| ErrorKind::InvalidInput);

impl Topology {
    /// Creates a synthetic machine, such as `2 numa x 4 llc x 8 core x 2 smt`.
    ///
    /// Levels are listed from the outermost to the innermost, each with its count: `socket`
    /// (`package`), `numa` (`node`), `llc` (`cache`), `core`, `smt` (`thread`), with `x`, `×` or
    /// `*` between them. A level that is left out has one member. All CPUs are online and allowed.
    ///
    /// Differs from Linux: SMT siblings have adjacent numbers. On many machines Linux numbers the
    /// first siblings of all cores first.
    ///
    /// # Errors
    ///
    /// [`Error::Synthetic`] with the column and the expected text, if the description is invalid or
    /// has more than [`CpuId::LIMIT`] CPUs.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork_topology::Topology;
    ///
    /// let topology = Topology::synthetic("2 numa x 4 llc x 8 core x 2 smt")?;
    /// assert_eq!((topology.allowed().len(), topology.llcs().len()), (128, 8));
    ///
    /// let error = Topology::synthetic("2 numa x 8 cors").unwrap_err();
    /// assert!(error.to_string().contains("column 12: expected a level"));
    /// # Ok::<(), afterwork_topology::Error>(())
    /// ```
    pub fn synthetic(description: &str) -> Result<Self, Error> {
        let levels = parse(description).map_err(|Mismatch { at, expected, found }| {
            let column = 1 + description[..at].chars().count();
            SyntheticError { description: description.to_owned(), column, expected, found }
        })?;
        Ok(build(facts(&levels)))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Package,
    Numa,
    Llc,
    Core,
    Smt,
}

/// Each kind with its names, in the default order of nesting.
const KINDS: [(Kind, &[&str]); 5] = [
    (Kind::Package, &["socket", "package"]),
    (Kind::Numa, &["numa", "node"]),
    (Kind::Llc, &["llc", "cache"]),
    (Kind::Core, &["core"]),
    (Kind::Smt, &["smt", "thread"]),
];

const SEPARATORS: [char; 4] = ['x', 'X', '×', '*'];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Level {
    kind: Kind,
    count: u32,
}

fn parse(description: &str) -> Result<Vec<Level>, Mismatch> {
    let mut cursor = Cursor::new(description);
    let mut levels: Vec<Level> = Vec::new();
    let mut room = CpuId::LIMIT;
    loop {
        cursor.skip_whitespace();
        let count = cursor.number("a count", 1, room)?;
        room /= count;
        cursor.skip_whitespace();
        let kind = kind(&mut cursor, &levels)?;
        levels.push(Level { kind, count });
        cursor.skip_whitespace();
        if cursor.is_at_end() {
            return Ok(levels);
        }
        if !cursor.eat(&SEPARATORS) {
            return Err(cursor.mismatch("`x` or the end"));
        }
    }
}

/// Parses the name of a level, and checks that the level may nest within those before it.
fn kind(cursor: &mut Cursor<'_>, outer: &[Level]) -> Result<Kind, Mismatch> {
    let start = cursor.at();
    let word = cursor.take_while(char::is_alphabetic).to_ascii_lowercase();
    let singular = word.strip_suffix('s').unwrap_or(&word);
    let Some(&(kind, _)) = KINDS.iter().find(|(_, names)| names.contains(&singular)) else {
        let names: Vec<&str> = KINDS.iter().map(|(_, names)| names[0]).collect();
        return Err(cursor.mismatch_at(start, format!("a level, one of {}", names.join(", "))));
    };
    if outer.iter().any(|level| level.kind == kind) {
        return Err(cursor.mismatch_at(start, "each level once".to_owned()));
    }
    if let Some(level) = outer.iter().find(|level| !may_stand_within(kind, level.kind)) {
        let name = KINDS.iter().find(|(known, _)| *known == level.kind).map(|(_, names)| names[0]);
        let expected = format!("a level that fits within a {}", name.unwrap_or("level"));
        return Err(cursor.mismatch_at(start, expected));
    }
    Ok(kind)
}

fn may_stand_within(inner: Kind, outer: Kind) -> bool {
    match outer {
        Kind::Package | Kind::Numa => true,
        Kind::Llc => inner != Kind::Package,
        Kind::Core => inner == Kind::Smt,
        Kind::Smt => false,
    }
}

fn facts(levels: &[Level]) -> Facts {
    let nr_cpus: u32 = levels.iter().map(|level| level.count).product();
    let all: CpuSet = (0..nr_cpus).map(CpuId::new).collect();
    let members = |kind| {
        let size = nr_cpus / nr_members(levels, kind);
        let starts = (0..nr_cpus).step_by(size as usize);
        starts.map(move |start| (start..start + size).map(CpuId::new))
    };

    let mut cpus: Sorted<CpuId, CpuFacts> =
        all.iter().map(|cpu| (cpu, CpuFacts::default())).collect();
    for core in members(Kind::Core) {
        let siblings = Arc::new(core.clone().collect::<CpuSet>());
        core.for_each(|cpu| cpus[cpu].siblings = Arc::clone(&siblings));
    }
    for llc in members(Kind::Llc) {
        let sharers = Arc::new(llc.clone().collect());
        let cache = CacheFacts { level: SYNTHETIC_LLC_LEVEL, size: None, cpus: sharers };
        llc.for_each(|cpu| cpus[cpu].cache = Some(cache.clone()));
    }
    for (package, id) in members(Kind::Package).zip(0..) {
        package.for_each(|cpu| cpus[cpu].package = Some(id));
    }
    let nodes = members(Kind::Numa).zip(0..).map(|(node, id)| (id, node.collect())).collect();
    Facts { online: all.clone(), allowed: all, cpus, nodes, ..Facts::default() }
}

/// Returns the number of members of a kind in the whole machine. A kind that is left out nests
/// directly within the innermost level that precedes it in [`KINDS`].
fn nr_members(levels: &[Level], kind: Kind) -> u32 {
    let named = levels.iter().position(|level| level.kind == kind);
    let depth = named.or_else(|| levels.iter().rposition(|level| (level.kind as u8) < kind as u8));
    let around = depth.map_or(&levels[..0], |depth| &levels[..=depth]);
    around.iter().map(|level| level.count).product()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counts(description: &str) -> [usize; 5] {
        let Topology { packages, nodes, llcs, cores, allowed, .. } =
            Topology::synthetic(description).unwrap();
        [packages.len(), nodes.len(), llcs.len(), cores.len(), allowed.len()]
    }

    #[test]
    fn levels_multiply_from_the_outside_in() {
        for (description, expected) in [
            ("2 numa x 4 llc x 8 core x 2 smt", [1, 2, 8, 64, 128]),
            ("2 socket × 8 cores", [2, 2, 2, 16, 16]),
            ("1 package*2 nodes*3 caches*1 core*2 threads", [1, 2, 6, 6, 12]),
            ("72core", [1, 1, 1, 72, 72]),
            ("4 SMT", [1, 1, 1, 1, 4]),
            ("3 llc", [1, 1, 3, 3, 3]),
            ("1 socket x 1 llc x 2 numa x 4 core", [1, 2, 1, 8, 8]),
            ("1 numa x 2 socket x 4 core", [2, 1, 2, 8, 8]),
            ("2 llc x 2 numa", [1, 4, 2, 4, 4]),
            ("8192 core x 2 smt", [1, 1, 1, 8192, 16384]),
        ] {
            assert_eq!(counts(description), expected, "{description}");
        }
    }

    #[test]
    fn malformed_description_names_column_and_expectation() {
        let cases = r#"
            numa | column 1: expected a count, found "numa"
            2 | column 2: expected a level, one of socket, numa, llc, core, smt, found the end
            2 numa x | column 9: expected a count, found the end
            2 numa × 4 lc | column 12: expected a level, one of socket, numa, llc, core, smt, found "lc"
            2 numa, 4 llc | column 7: expected `x` or the end, found ","
            2 numa 4 llc | column 8: expected `x` or the end, found "4"
            0 core | column 1: expected a count from 1 to 16384, found "0"
            200 llc x 100 core | column 11: expected a count from 1 to 81, found "100"
            99999999999 core | column 1: expected a count from 1 to 16384, found "99999999999"
            2 core x 2 core | column 12: expected each level once, found "core"
            2 core x 2 llc | column 12: expected a level that fits within a core, found "llc"
            2 smt x 2 core | column 11: expected a level that fits within a smt, found "core"
            2 llc x 2 socket | column 11: expected a level that fits within a llc, found "socket"
            2 numa\nx 4 lc | column 12: expected a level, one of socket, numa, llc, core, smt, found "lc"
        "#;
        let cases = cases.trim().lines().map(|case| case.trim().split_once(" | ").unwrap());
        let empty = ("", "column 1: expected a count, found the end");
        for (description, expected) in cases.chain([empty]) {
            let description = description.replace("\\n", "\n");
            let error = Topology::synthetic(&description).unwrap_err().to_string();
            let expected = format!("synthetic machine {description:?}, {expected}");
            assert_eq!(error, expected);
        }
    }

    proptest! {
        #[test]
        fn arbitrary_description_never_panics_and_complains_in_one_line(
            description in "\\PC{0,40}|[0-9]{1,3} ?(numa|llc|core|smt|socket|x|×|\n)([ x*×0-9a-z\n]{0,30})",
        ) {
            if let Err(error) = Topology::synthetic(&description) {
                prop_assert_eq!(error.to_string().lines().count(), 1);
            }
        }
    }
}
