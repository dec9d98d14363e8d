//! Options of one piece of work: deadlines, lanes, CPUs and nodes, and their combinations.

use std::error::Error;

use crate::support::*;

#[test]
fn a_cancellable_closure_and_a_future_expire_too() {
    let queue = queue("late").max_active(1).alone();
    let (plug, lives) = (plug_into(&queue), Census::default());
    let (deadline, mut cancel) = (Instant::now() + SHORT, CancelHandle::default());
    let options = queue.task().deadline(deadline).cancel_handle(&mut cancel);
    let closure = options.spawn(lives.closure());
    let future = queue.task().deadline(deadline).spawn_async(lives.future());
    assert!(!cancel.is_finished());
    assert!(has_expired(closure.join()));
    assert!(cancel.is_finished() && !cancel.cancel());
    assert!(has_expired(block_on(future)));
    lives.all_dropped(2);
    // This item has no joiner, so a worker finds it.
    let past = Instant::now();
    drop(queue.task().deadline(past + SHORT).spawn_async(lives.future()));
    wait_until(|| past.elapsed() > SHORT);
    plug.release_and_drain(&queue);
    lives.all_dropped(3);
    assert_eq!(queue.stats().expired, 3);
}

#[test]
fn a_future_that_was_polled_in_time_does_not_expire() {
    let queue = queue("polled").alone();
    let result = before_deadline(|deadline| {
        let future = async move {
            sleep_until(deadline + SHORT).await;
            7
        };
        queue.task().deadline(deadline).spawn_async(future).join()
    });
    assert_eq!(result, 7);
}

#[test]
fn urgent_work_of_all_kinds_overtakes() {
    let (queue, log) = (one_seat("narrow").on(&registry("1 core")), Log::default());
    queue.pause();
    queue.detach(log.note("ordinary"));
    let (work, delayed) = (Work::new(log.note("work")), DelayedWork::new(log.note("delayed")));
    assert!(queue.task().urgent().enqueue(&work));
    assert!(queue.task().urgent().enqueue_after(&delayed, Duration::ZERO));
    let all = ["first", "second"].map(|name| log.note(name));
    assert_eq!(queue.task().urgent().spawn_detached_all(all), 2);
    queue.resume_and_drain();
    assert_eq!(log.take(), ["work", "delayed", "first", "second", "ordinary"]);
    // It has no effect on an ordered queue.
    let queue = self::queue("ordered").ordered().paused();
    queue.detach(log.note("ordinary"));
    queue.task().urgent().spawn_detached(log.note("urgent")).unwrap();
    queue.resume_and_drain();
    assert_eq!(log.take(), ["ordinary", "urgent"]);
}

#[test]
fn all_items_of_a_blocking_queue_may_block() {
    let queue = queue("files").blocking().alone();
    assert_eq!(queue.stats().max_active, MAX_ACTIVE);
    run_at_once(&queue, 16);
    // The samples replaced no sleeping worker.
    assert_eq!(queue.stats().cm_wakeups, 0);
    assert_eq!(self::queue("few").blocking().max_active(3).alone().stats().max_active, 3);
    self::queue("one").ordered().blocking().alone();
}

#[test]
fn an_item_of_an_owner_does_not_keep_it() {
    let queue = queue("owned").alone();
    let owner = Arc::new(Count::default());
    let work = Work::for_weak(&owner, Count::add);
    let delayed = DelayedWork::for_weak(&owner, Count::add);
    assert!(queue.enqueue(&work) && queue.enqueue_after(&delayed, Duration::ZERO));
    queue.flush().unwrap();
    assert_eq!((owner.get(), Arc::weak_count(&owner)), (2, 2));
    let count = *owner;
    assert_eq!(Arc::strong_count(&owner), 1);
    drop(owner);
    assert!(queue.enqueue(&work));
    queue.flush().unwrap();
    assert_eq!(count.get(), 2, "the owner was dropped");
}

