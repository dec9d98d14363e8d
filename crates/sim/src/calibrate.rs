//! Fits costs to measurements of a real machine, and checks the simulation with held-out cases.
//!
//! Each small measurement fits one cost: it is simulated repeatedly until it takes as long as on
//! the real machine. Costs that no measurement covers keep the value of the given file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use serde_json::{Value, json};

use crate::cases::{CASES, is_bistable, spread};
use crate::machine::Machine;
use crate::once::Point;
use crate::options::Options;
use crate::sweep::run_one;
use crate::{could_not_run, micro};

const FITTED: &str = "fitted: micro-measurements on this machine";
/// Fitting a cost changes the results of earlier measurements, so several passes are needed.
const NR_PASSES: usize = 3;
const NR_SEEDS: u64 = 5;
/// The valid range of a regime's median ratio of the simulated to the real rate.
const GATE: [f64; 2] = [0.67, 1.5];

fn simulated(machine: &Machine, nr_cpus: usize, name: &str) -> Result<f64, String> {
    let topology = machine.topology(nr_cpus)?;
    let mut simulated = sync::sim::Machine::new(topology.clone(), machine.costs(None));
    simulated.jitter_per_mille = 0;
    simulated.takes_stacks = false;
    let outcome = Arc::new(AtomicU64::new(0));
    let (result, name) = (outcome.clone(), name.to_string());
    let body = move || {
        let mut micros = micro::micros(&topology).into_iter();
        let micro = micros.find(|it| it.name == name);
        let ns = micro.map_or(f64::NAN, |micro| micro::run(&topology, micro));
        result.store(ns.to_bits(), Relaxed);
    };
    sync::sim::run(simulated, body).map_err(|failure| failure.to_string())?;
    Ok(f64::from_bits(outcome.load(Relaxed)))
}

/// Finds the cost for which `measure` returns `real`, with the secant method. If no cost does,
/// returns the closest one.
fn fitted(
    real: f64,
    start: f64,
    mut measure: impl FnMut(f64) -> Result<f64, String>,
) -> Result<f64, String> {
    const LEAST_NS: f64 = 0.1;
    let is_near = |got: f64| (got / real - 1.0).abs() < 0.01;
    let mut last = (start.max(LEAST_NS), measure(start.max(LEAST_NS))?);
    let mut best = last;
    let mut next = last.0 * (real / last.1).clamp(0.5, 2.0);
    for _ in 0..8 {
        if is_near(best.1) {
            break;
        }
        let got = (next, measure(next)?);
        if (got.1 - real).abs() < (best.1 - real).abs() {
            best = got;
        }
        let slope = (got.1 - last.1) / (got.0 - last.0);
        let wanted = got.0 + (real - got.1) / slope;
        let (low, high) = (got.0 / 4.0, got.0 * 4.0);
        last = got;
        next = match wanted.is_finite() {
            true => wanted.clamp(low, high).max(LEAST_NS),
            false => break,
        };
        if (next - got.0).abs() < 0.01 * LEAST_NS {
            break;
        }
    }
    Ok(best.0)
}

/// Fits the costs of `machine`. Returns the name, the real result and the simulated result of each
/// measurement.
fn fit(
    machine: &mut Machine,
    nr_cpus: usize,
    measured: &Value,
) -> Result<Vec<(String, f64, f64)>, String> {
    let syscall = measured["syscall"].as_f64().ok_or("no `syscall`")?;
    machine.set("syscall", syscall, FITTED);
    let names: Vec<_> = micro::micros(&machine.topology(nr_cpus)?)
        .into_iter()
        .map(|micro| (micro.name, micro.costs))
        .collect();
    let real = |name: &str| {
        let real = measured["micros"][name].as_f64();
        real.filter(|ns| *ns > 0.0).ok_or_else(|| format!("no measurement `{name}`"))
    };
    for _ in 0..NR_PASSES {
        for &(name, costs) in &names {
            let start = machine.ns(costs[0]);
            let ns = fitted(real(name)?, start, |ns| {
                costs.iter().for_each(|cost| machine.set(cost, ns, FITTED));
                simulated(machine, nr_cpus, name)
            })?;
            costs.iter().for_each(|cost| machine.set(cost, ns, FITTED));
        }
    }
    fill_distances(machine, &names.iter().flat_map(|it| it.1).copied().collect::<Vec<_>>());
    let shown = names.iter().map(|(name, _)| {
        let now = simulated(machine, nr_cpus, name)?;
        Ok((name.to_string(), real(name)?, now))
    });
    shown.collect()
}

