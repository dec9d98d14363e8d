//! Reading what RCU protects.

use afterwork::rcu::{Rcu, qsbr::Reader, read, srcu::Domain};

/// What a read is like without RCU: a pointer lies where a cell has it.
pub struct Bare<'a> {
    value: &'a u64,
}

/// Nothing protects it.
#[inline(never)]
pub fn unprotected(bare: &Bare<'_>, _: &Reader) -> u64 {
    *bare.value
}

/// The thread reports between rounds.
#[inline(never)]
pub fn qsbr(cell: &Rcu<u64>, reader: &Reader) -> u64 {
    *cell.load(reader)
}

/// The report itself.
#[inline(never)]
pub fn quiescent(reader: &mut Reader) {
    reader.quiescent();
}

/// In a section of its own.
#[inline(never)]
pub fn guarded(cell: &Rcu<u64>) -> u64 {
    *cell.load(&read())
}

/// In a section that may sleep.
#[inline(never)]
pub fn sleepable(cell: &Rcu<u64, Domain>, domain: &Domain) -> u64 {
    *cell.load(&domain.read())
}

/// What calls them; apart, for its code is not looked at.
pub mod calls {
    use std::hint::black_box;

    use super::*;

    /// Calls each, and checks what it read.
    pub fn run() {
        let (cell, value) = (Rcu::new(7), 7);
        let mut reader = Reader::new();
        let read = black_box(unprotected as fn(&Bare<'_>, &Reader) -> u64)(
            &Bare { value: &value },
            &reader,
        );
        assert_eq!(read, 7);
        assert_eq!(
            black_box(qsbr as fn(&Rcu<u64>, &Reader) -> u64)(&cell, &reader),
            7
        );
        black_box(quiescent as fn(&mut Reader))(&mut reader);
        assert_eq!(black_box(guarded as fn(&Rcu<u64>) -> u64)(&cell), 7);
        let domain = Domain::new();
        let cell = Rcu::new_in(7, domain.clone());
        let read = black_box(sleepable as fn(&Rcu<u64, Domain>, &Domain) -> u64);
        assert_eq!(read(&cell, &domain), 7);
    }
}