#[test]
fn every_error_becomes_an_io_error() {
    fn kind(error: impl Into<io::Error> + Error) -> io::ErrorKind {
        let text = error.to_string();
        assert!(!text.contains('\n'), "{text}");
        let error: io::Error = error.into();
        assert_eq!(error.to_string(), text);
        error.kind()
    }
    use io::ErrorKind::{BrokenPipe, InvalidInput, PermissionDenied, TimedOut, WouldBlock};
    assert_eq!(kind(queue("none").max_active(0).build().unwrap_err()), InvalidInput);
    let error = io::Error::from(BuildError::NicePermission(-5, PermissionDenied.into()));
    assert_eq!(error.kind(), PermissionDenied);
    assert!(error.get_ref().unwrap().is::<BuildError>() && error.source().is_some());
    let queue = queue("errors").capacity(1).paused();
    let first = queue.spawn(|| ());
    assert_eq!(kind(queue.try_spawn(|| ()).unwrap_err()), WouldBlock);
    assert_eq!(kind(queue.spawn(|| ()).join().unwrap_err()), WouldBlock);
    assert_eq!(kind(queue.drain_timeout(Duration::ZERO).unwrap_err()), TimedOut);
    queue.shutdown(Duration::MAX).unwrap();
    first.join().unwrap();
    assert_eq!(kind(queue.try_spawn(|| ()).unwrap_err()), BrokenPipe);
    assert_eq!(kind(queue.spawn(|| ()).join().unwrap_err()), BrokenPipe);
    assert_eq!(kind(queue.every(Duration::ZERO, || ()).unwrap_err()), InvalidInput);
    assert_eq!(kind("workqueue.max_activ=3".parse::<Params>().unwrap_err()), InvalidInput);
    let full = Mailbox::builder().capacity(1).build();
    full.poster().post(1).unwrap();
    assert_eq!(kind(full.poster().post(2).unwrap_err()), WouldBlock);
    full.close();
    assert_eq!(kind(full.poster().post(2).unwrap_err()), BrokenPipe);
}

/// Returns the name of the worker that runs the item, which names its pool.
fn pool_of(enqueue: impl FnOnce(&Work)) -> String {
    let (send, receive) = mpsc::channel();
    let work = Work::new(move || send.send(thread_name()).unwrap());
    enqueue(&work);
    receive.recv_timeout(PATIENCE).unwrap()
}

fn spread(scope: AffinityScope) -> Workqueue {
    let queue = queue("place").help(false).affinity(scope);
    queue.on(&registry("2 numa x 2 llc x 2 core"))
}

#[test]
fn an_item_queued_on_a_cpu_runs_in_the_pool_of_its_pod() {
    for (scope, cpus_per_pod) in [(Cpu, 1), (Cache, 2)] {
        let queue = spread(scope);
        for cpu in 0..8 {
            let pool = pool_of(|work| assert!(on_cpu(&queue, cpu).enqueue(work)));
            assert_eq!(pool, format!("aw/u{}", cpu / cpus_per_pod));
        }
    }
}

#[test]
fn a_closure_spawned_on_a_cpu_runs_in_the_pool_of_its_pod() {
    let queue = spread(Cpu);
    for cpu in 0..8 {
        for task in [on_cpu(&queue, cpu), on_cpu(&queue, cpu).urgent()] {
            assert_eq!(task.spawn(thread_name).join().unwrap(), format!("aw/u{cpu}"));
        }
    }
    let queue = spread(Numa);
    for node in 0..2 {
        let pool = queue.task().on_node(node).spawn(thread_name);
        assert_eq!(pool.join().unwrap(), format!("aw/u{node}"));
    }
}

#[test]
fn an_item_armed_for_a_cpu_runs_in_the_pool_of_its_pod() {
    let (queue, (send, receive)) = (spread(Cpu), mpsc::channel());
    let work = DelayedWork::new(move || send.send(thread_name()).unwrap());
    let pool = || receive.recv_timeout(PATIENCE).unwrap();
    for cpu in 0..8 {
        for delay in [Duration::ZERO, Duration::from_micros(10)] {
            assert!(on_cpu(&queue, cpu).enqueue_after(&work, delay));
            assert_eq!(pool(), format!("aw/u{cpu}"));
            // The run may still be ending.
            let other = (cpu + 1) % 8;
            on_cpu(&queue, cpu).enqueue_after(&work, HOUR);
            assert_eq!(on_cpu(&queue, other).reschedule(&work, delay), Ok(false));
            assert_eq!(pool(), format!("aw/u{other}"));
            work.flush().unwrap();
        }
    }
}

