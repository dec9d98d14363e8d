//! Lists of checksums to be checked, and what came of each.

use std::collections::VecDeque;
use std::io::{self, BufRead};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use super::line::{self, Digest};
use super::sums::Summed;

/// A list as it was read.
#[derive(Debug, Default)]
pub struct List {
    /// What the files should have, in the list's order.
    pub expected: VecDeque<Digest>,
    /// Their names, in the same order.
    pub names: Vec<PathBuf>,
    /// Numbers of the lines that are no checksums.
    pub improper: Vec<usize>,
}

/// What came of a file of the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It has the checksum.
    Matches,
    /// It has another one.
    Differs,
    /// It could not be read.
    Unreadable,
    /// It is not there, and that is no failure.
    Missing,
}

/// How many files came to what.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// [`Verdict::Matches`].
    pub nr_matching: usize,
    /// [`Verdict::Differs`].
    pub nr_differing: usize,
    /// [`Verdict::Unreadable`].
    pub nr_unreadable: usize,
}

impl List {
    /// Reads a list, skipping empty lines and comments.
    ///
    /// # Errors
    ///
    /// What reading says.
    pub fn read(mut source: impl BufRead) -> io::Result<Self> {
        let mut list = Self::default();
        let mut text = Vec::new();
        for number in 1.. {
            text.clear();
            if source.read_until(b'\n', &mut text)? == 0 {
                break;
            }
            let text = text.strip_suffix(b"\n").unwrap_or(&text);
            let text = text.strip_suffix(b"\r").unwrap_or(text);
            match line::parse(text) {
                Some((digest, name)) => {
                    list.expected.push_back(digest);
                    list.names.push(std::ffi::OsString::from_vec(name).into());
                }
                None if text.is_empty() || text.starts_with(b"#") => {}
                None => list.improper.push(number),
            }
        }
        Ok(list)
    }
}

impl Verdict {
    /// Judges a file by what it should have.
    pub fn of(summed: &Summed, expected: &Digest, ignore_missing: bool) -> Self {
        match &summed.sum {
            Ok(sum) if sum == expected => Self::Matches,
            Ok(_) => Self::Differs,
            Err(error) if ignore_missing && error.kind() == io::ErrorKind::NotFound => {
                Self::Missing
            }
            Err(_) => Self::Unreadable,
        }
    }

    /// As it stands behind the file's name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Matches => "OK",
            Self::Differs => "FAILED",
            Self::Unreadable => "FAILED open or read",
            Self::Missing => "missing",
        }
    }
}

impl Tally {
    /// Counts a file.
    pub fn add(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Matches => self.nr_matching += 1,
            Verdict::Differs => self.nr_differing += 1,
            Verdict::Unreadable => self.nr_unreadable += 1,
            Verdict::Missing => {}
        }
    }

    /// Says whether every file that counts has its checksum, and there was one.
    pub fn is_good(self) -> bool {
        self.nr_matching > 0 && self.nr_differing == 0 && self.nr_unreadable == 0
    }

    /// What to warn of, in sha256sum's words and order.
    pub fn warnings(self, nr_improper: usize) -> Vec<String> {
        let tell = |count: usize, one: &str, many: &str| {
            let what = if count == 1 { one } else { many };
            (count > 0).then(|| format!("WARNING: {count} {what}"))
        };
        [
            tell(
                nr_improper,
                "line is improperly formatted",
                "lines are improperly formatted",
            ),
            tell(
                self.nr_unreadable,
                "listed file could not be read",
                "listed files could not be read",
            ),
            tell(
                self.nr_differing,
                "computed checksum did NOT match",
                "computed checksums did NOT match",
            ),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_keeps_its_order_and_names_the_lines_it_does_not_understand() {
        let digits = "0".repeat(64);
        let text = format!("{digits}  b\r\n\n# x\nrubbish\n{digits}  a\n{digits}");
        let list = List::read(text.as_bytes()).unwrap();
        assert_eq!(list.names, ["b", "a"].map(PathBuf::from));
        assert_eq!(list.expected.len(), 2);
        assert_eq!(list.improper, [4, 6]);
    }

    #[test]
    fn a_list_of_which_nothing_was_verified_is_not_good() {
        let mut tally = Tally::default();
        tally.add(Verdict::Missing);
        assert!(!tally.is_good());
        tally.add(Verdict::Matches);
        assert!(tally.is_good() && tally.warnings(0).is_empty());
        tally.add(Verdict::Unreadable);
        assert!(!tally.is_good());
        assert_eq!(
            tally.warnings(2),
            [
                "WARNING: 2 lines are improperly formatted",
                "WARNING: 1 listed file could not be read"
            ]
        );
    }
}
