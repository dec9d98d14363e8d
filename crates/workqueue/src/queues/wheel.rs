//! A hierarchical timer wheel: finds the timers that expire, without a clock, a lock or a thread.
//!
//! Time is divided into ticks, whose length is fixed when the wheel is created. Level 0 has a slot
//! for each of the next 64 ticks, level 1 one for each of the next 64 times 64 ticks, and so on.
//! The level of a timer is that of the highest six-bit group in which its tick differs from the
//! current tick. As time passes, timers move down, at most once for each level. Insertion and
//! removal take constant time.
//!
//! Timers of a lower level expire before those of a higher one, and within one level in the order
//! of the slots. The next timer to expire is therefore in the first occupied slot of the lowest
//! occupied level, and no thread wakes only to move timers down.
//!
//! A timer is linked through a [`Node`] in the memory of its user, so neither insertion nor removal
//! allocates. A user can also link its timers into a [`Link`] ring, in order to remove all of them.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::{iter, ptr};

const SLOT_BITS: u32 = 6;
const NR_SLOTS: usize = 1 << SLOT_BITS;
/// The length of a tick of the system's time: 2^16 ns or 65 µs, about the time to wake a thread.
pub(crate) const TICK_SHIFT: u32 = 16;
/// The number of levels that covers 64 bits of nanoseconds even if a tick is one nanosecond.
const MAX_LEVELS: usize = u64::BITS.div_ceil(SLOT_BITS) as usize;

/// A link in a ring: either that of a member, or the head of the ring.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Link {
    next: *mut Link,
    prev: *mut Link,
}

/// The links of a timer in a wheel, with the kind of the timer.
#[derive(Debug)]
#[repr(C)]
pub struct Node<K> {
    link: Link,
    tick: u64,
    pub kind: K,
}

/// A timer wheel. Its time begins at 0.
pub struct Wheel<K> {
    /// The tick up to which all timers have expired.
    now_tick: u64,
    /// I: the length of a tick is 2^`shift` ns.
    shift: u32,
    /// The rings of all slots, by level; none before the first timer. They do not move.
    slots: Vec<Link>,
    occupied: [u64; MAX_LEVELS],
    /// A tick before which no timer expires. It is exact unless the first timer was removed, even
    /// if that was the only one.
    earliest_tick: Option<u64>,
    kinds: PhantomData<K>,
}

// SAFETY: by (1) of `insert`, only a thread with exclusive access to the wheel uses its nodes.
unsafe impl<K: Send> Send for Wheel<K> {}

/// Returns a time in `from_ns ..= from_ns + slack_ns` with many trailing zero bits, so that timers
/// coincide.
pub(crate) fn rounded_ns(from_ns: u64, slack_ns: u64) -> u64 {
    let to_ns = from_ns.saturating_add(slack_ns);
    let differing = from_ns ^ to_ns;
    if differing == 0 {
        return from_ns;
    }
    // Clears all bits of the later end below the highest one in which both ends differ.
    to_ns & !((1 << differing.ilog2()) - 1)
}

impl Link {
    pub(crate) const NONE: Self = Self { next: ptr::null_mut(), prev: ptr::null_mut() };

    pub(crate) fn is_linked(&self) -> bool {
        !self.next.is_null()
    }

    /// Adds `new` at the end of a ring. The first addition initializes the ring.
    ///
    /// # Safety
    ///
    /// 1. The caller has exclusive access to the ring and its members, which do not move until they
    ///    are unlinked.
    /// 2. The caller has exclusive access to `new`, which is in no ring, and does not move until it
    ///    is unlinked.
    pub(crate) unsafe fn push(ring: *mut Self, new: *mut Self) {
        // SAFETY: (1), (2).
        unsafe {
            if !(*ring).is_linked() {
                (*ring) = Self { next: ring, prev: ring };
            }
            let prev = (*ring).prev;
            *new = Self { next: ring, prev };
            (*prev).next = new;
            (*ring).prev = new;
        }
    }

    /// Removes a member from its ring.
    ///
    /// # Safety
    ///
    /// 1. `member` is in a ring, and the caller has exclusive access to all of its members.
    pub(crate) unsafe fn unlink(member: *mut Self) {
        // SAFETY: (1).
        unsafe {
            let Self { next, prev } = *member;
            (*prev).next = next;
            (*next).prev = prev;
            *member = Self::NONE;
        }
    }

    /// Returns the members of a ring. The caller may remove the member that was returned last.
    ///
    /// # Safety
    ///
    /// 1. Until the iterator is dropped, the caller has exclusive access to the ring.
    pub(crate) unsafe fn members(ring: *mut Self) -> impl Iterator<Item = NonNull<Self>> {
        let after = move |member: *mut Self| {
            // SAFETY: (1).
            NonNull::new(unsafe { (*member).next }).filter(|next| next.as_ptr() != ring)
        };
        iter::successors(after(ring), move |member| after(member.as_ptr()))
    }
}

