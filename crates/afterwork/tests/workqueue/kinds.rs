//! Kinds of queues: per CPU, highpri, CPU-intensive, bottom halves, and those with a rescuer.

use std::{
    sync::{Arc, Barrier, Mutex, PoisonError, mpsc},
    time::Duration,
};

use afterwork::{
    mailbox::{self, Mailbox},
    params::Params,
    rcu::{self, Rcu, srcu::Domain},
    workqueue::{
        self, AffinityScope, BuildError, DelayedWork, JoinError, Registry, WeakWorkqueue, Work,
    },
};
use topology::{CpuId, Topology};

use crate::support::*;

#[test]
fn a_per_cpu_queue_has_a_strict_pool_for_each_cpu() {
    let registry = registry("4 core");
    let queue = queue("bound").per_cpu().build_in(&registry).unwrap();
    let pools = registry.pool_stats();
    assert_eq!(pools.len(), 4);
    assert!(pools.iter().all(|pool| pool.strict && pool.cpus.len() == 1));
    drop(queue);
}

#[test]
fn a_per_cpu_pool_runs_one_item_at_a_time() {
    ends(|| {
        let registry = unwatched("1 core");
        let queue = queue("bound").per_cpu().build_in(&registry).unwrap();
        let gauge = Gauge::default();
        for _ in 0..500 {
            let gauge = gauge.clone();
            queue
                .spawn_detached(move || gauge.within(|| std::hint::black_box(())))
                .unwrap();
        }
        queue.drain().unwrap();
        assert_eq!(gauge.most(), 1);
    });
}

#[test]
fn a_highpri_queue_has_the_kernels_nice_value_or_says_why_not() {
    let registry = registry("1 core");
    match queue("highpri").highpri().build_in(&registry) {
        Ok(_queue) => assert_eq!(registry.pool_stats()[0].nice, -20),
        Err(error) => assert!(matches!(error, BuildError::NicePermission(-20, _))),
    }
}

#[test]
fn cpu_intensive_items_do_not_hold_up_those_of_other_queues() {
    ends(|| {
        let registry = unwatched("1 core");
        let heavy = queue("heavy").cpu_intensive().help(false);
        let heavy = heavy.build_in(&registry).unwrap();
        let light = queue("light").help(false).build_in(&registry).unwrap();
        let plugs: Vec<_> = (0..3)
            .map(|_| {
                let (plug, hole) = stopper();
                heavy.spawn_detached(move || hole.sit()).unwrap();
                plug
            })
            .collect();
        plugs.iter().for_each(Plug::wait_until_stuck);
        light.spawn(|| ()).join().unwrap();
        assert_eq!(
            registry.pool_stats()[0].seen_asleep,
            0,
            "nobody had to look"
        );
        plugs.iter().for_each(Plug::release);
    });
}

#[test]
fn cpu_intensive_items_of_one_queue_run_beside_one_another() {
    ends(|| {
        let registry = unwatched("1 core");
        let queue = queue("heavy").cpu_intensive().help(false);
        let queue = queue.build_in(&registry).unwrap();
        let barrier = Arc::new(Barrier::new(4));
        for _ in 0..4 {
            let barrier = barrier.clone();
            queue
                .spawn_detached(move || {
                    barrier.wait();
                })
                .unwrap();
        }
        queue.drain().unwrap();
    });
}

#[test]
fn bottom_halves_of_a_cpu_run_in_order_on_one_thread() {
    ends(|| {
        let registry = registry("1 core");
        let queue = queue("bh").bh().build_in(&registry).unwrap();
        let (send, receive) = mpsc::channel();
        for number in 0..1000 {
            let send = send.clone();
            queue
                .spawn_detached(move || send.send((number, sync::thread::current())).unwrap())
                .unwrap();
        }
        drop(send);
        let ran: Vec<_> = receive.iter().collect();
        assert!(ran.iter().map(|it| it.0).eq(0..1000));
        assert!(ran.iter().all(|it| it.1 == ran[0].1));
        assert_eq!(registry.pool_stats()[0].created, 1);
    });
}

