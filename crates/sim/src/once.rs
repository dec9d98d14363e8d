//! One run: a scenario on a machine with a seed. Its result is a line of JSON.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use serde_json::{Value, json};
use sync::sim::{Outcome, run};

use crate::machine::Machine;
use crate::options::{Options, programs};
use crate::scenarios::{Job, Measured, scope_of};

#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    pub scenario: String,
    pub scope: String,
    pub nr_cpus: usize,
    pub seed: u64,
    pub changed: Option<(String, f64)>,
}

pub fn once(options: &Options, machine: &Machine, point: &Point) -> Result<Value, String> {
    let scenario = programs().find(|it| it.name == point.scenario).ok_or("no such scenario")?;
    let scope = scope_of(&point.scope)?;
    let topology = machine.topology(point.nr_cpus)?;
    let changed = point.changed.as_ref().map(|(name, factor)| (name.as_str(), *factor));
    let mut simulated = sync::sim::Machine::new(topology.clone(), machine.costs(changed));
    simulated.seed = point.seed;
    simulated.takes_stacks = point.changed.is_none();
    simulated.budget = Some(options.budget);
    let measured = Arc::new(Measured::default());
    let nr_producers = options.nr_producers.unwrap_or(point.nr_cpus);
    let job = Job { topology, scope, nr_items: options.items_for(point.nr_cpus), nr_producers };
    let inside = measured.clone();
    let outcome = run(simulated, move || (scenario.run)(&job, &inside))
        .map_err(|failure| failure.to_string())?;
    Ok(shown(&measured, &outcome))
}

fn shown(measured: &Measured, outcome: &Outcome) -> Value {
    let nr_items = measured.nr_items.load(Relaxed).max(1) as f64;
    let per_item = |count: u64| count as f64 / nr_items;
    let counts = &outcome.counts;
    let mut locks: Vec<_> = outcome.locks.iter().filter(|lock| lock.1.nr_taken > 0).collect();
    locks.sort_by_key(|(name, lock)| (std::cmp::Reverse(lock.waited_ps), **name));
    let locks = locks.iter().take(4).map(|(name, lock)| {
        let each = |ps: u64| ps as f64 / 1000.0 / lock.nr_taken as f64;
        json!({
            "guards": name, "taken_per_item": per_item(lock.nr_taken), "wait_ns": each(lock.waited_ps), "hold_ns": each(lock.held_ps),
            "contended": lock.nr_contended as f64 / lock.nr_taken as f64,
        })
    });
    let hot = outcome.hot.iter().take(5).map(|line| {
        let sites = line.sites.iter().take(3).map(|(site, nr_moves, ns)| {
            json!({ "site": site, "moves_per_item": per_item(*nr_moves), "wait_ns_per_item": per_item(*ns) })
        });
        let stacks = line.stacks.iter().take(2).map(|(percent, stack)| json!({ "percent": percent, "stack": stack }));
        json!({
            "moves_per_item": per_item(line.nr_moves), "wait_ns_per_item": per_item(line.waited_ns),
            "sites": sites.collect::<Vec<_>>(), "stacks": stacks.collect::<Vec<_>>(),
        })
    });
    let mut value = json!({
        "items_per_s": measured.rate(),
        "nr_items": nr_items,
        "simulated_ns": measured.span_ns(),
        "kicks_per_item": per_item(measured.nr_kicks.load(Relaxed)),
        "nr_workers": measured.nr_workers.load(Relaxed),
        "wakes_per_item": per_item(counts.wakes),
        "switches_per_item": per_item(counts.switches),
        "transfers_per_item": per_item(counts.moves),
        "futex_waits_per_item": per_item(counts.futex_waits),
        "accesses": counts.accesses,
        "hot": hot.collect::<Vec<_>>(),
        "locks": locks.collect::<Vec<_>>(),
    });
    if let Some([half, most]) = measured.queued_ns() {
        (value["queued_p50_ns"], value["queued_p95_ns"]) = (json!(half), json!(most));
    }
    value
}
