//! The measurements of a real machine for `--calibrate`: the small measurements and the held-out
//! cases.

use std::process::ExitCode;
use std::sync::Arc;

use serde_json::{Map, json};
use topology::Topology;

use crate::cases::CASES;
use crate::could_not_run;
use crate::micro::{each, micros, run};
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
    if !nr.windows(2).all(|two| two[1] % two[0] == 0) {
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

pub fn main() -> ExitCode {
    let topology = match sync::cpu::topology() {
        Ok(topology) if topology.nr_cpus() >= 2 => topology,
        Ok(_) => return could_not_run(&"fitting costs needs at least two CPUs"),
        Err(error) => return could_not_run(&error),
    };
    let micros = micros(&topology).into_iter();
    let fitted: Map<_, _> =
        micros.map(|micro| (micro.name.into(), json!(run(&topology, micro)))).collect();
    let syscall = each(10_000, || _ = std::hint::black_box(rustix::process::getppid()));
    let given = std::env::args().nth(2).and_then(|text| text.parse().ok());
    let nr_runs = given.unwrap_or(NR_RUNS).max(1);
    let mut held_out = Map::new();
    for case in CASES {
        let scenario = SCENARIOS.iter().find(|it| it.name == case.scenario);
        let scenario = scenario.expect("a case is of a scenario");
        let job = Job {
            topology: topology.clone(),
            scope: scope_of(case.scope).expect("a case has a scope"),
            nr_items: case.nr_items,
            nr_producers: topology.nr_cpus(),
        };
        let rate = |_| {
            let measured = Arc::new(Measured::default());
            (scenario.run)(&job, &measured);
            measured.rate()
        };
        held_out.insert(case.name(), (0..nr_runs).map(rate).collect::<Vec<_>>().into());
    }
    let measured = json!({
        "topology": shape(&topology), "nr_cpus": topology.nr_cpus(), "syscall": syscall,
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