#[test]
fn a_bottom_half_that_would_sleep_panics_instead() {
    ends(|| {
        let registry = registry("1 core");
        let queue = queue("bh").bh().build_in(&registry).unwrap();
        let blocked = queue.spawn(|| workqueue::blocking(|| ()));
        assert!(blocked.join().is_err());
        let other = crate::support::queue("other").help(false);
        let other = other.build_in(&registry).unwrap();
        let (plug, hole) = stopper();
        let stuck = Work::new(move || hole.sit());
        other.enqueue(&stuck);
        plug.wait_until_stuck();
        let waited = queue.spawn({
            let stuck = stuck.clone();
            move || stuck.flush()
        });
        assert!(waited.join().is_err());
        plug.release();
        assert_eq!(queue.spawn(|| 42).join().unwrap(), 42, "and goes on");
    });
}

#[test]
fn a_bottom_half_that_would_wait_for_room_or_an_answer_has_posted_and_taken_nothing() {
    ends(|| {
        let registry = registry("1 core");
        let queue = queue("bh").bh().build_in(&registry).unwrap();
        let mut mailbox = Mailbox::builder().capacity(1).build();
        let poster = mailbox.poster();
        let waited = queue.spawn({
            let poster = poster.clone();
            move || poster.send_blocking(1)
        });
        assert!(waited.join().is_err());
        assert_eq!((mailbox.len(), poster.nr_inside()), (0, Some(0)));
        let (to, answer) = mailbox::reply();
        to.reply(7).unwrap();
        let answer = Arc::new(Mutex::new(answer));
        let waited = queue.spawn({
            let answer = answer.clone();
            move || answer.lock().unwrap().wait_timeout(Duration::MAX)
        });
        assert!(waited.join().is_err());
        let mut answer = answer.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(answer.wait_timeout(Duration::ZERO), Ok(7));
        assert_eq!(queue.spawn(move || poster.post(2)).join().unwrap(), Ok(()));
        assert_eq!(mailbox.try_recv(), Ok(2));
    });
}

#[test]
fn a_bottom_half_that_would_wait_for_readers_panics_before_it_changes_anything() {
    ends(|| {
        let registry = registry("1 core");
        let queue = queue("bh").bh().build_in(&registry).unwrap();
        let replaces = |cell: Arc<dyn Fn() + Send + Sync>| queue.spawn(move || cell()).join();
        let domain = Domain::new();
        let sleepable = Arc::new(Rcu::new_in(1, domain.clone()));
        let ours = sleepable.clone();
        assert!(replaces(Arc::new(move || _ = ours.replace_sync(2))).is_err());
        assert_eq!(*sleepable.load(&sleepable.read()), 1);
        let global = Arc::new(Rcu::new(1));
        let ours = global.clone();
        assert!(replaces(Arc::new(move || _ = ours.replace_sync(2))).is_err());
        assert_eq!(*global.load(&global.read()), 1);
        assert!(replaces(Arc::new(move || domain.barrier())).is_err());
    });
}

#[test]
fn a_bottom_half_queue_is_of_no_other_kind() {
    for builder in [
        queue("bh").bh().ordered(),
        queue("bh").bh().cpu_intensive(),
        queue("bh").with_rescuer().bh(),
    ] {
        let refused = builder.build_in(&registry("1 core"));
        assert!(matches!(refused, Err(BuildError::Bh)));
    }
}

#[test]
fn a_bottom_half_queue_keeps_its_attributes() {
    let queue = queue("bh").bh().build_in(&registry("2 core")).unwrap();
    let before = queue.attrs();
    assert!(matches!(
        queue.set_attrs(|attrs| attrs.nice = 5),
        Err(BuildError::Bh)
    ));
    assert_eq!(queue.attrs(), before);
}

