//! Scenarios of the shipped library on a simulated machine of 2 to 1024 CPUs: `cargo xtask sim`.
//!
//! A run of one scenario, machine, number of CPUs and seed is a process of its own (`once.rs`), for what a simulation leaves in
//! statics stays. `sweep.rs` starts them, over CPUs, seeds and guesses, and `table.rs` tells what came out. `machine.rs` reads
//! machine files, `scenarios.rs` has the programs that are measured, `kernel.rs` a model of the kernel's to be beside them, `checks.rs` those
//! that say whether results are right.
//!
//! Built for the real machine it measures that one (`measure.rs`): the small measurements (`micro.rs`) to which `calibrate.rs` fits
//! the costs of a simulated one, and the cases that are held out (`cases.rs`), which it then simulates.

#[cfg(sim)]
mod calibrate;
#[cfg_attr(not(sim), allow(dead_code, reason = "a simulation reads the rest"))]
mod cases;
#[cfg_attr(not(sim), allow(dead_code, reason = "a simulation runs them by name"))]
mod checks;
mod host;
#[cfg(sim)]
mod kernel;
#[cfg(sim)]
mod machine;
#[cfg(not(sim))]
mod measure;
#[cfg_attr(not(sim), allow(dead_code, reason = "a simulation reads the rest"))]
mod micro;
#[cfg(sim)]
mod once;
#[cfg(sim)]
mod options;
#[cfg_attr(not(sim), allow(dead_code, reason = "a simulation reads the rest"))]
mod scenarios;
#[cfg(sim)]
mod sweep;
#[cfg(sim)]
mod table;

#[cfg(sim)]
#[global_allocator]
static ARENA: sync::sim::Arena = sync::sim::Arena::new();

#[cfg(sim)]
fn main() -> std::process::ExitCode {
    options::main()
}

#[cfg(not(sim))]
fn main() -> std::process::ExitCode {
    if std::env::args().nth(1).is_some_and(|arg| arg == "measure") {
        return measure::main();
    }
    eprintln!(
        "built for the real machine, which `measure` measures; `cargo xtask sim` builds and runs it for a simulated one"
    );
    std::process::ExitCode::from(2)
}
