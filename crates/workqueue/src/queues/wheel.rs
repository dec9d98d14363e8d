//! A hierarchical timer wheel: which timer expires when, without clock, lock or thread.
//!
//! Time is cut into ticks. Level 0 has a slot for each of the next 64 ticks, level 1 one for each of the next 64 times
//! 64 ticks, and so on. A timer stands in the level of the highest six bits in which its tick differs from the
//! present one. As time passes a slot's timers move down, at most once a level. Putting in and taking out is a
//! constant number of steps, however many timers there are.
//!
//! Timers of a lower level expire before those of a higher one, and in one level in the order of
//! the slots; so the next to expire is in the first slot of the lowest level that has any, and no
//! thread wakes only to move timers down.
//!
//! A timer is linked through a [`Node`] in the memory of its user, so neither insertion nor removal
//! allocates. A user can link its timers into a [`Link`] ring of its own as well, and so take all
//! of them out.

use std::{marker::PhantomData, ptr, ptr::NonNull};

const SLOT_BITS: u32 = 6;
const NR_SLOTS: usize = 1 << SLOT_BITS;
/// A tick is 2^16 ns, 65 µs: about what it takes to wake a thread.
const TICK_SHIFT: u32 = 16;
/// Enough for all ticks that 64 bits of nanoseconds have.
const NR_LEVELS: usize = 8;
const LAST_TICK: u64 = u64::MAX >> TICK_SHIFT;

/// A place in a ring: that of a member, or the start of the ring.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Link {
    next: *mut Link,
    prev: *mut Link,
}

/// The place of a timer in a wheel, with the kind of the timer.
#[derive(Debug)]
#[repr(C)]
pub struct Node<K> {
    /// In the ring of its slot.
    link: Link,
    tick: u64,
    pub kind: K,
}

/// Finds the timers that expire. Its time begins at 0.
#[derive(Debug)]
pub struct Wheel<K> {
    /// The tick up to which all has expired.
    now_tick: u64,
    /// The rings of all slots, by level. They stay where they are.
    slots: Vec<Link>,
    /// The slots of a level that may have any.
    occupied: [u64; NR_LEVELS],
    /// No timer expires before this tick; exact unless the first one was taken out, also if that was the only one.
    earliest_tick: Option<u64>,
    kinds: PhantomData<K>,
}

// SAFETY: the thread that has the wheel alone has the nodes in it, by (1) of `insert`.
unsafe impl<K: Send> Send for Wheel<K> {}

/// Returns the moment in `from_ns ..= from_ns + slack_ns` that most others choose, too: the roundest one.
pub(crate) fn rounded_ns(from_ns: u64, slack_ns: u64) -> u64 {
    let to_ns = from_ns.saturating_add(slack_ns);
    let differing = from_ns ^ to_ns;
    if differing == 0 {
        return from_ns;
    }
    // All bits below the highest one in which both ends differ are cleared in the later end.
    to_ns & !((1 << differing.ilog2()) - 1)
}

impl Link {
    /// A place in no ring.
    pub(crate) const NONE: Self = Self {
        next: ptr::null_mut(),
        prev: ptr::null_mut(),
    };

    pub(crate) fn is_linked(&self) -> bool {
        !self.next.is_null()
    }

    /// Adds `new` at the end of a ring. The first addition makes the ring.
    ///
    /// # Safety
    ///
    /// 1. The ring and its members are the caller's alone, and stay where they are until they are
    ///    unlinked.
    /// 2. `new` is the caller's alone, is in no ring, and stays where it is until it is unlinked.
    pub(crate) unsafe fn push(ring: *mut Self, new: *mut Self) {
        // SAFETY: (1), (2).
        unsafe {
            if !(*ring).is_linked() {
                (*ring) = Self {
                    next: ring,
                    prev: ring,
                };
            }
            let prev = (*ring).prev;
            *new = Self { next: ring, prev };
            (*prev).next = new;
            (*ring).prev = new;
        }
    }

    /// Takes a member out of its ring.
    ///
    /// # Safety
    ///
    /// 1. `member` is in a ring that is the caller's alone, as are the other members.
    pub(crate) unsafe fn unlink(member: *mut Self) {
        // SAFETY: (1).
        unsafe {
            let Self { next, prev } = *member;
            (*prev).next = next;
            (*next).prev = prev;
            *member = Self::NONE;
        }
    }

    /// Returns the first member of a ring; null if it has none.
    ///
    /// # Safety
    ///
    /// 1. The ring is the caller's alone.
    pub(crate) unsafe fn first(ring: *mut Self) -> *mut Self {
        // SAFETY: (1).
        unsafe { Self::after(ring, ring) }
    }

