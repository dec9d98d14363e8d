//! Children of `fork`: RCU works in them, and operations that cannot work panic.

use afterwork::mailbox::{PostError, ReplyError, TryRecvError};
use afterwork::workqueue::TaskSet;
use topology::CpuId;

use crate::children::{message_of, succeeds_in_child as in_child};
use crate::*;

fn use_rcu() {
    let value = Arc::new(Rcu::new(1_u64));
    let stop = Arc::new(AtomicBool::new(false));
    let nr_run = Arc::new(AtomicUsize::new(0));
    let reader = spawn({
        let (value, stop) = (value.clone(), stop.clone());
        move || {
            while !stop.load(Ordering::Relaxed) {
                assert!(*value.load(&rcu::read()) > 0);
            }
        }
    });
    for round in 2..100 {
        value.replace_sync(round);
        let nr_run = nr_run.clone();
        rcu::call(move || _ = nr_run.fetch_add(1, Ordering::Relaxed));
        rcu::synchronize();
        rcu::cond_synchronize(rcu::start_poll());
    }
    rcu::barrier();
    stop.store(true, Ordering::Relaxed);
    reader.join().unwrap();
    assert_eq!(nr_run.load(Ordering::Relaxed), 98);
}

fn use_srcu(domain: &Domain) {
    let guard = domain.read();
    let cookie = domain.get_state();
    assert!(!domain.poll_state(cookie));
    drop(guard);
    domain.synchronize();
    let (sender, receiver) = mpsc::channel();
    domain.call(move || sender.send(()).unwrap());
    domain.barrier();
    receiver.try_recv().unwrap();
}

fn panics_with(part: &str, body: impl FnOnce()) {
    let message = message_of(body);
    assert!(message.contains(part), "{message}");
}

/// Asserts that `body` panics because it uses an object of the parent.
fn refused(body: impl FnOnce()) {
    panics_with("before the process was forked", body);
}

#[test]
fn a_child_reads_waits_and_runs_callbacks_of_its_own() {
    let _alone = alone();
    use_rcu();
    in_child(|| {
        use_rcu();
        in_child(use_rcu);
    });
    use_rcu();
}

#[test]
fn open_sections_of_other_threads_delay_nothing_in_a_child() {
    let _alone = alone();
    let (done, wait) = mpsc::channel::<()>();
    let (ready, is_ready) = mpsc::channel();
    let theirs = ready.clone();
    let reader = thread::spawn(move || {
        let _guard = rcu::read();
        theirs.send(()).unwrap();
        wait.recv().ok();
    });
    let (done_too, wait) = mpsc::channel::<()>();
    let looper = thread::spawn(move || {
        let _online = qsbr::Reader::new();
        ready.send(()).unwrap();
        wait.recv().ok();
    });
    is_ready.recv().unwrap();
    is_ready.recv().unwrap();
    // This causes a grace period that waits for both readers, and a sweep.
    let waiter = thread::spawn(rcu::synchronize);
    let nr_run = Arc::new(AtomicUsize::new(0));
    let ran = nr_run.clone();
    rcu::call(move || _ = ran.fetch_add(1, Ordering::Relaxed));
    for _ in 0..20 {
        in_child(|| {
            drop(rcu::read());
            use_rcu();
            assert_eq!(nr_run.load(Ordering::Relaxed), 0, "the parent's callback ran");
        });
        thread::yield_now();
    }
    drop((done, done_too));
    for thread in [reader, looper, waiter] {
        thread.join().unwrap();
    }
    rcu::barrier();
    assert_eq!(nr_run.load(Ordering::Relaxed), 1);
}

#[test]
fn a_section_of_the_thread_that_forks_is_open_in_the_child_too() {
    let _alone = alone();
    let guard = rcu::read();
    // The section began before the grace period, or has its number.
    let waiter = thread::spawn(rcu::synchronize);
    for _ in 0..20 {
        let guard = &guard;
        in_child(move || {
            let waiter = waiter_for_a_section();
            // SAFETY: this process exits without cleanup, so it does not drop the guard again.
            drop(unsafe { std::ptr::read(guard) });
            waiter.join().unwrap();
            use_rcu();
        });
    }
    drop(guard);
    waiter.join().unwrap();
}

