//! Kinds of queues (per CPU, highpri, CPU-intensive, bottom halves, and those with a rescuer), and
//! values that builders reject.

use afterwork::mailbox::{Worker, WorkerError};
use afterwork::percpu::{self, PerCpu};

use crate::children::NoThreads;
use crate::rcu_work::Section;
use crate::support::*;

#[test]
fn a_per_cpu_queue_has_a_strict_pool_for_each_cpu() {
    let (registry, _queue) = queue("bound").per_cpu().on_own(registry("4 core"));
    let pools = registry.pool_stats();
    assert_eq!(pools.len(), 4);
    assert!(pools.iter().all(|pool| pool.strict && pool.cpus.len() == 1));
}

#[test]
fn a_per_cpu_pool_runs_one_item_at_a_time() {
    let queue = queue("bound").per_cpu().on(&unwatched("1 core"));
    assert_eq!(concurrency(&queue, 500), 1);
}

#[test]
fn a_highpri_queue_has_the_kernels_nice_value_or_an_error() {
    let registry = registry("1 core");
    match queue("highpri").highpri().build_in(&registry) {
        Ok(_queue) => assert_eq!(registry.pool_stats()[0].nice, -20),
        Err(error) => assert!(matches!(error, BuildError::NicePermission(-20, _))),
    }
}

#[test]
fn cpu_intensive_items_do_not_delay_other_queues() {
    let (registry, heavy) = queue("heavy").cpu_intensive().help(false).on_own(unwatched("1 core"));
    let light = queue("light").help(false).on(&registry);
    let plugs = [(); 3].map(|()| plug_into(&heavy));
    light.spawn(|| ()).join().unwrap();
    assert_eq!(registry.pool_stats().remove(0).seen_asleep, 0, "the monitor was not needed");
    plugs.iter().for_each(Plug::release);
}

#[test]
fn cpu_intensive_items_of_one_queue_run_concurrently() {
    let queue = queue("heavy").cpu_intensive().help(false).on(&unwatched("1 core"));
    run_at_once(&queue, 4);
}

#[test]
fn bottom_halves_of_a_cpu_run_in_order_on_one_thread() {
    let (registry, log) = (registry("1 core"), Log::default());
    let queue = queue("bh").bh().on(&registry);
    (0..1000).for_each(|number| queue.detach(move || log.push((number, sync::thread::current()))));
    queue.drain().unwrap();
    let ran = log.take();
    assert!(ran.iter().map(|it| it.0).eq(0..1000));
    assert!(ran.iter().all(|it| it.1 == ran[0].1));
    assert_eq!(registry.pool_stats()[0].created, 1);
}

#[test]
fn wait_rejected_in_a_bottom_half_has_no_effect() {
    let queue = queue("bh").bh().on(&registry("1 core"));
    let mut mailbox = Mailbox::builder().capacity(1).build();
    let poster = mailbox.poster();
    is_rejected_in(&queue, &poster, |poster| _ = poster.send_blocking(1));
    assert_eq!((mailbox.len(), poster.nr_inside()), (0, Some(0)));
    let (to, answer) = mailbox::reply();
    to.reply(7).unwrap();
    let answer = Shared::new(Mutex::new(answer));
    is_rejected_in(&queue, &answer, |it| _ = it.lock().unwrap().wait_timeout(Duration::MAX));
    let mut answer = answer.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(answer.wait_timeout(Duration::ZERO), Ok(7));
    assert_eq!(queue.spawn(move || poster.post(2)).join().unwrap(), Ok(()));
    assert_eq!(mailbox.try_recv(), Ok(2));
    // The same holds for waits for readers.
    let domain = Domain::new();
    let sleepable = Shared::new(Rcu::new_in(1, domain.clone()));
    let global = Shared::new(Rcu::new(1));
    is_rejected_in(&queue, &sleepable, |it| _ = it.replace_sync(2));
    assert_eq!(*sleepable.load(&sleepable.read()), 1);
    is_rejected_in(&queue, &global, |it| _ = it.replace_sync(2));
    assert_eq!(*global.load(&global.read()), 1);
    is_rejected_in(&queue, &domain, Domain::barrier);
    // RCU works afterwards.
    let waits: [fn(); 3] = [rcu::synchronize, rcu::synchronize_expedited, rcu::barrier];
    for wait in waits {
        let section = Section::open();
        rcu::call(|| ());
        is_rejected_in(&queue, &(), move |()| wait());
        section.close();
        rcu::synchronize();
        rcu::barrier();
    }
}

