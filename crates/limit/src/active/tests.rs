use proptest::prelude::*;

use super::*;

struct Seats {
    gate: Arc<Gate<usize>>,
    core: Arc<QueueCore>,
}

impl Seats {
    fn new(max: u32, nr_cpus: &[u32]) -> Self {
        Self::with_stocks(max, nr_cpus, 0)
    }

    fn with_stocks(max: u32, nr_cpus: &[u32], stocks_for: u32) -> Self {
        Self {
            gate: Arc::new(Gate::new(max, 1, nr_cpus, stocks_for)),
            core: Arc::new(QueueCore::new("test", None)),
        }
    }

    fn enter(&self, node: usize, slot: usize) -> bool {
        self.gate.enter_or_queue(node, || slot)
    }

    fn leave(&self, node: usize) -> Option<usize> {
        Gate::leave(&self.gate, &self.core, node, Holds::Seat).waiter
    }

    fn set_max(&self, max: u32) -> Vec<usize> {
        self.gate.set_max(max)
    }
}

#[test]
fn released_seat_is_transferred_to_the_first_waiter() {
    let seats = Seats::new(1, &[]);
    assert!(seats.enter(0, 6));
    assert!(!seats.enter(0, 7));
    assert!(!seats.enter(0, 8));
    assert_eq!(seats.leave(0), Some(7));
    assert_eq!(seats.gate.nr_active(), 1, "the seat was transferred");
    assert_eq!(seats.leave(0), Some(8));
    assert!(seats.gate.may_stay());
    assert_eq!(seats.leave(0), None);
    assert_eq!(seats.gate.nr_active(), 0);
}

#[test]
fn last_release_notifies_waiters() {
    let seats = Seats::new(2, &[]);
    let leave = || Gate::leave(&seats.gate, &seats.core, 0, Holds::Seat);
    assert!(seats.gate.is_idle());
    assert!(seats.enter(0, 0) && seats.enter(0, 1));
    assert!(!seats.gate.is_idle());
    assert!(leave().settled.is_none());
    assert!(leave().settled.is_some());
    assert!(seats.gate.is_idle());
    assert!(seats.enter(0, 0));
    assert!(leave().settled.is_none(), "no thread waits any more");
}

#[test]
fn late_node_gets_its_share_before_a_busy_one_gets_more() {
    let seats = Seats::new(32, &[4, 4]);
    for slot in 0..32 {
        assert!(seats.enter(0, slot), "any thread may take a free seat");
    }
    for slot in 100..120 {
        assert!(!seats.enter(0, slot));
    }
    for slot in 200..220 {
        assert!(!seats.enter(1, slot));
    }
    let served: Vec<_> = (0..16).filter_map(|_| seats.leave(0)).collect();
    assert!(served.iter().copied().eq(200..216), "{served:?}");
    assert_eq!(seats.leave(0), Some(100), "both have their shares: in turn");
}

#[test]
fn unused_share_of_a_node_moves_to_waiting_nodes() {
    let seats = Seats::new(16, &[4, 4]);
    for slot in 0..16 {
        assert!(seats.enter(slot % 2, slot));
    }
    assert!(!seats.enter(0, 16));
    assert_eq!(seats.leave(1), Some(16), "node 1 needs no more");
}

/// A slow and obvious model: a list of the threads that hold a seat.
#[derive(Default)]
struct Model {
    max: usize,
    shares: Vec<u32>,
    seated: Vec<usize>,
    wait_queue: Vec<(usize, usize)>,
}

impl Model {
    fn enter(&mut self, node: usize, slot: usize) -> bool {
        let free = self.seated.len() < self.max;
        if free {
            self.seated.push(node);
        } else {
            self.wait_queue.push((node, slot));
        }
        free
    }

    fn next(&mut self) -> Option<usize> {
        if self.wait_queue.is_empty() || self.seated.len() >= self.max {
            return None;
        }
        let nr_in = |node| self.seated.iter().filter(|it| **it == node).count() as u32;
        let below = |node: usize| self.shares.get(node).is_some_and(|&share| nr_in(node) < share);
        let at = self.wait_queue.iter().position(|(node, _)| below(*node));
        let (node, slot) = self.wait_queue.remove(at.unwrap_or(0));
        self.seated.push(node);
        Some(slot)
    }
}

/// The number of cases. Under Miri, one case takes as long as hundreds of cases do without it.
const NR_CASES: u32 = if cfg!(miri) { 2 } else { 500 };