#[test]
fn a_rescuer_runs_what_no_worker_can_be_had_for() {
    ends(|| {
        let registry = registry("2 core");
        registry.refuse_threads(true);
        // Keeps the registry's rescuer busy.
        let plain = queue("plain").help(false).build_in(&registry).unwrap();
        let plug = plug_into(&plain);
        let queue = queue("reclaim").with_rescuer().help(false);
        let queue = queue.build_in(&registry).unwrap();
        for i in 0..20 {
            assert_eq!(queue.spawn(move || i).join().unwrap(), i);
        }
        let (stats, pool) = (queue.stats(), &registry.pool_stats()[0]);
        assert_eq!((stats.rescued, pool.rescued), (20, 20));
        assert!(stats.maydays > 0);
        assert_eq!(stats.maydays, pool.maydays);
        assert_eq!(plain.stats().maydays, 0);
        plug.release();
        drop(queue);
    });
}

#[test]
fn a_rescuer_runs_an_item_on_the_cpu_that_it_belongs_to() {
    ends(|| {
        let machine = Topology::detect().unwrap();
        let registry = Registry::new(machine.clone(), Params::default()).unwrap();
        registry.refuse_threads(true);
        let plain = queue("plain").per_cpu().build_in(&registry).unwrap();
        let reclaim = queue("reclaim").per_cpu().with_rescuer();
        let reclaim = reclaim.build_in(&registry).unwrap();
        // SAFETY: it has no preconditions.
        let here = || CpuId::new(unsafe { libc::sched_getcpu() } as u32);
        for cpu in machine.allowed().iter() {
            assert_eq!(plain.task().on_cpu(cpu).spawn(here).join().unwrap(), cpu);
            assert_eq!(reclaim.task().on_cpu(cpu).spawn(here).join().unwrap(), cpu);
        }
    });
}

#[test]
fn a_rescuer_runs_the_items_of_its_own_queue_alone() {
    ends(|| {
        let registry = registry("1 core");
        registry.refuse_threads(true);
        let plain = queue("plain").help(false).build_in(&registry).unwrap();
        let plug = plug_into(&plain);
        let foreign = Count::default();
        let work = counting(&foreign);
        plain.enqueue(&work);
        let reclaim = queue("reclaim").with_rescuer().help(false);
        let reclaim = reclaim.build_in(&registry).unwrap();
        let count = Count::default();
        let works: Vec<_> = (0..200).map(|_| counting(&count)).collect();
        reclaim.enqueue_all(&works);
        reclaim.drain().unwrap();
        assert_eq!((count.get(), foreign.get()), (200, 0));
        plug.release();
        plain.drain().unwrap();
        assert_eq!(foreign.get(), 1);
    });
}

#[test]
fn a_rescuer_keeps_the_order_of_an_ordered_queue() {
    ends(|| {
        let registry = registry("1 core");
        registry.refuse_threads(true);
        let plain = queue("plain").help(false).build_in(&registry).unwrap();
        let plug = plug_into(&plain);
        let queue = queue("reclaim").with_rescuer().ordered();
        let queue = queue.build_in(&registry).unwrap();
        let (send, receive) = mpsc::channel();
        for number in 0..100 {
            let send = send.clone();
            queue
                .spawn_detached(move || send.send(number).unwrap())
                .unwrap();
        }
        drop(send);
        assert!(receive.iter().eq(0..100));
        plug.release();
    });
}

#[test]
fn an_item_run_by_a_rescuer_may_wait_for_another_queue_with_one() {
    ends(|| {
        let registry = registry("1 core");
        registry.refuse_threads(true);
        let builder = || queue("reclaim").with_rescuer().help(false);
        let inner = builder().build_in(&registry).unwrap();
        let outer = builder().build_in(&registry).unwrap();
        let waits = outer.spawn({
            let inner = inner.clone();
            move || inner.spawn(|| 42).join().unwrap()
        });
        assert_eq!(waits.join().unwrap(), 42);
    });
}