/// Sets the cost of a missing distance to that of the next shorter one or, if there is none, of the
/// next longer one.
fn fill_distances(machine: &mut Machine, known: &[&str]) {
    let order = ["smt", "llc_dirty", "xllc", "xnode"];
    for (at, cost) in order.into_iter().enumerate() {
        if known.contains(&cost) {
            continue;
        }
        let is_known = |it: &&&str| known.contains(*it);
        let other = order[..at].iter().rev().find(is_known);
        let Some(other) = other.or_else(|| order[at..].iter().find(is_known)) else { continue };
        let from = format!("as {other}: no two CPUs of this machine are so far apart");
        machine.set(cost, machine.ns(other), &from);
    }
    let dirty = machine.ns("llc_dirty");
    if machine.ns("llc") > dirty {
        machine.set("llc", dirty, "as llc_dirty, which costs no more");
    }
}

fn hold_out(
    options: &Options,
    made: &Path,
    nr_cpus: usize,
    measured: &Value,
) -> Result<Vec<Value>, String> {
    let rows = CASES.iter().map(|case| {
        let real = measured["cases"][case.name()].as_array();
        let real: Vec<_> = real.into_iter().flatten().filter_map(Value::as_f64).collect();
        if real.is_empty() {
            return Err(format!("no case `{}`", case.name()));
        }
        let options =
            Options { machine: made.into(), nr_items: Some(case.nr_items), ..options.clone() };
        let simulated: Result<Vec<_>, _> = (1..=NR_SEEDS)
            .map(|seed| {
                let point = Point {
                    scenario: case.scenario.into(),
                    scope: case.scope.into(),
                    nr_cpus,
                    seed,
                    changed: None,
                };
                let value = run_one(&options, &point)?;
                Ok::<_, String>(value["items_per_s"].as_f64().unwrap_or(0.0))
            })
            .collect();
        let (real, simulated) = (spread(&real), spread(&simulated?));
        let bistable = is_bistable(real) || is_bistable(simulated);
        Ok(json!({
            "case": case.name(), "regime": case.regime,
            "real": [real.0, real.1, real.2], "simulated": [simulated.0, simulated.1, simulated.2],
            "is_bistable": bistable,
            "ratio": if bistable { Value::Null } else { json!(simulated.0 / real.0) },
        }))
    });
    rows.collect()
}

/// Returns the median ratio of each regime, in the order of the cases. It is `None` if all cases
/// are bistable.
fn regimes(rows: &[Value]) -> Vec<(&'static str, Option<f64>)> {
    let mut regimes: Vec<(&str, Option<f64>)> = Vec::new();
    for case in CASES {
        if regimes.iter().any(|it| it.0 == case.regime) {
            continue;
        }
        let its = rows.iter().filter(|row| row["regime"] == case.regime);
        let ratios: Vec<_> = its.filter_map(|row| row["ratio"].as_f64()).collect();
        let median = (!ratios.is_empty()).then(|| spread(&ratios).0);
        regimes.push((case.regime, median));
    }
    regimes
}

fn is_good(ratio: f64) -> bool {
    (GATE[0]..=GATE[1]).contains(&ratio)
}

