//! Compares the transitions of an item with a slow and obvious model.
//!
//! The model records where the item's link is, which threads run and claim it, and which runs were
//! promised. The state word records none of that. Random threads make random transitions, each as
//! the code that uses the word does.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, PartialEq, Debug, Default)]
enum Link {
    #[default]
    Nowhere,
    /// The link is in a list of the home queue.
    Listed,
    /// The link is in the local batch of a worker that will pop it.
    InLocalBatch,
    /// The link was popped, and handed to the thread that runs or claims the item.
    HandedOver,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Claim {
    /// An enqueuer on another queue removes the link from the old queue's list.
    CutsOut { to: usize },
    /// An enqueuer writes the new home pwq, publishes and pushes.
    Moves { to: usize },
    /// A joiner is about to run the item.
    Helps,
    /// A canceller removes an item of an ordered queue from its list.
    Cancels,
}

/// A flusher: the counts for which it waits, and the sequence number by which it detects them.
#[derive(Clone, Copy, Debug)]
struct Flush {
    seq: u64,
    /// The number of runs that must have ended.
    nr_ended: u32,
    /// The number of enqueues that must have completed or been cancelled.
    nr_settled: u32,
}

#[derive(Debug, Default)]
struct World {
    state: State,
    home: usize,
    link: Link,
    claim: Option<Claim>,
    is_running: bool,
    has_handle: bool,
    is_freed: bool,
    /// Set if the pending enqueue owns a capacity permit.
    has_permit: bool,
    nr_in_flight: [i32; 2],
    nr_enqueued: u32,
    nr_cancelled: u32,
    nr_started: u32,
    nr_ended: u32,
    nr_waits: u32,
    flushes: Vec<Flush>,
}

const RULES: [Rules; 2] = [
    Rules { help: true, ordered: false, one_cpu: false, reclaim: false },
    Rules { help: false, ordered: true, one_cpu: false, reclaim: false },
];

const NR_STEPS: u8 = 13;

impl World {
    fn transition(&mut self, step: u8) {
        match step % NR_STEPS {
            0 | 1 if self.has_handle => self.enqueue(usize::from(step % NR_STEPS), step >= 128),
            2 | 3 if self.link == Link::Listed => self.link = Link::InLocalBatch,
            4 if self.link == Link::InLocalBatch => self.pop(),
            5 if self.is_running => self.end(step >= 128),
            6 if self.has_handle => self.cancel(),
            7 if self.has_handle => self.claim_to_help(),
            8 | 9 => self.continue_with_claim(step >= 128),
            10 if self.has_handle => self.flush(),
            // A helper, or a thread between two transitions, owns a handle.
            11 if self.has_handle && self.claim.is_none() && step >= 240 => self.drop_handle(),
            12 if self.link == Link::Listed => self.reap(),
            _ => {}
        }
        self.check();
    }

    fn push(&mut self, to: usize) {
        assert_eq!(self.link, Link::Nowhere, "pushed while it is linked");
        self.link = Link::Listed;
        self.nr_in_flight[to] += 1;
    }

    fn enqueue(&mut self, to: usize, has_permit: bool) {
        let ours = self.home == to;
        let planned = self.state.enqueue(ours, || ours, RULES[to], has_permit);
        self.has_permit |= has_permit && planned != Enqueue::Pending;
        let (state, claim) = match planned {
            Enqueue::Pending => return assert!(self.is_pending() || self.claim.is_some()),
            Enqueue::Disabled => panic!("the item is not disabled"),
            Enqueue::Revive(state) | Enqueue::Push(state) => (state, None),
            Enqueue::Claim(state) => (state, Some(Claim::Moves { to })),
            Enqueue::Elsewhere(state) => (state, Some(Claim::CutsOut { to })),
        };
        (self.state, self.claim) = (state, claim);
        self.nr_enqueued += 1;
        if matches!(planned, Enqueue::Push(_)) {
            self.push(to);
        }
    }

    fn pop(&mut self) {
        match self.state.pop() {
            Pop::Run(state) => {
                self.state = state;
                self.start();
                // A worker releases the count after the run, at a time that does not matter here.
                self.unlink();
            }
            Pop::Leave(state) => {
                self.state = state;
                self.link = Link::HandedOver;
            }
            Pop::Discard(state) => {
                self.state = state;
                self.unlink();
                self.free_if(state.frees());
            }
        }
    }

    fn unlink(&mut self) {
        assert_ne!(self.link, Link::Nowhere, "released twice");
        self.link = Link::Nowhere;
        self.nr_in_flight[self.home] -= 1;
    }

    fn start(&mut self) {
        assert!(!self.is_running, "two runs at once");
        assert!(self.is_pending(), "a run that was not requested");
        self.is_running = true;
        self.has_permit = false;
        self.nr_started += 1;
    }

