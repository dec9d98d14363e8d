//! The measurements of a real machine for `--calibrate`: the small measurements and the held-out
//! cases.

use std::process::ExitCode;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use sync::time;
use topology::Topology;

use crate::cases::CASES;
use crate::micro::{micros, run};
use crate::scenarios::{Job, Measured, SCENARIOS, scope_of};

const NR_RUNS: usize = 15;

/// Returns the topology in the notation of machine files, or a row of cores if its parts differ.
fn shape(topology: &Topology) -> String {
    let nr = [
        topology.nodes().len().max(1),
        topology.llcs().len().max(1),
        topology.cores().len().max(1),
        topology.nr_cpus(),
    ];
    let is_even = nr.windows(2).all(|two| two[1] % two[0] == 0);
    if !is_even {
        return format!("1 numa x {} core", topology.nr_cpus());
    }
    let mut levels = vec![
        format!("{} numa", nr[0]),
        format!("{} llc", nr[1] / nr[0]),
        format!("{} core", nr[2] / nr[1]),
    ];
    if nr[3] > nr[2] {
        levels.push(format!("{} smt", nr[3] / nr[2]));
    }
    levels.join(" x ")
}

fn syscall() -> f64 {
    let nr_calls = 10_000;
    let attempt = || {
        let start = time::now_ns();
        for _ in 0..nr_calls {
            std::hint::black_box(rustix::process::getppid());
        }
        (time::now_ns() - start) as f64 / f64::from(nr_calls)
    };
    let mut all: Vec<f64> = (0..31).map(|_| attempt()).collect();
    all.sort_by(f64::total_cmp);
    all[15]
}

pub fn main() -> ExitCode {
    let topology = match sync::cpu::topology() {
        Ok(topology) if topology.nr_cpus() >= 2 => topology,
        Ok(_) => {
            eprintln!("sim: fitting costs needs at least two CPUs");
            return ExitCode::from(2);
        }
        Err(error) => {
            eprintln!("sim: {error}");
            return ExitCode::from(2);
        }
    };
    let mut fitted = Map::new();
    for micro in micros(&topology) {
        let name = micro.name.to_string();
        fitted.insert(name, json!(run(&topology, micro)));
    }
    let given = std::env::args().nth(2).and_then(|text| text.parse().ok());
    let nr_runs = given.unwrap_or(NR_RUNS).max(1);
    let mut held_out = Map::new();
    for case in CASES {
        let scenario = SCENARIOS.iter().find(|it| it.name == case.scenario);
        let scenario = scenario.expect("a case is of a scenario");
        let rates: Vec<f64> = (0..nr_runs)
            .map(|_| {
                let measured = Arc::new(Measured::default());
                let job = Job {
                    topology: topology.clone(),
                    scope: scope_of(case.scope).expect("a case has a scope"),
                    nr_items: case.nr_items,
                    nr_producers: topology.nr_cpus(),
                };
                (scenario.run)(&job, &measured);
                measured.rate()
            })
            .collect();
        held_out.insert(case.name(), json!(rates));
    }
    let measured: Value = json!({
        "topology": shape(&topology), "nr_cpus": topology.nr_cpus(), "syscall": syscall(),
        "micros": fitted, "cases": held_out,
    });
    println!("{measured:#}");
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_named_level_by_level() {
        for text in [
            "2 numa x 1 llc x 4 core x 2 smt",
            "1 numa x 2 llc x 1 core",
            "1 numa x 1 llc x 3 core",
        ] {
            assert_eq!(shape(&Topology::synthetic(text).unwrap()), text);
        }
    }
}
