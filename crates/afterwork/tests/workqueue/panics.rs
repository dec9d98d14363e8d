//! Panics in items, in destructors, and in the handler.

use std::sync::{Arc, Mutex};

use afterwork::workqueue::{JoinError, Work, schedule_on_each_cpu};

use crate::support::*;

/// Panics when it is dropped, unless its thread is panicking.
struct Grenade;

impl Drop for Grenade {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("in a drop");
        }
    }
}

#[test]
fn panics_do_not_cost_the_pool_its_workers() {
    let queue = alone_on_two(queue("panics"));
    for _ in 0..100 {
        queue.spawn_detached(|| panic!("detached")).unwrap();
        drop(queue.spawn(|| panic!("dropped")));
        queue.enqueue(&Work::new(|| panic!("reusable")));
    }
    queue.drain().unwrap();
    assert_eq!(queue.stats().panicked, 300);
    assert_eq!(queue.spawn(|| 1).join().unwrap(), 1);
    let gauge = Gauge::default();
    for _ in 0..1000 {
        let gauge = gauge.clone();
        queue.spawn_detached(move || gauge.within(|| ())).unwrap();
    }
    queue.drain().unwrap();
}

#[test]
fn the_handler_hears_of_panics_that_no_joiner_sees_and_of_no_other() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hears = heard.clone();
    let queue = queue("named").on_panic(move |panic| {
        let text = panic.text().map(str::to_owned);
        let number = panic.payload.downcast_ref::<u32>().copied();
        let here = panic.func.contains("the_handler_hears_of_panics");
        let heard = (panic.queue.to_owned(), text, number, here);
        hears.lock().unwrap().push(heard);
    });
    let queue = alone_on_two(queue);
    assert!(queue.spawn(|| panic!("joined")).join().is_err());
    assert!(heard.lock().unwrap().is_empty());
    queue.spawn_detached(|| panic!("detached")).unwrap();
    queue.drain().unwrap();
    let plug = {
        queue.set_max_active(1).unwrap();
        plug_into(&queue)
    };
    drop(queue.spawn(|| panic!("dropped")));
    plug.release();
    queue.enqueue(&Work::new(|| std::panic::panic_any(7_u32)));
    queue.drain().unwrap();
    let future = async { panic!("future {}", 1) };
    drop(queue.spawn_async(future));
    queue.drain().unwrap();
    let reported = |text: Option<&str>, number| {
        let text = text.map(str::to_owned);
        ("named".to_owned(), text, number, true)
    };
    let expected = [
        reported(Some("detached"), None),
        reported(Some("dropped"), None),
        reported(None, Some(7)),
        reported(Some("future 1"), None),
    ];
    assert_eq!(*heard.lock().unwrap(), expected);
    assert_eq!(queue.stats().panicked, 5);
}

#[test]
fn a_handler_that_panics_itself_does_no_harm() {
    ends(|| {
        let count = Count::default();
        let calls = count.clone();
        let queue = alone_on_two(queue("handler").on_panic(move |_| {
            calls.add();
            panic!("the handler too");
        }));
        for _ in 0..10 {
            queue.spawn_detached(|| panic!("detached")).unwrap();
            queue.enqueue(&Work::new(|| panic!("reusable")));
            drop(queue.spawn(|| panic!("dropped")));
        }
        queue.drain().unwrap();
        assert!(count.get() >= 20, "{}", count.get());
        assert_eq!(queue.spawn(|| 1).join().unwrap(), 1);
    });
}

#[test]
fn a_result_whose_drop_panics_does_not_cost_a_worker() {
    ends(|| {
        let queue = alone_on_two(queue("drops").max_active(1));
        let plug = plug_into(&queue);
        for _ in 0..20 {
            drop(queue.spawn(|| Grenade));
        }
        plug.release();
        queue.drain().unwrap();
        assert_eq!(queue.spawn(|| 1).join().unwrap(), 1);
    });
}

#[test]
fn a_closure_whose_drop_panics_does_not_cost_a_worker() {
    ends(|| {
        let queue = alone_on_two(queue("drops").max_active(1));
        let plug = plug_into(&queue);
        for i in 0..20 {
            let grenade = Grenade;
            let work = Work::new(move || {
                let _ = &grenade;
            });
            queue.enqueue(&work);
            if i % 2 == 0 {
                // The tombstone of the item stays in the list until a worker frees it.
                work.cancel();
            }
        }
        for _ in 0..20 {
            let grenade = Grenade;
            queue.spawn_detached(move || drop(grenade)).unwrap();
        }
        plug.release();
        queue.drain().unwrap();
        assert_eq!(queue.spawn(|| 1).join().unwrap(), 1);
    });
}

