//! A sweep runs a process for each combination of scope, CPUs, seed and guess, with one process per
//! CPU at a time.

use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use serde_json::{Value, json};

use crate::kernel;
use crate::machine::Machine;
use crate::once::Point;
use crate::options::Options;

pub fn sweep(options: &Options, machine: &Machine) -> Result<Value, String> {
    let mut guesses = machine.guesses();
    // These costs occur only in the model.
    let is_model = |name: &String| kernel::SCENARIOS.iter().any(|it| it.name == name);
    if !options.scenarios.iter().any(is_model) {
        guesses.retain(|name| !name.starts_with("wq_"));
    }
    let mut points = Vec::new();
    for scope in &options.scopes {
        for &nr_cpus in &options.cpus {
            for scenario in &options.scenarios {
                let at = |seed, changed| Point {
                    scenario: scenario.clone(),
                    scope: scope.clone(),
                    nr_cpus,
                    seed,
                    changed,
                };
                points.extend((1..=options.nr_seeds).map(|seed| at(seed, None)));
                if options.varies_guesses {
                    let both = guesses
                        .iter()
                        .flat_map(|name| [0.5, 2.0].map(|factor| (name.to_string(), factor)));
                    points.extend(both.map(|change| at(1, Some(change))));
                }
            }
        }
    }
    let values = run_all(options, &points)?;
    let mut rows = Vec::new();
    for scope in &options.scopes {
        for &nr_cpus in &options.cpus {
            let of = |scenario: &String| -> Vec<_> {
                let all = points.iter().zip(&values);
                let here = all.filter(|(it, _)| it.scope == *scope && it.nr_cpus == nr_cpus);
                here.filter(|(it, _)| it.scenario == *scenario).collect()
            };
            let first = of(&options.scenarios[0]);
            for (at, scenario) in options.scenarios.iter().enumerate() {
                let runs = of(scenario);
                let mut row = row(scope, nr_cpus, &runs);
                row["scenario"] = json!(scenario);
                if at > 0 {
                    row["to_first"] = to_first(&runs, &first);
                }
                rows.push(row);
            }
        }
    }
    Ok(json!({
        "scenario": options.scenarios.join(","), "machine": options.machine.display().to_string(), "guesses": guesses,
        "nr_runs": points.len(), "varied": options.varies_guesses, "rows": rows,
        "plain_accesses": sync::sim::sees_plain(),
    }))
}

fn rate(value: &Value) -> f64 {
    value["items_per_s"].as_f64().unwrap_or(0.0)
}

fn row(scope: &str, nr_cpus: usize, runs: &[(&Point, &Value)]) -> Value {
    let mut of_seeds: Vec<_> =
        runs.iter().filter(|(point, _)| point.changed.is_none()).map(|(_, value)| *value).collect();
    of_seeds.sort_by(|a, b| rate(a).total_cmp(&rate(b)));
    let median = of_seeds[of_seeds.len() / 2];
    let base = runs.iter().find(|(point, _)| point.seed == 1 && point.changed.is_none());
    let base = base.map_or(0.0, |(_, value)| rate(value));
    let of_guesses =
        runs.iter().filter_map(|(point, value)| Some((point.changed.as_ref()?, rate(value))));
    let mut of_guesses: Vec<_> = of_guesses.collect();
    of_guesses.sort_by(|a, b| (b.1 / base).ln().abs().total_cmp(&(a.1 / base).ln().abs()));
    let bounds = |rates: &mut dyn Iterator<Item = f64>| {
        let (low, high) =
            rates.fold((f64::MAX, 0.0_f64), |(low, high), rate| (low.min(rate), high.max(rate)));
        json!([low, high])
    };
    let worst = of_guesses.iter().take(3);
    let worst = worst.map(|((name, factor), rate)| json!({ "cost": name, "times": factor, "changes_rate_to": rate / base }));
    // Bistable rates form two regimes instead of a spread around one value.
    let (low, high) = (rate(of_seeds[0]), rate(of_seeds[of_seeds.len() - 1]));
    json!({
        "scope": scope, "nr_cpus": nr_cpus,
        "median": median,
        "over_seeds": [low, high],
        "is_bistable": high > 3.0 * low,
        "over_guesses": bounds(&mut of_guesses.iter().map(|it| it.1).chain(of_seeds.iter().map(|value| rate(value)))),
        "most_by": worst.collect::<Vec<_>>(),
    })
}

