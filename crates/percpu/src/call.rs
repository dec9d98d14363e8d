//! A queued call. Its caller waits for it or cancels it.
//!
//! The closure borrows from the caller's stack, and the entry in the call queue may outlive the
//! caller. The side that moves the state from `PENDING` gets the closure. If the runner gets it,
//! the caller does not return before the state is `DONE`.

use base::internal::panics::{Payload, guarded};
use sync::atomic::{AtomicU32, Ordering};
use sync::cell::UnsafeCell;
use sync::twin;

const PENDING: u32 = 0;
const RUNNING: u32 = 1;
const DONE: u32 = 2;
const CANCELLED: u32 = 3;

/// The result of a call, or the payload of its panic.
pub(super) type Outcome<R> = Result<R, Payload>;

pub(super) struct Call<F, R> {
    state: AtomicU32,
    /// Used by the side that moves `state` from `PENDING`. It is `None` afterwards.
    f: UnsafeCell<Option<F>>,
    /// Written by the runner before `DONE`, and taken by the caller after it.
    outcome: UnsafeCell<Option<Outcome<R>>>,
}

// SAFETY: `state` transfers the contents of both cells from one thread to the other.
unsafe impl<F: Send, R: Send> Sync for Call<F, R> {}
// SAFETY: as above.
unsafe impl<F: Send, R: Send> Send for Call<F, R> {}

impl<F, R> Call<F, R> {
    pub(super) fn new(f: F) -> Self {
        Self {
            state: AtomicU32::new(PENDING),
            f: UnsafeCell::new(Some(f)),
            outcome: UnsafeCell::new(None),
        }
    }

    /// The caller holds the slot of `data`.
    pub(super) fn run<T>(&self, data: &mut T)
    where
        F: FnOnce(&mut T) -> R,
    {
        let Some(f) = self.claim(RUNNING) else {
            return;
        };
        // FOREIGN(percpu-queued): a remote closure, whose panic is resumed on its caller.
        let outcome = guarded(|| f(data));
        // SAFETY: we made the transition from `PENDING`, and the caller waits for `DONE`.
        self.outcome.with_mut(|place| unsafe { *place = Some(outcome) });
        // ORDER(percpu-call): publish and consume, other end in `outcome`.
        //   here:   outcome, the closure's effects;   state = DONE   Release
        //   caller: state: DONE  Acquire;             takes the outcome, returns
        // If our store comes first, the caller takes the outcome and may free the data that the
        // closure borrowed, which we no longer use. If the caller's load comes first, it keeps
        // waiting.
        // Test: queued_call_returns_its_result
        let order = twin::order("percpu: relaxed finish", Ordering::Release);
        self.state.store(DONE, order);
    }

    pub(super) fn outcome(&self) -> Option<Outcome<R>> {
        // ORDER(percpu-call): the acquire end; see `run`.
        if self.state.load(Ordering::Acquire) != DONE {
            return None;
        }
        // SAFETY: the runner no longer uses the outcome.
        self.outcome.with_mut(|outcome| unsafe { (*outcome).take() })
    }

    pub(super) fn is_done(&self) -> bool {
        // Relaxed is sufficient, because this is a hint. `outcome` acquires.
        self.state.load(Ordering::Relaxed) == DONE
    }

    /// Cancels the call, on the caller, and returns its closure, if its run has not begun.
    pub(super) fn cancel(&self) -> Option<F> {
        self.claim(CANCELLED)
    }

    /// Moves the state from `PENDING` to `to` and takes the closure, if possible.
    fn claim(&self, to: u32) -> Option<F> {
        // Relaxed is sufficient: the caller created the closure, the runner received it with the
        // queued call, and only one exchange succeeds.
        let relaxed = Ordering::Relaxed;
        let is_ours = self.state.compare_exchange(PENDING, to, relaxed, relaxed).is_ok()
            || to == RUNNING && twin::armed("percpu: runs a recalled call");
        // SAFETY: we made the transition from `PENDING`, so the closure is ours.
        let take = || self.f.with_mut(|f| unsafe { (*f).take() });
        is_ours.then(|| take().expect("one step leads from PENDING"))
    }
}
