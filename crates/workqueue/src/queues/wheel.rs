//! A hierarchical timer wheel: what expires when, without clock, lock or thread.
//!
//! Time is cut into ticks. Level 0 has a slot for each of the next 64 ticks, level 1 one for each of the next 64 times
//! 64 ticks, and so on. A timer stands in the level of the highest six bits in which its tick differs from the
//! present one. As time passes a slot's timers move down, at most once a level. Putting in and taking out is a
//! constant number of steps, however many timers there are.
//!
//! Timers of a lower level expire before those of a higher one, and in one level in the order of the slots; so the
//! next to expire is in the first slot of the lowest level that has any, and nobody needs to be woken only to move
//! timers down.
//!
//! Timers of a *group* form a ring, so that all of them can be taken out in as many steps as there are.

use sync::twin;

const SLOT_BITS: u32 = 6;
const NR_SLOTS: usize = 1 << SLOT_BITS;
/// A tick is 2^16 ns, 65 µs: about what it takes to wake a thread.
const TICK_SHIFT: u32 = 16;
/// Enough for all ticks that 64 bits of nanoseconds have.
const NR_LEVELS: usize = 8;
const LAST_TICK: u64 = u64::MAX >> TICK_SHIFT;
/// What an empty slot keeps of its memory at most, in timers. A guess: 512 slots then keep 32 KiB.
const MIN_CAPACITY: usize = 16;
/// What a wheel without timers keeps of its memory at most, in timers. A guess: 56 KiB.
const MIN_ENTRIES: usize = 1024;

/// Names a timer in its wheel; used once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TimerKey {
    index: u32,
    generation: u64,
}

/// Names a group of timers; used until it is disbanded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group(u32);

#[derive(Debug)]
struct Entry<T> {
    /// `None`: unused, or the head of a group.
    timer: Option<(u64, T)>,
    /// Another one at each use; 0: unused.
    generation: u64,
    /// Its level, its slot, and where in that.
    place: (u8, u8, u32),
    /// Who comes before and after it in the ring of its group; itself without one.
    ring: (u32, u32),
}

/// Holds timers until they expire. Its time begins at 0.
#[derive(Debug)]
pub(crate) struct Wheel<T> {
    /// The tick up to which all has expired.
    now_tick: u64,
    entries: Vec<Entry<T>>,
    unused: Vec<u32>,
    last_generation: u64,
    /// How many entries were freed since memory was last given back.
    nr_freed: usize,
    /// Indices of entries, by level and slot.
    slots: Vec<[Vec<u32>; NR_SLOTS]>,
    /// Which slots of a level have any.
    occupied: [u64; NR_LEVELS],
    /// No timer expires before this tick; exact unless the first one was taken out, also if that was the only one.
    earliest_tick: Option<u64>,
}

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

impl<T> Default for Wheel<T> {
    fn default() -> Self {
        Self {
            now_tick: 0,
            entries: Vec::new(),
            unused: Vec::new(),
            last_generation: 0,
            nr_freed: 0,
            slots: Vec::new(),
            occupied: [0; NR_LEVELS],
            earliest_tick: None,
        }
    }
}

impl<T> Wheel<T> {
    /// Puts a timer in, into `group` if there is one, that expires at `at_ns` or less than a tick later; returns `true` if
    /// it is the first to expire.
    pub(crate) fn insert(
        &mut self,
        at_ns: u64,
        group: Option<Group>,
        timer: T,
    ) -> (TimerKey, bool) {
        if self.slots.is_empty() {
            self.slots = (0..NR_LEVELS)
                .map(|_| std::array::from_fn(|_| Vec::new()))
                .collect();
        }
        // Never early; and not in a tick that has expired already.
        let rounded = at_ns.div_ceil(1 << TICK_SHIFT).min(LAST_TICK);
        let tick = rounded.max(self.now_tick + 1);
        let index = self.unused_entry();
        if let Some(Group(head)) = group {
            let next = self.entry(head).ring.1;
            self.entry(index).ring = (head, next);
            self.entry(head).ring.1 = index;
            self.entry(next).ring.0 = index;
        }
        self.entry(index).timer = Some((tick, timer));
        self.put(index, tick);
        let is_first = self.earliest_tick.is_none_or(|earliest| tick < earliest);
        if is_first {
            self.earliest_tick = Some(tick);
        }
        let generation = self.entry(index).generation;
        (TimerKey { index, generation }, is_first)
    }