proptest! {
    #![proptest_config(ProptestConfig { cases: NR_CASES, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn seats_match_a_model_that_lists_the_holders(
        nr_cpus in proptest::collection::vec(1u32..9, 1..4),
        first_max in 1u32..40,
        stocks_for in 0u32..5,
        steps in proptest::collection::vec((0u8..8, any::<u16>()), 1..300),
    ) {
        let shares_of = |max| if nr_cpus.len() > 1 { shares(max, &nr_cpus) } else { Vec::new() };
        let seats = Seats::with_stocks(first_max, &nr_cpus, stocks_for);
        let mut model = Model { max: first_max as usize, shares: shares_of(first_max), ..Model::default() };
        for (slot, (what, dice)) in steps.into_iter().enumerate() {
            let dice = usize::from(dice);
            match what {
                0 => {
                    let max = 1 + dice as u32 % 40;
                    (model.max, model.shares) = (max as usize, shares_of(max));
                    let seated: Vec<_> = std::iter::from_fn(|| model.next()).collect();
                    prop_assert_eq!(seats.set_max(max), seated);
                }
                1..4 if !model.seated.is_empty() => {
                    let node = model.seated.swap_remove(dice % model.seated.len());
                    prop_assert_eq!(seats.leave(node), model.next());
                }
                _ => {
                    let node = dice % nr_cpus.len();
                    prop_assert_eq!(seats.enter(node, slot), model.enter(node, slot));
                }
            }
            prop_assert_eq!(seats.gate.nr_active() as usize, model.seated.len());
            for (node, count) in seats.gate.nodes.iter().enumerate() {
                let model = model.seated.iter().filter(|it| **it == node).count();
                let stocks = seats.gate.stocks.iter().enumerate();
                let its = stocks.filter(|(at, _)| seats.gate.node_of(*at) == node);
                let nr_kept: u32 = its.map(|(_, stock)| stock.nr_kept()).sum();
                prop_assert_eq!((count.nr_active.load(Ordering::Relaxed) - nr_kept) as usize, model);
                prop_assert!(nr_kept == 0 || seats.gate.nr_waiting() == 0, "seats are kept from who waits");
            }
        }
    }
}

#[test]
fn flush_waits_only_for_earlier_helpers() {
    let seats = Seats::new(8, &[]);
    let gate = &seats.gate;
    let began = gate.phase();
    assert!(gate.has_helped(began), "no thread helps");
    let early = gate.try_help(0, false).unwrap();
    let began = gate.phase();
    assert!(!gate.has_helped(began));
    let late = gate.try_help(0, true).unwrap();
    assert!(!gate.has_helped(began));
    assert!(Gate::leave(gate, &seats.core, 0, early).settled.is_some());
    assert!(gate.has_helped(began));
    // A second flush has to wait for the late helper.
    let again = gate.phase();
    assert!(!gate.has_helped(again));
    assert!(Gate::leave(gate, &seats.core, 0, late).settled.is_some());
    assert!(gate.has_helped(again) && gate.has_helped(began));
    assert_eq!(gate.nr_active(), 0);
}

#[test]
fn flush_during_another_flush_waits_for_both_phases() {
    let seats = Seats::new(8, &[]);
    let gate = &seats.gate;
    let first = gate.try_help(0, false).unwrap();
    let one = gate.phase();
    assert!(!gate.has_helped(one));
    let second = gate.try_help(0, false).unwrap();
    let two = gate.phase();
    assert!(!gate.has_helped(two), "the phase before has a helper");
    drop(Gate::leave(gate, &seats.core, 0, second));
    assert!(!gate.has_helped(two), "the first helper also started earlier");
    drop(Gate::leave(gate, &seats.core, 0, first));
    assert!(gate.has_helped(one) && gate.has_helped(two));
}

#[test]
#[cfg_attr(miri, ignore = "long, in code without threads and pointers")]
fn divisor_is_exact_for_all_seats_and_cpus() {
    // A limit of 512 for each of 1024 CPUs, and two stocks per CPU.
    let numbers = [0, 1, 2, 3, 255, 256, 511, 512, 1023, 262_143, 524_287, 524_288];
    for by in 1..=2048 {
        let multiples = (0..256).map(|i| i * by).filter(|it| *it <= 524_288);
        for number in numbers.into_iter().chain(multiples) {
            assert_eq!(Divisor::new(by).divide(number), number / by);
            assert_eq!(
                Divisor::new(by).divide(number.saturating_sub(1)),
                number.saturating_sub(1) / by
            );
        }
    }
}