    /// Returns the member after `member`; null if that is the last one.
    ///
    /// # Safety
    ///
    /// 1. The ring is the caller's alone, and `member` is in it or its start.
    unsafe fn after(ring: *mut Self, member: *mut Self) -> *mut Self {
        // SAFETY: (1).
        let next = unsafe { (*member).next };
        if ptr::eq(next, ring) {
            ptr::null_mut()
        } else {
            next
        }
    }
}

impl<K> Node<K> {
    /// A node in no wheel.
    pub const fn new(kind: K) -> Self {
        Self {
            link: Link::NONE,
            tick: 0,
            kind,
        }
    }

    /// Returns `true` if it is in a wheel.
    pub(crate) fn is_linked(&self) -> bool {
        self.link.is_linked()
    }
}

impl<K> Default for Wheel<K> {
    fn default() -> Self {
        Self {
            now_tick: 0,
            slots: (0..NR_LEVELS * NR_SLOTS).map(|_| Link::NONE).collect(),
            occupied: [0; NR_LEVELS],
            earliest_tick: None,
            kinds: PhantomData,
        }
    }
}

impl<K> Wheel<K> {
    /// Puts a timer in that expires at `at_ns` or less than a tick later; returns `true` if it is
    /// the first to expire.
    ///
    /// # Safety
    ///
    /// 1. `node` is in no wheel. Until it is taken out or has expired, it stays where it is, and
    ///    only a thread that has the wheel alone uses it.
    pub unsafe fn insert(&mut self, node: NonNull<Node<K>>, at_ns: u64) -> bool {
        // Never early; and not in a tick that has expired already.
        let rounded = at_ns.div_ceil(1 << TICK_SHIFT).min(LAST_TICK);
        let tick = rounded.max(self.now_tick + 1);
        // SAFETY: (1).
        unsafe {
            (*node.as_ptr()).tick = tick;
            self.put(node.as_ptr());
        }
        let is_first = self.earliest_tick.is_none_or(|earliest| tick < earliest);
        if is_first {
            self.earliest_tick = Some(tick);
        }
        is_first
    }

    /// Takes a timer out.
    ///
    /// # Safety
    ///
    /// 1. `node` is in this wheel.
    pub unsafe fn remove(&mut self, node: NonNull<Node<K>>) {
        // SAFETY: (1), and the ring is ours by (1) of `insert`.
        unsafe { Link::unlink(node.as_ptr().cast()) };
    }

    /// Lets time pass up to the first timer that expires by `now_ns`, takes that timer out and
    /// returns it. Without one, lets time pass up to `now_ns`. Timers expire in the order of the
    /// ticks. Call it until it returns none.
    pub(crate) fn pop(&mut self, now_ns: u64) -> Option<NonNull<Node<K>>> {
        let now_tick = now_ns >> TICK_SHIFT;
        while let Some((level, slot)) = self.first_slot() {
            let start = self.start_of(level, slot);
            if start > now_tick {
                break;
            }
            // Up to here nothing is left.
            self.now_tick = self.now_tick.max(start);
            let ring = self.ring(level, slot);
            // SAFETY: rings and nodes are ours, by (1) of `insert`. Each node is taken out before
            // it is put into a lower level.
            unsafe {
                while let Some(node) = NonNull::new(Link::first(ring).cast::<Node<K>>()) {
                    self.remove(node);
                    if level == 0 {
                        return Some(node);
                    }
                    self.put(node.as_ptr());
                }
            }
        }
        self.now_tick = self.now_tick.max(now_tick);
        self.earliest_tick = self.first_tick();
        None
    }

    /// Calls `each` with every timer in the wheel; `each` may take that one out.
    #[cfg(not(any(loom, shuttle)))]
    pub fn for_each(&mut self, mut each: impl FnMut(&mut Self, NonNull<Node<K>>)) {
        for index in 0..self.slots.len() {
            let ring = self.ring(index / NR_SLOTS, index % NR_SLOTS);
            // SAFETY: rings and nodes are ours, by (1) of `insert`; a ring without members ends at
            // once.
            let mut at = unsafe { Link::first(ring) };
            while let Some(node) = NonNull::new(at.cast()) {
                // SAFETY: as above, and `each` has not been called with it yet.
                at = unsafe { Link::after(ring, at) };
                each(self, node);
            }
        }
    }