fn calibrate(
    options: &Options,
    mut machine: Machine,
    measured: &Path,
    made: &PathBuf,
) -> Result<bool, String> {
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", measured.display());
    let text = std::fs::read_to_string(measured).map_err(|error| named(&error))?;
    let measured: Value = serde_json::from_str(&text).map_err(|error| named(&error))?;
    let shape = measured["topology"].as_str().ok_or("no `topology`")?;
    let nr_cpus = measured["nr_cpus"].as_u64().ok_or("no `nr_cpus`")? as usize;
    machine.set_shape(shape)?;
    let fits = fit(&mut machine, nr_cpus, &measured)?;
    let file = machine.shown("fitted by --calibrate on the machine that it ran on");
    std::fs::write(made, file).map_err(|error| format!("{}: {error}", made.display()))?;
    let rows = hold_out(options, made, nr_cpus, &measured)?;
    let regimes = regimes(&rows);
    let holds = regimes.iter().all(|it| it.1.is_none_or(is_good));
    if options.json {
        let fits: Vec<_> = fits
            .iter()
            .map(|(name, real, got)| json!({ "name": name, "real_ns": real, "simulated_ns": got }))
            .collect();
        println!(
            "{:#}",
            json!({ "fits": fits, "cases": rows, "regimes": regimes, "holds": holds })
        );
        return Ok(holds);
    }
    println!("{:42} {:>10} {:>10}", "fitted, ns", "real", "simulated");
    for (name, real, got) in &fits {
        let off = if (got / real - 1.0).abs() > 0.05 { "  not met" } else { "" };
        println!("{name:42} {real:10.1} {got:10.1}{off}");
    }
    println!(
        "\n{:26} {:14} {:>26} {:>26} {:>10}",
        "held out, items/s", "regime", "real", "simulated", "sim / real"
    );
    for row in &rows {
        let bounds = |of: &str| {
            let at = |at: usize| row[of][at].as_f64().unwrap_or(0.0) / 1e3;
            format!("{:.0} k ({:.0} to {:.0})", at(0), at(1), at(2))
        };
        let ratio = match row["ratio"].as_f64() {
            Some(ratio) if is_good(ratio) => format!("{ratio:.2}"),
            Some(ratio) => format!("{ratio:.2} MISS"),
            None => "bistable".into(),
        };
        let (case, regime) = (row["case"].as_str(), row["regime"].as_str());
        println!(
            "{:26} {:14} {:>26} {:>26} {ratio:>10}",
            case.unwrap_or(""),
            regime.unwrap_or(""),
            bounds("real"),
            bounds("simulated")
        );
    }
    for (regime, median) in &regimes {
        let verdict = median.map_or("all bistable".into(), |median| {
            let holds = if is_good(median) { "holds" } else { "FAILS" };
            format!("{median:.2} {holds}")
        });
        println!("{regime}: {verdict} (a median from {} to {})", GATE[0], GATE[1]);
    }
    Ok(holds)
}

pub fn main(options: &Options, machine: Machine, measured: &Path, made: &PathBuf) -> ExitCode {
    match calibrate(options, machine, measured, made) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => could_not_run(&error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_found_whose_measurement_is_the_real_one() {
        // The result is 7 plus three times the cost.
        let found = fitted(100.0, 500.0, |ns| Ok(7.0 + 3.0 * ns)).unwrap();
        assert!((found - 31.0).abs() < 0.5, "{found}");
        // If no cost gives the result, the closest one is returned.
        let found = fitted(5.0, 10.0, |ns| Ok(7.0 + ns)).unwrap();
        assert!(found < 0.2, "{found}");
    }

    #[test]
    fn a_bistable_case_is_in_no_average() {
        let row = |case: &crate::cases::Case, ratio: Value| json!({ "regime": case.regime, "ratio": ratio });
        let mut rows: Vec<_> = CASES.iter().map(|case| row(case, json!(1.1))).collect();
        rows[0]["ratio"] = Value::Null;
        assert!(regimes(&rows).iter().all(|it| it.1 == Some(1.1)));
        rows.iter_mut().for_each(|row| row["ratio"] = Value::Null);
        assert!(regimes(&rows).iter().all(|it| it.1.is_none()));
        assert!(is_good(0.67) && is_good(1.5) && !is_good(0.6) && !is_good(1.6));
    }
}