#[test]
fn a_payload_whose_drop_panics_does_not_cost_a_worker() {
    ends(|| {
        let queue = alone_on_two(queue("payloads").max_active(1));
        let plug = plug_into(&queue);
        for _ in 0..10 {
            queue
                .spawn_detached(|| std::panic::panic_any(Grenade))
                .unwrap();
            drop(queue.spawn(|| std::panic::panic_any(Grenade)));
            queue.enqueue(&Work::new(|| std::panic::panic_any(Grenade)));
        }
        plug.release();
        queue.drain().unwrap();
        assert_eq!(queue.spawn(|| 1).join().unwrap(), 1);
    });
}

#[test]
fn a_closure_whose_drop_panics_when_it_is_cancelled_leaves_a_cancelled_handle() {
    let queue = alone_on_two(queue("cancel").max_active(1));
    let plug = plug_into(&queue);
    let grenade = Grenade;
    let mut handle = queue.spawn(move || {
        drop(grenade);
        vec![String::from("never")]
    });
    let cancelled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| handle.cancel()));
    assert!(cancelled.is_err(), "the panic belongs to who cancels");
    assert!(matches!(handle.join(), Err(JoinError::Cancelled)));
    plug.release();
    queue.drain().unwrap();
}

#[test]
fn a_future_whose_drop_panics_when_cancelled_leaves_a_handle() {
    let queue = alone_on_two(queue("cancel").capacity(1));
    queue.pause();
    let grenade = Grenade;
    let mut handle = queue.spawn_async(async move { drop(grenade) });
    let cancelled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| handle.cancel()));
    assert!(cancelled.is_err(), "the canceller gets the panic");
    assert_eq!(queue.report().nr_free, Some(1));
    assert!(matches!(handle.join(), Err(JoinError::Cancelled)));
    queue.resume();
    queue.drain().unwrap();
}

#[test]
fn a_waker_that_panics_does_not_cost_a_worker() {
    use std::{
        future::Future,
        pin::pin,
        task::{Context, Wake, Waker},
    };
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("in a waker");
        }
    }
    ends(|| {
        let queue = alone_on_two(queue("wakers").max_active(1));
        let plug = plug_into(&queue);
        let waker = Waker::from(Arc::new(Panics));
        let mut handle = queue.spawn(|| 3);
        assert!(
            pin!(&mut handle)
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        plug.release();
        queue.drain().unwrap();
        assert_eq!(handle.join().unwrap(), 3);
        assert_eq!(queue.spawn(|| 1).join().unwrap(), 1);
    });
}

#[test]
fn an_item_keeps_what_its_last_panic_carried_until_somebody_asks() {
    ends(|| {
        let lives = Census::default();
        let queue = alone_on_two(queue("payload"));
        let (mut nr_runs, life) = (0, lives.clone());
        let work = Work::new(move || {
            nr_runs += 1;
            if nr_runs != 3 {
                std::panic::panic_any((nr_runs, life.life()));
            }
        });
        let run = || {
            queue.enqueue(&work);
            let _ = work.flush();
        };
        let last = || {
            let payload = work.last_panic()?.into_inner();
            Some(payload.downcast::<(i32, Life)>().unwrap().0)
        };
        assert_eq!(last(), None);
        run();
        assert_eq!((last(), last()), (Some(1), None));
        run();
        run();
        assert_eq!(last(), Some(2), "a run that returns takes nothing back");
        run();
        run();
        assert_eq!(lives.alive(), 1, "the one before is dropped");
        assert_eq!(last(), Some(5));
        run();
        drop(work);
        drop(queue);
        lives.all_dropped(5);
    });
}

#[test]
fn of_the_panics_on_all_cpus_the_first_is_told_though_the_others_panic_when_they_are_dropped() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("a payload's drop");
        }
    }
    let all = schedule_on_each_cpu(|_| std::panic::panic_any(Bomb));
    let first: JoinError = all.unwrap_err().downcast().unwrap();
    assert!(matches!(first, JoinError::Panicked(_)));
    let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(first)));
    assert!(dropped.is_err());
}
