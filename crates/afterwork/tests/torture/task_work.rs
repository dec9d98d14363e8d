//! Random torture of mailboxes, with posters, owners and ends of every kind.
//!
//! `cargo xtask torture task-work --minutes 5 --seed 7`
//!
//! Items are numbered by their poster. No item may be lost while the owner receives. None may be
//! duplicated, out of its poster's order, or alive at the end. Every call gets its own answer or is
//! lost. A lost wake-up shows as a round that does not end.

mod hostile_task_work;
mod locals;
mod support;

use std::future::poll_fn;

use afterwork::mailbox::{
    Closed, Mailbox, PostError, Poster, Reply, ReplyError, ReplyTo, TryRecvError,
};
use rustix::event;

use crate::support::hostile::{park_until_ready, unpark};
use crate::support::*;

const NR_POSTERS: usize = 6;
const MAX_ITEMS: usize = 600;
/// Number of hostile users' mailboxes in a round.
const NR_HOSTILE: usize = 8;
/// Mailbox configurations. All other choices are random.
const CONFIGS: &[&str] = &["any", "bounded"];

fn main() -> ExitCode {
    support::torture("mailboxes", CONFIGS, round)
}

#[derive(Debug, Default)]
struct Totals {
    nr_accepted: u64,
    nr_received: u64,
    nr_refused: AtomicU64,
    nr_answered: AtomicU64,
    nr_lost: AtomicU64,
    nr_killed: AtomicU64,
    nr_dropped_owners: u64,
}

/// The item `number` that was accepted from poster `from`.
struct Item {
    from: usize,
    number: u64,
    to: Option<ReplyTo<u64>>,
    _life: Life,
}

impl Item {
    fn new(from: usize, number: u64, lives: &Arc<Lives>) -> Self {
        Self { from, number, to: None, _life: Life::new(lives) }
    }
}

struct Scene<'a> {
    totals: &'a Totals,
    lives: Arc<Lives>,
    /// Number of items that were accepted from each poster.
    accepted: [AtomicU64; NR_POSTERS],
}

#[derive(Clone, Copy, PartialEq)]
enum End {
    /// The owner receives until the last poster is dropped.
    Never,
    /// The owner closes the mailbox after this number of items, and receives the remaining ones.
    Closes(u64),
    /// The owner is dropped after this number of items.
    Dropped(u64),
}

fn round(round: &Round<'_>, totals: &mut Totals) {
    let mut dice = Dice::new(round.seed);
    let mailbox = mailbox(round.config, &mut dice);
    let end = match dice.below(4) {
        0 => End::Closes(dice.below(MAX_ITEMS) as u64),
        1 => End::Dropped(dice.below(MAX_ITEMS) as u64),
        _ => End::Never,
    };
    let scene = Scene { totals, lives: Arc::default(), accepted: Default::default() };
    let next = thread::scope(|scope| {
        let mut posters = Vec::new();
        let mut shared = Arc::new(mailbox.poster());
        for from in 0..NR_POSTERS {
            // Some threads share a poster.
            if dice.below(3) > 0 {
                shared = Arc::new(mailbox.poster());
            }
            // In either lane, the posts of one thread keep their order.
            if dice.below(3) == 0 {
                shared = Arc::new(shared.urgent());
            }
            let (poster, scene) = (shared.clone(), &scene);
            let mut dice = Dice::of_thread(round.seed, from);
            posters.push(scope.spawn(move || post(&poster, from, scene, &mut dice)));
        }
        drop(shared);
        let mut its_dice = Dice::of_thread(round.seed, NR_POSTERS + 1);
        posters.push(scope.spawn(move || locals::torture(&mut its_dice)));
        if hostile::is_on() {
            let mut dice = Dice::of_thread(round.seed, NR_POSTERS);
            posters.push(scope.spawn(move || {
                for _ in 0..NR_HOSTILE {
                    hostile_task_work::torture(&mut dice);
                }
                watched("dropping what is hostile", hostile::clean_up);
            }));
        }
        let next = own(mailbox, end, &mut dice);
        for poster in posters {
            if let Err(payload) = poster.join() {
                assert!(Planned::is(&*payload), "a poster failed");
            }
        }
        next
    });
    let Scene { lives, accepted, .. } = scene;
    for (from, &nr_received) in next.iter().enumerate() {
        let nr_accepted = accepted[from].load(Ordering::Relaxed);
        match end {
            End::Never => assert_eq!(nr_received, nr_accepted, "poster {from} lost items"),
            _ => assert!(nr_received <= nr_accepted, "poster {from}"),
        }
        totals.nr_accepted += nr_accepted;
        totals.nr_received += nr_received;
    }
    lives.assert_none();
    totals.nr_dropped_owners += u64::from(matches!(end, End::Dropped(_)));
}

