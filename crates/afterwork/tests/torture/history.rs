//! The history of one item: each operation, its time and its result, checked against a slow model.
//!
//! Every *act* is a user's call or a run of the item. It takes one or more *steps* in the model,
//! each at some time during the act. A history is good if the model can take all steps in some
//! order, with the recorded results, and the item is idle at the end. The check processes the
//! beginnings and ends of acts in order, and keeps all possible states. At the end of an act, only
//! states in which that act is done remain. If none does, the history is a fault.

use std::collections::HashSet;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Maximum clock difference between two CPUs, in nanoseconds. The value is a generous guess.
const SLACK_NS: u64 = 100;
/// Maximum number of overlapping acts on one item.
const NR_SLOTS: usize = 16;
/// Number of acts that are printed for a bad history.
const SHOWN: usize = 40;

/// An act, with its result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// `true` if the item was queued or armed, `false` if it was pending or disabled.
    Enqueue(bool),
    /// `true` if the item was cancelled, `false` if it was not pending.
    Cancel(bool),
    /// The item was disabled, maybe cancelled, idle if `sync`, and enabled again if `enables`.
    Disable {
        cancelled: bool,
        sync: bool,
        enables: bool,
    },
    Enable,
    /// The result of `reschedule`, if accepted, and whether the queue may have rejected it.
    Modify {
        was_pending: Option<bool>,
        refused: bool,
    },
    /// Whether the item was pending and executing at one moment.
    Busy(bool, bool),
    /// The work of some moment has ended or been cancelled; an item's own flush reports whether
    /// there was any. As in the kernel, the flush of a queue can overtake a cancel that has not
    /// returned, and miss an item whose enqueuer has not returned.
    Flush(Option<bool>),
    Start,
    End,
}

#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub act: Act,
    pub from_ns: u64,
    pub to_ns: u64,
}

/// The acts of a thread, by item number.
#[derive(Default)]
pub struct Log(pub Vec<(usize, Event)>);

impl Log {
    /// Records the result of `ask` on `item`.
    pub fn note<R>(
        &mut self,
        item: usize,
        ask: impl FnOnce() -> R,
        act: impl FnOnce(R) -> Option<Act>,
    ) {
        let from_ns = now_ns();
        let answer = ask();
        let to_ns = now_ns();
        self.0.extend(act(answer).map(|act| (item, Event { act, from_ns, to_ns })));
    }
}

/// Returns the time since the first call.
pub fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    // The time is never zero, so that the slack can be subtracted.
    let since = START.get_or_init(Instant::now).elapsed() + Duration::from_millis(1);
    u64::try_from(since.as_nanos()).expect("centuries")
}

/// Turns the start and end times of an item's runs into acts, in order.
pub fn acts_of(runs: &[(u64, u64)]) -> Vec<Event> {
    let mut acts = Vec::with_capacity(2 * runs.len());
    for (i, &(began_ns, ended_ns)) in runs.iter().enumerate() {
        // The item's state word changes before its closure begins and after it has ended.
        let before_ns = i.checked_sub(1).map_or(0, |before| runs[before].1);
        let after_ns = runs.get(i + 1).map_or(u64::MAX, |after| after.0);
        let event = |act, from_ns, to_ns| Event { act, from_ns, to_ns };
        acts.push(event(Act::Start, before_ns, began_ns));
        acts.push(event(Act::End, ended_ns, after_ns));
    }
    acts
}

/// The state of an item in the model.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Item {
    pending: bool,
    executing: bool,
    nr_disables: u8,
}

/// The progress of an act, from 0 to `DONE`.
type Progress = u8;
const DONE: Progress = u8::MAX;
/// The progress of a flush that has read the state, with flags for the conditions that it awaits.
const LOOKED: Progress = 4;
const FOR_PENDING: Progress = 1;
const FOR_RUN: Progress = 2;

/// The kinds of acts in progress.
#[derive(Clone, Copy, Default)]
struct Others {
    /// Set if a thread has queued the item, or is about to, and its call has not returned.
    queueing: bool,
    cancelling: bool,
}