    /// Returns when to call [`pop`](Self::pop) next; `None` if that is not before a timer is put in
    /// that is the first. It may be too early, never too late.
    ///
    /// [`insert`](Self::insert) compares with it, also when all timers were taken out: otherwise a
    /// timer that is not the first wakes no thread, and would stay in the wheel.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.earliest_tick
            .map(|tick| tick.saturating_mul(1 << TICK_SHIFT))
    }

    /// Returns the lowest level, and the first slot of it, that has timers.
    fn first_slot(&mut self) -> Option<(usize, usize)> {
        loop {
            let level = self.occupied.iter().position(|&slots| slots != 0)?;
            // Slots of a level never wrap: a timer beyond the last slot differs in a higher level.
            let slot = self.occupied[level].trailing_zeros() as usize;
            let ring = self.ring(level, slot);
            // SAFETY: the ring is ours, and has begun, because a timer was put in.
            if !unsafe { Link::first(ring) }.is_null() {
                return Some((level, slot));
            }
            self.occupied[level] &= !(1 << slot);
        }
    }

    fn first_tick(&mut self) -> Option<u64> {
        let (level, slot) = self.first_slot()?;
        let ring = self.ring(level, slot);
        let mut earliest = LAST_TICK;
        // SAFETY: rings and nodes are ours, by (1) of `insert`.
        unsafe {
            let mut at = Link::first(ring);
            while !at.is_null() {
                earliest = earliest.min((*at.cast::<Node<K>>()).tick);
                at = Link::after(ring, at);
            }
        }
        Some(earliest)
    }

    /// Returns the first tick of a slot.
    fn start_of(&self, level: usize, slot: usize) -> u64 {
        let shift = SLOT_BITS * level as u32;
        let above = shift + SLOT_BITS;
        let high = self.now_tick.checked_shr(above).unwrap_or(0);
        high.checked_shl(above).unwrap_or(0) | (slot as u64) << shift
    }

    fn ring(&mut self, level: usize, slot: usize) -> *mut Link {
        // No reference to the slots, which would claim that no node names them.
        self.slots
            .as_mut_ptr()
            .wrapping_add(level * NR_SLOTS + slot)
    }

    /// # Safety
    ///
    /// 1. As of [`insert`](Self::insert).
    unsafe fn put(&mut self, node: *mut Node<K>) {
        // SAFETY: (1).
        let tick = unsafe { (*node).tick };
        let differing = (tick ^ self.now_tick).max(1);
        let level = (differing.ilog2() / SLOT_BITS) as usize;
        let slot = (tick >> (SLOT_BITS * level as u32)) as usize % NR_SLOTS;
        self.occupied[level] |= 1 << slot;
        // SAFETY: (1); the ring stays, and is ours.
        unsafe { Link::push(self.ring(level, slot), node.cast()) };
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TICK_NS: u64 = 1 << TICK_SHIFT;

    /// A wheel whose timers are numbers.
    #[derive(Default)]
    struct Numbers {
        wheel: Wheel<usize>,
        nodes: Vec<NonNull<Node<usize>>>,
    }

    impl Numbers {
        /// Puts the next number in, and returns it.
        fn insert(&mut self, at_ns: u64) -> (usize, bool) {
            let number = self.nodes.len();
            let node = NonNull::from(Box::leak(Box::new(Node::new(number))));
            self.nodes.push(node);
            // SAFETY: new, and freed after the wheel was used last.
            (number, unsafe { self.wheel.insert(node, at_ns) })
        }

        fn remove(&mut self, number: usize) {
            // SAFETY: our caller knows that it has not expired.
            unsafe { self.wheel.remove(self.nodes[number]) };
        }

        fn advance(&mut self, now_ns: u64) -> Vec<usize> {
            // SAFETY: freed after the wheel was used last.
            let number = |node: NonNull<Node<usize>>| unsafe { node.as_ref() }.kind;
            std::iter::from_fn(|| self.wheel.pop(now_ns))
                .map(number)
                .collect()
        }
    }

    impl Drop for Numbers {
        fn drop(&mut self) {
            for node in self.nodes.drain(..) {
                // SAFETY: leaked above; the wheel is not used any more.
                drop(unsafe { Box::from_raw(node.as_ptr()) });
            }
        }
    }

    #[test]
    fn a_timer_expires_at_its_time_and_not_before() {
        let mut numbers = Numbers::default();
        assert!(numbers.advance(5 * TICK_NS).is_empty());
        assert_eq!(numbers.insert(9 * TICK_NS - 1), (0, true));
        assert_eq!(numbers.wheel.next_ns(), Some(9 * TICK_NS));
        assert!(numbers.advance(9 * TICK_NS - 1).is_empty());
        assert_eq!(numbers.advance(9 * TICK_NS), [0]);
        assert_eq!(numbers.wheel.next_ns(), None);
    }

    #[test]
    fn a_timer_is_the_first_or_a_thread_comes_before_it() {
        let mut numbers = Numbers::default();
        numbers.advance(5 * TICK_NS);
        assert_eq!(numbers.insert(9 * TICK_NS), (0, true));
        // It is taken out after a thread has let time pass, and before that thread asks when to do
        // so next.
        numbers.remove(0);
        let next_ns = numbers.wheel.next_ns();
        let (_, is_first) = numbers.insert(20 * TICK_NS);
        assert!(is_first || next_ns.is_some_and(|at_ns| at_ns <= 20 * TICK_NS));
        assert!(numbers.advance(9 * TICK_NS).is_empty());
        assert_eq!(numbers.wheel.next_ns(), Some(20 * TICK_NS));
    }

    #[test]
    fn timers_of_one_tick_expire_in_the_order_of_their_insertion() {
        let mut numbers = Numbers::default();
        for _ in 0..5 {
            numbers.insert(90 * TICK_NS);
        }
        numbers.remove(2);
        assert_eq!(numbers.advance(90 * TICK_NS), [0, 1, 3, 4]);
    }

    #[test]
    fn slack_rounds_to_the_same_moment() {
        assert_eq!(rounded_ns(1000, 0), 1000);
        assert_eq!(rounded_ns(1000, 100), 1024);
        assert_eq!(rounded_ns(1020, 100), 1024);
        assert_eq!(rounded_ns(u64::MAX - 1, 100), u64::MAX);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: if cfg!(miri) { 4 } else { 256 }, ..ProptestConfig::default() })]
        #[test]
        fn slack_is_kept(from_ns: u64, slack_ns: u64) {
            let at_ns = rounded_ns(from_ns, slack_ns);
            prop_assert!(at_ns >= from_ns && at_ns <= from_ns.saturating_add(slack_ns));
        }

        /// Against a list that is searched.
        #[test]
        fn a_wheel_does_what_a_sorted_list_does(
            start_ns in 0..u64::MAX / 4,
            steps in prop::collection::vec(
                (0u8..6, 0u32..46, any::<u64>(), any::<prop::sample::Index>()),
                1..200,
            ),
        ) {
            let mut numbers = Numbers::default();
            numbers.advance(start_ns);
            let mut now_ns = start_ns;
            let mut list: Vec<(u64, usize)> = Vec::new();
            for (step, bits, dice, index) in steps {
                let span_ns = dice & ((1 << bits) - 1);
                match step {
                    0..=2 => {
                        let at_ns = now_ns.saturating_add(span_ns);
                        let tick = at_ns.div_ceil(TICK_NS).max((now_ns >> TICK_SHIFT) + 1);
                        let (number, _) = numbers.insert(at_ns);
                        list.push((tick, number));
                    }
                    3 if !list.is_empty() => {
                        let (_, number) = list.swap_remove(index.index(list.len()));
                        numbers.remove(number);
                    }
                    4 => {
                        // Every third one is taken out.
                        numbers.wheel.for_each(|wheel, node| {
                            // SAFETY: it is in the wheel.
                            if unsafe { node.as_ref() }.kind % 3 == 0 {
                                // SAFETY: as above.
                                unsafe { wheel.remove(node) };
                            }
                        });
                        list.retain(|it| it.1 % 3 != 0);
                    }
                    _ => {
                        now_ns = now_ns.saturating_add(span_ns);
                        let now_tick = now_ns >> TICK_SHIFT;
                        let expired = numbers.advance(now_ns);
                        let tick_of = |number: &usize| {
                            list.iter().find(|it| it.1 == *number).map(|it| it.0)
                        };
                        let ticks: Vec<_> = expired.iter().map(tick_of).collect();
                        prop_assert!(ticks.is_sorted() && !ticks.contains(&None));
                        let nr_due = list.iter().filter(|it| it.0 <= now_tick).count();
                        prop_assert_eq!(expired.len(), nr_due);
                        list.retain(|it| it.0 > now_tick);
                        let next_ns = list.iter().map(|it| it.0.saturating_mul(TICK_NS)).min();
                        prop_assert_eq!(numbers.wheel.next_ns(), next_ns);
                    }
                }
                let first_ns = list.iter().map(|it| it.0.saturating_mul(TICK_NS)).min();
                prop_assert!(numbers.wheel.next_ns() <= first_ns || first_ns.is_none());
                prop_assert!(numbers.wheel.next_ns().is_some() || first_ns.is_none());
            }
        }
    }
}
