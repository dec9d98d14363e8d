//! `afterwork/machine.h`.

use std::ffi::{CStr, c_char, c_int};

use sync::cpu;
use topology::{CpuSet, Topology};

use crate::boundary::{EBUSY, EINVAL, within};
use crate::percpu::nr_cpu_ids;

/// Sets the CPUs that the library uses. Returns 0, `-EINVAL` or `-EBUSY`.
///
/// # Safety
///
/// 1. `list` is null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn aw_set_cpus(list: *const c_char) -> c_int {
    within("afterwork_set_cpus", || {
        if list.is_null() {
            return -EINVAL;
        }
        // SAFETY: (1).
        let list = unsafe { CStr::from_ptr(list) };
        let cpus = list.to_str().ok().and_then(|list| list.parse().ok());
        let are_known = |cpus: &CpuSet| cpus.iter().all(|cpu| cpu.as_u32() < nr_cpu_ids());
        let machine = cpus.filter(are_known).and_then(|cpus| Topology::flat(&cpus).ok());
        match machine.map(cpu::set_topology) {
            Some(Ok(())) => 0,
            Some(Err(_)) => -EBUSY,
            None => -EINVAL,
        }
    })
}
