//! Parts that have models of their own: the injector, the gate, the capacity, and biased data.

use std::{ptr::NonNull, task::Context};

use base::internal::{admission::Ticket, wake::sleeper::on_turn_of_task};
use mpscq::{Node, Stack};
use sync::{asym, cell::UnsafeCell, twin, unmodelled::Arc};

use super::super::{
    cleanups::{Cleanup, Left, Reapers},
    item::{
        head::{Head, State, VTable},
        list::{Color, Injector},
        memory::Biased,
    },
    limit::{
        active::{Closed, Gate, Holds, Phase},
        capacity::Capacity,
        queue_core::QueueCore,
    },
};

/// Numbered items in an injector.
#[derive(Debug)]
pub struct Injected {
    injector: Injector,
}

/// An item of [`Injected`].
#[repr(C)]
struct Numbered {
    head: Head,
    from: usize,
    /// Written before the push; a model checks that the thread that takes the item sees it.
    number: UnsafeCell<usize>,
}

const INERT: &VTable = &VTable::plain(
    |_| unreachable!("never run"),
    |_, _| unreachable!("never cancelled"),
    |_| unreachable!("never run"),
    || "inert",
    |_| unreachable!("freed by the model"),
);

/// An item that was pushed.
#[derive(Clone, Copy, Debug)]
pub struct Pushed(NonNull<Head>);

// SAFETY: the fields of an item are atomic, or checked by the model.
unsafe impl Send for Pushed {}
// SAFETY: as above.
unsafe impl Sync for Pushed {}

fn make(from: usize, number: usize) -> NonNull<Head> {
    let item = Box::leak(Box::new(Numbered {
        head: Head::new(INERT, State::IDLE, std::ptr::null_mut()),
        from,
        number: UnsafeCell::new(0),
    }));
    // SAFETY: the item is exclusive to this thread until it is pushed.
    item.number.with_mut(|place| unsafe { *place = number });
    NonNull::from(item).cast()
}

impl Pushed {
    /// Frees an item that was taken for good; returns its producer and its number.
    pub fn open(self) -> (usize, usize) {
        // SAFETY: created by `make`, and taken from the injector, which gives it to one thread.
        let item = unsafe { Box::from_raw(self.0.as_ptr().cast::<Numbered>()) };
        // SAFETY: this thread owns the item; loom checks that.
        let number = item.number.with(|place| unsafe { *place });
        (item.from, number)
    }
}

impl Default for Injected {
    fn default() -> Self {
        Self {
            injector: Injector::new(false),
        }
    }
}

impl Injected {
    /// Pushes an item; returns `true` if the injector was empty.
    pub fn push(&self, from: usize, number: usize) -> (Pushed, bool) {
        let item = Self::make(from, number);
        (item, self.push_made(item))
    }

    /// Creates an item, for `push_made`.
    pub fn make(from: usize, number: usize) -> Pushed {
        Pushed(make(from, number))
    }

    /// Pushes an item of `make`; returns `true` if the injector was empty.
    pub fn push_made(&self, item: Pushed) -> bool {
        self.injector.push(item.0)
    }

    /// Pushes items `0..len` of `from` as one chain.
    pub fn push_chain(&self, from: usize, len: usize) {
        let items: Vec<_> = (0..len).map(|number| make(from, number)).collect();
        for two in items.windows(2) {
            super::super::item::list::set_fresh_next(two[1], two[0].as_ptr());
        }
        self.injector.push_chain(items[len - 1], items[0]);
    }

    /// Takes an item back if it is the newest.
    pub fn take_back(&self, item: Pushed) -> Option<Pushed> {
        self.injector.take_back(item.0).then_some(item)
    }

    /// Takes all items, oldest first.
    pub fn take(&self) -> Vec<Pushed> {
        let mut list = self.injector.take(|_| Color::default());
        std::iter::from_fn(|| list.pop_front())
            .map(Pushed)
            .collect()
    }
}

/// The seats of one queue alone, for threads of one node.
#[derive(Clone, Debug)]
pub struct Gates {
    gate: Arc<Gate<usize>>,
    core: Arc<QueueCore>,
    node: usize,
}

/// The count that a helper holds at the gate.
#[derive(Debug)]
pub struct Helps(Holds);

/// A flush of the helpers.
#[derive(Debug)]
pub struct HelpersFlush(Closed<usize>, Phase);

impl Gates {
    /// Creates `max` seats, for which pwqs can wait.
    pub fn new(max: u32) -> Self {
        Self::of(Gate::new(max, 1, &[], 0))
    }

    /// As [`new`](Self::new), for two nodes that have seat caches.
    pub fn with_stocks(max: u32) -> Self {
        Self::of(Gate::new(max, 1, &[1, 1], 2))
    }

    fn of(gate: Gate<usize>) -> Self {
        Self {
            gate: Arc::new(gate),
            core: Arc::new(QueueCore::new("gates", None)),
            node: 0,
        }
    }

    /// Returns the same seats, for threads of `node`.
    pub fn at(&self, node: usize) -> Self {
        Self {
            node,
            ..self.clone()
        }
    }

    /// Returns the same seats, as those of a group, for one of its queues.
    pub fn of_queue(&self) -> Self {
        Self {
            core: Arc::new(QueueCore::new("queue", None)),
            ..self.clone()
        }
    }

