//! The table of slots, by CPU.

use sync::cpu;
use topology::{CpuId, CpuSet};

use super::slot::Slot;

const NONE: u32 = u32::MAX;

pub(super) struct Table<T> {
    /// I: the CPUs that have a slot.
    pub(super) cpus: CpuSet,
    /// I: for each CPU number, the index of its slot, or `NONE`.
    places: Box<[u32]>,
    /// I: in the order of their CPUs.
    pub(super) slots: Box<[Slot<T>]>,
}

impl<T> Table<T> {
    pub(super) fn new(cpus: CpuSet, slots: Box<[Slot<T>]>) -> Self {
        let len = cpus.last().map_or(0, |cpu| cpu.index() + 1);
        let mut places = vec![NONE; len].into_boxed_slice();
        for (place, cpu) in cpus.iter().enumerate() {
            places[cpu.index()] = place as u32;
        }
        Self { cpus, places, slots }
    }

    #[inline]
    pub(super) fn slot(&self, cpu: CpuId) -> Option<&Slot<T>> {
        let place = *self.places.get(cpu.index())?;
        self.slots.get(place as usize)
    }

    /// Returns the slot of the CPU on which this thread runs, or another slot if that CPU has none.
    #[inline]
    pub(super) fn current(&self) -> &Slot<T> {
        let cpu = cpu::current();
        self.slot(cpu).unwrap_or_else(|| &self.slots[cpu.index() % self.slots.len()])
    }
}