#[test]
fn a_bottom_half_queue_is_of_no_other_kind() {
    for builder in [
        queue("bh").bh().ordered(),
        queue("bh").bh().cpu_intensive(),
        queue("bh").with_rescuer().bh(),
    ] {
        assert!(matches!(builder.build_in(&registry("1 core")), Err(BuildError::Bh)));
    }
    // Its attributes do not change.
    let queue = queue("bh").bh().alone();
    let before = queue.report().attrs;
    assert!(matches!(queue.set_attrs(|attrs| attrs.nice = 5), Err(BuildError::Bh)));
    assert_eq!(queue.report().attrs, before);
}

/// Returns a registry that cannot create threads and whose own rescuer is blocked in an item.
fn without_threads(machine: &str) -> (Registry, Workqueue, Plug) {
    let (registry, plain) = queue("plain").help(false).on_own(threadless(machine));
    let plug = plug_into(&plain);
    (registry, plain, plug)
}

#[test]
fn a_rescuer_runs_items_when_no_worker_can_start() {
    let (registry, plain, plug) = without_threads("2 core");
    let queue = queue("reclaim").with_rescuer().help(false).on(&registry);
    for i in 0..20 {
        assert_eq!(queue.spawn(move || i).join().unwrap(), i);
    }
    let (stats, pool) = (queue.stats(), &registry.pool_stats()[0]);
    assert_eq!((stats.rescued, pool.rescued), (20, 20));
    assert!(stats.maydays > 0 && stats.maydays == pool.maydays, "{stats:?}");
    assert_eq!(plain.stats().maydays, 0);
    plug.release();
}

#[test]
fn a_rescuer_runs_an_item_on_the_cpu_that_it_belongs_to() {
    let registry = detected();
    registry.refuse_threads(true);
    let plain = queue("plain").per_cpu().on(&registry);
    let reclaim = queue("reclaim").per_cpu().with_rescuer().on(&registry);
    for cpu in registry.topology().allowed().iter() {
        assert_eq!(plain.task().on_cpu(cpu).spawn(cpu_here).join().unwrap(), cpu);
        assert_eq!(reclaim.task().on_cpu(cpu).spawn(cpu_here).join().unwrap(), cpu);
    }
}

#[test]
fn a_rescuer_runs_the_items_of_its_own_queue_alone() {
    let (registry, plain, plug) = without_threads("1 core");
    let (work, foreign) = counted();
    plain.enqueue(&work);
    let reclaim = queue("reclaim").with_rescuer().help(false).on(&registry);
    let count = Count::default();
    count.spawn(200, &reclaim);
    reclaim.drain().unwrap();
    assert_eq!((count.get(), foreign.get()), (200, 0));
    assert_eq!(plug.release_and_count(&plain, foreign), 1);
}

#[test]
fn a_rescuer_keeps_the_order_of_an_ordered_queue() {
    let (registry, _plain, plug) = without_threads("1 core");
    let queue = queue("reclaim").with_rescuer().ordered().on(&registry);
    let log = Log::default();
    (0..100).for_each(|number| queue.detach(log.note(number)));
    queue.drain().unwrap();
    assert!(log.take().into_iter().eq(0..100));
    plug.release();
}

#[test]
fn an_item_run_by_a_rescuer_may_wait_for_another_queue_with_one() {
    let registry = threadless("1 core");
    let [inner, outer] = [(); 2].map(|()| queue("two").with_rescuer().help(false).on(&registry));
    let joined = inner.clone();
    assert_eq!(outer.spawn(move || joined.spawn(|| 42).join().unwrap()).join().unwrap(), 42);
}

