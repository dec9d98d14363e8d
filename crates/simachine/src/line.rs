//! The state of each cache line: its owner, its sharers, and the CPUs that wait for it.
//!
//! A line has one owner that may write it (`exclusive`), or sharers that may read it. A CPU that
//! misses first waits until the line is free (`busy`), in order of arrival, and then waits for the
//! transfer. Two details determine whether contended words behave as on a real machine:
//!
//! - *The line is not reserved in advance.* A waiter joins the queue, and is granted the line when
//!   it becomes free. If it reserved the line at request time, each CPU in turn would get it for
//!   one access, and a CAS loop would collapse.
//! - *The old owner keeps hitting while the request travels* (`prev`, `until`), so that several of
//!   its accesses share one transfer.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::panic::Location;

use super::mask::Mask;

pub const NOBODY: u32 = u32::MAX;
pub const LINE_BYTES: usize = 64;

/// The source location of an access.
pub type Site = &'static Location<'static>;

/// The waits for a line at one source location.
#[derive(Clone, Copy, Debug)]
pub struct AtSite {
    pub site: Site,
    pub nr_moves: u64,
    pub waited_ps: u64,
}

#[derive(Debug, Default)]
pub struct Line {
    /// The CPU that wrote the line last, and may have the only copy.
    pub owner: u32,
    pub exclusive: bool,
    pub sharers: Mask,
    /// The time at which the next CPU may get the line.
    pub busy: u64,
    /// The time at which the line arrives at its owner.
    pub ready: u64,
    /// The previous owner, and the time at which it loses the line.
    pub prev: u32,
    pub until: u64,
    pub queue: VecDeque<u32>,
    pub sites: Vec<AtSite>,
}

impl Line {
    fn new() -> Self {
        Self { owner: NOBODY, prev: NOBODY, ..Self::default() }
    }

    /// Returns `true` if `cpu` may write the line at `now`.
    #[inline]
    pub fn is_of(&self, cpu: usize, now: u64) -> bool {
        let cpu = cpu as u32;
        (self.exclusive && self.owner == cpu) || (self.prev == cpu && now < self.until)
    }

    /// Records a transfer and the time that `site` waited for it.
    pub fn note(&mut self, site: Site, waited_ps: u64) {
        let known = self.sites.iter_mut().find(|at| std::ptr::eq(at.site, site));
        match known {
            Some(at) => {
                at.nr_moves += 1;
                at.waited_ps += waited_ps;
            }
            None => self.sites.push(AtSite { site, nr_moves: 1, waited_ps }),
        }
    }

    /// Asserts that at most one CPU may write the line.
    pub fn check(&self) {
        debug_assert!(!self.exclusive || self.owner != NOBODY);
        debug_assert!(
            !self.exclusive || self.sharers.is_empty_but(self.owner as usize),
            "a line has an exclusive owner and sharers"
        );
    }
}

/// A multiplicative hasher for line numbers.
#[derive(Debug, Default)]
pub struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers");
    }
    fn write_u64(&mut self, key: u64) {
        let mixed = (key ^ (key >> 20)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 29);
    }
}

pub type ByNumber<T> = HashMap<u64, T, BuildHasherDefault<Mix>>;

/// All accessed lines, in the order of their first access.
#[derive(Debug, Default)]
pub struct Lines {
    places: ByNumber<u32>,
    all: Vec<Line>,
    last: (u64, u32),
}

impl Lines {
    /// Returns the index of the line of `addr`.
    #[inline]
    pub fn find(&mut self, addr: usize) -> usize {
        let key = (addr / LINE_BYTES) as u64;
        if self.last.0 == key && !self.all.is_empty() {
            return self.last.1 as usize;
        }
        let all = &mut self.all;
        let place = *self.places.entry(key).or_insert_with(|| {
            all.push(Line::new());
            all.len() as u32 - 1
        });
        self.last = (key, place);
        place as usize
    }

    #[inline]
    pub fn at(&mut self, place: usize) -> &mut Line {
        &mut self.all[place]
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn forget_sites(&mut self) {
        self.all.iter_mut().for_each(|line| line.sites.clear());
    }

    pub fn iter(&self) -> impl Iterator<Item = &Line> {
        self.all.iter()
    }
}