fn mailbox(config: &str, dice: &mut Dice) -> Mailbox<Item> {
    let mut builder = Mailbox::builder();
    builder = builder.keep(dice.pick(&[0, 40, 1024]));
    if config == "bounded" || dice.below(3) == 0 {
        builder = builder.capacity(dice.pick(&[1, 7, 100]));
    }
    if dice.below(2) == 0 {
        builder = builder.spin_limit(0);
    }
    builder.build()
}

fn post(poster: &Poster<Item>, from: usize, scene: &Scene<'_>, dice: &mut Dice) {
    let Scene { totals, lives, accepted } = scene;
    let nr_items = dice.below(MAX_ITEMS) as u64;
    let killed_at = if dice.below(4) == 0 { dice.below(MAX_ITEMS) as u64 } else { u64::MAX };
    let own = poster.clone();
    let mut poster = poster;
    let mut number = 0;
    while number < nr_items {
        if number >= killed_at {
            totals.nr_killed.fetch_add(1, Ordering::Relaxed);
            let mut batch = poster.batch();
            // The panic drops the item, so it is never posted.
            drop(batch.push(Item::new(from, number, lives)));
            Planned::panic();
        }
        let item = || Item::new(from, number, lives);
        let mut nr_posted = 1;
        let posted = match dice.below(12) {
            8 => poster.send_blocking(item()),
            9 => poster.send_timeout(item(), Duration::from_micros(dice.below(300) as u64)),
            10 => send_as_task(poster, item(), dice),
            11 => {
                let reply = poster.call(|to| Item { to: Some(to), ..item() });
                reply.map(|reply| await_answer(reply, number, totals, dice))
            }
            0..3 => poster.post(item()),
            3..6 => poster.post_lazy(item()),
            6 => batch(poster, from, number, lives, dice).map(|nr| nr_posted = nr),
            _ => {
                match dice.below(3) {
                    0 => thread::yield_now(),
                    1 => poster = &own,
                    _ => assert!(poster.same_as(&own)),
                }
                continue;
            }
        };
        match posted {
            Ok(()) => {
                number += nr_posted;
                accepted[from].store(number, Ordering::Relaxed);
            }
            Err(PostError::Full(item)) => {
                totals.nr_refused.fetch_add(1, Ordering::Relaxed);
                let is_ours = item.from == from && item.number >= number;
                assert!(is_ours, "the item of another thread was returned");
                thread::yield_now();
            }
            Err(error) => {
                totals.nr_refused.fetch_add(1, Ordering::Relaxed);
                assert!(poster.is_closed());
                assert_eq!(error.into_inner().number, number);
                return;
            }
        }
    }
}

/// Sends as a task that may cancel after a few polls.
fn send_as_task(poster: &Poster<Item>, item: Item, dice: &mut Dice) -> Result<(), PostError<Item>> {
    let mut send = poster.send(item);
    let nr_polls = dice.pick(&[0, 1, 3, usize::MAX]);
    for _ in 0..nr_polls {
        match Pin::new(&mut send).poll(&mut Context::from_waker(&unpark())) {
            Poll::Ready(sent) => return sent,
            Poll::Pending if nr_polls == usize::MAX => thread::park(),
            Poll::Pending => thread::yield_now(),
        }
    }
    send.take_back().map_or(Ok(()), |item| Err(PostError::Full(item)))
}

/// Waits for an answer in a random way, or does not wait.
fn await_answer(mut reply: Reply<u64>, number: u64, totals: &Totals, dice: &mut Dice) {
    let answer = match dice.below(4) {
        0 => return,
        1 => match reply.wait_timeout(Duration::from_micros(dice.below(300) as u64)) {
            Err(ReplyError::TimedOut) => return,
            answer => answer,
        },
        2 => block_on(&mut reply),
        _ => reply.wait(),
    };
    let count = match answer {
        Ok(answer) => {
            assert_eq!(answer, number, "the answer to another call");
            &totals.nr_answered
        }
        Err(error) => {
            assert_eq!(error, ReplyError::Lost);
            &totals.nr_lost
        }
    };
    count.fetch_add(1, Ordering::Relaxed);
}