#[test]
fn an_item_that_waits_without_threads_spares_the_manager() {
    let registry = threadless("1 core");
    let (queue, done) = (queue("plain").help(false).on(&registry), Count::default());
    let waits = queue.spawn_own(move |own| {
        let inner = own.spawn(|| 42);
        done.add();
        inner.join().unwrap()
    });
    wait_until(|| done.get() > 0);
    // The manager can start a thread for the inner item now.
    registry.refuse_threads(false);
    assert_eq!(waits.join().unwrap(), 42);
}

#[test]
fn a_queue_with_a_rescuer_may_end_inside_its_own_item() {
    let (registry, lives) = (threadless("1 core"), Census::default());
    let queue = queue("reclaim").with_rescuer().on(&registry);
    let owned = (queue.clone(), lives.life());
    queue.detach(move || drop(owned));
    drop(queue);
    lives.all_dropped(1);
    shut_down(registry);
}

#[test]
fn rescuer_works_when_thread_creation_fails() {
    in_own_process(|| {
        let registry = detected();
        let queue = queue("reclaim").with_rescuer().help(false).affinity(System).on(&registry);
        let _no_threads = NoThreads::begin();
        let sum: u32 = (0..10).map(|i| queue.spawn(move || i).join().unwrap()).sum();
        assert_eq!(sum, 45);
        let stats = &registry.pool_stats()[0];
        assert!(stats.spawn_failed > 0 && stats.created == 0, "{stats:?}");
    });
}

#[test]
fn wait_rejected_in_a_bottom_half_item_changes_nothing() {
    let [bh, other] = [queue("bh").bh(), queue("other").max_active(1)].on(&registry("2 core"));
    let (running, plug) = stuck_in(&other);
    let (pending, count) = counted();
    other.enqueue(&pending);
    is_rejected_in(&bh, &(), |()| workqueue::blocking(|| ()));
    is_rejected_in(&bh, &running, |work| _ = work.flush());
    is_rejected_in(&bh, &other, |queue| _ = queue.drain());
    other.pause();
    is_rejected_in(&bh, &other, |queue| _ = queue.shutdown(Duration::MAX));
    let handle = other.try_spawn(|| ()).expect("neither draining nor destroyed");
    assert!(other.resume(), "still paused");
    for work in [&running, &pending] {
        is_rejected_in(&bh, work, |work| _ = work.cancel_sync());
        is_rejected_in(&bh, work, |work| _ = work.disable_sync());
    }
    assert!(pending.is_pending() && running.busy().executing);
    let idle = DelayedWork::new(|| ());
    is_rejected_in(&bh, &idle, |idle| _ = idle.cancel_sync());
    assert!(other.enqueue_after(&idle, Duration::ZERO));
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
}

#[test]
fn no_user_of_a_system_queue_stops_or_changes_it() {
    use workqueue::{system, system_highpri, system_long, system_unbound};
    for queue in [system(), system_highpri(), system_long(), system_unbound()] {
        let queue = queue.unwrap();
        let attrs = queue.report().attrs;
        for clone in [queue.clone(), WeakWorkqueue::new(queue).upgrade().unwrap()] {
            let works = |after: &str| {
                assert_eq!(queue.spawn(|| 7).join().unwrap(), 7, "after {after}");
                assert!(queue.try_spawn(|| ()).is_ok(), "after {after}");
            };
            let later = DelayedWork::new(|| ());
            assert!(clone.enqueue_after(&later, HOUR));
            assert!(clone.drain().is_err());
            assert!(clone.drain_timeout(Duration::MAX).is_err());
            assert!(block_on(clone.drain_async()).is_err());
            let error = clone.shutdown(Duration::MAX).unwrap_err().to_string();
            assert!(error.contains("for the whole process"), "{error}");
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
            assert_eq!((queue.report().attrs, queue.report().shares), (attrs.clone(), None));
            clone.clone().close_in_background();
            works("close_in_background");
            clone.shutdown_background();
            works("shutdown_background");
        }
    }
}

