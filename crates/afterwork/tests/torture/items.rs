//! Reusable and delayed items under torture, and the log of the acts on them.

use afterwork::workqueue::{Busy, DelayedWork, FlushError, Work};
use topology::CpuId;

use crate::history::{self, Act, Event, Log, now_ns};
use crate::queues::Place;
use crate::support::*;

/// Delays of timers, in microseconds. Only cancels, changes and flushes encounter the longest one.
const DELAYS_US: [u64; 5] = [0, 20, 200, 2_000, 60_000_000];

/// An item of one of two kinds, or a reference to one.
#[derive(Clone, Copy)]
enum Either<W, D> {
    Reusable(W),
    Delayed(D),
}

use Either::{Delayed, Reusable};

type Handle<'a> = Either<&'a Work, &'a DelayedWork>;

/// An item that all threads use.
pub struct Subject {
    number: usize,
    item: Either<Work, DelayedWork>,
    /// The only queue that the item is queued on, or `None` if it uses all queues.
    home: Option<usize>,
    /// The acts of its runs, stored when its closure is dropped.
    runs: Arc<Mutex<Runs>>,
}

/// The time spans of runs, and their acts on their own item.
#[derive(Default)]
struct Runs {
    spans: Vec<(u64, u64)>,
    acts: Log,
}

/// The values that an item's closure owns. They are not shared, so that the log adds no ordering.
struct Body {
    number: usize,
    home: Option<usize>,
    own: Runs,
    sink: Arc<Mutex<Runs>>,
    dice: Dice,
    panics: bool,
    nr_panics: Arc<AtomicU64>,
    inside: AtomicBool,
    places: Arc<[Place]>,
    _life: Life,
}

sync::on_drop!(Body, this => *this.sink.lock().unwrap() = std::mem::take(&mut this.own));

impl Body {
    fn run(&mut self, work: Handle<'_>) {
        let began_ns = now_ns();
        assert!(!self.inside.swap(true, Ordering::Relaxed), "two runs at once");
        match self.dice.below(64) {
            0 => wait_for_itself(work),
            1 => thread::yield_now(),
            2..6 => {
                let at = self.home.unwrap_or(self.dice.below(self.places.len()));
                let place = &self.places[at];
                let log = &mut self.own.acts;
                enqueue(self.number, work, place, &mut self.dice, log);
            }
            _ => {}
        }
        hostile::misbehave_at_length(&mut self.dice);
        let panics = self.panics && self.dice.below(32) == 0;
        self.inside.store(false, Ordering::Relaxed);
        self.own.spans.push((began_ns, now_ns()));
        if panics {
            self.nr_panics.fetch_add(1, Ordering::Relaxed);
            Planned::panic();
        }
    }
}

/// Calls a method that both kinds have.
macro_rules! either {
    ($handle:expr, $work:ident => $call:expr) => {
        match $handle {
            Reusable($work) => $call,
            Delayed($work) => $call,
        }
    };
}

fn wait_for_itself(work: Handle<'_>) {
    let outcome = either!(work, work => {
        drop(work.clone());
        work.flush()
    });
    assert_eq!(outcome, Err(FlushError::OwnItem), "an item waited for itself");
}

/// Queues or arms an item at `place` in a random way.
fn enqueue(item: usize, work: Handle<'_>, place: &Place, dice: &mut Dice, log: &mut Log) {
    let queue = &place.lane(dice);
    let closing = place.closing();
    let said = |yes| (yes || !place.may_have_rejected(closing)).then_some(Act::Enqueue(yes));
    let cpu = CpuId::new(dice.below(8) as u32);
    match work {
        Reusable(work) => {
            let way = dice.below(8);
            let ask = || match way {
                0 => queue.task().on_cpu(cpu).enqueue(work),
                1 => queue.task().on_node(cpu.as_u32() % 3).enqueue(work),
                2 => queue.task().enqueue_all(std::slice::from_ref(work)) == 1,
                _ => queue.enqueue(work),
            };
            log.note(item, ask, said);
        }
        Delayed(work) => {
            let delay = Duration::from_micros(dice.pick(&DELAYS_US));
            if dice.below(3) > 0 {
                log.note(item, || queue.enqueue_after(work, delay), said);
                return;
            }
            let modified = |queued: Result<bool, _>| {
                let was_pending = queued.ok().map(|is_new| !is_new);
                let refused = place.may_have_rejected(closing);
                Some(Act::Modify { was_pending, refused })
            };
            log.note(item, || queue.reschedule(work, delay), modified);
        }
    }
}

