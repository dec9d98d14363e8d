//! Interleaves the runs: each repetition runs every variant once, in a newly shuffled order, so
//! that all variants are exposed to the same drift of the machine. Ratios are taken within a
//! repetition.

use std::time::{Duration, Instant};

use top::exit::Stop;
use top::interrupt::Interrupt;

use super::case::{Case, Ran, Sample, Series, Variant};
use super::progress::Progress;

/// The number of attempts per variant and repetition. A discarded run is repeated once.
const ATTEMPTS: usize = 2;

#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub repeat: usize,
    pub seed: u64,
    /// The time limit. A repetition that would probably end after this limit does not begin.
    pub budget: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Complete,
    OutOfTime(usize),
    /// SIGINT arrived. The last repetition may lack some variants.
    Interrupted,
}

pub fn run_case(
    case: &mut Case,
    plan: &Plan,
    interrupt: &Interrupt,
    progress: &mut Progress,
) -> Result<(Vec<Series>, Ended), Stop> {
    let empty = |it: &Variant| {
        let samples = Vec::with_capacity(plan.repeat);
        Series { variant: it.name.clone(), peer: it.peer, samples }
    };
    let mut all: Vec<Series> = case.variants.iter().map(empty).collect();
    let began = Instant::now();
    for repetition in 0..plan.repeat {
        if !time_for_another(repetition, began.elapsed(), plan.budget) {
            progress.dropped((plan.repeat - repetition) * case.variants.len());
            return Ok((all, Ended::OutOfTime(repetition)));
        }
        for turn in order(case.variants.len(), plan.seed, repetition) {
            let variant = &mut case.variants[turn];
            progress.run_begins(case.name, &variant.name);
            let Some(sample) = once(variant, interrupt)? else {
                return Ok((all, Ended::Interrupted));
            };
            all[turn].samples.push((repetition, sample));
            progress.run_ended();
        }
        progress.repetition_ended(case.name, repetition + 1, plan.repeat);
    }
    Ok((all, Ended::Complete))
}

/// Runs a variant, and runs it again if the run is discarded. Returns `None` if it is interrupted.
fn once(variant: &mut Variant, interrupt: &Interrupt) -> Ran {
    let mut tried = None;
    for _ in 0..ATTEMPTS {
        if interrupt.requested() {
            return Ok(None);
        }
        tried = (variant.run)()?;
        if !tried.as_ref().is_some_and(Sample::is_thrown_away) {
            break;
        }
    }
    Ok(tried)
}

/// Returns `true` if another repetition may begin after `done` repetitions took `spent`. The first
/// may always begin, because a result without a spread is better than none.
fn time_for_another(done: usize, spent: Duration, budget: Option<Duration>) -> bool {
    match (u32::try_from(done), budget) {
        (Ok(0), _) | (_, None) => true,
        (Ok(done), Some(budget)) => spent + spent / done <= budget,
        (Err(_), Some(budget)) => spent <= budget,
    }
}

/// Returns the order of the variants in one repetition. Equal seeds give equal orders.
fn order(variants: usize, seed: u64, repetition: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..variants).collect();
    fastrand::Rng::with_seed(seed.wrapping_add(repetition as u64)).shuffle(&mut order);
    order
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;
    use crate::harness::beside::Absent;

    const PLAN: Plan = Plan { repeat: 20, seed: 7, budget: None };

    /// Creates a case of three variants, which record their turns. `at(n)` is the result of turn
    /// `n`.
    fn case(
        turns: &Rc<RefCell<Vec<usize>>>,
        at: impl Fn(usize) -> Option<Sample> + Clone + 'static,
    ) -> Case {
        let variant = |index: usize| {
            let (turns, at) = (Rc::clone(turns), at.clone());
            Variant::ours(format!("v{index}"), move || {
                turns.borrow_mut().push(index);
                Ok(at(turns.borrow().len()))
            })
        };
        Case { variants: (0..3).map(variant).collect(), ..Case::new("test", "turns", &[], "") }
    }

    fn run(
        plan: &Plan,
        interrupt: &Interrupt,
        at: impl Fn(usize) -> Option<Sample> + Clone + 'static,
    ) -> (Vec<Series>, Ended, Vec<usize>) {
        let turns = Rc::default();
        let mut case = case(&turns, at);
        let (all, ended) = run_case(&mut case, plan, interrupt, &mut Progress::silent()).unwrap();
        (all, ended, turns.take())
    }

    #[test]
    fn every_variant_has_one_turn_in_each_repetition() {
        let interrupt = Interrupt::default();
        let (all, ended, turns) = run(&PLAN, &interrupt, |_| Some(Sample::default()));
        assert_eq!(ended, Ended::Complete);
        for series in all {
            let repetitions: Vec<usize> = series.samples.iter().map(|(r, _)| *r).collect();
            assert_eq!(repetitions, (0..PLAN.repeat).collect::<Vec<_>>());
        }
        for repetition in turns.chunks(3) {
            let mut sorted = repetition.to_vec();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2]);
        }
    }

    #[test]
    fn the_order_changes_with_the_repetition_and_is_the_seeds() {
        let orders = |seed| Vec::from_iter((0..20).map(|repetition| order(5, seed, repetition)));
        assert!(orders(7).windows(2).any(|pair| pair[0] != pair[1]));
        assert_eq!(orders(7), orders(7));
        assert_ne!(orders(7), orders(77));
    }

    #[test]
    fn interrupted_run_keeps_earlier_measurements() {
        let interrupt = Interrupt::default();
        let (all, ended, _) = run(&PLAN, &interrupt, |turn| (turn < 5).then(Sample::default));
        assert_eq!(ended, Ended::Interrupted);
        assert_eq!(all.iter().map(|it| it.samples.len()).sum::<usize>(), 4);
    }

    #[test]
    fn discarded_run_is_repeated_once_and_then_reported() {
        let absent = || Sample::thrown_away(Absent("no thread".into()));
        let at = move |turn| Some(if turn == 1 { Sample::default() } else { absent() });
        let plan = Plan { repeat: 1, ..PLAN };
        let (all, ended, turns) = run(&plan, &Interrupt::default(), at);
        assert_eq!((ended, turns.len()), (Ended::Complete, 5));
        let thrown = all.iter().map(|series| series.thrown_away().count());
        assert_eq!(thrown.sum::<usize>(), 2);
    }

    #[test]
    fn stop_request_is_checked_before_each_run() {
        let interrupt = Interrupt::default();
        interrupt.request();
        let (_, ended, turns) = run(&PLAN, &interrupt, |_| Some(Sample::default()));
        assert_eq!((ended, turns.len()), (Ended::Interrupted, 0));
    }

    #[test]
    fn a_budget_lets_one_repetition_run_and_no_more_than_fit() {
        let second = Duration::from_secs(1);
        assert!(time_for_another(0, Duration::ZERO, Some(Duration::ZERO)));
        assert!(time_for_another(1, second, Some(2 * second)));
        assert!(!time_for_another(1, second, Some(second)));
        assert!(time_for_another(1000, 1000 * second, None));
    }

    #[test]
    fn out_of_time_reports_the_number_of_repetitions() {
        let plan = Plan { budget: Some(Duration::ZERO), ..PLAN };
        let (_, ended, turns) = run(&plan, &Interrupt::default(), |_| Some(Sample::default()));
        assert_eq!((ended, turns.len()), (Ended::OutOfTime(1), 3));
    }
}