fn refused(builder: Builder) -> BuildError {
    builder.build_in(&registry("2 core")).expect_err("it must be rejected")
}

#[test]
fn name_with_a_nul_is_rejected_by_each_builder() {
    let kinds: [fn(Builder) -> Builder; 4] =
        [|it| it, Builder::with_rescuer, Builder::ordered, Builder::bh];
    for name in ["\0", "nul\0inside", "at the end\0"] {
        for kind in kinds {
            assert!(matches!(refused(kind(queue(name))), BuildError::Name));
        }
        assert!(matches!(Worker::builder(name).build(), Err(WorkerError::Name)));
        let data = PerCpu::builder().name(name).build(|_| 0);
        assert!(matches!(data, Err(percpu::BuildError::Name)));
        let params = Params { thread_name: name.into(), ..Params::default() };
        assert!(Registry::new(Topology::synthetic("1 core").unwrap(), params).is_err());
        // This name is only displayed. It is not the name of a thread.
        let mailbox = Mailbox::<u32>::builder().name(name).build();
        mailbox.poster().post(1).unwrap();
    }
    // Every other string is a valid name.
    for name in ["", "new\nline", "\u{7}", "🦀 ünï", &"x".repeat(500)] {
        let queue = queue(name).with_rescuer().build().unwrap();
        assert_eq!(queue.name(), name);
        assert_eq!(queue.spawn(|| 7).join().unwrap(), 7);
        assert!(format!("{queue:?}").contains("Workqueue"));
    }
}

fn named(builder: Builder, text: &str) {
    assert_eq!(refused(builder).to_string(), text);
}

#[test]
fn a_limit_out_of_range_is_named() {
    for wrong in [0, 513, u32::MAX] {
        let text = format!("max_active {wrong} is not between 1 and 512");
        named(queue("q").max_active(wrong), &text);
    }
    assert_eq!(queue("q").max_active(512).alone().stats().max_active, 512);
}

#[test]
fn a_nice_value_out_of_range_is_named() {
    for wrong in [-21, 20, i8::MIN, i8::MAX] {
        let text = format!("nice value {wrong} is not between -20 and 19");
        named(queue("q").nice(wrong), &text);
    }
    queue("q").nice(19).alone();
}

#[test]
fn ordered_queue_rejects_settings_that_break_its_order() {
    let ordered = || queue("q").ordered();
    let text = "an ordered queue runs one item at a time, not 2";
    named(ordered().max_active(2), text);
    let text = "an ordered queue has one order for the whole machine, not one per cpu";
    named(ordered().affinity(Cpu), text);
    let text = "an ordered queue cannot have help(true): joiners would run items out of order";
    named(ordered().help(true), text);
    for right in [
        ordered(),
        ordered().max_active(1),
        ordered().affinity(System),
        ordered().help(false),
        ordered().strict(true),
    ] {
        let queue = right.alone();
        assert_eq!(queue.stats().max_active, 1);
        assert_eq!(queue.spawn(|| 1).join().unwrap(), 1);
        assert_eq!(queue.stats().helped, 0);
    }
}

#[test]
fn forbidden_nice_value_is_rejected_with_the_reason() {
    let permitted = sync::thread::may_set_nice(-20).is_ok();
    let built = queue("q").nice(-20).build_in(&registry("2 core"));
    assert_eq!(built.is_ok(), permitted);
    if let Err(error) = built {
        assert!(error.to_string().starts_with("nice value -20 is refused to this process: "));
        assert!(std::error::Error::source(&error).is_some());
    }
}

#[test]
fn strict_queues_help_only_when_asked_to() {
    for (builder, helps) in [
        (queue("q"), true),
        (queue("q").strict(true), false),
        (queue("q").strict(true).help(true), true),
        (queue("q").help(false), false),
    ] {
        let (queue, plug) = builder.max_active(1).plugged();
        let handle = queue.spawn(|| ());
        queue.set_max_active(2).unwrap();
        handle.join().unwrap();
        plug.release_and_drain(&queue);
        assert!(helps || queue.stats().helped == 0);
    }
}