impl Subject {
    /// Creates the item `number`. Every second item stays on one queue, and some have timers.
    pub fn new(
        number: usize,
        places: &Arc<[Place]>,
        lives: &Arc<Lives>,
        nr_panics: &Arc<AtomicU64>,
        dice: &mut Dice,
    ) -> Self {
        let runs = Arc::<Mutex<Runs>>::default();
        let home = number.is_multiple_of(2).then(|| dice.below(places.len()));
        let mut body = Body {
            number,
            home,
            own: Runs::default(),
            sink: runs.clone(),
            dice: Dice::new(dice.bits()),
            panics: dice.below(4) == 0,
            nr_panics: nr_panics.clone(),
            inside: AtomicBool::new(false),
            places: places.clone(),
            _life: Life::new(lives),
        };
        let item = if number.is_multiple_of(3) {
            let work = DelayedWork::with_handle(move |this| body.run(Delayed(this)));
            Delayed(work.with_slack(Duration::from_micros(dice.pick(&[0, 0, 100]))))
        } else {
            Reusable(Work::with_handle(move |this| body.run(Reusable(this))))
        };
        Self { number, item, home, runs }
    }

    fn handle(&self) -> Handle<'_> {
        match &self.item {
            Reusable(work) => Reusable(work),
            Delayed(work) => Delayed(work),
        }
    }

    pub fn torture(&self, places: &[Place], dice: &mut Dice, log: &mut Log) {
        let item = self.number;
        let place = &places[self.home.unwrap_or(dice.below(places.len()))];
        let work = self.handle();
        match dice.below(100) {
            0..52 => enqueue(item, work, place, dice, log),
            52..70 => {
                let cancel = || either!(work, work => work.cancel());
                log.note(item, cancel, |yes| Some(Act::Cancel(yes)));
            }
            70..80 => self.flush(log),
            80..84 => self.cancel_sync(log),
            84..88 => self.disable_and_enable(place, dice, log),
            _ => {
                if let Reusable(work) = work {
                    let act = |busy: Busy| Some(Act::Busy(busy.pending, busy.executing));
                    log.note(item, || work.busy(), act);
                }
            }
        }
    }

    /// Flushes the item. If its timer is armed, the item is queued at once.
    pub fn flush(&self, log: &mut Log) {
        let flush = || either!(self.handle(), work => work.flush());
        log.note(self.number, flush, |outcome| match outcome {
            Ok(any) => Some(Act::Flush(Some(any))),
            // The panic may be that of an earlier run.
            Err(FlushError::Panicked) => Some(Act::Flush(None)),
            Err(error) => panic!("{error}"),
        });
    }

    fn cancel_sync(&self, log: &mut Log) {
        let cancel = || either!(self.handle(), work => work.cancel_sync());
        let act = |cancelled| Some(Act::Disable { cancelled, sync: true, enables: true });
        log.note(self.number, cancel, act);
    }

    fn disable_and_enable(&self, place: &Place, dice: &mut Dice, log: &mut Log) {
        let (item, work) = (self.number, self.handle());
        let sync = dice.below(2) == 0;
        let disable =
            || either!(work, work => if sync { work.disable_sync() } else { work.disable() });
        log.note(item, disable, |cancelled| Some(Act::Disable { cancelled, sync, enables: false }));
        if let (Reusable(work), true) = (work, dice.below(2) == 0) {
            let from_ns = now_ns();
            let queued = work.enable() && place.queue.enqueue(work);
            let to_ns = now_ns();
            let acts = [Some(Act::Enable), queued.then_some(Act::Enqueue(true))];
            let event = |act| (item, Event { act, from_ns, to_ns });
            log.0.extend(acts.into_iter().flatten().map(event));
        } else {
            let enable = || either!(work, work => work.enable());
            log.note(item, enable, |_| Some(Act::Enable));
        }
    }

    /// Returns `true` if a flush of `place` waits for the item, whichever thread queued it.
    pub fn lives_at(&self, place: usize) -> bool {
        // An item that waits for its timer is not on the queue.
        self.home == Some(place) && matches!(self.item, Reusable(_))
    }
}

/// Checks the histories of all items. Returns the number of runs and of acts.
pub fn check(subjects: Vec<Subject>, mut others: Log) -> (u64, u64) {
    let mut events: Vec<Vec<Event>> = subjects.iter().map(|_| Vec::new()).collect();
    let mut nr_runs = 0;
    for subject in subjects {
        let (number, runs) = (subject.number, subject.runs.clone());
        // A flushed run may have armed the item again, with a delay too long to wait for.
        subject.cancel_sync(&mut others);
        // The last handle drops the closure, which stores the log of its runs.
        drop(subject);
        while Arc::strong_count(&runs) > 1 {
            thread::yield_now();
        }
        let runs = runs.lock().unwrap();
        nr_runs += runs.spans.len() as u64;
        events[number] = history::acts_of(&runs.spans);
        events[number].extend(runs.acts.0.iter().map(|(_, event)| event));
    }
    for (item, event) in others.0 {
        events[item].push(event);
    }
    let nr_acts = events.iter().map(|events| events.len() as u64).sum();
    for (number, events) in events.into_iter().enumerate() {
        if let Err(unexplained) = history::check(events) {
            panic!("item {number}: {unexplained}");
        }
    }
    (nr_runs, nr_acts)
}
