//! The kernel's list format for sets of CPUs.
//!
//! ```text
//!   list    =  [ region { ","  region } ]          spaces are allowed around each region
//!   region  =  cpu [ "-" cpu [ ":" used "/" group ] ]
//! ```
//!
//! `0-31:2/4` is the first two of every four CPUs: 0, 1, 4, 5, and so on up to 29.
//!
//! Differs from Linux: `N` (the last CPU) and `all` are rejected, because a list does not contain
//! the number of CPUs. An empty region, as in `0,,3`, is an error.

use std::fmt;
use std::str::FromStr;

use crate::cpu_id::CpuId;
use crate::cpuset::CpuSet;
use crate::text::{Cursor, Mismatch, position};

const MAX_CPU: u32 = CpuId::LIMIT - 1;

/// The error of parsing a CPU list: the position, and the text expected there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseCpuListError {
    line: usize,
    column: usize,
    expected: String,
    found: String,
}

impl ParseCpuListError {
    /// Returns the line of the error, counted from 1.
    #[must_use]
    pub fn line(&self) -> usize {
        self.line
    }

    /// Returns the column in that line, counted in characters from 1.
    #[must_use]
    pub fn column(&self) -> usize {
        self.column
    }
}

impl fmt::Display for ParseCpuListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, column, expected, found } = self;
        if *line > 1 {
            write!(f, "line {line}, ")?;
        }
        write!(f, "column {column} of the CPU list: expected {expected}, found {found}")
    }
}

impl std::error::Error for ParseCpuListError {}

crate::into_io_error!(ParseCpuListError, |_| ErrorKind::InvalidInput);

/// Parses the kernel's list format, such as `0-3,8,10-11`. An empty string is the empty set.
/// Strides are allowed: `0-31:2/4` is the first two of every four CPUs.
///
/// Differs from Linux: `N` and `all` are rejected, and an empty region (`0,,3`) is an error.
impl FromStr for CpuSet {
    type Err = ParseCpuListError;

    fn from_str(text: &str) -> Result<Self, ParseCpuListError> {
        parse(text).map_err(|Mismatch { at, expected, found }| {
            let (line, column) = position(text.as_bytes(), at);
            ParseCpuListError { line, column, expected, found }
        })
    }
}

/// Parses a list for a caller that knows the position of the list in its file.
pub(crate) fn parse(text: &str) -> Result<CpuSet, Mismatch> {
    let mut set = CpuSet::new();
    let mut cursor = Cursor::new(text);
    cursor.skip_whitespace();
    if cursor.is_at_end() {
        return Ok(set);
    }
    loop {
        let may_follow = region(&mut cursor, &mut set)?;
        cursor.skip_whitespace();
        if cursor.is_at_end() {
            return Ok(set);
        }
        if !cursor.eat(&[',']) {
            return Err(cursor.mismatch(may_follow));
        }
        cursor.skip_whitespace();
    }
}

