//! What the process shows of itself to others: a file in `/dev/shm` that `afterwork top` reads.
//!
//! [`observe::publish`](crate::observe::publish) or `AFTERWORK=observe.publish=on` makes `/dev/shm/afterwork-PID` and a
//! thread that sleeps. Who wants to look *asks*, by a number and a futex in the file's head; the thread gets up, has each
//! subsystem write its records, and sleeps again. So a process that nobody looks at does nothing for it, and one that is
//! idle is as good to look at as a busy one.
//!
//! | file | what it holds |
//! |---|---|
//! | `layout.rs` | where what lies in the file, byte by byte |
//! | `kinds.rs` | which figures a record of each kind has |
//! | `image.rs` | the file as the process makes it |
//! | `read.rs` | the file as a reader sees it, who trusts none of it |
//! | `count.rs` | what is counted for the page alone |
//! | `sources.rs` | who has records to write |
//! | `publisher.rs` | the thread |
//!
//! docs/top.md has the format and what is guaranteed.
// In a model nobody looks, so nothing is written.
#![cfg_attr(any(loom, shuttle), allow(dead_code))]

mod count;
mod image;
mod kinds;
mod layout;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod publisher;
#[cfg(not(any(loom, shuttle)))]
mod read;
mod sources;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

pub(crate) use count::{Count, Tally};
pub(crate) use image::Image;
pub(crate) use sources::{Joined, join};

pub use kinds::{Field, Kind, Measure};
pub(crate) use kinds::{pool_figures, queue_figures};
pub use layout::{ASKED_AT, MAX_BYTES, MAX_RECORDS, VERSION};
#[cfg(not(any(loom, shuttle)))]
pub use read::{Page, Record, Refusal};

/// Where pages lie.
pub const DIRECTORY: &str = "/dev/shm";

/// What the name of a page begins with; the number of its process follows.
pub const NAME_PREFIX: &str = "afterwork-";

/// How many processes of one number, each in a container of its own, may show themselves in one directory. A guess.
pub const MAX_NAMES: u32 = 16;

/// Returns the `nth` name, from 0, that the page of a process may have.
///
/// It has the first one that no living process has: containers that share the directory may not share numbers.
///
/// # Examples
///
/// ```
/// use afterwork::page::{name_of, pid_of};
///
/// assert_eq!([name_of(7, 0), name_of(7, 1)], ["afterwork-7", "afterwork-7.1"]);
/// assert_eq!([pid_of("afterwork-7"), pid_of("afterwork-7.1")], [Some(7); 2]);
/// assert_eq!(pid_of("afterwork-7.tmp"), None);
/// ```
pub fn name_of(pid: u32, nth: u32) -> String {
    match nth {
        0 => format!("{NAME_PREFIX}{pid}"),
        _ => format!("{NAME_PREFIX}{pid}.{nth}"),
    }
}

/// Returns the number of the process whose page is called so; none if no page is.
pub fn pid_of(name: &str) -> Option<u32> {
    let (pid, nth) = match name.strip_prefix(NAME_PREFIX)?.split_once('.') {
        Some((pid, nth)) => (pid, nth.parse().ok()?),
        None => (name.strip_prefix(NAME_PREFIX)?, 0),
    };
    let pid = pid.parse().ok()?;
    // One way to write it only.
    (nth < MAX_NAMES && name_of(pid, nth) == name).then_some(pid)
}
