//! Cancelling what was cut out of the lists of a link.

use std::ptr;

use sync::{fork::Process, unmodelled::Arc};

use super::{current::with_current_unseated, run};
use crate::{
    panics::{discard, guarded_in_item},
    workqueue::{
        item::{
            colour::{Colour, NR_COLOURS},
            head::Head,
            list,
            remains::Remains,
            revival::Revivable,
            slab,
            state::Ending,
        },
        pools::{cut::Cut, pool::WorkerPool, pwq::Pwq},
    },
};

/// Cancelled items, of which nobody has been told yet. Still counted in flight.
#[derive(Debug)]
#[must_use = "they are waited for until their ends have been told"]
pub(crate) struct Cancelled {
    link: Arc<Pwq>,
    remains: Remains,
    nr_ended: [usize; NR_COLOURS],
    /// How many of them were pending.
    pub(crate) nr_cancelled: usize,
}

impl Cut {
    /// Cancels the items, of which none starts any more. Runs no code of users'.
    pub(crate) fn cancel(mut self) -> Cancelled {
        let mut cancelled = Cancelled {
            link: self.link,
            remains: Remains::default(),
            nr_ended: [0; NR_COLOURS],
            nr_cancelled: 0,
        };
        while let Some(item) = self.items.pop_front() {
            let colour = list::colour(item);
            // SAFETY: the item is linked as far as its state says, or has none, so it is alive; we alone have its link.
            let popped = unsafe { (item.as_ref().vtable().cancel)(item, &mut cancelled.remains) };
            cancelled.nr_ended[usize::from(colour.0)] += usize::from(popped.counts());
            cancelled.nr_cancelled += usize::from(popped.ran());
        }
        cancelled
    }
}

impl Cancelled {
    /// Returns `true` if nothing is to be done.
    pub(crate) fn is_empty(&self) -> bool {
        self.nr_ended.iter().all(|count| *count == 0)
    }

    /// Tells whoever waits for the items, and drops what is users' of them, contained. Call it with no lock held.
    pub(crate) fn tell(mut self) {
        let here = Process::now();
        let link = Arc::as_ptr(&self.link);
        // Part of an item of the queue: a closure may own its last handle, which must not wait for the counts that we hold.
        let tell = || {
            for item in std::mem::take(&mut self.remains.taken) {
                // SAFETY: it was taken as by a run, which is ours.
                let dead = unsafe { run::end(item, Ending::Returned) };
                self.remains.bury_dead(dead);
                if !here.is_this() {
                    return;
                }
            }
            for what in std::mem::take(&mut self.remains.dropped) {
                // FOREIGN(cancel-drop): closures and futures, on the thread that cancels all, or a reaper; contained.
                guarded_in_item(|| drop(what)).unwrap_or_else(discard);
            }
            let room = self.link.core.room.as_ref();
            for _ in 0..std::mem::take(&mut self.remains.nr_places) {
                if let Some(room) = room {
                    room.give_back();
                }
            }
        };
        // SAFETY: we have the link.
        unsafe { with_current_unseated(ptr::null(), link, tell) };
        if !here.is_this() {
            // A waker forked, and came back in the child: the rest is the parent's.
            return std::mem::forget(self);
        }
        slab::flush();
        let link = &self.link;
        let mut guard = link.pool.lock_to_act();
        for (place, count) in self.nr_ended.into_iter().enumerate() {
            if count > 0 {
                guard.retire_from(link.slot, Colour(place as u8), count);
            }
        }
    }
}

/// Puts an item that is counted in flight back at the front of its link's line, or cancels it where all was that is as old. One
/// that was `revived` is younger than it looks. Call it with no lock held.
pub(crate) fn put_back(
    pool: &Arc<WorkerPool>,
    item: ptr::NonNull<Head>,
    revived: Option<&Revivable>,
) {
    if let Some(cut) = pool.put_back(item, revived) {
        cut.cancel().tell();
    }
}