#[test]
fn work_on_cpu_runs_on_that_cpu_or_reports_an_error() {
    let topology = Topology::detect().unwrap();
    let allowed = topology.allowed();
    for cpu in allowed.iter() {
        assert_eq!(work_on_cpu(cpu, cpu_here).unwrap(), cpu);
    }
    let log = Log::default();
    schedule_on_each_cpu(move |cpu| log.push((cpu, cpu_here()))).unwrap();
    let mut log = log.take();
    log.sort();
    assert!(log.into_iter().eq(allowed.iter().map(|cpu| (cpu, cpu))));
    let none = work_on_cpu(CpuId::new(100_000), || ()).unwrap_err().downcast();
    assert!(matches!(none, Ok(BuildError::NoCpus)), "{none:?}");
    let first = allowed.iter().next().unwrap();
    let panicked = work_on_cpu(first, || panic!("there"));
    let panicked = panicked.map(|never: ()| never).unwrap_err().downcast();
    assert!(matches!(panicked, Ok(JoinError::Panicked(_))), "{panicked:?}");
    let count = Count::default();
    let on_all = schedule_on_each_cpu(move |_| {
        count.add();
        panic!("everywhere");
    });
    let on_all = on_all.unwrap_err().downcast();
    assert!(matches!(on_all, Ok(JoinError::Panicked(_))));
    assert_eq!(count.get(), allowed.len(), "all have ended");
    // The first panic of all CPUs is returned, with its payload.
    let panics = |_| panic_any(at_drop(|| panic!("a payload's drop")));
    let first = schedule_on_each_cpu(panics).unwrap_err().downcast();
    assert!(matches!(first, Ok(JoinError::Panicked(_))));
    assert!(catch_unwind(AssertUnwindSafe(|| drop(first))).is_err());
}

#[test]
fn an_item_queued_on_a_node_runs_in_a_pool_of_that_node() {
    let queue = spread(Cache);
    pin(0);
    // This thread is on CPU 0 of node 0.
    assert_eq!(pool_of(|work| assert!(queue.task().on_node(0).enqueue(work))), "aw/u0");
    assert_eq!(pool_of(|work| assert!(queue.task().on_node(1).enqueue(work))), "aw/u2");
}

#[test]
fn missing_cpu_or_node_selects_the_first_pod() {
    let queue = spread(Cpu);
    assert_eq!(pool_of(|work| assert!(on_cpu(&queue, 1000).enqueue(work))), "aw/u0");
    assert_eq!(pool_of(|work| assert!(queue.task().on_node(77).enqueue(work))), "aw/u0");
    assert_eq!(queue.task().on_node(77).spawn(thread_name).join().unwrap(), "aw/u0");
}

#[test]
fn a_pending_item_stays_where_it_was_queued_first() {
    let queue = spread(Cpu);
    queue.set_max_active(1).unwrap();
    let plug = plug_into(&queue);
    let pool = pool_of(|work| {
        assert!(on_cpu(&queue, 3).enqueue(work));
        assert!(!on_cpu(&queue, 5).enqueue(work));
        plug.release();
    });
    assert_eq!(pool, "aw/u3");
}

fn in_an_hour() -> Instant {
    Instant::now() + HOUR
}

#[test]
fn a_deadline_in_the_past_expires_at_once() {
    let (queue, lives) = (queue("past").paused(), Census::default());
    let handle = queue.task().deadline(Instant::now()).spawn(lives.closure());
    assert!(handle.is_finished());
    lives.all_dropped(1);
    let outcome = handle.join();
    assert!(outcome.as_ref().unwrap_err().to_string().contains("deadline"));
    assert!(has_expired(outcome));
    assert_eq!((waiting(&queue), queue.stats().expired), (0, 1));
}

#[test]
fn the_deadline_ends_a_join_without_a_worker() {
    let (queue, lives) = (queue("stuck").paused(), Census::default());
    let handle = queue.task().deadline(Instant::now() + SHORT).spawn(lives.closure());
    assert!(has_expired(handle.join()));
    lives.all_dropped(1);
    let mut handle = queue.task().deadline(Instant::now() + SHORT).spawn(|| ());
    assert!(has_expired(handle.join_timeout(HOUR).unwrap()));
    let mut handle = queue.task().deadline(in_an_hour()).spawn(|| ());
    assert!(handle.join_timeout(SHORT).is_none());
    assert!(!handle.is_finished(), "its deadline has not come");
    drop(handle);
    assert_eq!(queue.stats().expired, 2);
    // A poll after the deadline is ready.
    let deadline = Instant::now() + SHORT;
    let mut handle = queue.task().deadline(deadline).spawn(|| ());
    let mut outcome = None;
    wait_until(|| {
        outcome = poll(&mut handle, Waker::noop());
        outcome.is_some()
    });
    assert!(Instant::now() >= deadline);
    assert!(outcome.is_some_and(has_expired));
}

