//! Closures that run once, and their handles.

use std::{
    any::Any,
    sync::{Arc, Barrier, mpsc},
};

use afterwork::workqueue::{AffinityScope, JoinError, Workqueue};

use crate::support::*;

#[test]
fn join_returns_what_the_closure_returned() {
    for help in [true, false] {
        let queue = alone_on_two(queue("join").help(help));
        for i in 0..2000 {
            assert_eq!(queue.spawn(move || i + 1).join().unwrap(), i + 1);
        }
        assert_eq!(queue.stats().helped > 0, help);
    }
}

#[test]
fn results_are_joined_in_any_order_and_from_any_thread() {
    let queue = alone_on_two(queue("join"));
    let mut handles: Vec<_> = (0..1000).map(|i| (i, queue.spawn(move || i))).collect();
    let theirs = handles.split_off(500);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for (i, handle) in theirs.into_iter().rev() {
                assert_eq!(handle.join().unwrap(), i);
            }
        });
        for (i, handle) in handles {
            assert_eq!(handle.join().unwrap(), i);
        }
    });
}

#[test]
fn try_join_gives_the_handle_back_until_the_end() {
    let queue = alone_on_two(queue("try"));
    let (plug, hole) = stopper();
    let mut handle = queue.spawn(move || hole.sit());
    plug.wait_until_stuck();
    assert!(handle.try_join().is_none(), "it still runs");
    assert!(!handle.is_finished());
    plug.release();
    eventually("it ends", || handle.is_finished());
    handle.try_join().expect("it has ended").unwrap();
}

#[test]
fn a_closure_is_cancelled_before_it_starts_and_dropped_at_once() {
    for ordered in [false, true] {
        let builder = if ordered {
            queue("cancel").ordered()
        } else {
            queue("cancel").max_active(1)
        };
        let queue = alone_on_two(builder);
        let plug = plug_into(&queue);
        let census = Census::default();
        let life = census.life();
        let mut handle = queue.spawn(move || drop(life));
        assert!(handle.cancel());
        assert_eq!(census.dropped(), 1);
        assert!(!handle.cancel());
        assert!(handle.is_finished());
        assert!(matches!(handle.join(), Err(JoinError::Cancelled)));
        plug.release();
        queue.drain().unwrap();
        census.all_dropped(1);
    }
}

#[test]
fn a_closure_that_runs_or_has_ended_is_not_cancelled() {
    let queue = alone_on_two(queue("cancel"));
    let (plug, hole) = stopper();
    let mut handle = queue.spawn(move || {
        hole.sit();
        5
    });
    plug.wait_until_stuck();
    assert!(!handle.cancel());
    plug.release();
    eventually("it ends", || handle.is_finished());
    assert!(!handle.cancel());
    assert_eq!(handle.join().unwrap(), 5);
}

#[test]
fn closure_and_result_are_dropped_once_whatever_becomes_of_the_handle() {
    let queue = alone_on_two(queue("drops"));
    let (closures, results) = (Census::default(), Census::default());
    const ROUNDS: usize = 500;
    for i in 0..ROUNDS {
        let (closure, result) = (closures.life(), results.life());
        let mut handle = queue.spawn(move || {
            drop(closure);
            result
        });
        match i % 6 {
            0 => drop(handle),
            1 => drop(handle.join().unwrap()),
            2 => drop(handle.cancel()),
            3 => {
                eventually("it ends", || handle.is_finished());
                drop(handle);
            }
            4 => drop(handle.try_join()),
            _ => {
                if !handle.cancel() {
                    drop(handle.join().unwrap());
                }
            }
        }
    }
    queue.drain().unwrap();
    closures.all_dropped(ROUNDS);
    results.all_dropped(ROUNDS);
}

#[test]
fn detached_closures_are_dropped_once() {
    let queue = alone_on_two(queue("detached"));
    let (census, count) = (Census::default(), Count::default());
    for _ in 0..2000 {
        let (life, count) = (census.life(), count.clone());
        queue
            .spawn_detached(move || {
                let _ = &life;
                count.add();
            })
            .unwrap();
    }
    queue.drain().unwrap();
    assert_eq!(count.get(), 2000);
    census.all_dropped(2000);
}

