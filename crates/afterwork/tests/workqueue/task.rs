//! Options of one piece of work, and their combinations.

use std::{
    sync::mpsc,
    time::{Duration, Instant},
};

use afterwork::workqueue::{
    AffinityScope, CancelHandle, CpuId, DelayedWork, JoinError, Work, Workqueue,
};

use crate::support::{Census, Count, alone_on_two, ends, plug_into, queue, registry};

const LATER: Duration = Duration::from_secs(3600);
const SOON: Duration = Duration::from_millis(2);

#[test]
fn a_cancellable_closure_and_a_future_expire_too() {
    ends(|| {
        let queue = alone_on_two(queue("late").max_active(1));
        let plug = plug_into(&queue);
        let lives = Census::default();
        let deadline = Instant::now() + SOON;
        let (life, mut cancel) = (lives.life(), CancelHandle::default());
        let options = queue.task().deadline(deadline).cancel_handle(&mut cancel);
        let closure = options.spawn(move || drop(life));
        let life = lives.life();
        let future = queue.task().deadline(deadline);
        let future = future.spawn_async(async move { drop(life) });
        assert!(!cancel.is_finished());
        assert!(matches!(closure.join(), Err(JoinError::Expired)));
        assert!(cancel.is_finished() && !cancel.cancel());
        let awaited = afterwork::workqueue::block_on(future);
        assert!(matches!(awaited, Err(JoinError::Expired)));
        lives.all_dropped(2);
        // This one has no joiner, so a worker finds it.
        let life = lives.life();
        let past = queue.task().deadline(Instant::now() + SOON);
        drop(past.spawn_async(async move { drop(life) }));
        std::thread::sleep(2 * SOON);
        plug.release();
        queue.drain().unwrap();
        lives.all_dropped(3);
        assert_eq!(queue.stats().expired, 3);
    });
}

#[test]
fn a_future_that_was_polled_in_time_does_not_expire() {
    ends(|| {
        let queue = alone_on_two(queue("polled"));
        let (polled, is_polled) = mpsc::channel();
        let deadline = Instant::now() + Duration::from_millis(50);
        let future = queue.task().deadline(deadline).spawn_async(async move {
            polled.send(()).unwrap();
            afterwork::workqueue::sleep_until(deadline + SOON).await;
            7
        });
        // If the machine is loaded, the future may expire before it was polled.
        match is_polled.recv() {
            Ok(()) => assert_eq!(future.join().unwrap(), 7),
            Err(_) => assert!(matches!(future.join(), Err(JoinError::Expired))),
        }
    });
}

#[test]
fn a_full_queue_returns_each_kind_of_work() {
    let queue = alone_on_two(queue("full").capacity(1));
    queue.pause();
    let first = queue.task().on_cpu(CpuId::new(1)).try_spawn(|| 1).unwrap();
    let future = queue.task().try_spawn_async(async { 2 }).unwrap_err();
    assert!(future.is_full());
    let future = future.into_inner();
    let closure = queue.task().spawn_detached(|| ()).unwrap_err();
    closure.into_inner()();
    let mut cancel = CancelHandle::default();
    let options = queue.task().deadline(Instant::now() + LATER);
    let kept = options.cancel_handle(&mut cancel).try_spawn(|| 3);
    assert_eq!(kept.unwrap_err().into_inner()(), 3);
    assert!(cancel.is_finished(), "it has no item");
    queue.resume();
    first.join().unwrap();
    assert_eq!(
        queue
            .task()
            .wait_for_room()
            .spawn_async(future)
            .join()
            .unwrap(),
        2
    );
}

#[test]
fn options_choose_pool_and_lane() {
    let registry = registry("2 core");
    let queue = queue("place").affinity(AffinityScope::Cpu).help(false);
    let queue = queue.strict(true).build_in(&registry).unwrap();
    let name = || std::thread::current().name().unwrap().to_owned();
    let at = |task: afterwork::workqueue::TaskOptions<'_>| task.spawn(name).join().unwrap();
    let (first, last) = (CpuId::new(0), CpuId::new(1));
    assert_ne!(
        at(queue.task().on_cpu(first)),
        at(queue.task().on_cpu(last))
    );
    let urgent = at(queue.task().on_cpu(last).urgent());
    assert_eq!(urgent, at(queue.task().on_cpu(last)));
    // An unknown node is the first pod.
    assert_eq!(at(queue.task().on_node(77)), at(queue.task().on_cpu(first)));
}

#[test]
fn urgent_work_of_all_kinds_overtakes() {
    let queue = queue("narrow").max_active(1).help(false);
    let queue: Workqueue = queue.build_in(&registry("1 core")).unwrap();
    let (send, order) = mpsc::channel();
    let note = |name: &'static str| {
        let send = send.clone();
        move || send.send(name).unwrap()
    };
    queue.pause();
    queue.spawn_detached(note("ordinary")).unwrap();
    let (work, delayed) = (Work::new(note("work")), DelayedWork::new(note("delayed")));
    assert!(queue.task().urgent().enqueue(&work));
    assert!(
        queue
            .task()
            .urgent()
            .enqueue_after(&delayed, Duration::ZERO)
    );
    let all = [note("first"), note("second")];
    assert_eq!(queue.task().urgent().spawn_detached_all(all), 2);
    queue.resume();
    queue.drain().unwrap();
    let order: Vec<_> = order.try_iter().collect();
    assert_eq!(order, ["work", "delayed", "first", "second", "ordinary"]);
}

#[test]
fn urgent_has_no_effect_on_an_ordered_queue() {
    let queue = alone_on_two(queue("ordered").ordered());
    let (count, seen) = (Count::default(), Count::default());
    queue.pause();
    let counts = count.clone();
    queue.spawn_detached(move || counts.add()).unwrap();
    let (counts, sees) = (count.clone(), seen.clone());
    let second = move || {
        assert!(
            counts.get() == 1 && {
                sees.add();
                true
            }
        )
    };
    queue.task().urgent().spawn_detached(second).unwrap();
    queue.resume();
    queue.drain().unwrap();
    assert_eq!(seen.get(), 1);
}
