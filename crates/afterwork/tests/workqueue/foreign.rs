//! User code on the library's threads that panics or blocks: items, destructors, handlers, sources.

use crate::support::*;

/// Fails unless the manager creates a worker for a pool that has none, and fires timers.
fn assert_managed(registry: &Registry) {
    let (queue, fired) = (queue("later").nice(7).help(false).on(registry), Count::default());
    let timed = DelayedWork::new(fired.adder());
    assert!(queue.enqueue_after(&timed, MS));
    wait_until(|| fired.get() == 1);
}

/// Leaves `owned` to the registry, which must not drop it on a service thread. A delayed item
/// without handles owns it, and the item's queue is destroyed by one of its own items.
fn forget_armed(registry: &Registry, owned: impl Send + 'static) {
    let timers = queue("timers").on(registry);
    arm_for_an_hour(&timers, owned);
    let plug = plug_of_owner(&timers);
    drop(timers);
    plug.release();
}

#[test]
fn the_drop_of_a_timed_item_may_panic_or_wait_for_a_worker() {
    let (registry, dropped) = (registry("2 core"), Count::default());
    forget_armed(&registry, (at_drop(dropped.adder()), bomb()));
    wait_until(|| dropped.get() == 1);
    assert_managed(&registry);
    // It may also wait for a new worker.
    let (dropped, busy) = (Count::default(), queue("busy").on(&registry));
    let (plug, ended) = needs_a_worker_once_released(&registry, &busy);
    // A tuple drops its fields in this order.
    forget_armed(&registry, (at_drop(dropped.adder()), busy));
    wait_until(|| dropped.get() == 1);
    plug.release();
    wait_until(|| ended.get() == 1);
    assert_managed(&registry);
}

#[test]
fn a_timed_item_without_a_queue_delays_no_other_item() {
    const SLACK: Duration = Duration::from_millis(20);
    let registry = registry("2 core");
    let (gone, fired) = (queue("gone").on(&registry), Log::default());
    let forgotten = DelayedWork::new(|| ()).with_slack(SLACK);
    assert!(gone.enqueue_after(&forgotten, SLACK));
    // The timers expire at the same time, and each one belongs to a pool without workers.
    let arm = |nice| {
        let queue = queue("live").nice(nice).help(false).on(&registry);
        let timed = DelayedWork::new(fired.note(nice)).with_slack(SLACK);
        assert!(queue.enqueue_after(&timed, SLACK));
        (queue, timed)
    };
    let live = Vec::from_iter((1..8).map(arm));
    drop((gone, forgotten));
    let mut seen = BTreeSet::new();
    wait_until(|| {
        seen.extend(fired.take());
        seen.len() == live.len()
    });
    assert!(seen.into_iter().eq(1..8));
}

/// Blocks an item on `busy`. Once released, it waits for a new worker and then counts its end.
fn needs_a_worker_once_released(registry: &Registry, busy: &Workqueue) -> (Plug, Count) {
    let third = queue("third").nice(3).help(false).on(registry);
    let ended = Count::default();
    let waits = |hole: Hole| {
        busy.detach(move || {
            hole.sit();
            third.spawn(|| ()).join().unwrap();
            ended.add();
        });
    };
    (stuck(waits).1, ended)
}

#[test]
fn workers_start_while_locals_of_a_culled_one_wait() {
    let (registry, first) = queue("first").on_own(tuned("2 core", |it| it.idle_timeout_ms = 1));
    let second = queue("second").nice(4).help(false).on(&registry);
    // Creates six workers at once, so that some are culled.
    let (all_in, ended) = (Shared::new(Barrier::new(6)), Count::default());
    for second in vec![second; 6] {
        first.detach(move || {
            drop_at_exit(at_drop(move || {
                second.spawn(|| ()).join().unwrap();
                ended.add();
            }));
            blocking(|| all_in.wait());
        });
    }
    wait_until(|| ended.get() > 0);
    assert_managed(&registry);
}

#[test]
fn a_source_that_panics_is_called_again() {
    let (asked, machine) = (Count::default(), Topology::synthetic("2 core").unwrap());
    let params = Params { topology_refresh_ms: 1, ..Params::default() };
    let registry = Registry::watching(machine, params, move || {
        asked.add();
        panic!("cannot read the machine now");
    });
    let registry = registry.unwrap();
    assert!(!registry.refresh_topology() && asked.get() == 1);
    let queue = queue("waits").on(&registry);
    // The manager reads the source while items wait for a worker.
    wait_until(|| {
        (0..4).for_each(|_| queue.detach(|| thread::sleep(2 * MS)));
        asked.get() >= 3
    });
    assert_managed(&registry);
}

#[test]
fn handlers_are_dropped_once_and_may_set_another() {
    let registry = registry("2 core");
    let (again, dropped) = (registry.clone(), Count::default());
    let first = at_drop(move || {
        again.on_report(|_| ());
        dropped.add();
        panic!("dropped");
    });
    registry.on_report(move |_| _ = &first);
    registry.on_report(|_| ());
    assert_eq!(dropped.get(), 1);
    // A worker may drop the last reference to a queue's core.
    let dropped = Count::default();
    let handler = (at_drop(dropped.adder()), bomb());
    let queue = queue("handled").on_panic(move |_| _ = &handler).alone();
    let kept: Arc<Mutex<Option<Waker>>> = Arc::default();
    let keeps = kept.clone();
    let ended = queue.spawn_async(poll_fn(move |context| {
        *keeps.lock().unwrap() = Some(context.waker().clone());
        Poll::Ready(())
    }));
    ended.join().unwrap();
    drop(queue);
    assert_eq!(dropped.get(), 1);
    drop(kept);
}