/// Starts a thread that waits for a grace period, which an open section delays.
fn waiter_for_a_section() -> sync::thread::JoinHandle {
    let waiter = spawn(rcu::synchronize);
    for _ in 0..100 {
        thread::yield_now();
        assert!(!waiter.is_finished(), "did not wait for the section");
    }
    waiter
}

#[test]
fn section_left_open_by_an_exiting_thread_is_open_in_its_child() {
    struct ForksAtExit(RefCell<Option<rcu::Guard>>);
    sync::on_drop!(ForksAtExit, this => {
        in_child(|| {
            // The drop releases the section's slot, once.
            drop(this.0.take());
            let (began, has_begun) = mpsc::channel();
            let (ended, has_ended) = mpsc::channel::<()>();
            let reader = spawn(move || {
                let guard = rcu::read();
                began.send(()).unwrap();
                has_ended.recv().unwrap();
                drop(guard);
            });
            has_begun.recv().unwrap();
            let waiter = waiter_for_a_section();
            ended.send(()).unwrap();
            reader.join().unwrap();
            waiter.join().unwrap();
            use_rcu();
        });
        // The section is still open in the parent.
        drop(this.0.take());
    });
    thread_local!(static LAST: ForksAtExit = const { ForksAtExit(RefCell::new(None)) });
    let _alone = alone();
    thread::spawn(|| {
        // This section comes first, so that the library's own destructor runs before this one.
        LAST.with(|last| *last.0.borrow_mut() = Some(rcu::read()));
    })
    .join()
    .unwrap();
    use_rcu();
}

/// Forks children, which call `child`, while two threads repeat `act` with increasing numbers.
fn fork_during(act: impl Fn(usize) + Sync, nr_forks: usize, child: impl Fn()) {
    let (act, stop) = (&act, &AtomicBool::new(false));
    thread::scope(|scope| {
        for first in 0..2 {
            scope.spawn(move || {
                let turns = (first..).take_while(|_| !stop.load(Ordering::Relaxed));
                turns.for_each(act);
            });
        }
        let children = || (0..nr_forks).for_each(|_| _ = in_child(&child));
        let ended = catch_unwind(AssertUnwindSafe(children));
        stop.store(true, Ordering::Relaxed);
        ended.unwrap();
    });
}

#[test]
fn fork_during_all_operations_leaves_a_sane_child() {
    let _alone = alone();
    let all_operations = |_| {
        drop(rcu::read());
        rcu::call(|| ());
        rcu::synchronize();
        thread::spawn(|| drop(rcu::read())).join().unwrap();
    };
    fork_during(all_operations, 50, use_rcu);
    rcu::barrier();
}

#[test]
fn stall_handler_that_forks_continues_in_both_processes() {
    let _alone = alone();
    let before = rcu::tunables();
    rcu::set_tunables(rcu::Tunables { stall_timeout_ms: 5, ..before });
    let (sender, receiver) = mpsc::channel();
    // A child neither uses nor drops the channel, whose lock may be held at the fork.
    let sender: &Mutex<_> = Box::leak(Box::new(Mutex::new(sender)));
    rcu::on_stall(Some(Box::new(move |_| {
        let Some(pid) = children::fork() else {
            // The child can read, and a new waiter must wait for this grace period to end.
            drop(rcu::read());
            let waiter = ::sync::thread::spawn("waiter", rcu::synchronize).unwrap();
            for _ in 0..100 {
                thread::yield_now();
                if waiter.is_finished() {
                    // Two threads drive the grace period at the same time.
                    exit(9);
                }
            }
            return;
        };
        sender.lock().unwrap().send(pid).unwrap();
    })));
    let parent = std::process::id();
    let guard = rcu::read();
    let waiter = thread::spawn(move || {
        rcu::synchronize();
        if std::process::id() != parent {
            rcu::on_stall(None);
            use_rcu();
            exit(0);
        }
    });
    let pid = receiver.recv().unwrap();
    rcu::on_stall(None);
    rcu::set_tunables(before);
    drop(guard);
    waiter.join().unwrap();
    for pid in std::iter::once(pid).chain(receiver.try_iter()) {
        assert!(wait_for(pid).success(), "the child failed, or hung for {LIMIT_S} s");
    }
    use_rcu();
}

