//! Scenarios of the shipped library on a simulated machine of 2 to 1024 CPUs: `cargo xtask sim`.
//!
//! Each run of one scenario, machine, number of CPUs and seed is a separate process (`once.rs`),
//! because the contents of statics remain after a simulation. `sweep.rs` starts the runs for all
//! CPUs, seeds and guesses, and `table.rs` prints the results. `machine.rs` reads machine files.
//! `scenarios.rs` has the measured programs, `kernel.rs` a model of the kernel's workqueue for
//! comparison, and `checks.rs` the programs that check results.
//!
//! Built for the real machine, the program measures it (`measure.rs`). `calibrate.rs` fits the
//! costs of a simulated machine to the small measurements (`micro.rs`), and then simulates the
//! held-out cases (`cases.rs`).

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

fn could_not_run(reason: &dyn std::fmt::Display) -> std::process::ExitCode {
    eprintln!("sim: {reason}");
    std::process::ExitCode::from(2)
}

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
