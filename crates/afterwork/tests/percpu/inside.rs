//! User code inside a slot that calls the same slot, or panics.

use std::cell::RefCell;

use crate::support::*;

type Lists = PerCpu<Vec<u32>>;
type Work = Box<dyn FnOnce(&mut Vec<u32>) + Send>;

fn in_every_mode(test: impl Fn(Arc<Lists>)) {
    for qpw in Qpw::ALL {
        test(Arc::new(builder(qpw).build(|_| Vec::new()).unwrap()));
    }
}

/// Adds `depth` and queues work for the same slot, which does the same with `depth - 1`, down to 0.
fn count_down(lists: &Arc<Lists>, depth: u32) -> impl FnOnce(&mut Vec<u32>) + Send + 'static {
    let lists = lists.clone();
    move |list| {
        if depth > 0 {
            let next: Work = Box::new(count_down(&lists, depth - 1));
            lists.queue_percpu_work(cpu(1), next);
        }
        list.push(depth);
    }
}

#[test]
fn work_queued_from_inside_a_section_runs_after_it() {
    in_every_mode(|lists| {
        lists.run_on(cpu(1), count_down(&lists, 3));
        assert_eq!(lists.run_on(cpu(1), std::mem::take), [3, 2, 1, 0]);
        lists.queue_percpu_work(cpu(1), count_down(&lists, 3));
        assert_eq!(lists.run_on(cpu(1), std::mem::take), [3, 2, 1, 0]);
        // The same holds if the section panics.
        assert_panics(|| {
            lists.run_on(cpu(1), |_| {
                lists.queue_percpu_work(cpu(1), |list| list.push(7));
                panic_any("expected")
            })
        });
        assert_eq!(lists.run_on(cpu(1), std::mem::take), [7]);
        assert_eq!(lists.nr_panics(), 0);
    });
}

#[test]
fn work_queued_by_work_runs_at_the_owners_next_poll() {
    in_every_mode(|lists| {
        while_owned(&lists, || {
            lists.queue_percpu_work(cpu(1), count_down(&lists, 3));
            while lists.run_on(cpu(1), |list| list.len()) < 4 {}
        });
        assert_eq!(lists.run_on(cpu(1), std::mem::take), [3, 2, 1, 0]);
        assert_eq!(lists.nr_panics(), 0);
    });
}

#[test]
fn reentrant_slot_access_is_rejected() {
    in_every_mode(|lists| {
        let refused = |call: &(dyn Fn() + Sync)| {
            let call = || catch_unwind(AssertUnwindSafe(call)).is_err();
            assert!(lists.run_on(cpu(1), |_| call()), "it would wait for itself");
        };
        refused(&|| lists.run_on(cpu(1), |_| ()));
        refused(&|| _ = lists.try_run_on(cpu(1), Duration::ZERO, |_| ()));
        refused(&|| _ = lists.try_run_on(cpu(1), Duration::MAX, |_| ()));
        refused(&|| lists.drain_all(|cpu, list| list.push(cpu.as_u32())));
        refused(&|| lists.flush(cpu(1)));
        refused(&|| drop(lists.attach(cpu(1))));
        // The drain detected this before it began, so the slot is free.
        lists.drain_all(|_, list| assert!(list.is_empty()));
        drop(lists.attach(cpu(1)).unwrap());
    });
}

#[test]
fn an_owner_cannot_unpark_inside_its_own_slot() {
    type Kept = RefCell<Option<percpu::Parked<'static, Vec<u32>>>>;
    std::thread_local!(static PARKED: Kept = const { RefCell::new(None) });
    for qpw in Qpw::ALL {
        let lists: &'static Lists = Box::leak(Box::new(builder(qpw).build(|_| vec![]).unwrap()));
        PARKED.set(Some(lists.attach(cpu(1)).unwrap().park()));
        assert_panics(|| lists.run_on(cpu(1), |_| drop(PARKED.take().unwrap().unpark())));
        // The slot has no owner, and is free.
        drop(lists.attach(cpu(1)).unwrap());
        lists.run_on(cpu(1), |list| assert!(list.is_empty()));
    }
}

#[test]
fn work_that_calls_its_own_slot_is_rejected_on_any_thread() {
    in_every_mode(|lists| {
        let inner = lists.clone();
        let work = move |list: &mut Vec<u32>| {
            list.push(1);
            inner.run_on(cpu(1), |list| list.push(2));
        };
        let mut owner = lists.attach(cpu(1)).unwrap();
        let (sender, receiver) = mpsc::channel();
        let remote = lists.clone();
        let poster = thread::spawn(move || {
            // In a mode without a queue, this call waits for the owner.
            sender.send(()).unwrap();
            remote.queue_percpu_work(cpu(1), work);
        });
        receiver.recv().unwrap();
        if owner.qpw() == Qpw::Queue {
            poster.join().unwrap();
            // The owner runs the work as it parks, while it still holds the slot.
            owner.while_parked(|| ());
        } else {
            owner.while_parked(|| poster.join().unwrap());
        }
        drop(owner);
        assert_eq!(lists.nr_panics(), 1);
        assert_eq!(lists.run_on(cpu(1), std::mem::take), [1]);
    });
}

#[test]
fn handler_whose_drop_panics_harms_no_other_thread() {
    struct Bomb;
    sync::on_drop!(Bomb, this => panic_any("the drop of a handler"));
    let bomb = Bomb;
    drop(builder(Qpw::Queue).on_panic(move |_| _ = &bomb).build(|_| 0).unwrap());
}

