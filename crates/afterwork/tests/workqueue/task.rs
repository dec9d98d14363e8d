//! Options of one piece of work, and their combinations.

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
    let (polled, is_polled) = mpsc::channel();
    let deadline = Instant::now() + 50 * MS;
    let future = queue.task().deadline(deadline).spawn_async(async move {
        polled.send(()).unwrap();
        sleep_until(deadline + SHORT).await;
        7
    });
    // If the machine is loaded, the future may expire before it was polled.
    match is_polled.recv() {
        Ok(()) => assert_eq!(future.join().unwrap(), 7),
        Err(_) => assert!(has_expired(future.join())),
    }
}

#[test]
fn a_full_queue_returns_each_kind_of_work() {
    let queue = queue("full").capacity(1).paused();
    let first = on_cpu(&queue, 1).try_spawn(|| 1).unwrap();
    let future = queue.task().try_spawn_async(async { 2 }).unwrap_err();
    assert!(future.is_full());
    let future = future.into_inner();
    queue.task().spawn_detached(|| ()).unwrap_err().into_inner()();
    let mut cancel = CancelHandle::default();
    let options = queue.task().deadline(Instant::now() + HOUR);
    assert_eq!(options.cancel_handle(&mut cancel).try_spawn(|| 3).unwrap_err().into_inner()(), 3);
    assert!(cancel.is_finished(), "it has no item");
    queue.resume();
    first.join().unwrap();
    assert_eq!(queue.task().wait_for_capacity().spawn_async(future).join().unwrap(), 2);
}

#[test]
fn options_choose_pool_and_lane() {
    let queue = queue("place").affinity(Cpu).help(false).strict(true).alone();
    let at = |task: TaskOptions<'_>| task.spawn(thread_name).join().unwrap();
    let (first, last) = (CpuId::new(0), CpuId::new(1));
    assert_ne!(at(queue.task().on_cpu(first)), at(queue.task().on_cpu(last)));
    assert_eq!(at(queue.task().on_cpu(last).urgent()), at(queue.task().on_cpu(last)));
    // A node that does not exist is replaced by the first pod.
    assert_eq!(at(queue.task().on_node(77)), at(queue.task().on_cpu(first)));
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
    meet_in(&queue, 16);
    queue.drain().unwrap();
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
    fn kind(error: impl Into<io::Error> + std::error::Error) -> io::ErrorKind {
        let text = error.to_string();
        assert!(!text.contains('\n'), "{text}");
        let error: io::Error = error.into();
        assert_eq!(error.to_string(), text);
        error.kind()
    }
    use io::ErrorKind::{BrokenPipe, InvalidInput, TimedOut, WouldBlock};
    let queue = queue("errors").capacity(1).paused();
    let first = queue.spawn(|| ());
    assert_eq!(kind(queue.spawn(|| ()).join().unwrap_err()), WouldBlock);
    assert_eq!(kind(queue.drain_timeout(Duration::ZERO).unwrap_err()), TimedOut);
    queue.shutdown(Duration::MAX).unwrap();
    first.join().unwrap();
    assert_eq!(kind(queue.spawn(|| ()).join().unwrap_err()), BrokenPipe);
    assert_eq!(kind(queue.every(Duration::ZERO, || ()).unwrap_err()), InvalidInput);
    assert_eq!(kind("workqueue.max_activ=3".parse::<Params>().unwrap_err()), InvalidInput);
    let full = Mailbox::builder().capacity(1).build();
    full.poster().post(1).unwrap();
    assert_eq!(kind(full.poster().post(2).unwrap_err()), WouldBlock);
    full.close();
    assert_eq!(kind(full.poster().post(2).unwrap_err()), BrokenPipe);
}