/// Parses one region into `set`. Returns a description of the text that may follow.
fn region(cursor: &mut Cursor<'_>, set: &mut CpuSet) -> Result<&'static str, Mismatch> {
    let first = cursor.number("a CPU number", 0, MAX_CPU)?;
    if !cursor.eat(&['-']) {
        set.insert(CpuId::new(first));
        return Ok("`,`, `-` or the end");
    }
    let last = cursor.number("a last CPU number", first, MAX_CPU)?;
    if !cursor.eat(&[':']) {
        insert_range(set, first, last);
        return Ok("`,`, `:` or the end");
    }
    let group_at = cursor.at();
    let used = cursor.number("how many of each group", 0, CpuId::LIMIT)?;
    if !cursor.eat(&['/']) {
        return Err(cursor.mismatch("`/` and the size of a group"));
    }
    let group = cursor.number("the size of a group", 1, CpuId::LIMIT)?;
    if used > group {
        let expected = format!("at most {group} of each group of {group}");
        return Err(cursor.mismatch_at(group_at, expected));
    }
    for start in (first..=last).step_by(group as usize) {
        if let Some(end) = (start + used).checked_sub(1).filter(|&end| end >= start) {
            insert_range(set, start, end.min(last));
        }
    }
    Ok("`,` or the end")
}

fn insert_range(set: &mut CpuSet, first: u32, last: u32) {
    set.extend((first..=last).map(CpuId::new));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> String {
        text.parse::<CpuSet>().map_or_else(|error| error.to_string(), |set| set.to_string())
    }

    #[test]
    fn lists_read_as_the_kernel_reads_them() {
        for (text, cpus) in [
            ("", ""),
            ("\n", ""),
            ("0", "0"),
            ("0-3\n", "0-3"),
            ("0-3,8,10-11", "0-3,8,10-11"),
            ("3,1,2", "1-3"),
            (" 1 , 2-4 ", "1-4"),
            ("0-9:2/4", "0-1,4-5,8-9"),
            ("0-8:2/4", "0-1,4-5,8"),
            ("5-9:1/2,20", "5,7,9,20"),
            ("0-7:4/4", "0-7"),
            ("0-7:0/4", ""),
            ("16383", "16383"),
        ] {
            assert_eq!(read(text), cpus, "{text:?}");
        }
    }

    #[test]
    fn malformed_list_names_column_and_expectation() {
        let cases = r#"
            x | column 1 of the CPU list: expected a CPU number, found "x"
            0,,3 | column 3 of the CPU list: expected a CPU number, found ","
            0-3, | column 5 of the CPU list: expected a CPU number, found the end
            0- | column 3 of the CPU list: expected a last CPU number, found the end
            3-1 | column 3 of the CPU list: expected a last CPU number from 3 to 16383, found "1"
            0 1 | column 3 of the CPU list: expected `,`, `-` or the end, found "1"
            0-3;4 | column 4 of the CPU list: expected `,`, `:` or the end, found ";4"
            0-7:2 | column 6 of the CPU list: expected `/` and the size of a group, found the end
            0-7:2/0 | column 7 of the CPU list: expected the size of a group from 1 to 16384, found "0"
            0-7:3/2 | column 5 of the CPU list: expected at most 2 of each group of 2, found "3/2"
            0\n1 | line 2, column 1 of the CPU list: expected `,`, `-` or the end, found "1"
            4294967296 | column 1 of the CPU list: expected a CPU number from 0 to 16383, found "4294967296"
        "#;
        for case in cases.trim().lines() {
            let (text, complaint) = case.trim().split_once(" | ").unwrap();
            assert_eq!(read(&text.replace("\\n", "\n")), complaint, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn printed_list_reads_back_as_the_same_set(cpus in prop::collection::vec(0..CpuId::LIMIT, 0..100)) {
            let set: CpuSet = cpus.into_iter().map(CpuId::new).collect();
            prop_assert_eq!(set.to_string().parse::<CpuSet>(), Ok(set));
        }

        #[test]
        fn stride_takes_first_of_each_group(first in 0u32..50, len in 0u32..200, group in 1u32..20, share in 0u32..20) {
            let used = share % (group + 1);
            let last = first + len;
            let set: CpuSet = format!("{first}-{last}:{used}/{group}").parse().unwrap();
            let slow: CpuSet = (first..=last).filter(|cpu| (cpu - first) % group < used).map(CpuId::new).collect();
            prop_assert_eq!(set, slow);
        }

        #[test]
        fn arbitrary_text_never_panics_and_complains_in_one_line(text in "\\PC*|[-0-9,:/ N\n]*") {
            if let Err(error) = text.parse::<CpuSet>() {
                prop_assert!(error.column() >= 1 && error.line() >= 1);
                prop_assert_eq!(error.to_string().lines().count(), 1);
            }
        }
    }
}