#[test]
fn an_item_that_waits_where_no_thread_is_had_does_not_hold_up_the_manager() {
    ends(|| {
        let registry = registry("1 core");
        registry.refuse_threads(true);
        let queue = queue("plain").help(false).build_in(&registry).unwrap();
        let (send, receive) = mpsc::channel();
        let inner = queue.clone();
        let waits = queue.spawn(move || {
            let inner = inner.spawn(|| 42);
            send.send(()).unwrap();
            inner.join().unwrap()
        });
        receive.recv().unwrap();
        // The manager can start a thread for the inner item now.
        registry.refuse_threads(false);
        assert_eq!(waits.join().unwrap(), 42);
    });
}

#[test]
fn a_queue_with_a_rescuer_goes_although_its_last_handle_drops_inside_its_item() {
    ends(|| {
        let registry = registry("1 core");
        registry.refuse_threads(true);
        let queue = queue("reclaim").with_rescuer().build_in(&registry).unwrap();
        let (send, receive) = mpsc::channel::<()>();
        let last = queue.clone();
        queue
            .spawn_detached(move || {
                drop(last);
                drop(send);
            })
            .unwrap();
        drop(queue);
        assert!(receive.recv().is_err());
        let mut registry = Some(registry);
        eventually("all threads end", || {
            match registry.take().unwrap().shutdown() {
                Ok(()) => true,
                Err(used) => {
                    registry = Some(used.registry);
                    false
                }
            }
        });
    });
}

#[test]
fn a_rescuer_works_when_the_system_refuses_threads() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    in_own_process(
        "kinds::a_rescuer_works_when_the_system_refuses_threads",
        || {
            let registry =
                workqueue::Registry::new(Topology::detect().unwrap(), Default::default()).unwrap();
            let queue = queue("reclaim").with_rescuer().help(false);
            let queue = queue
                .affinity(AffinityScope::System)
                .build_in(&registry)
                .unwrap();
            let before = getrlimit(Resource::As);
            let leave_bytes = |spare: u64| {
                let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
                let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
                let limit = Rlimit {
                    current: Some(pages * rustix::param::page_size() as u64 + spare),
                    maximum: before.maximum,
                };
                setrlimit(Resource::As, limit).unwrap();
            };
            others_sleep();
            leave_bytes(4 << 20);
            // Uses up the stacks of exited threads that the C library has cached.
            let (stop, stopped) = mpsc::channel::<()>();
            let stopped = Arc::new(std::sync::Mutex::new(stopped));
            let (up, started) = mpsc::channel();
            let mut held = Vec::new();
            while let Ok(thread) = sync::thread::spawn("held", {
                let (up, stopped) = (up.clone(), stopped.clone());
                move || {
                    up.send(()).unwrap();
                    assert!(stopped.lock().unwrap().recv().is_err());
                }
            }) {
                started.recv().unwrap();
                held.push(thread);
                assert!(held.len() < 64, "threads are to be had without end");
            }
            // Leaves some memory for the heap, and too little for another stack.
            leave_bytes(1 << 20);
            let sum: u32 = (0..10)
                .map(|i| queue.spawn(move || i).join().unwrap())
                .sum();
            drop(stop);
            setrlimit(Resource::As, before).unwrap();
            assert_eq!(sum, 45);
            let stats = &registry.pool_stats()[0];
            // A worker may have started after all, on the stack of a thread that has exited since.
            assert!(stats.spawn_failed > 0 || stats.created > 0, "{stats:?}");
        },
    );
}

