//! The ways in which an owner keeps its slot and gives it up, and in which other threads ask for
//! the slot or break the bias. `slot.rs` describes the states.

use std::time::Duration;

use sync::atomic::Ordering;
use sync::{asym, hint, twin};

use super::backoff::{
    self, Backoff, Deadline, HANDOFF_WAIT, NR_OWNER_SPINS, NR_SPINS, SLEEP_US, Turn,
};
use super::choice::Kind;
use super::slot::{FREE, HELD, LOST, OWNED, OwnerWord, Slot, Want, release_order, take_order};

/// The number of polls for which an owner that gave up its slot on request waits for the requester
/// to take it: about a microsecond, several times the transfer time of a cache line.
const NR_HANDOFF_SPINS: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 32 };

impl<T> Slot<T> {
    /// Makes this thread the owner, if there is none. The slot is still given up after this call.
    pub(super) fn claim(&self) -> bool {
        let (none, mine) = (OwnerWord::NONE.0, OwnerWord::mine().0);
        // Acquire pairs with the store in `disclaim`. If that store comes first, we become the
        // owner, and our loads of `want` follow the last owner's changes. If our exchange comes
        // first, it fails, and the slot still has an owner.
        self.far.owner.compare_exchange(none, mine, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Stops being the owner. The caller must have given up the slot.
    pub(super) fn disclaim(&self) {
        // Release pairs with the exchange in `claim`.
        self.far.owner.store(OwnerWord::NONE.0, Ordering::Release);
    }

    /// Returns `true` if this thread is the owner and has not parked.
    pub(super) fn is_mine(&self) -> bool {
        let owner = self.owner();
        owner.is_mine() && !owner.is_parked()
    }

    /// Gives up the slot until `take_back`, because the owner parks or is dropped.
    pub(super) fn give_up(&self) {
        let owner = self.owner().parked();
        self.far.owner.store(owner.0, Ordering::Relaxed);
        match self.kind() {
            Kind::Queue => {
                self.run_queued_calls();
                return self.release();
            }
            Kind::OnDemand | Kind::Breakable => self.unbias(),
            Kind::EveryOp => {}
        }
        self.hand_over();
    }

    /// Takes the slot back after `give_up`. In `OnDemand`, the next operation takes the slot back.
    pub(super) fn take_back(&self) {
        if self.kind() == Kind::Queue {
            self.take();
            self.run_queued_calls();
            // Only the owner moves the word from `OWNED`.
            self.word.store(OWNED, Ordering::Relaxed);
        }
        let owner = self.owner().unparked();
        self.far.owner.store(owner.0, Ordering::Relaxed);
    }

    /// Takes the slot for its owner. Waits while another thread is inside.
    #[cold]
    #[inline(never)]
    fn take(&self) {
        self.take_as(&mut Turn::default());
    }

    /// Does the same as [`take`](Self::take). An owner that sleeps announces itself, so that no
    /// caller takes the slot before it.
    fn take_as(&self, turn: &mut Turn) {
        let mut backoff = Backoff::new(NR_OWNER_SPINS);
        while !self.try_take() {
            self.must_not_be_lost();
            turn.poll();
            backoff.pass(|| {
                self.announce(turn.sleeps());
                self.nap(|| self.is_free() || self.may_be_taken(0));
            });
        }
        self.withdraw(turn);
    }

    /// Takes the slot for its owner. First lets sleeping callers take it, for at most
    /// `HANDOFF_WAIT`.
    #[cold]
    #[inline(never)]
    fn take_in_turn(&self) {
        let mut turn = Turn::default();
        let is_awaited = || self.eldest.load(Ordering::Relaxed) != 0;
        if is_awaited() && !twin::armed("percpu: the owner overtakes the eldest") {
            self.hand_over();
            let mut backoff = Backoff::new(NR_SPINS);
            let mut deadline = Deadline::after(HANDOFF_WAIT);
            turn.poll();
            // In a model no time passes.
            while is_awaited() && (cfg!(any(loom, shuttle)) || !deadline.is_over()) {
                backoff.pass(|| self.nap(|| !is_awaited()));
            }
        }
        if !self.try_take() {
            self.take_as(&mut turn);
        }
    }

    /// Sleeps for a short time, at most until the slot is handed over, unless `may_go_on` returns
    /// `true`. Under loom, yields instead: a release may not see the sleeper, and no sleep times
    /// out.
    pub(super) fn nap(&self, may_go_on: impl Fn() -> bool) {
        if cfg!(loom) {
            return backoff::nap();
        }
        let prepared = self.far.door.prepare();
        if !may_go_on() {
            prepared.wait_timeout(Duration::from_micros(SLEEP_US));
        }
    }

    /// Takes the slot for its owner, which has stored `HELD` over `before`.
    #[cold]
    #[inline(never)]
    fn take_after(&self, before: u32) {
        if before == LOST {
            self.word.store(LOST, Ordering::Relaxed);
        }
        self.take();
    }

    /// Runs queued calls, or hands the slot over if a thread asks. The owner is in no operation.
    #[inline]
    pub(super) fn poll(&self, kind: Kind) {
        match kind {
            Kind::Queue => self.run_queued_calls(),
            Kind::OnDemand | Kind::Breakable => {
                let asked = self.enter(kind);
                self.exit(kind, asked);
            }
            Kind::EveryOp => {}
        }
    }

    /// Begins an operation of the owner. Returns `true` if it must end with `exit_asked`.
    #[inline(always)]
    pub(super) fn enter(&self, kind: Kind) -> bool {
        match kind {
            Kind::Queue => false,
            Kind::OnDemand => {
                // Relaxed is sufficient, because while `want` is zero, the owner has kept the slot
                // since its last operation.
                self.want.load(Ordering::Relaxed) != 0 && self.enter_asked()
            }
            Kind::EveryOp => {
                // A swap is cheaper than a compare-exchange if stores miss the caches. If the
                // holder's release comes first, we get the slot. Otherwise the release later stores
                // FREE, and `take_after` waits for that. Loom may order that release before the
                // swap and lose it, so it compares first.
                if cfg!(loom) || self.eldest.load(Ordering::Relaxed) != 0 {
                    self.take_in_turn();
                } else {
                    let before = self.word.swap(HELD, take_order());
                    if before != FREE {
                        self.take_after(before);
                    }
                }
                false
            }
            Kind::Breakable => {
                // ORDER(percpu-bias): store buffering, other end in `try_break`.
                //   here:  busy = 1;    light;  load want
                //   break: want += 1;   heavy;  load busy
                // If our barrier comes first, the breaker sees `busy` and does not break. If the
                // breaker's barrier comes first, we see its `want`, and hand over the slot.
                // Test: a_broken_bias_never_lets_two_inside
                self.busy.store(1, Ordering::Relaxed);
                if !twin::armed("percpu: no light fence") {
                    asym::light();
                }
                self.want.load(Ordering::Relaxed) != 0 && self.enter_asked()
            }
        }
    }

    #[inline(always)]
    pub(super) fn exit(&self, kind: Kind, asked: bool) {
        if asked {
            return self.exit_asked();
        }
        match kind {
            Kind::Queue | Kind::OnDemand => {}
            Kind::EveryOp => self.word.store(FREE, release_order()),
            Kind::Breakable => {
                // ORDER(percpu-busy): publish and consume, other end in `try_break`.
                //   here:  the data;        busy = 0   Release
                //   break: busy: 0 Acquire; the data
                // If our store comes first, the breaker may take the slot, and sees our changes. If
                // its load comes first, it reads 1, and tries again later.
                // Test: a_broken_bias_never_lets_two_inside
                let order = twin::order("percpu: relaxed exit", Ordering::Release);
                self.busy.store(0, order);
            }
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn exit_by_panic(&self, kind: Kind, asked: bool) {
        self.exit(kind, asked);
    }

    /// Hands the slot over to a thread that asks for it, and takes it back. Returns `true`.
    #[cold]
    #[inline(never)]
    fn enter_asked(&self) -> bool {
        // Release pairs with the load in `try_break`, as in `exit`.
        self.busy.store(0, Ordering::Release);
        if !Want(self.want.load(Ordering::Relaxed)).is_away() {
            self.unbias();
            for _ in 0..NR_HANDOFF_SPINS {
                let asked = Want(self.want.load(Ordering::Relaxed)).has_askers();
                if !asked || self.word.load(Ordering::Relaxed) != FREE {
                    break;
                }
                hint::spin_loop();
            }
        }
        self.take_in_turn();
        true
    }

    /// Ends an operation of `enter_asked`. Keeps the slot if no thread asks for it.
    #[cold]
    #[inline(never)]
    fn exit_asked(&self) {
        // `want` changes before the word: while the word is `HELD`, no thread can break the bias.
        // If the word became `OWNED` first, a breaker could take and release the slot before our
        // exchange, which would then clear its `AWAY`.
        if twin::armed("percpu: keeps the slot before marking it") {
            self.word.store(OWNED, release_order());
        }
        let nobody_asks =
            self.want.compare_exchange(Want::AWAY, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        // If a thread asks, `AWAY` stays set for the next operation.
        let next = if nobody_asks { OWNED } else { FREE };
        self.word.store(next, release_order());
    }

    /// Gives up the bias, unless it was broken or given up before.
    fn unbias(&self) {
        // Only this thread reads both words together, so their order does not matter.
        if !twin::armed("percpu: yields without marking it") {
            self.want.fetch_or(Want::AWAY, Ordering::Relaxed);
        }
        // This exchange competes with the one in `try_break`. If the breaker's exchange comes
        // first, ours fails, and the breaker releases the slot. If ours comes first, the breaker's
        // fails, and it finds the slot free.
        let _ = self.word.compare_exchange(OWNED, FREE, release_order(), Ordering::Relaxed);
    }

    /// Asks for the slot: until `unask`, the owner gives it up at its next operation.
    pub(super) fn ask(&self) {
        self.want.fetch_add(Want::ONE, Ordering::Relaxed);
    }

    pub(super) fn unask(&self) {
        self.want.fetch_sub(Want::ONE, Ordering::Relaxed);
    }

    /// Takes the slot from an owner that has the bias and is not inside. The caller has asked for
    /// the slot, and then made every thread pass a fence.
    pub(super) fn try_break(&self) -> bool {
        // ORDER(percpu-busy): the acquire end; see `exit`.
        // ORDER(percpu-bias): the other end; see `enter`. The barrier is `heavy`, in the caller.
        // Test: a_broken_bias_never_lets_two_inside
        let inside = self.busy.load(Ordering::Acquire) != 0;
        if inside && !twin::armed("percpu: breaks without a check") {
            return false;
        }
        let broken =
            self.word.compare_exchange(OWNED, HELD, take_order(), Ordering::Relaxed).is_ok();
        if broken && !twin::armed("percpu: breaks without marking it") {
            // `AWAY` is set before our request is withdrawn, so that `want` does not fall to zero.
            self.want.fetch_or(Want::AWAY, Ordering::Relaxed);
        }
        broken
    }
}
