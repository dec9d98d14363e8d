//! Hostile users of mailboxes, next to the ordinary torture. Wakers and dropped items misbehave.
//!
//! An accepted item is received in order or dropped, and never twice.

use std::future::poll_fn;

use afterwork::mailbox::{Mailbox, Poster, ReplyTo};
use afterwork::rcu::qsbr::Reader;

use crate::support::hostile::{Act, Grenade, contained, dares, may, misbehave, poll_rudely};
use crate::support::*;

const NR_POSTERS: usize = 2;
const MAX_ITEMS: u64 = 60;
/// The longest sleep of an owner whose waker may have panicked instead of waking it.
const NAP: Duration = Duration::from_micros(200);

struct Parcel {
    from: usize,
    number: u64,
    grenade: Grenade,
    to: Option<ReplyTo<Grenade>>,
}

pub fn torture(dice: &mut Dice) {
    if dares(Act::Fork, dice, 16) {
        return fork(dice);
    }
    let mut builder = Mailbox::builder();
    if dice.below(3) == 0 {
        builder = builder.capacity(dice.pick(&[1, 7, 100]));
    }
    let mut mailbox = builder.build();
    thread::scope(|scope| {
        for from in 0..NR_POSTERS {
            let (poster, mut dice) = (mailbox.poster(), Dice::new(dice.bits()));
            // Dropping the last poster wakes the owner.
            let life = move || {
                let mut poster = poster;
                if dice.below(3) == 0 {
                    poster = poster.urgent();
                }
                post(&poster, from, &mut dice);
            };
            scope.spawn(|| contained(life));
        }
        let mut next = [0; NR_POSTERS];
        contained(|| own(&mut mailbox, &mut next, dice));
        match dice.below(3) {
            // The mailbox is dropped with its items, and later posts are rejected.
            0 => drop(contained(|| drop(mailbox))),
            1 => hostile::hide(dice, mailbox),
            _ => drop(contained(move || {
                let mut serve = |parcel: Parcel, _: &Reader| parcel.open(&mut next);
                // Without `close`, the owner would wait for hidden posters.
                mailbox.close();
                contained(|| mailbox.serve(8, &mut serve));
                drop(mailbox);
            })),
        }
    });
}

impl Parcel {
    /// Fails if the item is duplicated or out of order, then drops it.
    fn open(self, next: &mut [u64; NR_POSTERS]) {
        self.grenade.check();
        // A panic may have dropped some items, even while they were being posted.
        assert!(next[self.from] <= self.number, "doubled or out of order");
        next[self.from] = self.number + 1;
        if let Some(to) = self.to {
            drop(to.reply(self.grenade));
        }
    }
}

fn post(poster: &Poster<Parcel>, from: usize, dice: &mut Dice) {
    let parcel =
        |number, dice: &mut Dice| Parcel { from, number, grenade: Grenade::new(dice), to: None };
    let mut number = 0;
    while number < MAX_ITEMS {
        // A waker may panic here. Posted items stay posted.
        contained(|| match dice.below(7) {
            0 => drop(poster.post_lazy(parcel(number, dice))),
            1 => {
                let mut batch = poster.batch();
                for _ in 0..dice.below(5) {
                    drop(batch.push(parcel(number, dice)));
                    number += 1;
                }
                let _ = batch.post();
            }
            2 => {
                // The panic drops the batch, which is never posted.
                let mut batch = poster.batch();
                drop(batch.push(parcel(number, dice)));
                misbehave(dice);
            }
            3 => {
                let mut send = poster.send(parcel(number, dice));
                for _ in 0..dice.below(3) {
                    if poll_rudely(&mut send, dice).is_ready() {
                        return;
                    }
                }
                if dice.below(2) == 0 {
                    drop(send.take_back());
                }
            }
            4 => drop(poster.send_timeout(parcel(number, dice), NAP)),
            5 => {
                let call = |to| Parcel { to: Some(to), ..parcel(number, dice) };
                let Ok(mut reply) = poster.call(call) else {
                    return;
                };
                match dice.below(3) {
                    0 => hostile::hide(dice, reply),
                    1 => drop(reply.wait_timeout(NAP)),
                    _ => {
                        let polled = poll_rudely(&mut reply, dice);
                        contained(|| drop(reply));
                        drop(polled);
                    }
                }
            }
            _ => drop(poster.post(parcel(number, dice))),
        });
        number += 1;
        if dares(Act::Drop, dice, 16) {
            hostile::hide(dice, poster.clone());
        }
    }
}

fn own(mailbox: &mut Mailbox<Parcel>, next: &mut [u64; NR_POSTERS], dice: &mut Dice) {
    for _ in 0..dice.below(30) {
        match dice.below(4) {
            0 if may(Act::Waker) => {
                // The mailbox holds the last waker and drops it inside one of its operations.
                match poll_rudely(poll_fn(|context| mailbox.poll_ready(context, 1)), dice) {
                    Poll::Ready(Err(_)) => return,
                    Poll::Ready(Ok(())) => {}
                    Poll::Pending => thread::park_timeout(NAP),
                }
            }
            1 => drop(mailbox.wait_timeout(2, NAP)),
            // The first sleep has no time limit, so the mailbox must not be empty.
            3 if !mailbox.is_empty() => drop(mailbox.wait_linger(1, 4, NAP)),
            2 => {
                // The creation of the eventfd may fail.
                if let Ok(true) = mailbox.arm(1) {
                    thread::sleep(NAP);
                }
                mailbox.disarm();
            }
            _ => {}
        }
        let max = dice.pick(&[1, 5, usize::MAX]);
        let in_the_middle = may(Act::Panic) && dice.below(8) == 0;
        contained(|| {
            for parcel in mailbox.drain(max) {
                contained(|| parcel.open(next));
                if in_the_middle {
                    misbehave(dice);
                }
            }
        });
    }
}

/// In a child, posts to its parent's mailbox, which has no owner there, and to one of its own.
fn fork(dice: &mut Dice) {
    let inherited: Mailbox<Arc<u64>> = Mailbox::new();
    let poster = inherited.poster();
    let mut own = Dice::new(dice.bits());
    hostile::in_child("mailboxes", || {
        drop(poster.post(Arc::new(1)));
        let mut mailbox = Mailbox::new();
        let theirs = mailbox.poster();
        let other = hostile::start_anyhow(move || {
            for number in 0..MAX_ITEMS {
                assert!(theirs.post(number).is_ok(), "a child's mailbox is closed");
            }
        });
        let mut nr_received = 0;
        while mailbox.wait(1).is_ok() {
            for number in mailbox.drain(8) {
                assert_eq!(number, nr_received, "lost or out of order");
                nr_received += 1;
            }
        }
        assert_eq!(nr_received, MAX_ITEMS, "a child's mailbox lost items");
        drop(other.join());
        drop(inherited);
        hostile::misbehave_at_length(&mut own);
    });
}
