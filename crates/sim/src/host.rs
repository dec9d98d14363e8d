//! What the programs need of the machine that they run on, simulated or real.

#[cfg(sim)]
pub use sync::sim::{measure_from_here, work_ns};

/// Spends CPU time.
#[cfg(not(sim))]
pub fn work_ns(ns: u64) {
    let end_ns = sync::time::now_ns() + ns;
    while ns > 0 && sync::time::now_ns() < end_ns {
        std::hint::spin_loop();
    }
}

/// Nothing is counted on a real machine.
#[cfg(not(sim))]
pub fn measure_from_here() {}
