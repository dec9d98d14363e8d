//! Parts that are modelled by themselves: the injector, the gate, the room, what a thread has at hand.

use std::{ptr::NonNull, task::Context};

use base::internal::{admission::Ticket, wake::sleeper::on_turn_of_task};
use mpscq::{Node, Stack};
use sync::{asym, cell::UnsafeCell, twin, unmodelled::Arc};

use super::super::{
    item::biased::Biased,
    item::colour::Colour,
    item::head::{Head, VTable},
    item::list::Injector,
    item::state::State,
    limit::active::{Closed, Gate, Holds, Phase},
    limit::queue_core::QueueCore,
    limit::room::Room,
};

/// Items that are numbered, in an injector.
#[derive(Debug)]
pub struct Injected {
    injector: Injector,
}

/// An item of [`Injected`].
#[repr(C)]
struct Numbered {
    head: Head,
    from: usize,
    /// Written before the push; a model checks that whoever takes the item sees that.
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

// SAFETY: an item's parts are atomic, or checked by the model.
unsafe impl Send for Pushed {}
// SAFETY: as above.
unsafe impl Sync for Pushed {}

fn make(from: usize, number: usize) -> NonNull<Head> {
    let item = Box::leak(Box::new(Numbered {
        head: Head::new(INERT, State::IDLE, std::ptr::null_mut()),
        from,
        number: UnsafeCell::new(0),
    }));
    // SAFETY: the item is ours until it is pushed.
    item.number.with_mut(|place| unsafe { *place = number });
    NonNull::from(item).cast()
}

impl Pushed {
    /// Frees an item that was taken and that nobody tries to take back; returns who pushed it, and its number.
    pub fn open(self) -> (usize, usize) {
        // SAFETY: made by `make`, and taken out of the injector, which gives each item to one taker.
        let item = unsafe { Box::from_raw(self.0.as_ptr().cast::<Numbered>()) };
        // SAFETY: the item is ours; loom checks that this is true.
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

    /// Makes an item that is to be pushed.
    pub fn make(from: usize, number: usize) -> Pushed {
        Pushed(make(from, number))
    }

    /// Pushes an item that was made, and not pushed yet; returns `true` if the injector was empty.
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
        let mut list = self.injector.take(|_| Colour::default());
        std::iter::from_fn(|| list.pop_front())
            .map(Pushed)
            .collect()
    }
}

/// The seats of one queue, by themselves, for threads of one node.
#[derive(Clone, Debug)]
pub struct Gates {
    gate: Arc<Gate<usize>>,
    core: Arc<QueueCore>,
    node: usize,
}

/// What a helper has.
#[derive(Debug)]
pub struct Helps(Holds);

/// A flush of who helps.
#[derive(Debug)]
pub struct HelpersFlush(Closed<usize>, Phase);

impl Gates {
    /// Makes `max` seats, for which links may stand in line.
    pub fn new(max: u32) -> Self {
        Self::of(Gate::new(max, 1, &[], 0))
    }

    /// As [`new`](Self::new), for two nodes that keep seats.
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

    /// Returns the same, for threads of `node`.
    pub fn at(&self, node: usize) -> Self {
        Self {
            node,
            ..self.clone()
        }
    }

    /// Takes a seat if there is one.
    pub fn try_enter(&self) -> bool {
        self.gate.try_enter(self.node)
    }

    /// Takes a seat, or puts link `slot` in line for one.
    pub fn enter_or_queue(&self, slot: usize) -> bool {
        self.gate.enter_or_queue(self.node, || slot)
    }

    /// Gives a seat back; returns the link that it passes to.
    pub fn leave(&self) -> Option<usize> {
        Gate::leave(&self.gate, &self.core, self.node, Holds::Seat).seeker
    }

    /// Gives a seat back that nobody stands in line for; returns `true` if a drain must be told.
    pub fn leave_last(&self) -> bool {
        let left = Gate::leave(&self.gate, &self.core, self.node, Holds::Seat);
        left.settled.is_some()
    }

