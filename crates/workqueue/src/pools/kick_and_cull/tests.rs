//! Explores whether a kicked worker can be culled, and whether that can strand an item. Visits
//! every run of a small pool under each set of rules.
//!
//! The pool has four workers and three items. A kick picks an idle worker under the lock; its
//! wake-up is delivered later, in a separate step. An item is *stranded* if it is queued, no worker
//! is awake or about to wake, and no more items arrive. docs/deferral.md states the conclusions.
//!
//! `cargo test -p afterwork-workqueue --lib kick_and_cull -- --nocapture` prints the table.

use std::collections::{HashMap, VecDeque};

use super::super::policy::{Census, Need, may_cull, need};

const NR_WORKERS: usize = 4;
const NR_ITEMS: u8 = 3;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Life {
    Parked,
    /// Woken or created, and has not run yet.
    Woken,
    Running,
    /// Culled after it was woken: it exits when it runs.
    Leaving,
    Gone,
}
use Life::{Gone, Leaving, Parked, Running, Woken};

#[derive(Clone, Copy, PartialEq)]
enum Pick {
    /// The worker that parked last.
    Head,
    /// The worker that parked first.
    Tail,
    /// Any idle worker, which is chosen by affinity, or because it is on another CPU.
    Any,
}

#[derive(Clone, Copy, PartialEq)]
enum Cull {
    /// The worker that parked first.
    Tail,
    /// Each worker times itself out.
    Any,
}

#[derive(Clone, Copy)]
struct Rules {
    pick: Pick,
    cull: Cull,
    /// The number of idle workers that are kept.
    floor: usize,
    /// `true` if a kick removes the worker from the idle list.
    claim: bool,
    /// `true` if a worker may park while another runs and work waits.
    early: bool,
    /// `true` if no worker is culled while work waits.
    recheck: bool,
    /// `true` if a worker that takes an item kicks the next one if more items wait.
    chain: bool,
    /// `true` if kicks and culls are decided as shipped, by `policy::need` and `policy::may_cull`.
    shipped: bool,
}

const KERNEL: Rules = Rules {
    pick: Pick::Head,
    cull: Cull::Tail,
    floor: 2,
    claim: false,
    early: false,
    recheck: false,
    chain: true,
    shipped: false,
};
const CLAIM: Rules = Rules { pick: Pick::Any, cull: Cull::Any, floor: 0, claim: true, ..KERNEL };

#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    lives: [Life; NR_WORKERS],
    /// The parked workers. The first one in the list parked last.
    idle: Vec<usize>,
    /// Workers that have been claimed and have not run yet.
    kicked: Vec<usize>,
    /// Wake-ups that have not been delivered, one bit per worker.
    wakes: u8,
    nr_queued: u8,
    nr_to_come: u8,
    /// Workers that have idled long enough to be culled, one bit each.
    old: u8,
}

#[derive(Debug)]
struct Found {
    nr_states: usize,
    kicked_was_culled: bool,
    dead_was_woken: bool,
    stranded: Option<Vec<String>>,
}

impl State {
    fn start() -> Self {
        Self {
            lives: [Parked; NR_WORKERS],
            idle: (0..NR_WORKERS).collect(),
            kicked: Vec::new(),
            wakes: 0,
            nr_queued: 0,
            nr_to_come: NR_ITEMS,
            old: 0,
        }
    }

    fn with(&self, worker: usize, life: Life) -> Self {
        let mut next = self.clone();
        next.lives[worker] = life;
        next
    }

    fn is_awake(&self) -> bool {
        self.lives.iter().any(|life| matches!(life, Woken | Running))
    }

    fn is_waking(&self) -> bool {
        (0..NR_WORKERS).any(|worker| self.wakes & 1 << worker != 0 && self.lives[worker] == Parked)
    }

    /// Returns the census of the shipped pool: a claimed worker counts as searching.
    fn census(&self) -> Census {
        let nr_running = self.lives.iter().filter(|&&life| life == Running).count() as u32;
        let is_made =
            |worker: &usize| self.lives[*worker] == Woken && !self.kicked.contains(worker);
        let nr_searching = (self.kicked.len() + (0..NR_WORKERS).filter(is_made).count()) as u32;
        Census((nr_running + nr_searching) * Census::AWAKE + nr_searching * Census::SEARCHING)
    }