#[test]
fn a_report_handler_may_drop_the_last_handle_of_a_queue() {
    let registry = tuned("1 core", |it| it.watchdog_thresh_ms = 20);
    let busy = queue("busy").nice(2).on(&registry);
    let (plug, ended) = needs_a_worker_once_released(&registry, &busy);
    let (done, busy) = (Count::default(), Mutex::new(Some(busy)));
    registry.on_report(move |_| {
        let last = busy.lock().unwrap().take();
        if last.is_some() {
            done.add();
        }
        drop(last);
    });
    // Only one worker runs the items of a bottom-half queue, and no other worker replaces it.
    let (stalls, stuck) = queue("stalls").bh().plugged_on(&registry);
    let waits = stalls.spawn(|| ());
    wait_until(|| done.get() > 0);
    plug.release();
    wait_until(|| ended.get() == 1);
    stuck.release();
    waits.join().unwrap();
    assert_managed(&registry);
}

#[test]
fn the_reserve_drops_items_one_by_one_without_a_reaper() {
    let (registry, dropped) = (registry("2 core"), Count::default());
    // No thread can be created at the last drop, so the fallback reaper drops the item.
    let refused = || {
        registry.refuse_threads(true);
        forget_armed(&registry, at_drop(dropped.adder()));
        wait_until(|| registry.pool_stats().is_empty());
    };
    refused();
    wait_until(|| dropped.get() == 1);
    let (go, gate) = mpsc::channel::<()>();
    forget_armed(&registry, at_drop(move || _ = gate.recv()));
    wait_until(|| registry.pool_stats().is_empty());
    refused();
    assert_eq!(dropped.get(), 1);
    drop(go);
    shut_down(registry);
    wait_until(|| dropped.get() == 2);
}

#[test]
fn rejected_closure_may_change_the_attributes_when_dropped() {
    let queue = queue("shut").ordered().alone();
    queue.shutdown(Duration::MAX).unwrap();
    let [first, second] = [3, 4].map(|nice| {
        let queue = queue.clone();
        at_drop(move || {
            let changed = queue.set_attrs(|attrs| attrs.nice = nice);
            assert!(matches!(changed, Err(BuildError::Destroyed)));
        })
    });
    assert!(is_refused(queue.spawn(move || drop(first)).join()));
    assert!(is_refused(queue.spawn_async(async move { drop(second) }).join()));
}

/// Calls `act` from the waker of a task that awaits a drain. The drain ends when `enqueue` queues
/// an item that was cancelled on the drained queue.
fn awaits_a_drain(enqueue: impl FnOnce(&Work), act: impl FnOnce() + Send + 'static) {
    let other = queue("other").on(&registry("1 core"));
    other.pause();
    let work = Work::new(|| ());
    assert!(other.enqueue(&work));
    let _drain = polled(other.drain_async(), &waker_once(act));
    assert!(work.cancel());
    enqueue(&work);
    work.flush().unwrap();
}

#[test]
fn the_waker_of_a_drain_may_change_the_enqueuing_queue() {
    let ways: [fn(&Workqueue, &Work) -> bool; 5] = [
        |queue, work| queue.enqueue(work),
        |queue, work| on_cpu(queue, 0).enqueue(work),
        |queue, work| queue.task().on_node(0).enqueue(work),
        |queue, work| queue.task().enqueue_all(std::slice::from_ref(work)) == 1,
        |queue, work| queue.task().try_reserve().unwrap().enqueue(work),
    ];
    for way in ways {
        let ordered = queue("ordered").ordered().on(&registry("1 core"));
        let (theirs, (send, receive)) = (ordered.clone(), mpsc::channel());
        let change = move || send.send(theirs.set_attrs(|attrs| attrs.nice = 3)).unwrap();
        awaits_a_drain(|work| assert!(way(&ordered, work)), change);
        receive.recv_timeout(PATIENCE).unwrap().unwrap();
        assert_eq!(ordered.report().attrs.nice, 3);
    }
}

#[test]
fn the_waker_of_a_drain_may_requeue_an_item_of_the_same_batch() {
    let [all, third] = ["all", "third"].map(queue).on(&registry("1 core"));
    all.pause();
    let (first, count) = (Work::new(|| ()), Count::default());
    let (theirs, third_too) = (first.clone(), third.clone());
    let move_it = move || {
        assert!(theirs.cancel() && third_too.enqueue(&theirs));
        count.add();
    };
    let both = |work: &Work| {
        assert_eq!(all.task().enqueue_all(&[first.clone(), work.clone()]), 2);
        all.resume();
    };
    awaits_a_drain(both, move_it);
    assert_eq!(count.get(), 1);
    first.flush().unwrap();
    third.drain().unwrap();
}

#[test]
fn the_waker_of_a_drain_may_use_the_cancelled_item() {
    let wishes: [fn(&Work, &Workqueue); 4] = [
        |work, _| assert!(!work.cancel()),
        |work, _| assert!(!work.cancel_sync()),
        |work, _| _ = work.flush(),
        |work, other| assert!(other.enqueue(work)),
    ];
    for wish in wishes {
        let [ordered, other] = [queue("ordered").ordered(), queue("other")].on(&registry("1 core"));
        ordered.pause();
        let (work, (send, receive)) = (Work::new(|| ()), mpsc::channel());
        assert!(ordered.enqueue(&work));
        let theirs = work.clone();
        let waker = waker_once(move || {
            wish(&theirs, &other);
            send.send(()).unwrap();
        });
        let _drain = polled(ordered.drain_async(), &waker);
        assert!(work.cancel());
        receive.recv_timeout(PATIENCE).unwrap();
    }
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
