//! One remote call. It takes the slot, asks for the slot or is queued, and is polled until it has
//! run. It never waits, so a drain can have an attempt in progress for each CPU.

use std::panic::resume_unwind;

use base::internal::panics;
use sync::slice::Section;
use sync::unmodelled::Arc;
use sync::{asym, twin};

use super::backoff::{self, Deadline, Step, Turn};
use super::call::{Call, Outcome};
use super::call_queue::QueuedCall;
use super::choice::{Escalate, Escalation, Kind};
use super::leaked::Due;
use super::slot::{Found, Slot};

enum Stage<F, R> {
    /// The call may be waiting for a thread inside the slot.
    Ready(F),
    /// The owner has been asked for the slot.
    Asked(F, Wait),
    /// The owner, or a thread that takes the slot, will run it.
    Queued(Arc<Call<F, R>>),
    Over,
}

enum Wait {
    Until(Deadline),
    /// Every thread has passed a fence since we asked.
    Fenced,
    /// The bias must not be broken.
    Endless,
}

pub(super) struct Attempt<'p, T, F, R> {
    slot: &'p Slot<T>,
    escalation: Escalation,
    stage: Stage<F, R>,
    turn: Turn,
}

/// A held slot. Dropping it releases the slot, even during a panic.
struct Held<'p, T> {
    slot: &'p Slot<T>,
    /// `true` if the call has slept. The owner or another caller may then be waiting for its end.
    is_awaited: bool,
    is_asking: bool,
    /// It ends after the slot is released.
    _section: Section,
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        if !twin::torn_down() {
            self.slot.release();
            if self.is_awaited {
                self.slot.hand_over();
            }
            // This comes last, so that `want` does not fall to zero while we hold the slot.
            if self.is_asking {
                self.slot.unask();
            }
        }
    }
}

impl<T, F, R> Attempt<'_, T, F, R> {
    /// Withdraws the announcement, so that another thread can take the slot.
    pub(super) fn withdraw(&mut self) {
        if self.slot.withdraw(&mut self.turn) {
            self.slot.hand_over();
        }
    }

    /// Cancels the call. Returns its closure, its outcome if it has begun, or `None` if it was
    /// over. Does not unwind, because a queued closure may borrow from the caller's stack.
    fn end(&mut self) -> Option<Result<F, Outcome<R>>> {
        self.withdraw();
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Ready(f) => Some(Ok(f)),
            Stage::Asked(f, _) => {
                self.slot.unask();
                Some(Ok(f))
            }
            Stage::Queued(call) => {
                Some(call.cancel().ok_or_else(|| backoff::wait_out(|| call.outcome())))
            }
            Stage::Over => None,
        }
    }
}

