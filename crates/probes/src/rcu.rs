//! Reads of values that RCU protects.

use afterwork::rcu::qsbr::Reader;
use afterwork::rcu::srcu::Domain;
use afterwork::rcu::{Rcu, read};

/// The data of a read without RCU: a pointer, laid out like a cell.
pub struct Bare<'a> {
    value: &'a u64,
}

/// Reads without protection.
#[inline(never)]
pub fn unprotected(bare: &Bare<'_>, _: &Reader) -> u64 {
    *bare.value
}

/// Reads on a thread that reports a quiescent state between rounds.
#[inline(never)]
pub fn qsbr(cell: &Rcu<u64>, reader: &Reader) -> u64 {
    *cell.load(reader)
}

/// Reports a quiescent state.
#[inline(never)]
pub fn quiescent(reader: &mut Reader) {
    reader.quiescent();
}

/// Reads in a section of its own.
#[inline(never)]
pub fn guarded(cell: &Rcu<u64>) -> u64 {
    *cell.load(&read())
}

/// Reads in a section of its own, which may sleep.
#[inline(never)]
pub fn sleepable(cell: &Rcu<u64, Domain>, domain: &Domain) -> u64 {
    *cell.load(&domain.read())
}

/// The callers. They are separate, because their code is not inspected.
pub mod calls {
    use std::hint::black_box;

    use super::*;

    /// Calls each function, and checks the value that it read.
    pub fn run() {
        let (cell, value) = (Rcu::new(7), 7);
        let mut reader = Reader::new();
        let read = black_box(unprotected as fn(&Bare<'_>, &Reader) -> u64)(
            &Bare { value: &value },
            &reader,
        );
        assert_eq!(read, 7);
        assert_eq!(black_box(qsbr as fn(&Rcu<u64>, &Reader) -> u64)(&cell, &reader), 7);
        black_box(quiescent as fn(&mut Reader))(&mut reader);
        assert_eq!(black_box(guarded as fn(&Rcu<u64>) -> u64)(&cell), 7);
        let domain = Domain::new();
        let cell = Rcu::new_in(7, domain.clone());
        let read = black_box(sleepable as fn(&Rcu<u64, Domain>, &Domain) -> u64);
        assert_eq!(read(&cell, &domain), 7);
    }
}
