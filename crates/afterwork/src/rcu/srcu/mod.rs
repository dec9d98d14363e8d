//! Readers that may sleep: each domain has its own, and a slow one holds up nobody else's grace periods.
//!
//! A guard may be held across `.await`, moved to another thread and dropped there. In exchange a grace period looks at
//! counters instead of threads, and a reader that sleeps for an hour delays its domain for an hour.
//!
//! # Counters
//!
//! A domain counts the sections that began (`locks`) and that ended (`unlocks`), for each of two *parities*. Every
//! thread has counters of its own, so that both ends of a section are a plain increment, and the end may be counted by
//! another thread than the beginning: only sums are looked at.
//!
//! ```text
//! reader                                       grace period
//!   p = parity            relaxed                H: heavy fence
//!   locks[p] += 1         relaxed                drained(1 - parity)?     wait
//!   light fence                                  drained(parity)?         no: parity = 1 - parity, wait
//!   … the section …
//!   unlocks[p] += 1       release              drained(p): u = sum of unlocks[p]   acquire
//!   light fence                                            sum of locks[p] == u    relaxed
//!   somebody asked for p? wake
//! ```
//!
//! # Why no reader is missed
//!
//! Take a section that must be waited for: it may have read something that was written before the grace period began.
//! So its light fence is not after H, and by the pairing of the two (`ORDER(srcu-enter)`) its increment of `locks[p]`
//! is visible to every sum that is taken after H.
//!
//! *A sum of locks is never short of one whose unlock is in the sum of unlocks*: the unlocks are added up first, an
//! unlock is written with release after its lock, and read with acquire before the locks are read. So each unlock in
//! the first sum has its lock in the second, and a visible section that has not ended makes the second greater by one.
//! While our section runs, no sums over its parity are equal. The grace period has seen equal sums over *both*
//! parities, each after H, so whichever the section took, it is over; and the acquire of its unlock orders all that it
//! did before the grace period's end.
//!
//! # Why both parities, and why two
//!
//! The parity that a reader counts under may be old: it may sleep between the load of the parity and the increment,
//! for as long as it likes, while grace periods pass. A grace period that flips and drains only what was current misses
//! it (the *single flip*). So the one that is not current is drained too, and first. The sums are never compared while
//! all readers use the counters being compared, or a stream of overlapping sections would keep them unequal for ever:
//! that, progress, is all that the flip is for. After it, at most one straggler a thread can still enter the old parity,
//! and new readers go to the other. A domain that is quiet needs no flip.
//!
//! Counters have 64 bits and do not wrap: at one section a nanosecond, that takes 584 years.
//!
//! # Sleeping
//!
//! A grace period that must wait sets `asked` to the parity it waits for, passes a heavy fence, adds up once more and
//! sleeps. A reader counts its end, passes a light fence and looks at `asked` (`ORDER(srcu-leave)`): at least one sees
//! the other. Readers of the other parity go by.
//!
//! # Costs
//!
//! | | |
//! |---|---|
//! | a section | two increments of the thread's own line, three loads of shared lines that are seldom written |
//! | a grace period | a membarrier and two sums over a line for each thread; another membarrier if it has to sleep |
//! | memory | 128 bytes for each thread that ever read at the same time, a domain |
//!
//! Differs from Linux: there every domain has a fast flavor beside the plain one, and its guards stay with their
//! context. Here all sections are fast, because a thread's own counters need no protection against preemption. Grace
//! periods have no delay to gather requests; those that come while one runs share the next.

mod callback;
mod domain;
mod gp;
mod guard;
mod slots;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

pub use domain::{Cookie, Domain};
pub use guard::{Guard, OwnedGuard};