    /// Takes a timer out; `None` when it has expired.
    pub(crate) fn remove(&mut self, key: TimerKey) -> Option<T> {
        self.get_mut(key)?;
        self.pick(key.index);
        let (_, timer) = self.free(key.index)?;
        Some(timer)
    }

    /// Returns what a timer holds; `None` when it has expired, or was taken out.
    pub(crate) fn get_mut(&mut self, key: TimerKey) -> Option<&mut T> {
        let entry = self.entries.get_mut(key.index as usize)?;
        let is_this =
            entry.generation == key.generation || twin::armed("wheel: a key without a generation");
        entry.timer.as_mut().filter(|_| is_this).map(|it| &mut it.1)
    }

    /// Makes a group without timers.
    pub(crate) fn new_group(&mut self) -> Group {
        Group(self.unused_entry())
    }

    /// Takes out all timers of a group, which is no more from then on.
    pub(crate) fn disband(&mut self, group: Group) -> Vec<T> {
        let timers = self.empty(group);
        self.leave(group.0);
        timers
    }

    /// Takes out all timers of a group.
    pub(crate) fn empty(&mut self, group: Group) -> Vec<T> {
        let Group(head) = group;
        let mut timers = Vec::new();
        loop {
            let index = self.entry(head).ring.1;
            if index == head {
                break;
            }
            self.pick(index);
            timers.extend(self.free(index).map(|(_, timer)| timer));
        }
        timers
    }

    /// Lets time pass up to `now_ns`; returns what expires by that, in the order of the ticks.
    pub(crate) fn advance(&mut self, now_ns: u64) -> Vec<T> {
        let now_tick = now_ns >> TICK_SHIFT;
        let mut expired = Vec::new();
        while let Some((level, slot)) = self.first_slot() {
            let start = self.start_of(level, slot);
            if start > now_tick {
                break;
            }
            // Up to here nothing is left.
            self.now_tick = self.now_tick.max(start);
            self.occupied[level] &= !(1 << slot);
            for index in std::mem::take(&mut self.slots[level][slot]) {
                let tick = self.tick_of(index).unwrap_or(0);
                if tick <= self.now_tick {
                    expired.extend(self.free(index).map(|(_, timer)| timer));
                } else {
                    self.put(index, tick);
                }
            }
        }
        self.now_tick = self.now_tick.max(now_tick);
        self.earliest_tick = self.first_tick();
        expired
    }