/// A possible state of the model.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Place {
    item: Item,
    progress: [Progress; NR_SLOTS],
}

impl Act {
    /// Adds every step that the act can take next: its progress, and the item's new state.
    fn steps(
        self,
        progress: Progress,
        item: Item,
        others: Others,
        steps: &mut Vec<(Progress, Item)>,
    ) {
        let mut go = |progress, item| steps.push((progress, item));
        let Item { pending, executing, nr_disables } = item;
        let disabled = nr_disables > 0;
        let queued = Item { pending: true, ..item };
        let taken = Item { pending: false, ..item };
        let disabled_by = |nr_disables| Item { nr_disables, ..item };
        let run = |executing, item| Item { executing, ..item };
        match self {
            Self::Enqueue(true) if !pending && !disabled => go(DONE, queued),
            Self::Enqueue(false) if pending || disabled => go(DONE, item),
            Self::Cancel(cancelled) if cancelled == pending => go(DONE, taken),
            Self::Disable { cancelled, sync, enables } => match progress {
                0 => go(1, disabled_by(nr_disables + 1)),
                1 if cancelled == pending => go(if sync { 2 } else { DONE }, taken),
                2 if !executing => go(if enables { 3 } else { DONE }, item),
                3 if disabled => go(DONE, disabled_by(nr_disables - 1)),
                _ => {}
            },
            Self::Enable if disabled => go(DONE, disabled_by(nr_disables - 1)),
            Self::Modify { was_pending, refused } => {
                // Other acts may run between the cancel and the enqueue of this call.
                if pending && was_pending != Some(false) {
                    go(1, taken);
                }
                match was_pending {
                    Some(true) if pending => go(DONE, item),
                    None if disabled || refused => go(DONE, item),
                    _ => {}
                }
                if was_pending == Some(progress == 1) && !pending && !disabled {
                    go(DONE, queued);
                }
            }
            Self::Busy(was_pending, was_executing)
                if (was_pending, was_executing) == (pending, executing) =>
            {
                go(DONE, item)
            }
            Self::Flush(None) if progress == 0 && others.queueing && pending => {
                go(LOOKED | if executing { FOR_RUN } else { 0 }, item);
                go(LOOKED | FOR_PENDING | if executing { FOR_RUN } else { 0 }, item);
            }
            Self::Flush(said) if progress == 0 && said != Some(!(pending || executing)) => {
                let for_pending = if pending { FOR_PENDING } else { 0 };
                let for_run = if executing { FOR_RUN } else { 0 };
                go(LOOKED | for_pending | for_run, item);
            }
            Self::Flush(_) if progress == LOOKED => go(DONE, item),
            Self::Flush(None) if progress == LOOKED | FOR_PENDING && others.cancelling => {
                go(DONE, item)
            }
            Self::Start if pending && !executing => go(DONE, run(true, taken)),
            Self::End if executing => go(DONE, run(false, item)),
            _ => {}
        }
    }
}

impl Place {
    fn others(&self, acts: &[Option<Act>; NR_SLOTS]) -> Others {
        let mut others = Others::default();
        for (&progress, act) in self.progress.iter().zip(acts) {
            match act {
                Some(Act::Enqueue(true)) => others.queueing = true,
                Some(Act::Cancel(true) | Act::Disable { cancelled: true, .. }) => {
                    others.cancelling |= progress != DONE
                }
                _ => {}
            }
        }
        others
    }

    /// Updates the flushes that have read the state with the item's new state.
    fn note_flushes(&mut self, before: Item, acts: &[Option<Act>; NR_SLOTS]) {
        let now = self.item;
        if before == now {
            return;
        }
        for (progress, act) in self.progress.iter_mut().zip(acts) {
            if !matches!(act, Some(Act::Flush(_))) || *progress == DONE || *progress < LOOKED {
                continue;
            }
            if before.executing && !now.executing {
                *progress &= !FOR_RUN;
            }
            if before.pending && !now.pending && *progress & FOR_PENDING != 0 {
                *progress &= !FOR_PENDING;
                if !before.executing && now.executing {
                    *progress |= FOR_RUN;
                }
            }
        }
    }
}

