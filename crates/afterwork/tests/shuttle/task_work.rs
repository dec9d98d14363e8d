//! Mailboxes with more posters, more items and more kinds of waiting than loom can afford.

use crate::*;

const NR_RUNS: usize = 20_000;
const NR_POSTERS: usize = 4;
const NR_ITEMS: usize = 6;

type Item = (usize, usize);

/// Starts posters that post lazily, eagerly and in batches, each in a different rhythm.
fn start(mailbox: &Mailbox<Item>, nr_urgent: usize) -> Vec<thread::JoinHandle<()>> {
    let threads = (0..NR_POSTERS).map(|from| {
        let mut poster = mailbox.poster();
        if from < nr_urgent {
            poster = poster.urgent();
        }
        thread::spawn(move || {
            let mut batch = poster.batch();
            for number in 0..NR_ITEMS {
                match (number + from) % 4 {
                    0 => {
                        batch.post_lazy().unwrap();
                        poster.post((from, number)).unwrap();
                    }
                    1 => {
                        batch.post().unwrap();
                        poster.post_lazy((from, number)).unwrap();
                    }
                    _ => batch.push((from, number)).unwrap(),
                }
            }
            batch.post_lazy().unwrap();
        })
    });
    threads.collect()
}

fn check(next: &mut [usize; NR_POSTERS], (from, number): Item) {
    assert_eq!(next[from], number, "out of the order of poster {from}");
    next[from] += 1;
}

fn a_thread_owns(backlog: Backlog, keep: usize, nr_urgent: usize) {
    let mut mailbox = Mailbox::builder().backlog(backlog).keep(keep).build();
    let threads = start(&mailbox, nr_urgent);
    let mut next = [0; NR_POSTERS];
    let mut count = 0;
    // The count that the owner waits for rises and falls. The end of the last poster ends the loop.
    loop {
        count = count % 7 + 1;
        match mailbox.wait(count) {
            Ok(()) => mailbox.drain(count + 1).for_each(|item| check(&mut next, item)),
            Err(Closed) => break,
        }
    }
    assert_eq!(next, [NR_ITEMS; NR_POSTERS]);
    join_all(threads);
}

fn a_task_owns() {
    struct Runner(Unparker);
    impl Wake for Runner {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let mut parker = Parker::new();
    let waker = Waker::from(Arc::new(Runner(parker.unparker())));
    let cx = &mut Context::from_waker(&waker);
    let mut mailbox = Mailbox::new();
    let threads = start(&mailbox, 0);
    let mut next = [0; NR_POSTERS];
    loop {
        match mailbox.poll_ready(cx, 5) {
            Poll::Ready(Ok(())) => mailbox.drain(6).for_each(|item| check(&mut next, item)),
            Poll::Ready(Err(Closed)) => break,
            Poll::Pending => {
                thread::yield_now();
                parker.park();
            }
        }
    }
    assert_eq!(next, [NR_ITEMS; NR_POSTERS]);
    join_all(threads);
}

fn the_owner_ends_in_the_middle() {
    let alive = Arc::new(());
    let mut mailbox = Mailbox::builder().capacity(4).build();
    let (poster, item) = (mailbox.poster(), alive.clone());
    let threads = spawn_each(3, move |_| {
        (0..3).for_each(|_| drop(poster.post(item.clone())));
        poster.clone()
    });
    mailbox.wait(2).unwrap();
    drop(mailbox.try_recv());
    drop(mailbox);
    let posters = join_all(threads);
    assert_eq!(Arc::strong_count(&alive), 1, "an item remains in a dead queue");
    drop(posters);
}

/// Threads and tasks wait for capacity or cancel. The owner waits for more than the capacity.
fn posters_wait_for_capacity(capacity: usize) {
    let mut mailbox = Mailbox::builder().capacity(capacity).build();
    let poster = mailbox.poster();
    let senders = spawn_each(3, move |from| {
        let cx = &mut Context::from_waker(Waker::noop());
        let mut number = 0;
        while number < 3 {
            let item = (from, number);
            let is_in = match (from + number) % 3 {
                0 => poster.send_blocking(item).is_ok(),
                1 => poster.post_lazy(item).is_ok(),
                _ => {
                    let mut send = poster.send(item);
                    Pin::new(&mut send).poll(cx).is_ready() || send.take_back().is_none()
                }
            };
            number += usize::from(is_in);
            if !is_in {
                thread::yield_now();
            }
        }
    });
    let mut next = [0; NR_POSTERS];
    while mailbox.wait(capacity + 1).is_ok() {
        mailbox.drain(2).for_each(|item| check(&mut next, item));
    }
    assert_eq!(next[..3], [3; 3]);
    join_all(senders);
}

models! {
    fn task_is_woken_for_all_items_and_receives_them_in_order() =
        shuttle::check_random(a_task_owns, NR_RUNS);
    fn no_item_outlives_its_owner() = explore(NR_RUNS, the_owner_ends_in_the_middle);
    fn waiting_senders_are_admitted_in_order() =
        explore(NR_RUNS / 2, || posters_wait_for_capacity(1)),
        explore(NR_RUNS / 2, || posters_wait_for_capacity(2));
    fn thread_is_woken_for_all_items_and_receives_them_in_order() =
        shuttle::check_random(|| a_thread_owns(Backlog::Fifo, 2, 0), NR_RUNS),
        shuttle::check_pct(|| a_thread_owns(Backlog::Fifo, 0, 0), NR_RUNS, 3);
    fn lifo_backlog_keeps_the_same_promises() =
        shuttle::check_random(|| a_thread_owns(Backlog::Lifo, 2, 0), NR_RUNS);
    fn a_thread_receives_both_lanes_and_is_woken_for_all_of_it() =
        shuttle::check_random(|| a_thread_owns(Backlog::Fifo, 2, 2), NR_RUNS / 2),
        shuttle::check_random(|| a_thread_owns(Backlog::Lifo, 0, 2), NR_RUNS / 4);
}