#[test]
fn a_drain_that_panics_keeps_no_other_cpu_from_being_drained() {
    let _alone = alone_in_hotplug();
    let drain = |cpu: CpuId, data: &mut u32| {
        *data += 1;
        if cpu.as_u32().is_multiple_of(2) {
            panic_any("the drain");
        }
    };
    for qpw in Qpw::ALL {
        let slots = [(); 2].map(|()| Arc::new(builder(qpw).build(|_| 0).unwrap()));
        let watches = slots.each_ref().map(|slots| slots.drain_when_absent(drain));
        set_online_cpus(&CpuSet::new());
        drop(watches);
        for slots in slots {
            slots.drain_all(|_, data| assert!(*data >= 1));
            assert!(slots.nr_panics() >= u64::from(NR_CPUS) / 2);
        }
    }
}

#[test]
fn work_for_a_forgotten_owner_is_dropped_with_the_data() {
    struct Bomb(Arc<AtomicU64>);
    sync::on_drop!(Bomb, this => {
        this.0.fetch_add(1, Ordering::Relaxed);
        panic_any("the drop of work");
    });
    let hits = Arc::new(builder(Qpw::Queue).build(|_| 0).unwrap());
    let theirs = hits.clone();
    let owner = thread::spawn(move || std::mem::forget(theirs.attach(cpu(1)).unwrap()));
    owner.join().unwrap();
    let dropped = Arc::new(AtomicU64::new(0));
    for _ in 0..3 {
        let bomb = Bomb(dropped.clone());
        hits.queue_percpu_work(cpu(1), move |hits| {
            *hits += 1;
            drop(bomb);
        });
    }
    drop(hits);
    assert_eq!(dropped.load(Ordering::Relaxed), 3);
}

#[test]
fn a_leaked_owner_keeps_its_slot_until_its_thread_ends() {
    for qpw in Qpw::ALL {
        for parks in [false, true] {
            let hits = &builder(qpw).build(|_| 0_u64).unwrap();
            // The kernel reports a thread as existing for some time after it has exited.
            let attach = || loop {
                match hits.attach(cpu(1)) {
                    Ok(owner) => break owner,
                    Err(_) => thread::yield_now(),
                }
            };
            let attach_and_leak = || {
                let mut owner = attach();
                owner.with(|hits| *hits += 1);
                match parks {
                    true => std::mem::forget(owner.park()),
                    false => std::mem::forget(owner),
                }
            };
            let leak = || thread::scope(|scope| _ = scope.spawn(attach_and_leak));
            leak();
            hits.queue_percpu_work(cpu(1), |hits| *hits += 10);
            hits.flush(cpu(1));
            assert_eq!(hits.run_on(cpu(1), |hits| *hits), 11);
            let mut owner = attach();
            owner.with(|hits| *hits += 100);
            drop(owner);
            leak();
            hits.drain_all(|_, hits| *hits += 1000);
            leak();
            let read = hits.try_run_on(cpu(1), Duration::from_secs(1000), |hits| *hits);
            assert!(matches!(read, Ok(1113)));
        }
    }
}

#[test]
fn an_owner_whose_thread_exists_is_not_taken_over() {
    let hits = &builder(Qpw::Queue).build(|_| 0_u64).unwrap();
    let (has_leaked, may_end) = (&Barrier::new(2), &Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            // The slot counts as owned, because its owner may poll at any moment.
            let owner = std::mem::ManuallyDrop::new(hits.attach(cpu(1)).unwrap());
            has_leaked.wait();
            may_end.wait();
            drop(std::mem::ManuallyDrop::into_inner(owner));
        });
        has_leaked.wait();
        let tried = hits.try_run_on(cpu(1), Duration::from_millis(300), |hits| *hits += 1);
        assert!(tried.is_err() && hits.attach(cpu(1)).is_err());
        may_end.wait();
    });
    assert_eq!(hits.run_on(cpu(1), |hits| *hits), 0);
}

struct Leaves(Arc<AtomicBool>);

sync::on_drop!(Leaves, this => this.0.store(true, Ordering::SeqCst));

#[test]
fn caller_that_must_not_sleep_waits_for_the_end_of_its_section() {
    let lists = Arc::new(builder(Qpw::Queue).build(|_| Vec::<u32>::new()).unwrap());
    let queue = Workqueue::builder("bh").bh().help(false).build().unwrap();
    let (begun, too_early) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let calls = {
        let (lists, begun, too_early) = (lists.clone(), begun.clone(), too_early.clone());
        move || {
            let has_left = Arc::<AtomicBool>::default();
            let _leaves = Leaves(has_left.clone());
            lists.run_on(cpu(1), move |_| {
                begun.store(true, Ordering::SeqCst);
                thread::sleep(Duration::from_millis(50));
                too_early.store(has_left.load(Ordering::SeqCst), Ordering::SeqCst);
            });
        }
    };
    // Without this hook, printing nested panics with a backtrace takes longer than the section.
    std::panic::set_hook(Box::new(|_| ()));
    while_owned(&lists, || {
        let item = queue.spawn(move || {
            // An owner that arrives after the caller's few polls finds that the call was cancelled.
            for _ in 0..20_000 {
                drop(catch_unwind(AssertUnwindSafe(calls.clone())));
                if begun.load(Ordering::SeqCst) {
                    break;
                }
            }
        });
        item.join().unwrap();
    });
    drop(std::panic::take_hook());
    assert!(!too_early.load(Ordering::SeqCst), "the section may borrow from its caller");
}