    fn kick(self, rules: Rules) -> Vec<State> {
        let may_make = |state: &State| state.idle.is_empty() && state.lives.contains(&Gone);
        if self.nr_queued == 0 {
            return vec![self];
        }
        let (kicks, makes) = if rules.shipped {
            let wants = need(self.census(), NR_WORKERS as u32) == Need::Worker;
            (wants && !self.idle.is_empty(), wants && may_make(&self))
        } else {
            let unclaimed = !rules.claim || self.kicked.is_empty();
            let deserted = self.kicked.is_empty() && !self.is_awake();
            (unclaimed && !self.idle.is_empty(), deserted && may_make(&self))
        };
        if makes {
            let gone = self.lives.iter().position(|&life| life == Gone);
            return vec![self.with(gone.expect("checked above"), Woken)];
        }
        if !kicks {
            return vec![self];
        }
        let idle = self.idle.clone();
        let picked = match rules.pick {
            Pick::Head => &idle[..1],
            Pick::Tail => &idle[idle.len() - 1..],
            Pick::Any => &idle[..],
        };
        let follow = |&worker: &usize| {
            let mut next = self.clone();
            next.wakes |= 1 << worker;
            if rules.claim {
                next.idle.retain(|&other| other != worker);
                next.kicked.push(worker);
            }
            next
        };
        picked.iter().map(follow).collect()
    }

    fn take(mut self, worker: usize, rules: Rules) -> Vec<State> {
        self.lives[worker] = Running;
        self.nr_queued -= 1;
        if rules.chain { self.kick(rules) } else { vec![self] }
    }

    fn try_park(&self, worker: usize) -> State {
        let mut next = self.with(worker, Parked);
        next.idle.insert(0, worker);
        next.old &= !(1 << worker);
        next
    }

    fn steps(&self, rules: Rules) -> Vec<(String, State)> {
        let mut steps = Vec::new();
        let mut add = |name: String, states: Vec<State>| {
            steps.extend(states.into_iter().map(|state| (name.clone(), state)));
        };
        if self.nr_to_come > 0 {
            let mut next = self.clone();
            next.nr_to_come -= 1;
            next.nr_queued += 1;
            add("an item arrives".into(), next.kick(rules));
        }
        for worker in 0..NR_WORKERS {
            if self.wakes & 1 << worker != 0 {
                let life = self.lives[worker];
                let mut next = self.with(worker, if life == Parked { Woken } else { life });
                next.wakes &= !(1 << worker);
                add(format!("{worker} is woken"), vec![next]);
            }
            match self.lives[worker] {
                Woken => {
                    let mut up = self.clone();
                    up.idle.retain(|&other| other != worker);
                    up.kicked.retain(|&other| other != worker);
                    up.old &= !(1 << worker);
                    if self.nr_queued > 0 {
                        add(format!("{worker} wakes and takes an item"), up.take(worker, rules));
                    } else {
                        add(format!("{worker} wakes and finds no item"), vec![up.try_park(worker)]);
                    }
                }
                Running => {
                    if self.nr_queued > 0 {
                        add(format!("{worker} takes an item"), self.clone().take(worker, rules));
                    }
                    let nr_running = self.lives.iter().filter(|&&life| life == Running).count();
                    if self.nr_queued == 0 || rules.early && nr_running > 1 {
                        add(format!("{worker} parks"), vec![self.try_park(worker)]);
                    }
                }
                Leaving => add(format!("{worker} leaves"), vec![self.with(worker, Gone)]),
                Parked | Gone => {}
            }
        }
        let idle = self.idle.iter().fold(0, |bits, &worker| bits | 1 << worker);
        if idle & !self.old != 0 {
            let mut next = self.clone();
            next.old |= idle;
            add("time passes".into(), vec![next]);
        }
        for worker in self.to_cull(rules) {
            let woken = self.lives[worker] == Woken;
            let mut next = self.with(worker, if woken { Leaving } else { Gone });
            next.idle.retain(|&other| other != worker);
            add(format!("{worker} is culled"), vec![next]);
        }
        steps
    }

    fn to_cull(&self, rules: Rules) -> Vec<usize> {
        let nr_workers = self.lives.iter().filter(|&&life| life != Gone).count();
        let allowed = if rules.shipped {
            may_cull(self.idle.len(), nr_workers)
        } else {
            self.idle.len() > rules.floor && !(rules.recheck && self.nr_queued > 0)
        };
        let victims = match rules.cull {
            _ if !allowed => &[][..],
            Cull::Tail => &self.idle[self.idle.len() - 1..],
            Cull::Any => &self.idle[..],
        };
        let is_old = |worker: &usize| self.old & 1 << worker != 0;
        victims.iter().copied().filter(is_old).collect()
    }
}