#[test]
fn closures_and_results_of_any_size_arrive_whole() {
    let queue = alone_on_two(queue("sizes"));
    fn check<const N: usize>(queue: &Workqueue) {
        let sent: [u8; N] = std::array::from_fn(|i| (i * 7 + N) as u8);
        let handle = queue.spawn(move || sent);
        assert!(handle.join().unwrap() == sent, "{N} bytes");
        let (send, receive) = mpsc::channel();
        queue
            .spawn_detached(move || send.send(sent.to_vec()).unwrap())
            .unwrap();
        assert!(
            receive.recv_timeout(PATIENCE).unwrap() == sent,
            "{N} bytes, detached"
        );
    }
    for _ in 0..20 {
        check::<0>(&queue);
        check::<1>(&queue);
        check::<16>(&queue);
        check::<17>(&queue);
        check::<80>(&queue);
        check::<207>(&queue);
        check::<208>(&queue);
        check::<209>(&queue);
        check::<256>(&queue);
        check::<257>(&queue);
        check::<5000>(&queue);
    }
    // A small closure with a large result, and the other way round.
    assert_eq!(queue.spawn(|| [3u64; 400]).join().unwrap(), [3; 400]);
    let large = [1u64; 400];
    assert_eq!(
        queue
            .spawn(move || large.iter().sum::<u64>())
            .join()
            .unwrap(),
        400
    );
}

#[test]
fn alignment_is_kept() {
    #[repr(align(128))]
    struct Wide(u8);
    #[repr(align(4096))]
    struct Page(u8);
    fn aligned<T>(at: &T) -> bool {
        std::ptr::from_ref(at)
            .addr()
            .is_multiple_of(align_of::<T>())
    }
    let queue = alone_on_two(queue("align"));
    for i in 0..100u8 {
        let wide = Wide(i);
        let handle = queue.spawn(move || {
            let wide = wide;
            assert!(aligned(&wide));
            (wide, Page(i))
        });
        let (wide, page) = handle.join().unwrap();
        assert_eq!((wide.0, page.0), (i, i));
        let wide = Wide(i);
        queue
            .spawn_detached(move || assert!(aligned(&wide) && wide.0 == i))
            .unwrap();
    }
    queue.drain().unwrap();
    assert_eq!(queue.stats().panicked, 0);
}

#[test]
fn types_without_size_or_value_are_results_too() {
    enum Never {}
    let queue = alone_on_two(queue("empty"));
    queue.spawn(|| ()).join().unwrap();
    let handle = queue.spawn(|| -> Never { panic!("never") });
    assert!(matches!(handle.join(), Err(JoinError::Panicked(_))));
}

#[test]
fn a_join_error_goes_where_errors_of_threads_go() {
    fn fails() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let queue = alone_on_two(queue("error"));
        // The payload of a panic need not be `Sync`.
        let payload = std::cell::Cell::new(1);
        queue
            .spawn(move || std::panic::panic_any(payload))
            .join()
            .map_err(Into::into)
    }
    let error = fails().unwrap_err();
    let Ok(error) = error.downcast::<JoinError>() else {
        panic!("another error");
    };
    let JoinError::Panicked(payload) = *error else {
        panic!("{error}");
    };
    assert_eq!(
        (payload.text(), payload.downcast_ref::<u64>()),
        (None, None)
    );
    assert!(payload.into_inner().is::<std::cell::Cell<i32>>());
}

#[test]
fn the_payload_of_a_panic_reaches_the_joiner() {
    for help in [true, false] {
        let queue = alone_on_two(queue("panics").help(help));
        fn payload(error: JoinError) -> Box<dyn Any + Send> {
            match error {
                JoinError::Panicked(payload) => payload.into_inner(),
                other => panic!("{other}"),
            }
        }
        let error = queue.spawn(|| panic!("a text")).join().unwrap_err();
        assert_eq!(error.to_string(), "the work item panicked: a text");
        let n = 7;
        let error = queue
            .spawn(move || panic!("number {n}"))
            .join()
            .unwrap_err();
        assert_eq!(error.to_string(), "the work item panicked: number 7");
        let error = queue
            .spawn(|| std::panic::panic_any(41u64))
            .join()
            .unwrap_err();
        assert_eq!(error.to_string(), "the work item panicked");
        assert_eq!(payload(error).downcast_ref::<u64>(), Some(&41));
        let error = queue.spawn(|| panic!("on")).join().unwrap_err();
        let gone_on =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| error.resume_unwind()));
        assert_eq!(gone_on.unwrap_err().downcast_ref::<&str>(), Some(&"on"));
        assert_eq!(queue.stats().panicked, 4);
    }
}