/// Posts a few items with one swap, and returns their number.
fn batch(
    poster: &Poster<Item>,
    from: usize,
    first: u64,
    lives: &Arc<Lives>,
    dice: &mut Dice,
) -> Result<u64, PostError<Item>> {
    let mut batch = poster.batch();
    let len = 1 + dice.below(50) as u64;
    for number in first..first + len {
        if let Err(full) = batch.push(Item::new(from, number, lives)) {
            if batch.is_empty() {
                return Err(full);
            }
            break;
        }
    }
    let len = batch.len() as u64;
    let posted = if dice.below(2) == 0 { batch.post() } else { batch.post_lazy() };
    match posted {
        Ok(()) => Ok(len),
        Err(closed) => {
            // All items are returned, in order.
            let mut items = batch.collect::<Vec<_>>();
            assert!(items.iter().map(|item| item.number).eq(first..first + len));
            Err(closed.map(|()| items.swap_remove(0)))
        }
    }
}

/// Runs the owner. Returns the number of items received from each poster.
fn own(mut mailbox: Mailbox<Item>, end: End, dice: &mut Dice) -> [u64; NR_POSTERS] {
    let mut next = [0; NR_POSTERS];
    let mut nr_received = 0;
    loop {
        match end {
            End::Dropped(at) if nr_received >= at => return next,
            End::Closes(at) if nr_received >= at => mailbox.close(),
            _ => {}
        }
        if sleep(&mut mailbox, dice) == Err(Closed) {
            break;
        }
        let mut budget = dice.pick(&[1, 5, 64, usize::MAX]);
        let lasts = || {
            budget -= 1;
            budget > 0
        };
        for item in mailbox.drain_while(lasts) {
            assert_eq!(next[item.from], item.number, "doubled, lost or out of order");
            next[item.from] += 1;
            nr_received += 1;
            if let Some(to) = item.to {
                match dice.below(8) {
                    0 => drop(to),
                    _ => drop(to.reply(item.number)),
                }
            }
            if end == End::Dropped(nr_received) {
                break;
            }
        }
        if dice.below(200) == 0 {
            // The owner may move to another thread.
            let mut dice = Dice::new(dice.bits());
            let other = thread::spawn(move || {
                let outcome = sleep(&mut mailbox, &mut dice);
                (mailbox, outcome)
            });
            let outcome;
            (mailbox, outcome) = other.join().expect("an owner failed");
            if outcome == Err(Closed) {
                break;
            }
        }
    }
    // A post that overlaps `close` may still arrive. After the end of the last poster none can.
    if end == End::Never {
        assert!(matches!(mailbox.try_recv(), Err(TryRecvError::Closed)));
    }
    next
}

/// Sleeps in a random way until there may be an item to receive.
fn sleep(mailbox: &mut Mailbox<Item>, dice: &mut Dice) -> Result<(), Closed> {
    let count = dice.pick(&[1, 2, 8, 32, 1000]);
    match dice.below(5) {
        0 => mailbox.wait(count),
        1 => mailbox.wait_timeout(count, Duration::from_micros(dice.below(300) as u64)).map(drop),
        2 => block_on(poll_fn(|context| mailbox.poll_ready(context, count))),
        3 => {
            let (first, linger) = (dice.pick(&[1, 2, 8]), dice.below(300) as u64);
            mailbox.wait_linger(first, count, Duration::from_micros(linger)).map(drop)
        }
        _ => {
            let armed = match mailbox.arm(1) {
                Err(_) if hostile::may(hostile::Act::Eventfd) => false,
                armed => armed.expect("an eventfd"),
            };
            if armed {
                let eventfd = mailbox.eventfd().expect("created by then");
                let fd = event::PollFd::from_borrowed_fd(eventfd, event::PollFlags::IN);
                event::poll(&mut [fd], None).expect("polling an eventfd");
            }
            mailbox.disarm();
            mailbox.clear();
            Ok(())
        }
    }
}

fn block_on<F: Future + Unpin>(mut future: F) -> F::Output {
    let waker = unpark();
    let mut context = Context::from_waker(&waker);
    park_until_ready(|| Pin::new(&mut future).poll(&mut context))
}