#[test]
fn nodes_part_the_stocks_that_the_first_has_for_all() {
    for (nodes, nr_stocks) in [(&[][..], 8), (&[4, 4], 8 + 4), (&[2, 2, 2, 2], 8 + 3 * 2)] {
        let gate = Seats::with_stocks(64, nodes, 8).gate;
        assert_eq!(gate.stocks.len(), nr_stocks);
        assert_eq!(gate.keep() * 8, 32);
        for node in 0..nodes.len() {
            assert_eq!(gate.node_of(gate.stock_here(node).unwrap()), node);
        }
    }
}

#[test]
fn a_paused_gate_has_no_seats_and_keeps_its_limit() {
    let seats = Seats::new(2, &[]);
    let gate = &seats.gate;
    assert!(gate.try_enter(0));
    assert!(gate.set_paused(true).is_empty());
    assert!(!gate.try_enter(0) && gate.try_help(0, false).is_none() && !gate.may_stay());
    assert!(!seats.enter(0, 3));
    assert!(seats.leave(0).is_none(), "no waiter is admitted");
    assert!(gate.set_max(1).is_empty());
    assert_eq!(gate.max(), 1);
    let slots = gate.set_paused(false);
    assert_eq!(slots, [3]);
}

fn open_stocks(max: u32) -> Seats {
    let seats = Seats::with_stocks(max, &[1, 1], 2);
    assert!(seats.gate.try_enter(0));
    assert!(seats.leave(0).is_none());
    assert!(seats.gate.wait_queue.lock().is_open);
    seats
}

#[test]
fn cached_seat_is_reused_without_a_change_of_the_state() {
    let seats = open_stocks(16);
    let gate = &seats.gate;
    let word = gate.load();
    assert_eq!((word.nr_active(), gate.nr_active()), (1, 0));
    let helps = gate.try_help(0, false).unwrap();
    assert!(matches!(helps, Holds::HelpOfStock { lent: false, .. }));
    assert_eq!((gate.nr_active(), gate.nr_helpers()), (1, 1));
    let lent = gate.try_help(0, true).unwrap();
    assert_eq!((gate.nr_active(), gate.nr_helpers()), (1, 2));
    for holds in [lent, helps] {
        let left = Gate::leave(gate, &seats.core, 0, holds);
        assert!(left.waiter.is_none() && left.settled.is_none());
    }
    assert_eq!((gate.load(), gate.nr_active()), (word, 0));
}

#[test]
fn stock_keeps_a_bounded_number_of_seats() {
    let seats = open_stocks(16);
    let nr_kept = || seats.gate.load().nr_active() - seats.gate.nr_active();
    assert!((0..4).all(|_| seats.gate.try_enter(0)));
    (0..4).for_each(|_| assert!(seats.leave(0).is_none()));
    assert_eq!(seats.gate.keep(), 4);
    assert!((1..=4).contains(&nr_kept()), "{}", nr_kept());
    assert!((0..16).all(|_| seats.enter(1, 0)), "all find the cached seats");
    assert_eq!((nr_kept(), seats.gate.nr_active()), (0, 16));
}

#[test]
fn pause_and_lower_limit_take_cached_seats() {
    let seats = open_stocks(16);
    let gate = &seats.gate;
    assert!(gate.set_paused(true).is_empty());
    assert_eq!(gate.load().nr_active(), 0);
    assert!(!gate.try_enter(0) && gate.try_help(0, false).is_none());
    assert!(gate.set_paused(false).is_empty());
    assert!(gate.try_enter(0));
    assert!(gate.set_max(1).is_empty());
    assert!(!gate.try_enter(0));
    assert!(seats.leave(0).is_none());
    assert_eq!(gate.load().nr_active(), 0, "no stock of one seat");
}

#[test]
fn stocks_stay_closed_until_the_last_flush_has_ended() {
    let seats = open_stocks(16);
    let gate = &seats.gate;
    let early = gate.try_help(0, false).unwrap();
    let first = Gate::closed(gate.clone());
    let phase = first.phase();
    assert!(!first.has_helped(phase));
    let late = gate.try_help(0, false).unwrap();
    assert!(matches!(late, Holds::Help { .. }));
    let second = Gate::closed(gate.clone());
    assert!(Gate::leave(gate, &seats.core, 0, early).settled.is_some());
    assert!(first.has_helped(phase), "the late one is in a later phase");
    drop(first);
    assert!(gate.try_enter(1) && !gate.wait_queue.lock().is_open);
    drop(second);
    assert!(gate.try_enter(1) && gate.wait_queue.lock().is_open);
    assert!(Gate::leave(gate, &seats.core, 0, late).waiter.is_none());
    assert_eq!((gate.nr_active(), gate.nr_helpers()), (2, 0));
}