struct Search {
    places: HashSet<Place>,
    acts: [Option<Act>; NR_SLOTS],
}

impl Search {
    fn begin(&mut self, act: Act) -> usize {
        let free = self.acts.iter().position(Option::is_none);
        let slot = free.expect("more concurrent operations than threads");
        self.acts[slot] = Some(act);
        slot
    }

    /// Keeps the states in which the act of `slot` is done.
    fn end(&mut self, slot: usize) {
        let mut reached: Vec<Place> = self.places.iter().copied().collect();
        let mut steps = Vec::new();
        let mut next = 0;
        while let Some(&place) = reached.get(next) {
            next += 1;
            let others = place.others(&self.acts);
            for (slot, act) in self.acts.iter().enumerate() {
                let progress = place.progress[slot];
                let Some(act) = act.filter(|_| progress != DONE) else {
                    continue;
                };
                act.steps(progress, place.item, others, &mut steps);
                for (progress, item) in steps.drain(..) {
                    let mut to = Place { item, ..place };
                    to.note_flushes(place.item, &self.acts);
                    to.progress[slot] = progress;
                    if self.places.insert(to) {
                        reached.push(to);
                    }
                }
            }
        }
        self.acts[slot] = None;
        reached.retain(|place| place.progress[slot] == DONE);
        reached.iter_mut().for_each(|place| place.progress[slot] = 0);
        self.places = reached.into_iter().collect();
    }
}

/// A time in nanoseconds, and the number of the act that begins or (`true`) ends there. At equal
/// times, beginnings come before ends.
type Moment = (u64, bool, usize);

/// Checks the history of an item that is idle before and after it. An error lists its last acts.
pub fn check(mut events: Vec<Event>) -> Result<(), String> {
    for event in &mut events {
        event.from_ns = event.from_ns.saturating_sub(SLACK_NS);
        event.to_ns = event.to_ns.saturating_add(SLACK_NS);
    }
    let of = |(i, event): (usize, &Event)| [(event.from_ns, false, i), (event.to_ns, true, i)];
    let mut moments: Vec<Moment> = events.iter().enumerate().flat_map(of).collect();
    moments.sort_unstable();
    let mut search = Search {
        places: HashSet::from([Place { item: Item::default(), progress: [0; NR_SLOTS] }]),
        acts: [None; NR_SLOTS],
    };
    let mut slots = vec![0; events.len()];
    for (at, &(_, is_end, i)) in moments.iter().enumerate() {
        if !is_end {
            slots[i] = search.begin(events[i].act);
            continue;
        }
        search.end(slots[i]);
        if search.places.is_empty() {
            return Err(last_acts(&events, &moments[..=at]));
        }
    }
    let idle = |place: &Place| place.item == Item::default();
    if search.places.iter().any(idle) { Ok(()) } else { Err(last_acts(&events, &moments)) }
}

/// Describes the acts that were in progress, or ended last, at the last of `moments`.
fn last_acts(events: &[Event], moments: &[Moment]) -> String {
    let begun = moments.iter().filter(|(_, is_end, _)| !is_end);
    let mut begun: Vec<_> = begun.map(|&(_, _, i)| events[i]).collect();
    begun.sort_by_key(|event| event.to_ns);
    let now_ns = moments.last().map_or(0, |moment| moment.0);
    let nr_ended = begun.partition_point(|event| event.to_ns <= now_ns);
    let shown = &begun[nr_ended.saturating_sub(SHOWN)..];
    let first_ns = shown.first().map_or(0, |event| event.to_ns);
    let mut text = "no order explains how the last of these acts ended; times in ns:".to_string();
    for event in shown {
        let since = |at_ns: u64| i128::from(at_ns) - i128::from(first_ns);
        let (from, to) = (since(event.from_ns), since(event.to_ns));
        text += &format!("\n  {from:>12} .. {to:>12}  {:?}", event.act);
    }
    text
}