/// Compares the runs of a scenario with the runs of the first scenario that have the same seed and
/// guess.
fn to_first(runs: &[(&Point, &Value)], first: &[(&Point, &Value)]) -> Value {
    let ratios = |of: &str, is_in: &dyn Fn(&Point) -> bool| -> Vec<f64> {
        let both = runs.iter().zip(first).filter(|(run, _)| is_in(run.0));
        let ratio = |(run, first): (&(_, &Value), &(_, &Value))| {
            Some(run.1[of].as_f64()? / first.1[of].as_f64()?)
        };
        let mut ratios: Vec<_> = both.filter_map(ratio).collect();
        ratios.sort_by(f64::total_cmp);
        ratios
    };
    let is_seed = |point: &Point| point.changed.is_none();
    let intervals = |of: &str| {
        let (seeds, all) = (ratios(of, &is_seed), ratios(of, &|_| true));
        let bounds = |of: &[f64]| json!([of.first(), of.last()]);
        json!({ "median": seeds.get(seeds.len() / 2), "over_seeds": bounds(&seeds), "over_guesses": bounds(&all) })
    };
    json!({ "items_per_s": intervals("items_per_s"), "queued_p95_ns": intervals("queued_p95_ns") })
}

fn run_all(options: &Options, points: &[Point]) -> Result<Vec<Value>, String> {
    let start = Instant::now();
    let (next, results) = (AtomicUsize::new(0), Mutex::new(vec![None; points.len()]));
    let nr_workers = std::thread::available_parallelism().map_or(1, usize::from);
    let failed = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..nr_workers {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Relaxed);
                    if at >= points.len() || failed.lock().expect("no panic").is_some() {
                        return;
                    }
                    let elapsed = start.elapsed();
                    let result = if elapsed > options.budget {
                        let whole = elapsed.as_secs_f64() * points.len() as f64 / at as f64;
                        Err(format!(
                            "over the budget of {:?} after {at} of {} runs: all would take about {whole:.0} s; see --budget, \
                             --no-guesses, --items",
                            options.budget,
                            points.len()
                        ))
                    } else {
                        run_one(options, &points[at])
                    };
                    match result {
                        Ok(value) => results.lock().expect("no panic")[at] = Some(value),
                        Err(error) => *failed.lock().expect("no panic") = Some(error),
                    }
                    if at.is_multiple_of(16) && at > 0 {
                        let left = elapsed.as_secs_f64() / at as f64 * (points.len() - at) as f64;
                        eprintln!("sim: {at} of {} runs, about {left:.0} s to go", points.len());
                    }
                }
            });
        }
    });
    if let Some(error) = failed.into_inner().expect("no panic") {
        return Err(error);
    }
    let results = results.into_inner().expect("no panic");
    Ok(results.into_iter().flatten().collect())
}

pub fn run_one(options: &Options, point: &Point) -> Result<Value, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.arg(&point.scenario).arg("--machine").arg(&options.machine);
    let Point { scope, nr_cpus, seed, .. } = point;
    let (items, budget) = (options.items_for(*nr_cpus), options.budget.as_secs());
    let numbers = format!("--cpus {nr_cpus} --seed {seed} --items {items} --budget {budget}");
    command.args(numbers.split(' ')).args(["--scope", scope]);
    if let Some(nr_producers) = options.nr_producers {
        command.args(["--producers", &nr_producers.to_string()]);
    }
    if let Some((name, factor)) = &point.changed {
        command.args(["--change", &format!("{name}:{factor}")]);
    }
    // The user's tunables must not change the simulated library.
    command.env_remove("AFTERWORK").stdin(Stdio::null()).stderr(Stdio::piped());
    let output = command.output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(format!("{point:?}: {}", String::from_utf8_lossy(&output.stderr)));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())
}