#[test]
fn domain_of_the_parent_panics_and_one_of_the_child_works() {
    let _alone = alone();
    let domain = Domain::new();
    use_srcu(&domain);
    in_child(|| {
        drop(domain.read());
        refused(|| domain.synchronize());
        let version = Arc::new(());
        let theirs = version.clone();
        refused(|| domain.call(move || drop(theirs)));
        assert_eq!(Arc::strong_count(&version), 2, "the callback was dropped");
        refused(|| domain.barrier());
        let mut waiting = pin!(domain.synchronize_async());
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..2 {
            refused(|| assert!(waiting.as_mut().poll(&mut cx).is_ready()));
        }
        use_srcu(&Domain::new());
    });
    use_srcu(&domain);
}

#[test]
fn cell_of_a_parents_domain_rejects_new_versions_in_a_child() {
    let _alone = alone();
    let version = Arc::new(());
    let cell = Rcu::new_in(version.clone(), Domain::new());
    in_child(|| {
        let guard = cell.read();
        let seen = cell.load(&guard);
        refused(|| cell.replace(Arc::new(())));
        refused(|| drop(cell.replace_sync(Arc::new(()))));
        refused(|| cell.update(|_| Arc::new(())));
        refused(|| drop(cell.compare_exchange(seen, Arc::new(()), &guard)));
        assert!(std::ptr::eq(cell.load(&guard), seen), "replaced all the same");
        assert_eq!(Arc::strong_count(&version), 2, "dropped under its reader");
    });
}

#[test]
fn a_srcu_callback_that_forks_drops_no_version_in_the_child() {
    /// Exits the process with a special status if it is dropped in a child.
    struct Ours(u32);
    sync::on_drop!(Ours, this => if std::process::id() != this.0 {
        exit(9);
    });
    let _alone = alone();
    let ours = || Ours(std::process::id());
    let domain = Domain::new();
    let cell = Rcu::new_in(ours(), domain.clone());
    // These are atomics, because another thread may have held the lock of a channel at the fork.
    let [has_begun, may_go, pid] = [0; 3].map(|_| Arc::new(AtomicI32::new(0)));
    let value_of = |word: &AtomicI32| {
        until(|| word.load(Ordering::Acquire) != 0);
        word.load(Ordering::Acquire)
    };
    let theirs = [has_begun.clone(), may_go.clone(), pid.clone()];
    domain.call(move || {
        let [has_begun, may_go, pid] = theirs;
        has_begun.store(1, Ordering::Release);
        value_of(&may_go);
        pid.store(children::fork().unwrap_or(0), Ordering::Release);
    });
    value_of(&has_begun);
    // The callback that drops the old version waits until the running batch has ended.
    cell.replace(ours());
    may_go.store(1, Ordering::Release);
    let pid = value_of(&pid);
    domain.barrier();
    // A child that returns from the callback exits with status 1.
    assert_eq!(wait_for(pid).code(), Some(1), "9 is a version that was dropped");
}

fn use_queue(queue: &Workqueue) {
    let sums = std::array::from_fn::<_, 100, _>(|at| queue.spawn(move || at));
    let sum: usize = sums.into_iter().map(|sum| sum.join().unwrap()).sum();
    assert_eq!(sum, 4950);
    // This is a flush, because a system queue must not be drained.
    queue.flush().unwrap();
}

#[test]
fn queue_of_the_parent_panics_and_one_of_the_child_works() {
    let _alone = alone();
    let made = || Workqueue::builder("made").build().unwrap();
    let (queue, system) = (made(), workqueue::system().unwrap());
    use_queue(&queue);
    use_queue(system);
    let (work, delayed) = (Work::new(|| ()), DelayedWork::new(|| ()));
    work.disable();
    assert!(queue.enqueue_after(&delayed, HOUR));
    in_child(|| {
        assert!(work.enable());
        refused(|| assert!(queue.enqueue(&work)));
        assert!(!work.busy().pending);
        refused(|| _ = queue.reschedule(&delayed, Duration::ZERO));
        refused(|| _ = delayed.flush());
        assert!(delayed.is_pending());
        refused(|| drop(queue.spawn(|| ())));
        refused(|| drop(system.spawn_detached(|| ())));
        refused(|| queue.flush().unwrap());
        refused(|| queue.drain().unwrap());
        refused(|| queue.drain_timeout(Duration::ZERO).unwrap());
        refused(|| _ = pin!(queue.drain_async()).poll(&mut Context::from_waker(Waker::noop())));
        refused(|| _ = queue.cancel_all());
        refused(|| queue.clone().shutdown_background());
        // These calls do not wait.
        drop(queue.clone());
        queue.clone().close_in_background();
        use_queue(&made());
        use_queue(workqueue::system().unwrap());
    });
    use_queue(&queue);
}

