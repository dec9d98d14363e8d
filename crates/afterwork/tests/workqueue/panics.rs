//! Panics in items, in destructors, and in the handler.

use crate::support::*;

#[test]
fn panics_do_not_cost_the_pool_its_workers() {
    let queue = queue("panics").alone();
    for _ in 0..100 {
        queue.detach(|| panic!("detached"));
        drop(queue.spawn(|| panic!("dropped")));
        queue.enqueue(&Work::new(|| panic!("reusable")));
    }
    assert_eq!(queue.drained().panicked, 300);
    assert_eq!(queue.spawn(|| 1).join().unwrap(), 1);
    (0..1000).for_each(|_| queue.detach(|| ()));
    queue.drain().unwrap();
}

#[test]
fn handler_gets_only_panics_without_a_joiner() {
    let log = Log::default();
    let queue = queue("named").on_panic(move |panic| {
        let text = panic.text().map(str::to_owned);
        let number = panic.payload.downcast_ref::<u32>().copied();
        assert_eq!(panic.queue, "named");
        assert!(panic.func.contains("handler_gets_only_panics_without_a_joiner"));
        log.push((text, number));
    });
    let queue = queue.alone();
    assert!(queue.spawn(|| panic!("joined")).join().is_err());
    assert_eq!(log.take(), []);
    queue.detach(|| panic!("detached"));
    queue.drain().unwrap();
    queue.set_max_active(1).unwrap();
    let plug = plug_into(&queue);
    drop(queue.spawn(|| panic!("dropped")));
    plug.release();
    queue.enqueue(&Work::new(|| panic_any(7_u32)));
    queue.drain().unwrap();
    drop(queue.spawn_async(async { panic!("future {}", 1) }));
    queue.drain().unwrap();
    let text = |text: &str| (Some(text.to_owned()), None);
    assert_eq!(log.take(), [text("detached"), text("dropped"), (None, Some(7)), text("future 1")]);
    assert_eq!(queue.stats().panicked, 5);
}

/// The strand is busy, so a closure may run before `spawn_detached` returns.
#[test]
fn each_panic_of_a_detached_closure_is_reported() {
    const NR_ROUNDS: usize = 2000;
    fn panics() {
        std::panic::resume_unwind(Box::new(()));
    }
    let count = Count::default();
    let queue = queue("detached").on_panic(move |_| count.add()).alone();
    let strand = queue.strand(());
    threads(2, |_| {
        for _ in 0..NR_ROUNDS {
            strand.spawn_detached(|()| panics()).unwrap();
            while strand.backlog() > 3 {
                std::hint::spin_loop();
            }
            let mut cancel = CancelHandle::default();
            queue.task().cancel_handle(&mut cancel).spawn_detached(panics).unwrap();
            queue.task().deadline(Instant::now() + HOUR).spawn_detached(panics).unwrap();
        }
    });
    assert_eq!(count.after_drain(&queue), 2 * 3 * NR_ROUNDS);
}

#[test]
fn a_panic_handler_may_panic() {
    let count = Count::default();
    let handler = move |_: &ItemPanic<'_>| {
        count.add();
        panic!("the handler too");
    };
    let queue = queue("handler").on_panic(handler).alone();
    for _ in 0..10 {
        queue.detach(|| panic!("detached"));
        queue.enqueue(&Work::new(|| panic!("reusable")));
        drop(queue.spawn(|| panic!("dropped")));
    }
    queue.drain().unwrap();
    assert!(count.get() >= 20, "{}", count.get());
    assert_eq!(queue.spawn(|| 1).join().unwrap(), 1);
}

#[test]
fn drops_that_panic_cost_no_worker() {
    let acts: [fn(&Workqueue); 3] = [
        // The drops of results panic.
        |queue| (0..20).for_each(|_| drop(queue.spawn(bomb))),
        // The drops of closures panic.
        |queue| {
            for i in 0..20 {
                let work = Work::new(owning(bomb()));
                queue.enqueue(&work);
                if i % 2 == 0 {
                    // The tombstone of the item stays in the list until a worker frees it.
                    work.cancel();
                }
            }
            for bomb in [(); 20].map(|()| bomb()) {
                queue.detach(move || drop(bomb));
            }
        },
        // The drops of payloads panic.
        |queue| {
            for _ in 0..10 {
                queue.detach(|| panic_any(bomb()));
                drop(queue.spawn(|| panic_any(bomb())));
                queue.enqueue(&Work::new(|| panic_any(bomb())));
            }
        },
    ];
    for act in acts {
        let (queue, plug) = queue("drops").max_active(1).plugged();
        act(&queue);
        plug.release_and_drain(&queue);
        assert_eq!(queue.spawn(|| 1).join().unwrap(), 1);
    }
}

/// Cancels an item, and checks that the canceller gets the panic from a drop.
fn cancel_panics<T>(mut handle: JoinHandle<T>) {
    let cancelled = catch_unwind(AssertUnwindSafe(|| handle.cancel()));
    assert!(cancelled.is_err(), "the canceller gets the panic");
    assert!(is_cancelled(handle.join()));
}

#[test]
fn items_leave_a_handle_and_a_worker_if_user_code_panics() {
    let paused = queue("cancel").capacity(1).paused();
    let [first, second] = [(); 2].map(|()| bomb());
    cancel_panics(paused.spawn_async(async move { drop(first) }));
    assert_eq!(free(&paused), Some(1));
    paused.resume_and_drain();
    let (queue, plug) = queue("cancel").max_active(1).plugged();
    cancel_panics(queue.spawn(move || {
        drop(second);
        vec![String::from("never")]
    }));
    let handle = polled(queue.spawn(|| 3), &waker(|| panic!("in a waker")));
    plug.release_and_drain(&queue);
    assert_eq!(handle.join().unwrap(), 3);
    assert_eq!(queue.spawn(|| 1).join().unwrap(), 1);
}

#[test]
fn an_item_keeps_the_payload_of_its_last_panic() {
    let (lives, queue) = (Census::default(), queue("payload").alone());
    let mut nr_runs = 0;
    let work = Work::new(move || {
        nr_runs += 1;
        if nr_runs != 3 {
            panic_any((nr_runs, lives.life()));
        }
    });
    let run = || _ = (queue.enqueue(&work), work.flush());
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
    drop((work, queue));
    lives.all_dropped(5);
}