    /// Begins to help.
    pub fn help(&self) -> Option<Helps> {
        self.gate.try_help(self.node, false).map(Helps)
    }

    /// Ends it; returns `true` if a flush must be told.
    pub fn end_help(&self, helps: Helps) -> bool {
        let left = Gate::leave(&self.gate, &self.core, self.node, helps.0);
        left.settled.is_some()
    }

    /// Returns `true` if nobody is seated; else the last to leave tells.
    pub fn is_idle(&self) -> bool {
        self.gate.is_idle()
    }

    /// Begins to wait for those who help now.
    pub fn flush(&self) -> HelpersFlush {
        let gate = Gate::closed(self.gate.clone());
        let phase = gate.phase();
        HelpersFlush(gate, phase)
    }

    /// Changes how many seats there are; returns the links that get one by that.
    pub fn set_max(&self, max: u32) -> Vec<usize> {
        self.gate.set_max(max)
    }

    /// Returns how many are seated.
    pub fn nr_active(&self) -> u32 {
        self.gate.nr_active()
    }
}

impl HelpersFlush {
    /// Returns `true` if none of them helps any more; else the last one tells.
    pub fn has_ended(&self) -> bool {
        self.0.has_helped(self.1)
    }
}

/// The places of one queue, by themselves.
#[derive(Debug)]
pub struct Places(Room);

/// The wait of a producer for one.
#[derive(Debug, Default)]
pub struct Turn(Option<Ticket>);

impl Places {
    /// Makes as many.
    pub fn new(capacity: usize) -> Self {
        Self(Room::new(capacity))
    }

    /// Takes a place if one is free.
    pub fn try_take(&self) -> bool {
        self.0.try_take()
    }

    /// Takes a place, or sleeps until there is one.
    pub fn wait(&self) {
        assert!(self.0.wait(None), "without an end");
    }

    /// Takes a place, or leaves a waker; returns `true` if the caller has a place.
    pub fn poll(&self, turn: &mut Turn, context: &Context<'_>) -> bool {
        self.0.poll(&mut turn.0, || on_turn_of_task(context))
    }

    /// Ends the wait, and gives the place back if the waiter was let in.
    pub fn leave(&self, turn: Turn) {
        self.0.leave(turn.0);
    }

    /// Gives a place back.
    pub fn give_back(&self) {
        self.0.give_back(1);
    }

    /// Returns how many are free.
    pub fn nr_free(&self) -> usize {
        self.0.nr_free()
    }
}

/// A number that its owner adds to, and that a looker takes; and what others bring to it.
#[derive(Debug)]
pub struct AtHand {
    own: Biased<u32>,
    brought: Stack<Node<u32>>,
}

impl Default for AtHand {
    fn default() -> Self {
        Self {
            own: Biased::new(0),
            brought: Stack::new(),
        }
    }
}

impl AtHand {
    /// Adds one, as the owner; returns what it gave up as it was asked to.
    pub fn add(&self) -> Option<u32> {
        let mut given = None;
        // SAFETY: a model has one owner; nothing unwinds.
        unsafe {
            let give = |number: &mut u32| given = Some(std::mem::take(number));
            self.own.with(give, |number| *number += 1);
        }
        given
    }

    /// Brings one, as anybody; returns `true` if the looker is to be told.
    pub fn bring(&self) -> bool {
        self.brought.push(Node::new(1));
        self.own.note_brought()
    }

    /// Asks, and takes what was brought and what is at hand, if the owner lets it.
    pub fn look(&self) -> (u32, Option<u32>) {
        self.own.ask();
        if !twin::armed("biased: looks without a barrier") {
            asym::heavy();
        }
        let brought = self.brought.take_all().map(Node::into_inner).sum();
        (brought, self.own.try_take(std::mem::take))
    }
}