#[test]
fn an_item_of_the_parent_is_not_waited_for_in_the_child() {
    let _alone = alone();
    let queue = Workqueue::builder("slow").build().unwrap();
    let (done, wait) = mpsc::channel::<()>();
    let runs = queue.spawn(move || wait.recv().is_err());
    let ended = queue.spawn(|| 7);
    queue.spawn(|| ()).join().unwrap();
    until(|| ended.is_finished());
    let mut both = Some((runs, ended));
    in_child(|| {
        let (runs, ended) = both.take().unwrap();
        assert_eq!(ended.join().unwrap(), 7);
        refused(|| drop(runs.join()));
    });
    drop(done);
    let (runs, ended) = both.unwrap();
    assert_eq!((runs.join().unwrap(), ended.join().unwrap()), (true, 7));
}

#[test]
fn a_child_that_was_forked_inside_a_join_joins_by_itself() {
    fn sum(queue: &Workqueue, depth: u32) -> u32 {
        if depth == 0 {
            return 1;
        }
        let (left, right) = queue.join(|| sum(queue, depth - 1), || sum(queue, depth - 1));
        left + right
    }
    let _alone = alone();
    let queue = Workqueue::builder("joins").build().unwrap();
    let (taken, is_taken) = mpsc::channel();
    let (done, is_done) = mpsc::channel::<()>();
    queue.join(
        || {
            // A worker is executing the item, so the next join would be offered to workers.
            is_taken.recv().unwrap();
            in_child(|| (0..2).for_each(|_| assert_eq!(sum(&queue, 4), 16)));
            drop(done);
        },
        move || {
            taken.send(()).unwrap();
            is_done.recv().unwrap_err();
        },
    );
}

const HOUR: Duration = Duration::from_secs(3600);

/// Calls `body`, which may panic in a child because an item was in use before the fork.
fn may_be_lost(body: impl FnOnce()) {
    let refused = catch_unwind(AssertUnwindSafe(body)).err();
    let message = refused.map(|payload| *payload.downcast::<&str>().unwrap());
    assert!(message.is_none_or(|message| message.contains("in use before the process was forked")));
}

#[test]
fn items_of_the_parent_do_not_run_in_a_child_with_own_queues() {
    let _alone = alone();
    let ordered = Workqueue::builder("ordered").ordered().build().unwrap();
    let (done, wait) = mpsc::channel::<()>();
    let runs = Work::new(move || _ = wait.recv());
    let waits = Work::new(|| ());
    let (armed, idle) = (DelayedWork::new(|| ()), DelayedWork::new(|| ()));
    assert_eq!([&runs, &waits].map(|work| ordered.enqueue(work)), [true; 2]);
    assert!(ordered.enqueue_after(&armed, HOUR));
    assert!(ordered.enqueue_after(&idle, HOUR) && idle.cancel(), "{idle:?}");
    until(|| runs.busy().executing);
    let mut last = Some(ordered.spawn(|| 7));
    in_child(|| {
        let mut spawned = last.take().unwrap();
        let made = Workqueue::builder("made").build().unwrap();
        use_queue(&made);
        for work in [&runs, &waits] {
            assert!(!work.cancel() && work.is_busy(), "{work:?}");
            refused(|| _ = made.enqueue(work));
            refused(|| _ = made.task().enqueue_all(std::slice::from_ref(work)));
            refused(|| _ = work.flush());
        }
        refused(|| _ = runs.cancel_sync());
        assert!(!waits.cancel_sync());
        assert!(!armed.cancel() && !armed.disable() && armed.is_pending(), "{armed:?}");
        refused(|| _ = made.enqueue_after(&armed, HOUR));
        assert_eq!((spawned.cancel(), spawned.is_finished()), (false, false));
        refused(|| drop(spawned.join_timeout(HOUR)));
        refused(|| _ = spawned.join());
        // An item that was idle at the fork belongs to the child.
        assert!(made.enqueue_after(&idle, Duration::ZERO));
        assert!(idle.flush().is_ok() && !idle.is_pending(), "{idle:?}");
        assert!(made.enqueue_after(&idle, HOUR) && idle.cancel(), "{idle:?}");
        in_child(|| use_queue(&Workqueue::builder("made").build().unwrap()));
    });
    drop(done);
    assert_eq!(last.unwrap().join().unwrap(), 7);
    assert!(armed.is_pending() && armed.cancel(), "{armed:?}");
}

