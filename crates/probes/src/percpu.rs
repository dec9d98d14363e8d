//! An operation of a slot's owner, in each mode of per-CPU data.

use afterwork::percpu::{COMPILED_OUT, Owner, Qpw};

/// The data of an operation without a guard, laid out like a slot.
#[repr(C, align(128))]
pub struct Bare {
    words: [u32; 6],
    hits: u64,
}

/// Adds without a guard.
#[inline(never)]
pub fn unprotected(data: &mut &mut Bare) {
    data.hits = data.hits.wrapping_add(1);
}

fn add(hits: &mut u64) {
    *hits = hits.wrapping_add(1);
}

/// Adds with the guard compiled out.
#[inline(never)]
pub fn compiled_out(owner: &mut Owner<'_, u64, COMPILED_OUT>) {
    owner.with(add);
}

/// Adds in a mode that is chosen when the program starts.
#[inline(never)]
pub fn any_mode(owner: &mut Owner<'_, u64>) {
    owner.with(add);
}

/// Defines the operation of one mode. Its code contains no other mode.
macro_rules! of_mode {
    ($(#[$meta:meta])* $name:ident, $mode:pat) => {
        $(#[$meta])*
        #[inline(never)]
        pub fn $name(owner: &mut Owner<'_, u64>) {
            if matches!(owner.qpw(), $mode) {
                owner.with(add);
            }
        }
    };
}

of_mode! {
    /// Adds in the mode in which remote work is queued to the owner.
    queue, Qpw::Queue
}
of_mode! {
    /// Adds in the mode in which the owner hands the slot over on request, or the bias is broken.
    on_demand, Qpw::OnDemand
}
of_mode! {
    /// Adds in the mode in which each operation acquires and releases the slot.
    every_op, Qpw::EveryOp
}

/// The callers. They are separate, because their code is not inspected.
pub mod calls {
    use std::hint::black_box;

    use afterwork::percpu::{BuildError, Owner, PerCpu, Qpw};
    use topology::{CpuId, Topology};

    use super::{Bare, any_mode, compiled_out, every_op, on_demand, queue, unprotected};

    /// Calls each function, and checks its effect.
    pub fn run() {
        let mut bare = Bare { words: [0; 6], hits: 0 };
        black_box(unprotected as fn(&mut &mut Bare))(&mut &mut bare);
        assert_eq!((bare.hits, bare.words), (1, [0; 6]));

        let machine = Topology::synthetic("1 core").expect("a plain machine");
        let builder = || PerCpu::builder().topology(machine.clone());
        let slots = builder().build_compiled_out(|_| 0);
        added(&slots, &[compiled_out]);
        for (qpw, own) in Qpw::ALL.into_iter().zip([queue, on_demand, every_op]) {
            let slots = builder().qpw(qpw).build(|_| 0);
            added(&slots, &[any_mode, own]);
        }
    }

    /// Runs `operations` as the owner of the only slot, and checks that each added one.
    fn added<const C: bool>(
        slots: &Result<PerCpu<u64, C>, BuildError>,
        operations: &[fn(&mut Owner<'_, u64, C>)],
    ) {
        let slots = slots.as_ref().expect("nothing of it is read from the machine");
        let mut owner = slots.attach(CpuId::new(0)).expect("the slot has no owner");
        for operation in operations {
            black_box(*operation)(&mut owner);
        }
        let hits = owner.with(|hits| *hits);
        assert_eq!(hits, operations.len() as u64);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_operation_is_done_once() {
        super::calls::run();
    }
}