/// Visits every state that the rules allow, in breadth-first order. Stops at the first one that
/// strands an item.
fn explore(rules: Rules) -> Found {
    let start = State::start();
    let mut came_from: HashMap<State, Option<(State, String)>> = HashMap::new();
    came_from.insert(start.clone(), None);
    let mut found =
        Found { nr_states: 0, kicked_was_culled: false, dead_was_woken: false, stranded: None };
    let mut to_visit = VecDeque::from([start]);
    while let Some(state) = to_visit.pop_front() {
        for worker in state.to_cull(rules) {
            let is_kicked = state.lives[worker] == Woken || state.wakes & 1 << worker != 0;
            found.kicked_was_culled |= is_kicked;
        }
        let is_dead = |worker: &usize| state.lives[*worker] == Gone;
        found.dead_was_woken |= (0..NR_WORKERS)
            .filter(|worker| state.wakes & 1 << worker != 0)
            .any(|worker| is_dead(&worker));
        let all_is_quiet = !state.is_awake() && !state.is_waking() && state.nr_to_come == 0;
        if state.nr_queued > 0 && all_is_quiet {
            let mut trace = Vec::new();
            let mut at = &state;
            while let Some((before, step)) = &came_from[at] {
                trace.push(step.clone());
                at = before;
            }
            trace.reverse();
            found.stranded = Some(trace);
            break;
        }
        for (step, next) in state.steps(rules) {
            if !came_from.contains_key(&next) {
                came_from.insert(next.clone(), Some((state.clone(), step)));
                to_visit.push_back(next);
            }
        }
    }
    found.nr_states = came_from.len();
    found
}

/// The outcome of an exploration.
#[derive(Clone, Copy, PartialEq)]
enum Outcome {
    /// No kicked worker is culled and no dead one is woken.
    Safe,
    /// A kicked worker may be culled, but no item is stranded.
    Culls,
    Strands,
}
use Outcome::{Culls, Safe, Strands};

#[test]
fn each_set_of_rules_has_its_documented_outcome() {
    let (early, keep_0) = (Rules { early: true, ..KERNEL }, Rules { floor: 0, ..KERNEL });
    let lone_kick = Rules { claim: true, chain: false, ..KERNEL };
    let shipped = Rules { shipped: true, ..KERNEL };
    for (name, rules, expected) in [
        ("pick the head, cull the tail, keep 2", KERNEL, Culls),
        ("the same, keep 1", Rules { floor: 1, ..KERNEL }, Culls),
        ("the same, keep 2; a worker may park while another runs", early, Culls),
        ("pick the head, cull the tail, keep 0", keep_0, Strands),
        ("pick the tail, cull the tail, keep 2", Rules { pick: Pick::Tail, ..KERNEL }, Strands),
        ("pick any, cull the tail, keep 2", Rules { pick: Pick::Any, ..KERNEL }, Strands),
        (
            "pick the head, each times itself out, keep 2",
            Rules { cull: Cull::Any, ..KERNEL },
            Strands,
        ),
        (
            "pick the head, cull the tail, keep 0, look for work first",
            Rules { recheck: true, ..keep_0 },
            Culls,
        ),
        (
            "pick any, each times itself out, keep 0, look for work first",
            Rules { claim: false, recheck: true, ..CLAIM },
            Culls,
        ),
        ("claim, pick any, each times itself out, keep 0", CLAIM, Safe),
        (
            "the same, and a worker may park while another runs",
            Rules { early: true, ..CLAIM },
            Safe,
        ),
        ("claim, pick the head, cull the tail, keep 2, no chained kick", lone_kick, Safe),
        ("as shipped: claim, and the pool's own policy", Rules { claim: true, ..shipped }, Safe),
        (
            "as shipped, but without the claim, pick any",
            Rules { pick: Pick::Any, ..shipped },
            Strands,
        ),
    ] {
        let found = explore(rules);
        let yes = |flag| if flag { "yes" } else { "no" };
        println!(
            "{name:72} {:6} states  kicked worker culled: {:3}  dead worker woken: {:3}  stranded: {}",
            found.nr_states,
            yes(found.kicked_was_culled),
            yes(found.dead_was_woken),
            found.stranded.as_ref().map_or("no".into(), |trace| trace.join(" > ")),
        );
        // An exploration that stops at a stranded item has not visited all culls.
        assert_eq!(found.stranded.is_some(), expected == Strands, "{name}");
        assert!(expected == Strands || found.kicked_was_culled == (expected == Culls), "{name}");
        assert!(expected != Safe || !found.dead_was_woken, "{name}");
    }
}
