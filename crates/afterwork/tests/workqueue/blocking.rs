//! Items that report that they block, and items that the manager finds blocked.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc,
};

use afterwork::{
    mailbox,
    wake::{EventCount, Parker},
    workqueue::{self, Workqueue},
};

use crate::support::*;

/// Runs an item on a pool of one CPU. It calls `wait`, which needs a later item to run.
fn another_runs_meanwhile<T: Send + 'static>(
    wait: impl FnOnce(mpsc::Receiver<()>) -> T + Send + 'static,
) {
    ends(move || {
        let queue = queue("blocking")
            .help(false)
            .build_in(&unwatched("1 core"))
            .unwrap();
        let (send, receive) = mpsc::channel();
        let waits = queue.spawn(move || wait(receive));
        let serves = queue.spawn(move || drop(send));
        waits.join().unwrap();
        serves.join().unwrap();
    });
}

#[test]
fn another_worker_runs_while_one_is_inside_blocking() {
    another_runs_meanwhile(|wait| workqueue::blocking(|| wait.recv().is_err()));
}

#[test]
fn another_worker_runs_while_one_is_inside_nested_blocking() {
    another_runs_meanwhile(|wait| {
        workqueue::blocking(|| workqueue::blocking(|| wait.recv().is_err()))
    });
}

#[test]
fn another_worker_runs_again_after_a_panic_inside_blocking() {
    another_runs_meanwhile(|wait| {
        let body = || workqueue::blocking(|| panic!("inside"));
        assert!(catch_unwind(AssertUnwindSafe(body)).is_err());
        workqueue::blocking(|| wait.recv().is_err())
    });
}

#[test]
fn a_wait_of_a_parker_inside_an_item_reports_itself() {
    ends(|| {
        let queue = queue("parker").help(false);
        let queue = queue.build_in(&unwatched("1 core")).unwrap();
        let (send, receive) = mpsc::channel();
        let waits = queue.spawn(move || {
            let mut parker = Parker::new();
            send.send(parker.unparker()).unwrap();
            parker.park();
        });
        let wakes = queue.spawn(move || receive.recv().unwrap().unpark());
        waits.join().unwrap();
        wakes.join().unwrap();
    });
}

#[test]
fn a_wait_of_an_event_count_inside_an_item_reports_itself() {
    static EVENT: EventCount = EventCount::new();
    static DONE: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
    use std::sync::atomic::Ordering::SeqCst;
    ends(|| {
        let queue = queue("event").help(false);
        let queue = queue.build_in(&unwatched("1 core")).unwrap();
        let waits = queue.spawn(|| EVENT.wait_until(|| DONE.load(SeqCst)));
        let wakes = queue.spawn(|| {
            DONE.store(true, SeqCst);
            EVENT.notify_all();
        });
        waits.join().unwrap();
        wakes.join().unwrap();
    });
}

#[test]
fn a_wait_of_a_mailbox_inside_an_item_reports_itself() {
    ends(|| {
        let queue = queue("mailbox").help(false);
        let queue = queue.build_in(&unwatched("1 core")).unwrap();
        let (send, receive) = mpsc::channel();
        let waits = queue.spawn(move || {
            let mut mailbox = mailbox::Mailbox::<u32>::new();
            let poster = mailbox.poster();
            send.send(poster).unwrap();
            mailbox.wait(1).unwrap();
        });
        let posts = queue.spawn(move || receive.recv().unwrap().post(7).unwrap());
        waits.join().unwrap();
        posts.join().unwrap();
    });
}

#[test]
fn waits_for_room_and_for_an_answer_inside_an_item_report_themselves() {
    ends(|| {
        let queue = queue("calls").help(false);
        let queue = queue.build_in(&unwatched("1 core")).unwrap();
        let mut mailbox = mailbox::Mailbox::builder().capacity(1).build();
        let poster = mailbox.poster();
        let waits = queue.spawn(move || {
            let first = poster.call(|to| to).unwrap();
            let (to, second) = mailbox::reply();
            poster.send_blocking(to).unwrap();
            (first.wait(), second.wait())
        });
        let answers = queue.spawn(move || {
            for answer in [1, 2] {
                mailbox.wait(1).unwrap();
                mailbox.try_recv().unwrap().reply(answer).unwrap();
            }
        });
        assert_eq!(waits.join().unwrap(), (Ok(1), Ok(2)));
        answers.join().unwrap();
    });
}

#[test]
fn blocking_on_a_thread_that_is_no_worker_calls_its_body() {
    assert_eq!(workqueue::blocking(|| workqueue::blocking(|| 42)), 42);
}

/// Blocks `count` items at once. Returns the most workers that run items at once after that.
fn most_at_once_after(queue: &Workqueue, count: usize) -> usize {
    let plugs: Vec<_> = (0..count)
        .map(|_| {
            let (plug, hole) = stopper();
            queue
                .spawn_detached(move || workqueue::blocking(|| hole.sit()))
                .unwrap();
            plug.wait_until_stuck();
            plug
        })
        .collect();
    plugs.iter().for_each(Plug::release);
    queue.drain().unwrap();
    // The surplus workers are parked or about to park, so the next items do not use them.
    let gauge = Gauge::default();
    for _ in 0..200 {
        let gauge = gauge.clone();
        queue
            .spawn_detached(move || gauge.within(std::thread::yield_now))
            .unwrap();
    }
    queue.drain().unwrap();
    gauge.most()
}

#[test]
fn a_pool_above_its_target_shrinks_by_lying_down() {
    ends(|| {
        let registry = unwatched("1 core");
        let queue = queue("shrinks").help(false).build_in(&registry).unwrap();
        assert!(most_at_once_after(&queue, 6) <= 1);
        let stats = registry.pool_stats().remove(0);
        assert!((6..=8).contains(&stats.nr_workers), "{stats:?}");
        eventually("all lie down", || {
            let stats = registry.pool_stats().remove(0);
            stats.nr_idle == stats.nr_workers
        });
    });
}

#[test]
fn a_worker_that_sleeps_without_a_word_is_found_and_counted() {
    ends(|| {
        let registry = registry("1 core");
        let queue = queue("found").help(false).build_in(&registry).unwrap();
        let plug = plug_into(&queue);
        // The joiner does not help, so a second worker ran the item.
        queue.spawn(|| ()).join().unwrap();
        plug.release();
        queue.drain().unwrap();
        let stats = registry.pool_stats().remove(0);
        assert!(stats.seen_asleep >= 1, "{stats:?}");
    });
}

#[test]
fn an_item_that_hogs_the_cpu_does_not_hold_up_its_pool() {
    ends(|| {
        let registry = registry("1 core");
        let queue = queue("hogs").help(false).build_in(&registry).unwrap();
        let (send, receive) = mpsc::channel::<()>();
        // Spins without sleeping until a later item has run.
        let hog = queue.spawn(move || {
            while let Err(mpsc::TryRecvError::Empty) = receive.try_recv() {
                std::hint::spin_loop();
            }
        });
        let behind = queue.spawn(move || drop(send));
        hog.join().unwrap();
        behind.join().unwrap();
        let stats = registry.pool_stats().remove(0);
        assert!(stats.cpu_intensive >= 1, "{stats:?}");
    });
}
