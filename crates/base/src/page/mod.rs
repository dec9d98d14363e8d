//! The page: a file in `/dev/shm` through which a process shows its counters to `afterwork top`.
//!
//! ```
//! use afterwork::{observe, page::{Kind, Page}};
//!
//! let path = observe::publish()?;
//! let page = Page::read(&std::fs::read(&path)?).unwrap();
//! assert_eq!(page.pid, std::process::id());
//! let nr_queues = page.of(Kind::Queue).count();
//! # let _ = nr_queues;
//! # observe::unpublish();
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! `observe::publish` or `AFTERWORK=observe.publish=on` creates the file and a thread that sleeps.
//! A reader *asks* for a round through a number and a futex in the file's head. The thread wakes,
//! calls each subsystem to write its records, and sleeps again. The page costs nothing while no
//! reader asks.

// docs/observing.md describes the format and the guarantees.
//
// | file | contents |
// |---|---|
// | `layout.rs` | the layout of the file, byte by byte |
// | `kinds.rs` | the figures of each kind of record |
// | `image.rs` | the file as the process creates it |
// | `read.rs` | the file as a reader sees it; nothing in it is trusted |
// | `count.rs` | counters for the page |
// | `sources.rs` | the parts that have records; `no_sources.rs` without the feature `page` |
// | `publisher.rs` | the thread |

// A model publishes no page, so some of this code is unused there.
#![cfg_attr(any(loom, shuttle, not(feature = "page")), allow(dead_code))]

#[doc(hidden)]
pub(crate) mod count;
#[doc(hidden)]
pub(crate) mod image;
pub(crate) mod kinds;
pub(crate) mod layout;
#[cfg(all(feature = "page", not(any(loom, shuttle))))]
pub(crate) mod publisher;
#[cfg(all(feature = "page", not(any(loom, shuttle))))]
mod read;
#[cfg(feature = "page")]
#[doc(hidden)]
pub(crate) mod sources;
#[cfg(not(feature = "page"))]
#[path = "no_sources.rs"]
pub(crate) mod sources;
#[cfg(all(test, feature = "page", not(any(loom, shuttle))))]
mod tests;

pub use kinds::{Field, Kind, Measure, Record};
pub use layout::{ASKED_AT, MAX_BYTES, MAX_RECORDS, VERSION};
#[cfg(all(feature = "page", not(any(loom, shuttle))))]
pub use read::{Page, Refusal};

/// The directory of all pages.
pub const DIRECTORY: &str = "/dev/shm";

/// The prefix of a page's name, which the number of its process follows.
pub const NAME_PREFIX: &str = "afterwork-";

/// The number of processes with the same PID, each in its own container, that can have a page. A
/// guess.
pub const MAX_NAMES: u32 = 16;

/// Returns the `nth` name, counted from 0, that the page of a process may have: the first name that
/// no living process uses. Processes of several containers may have the same PID.
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

/// Returns the PID of the process whose page has this name, if it is one.
pub fn pid_of(name: &str) -> Option<u32> {
    let numbers = name.strip_prefix(NAME_PREFIX)?;
    let (pid, nth) = numbers.split_once('.').unwrap_or((numbers, "0"));
    let (pid, nth) = (pid.parse().ok()?, nth.parse().ok()?);
    // The name must be in its canonical form.
    (nth < MAX_NAMES && name_of(pid, nth) == name).then_some(pid)
}