#[test]
fn a_wait_that_a_bottom_half_item_is_refused_has_changed_nothing() {
    ends(|| {
        let registry = registry("2 core");
        let bh = queue("bh").bh().build_in(&registry).unwrap();
        let other = queue("other").max_active(1).build_in(&registry).unwrap();
        let (plug, hole) = stopper();
        let running = Work::new(move || hole.sit());
        other.enqueue(&running);
        plug.wait_until_stuck();
        let count = Count::default();
        let pending = counting(&count);
        other.enqueue(&pending);
        let is_refused = |wait: Box<dyn FnOnce() + Send>| {
            assert!(matches!(bh.spawn(wait).join(), Err(JoinError::Panicked(_))));
        };
        let its = || other.clone();
        let (queue, paused) = (its(), its());
        is_refused(Box::new(move || _ = queue.drain()));
        paused.pause();
        is_refused(Box::new(move || _ = paused.destroy()));
        let handle = other
            .try_spawn(|| ())
            .expect("neither draining nor destroyed");
        assert!(other.resume(), "still paused");
        for work in [&running, &pending] {
            let (first, second) = (work.clone(), work.clone());
            is_refused(Box::new(move || _ = first.cancel_sync()));
            is_refused(Box::new(move || _ = second.disable_sync()));
        }
        assert!(pending.is_pending() && running.busy().executing);
        let idle = DelayedWork::new(|| ());
        let same = idle.clone();
        is_refused(Box::new(move || _ = same.cancel_sync()));
        assert!(other.enqueue_after(&idle, std::time::Duration::ZERO));
        plug.release();
        handle.join().unwrap();
        running.flush().unwrap();
        assert_eq!((pending.flush().is_ok(), count.get()), (true, 1));
        assert!(other.enqueue(&running));
        plug.wait_until_stuck();
        plug.release();
        // An item that waits for itself returns at once.
        let own = Work::with_handle(|own| _ = own.cancel_sync());
        bh.enqueue(&own);
        own.flush().unwrap();
    });
}

#[test]
fn rcu_goes_on_after_it_has_refused_a_bottom_half_item_its_wait() {
    ends(|| {
        let bh = queue("bh").bh().build_in(&registry("2 core")).unwrap();
        let waits: [fn(); 3] = [rcu::synchronize, rcu::synchronize_expedited, rcu::barrier];
        for wait in waits {
            let (opened, is_open) = mpsc::channel();
            let (close, is_closed) = mpsc::channel::<()>();
            let reader = std::thread::spawn(move || {
                let _guard = rcu::read();
                opened.send(()).unwrap();
                let _ = is_closed.recv();
            });
            is_open.recv().unwrap();
            rcu::call(|| ());
            assert!(matches!(bh.spawn(wait).join(), Err(JoinError::Panicked(_))));
            drop(close);
            reader.join().unwrap();
            rcu::synchronize();
            rcu::barrier();
        }
    });
}

#[test]
fn no_user_of_a_system_queue_stops_or_changes_it() {
    ends(|| {
        let queues = [
            workqueue::system(),
            workqueue::system_highpri(),
            workqueue::system_long(),
            workqueue::system_unbound(),
        ];
        for queue in queues.map(Result::unwrap) {
            let attrs = queue.attrs();
            for clone in [queue.clone(), WeakWorkqueue::new(queue).upgrade().unwrap()] {
                let works = |after: &str| {
                    assert_eq!(queue.spawn(|| 7).join().unwrap(), 7, "after {after}");
                    assert!(queue.try_spawn(|| ()).is_ok(), "after {after}");
                };
                let later = workqueue::DelayedWork::new(|| ());
                assert!(clone.enqueue_after(&later, Duration::from_secs(3600)));
                assert!(clone.drain().is_err());
                assert!(clone.drain_timeout(Duration::MAX).is_err());
                assert!(workqueue::block_on(clone.drain_async()).is_err());
                let error = clone.destroy().unwrap_err();
                assert!(
                    error.to_string().contains("for the whole process"),
                    "{error}"
                );
                works("destroy");
                assert!(!clone.pause() && !clone.resume());
                works("pause");
                assert_eq!(clone.cancel_all(), 0);
                assert!(later.is_pending(), "an item of another user was cancelled");
                assert!(later.cancel());
                let is_refused = |result| matches!(result, Err(BuildError::System(_)));
                assert!(is_refused(clone.set_max_active(1)));
                assert!(is_refused(clone.set_shares(1)));
                assert!(is_refused(clone.set_attrs(|attrs| attrs.nice = 19)));
                assert_eq!(
                    (queue.attrs(), queue.report().shares),
                    (attrs.clone(), None)
                );
                clone.clone().close_in_background();
                works("close_in_background");
                clone.shutdown_background();
                works("shutdown_background");
            }
        }
    });
}