#[test]
fn a_worker_skips_expired_items() {
    let queue = one_seat("behind").alone();
    let (plug, lives) = (plug_into(&queue), Census::default());
    let deadline = Instant::now() + SHORT;
    let handles = [(); 10].map(|()| queue.task().deadline(deadline).spawn(lives.closure()));
    wait_until(|| Instant::now() >= deadline);
    let after = queue.spawn(|| ());
    plug.release();
    after.join().unwrap();
    wait_until(|| handles.iter().all(JoinHandle::is_finished));
    assert!(handles.into_iter().all(|handle| has_expired(handle.join())));
    lives.all_dropped(10);
    assert_eq!(queue.stats().expired, 10);
}

#[test]
fn the_deadline_wakes_an_awaiting_task_without_a_worker() {
    let [idle, tasks] = ["awaited", "tasks"].map(|name| queue(name).alone());
    idle.pause();
    let (lives, deadline) = (Census::default(), Instant::now() + SHORT);
    let handle = idle.task().deadline(deadline).spawn(lives.closure());
    let outcome = tasks.spawn_async(async move {
        let outcome = handle.await;
        assert!(Instant::now() >= deadline);
        has_expired(outcome)
    });
    assert!(outcome.join().unwrap());
    lives.all_dropped(1);
    // The second poll registers a different waker.
    let mut handle = idle.task().deadline(Instant::now() + SHORT).spawn(|| ());
    // On a loaded machine the deadline may have passed.
    assert!(has_expired(poll(&mut handle, Waker::noop()).unwrap_or_else(|| block_on(handle))));
    // An item that is cancelled before its deadline leaves no timer.
    let handle = idle.task().deadline(in_an_hour()).spawn(|| ());
    let mut handle = polled(handle, Waker::noop());
    assert!(handle.cancel());
    assert!(is_cancelled(handle.join()));
    assert_eq!((waiting(&idle), idle.stats().expired), (0, 2));
    idle.resume();
    // A task that awaits a started item is woken at its end.
    let queue = queue("started").help(false).alone();
    let (handle, plug) =
        stuck(|hole| queue.task().deadline(in_an_hour()).spawn(move || hole.sit()));
    let handle = polled(handle, Waker::noop());
    plug.release();
    block_on(handle).unwrap();
}

#[test]
fn an_expired_item_releases_its_permit_once_it_is_found() {
    let queue = queue("bounded").capacity(1).paused();
    let past = Instant::now();
    let handle = block_on(queue.task().reserve()).deadline(past).spawn(|| ());
    assert!(has_expired(handle.join()));
    assert_eq!(free(&queue), Some(1), "its permit is released");
    let handle = block_on(queue.task().reserve()).deadline(Instant::now() + SHORT).spawn(|| ());
    assert!(is_full(queue.task().deadline(in_an_hour()).try_spawn(|| ())));
    assert!(is_refused(queue.task().deadline(in_an_hour()).spawn(|| ()).join()));
    let expired = queue.task().deadline(past).try_spawn(|| ()).unwrap();
    assert!(has_expired(expired.join()));
    assert!(has_expired(handle.join()));
    assert_eq!(free(&queue), Some(1));
    // A detached item releases its permit when a worker reaches it.
    let deadline = Instant::now() + SHORT;
    drop(queue.task().deadline(deadline).spawn(|| unreachable!("it has expired")));
    wait_until(|| Instant::now() >= deadline);
    queue.resume();
    wait_until(|| free(&queue) == Some(1));
    queue.pause();
    let handle = queue.task().deadline(in_an_hour()).try_spawn(|| 7).unwrap();
    queue.resume();
    assert_eq!(handle.join().unwrap(), 7);
    queue.shutdown(Duration::MAX).unwrap();
    assert!(is_closed(queue.task().deadline(in_an_hour()).try_spawn(|| ())));
    assert_eq!(queue.stats().expired, 4);
}

#[test]
fn the_panic_of_an_expired_closures_drop_is_lost() {
    let queue = queue("foreign").help(false).alone();
    let spawn = |deadline| {
        let captured = at_drop(|| panic!("in a drop"));
        queue.task().deadline(deadline).spawn(move || drop(captured))
    };
    assert!(has_expired(spawn(Instant::now()).join()));
    queue.pause();
    assert!(has_expired(spawn(Instant::now() + SHORT).join()));
    let deadline = Instant::now() + SHORT;
    let found = spawn(deadline);
    wait_until(|| Instant::now() >= deadline);
    queue.resume();
    wait_until(|| found.is_finished());
    assert!(has_expired(found.join()));
    assert_eq!(queue.stats().panicked, 0);
}