#[test]
fn fork_during_queueing_and_cancelling_leaves_no_hanging_item() {
    let _alone = alone();
    let plain = Workqueue::builder("plain").build().unwrap();
    let ordered = Workqueue::builder("ordered").ordered().build().unwrap();
    let delayed = [(); 4].map(|()| DelayedWork::new(|| ()));
    let works = [(); 4].map(|()| Work::new(|| ()));
    let far = [(); 50].map(|()| DelayedWork::new(|| ()));
    for far in &far {
        plain.enqueue_after(far, HOUR);
    }
    let use_them = |at: usize, plain: &Workqueue, ordered: &Workqueue| {
        let (timed, work) = (&delayed[at % 4], &works[at % 4]);
        may_be_lost(|| _ = plain.enqueue_after(timed, Duration::from_micros(200)));
        let queue = if at.is_multiple_of(3) { ordered } else { plain };
        may_be_lost(|| _ = queue.enqueue(work));
        if at.is_multiple_of(2) {
            timed.cancel();
            work.cancel();
        }
        let _ = (timed.is_pending(), work.is_pending());
    };
    let in_each_child = || {
        let made = Workqueue::builder("made").build().unwrap();
        let line = Workqueue::builder("line").ordered().build().unwrap();
        (0..8).for_each(|at| use_them(at, &made, &line));
        assert!(!far.iter().any(DelayedWork::cancel));
    };
    fork_during(|at| use_them(at, &plain, &ordered), 20, in_each_child);
    plain.drain().unwrap();
    ordered.drain().unwrap();
}

#[test]
fn queries_in_a_child_wait_for_no_lock_of_the_parent() {
    let _alone = alone();
    let machine = Topology::synthetic("2 core").unwrap();
    let registry = Registry::new(machine, Params::default()).unwrap();
    let queue = Workqueue::builder("busy").build_in(&registry).unwrap();
    let in_each_child = || {
        assert!(!format!("{queue:?} {registry:?}").is_empty());
        refused(|| _ = queue.stats());
        refused(|| _ = queue.task().urgent());
        refused(|| _ = queue.resume());
        refused(|| _ = registry.pool_stats());
    };
    // The call takes the locks of the plan and of a pool.
    fork_during(|_| _ = queue.stats(), 10, in_each_child);
}

/// Asserts that `body` panics because a thread that does not exist here used a slot at the fork.
fn assert_lost(body: impl FnOnce()) {
    panics_with("in use when the process was forked", body);
}