impl<'p, T, F, R> Attempt<'p, T, F, R>
where
    F: FnOnce(&mut T) -> R + Send,
    R: Send,
{
    pub(super) fn new(slot: &'p Slot<T>, escalation: Escalation, f: F) -> Self {
        Self { slot, escalation, stage: Stage::Ready(f), turn: Turn::default() }
    }

    #[inline]
    pub(super) fn try_now(&mut self) -> Option<R> {
        if !matches!(self.stage, Stage::Ready(_)) {
            return None;
        }
        let found = self.slot.check_and_take_in_turn(0);
        (found == Found::Taken).then(|| self.run_here())
    }

    /// Polls as [`check_as_next`](Self::check_as_next) does, or sleeps.
    pub(super) fn step(&mut self, step: Step) -> Option<R> {
        let Step::Look(due) = step else {
            self.nap();
            return None;
        };
        self.check_as_next(due)
    }

    /// Announces the call, and sleeps for a short time, at most until the slot is handed over to
    /// this call or the call has run.
    pub(super) fn nap(&mut self) {
        let slot = self.slot;
        match (&self.stage, slot.kind()) {
            (Stage::Queued(call), _) => return slot.nap(|| call.is_done()),
            (_, Kind::Queue) => return backoff::nap(),
            _ => slot.announce(self.turn.sleeps()),
        }
        let since = self.turn.announced();
        match slot.kind() {
            // The bias may have to be broken after some time.
            Kind::Breakable => backoff::nap(),
            _ => slot.nap(|| slot.may_be_taken(since)),
        }
    }

    /// Polls as [`check`](Self::check) does. If the call has slept, it also announces itself: until
    /// it has run or [`withdraw`](Self::withdraw) is called, no other thread takes the slot first,
    /// so this thread must run no user code.
    pub(super) fn check_as_next(&mut self, due: Due) -> Option<R> {
        if let Some(since) = self.turn.announce() {
            self.slot.announce(since);
        }
        self.check(due)
    }

    /// Performs the check that is due, tries to run the call, and returns its result if it has run.
    /// A panic in a queued call is resumed here.
    pub(super) fn check(&mut self, due: Due) -> Option<R> {
        self.slot.check_owner(due);
        if let Stage::Queued(call) = &self.stage {
            let outcome = call.outcome().or_else(|| {
                self.slot.help();
                call.outcome()
            })?;
            self.stage = Stage::Over;
            return Some(outcome.unwrap_or_else(|payload| resume_unwind(payload)));
        }
        if self.slot.kind() != Kind::Queue {
            self.turn.poll();
        }
        let found = self.slot.check_and_take_in_turn(self.turn.announced());
        match (found, self.slot.kind()) {
            (Found::Taken, _) => Some(self.run_here()),
            (Found::Lost, _) => {
                self.slot.must_not_be_lost();
                None
            }
            (_, Kind::OnDemand | Kind::Breakable) => self.ask_or_break(),
            (Found::Owned, Kind::Queue) => {
                self.queue_call();
                None
            }
            // A thread is inside the slot, and will leave soon.
            (_, Kind::Queue | Kind::EveryOp) => None,
        }
    }

    /// Cancels the call. Returns `f`, or the result of the call if it has begun, after it has run.
    pub(super) fn cancel(&mut self) -> Result<F, R> {
        let ended = self.end().expect("a call was polled after it had ended");
        ended.map_err(|outcome| outcome.unwrap_or_else(|payload| resume_unwind(payload)))
    }

    fn run_here(&mut self) -> R {
        let (f, is_asking) = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Ready(f) => (f, false),
            Stage::Asked(f, _) => (f, true),
            Stage::Queued(_) | Stage::Over => unreachable!("such a call takes no slot"),
        };
        let (slot, is_awaited) = (self.slot, self.turn.has_slept);
        let _held = Held { slot, is_awaited, is_asking, _section: Section::enter() };
        // The owner is woken when the call has run.
        slot.withdraw(&mut self.turn);
        // Calls that were queued earlier run first.
        slot.run_queued_calls();
        // FOREIGN(percpu-call): the caller's closure, on the calling thread, to which a panic
        // propagates after the slot is released.
        // SAFETY: `_held` holds the slot.
        unsafe { slot.touch_as_caller(f) }
    }

    fn queue_call(&mut self) {
        let Stage::Ready(f) = std::mem::replace(&mut self.stage, Stage::Over) else {
            unreachable!("slots that queue are not asked for");
        };
        let call = Arc::new(Call::new(f));
        self.stage = Stage::Queued(call.clone());
        let queued: Box<dyn FnOnce(&mut T) + Send + '_> = Box::new(move |data| call.run(data));
        // SAFETY: `f` may borrow for less than the queued call's lifetime. That call accesses `f`
        // and its result only after it has moved its state from `PENDING` and before it stores
        // `DONE`. `check`, `cancel` and the drop of `self` ensure that this access ends, or can no
        // longer begin, before the borrow ends. They leave both places empty.
        let queued = unsafe {
            std::mem::transmute::<Box<dyn FnOnce(&mut T) + Send + '_>, QueuedCall<T>>(queued)
        };
        self.slot.post(queued);
    }

    fn ask_or_break(&mut self) -> Option<R> {
        if let Stage::Ready(_) = self.stage {
            let Stage::Ready(f) = std::mem::replace(&mut self.stage, Stage::Over) else {
                unreachable!("matched above");
            };
            self.slot.ask();
            let wait = match self.slot.kind() {
                Kind::Breakable => Wait::Until(Deadline::after(self.escalation.after)),
                _ => Wait::Endless,
            };
            self.stage = Stage::Asked(f, wait);
        }
        let Stage::Asked(_, wait) = &mut self.stage else {
            unreachable!("slots that are asked for have no queued calls");
        };
        if let Wait::Until(deadline) = wait
            && deadline.is_over()
        {
            let fenced = pass_heavy_fence(self.escalation.how);
            *wait = if fenced { Wait::Fenced } else { Wait::Endless };
        }
        let may_break = matches!(wait, Wait::Fenced);
        (may_break && self.slot.try_break()).then(|| self.run_here())
    }
}

/// Makes every thread pass a fence if `how` allows it. Returns `true` on success.
fn pass_heavy_fence(how: Escalate) -> bool {
    if twin::armed("percpu: no heavy fence") {
        return true;
    }
    match how {
        Escalate::Never => false,
        Escalate::Quietly => asym::heavy_quiet(),
        Escalate::Interrupt => {
            asym::heavy();
            true
        }
    }
}

impl<T, F, R> Drop for Attempt<'_, T, F, R> {
    fn drop(&mut self) {
        // A call that is over has withdrawn its announcement.
        if !matches!(self.stage, Stage::Over) && !twin::torn_down() {
            // FOREIGN(percpu-drain): the drop of a closure or of its result, on the caller, if the
            // wait unwinds: a drain panicked on another slot, or this slot is lost. A panic is
            // caught.
            panics::contain(|| drop(self.end()));
        }
    }
}