    fn end(&mut self, panicked: bool) {
        let ending = if panicked { Ending::Panicked } else { Ending::Returned };
        let done = self.state.complete(ending);
        if let (Ending::Returned, Some(next)) = (ending, self.state.complete_alone()) {
            let nothing = State::IDLE.complete(ending);
            assert_eq!(done, Completion { next, ..nothing }, "not alone");
        }
        if ending == Ending::Returned && self.state.ends_unseen() {
            let (next, nothing) = (done.next, State::IDLE.complete(ending));
            let freed = Completion { next, free: true, ..nothing };
            assert_eq!(done, freed, "another thread takes part");
        }
        self.state = done.next;
        self.is_running = false;
        self.nr_ended += 1;
        if done.relink {
            assert_eq!(self.link, Link::HandedOver);
            self.link = Link::Listed;
        }
        if done.retire_handoff {
            assert_eq!(self.link, Link::HandedOver);
            self.unlink();
        }
        assert_eq!(self.state.has_panicked(), panicked);
        if done.wake {
            self.nr_waits = 0;
        }
        self.free_if(done.free);
    }

    fn cancel(&mut self) {
        if let Some(state) = self.state.claim_pending() {
            assert!(self.is_pending() && self.claim.is_none());
            self.state = state;
            self.claim = Some(Claim::Cancels);
        }
    }

    fn reap(&mut self) {
        if let Some(state) = self.state.reap() {
            assert!(!self.is_pending() && self.claim.is_none());
            self.state = state;
            self.unlink();
            self.free_if(state.frees());
        }
    }

    fn note_cancelled(&mut self, wakes: bool) {
        self.nr_cancelled += 1;
        self.has_permit = false;
        if wakes {
            self.nr_waits = 0;
        }
    }

    fn claim_to_help(&mut self) {
        if let Some(state) = self.state.claim() {
            assert!(self.is_pending() && !self.is_running && self.claim.is_none());
            self.state = state;
            self.claim = Some(Claim::Helps);
        }
    }

    /// Makes the next transition of the claiming thread; a helper may give up.
    // A guard that changes the item would hide one of its transitions.
    #[expect(clippy::collapsible_match)]
    fn continue_with_claim(&mut self, gives_up: bool) {
        match self.claim {
            None => {}
            Some(Claim::CutsOut { to }) => {
                if self.cut_out() {
                    self.claim = Some(Claim::Moves { to });
                }
            }
            Some(Claim::Moves { to }) => {
                self.home = to;
                self.state = self.state.publish();
                self.claim = None;
                self.push(to);
            }
            Some(Claim::Cancels) => {
                let is_out = !self.state.is_ordered() || self.cut_out();
                if let (true, Some((state, wakes))) = (is_out, self.state.cancel()) {
                    self.state = state;
                    self.claim = None;
                    self.note_cancelled(wakes);
                } else if is_out {
                    assert!(self.cut_out(), "the item has no list link");
                }
            }
            Some(Claim::Helps) if gives_up => {
                let (state, put_back) = self.state.unclaim();
                self.state = state;
                self.claim = None;
                assert_eq!(put_back, self.link == Link::HandedOver);
                if put_back {
                    self.link = Link::Listed;
                }
            }
            Some(Claim::Helps) => {
                self.state = self.state.run_claimed();
                self.claim = None;
                self.start();
                if self.link == Link::Listed {
                    // The item was removed from the injector.
                    self.state = self.state.unlink();
                    self.unlink();
                }
            }
        }
    }

    fn cut_out(&mut self) -> bool {
        if self.link == Link::Listed {
            self.state = self.state.unlink();
            self.unlink();
            return true;
        }
        let taken = self.state.take_handoff();
        assert_eq!(taken.is_some(), self.link == Link::HandedOver);
        if let Some(state) = taken {
            self.state = state;
            self.unlink();
        }
        taken.is_some()
    }

    fn flush(&mut self) {
        let seq = self.state.last_completion_seq();
        if !self.state.has_reached(seq) {
            self.state = self.state.wait();
            self.nr_waits += 1;
        }
        self.flushes.push(Flush {
            seq,
            nr_ended: self.nr_ended + u32::from(self.is_running),
            nr_settled: self.nr_enqueued,
        });
    }

    fn drop_handle(&mut self) {
        self.has_handle = false;
        self.state = self.state.orphan();
        self.free_if(self.state.frees());
    }

    fn free_if(&mut self, frees: bool) {
        if frees {
            assert!(!self.is_freed, "freed twice");
            assert!(!self.has_handle && self.link == Link::Nowhere && !self.is_running);
            assert!(self.claim.is_none());
            self.is_freed = true;
        }
    }

    fn is_pending(&self) -> bool {
        self.nr_enqueued > self.nr_started + self.nr_cancelled
    }