#[test]
fn child_loses_slots_held_by_other_threads_and_keeps_the_rest() {
    let _alone = alone();
    let machine = Topology::synthetic("4 core").unwrap();
    for qpw in Qpw::ALL {
        let builder = PerCpu::builder().qpw(qpw).topology(machine.clone());
        let slots = &Arc::new(builder.build(CpuId::index).unwrap());
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let _watch = slots.drain_when_absent(|_, _| _ = COUNT.fetch_add(1, Ordering::Relaxed));
        let (has_come, may_go) = (&Barrier::new(3), &Barrier::new(3));
        let cpu = CpuId::new;
        thread::scope(|scope| {
            // One thread is in slot 0. Another owns slot 1, and has parked on slot 2.
            scope.spawn(move || {
                slots.run_on(cpu(0), |_| {
                    has_come.wait();
                    may_go.wait();
                });
            });
            scope.spawn(move || {
                let mut owned = slots.attach(cpu(1)).unwrap();
                let parked = slots.attach(cpu(2)).unwrap().park();
                owned.with(|_| {
                    has_come.wait();
                    may_go.wait();
                });
                drop(parked);
            });
            let mut mine = slots.attach(cpu(3)).unwrap();
            has_come.wait();
            let children = catch_unwind(AssertUnwindSafe(|| {
                in_child(|| {
                    mine.with(|data| *data += 10);
                    assert_eq!(mine.with(|data| *data), 13);
                    assert_eq!(slots.run_on(cpu(2), |data| *data), 2);
                    // The owner does not exist in the child.
                    let mut parked = slots.attach(cpu(2)).unwrap();
                    parked.with(|data| assert_eq!(*data, 2));
                    for lost in [0, 1] {
                        assert_lost(|| slots.run_on(cpu(lost), |_| ()));
                        assert_lost(|| slots.queue_percpu_work(cpu(lost), |_| ()));
                        let tried = slots.try_run_on(cpu(lost), Duration::ZERO, |_| ());
                        assert!(tried.is_err());
                    }
                    assert!(slots.attach(cpu(1)).is_err());
                    drop(parked);
                    mine.while_parked(|| assert_lost(|| slots.drain_all(|_, _| ())));
                    // A grandchild finds the slots in the same state as the child does.
                    in_child(|| assert_lost(|| slots.run_on(cpu(0), |_| ())));
                    let fresh = PerCpu::builder().topology(machine.clone()).build(|_| 1);
                    assert_eq!(fresh.unwrap().sum_over(|data| *data), 4);
                });
                // Lost slots are skipped without a panic.
                let stderr = in_child(|| {
                    mine.while_parked(|| set_online_cpus(&CpuSet::default()));
                    assert_eq!(COUNT.load(Ordering::Relaxed), 2);
                });
                assert_eq!(stderr, "");
            }));
            may_go.wait();
            children.unwrap();
        });
    }
}

#[test]
fn child_drains_absent_cpus_during_a_drain_of_the_parent() {
    let _alone = alone();
    let (parent, machine) = (process::id(), |text| Topology::synthetic(text).unwrap());
    let slots = Arc::new(PerCpu::builder().topology(machine("4 core")).build(|_| ()).unwrap());
    static WAITS: [Barrier; 2] = [const { Barrier::new(2) }; 2];
    static NR_DRAINED: AtomicUsize = AtomicUsize::new(0);
    let _watch = slots.drain_when_absent(move |_, ()| match process::id() == parent {
        true => WAITS.iter().for_each(|it| _ = it.wait()),
        false => _ = NR_DRAINED.fetch_add(1, Ordering::Relaxed),
    });
    let registry = || Registry::new(machine("4 core"), Params::default()).unwrap();
    registry().set_topology(machine("3 core"));
    WAITS[0].wait();
    // The slot of CPU 3 is lost.
    in_child(|| {
        registry().set_topology(machine("2 core"));
        until(|| NR_DRAINED.load(Ordering::Relaxed) == 1);
    });
    WAITS[1].wait();
}

#[test]
fn flush_in_a_child_does_not_wait_for_calls_of_the_parent() {
    let _alone = alone();
    let slots = PerCpu::builder().qpw(Qpw::Queue).build(|_| 0).unwrap();
    let cpu = slots.cpus().first().unwrap();
    let mut owner = slots.attach(cpu).unwrap();
    thread::scope(|scope| _ = scope.spawn(|| slots.queue_percpu_work(cpu, |data| *data += 1)));
    in_child(|| {
        owner.while_parked(|| slots.flush(cpu));
        assert_eq!(owner.with(|data| *data), 0);
        owner.while_parked(|| {
            slots.queue_percpu_work(cpu, |data| *data += 5);
            slots.flush(cpu);
        });
        assert_eq!(owner.with(|data| *data), 5);
    });
    owner.while_parked(|| slots.flush(cpu));
    assert_eq!(owner.with(|data| *data), 1);
}