    /// Acquires a seat, or adds pwq `slot` to the wait queue in the turn of its queue.
    pub fn enter_in_turn(&self, slot: usize) -> bool {
        self.gate.enter_in_turn(&self.core.turn, || slot)
    }

    /// Acquires a seat if one is free.
    pub fn try_enter(&self) -> bool {
        self.gate.try_enter(self.node)
    }

    /// Acquires a seat, or adds pwq `slot` to the wait queue.
    pub fn enter_or_queue(&self, slot: usize) -> bool {
        self.gate.enter_or_queue(self.node, || slot)
    }

    /// Releases a seat; returns the pwq that it is transferred to.
    pub fn leave(&self) -> Option<usize> {
        Gate::leave(&self.gate, &self.core, self.node, Holds::Seat).waiter
    }

    /// Releases a seat that no pwq waits for; returns `true` if a drain must be notified.
    pub fn leave_last(&self) -> bool {
        let left = Gate::leave(&self.gate, &self.core, self.node, Holds::Seat);
        left.settled.is_some()
    }

    /// Starts to help.
    pub fn help(&self) -> Option<Helps> {
        self.gate.try_help(self.node, false).map(Helps)
    }

    /// Ends the help; returns `true` if a flush must be notified.
    pub fn end_help(&self, helps: Helps) -> bool {
        let left = Gate::leave(&self.gate, &self.core, self.node, helps.0);
        left.settled.is_some()
    }

    /// Returns `true` if no seat is in use; otherwise the last release notifies.
    pub fn is_idle(&self) -> bool {
        self.gate.is_idle()
    }

    /// Starts to wait for the current helpers.
    pub fn flush(&self) -> HelpersFlush {
        let gate = Gate::closed(self.gate.clone());
        let phase = gate.phase();
        HelpersFlush(gate, phase)
    }

    /// Changes the number of seats; returns the pwqs that acquire one as a result.
    pub fn set_max(&self, max: u32) -> Vec<usize> {
        self.gate.set_max(max)
    }

    /// Returns the number of seats in use.
    pub fn nr_active(&self) -> u32 {
        self.gate.nr_active()
    }
}

impl HelpersFlush {
    /// Returns `true` if all these helpers have ended; otherwise the last one notifies.
    pub fn has_ended(&self) -> bool {
        self.0.has_helped(self.1)
    }
}

/// The capacity of one queue alone.
#[derive(Debug)]
pub struct Permits(Capacity);

/// A producer's wait for a capacity permit.
#[derive(Debug, Default)]
pub struct Turn(Option<Ticket>);

/// Reapers that run each cleanup at once.
struct AtOnce;

impl Reapers for AtOnce {
    fn leave(&self, left: Vec<Left>) {
        left.into_iter().for_each(|one| Box::new(one).run());
    }
}

impl Permits {
    /// Creates `capacity` permits.
    pub fn new(capacity: usize) -> Self {
        Self(Capacity::new(capacity, Arc::new(AtOnce)))
    }

    /// Acquires a permit if one is free.
    pub fn try_take(&self) -> bool {
        self.0.try_take()
    }

    /// Acquires a permit, or sleeps until one is free.
    pub fn wait(&self) {
        assert!(self.0.wait(None), "without an end");
    }

    /// Acquires a permit, or registers a waker; returns `true` if the caller has a permit.
    pub fn poll(&self, turn: &mut Turn, context: &Context<'_>) -> bool {
        self.0.poll(&mut turn.0, || on_turn_of_task(context))
    }

    /// Ends the wait, and releases the permit if the waiter was given one.
    pub fn leave(&self, turn: Turn) {
        self.0.leave(turn.0);
    }

    /// Releases a permit.
    pub fn release(&self) {
        self.0.release(1);
    }

    /// Returns the number of free permits.
    pub fn nr_free(&self) -> usize {
        self.0.nr_free()
    }
}

/// A number that its owner adds to and a reader takes, and additions by other threads.
#[derive(Debug)]
pub struct SharedCount {
    own: Biased<u32>,
    brought: Stack<Node<u32>>,
}

impl Default for SharedCount {
    fn default() -> Self {
        Self {
            own: Biased::new(0),
            brought: Stack::new(),
        }
    }
}

impl SharedCount {
    /// Adds one, as the owner; returns the number if the owner gave it up on request.
    pub fn add(&self) -> Option<u32> {
        let mut given = None;
        // SAFETY: a model has one owner, and nothing unwinds.
        unsafe {
            let lend = |number: &mut u32| given = Some(std::mem::take(number));
            self.own.with(lend, |number| *number += 1);
        }
        given
    }

    /// Adds one from any thread; returns `true` if the reader must be notified.
    pub fn add_remote(&self) -> bool {
        self.brought.push(Node::new(1));
        self.own.note_brought()
    }

    /// Requests the data; takes the additions, and the owner's number if the owner is not using it.
    pub fn scan(&self) -> (u32, Option<u32>) {
        self.own.ask();
        if !twin::armed("biased: scans without a barrier") {
            asym::heavy();
        }
        let brought = self.brought.take_all().map(Node::into_inner).sum();
        (brought, self.own.try_take(std::mem::take))
    }
}