#[test]
fn a_closure_that_joins_itself_is_told_so() {
    ends(|| {
        let queue = alone_on_two(queue("own"));
        let (give, take) = mpsc::channel::<afterwork::workqueue::JoinHandle<()>>();
        let (send, receive) = mpsc::channel();
        let handle = queue.spawn(move || {
            let own = take.recv().unwrap();
            send.send(own.join().unwrap_err().to_string()).unwrap();
        });
        give.send(handle).unwrap();
        let said = receive.recv_timeout(PATIENCE).unwrap();
        assert_eq!(said, "a work item cannot join itself");
        queue.drain().unwrap();
    });
}

#[test]
fn a_hundred_thousand_one_shots_from_threads_that_end_leave_nothing_behind() {
    let queue = queue("many")
        .affinity(AffinityScope::Cpu)
        .build_in(&registry("64 core"))
        .unwrap();
    let (closures, results) = (Census::default(), Census::default());
    // The threads of each round inherit the item memory of earlier threads.
    for _ in 0..5 {
        let barrier = Barrier::new(4);
        threads(4, |i| {
            pin(i);
            barrier.wait();
            let mut kept = Vec::new();
            for n in 0..5000 {
                let (closure, result) = (closures.life(), results.life());
                let handle = queue.spawn(move || {
                    drop(closure);
                    result
                });
                if n % 10 == 0 {
                    kept.push(handle);
                }
            }
            for handle in kept {
                drop(handle.join().unwrap());
            }
        });
    }
    queue.drain().unwrap();
    closures.all_dropped(100_000);
    results.all_dropped(100_000);
    assert!(queue.stats().started <= 100_000);
}

#[test]
fn handles_outlive_their_queue() {
    let queue = alone_on_two(queue("gone"));
    let handles: Vec<_> = (0..100).map(|i| queue.spawn(move || Arc::new(i))).collect();
    drop(queue);
    for (i, handle) in handles.into_iter().enumerate() {
        assert_eq!(*handle.join().unwrap(), i);
    }
}

#[test]
fn many_closures_are_queued_in_their_order_and_each_runs_once() {
    let queue = alone_on_two(queue("all").ordered());
    let (send, receive) = mpsc::channel();
    // Full chains, a partial one, and none.
    for count in [0, 1, 63, 64, 65, 1000] {
        let funcs = (0..count).map(|i| {
            let send = send.clone();
            move || send.send(i).unwrap()
        });
        assert_eq!(queue.task().spawn_detached_all(funcs), count);
        queue.drain().unwrap();
        assert!(receive.try_iter().eq(0..count));
    }
}

#[test]
fn what_was_given_before_a_panic_of_the_giver_runs() {
    let queue = alone_on_two(queue("all"));
    let census = Census::default();
    let funcs = (0..100).map(|i| {
        assert!(i < 70, "no more");
        let life = census.life();
        move || drop(life)
    });
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        queue.task().spawn_detached_all(funcs)
    }));
    assert!(caught.is_err());
    queue.drain().unwrap();
    assert_eq!(queue.stats().completed, 70);
    census.all_dropped(70);
}

#[test]
fn of_many_closures_a_full_queue_takes_what_it_has_room_for() {
    let queue = alone_on_two(queue("all").capacity(3));
    queue.pause();
    assert_eq!(queue.task().spawn_detached_all((0..10).map(|_| || ())), 3);
    assert_eq!((queue.stats().nr_inactive, queue.stats().refused), (3, 7));
    queue.resume();
    queue.drain().unwrap();
}

#[test]
fn of_many_closures_none_comes_after_the_end_of_a_queue_that_their_giver_destroys() {
    let queue = alone_on_two(queue("all"));
    let census = Census::default();
    let funcs = (0..100).map(|i| {
        if i == 70 {
            queue.destroy().unwrap();
        }
        let life = census.life();
        move || drop(life)
    });
    // The first chain was queued before the queue was destroyed. The items that were collected
    // since are rejected, as later ones are.
    assert_eq!(queue.task().spawn_detached_all(funcs), 64);
    let stats = queue.stats();
    assert_eq!((stats.completed, stats.refused), (64, 36));
    census.all_dropped(100);
}