    fn check(&self) {
        let nr_open = self.nr_enqueued - self.nr_started - self.nr_cancelled;
        assert!(nr_open <= 1, "{nr_open} enqueues returned true for one run");
        let is_moving = matches!(self.claim, Some(Claim::Moves { .. } | Claim::CutsOut { .. }));
        assert_eq!(self.state.is_pending() || is_moving, nr_open == 1);
        assert_eq!(self.state.is_counted(), self.has_permit, "a permit without an owner");
        assert_eq!(self.state.is_running(), self.is_running);
        assert_eq!(self.state.is_claimed(), self.claim.is_some());
        let is_linked = self.link != Link::Nowhere;
        assert_eq!(self.nr_in_flight.iter().sum::<i32>(), i32::from(is_linked));
        let must_be_freed = !self.has_handle && !is_linked && !self.is_running;
        assert_eq!(self.is_freed, must_be_freed && self.claim.is_none());
        let nr_settled = self.nr_ended + self.nr_cancelled;
        for flush in &self.flushes {
            if self.state.has_reached(flush.seq) {
                assert!(self.nr_ended >= flush.nr_ended, "before the run had ended");
                assert!(nr_settled >= flush.nr_settled, "before what was queued");
            } else {
                assert!(self.nr_waits > 0 || self.state.is_running() || nr_open == 1);
            }
        }
    }

    fn come_to_rest(&mut self) {
        let mut nr_rounds = 0;
        while self.claim.is_some() || self.link != Link::Nowhere || self.is_running {
            assert!(nr_rounds < 10, "stuck: {self:?}");
            nr_rounds += 1;
            for step in [8, 2, 4, 5] {
                self.transition(step);
            }
        }
        assert_eq!(self.nr_started, self.nr_ended);
        assert_eq!(self.nr_enqueued, self.nr_ended + self.nr_cancelled);
        for flush in &self.flushes {
            assert!(self.state.has_reached(flush.seq), "the flush does not end");
        }
        assert_eq!(self.nr_waits, 0, "a sleeping waiter was not woken");
        if self.has_handle {
            self.drop_handle();
        }
        assert!(self.is_freed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    /// An item runs once for each enqueue that was not cancelled, its runs never overlap, each
    /// flush ends at the right time, and the item is freed once.
    #[test]
    fn transitions_of_an_item_keep_their_guarantees(steps in prop::collection::vec(any::<u8>(), 0..80)) {
        let mut world = World { has_handle: true, ..World::default() };
        for step in steps {
            world.transition(step);
        }
        world.come_to_rest();
    }
}

fn enqueued(state: State) -> State {
    match state.enqueue(true, || true, RULES[0], false) {
        Enqueue::Push(state) => state,
        other => panic!("{other:?}"),
    }
}

fn popped(state: State) -> State {
    let Pop::Run(running) = state.pop() else { panic!("{state:?}") };
    running
}

#[test]
fn turns_wrap_and_stay_clear_of_the_disable_depth() {
    let last = State(SEQ_MASK).disable().expect("not disabled yet");
    let next = last.next_completion();
    assert_eq!((next.completion_seq(), next.disable_depth()), (0, 1));
    assert!(next.has_reached(last.completion_seq()));
    assert!(!last.has_reached(next.completion_seq()));
}

#[test]
fn debug_output_of_a_state_names_its_flags() {
    let (state, _) = State::queued(RULES[0]).claim().expect("helpable").unclaim();
    assert_eq!(format!("{state:?}"), "turn 0 pending linked helpable");
}

#[test]
fn bulk_cancel_ends_like_a_run_and_advances_the_sequence() {
    let queued = State::queued(RULES[0]);
    let Pop::Run(taken) = queued.pop_to_cancel() else { panic!() };
    assert!(taken.is_running() && !taken.is_pending() && !taken.has_link());
    assert_eq!(taken.complete(Ending::Returned).next.completion_seq(), 1);
    // The panic flag of the last run is kept.
    let running = popped(queued);
    let panicked = running.complete(Ending::Panicked).next;
    let Pop::Run(taken) = enqueued(panicked).pop_to_cancel() else { panic!() };
    assert!(taken.complete(Ending::Returned).next.has_panicked());
    // The item is queued during a run.
    let Pop::Discard(cancelled) = enqueued(running).pop_to_cancel() else { panic!() };
    assert!(cancelled.is_running() && !cancelled.is_pending() && !cancelled.has_link());
    assert_eq!(cancelled.complete(Ending::Returned).next.completion_seq(), 2);
    // A tombstone, and a claimed tombstone.
    assert!(matches!(taken.complete(Ending::Returned).next.pop_to_cancel(), Pop::Discard(_)));
    let claimed = queued.claim_pending().unwrap();
    assert!(matches!(claimed.pop_to_cancel(), Pop::Leave(_)));
}

#[test]
fn successor_of_an_older_item_is_marked_until_it_has_run() {
    let claimed = State::queued(RULES[0]).claim_pending().unwrap();
    let (tombstone, _) = claimed.cancel().unwrap();
    let Enqueue::Revive(revived) = tombstone.enqueue(true, || true, RULES[0], false) else {
        panic!()
    };
    assert!(revived.is_revived());
    let running = popped(revived);
    let done = running.complete(Ending::Returned).next;
    assert!(!done.is_revived() && !State::queued(RULES[0]).is_revived());
    assert!(!enqueued(running).is_revived());
}