#[test]
fn child_rejects_parents_timers_and_can_create_new_ones() {
    let _alone = alone();
    let queue = Workqueue::builder("tasks").build().unwrap();
    let mut slept = workqueue::sleep(HOUR);
    let mut context = Context::from_waker(Waker::noop());
    assert!(Pin::new(&mut slept).poll(&mut context).is_pending());
    let mut set = TaskSet::new(&queue);
    set.spawn_async(std::future::pending::<()>());
    let ticks = queue.every(Duration::from_micros(100), || ()).unwrap();
    let mut theirs = Some((slept, set, ticks));
    in_child(|| {
        let (mut slept, mut set, ticks) = theirs.take().unwrap();
        let mut context = Context::from_waker(Waker::noop());
        message_of(|| _ = Pin::new(&mut slept).poll(&mut context));
        message_of(|| _ = set.try_join_next());
        message_of(|| set.cancel_all());
        // The drop does not hang on locks that threads of the parent may hold.
        drop((slept, set, ticks));
        workqueue::block_on(workqueue::sleep(Duration::from_millis(1)));
        let own = Workqueue::builder("own").build().unwrap();
        let mut set = TaskSet::new(&own);
        set.spawn(|| 7);
        assert_eq!(set.join_next_blocking().unwrap().unwrap(), 7);
    });
    let (slept, mut set, ticks) = theirs.unwrap();
    set.cancel_all();
    assert!(set.join_next_blocking().unwrap().is_err());
    drop((slept, ticks));
}

#[test]
fn a_waker_of_a_future_of_the_parent_does_nothing_in_the_child() {
    let _alone = alone();
    let queue = Workqueue::builder("futures").build().unwrap();
    let alive = Arc::new(());
    let (sender, receiver) = mpsc::channel();
    let theirs = alive.clone();
    let handle = queue.spawn_async(std::future::poll_fn(move |context| {
        let _ = (&theirs, sender.send(context.waker().clone()));
        Poll::<()>::Pending
    }));
    let waker = receiver.recv().unwrap();
    // The waker holds the last reference to the future.
    drop(handle);
    let mut last = Some(waker);
    in_child(|| {
        drop(last.take());
        assert_eq!(Arc::strong_count(&alive), 2, "the parent's");
    });
    in_child(|| {
        let waker = last.take().unwrap();
        waker.wake_by_ref();
        drop(waker.clone());
        waker.wake();
        assert_eq!(Arc::strong_count(&alive), 2, "the parent's");
        use_queue(&Workqueue::builder("made").build().unwrap());
        assert!(receiver.try_recv().is_err(), "polled");
    });
    last.as_ref().unwrap().wake_by_ref();
    drop(receiver.recv().unwrap());
    drop((last, queue));
    assert_eq!(Arc::strong_count(&alive), 1);
}

#[test]
fn child_waits_for_no_capacity_or_answer_of_its_parent() {
    let _alone = alone();
    let mut mailbox = Mailbox::builder().capacity(1).build();
    let poster = mailbox.poster();
    poster.post(0).unwrap();
    let theirs = poster.clone();
    let waiter = thread::spawn(move || theirs.send_blocking(1));
    let cx = &mut Context::from_waker(Waker::noop());
    let mut send = poster.send(2);
    assert!(Pin::new(&mut send).poll(cx).is_pending());
    let (to, answer) = mailbox::reply::<u32>();
    let (other, late) = mailbox::reply();
    let other_poster = poster.clone();
    in_child(|| {
        assert_eq!(other_poster.send_blocking(3), Err(PostError::Closed(3)));
        assert_eq!(Pin::new(&mut send).poll(cx), Poll::Ready(Ok(())), "the parent's affair");
        // The receipt frees capacity but admits no waiter.
        assert_eq!(mailbox.try_recv(), Ok(0));
        assert_eq!(mailbox.try_recv(), Err(TryRecvError::Empty));
        mailbox.close();
        assert_eq!(answer.wait(), Err(ReplyError::Lost));
        assert_eq!(other.reply(1), Err(1));
        drop((to, late));
        // A new mailbox in the child works normally.
        let mut mailbox = Mailbox::builder().capacity(1).build();
        let poster = mailbox.poster();
        poster.post(0).unwrap();
        let sender = spawn(move || poster.send_blocking(1).unwrap());
        for number in 0..2 {
            mailbox.wait(1).unwrap();
            assert_eq!(mailbox.try_recv(), Ok(number));
        }
        sender.join().unwrap();
    });
    let mut received = Vec::new();
    while received.len() < 3 {
        mailbox.wait(1).unwrap();
        received.extend(mailbox.drain(9));
    }
    received.sort_unstable();
    assert_eq!(received, [0, 1, 2]);
    assert_eq!(waiter.join().unwrap(), Ok(()));
}
