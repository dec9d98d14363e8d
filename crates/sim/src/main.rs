//! Scenarios of the shipped library on a simulated machine of 2 to 1024 CPUs: `cargo xtask sim`.
//!
//! A run of one scenario, machine, number of CPUs and seed is a process of its own (`once.rs`), for what a simulation leaves in
//! statics stays. `sweep.rs` starts them, over CPUs, seeds and guesses, and `table.rs` tells what came out. `machine.rs` reads
//! machine files, `scenarios.rs` has the programs.

#[cfg(sim)]
mod machine;
#[cfg(sim)]
mod once;
#[cfg(sim)]
mod options;
#[cfg(sim)]
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
    eprintln!(
        "built for the real machine; `cargo xtask sim` builds and runs it for a simulated one"
    );
    std::process::ExitCode::from(2)
}
