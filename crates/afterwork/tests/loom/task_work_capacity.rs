//! Waits for capacity or for an answer, and an owner that lingers: no waiter is forgotten.

use crate::support::*;

fn full(capacity: usize) -> (Careful<Mailbox<usize>>, Careful<Poster<usize>>) {
    let (mailbox, poster) = bound(capacity);
    (0..capacity).for_each(|number| poster.post_lazy(number).unwrap());
    (mailbox, poster)
}

fn bound(capacity: usize) -> (Careful<Mailbox<usize>>, Careful<Poster<usize>>) {
    let mailbox = Mailbox::builder().keep(0).capacity(capacity).build();
    let poster = mailbox.poster();
    (Careful::new(mailbox), Careful::new(poster))
}

fn another(poster: &Poster<usize>) -> Careful<Poster<usize>> {
    Careful::new(poster.clone())
}

fn receive(mailbox: &mut Mailbox<usize>) -> usize {
    mailbox.wait(1).unwrap();
    mailbox.try_recv().unwrap()
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn one_waits() {
    let (mut mailbox, poster) = full(1);
    let sender = spawn(move || {
        poster.send_blocking(1).unwrap();
        poster
    });
    assert_eq!(receive(&mut mailbox), 0);
    assert_eq!(receive(&mut mailbox), 1);
    drop(sender.join().unwrap());
}

fn two_wait() {
    let (mut mailbox, poster) = full(1);
    let mut first = poster.send(1);
    assert!(poll(&mut first).is_pending());
    let other = another(&poster);
    let sender = spawn(move || {
        other.send_blocking(2).unwrap();
        other
    });
    let received = [(); 3].map(|()| receive(&mut mailbox));
    assert_eq!(received, [0, 1, 2]);
    assert_eq!(poll(&mut first), Poll::Ready(Ok(())));
    drop(sender.join().unwrap());
}

/// One of two waiters cancels, possibly too late.
fn one_send_is_dropped() {
    let (mut mailbox, poster) = full(1);
    let other = another(&poster);
    let quitter = spawn(move || {
        let mut send = other.send(1);
        let is_in = poll(&mut send).is_ready();
        // Either the item is taken back or it is in the mailbox, never both.
        !is_in && send.take_back().is_some()
    });
    assert_eq!(receive(&mut mailbox), 0);
    let is_back = quitter.join().unwrap();
    // The wait queue is usable after a waiter has left it.
    let mut expected = vec![1; usize::from(!is_back)];
    if is_back {
        poster.post(2).unwrap();
        expected.push(2);
    }
    assert!(mailbox.drain(9).eq(expected));
}

fn post_races_with_a_waiter() {
    let (mut mailbox, poster) = full(1);
    let mut send = poster.send(1);
    assert!(poll(&mut send).is_pending());
    let other = another(&poster);
    let pusher = spawn(move || other.post_lazy(9));
    assert_eq!(mailbox.try_recv(), Ok(0));
    assert_eq!(pusher.join().unwrap(), Err(PostError::Full(9)));
    assert_eq!(poll(&mut send), Poll::Ready(Ok(())));
    assert_eq!(mailbox.try_recv(), Ok(1));
}

fn the_owner_ends(closes: bool) {
    let (mut mailbox, poster) = full(1);
    let sender = spawn(move || (poster.send_blocking(1), poster));
    if closes {
        mailbox.close();
    }
    let _ = mailbox.try_recv();
    if !closes {
        drop(mailbox);
    }
    let (sent, _poster) = sender.join().unwrap();
    assert!(matches!(sent, Err(PostError::Closed(1)) | Ok(())));
}

/// A sender must wake an owner that waits for more than the free capacity allows.
fn owner_awaits_more_than_the_capacity() {
    let (mut mailbox, poster) = bound(2);
    let mut held = Careful::new(poster.batch());
    held.push(9).unwrap();
    poster.post_lazy(0).unwrap();
    let other = another(&poster);
    let sender = spawn(move || other.send_blocking(1).unwrap());
    mailbox.wait(2).unwrap();
    assert_eq!(mailbox.try_recv(), Ok(0));
    sender.join().unwrap();
    assert_eq!(mailbox.try_recv(), Ok(1));
}

/// All capacity is reserved, and a sender waits. Then part of the reservation is posted lazily.
fn lazy_post_while_a_sender_waits() {
    let (mut mailbox, poster) = bound(2);
    let [mut first, mut held] = [0, 9].map(|number| {
        let mut batch = poster.batch();
        batch.push(number).unwrap();
        Careful::new(batch)
    });
    let mut send = poster.send(1);
    assert!(poll(&mut send).is_pending());
    let owner = spawn(move || {
        mailbox.wait(2).unwrap();
        assert_eq!(mailbox.try_recv(), Ok(0));
        mailbox
    });
    first.post_lazy().unwrap();
    let mut mailbox = owner.join().unwrap();
    assert_eq!(poll(&mut send), Poll::Ready(Ok(())));
    assert_eq!(mailbox.try_recv(), Ok(1));
    assert_eq!(held.next(), Some(9));
}

/// A caller waits for an answer while the owner gives it, or ends with the call in its mailbox.
fn a_call(answers: bool) {
    let builder = Mailbox::<ReplyTo<usize>>::builder().keep(0);
    let mut mailbox = Careful::new(builder.build());
    let poster = Careful::new(mailbox.poster());
    let caller = spawn(move || {
        let Ok(reply) = poster.call(|to| to) else {
            return Err(ReplyError::Lost);
        };
        reply.wait()
    });
    if answers {
        mailbox.wait(1).unwrap();
        mailbox.try_recv().unwrap().reply(7).unwrap();
        assert_eq!(caller.join().unwrap(), Ok(7));
    } else {
        drop(mailbox);
        assert_eq!(caller.join().unwrap(), Err(ReplyError::Lost));
    }
}

fn the_caller_ends() {
    let (to, reply) = afterwork::mailbox::reply();
    let token = Arc::new(());
    let owner = spawn_with(token.clone(), move |theirs| drop(to.reply(theirs)));
    drop(reply);
    owner.join().unwrap();
    assert_eq!(Arc::strong_count(&token), 1);
}

/// An owner lingers while a poster posts. The first sleep is for one item, the second for both.
fn a_linger(eager: bool) {
    let mut mailbox = Careful::new(Mailbox::builder().keep(0).build());
    let poster = Careful::new(mailbox.poster());
    let thread = spawn(move || {
        poster.post_lazy(0).unwrap();
        let post = if eager { Poster::post } else { Poster::post_lazy };
        post(&poster, 1).unwrap();
        poster
    });
    // In a model the wait never times out.
    assert_eq!(mailbox.wait_linger(1, 2, Duration::MAX), Ok(true));
    assert_eq!(mailbox.drain(2).count(), 2);
    drop(thread.join().unwrap());
}

models! {
    fn answer_is_recalled_or_dropped_with_its_caller() = bounded(3, the_caller_ends);
    fn waiting_send_gets_the_capacity_of_the_next_receipt() =
        bounded(3, one_waits).deadlocks_with(["capacity: no check after joining"]);
    fn capacity_passes_from_one_waiter_to_the_next() = bounded(2, two_wait);
    fn cancelled_send_admits_the_next_waiter() =
        bounded(3, one_send_is_dropped).detects(["capacity: an empty wait queue is awaited"]);
    fn post_does_not_take_capacity_from_a_waiting_sender() =
        bounded(3, post_races_with_a_waiter).detects(["capacity: a taker overtakes a waiter"]);
    fn the_owners_end_ends_every_wait() =
        bounded(3, || the_owner_ends(true))
            .deadlocks_with(["capacity: closing leaves the waiters asleep"]),
        bounded(3, || the_owner_ends(false));
    fn owner_does_not_sleep_while_a_sender_waits() =
        bounded(3, owner_awaits_more_than_the_capacity)
            .deadlocks_with(["capacity: waiting wakes no owner"]);
    fn lazy_post_wakes_the_owner_while_a_sender_waits() =
        bounded(3, lazy_post_while_a_sender_waits)
            .deadlocks_with(["capacity: a lazy post overlooks the waiters"]);
    fn caller_gets_the_answer_or_an_error() =
        bounded(3, || a_call(true)).deadlocks_with(["reply: given without a wake-up"]),
        bounded(3, || a_call(false)).deadlocks_with(["reply: a drop does not notify"]);
    fn no_post_is_missed_by_a_lingering_owner() =
        bounded(3, || a_linger(false)).deadlocks_with(["wait: no check after arming"]),
        bounded(3, || a_linger(true));
}