impl<K> Node<K> {
    /// Creates a node that is in no wheel.
    pub const fn new(kind: K) -> Self {
        Self { link: Link::NONE, tick: 0, kind }
    }

    pub(crate) fn is_linked(&self) -> bool {
        self.link.is_linked()
    }
}

impl<K> Wheel<K> {
    pub(crate) const fn new(shift: u32) -> Self {
        Self {
            now_tick: 0,
            shift,
            slots: Vec::new(),
            occupied: [0; MAX_LEVELS],
            earliest_tick: None,
            kinds: PhantomData,
        }
    }

    /// Inserts a timer that expires less than a tick after `at_ns`. Returns `true` if it is the
    /// first.
    ///
    /// # Safety
    ///
    /// 1. `node` is in no wheel. Until it is removed or has expired, it does not move, and only a
    ///    thread with exclusive access to the wheel accesses it.
    pub unsafe fn insert(&mut self, node: NonNull<Node<K>>, at_ns: u64) -> bool {
        // A timer never expires early, nor in a tick that has already passed.
        if self.slots.is_empty() {
            self.slots = self.empty_slots();
        }
        let rounded = at_ns.div_ceil(1 << self.shift).min(u64::MAX >> self.shift);
        let tick = rounded.max(self.now_tick.saturating_add(1));
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

    /// Removes a timer.
    ///
    /// # Safety
    ///
    /// 1. `node` is in this wheel.
    pub unsafe fn remove(&mut self, node: NonNull<Node<K>>) {
        // SAFETY: (1), and we have exclusive access to the ring by (1) of `insert`.
        unsafe { Link::unlink(node.as_ptr().cast()) };
    }

    /// Advances the time to the first timer that expires by `now_ns`, removes that timer and
    /// returns it. If there is none, advances the time to `now_ns` and returns `None`. Timers
    /// expire in the order of their ticks. Call this function until it returns `None`.
    pub(crate) fn pop(&mut self, now_ns: u64) -> Option<NonNull<Node<K>>> {
        let now_tick = now_ns >> self.shift;
        while let Some((level, slot)) = self.first_slot() {
            let start = self.start_of(level, slot);
            if start > now_tick {
                break;
            }
            // No timer before this tick is left.
            self.now_tick = self.now_tick.max(start);
            let ring = self.ring(level, slot);
            // SAFETY: we have exclusive access to rings and nodes, by (1) of `insert`. Each node is
            // removed before it is inserted into a lower level.
            unsafe {
                while let Some(node) = Link::members(ring).next() {
                    let node = node.cast();
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

    /// Calls `each` with every timer in the wheel; `each` may remove that timer.
    #[cfg(not(any(loom, shuttle)))]
    pub fn for_each(&mut self, mut each: impl FnMut(&mut Self, NonNull<Node<K>>)) {
        for index in 0..self.slots.len() {
            let ring = self.ring(index / NR_SLOTS, index % NR_SLOTS);
            // SAFETY: rings and nodes are ours, by (1) of `insert`; an empty ring ends at once.
            unsafe { Link::members(ring) }.for_each(|node| each(self, node.cast()));
        }
    }

    /// Returns the time at which [`pop`](Self::pop) must be called next, or `None` if no call is
    /// needed until a timer is inserted that becomes the first. The time may be early, but is never
    /// late. [`insert`](Self::insert) compares with it even if all timers were removed: otherwise a
    /// timer that is not the first would wake no thread, and would stay in the wheel.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.earliest_tick.map(|tick| tick.saturating_mul(1 << self.shift))
    }

    #[cold]
    fn empty_slots(&self) -> Vec<Link> {
        let nr_levels = (u64::BITS - self.shift).div_ceil(SLOT_BITS) as usize;
        (0..nr_levels * NR_SLOTS).map(|_| Link::NONE).collect()
    }

    fn first_slot(&mut self) -> Option<(usize, usize)> {
        loop {
            let level = self.occupied.iter().position(|&slots| slots != 0)?;
            // Slots of a level never wrap: a timer beyond the last slot differs in a higher level.
            let slot = self.occupied[level].trailing_zeros() as usize;
            let ring = self.ring(level, slot);
            // SAFETY: we have exclusive access to the ring, which a timer has initialized.
            if unsafe { Link::members(ring) }.next().is_some() {
                return Some((level, slot));
            }
            self.occupied[level] &= !(1 << slot);
        }
    }

    fn first_tick(&mut self) -> Option<u64> {
        let (level, slot) = self.first_slot()?;
        let ring = self.ring(level, slot);
        // SAFETY: we have exclusive access to rings and nodes, by (1) of `insert`.
        unsafe { Link::members(ring).map(|node| node.cast::<Node<K>>().as_ref().tick).min() }
    }

    fn start_of(&self, level: usize, slot: usize) -> u64 {
        let shift = SLOT_BITS * level as u32;
        let above = shift + SLOT_BITS;
        let high = self.now_tick.checked_shr(above).unwrap_or(0);
        high.checked_shl(above).unwrap_or(0) | (slot as u64) << shift
    }

    fn ring(&mut self, level: usize, slot: usize) -> *mut Link {
        // This is a raw pointer, because a reference would invalidate the links in the nodes.
        self.slots.as_mut_ptr().wrapping_add(level * NR_SLOTS + slot)
    }

    /// # Safety
    ///
    /// 1. The same as [`insert`](Self::insert).
    unsafe fn put(&mut self, node: *mut Node<K>) {
        // SAFETY: (1).
        let tick = unsafe { (*node).tick };
        let differing = (tick ^ self.now_tick).max(1);
        let level = (differing.ilog2() / SLOT_BITS) as usize;
        let slot = (tick >> (SLOT_BITS * level as u32)) as usize % NR_SLOTS;
        self.occupied[level] |= 1 << slot;
        // SAFETY: (1); the ring does not move, and we have exclusive access to it.
        unsafe { Link::push(self.ring(level, slot), node.cast()) };
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TICK_NS: u64 = 1 << TICK_SHIFT;

    struct Numbers {
        wheel: Wheel<usize>,
        nodes: Vec<NonNull<Node<usize>>>,
    }

    impl Numbers {
        fn of(shift: u32) -> Self {
            let wheel = Wheel::new(shift);
            Self { wheel, nodes: Vec::new() }
        }

        fn insert(&mut self, at_ns: u64) -> (usize, bool) {
            let number = self.nodes.len();
            let node = NonNull::from(Box::leak(Box::new(Node::new(number))));
            self.nodes.push(node);
            // SAFETY: the node is new, and is freed after the last use of the wheel.
            (number, unsafe { self.wheel.insert(node, at_ns) })
        }

        fn remove(&mut self, number: usize) {
            // SAFETY: the caller knows that the timer has not expired.
            unsafe { self.wheel.remove(self.nodes[number]) };
        }

        fn advance(&mut self, now_ns: u64) -> Vec<usize> {
            // SAFETY: nodes are freed after the last use of the wheel.
            let number = |node: NonNull<Node<usize>>| unsafe { node.as_ref() }.kind;
            std::iter::from_fn(|| self.wheel.pop(now_ns)).map(number).collect()
        }
    }

    impl Drop for Numbers {
        fn drop(&mut self) {
            for node in self.nodes.drain(..) {
                // SAFETY: the node was leaked above, and the wheel is no longer used.
                drop(unsafe { Box::from_raw(node.as_ptr()) });
            }
        }
    }

    #[test]
    fn timer_is_the_first_unless_a_thread_precedes_it() {
        let mut numbers = Numbers::of(TICK_SHIFT);
        numbers.advance(5 * TICK_NS);
        assert_eq!(numbers.insert(9 * TICK_NS), (0, true));
        // The timer is removed after a thread has advanced the time, and before it calls `next_ns`.
        numbers.remove(0);
        let next_ns = numbers.wheel.next_ns();
        let (_, is_first) = numbers.insert(20 * TICK_NS);
        assert!(is_first || next_ns.is_some_and(|at_ns| at_ns <= 20 * TICK_NS));
        assert!(numbers.advance(9 * TICK_NS).is_empty());
        assert_eq!(numbers.wheel.next_ns(), Some(20 * TICK_NS));
    }

    #[test]
    fn a_wheel_of_nanoseconds_expires_each_timer_exactly_in_time() {
        let mut numbers = Numbers::of(0);
        let times = [1, 64, TICK_NS, 3_600_000_000_000, u64::MAX];
        for at_ns in times {
            numbers.insert(at_ns);
        }
        for (number, at_ns) in times.into_iter().enumerate() {
            assert_eq!(numbers.wheel.next_ns(), Some(at_ns));
            assert!(numbers.advance(at_ns - 1).is_empty());
            assert_eq!(numbers.advance(at_ns), [number]);
        }
    }

    #[test]
    fn timers_of_one_tick_expire_in_the_order_of_their_insertion() {
        let mut numbers = Numbers::of(TICK_SHIFT);
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

        #[test]
        fn wheel_behaves_like_a_sorted_list(
            start_ns in 0..u64::MAX / 4,
            steps in prop::collection::vec(
                (0u8..6, 0u32..46, any::<u64>(), any::<prop::sample::Index>()),
                1..if cfg!(miri) { 50 } else { 200 },
            ),
        ) {
            let mut numbers = Numbers::of(TICK_SHIFT);
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
                        numbers.wheel.for_each(|wheel, node| {
                            // SAFETY: the node is in the wheel.
                            if unsafe { node.as_ref() }.kind % 3 == 0 {
                                // SAFETY: the node is in the wheel.
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