    /// Returns when to let time pass next; `None` if that is not before a timer is put in that is the first. It may be too
    /// early, never too late.
    ///
    /// It is what [`insert`](Self::insert) goes by, also when all timers were taken out: a timer that is not the first for
    /// that would wake nobody, and nobody would come for it.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.earliest_tick
            .map(|tick| tick.saturating_mul(1 << TICK_SHIFT))
    }

    /// Returns the lowest level, and the first slot of it, that has timers.
    fn first_slot(&self) -> Option<(usize, usize)> {
        let level = self.occupied.iter().position(|&slots| slots != 0)?;
        // Slots of a level never wrap: a timer beyond the last slot differs in a higher level.
        Some((level, self.occupied[level].trailing_zeros() as usize))
    }

    fn first_tick(&self) -> Option<u64> {
        let (level, slot) = self.first_slot()?;
        let ticks = self.slots[level][slot].iter();
        ticks.filter_map(|&index| self.tick_of(index)).min()
    }

    /// Returns the first tick of a slot.
    fn start_of(&self, level: usize, slot: usize) -> u64 {
        let shift = SLOT_BITS * level as u32;
        let above = shift + SLOT_BITS;
        let high = self.now_tick.checked_shr(above).unwrap_or(0);
        high.checked_shl(above).unwrap_or(0) | (slot as u64) << shift
    }

    fn put(&mut self, index: u32, tick: u64) {
        let differing = (tick ^ self.now_tick).max(1);
        let level = (differing.ilog2() / SLOT_BITS) as usize;
        let slot = (tick >> (SLOT_BITS * level as u32)) as usize % NR_SLOTS;
        let slot_list = &mut self.slots[level][slot];
        let place = (level as u8, slot as u8, slot_list.len() as u32);
        slot_list.push(index);
        self.occupied[level] |= 1 << slot;
        self.entry(index).place = place;
    }

    /// Takes an entry out of its slot.
    fn pick(&mut self, index: u32) {
        let (level, slot, at) = self.entry(index).place;
        let (level, slot) = (usize::from(level), usize::from(slot));
        let slot_list = &mut self.slots[level][slot];
        slot_list.swap_remove(at as usize);
        let moved = slot_list.get(at as usize).copied();
        // Each time costs no more than what was taken out since the last one.
        if slot_list.capacity() > MIN_CAPACITY.max(4 * slot_list.len()) {
            slot_list.shrink_to(MIN_CAPACITY.max(2 * slot_list.len()));
        }
        if slot_list.is_empty() {
            self.occupied[level] &= !(1 << slot);
        }
        if let Some(moved) = moved {
            self.entry(moved).place.2 = at;
        }
    }

    fn entry(&mut self, index: u32) -> &mut Entry<T> {
        &mut self.entries[index as usize]
    }

    fn tick_of(&self, index: u32) -> Option<u64> {
        self.entries[index as usize].timer.as_ref().map(|it| it.0)
    }

    /// Returns an entry that is in no slot, and alone in its ring.
    fn unused_entry(&mut self) -> u32 {
        let index = self.unused.pop().unwrap_or_else(|| {
            let index = u32::try_from(self.entries.len()).expect("four billion timers at once");
            self.entries.push(Entry {
                timer: None,
                generation: 0,
                place: (0, 0, 0),
                ring: (index, index),
            });
            index
        });
        self.last_generation += 1;
        self.entry(index).generation = self.last_generation;
        index
    }

    fn free(&mut self, index: u32) -> Option<(u64, T)> {
        let (before, after) = self.entry(index).ring;
        self.entry(before).ring.1 = after;
        self.entry(after).ring.0 = before;
        let entry = self.entry(index);
        entry.ring = (index, index);
        let timer = entry.timer.take();
        self.leave(index);
        timer
    }

    /// Notes that an entry is not used any more.
    fn leave(&mut self, index: u32) {
        self.entry(index).generation = 0;
        self.unused.push(index);
        self.nr_freed += 1;
        // Each time costs no more than what was freed since the last one.
        if self.nr_freed >= self.entries.len().max(MIN_ENTRIES) {
            self.nr_freed = 0;
            self.give_back_memory();
        }
    }

    /// Gives back the memory of unused entries behind the last one that is used, where that is most of it.
    fn give_back_memory(&mut self) {
        let last = self.entries.iter().rposition(|entry| entry.generation != 0);
        let nr_left = last.map_or(0, |last| last + 1);
        if self.entries.capacity() > MIN_ENTRIES.max(4 * nr_left) {
            self.entries.truncate(nr_left);
            self.entries.shrink_to(MIN_ENTRIES.max(2 * nr_left));
            self.unused.retain(|&index| (index as usize) < nr_left);
            self.unused.shrink_to(MIN_ENTRIES.max(2 * nr_left));
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TICK_NS: u64 = 1 << TICK_SHIFT;

    #[test]
    fn a_timer_expires_at_its_time_and_not_before() {
        let mut wheel = Wheel::default();
        assert!(wheel.advance(5 * TICK_NS).is_empty());
        let (_, is_first) = wheel.insert(9 * TICK_NS - 1, None, 'a');
        assert!(is_first);
        assert_eq!(wheel.next_ns(), Some(9 * TICK_NS));
        assert!(wheel.advance(9 * TICK_NS - 1).is_empty());
        assert_eq!(wheel.advance(9 * TICK_NS), ['a']);
        assert_eq!(wheel.next_ns(), None);
    }

    #[test]
    fn a_timer_is_the_first_or_somebody_comes_before_it() {
        let mut wheel = Wheel::default();
        wheel.advance(5 * TICK_NS);
        let (key, is_first) = wheel.insert(9 * TICK_NS, None, 'a');
        assert!(is_first);
        // Taken out after somebody has let time pass, and before he asks when to do so next.
        assert_eq!(wheel.remove(key), Some('a'));
        let next_ns = wheel.next_ns();
        let (_, is_first) = wheel.insert(20 * TICK_NS, None, 'b');
        assert!(is_first || next_ns.is_some_and(|at_ns| at_ns <= 20 * TICK_NS));
        assert!(wheel.advance(9 * TICK_NS).is_empty());
        assert_eq!(wheel.next_ns(), Some(20 * TICK_NS));
    }

    #[test]
    fn slots_that_are_left_give_their_memory_back() {
        let mut wheel = Wheel::default();
        for tick in 0..200 {
            wheel.advance(tick * TICK_NS);
            // In another slot each time, some taken out one by one and some together.
            let group = wheel.new_group();
            let insert = |i| wheel.insert((tick + 30) * TICK_NS, Some(group), i).0;
            let keys: Vec<_> = (0..1000).map(insert).collect();
            assert!(keys[..500].iter().all(|key| wheel.remove(*key).is_some()));
            assert_eq!(wheel.disband(group).len(), 500);
        }
        let slots = wheel.slots.iter().flatten();
        let nr_kept: usize = slots.map(Vec::capacity).sum();
        assert!(nr_kept <= NR_LEVELS * NR_SLOTS * MIN_CAPACITY, "{nr_kept}");
        assert!(wheel.entries.len() <= 1001);
    }

    #[test]
    fn a_wheel_gives_the_memory_of_a_burst_back_and_knows_its_timers_after_it() {
        let mut wheel = Wheel::default();
        let (early, _) = wheel.insert(9 * TICK_NS, None, usize::MAX);
        let mut keys: Vec<_> = (0..100_000)
            .map(|i| wheel.insert(1_000_000_000, None, i).0)
            .collect();
        let late = keys.pop().unwrap();
        assert!(keys.iter().all(|key| wheel.remove(*key).is_some()));
        assert_eq!(wheel.advance(1_001_000_000).len(), 2);
        for _ in 0..2 * MIN_ENTRIES {
            let (key, _) = wheel.insert(2_000_000_000, None, 0);
            wheel.remove(key);
        }
        assert!(wheel.entries.capacity() <= 4 * MIN_ENTRIES);
        assert!(wheel.unused.capacity() <= 4 * MIN_ENTRIES);
        let another = wheel.insert(2_000_000_000, None, 7).0;
        assert!([early, late].iter().all(|key| wheel.remove(*key).is_none()));
        assert_eq!(wheel.remove(another), Some(7));
    }

    #[test]
    fn a_timer_can_be_looked_at_until_it_expires() {
        let mut wheel = Wheel::default();
        let (key, _) = wheel.insert(9 * TICK_NS, None, 'a');
        *wheel.get_mut(key).unwrap() = 'b';
        assert_eq!(wheel.advance(9 * TICK_NS), ['b']);
        let (another, _) = wheel.insert(20 * TICK_NS, None, 'c');
        assert_eq!(wheel.get_mut(key), None);
        assert_eq!(wheel.get_mut(another), Some(&mut 'c'));
    }

    #[test]
    fn a_timer_is_small() {
        assert!(size_of::<Entry<[usize; 2]>>() <= 56);
    }

    #[test]
    fn slack_rounds_to_the_same_moment() {
        assert_eq!(rounded_ns(1000, 0), 1000);
        assert_eq!(rounded_ns(1000, 100), 1024);
        assert_eq!(rounded_ns(1020, 100), 1024);
        assert_eq!(rounded_ns(u64::MAX - 1, 100), u64::MAX);
    }

    proptest! {
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
                (0u8..7, 0u32..46, any::<u64>(), any::<prop::sample::Index>()),
                1..200,
            ),
        ) {
            let mut wheel = Wheel::default();
            wheel.advance(start_ns);
            let mut now_ns = start_ns;
            let mut list: Vec<(u64, usize, TimerKey)> = Vec::new();
            // Every third timer has none.
            let mut groups = [wheel.new_group(), wheel.new_group()];
            for (number, (step, bits, dice, index)) in steps.into_iter().enumerate() {
                let span_ns = dice & ((1 << bits) - 1);
                match step {
                    0..=2 => {
                        let at_ns = now_ns.saturating_add(span_ns);
                        let tick = at_ns.div_ceil(TICK_NS).max((now_ns >> TICK_SHIFT) + 1);
                        let group = groups.get(number % 3).copied();
                        let (key, _) = wheel.insert(at_ns, group, number);
                        list.push((tick, number, key));
                    }
                    3 if !list.is_empty() => {
                        let (_, number, key) = list.swap_remove(index.index(list.len()));
                        prop_assert_eq!(wheel.remove(key), Some(number));
                        prop_assert_eq!(wheel.remove(key), None);
                    }
                    4 | 5 => {
                        let group = index.index(groups.len());
                        let mut timers = if step == 4 {
                            wheel.empty(groups[group])
                        } else {
                            let timers = wheel.disband(groups[group]);
                            groups[group] = wheel.new_group();
                            timers
                        };
                        timers.sort();
                        let gone: Vec<_> = list.extract_if(.., |it| it.1 % 3 == group).collect();
                        prop_assert!(gone.iter().all(|it| wheel.remove(it.2).is_none()));
                        let mut numbers: Vec<_> = gone.iter().map(|it| it.1).collect();
                        numbers.sort();
                        prop_assert_eq!(timers, numbers);
                    }
                    _ => {
                        now_ns = now_ns.saturating_add(span_ns);
                        let now_tick = now_ns >> TICK_SHIFT;
                        let expired = wheel.advance(now_ns);
                        let tick_of = |number: &usize| {
                            list.iter().find(|it| it.1 == *number).map(|it| it.0)
                        };
                        let ticks: Vec<_> = expired.iter().map(tick_of).collect();
                        prop_assert!(ticks.is_sorted() && !ticks.contains(&None));
                        let nr_due = list.iter().filter(|it| it.0 <= now_tick).count();
                        prop_assert_eq!(expired.len(), nr_due);
                        for (tick, _, key) in list.extract_if(.., |it| expired.contains(&it.1)) {
                            prop_assert!(tick <= now_tick);
                            prop_assert_eq!(wheel.remove(key), None);
                        }
                        let next_ns = list.iter().map(|it| it.0.saturating_mul(TICK_NS)).min();
                        prop_assert_eq!(wheel.next_ns(), next_ns);
                    }
                }
                let first_ns = list.iter().map(|it| it.0.saturating_mul(TICK_NS)).min();
                prop_assert!(wheel.next_ns() <= first_ns || first_ns.is_none());
                prop_assert!(wheel.next_ns().is_some() || first_ns.is_none());
            }
        }
    }
}
