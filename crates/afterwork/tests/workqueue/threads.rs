//! The threads of a registry: their stacks, their names, the hooks that they call, and the work
//! that is done if none can be created.

use afterwork::percpu::{PerCpu, Qpw};

use crate::children::NoThreads;
use crate::nested::descend;
use crate::support::*;

#[test]
fn threads_call_their_hooks_around_all_their_items() {
    let (started, stopped) = (Log::default(), Log::default());
    let noting = |log: Log<String>| Some(ThreadHook::new(move || log.push(thread_name())));
    let registry = tuned("2 core", |it| {
        it.on_thread_start = noting(started);
        it.on_thread_stop = noting(stopped);
        it.thread_name = "db".into();
    });
    let queue = queue("hooks").help(false).with_rescuer().on(&registry);
    let worker = queue.spawn(move || {
        let threads = started.take();
        assert!(threads.contains(&thread_name()));
        threads.into_iter().for_each(|it| started.push(it));
        thread_name()
    });
    assert_eq!(worker.join().unwrap(), "db/u0");
    assert_eq!(stopped.take(), Vec::<String>::new());
    drop(queue);
    shut_down(registry);
    let [started, stopped] = [started, stopped].map(|log| {
        let mut names = log.take();
        names.sort();
        names
    });
    assert_eq!(started, stopped);
    for name in ["db/r:hooks", "db/rescuer", "db/u0"] {
        assert!(started.iter().any(|it| it == name), "{name}: {started:?}");
    }
}

#[test]
fn hooks_may_panic_and_are_dropped_with_the_last_owner() {
    let lives = Census::default();
    let life = lives.life();
    let hook = ThreadHook::new(move || {
        let _ = &life;
        panic!("in a hook");
    });
    assert!(hook == hook.clone() && hook != ThreadHook::new(|| ()));
    let registry = tuned("2 core", |it| {
        it.on_thread_start = Some(hook.clone());
        it.on_thread_stop = Some(hook);
    });
    let queue = queue("panics").help(false).on(&registry);
    assert_eq!(queue.spawn(|| 7).join().unwrap(), 7);
    drop(queue);
    assert_eq!(lives.alive(), 1);
    shut_down(registry);
    lives.all_dropped(1);
}

#[test]
fn stacks_have_the_size_of_the_parameter() {
    let params = "workqueue.stack_size=67108864".parse().unwrap();
    let queue = queue("large").help(false).on(&registry_with("2 core", params));
    // A stack of 2 MiB is an eighth of this.
    queue.spawn(|| dig(16 << 10)).join().unwrap();
    // Nested joins continue on other stacks.
    let registry = tuned("1 core", |it| it.stack_size = 256 << 10);
    let queue = self::queue("nested").max_active(1).on(&registry);
    assert_eq!(queue.in_worker(|own| descend(own, 400)), 400);
}

#[test]
fn an_invalid_thread_tunable_is_named() {
    let refused = |change: &dyn Fn(&mut Params)| {
        let mut params = Params::default();
        change(&mut params);
        match Registry::new(Topology::synthetic("1 core").unwrap(), params) {
            Err(RegistryError::Params(error)) => error.to_string(),
            other => panic!("{other:?}"),
        }
    };
    for size in [0, 65_535, (1 << 30) + 1, usize::MAX] {
        let expected = "expected a number from 65536 to 1073741824";
        let error = refused(&|it| it.stack_size = size);
        assert_eq!(error, format!("workqueue.stack_size={size}: {expected}"));
    }
    for name in ["", "of 11 bytes", "n\0l"] {
        let error = refused(&|it| it.thread_name = name.into());
        assert!(error.starts_with("thread_name="), "{error}");
        assert!(error.ends_with("expected a name of 1 to 10 bytes, without a NUL"), "{error}");
    }
}

#[test]
fn a_hook_may_drop_the_last_handle_of_a_waiting_queue() {
    let (handles, given) = mpsc::channel::<Workqueue>();
    let given = Mutex::new(given);
    let hook = ThreadHook::new(move || {
        // Only workers drop a handle.
        if thread_name().starts_with("aw/u") {
            thread::sleep(20 * MS);
            drop(given.lock().unwrap().try_recv());
        }
    });
    let registry = tuned("2 core", |it| it.on_thread_start = Some(hook));
    let queue = queue("hooks").help(false).on(&registry);
    handles.send(queue.clone()).unwrap();
    let item = queue.spawn(|| 7);
    queue.close_in_background();
    assert_eq!(item.join().unwrap(), 7);
    shut_down(registry);
}

fn kinds() -> Vec<fn(Builder) -> Builder> {
    vec![
        |it| it.affinity(Cpu),
        |it| it.affinity(Smt),
        |it| it.affinity(Cache),
        |it| it.affinity(CacheShard),
        |it| it.affinity(Numa),
        |it| it.affinity(System),
        |it| it.affinity(Cpu).strict(true),
        |it| it.per_cpu(),
        |it| it.nice(5),
        |it| it.cpu_intensive(),
        |it| it.ordered(),
        |it| it.max_active(1),
    ]
}

#[test]
fn an_item_runs_although_all_workers_sleep_without_threads() {
    for kind in kinds() {
        let registry = registry("1 core");
        let two = [queue("sleeps"), queue("waits")];
        let [sleeps, waits] = two.map(|it| kind(it).help(false).on(&registry));
        let plug = plug_into(&sleeps);
        registry.refuse_threads(true);
        (0..3).for_each(|i| assert_eq!(waits.spawn(move || i).join().unwrap(), i));
        assert_eq!(registry.pool_stats()[0].created, 1);
        plug.release_and_drain(&sleeps);
        // This item reports to the pool that it blocks.
        let (_, plug) = stuck(|hole| sleeps.detach(move || blocking(|| hole.sit())));
        assert_eq!(waits.spawn(|| 7).join().unwrap(), 7);
        plug.release();
    }
}

#[test]
fn an_item_runs_although_the_only_worker_hogs_the_cpu() {
    let (registry, queue) = queue("hogs").help(false).on_own(registry("1 core"));
    queue.spawn(|| ()).join().unwrap();
    registry.refuse_threads(true);
    let stop = Count::default();
    queue.detach(hogging(stop));
    queue.spawn(stop.adder()).join().unwrap();
}

#[test]
fn pools_without_workers_take_turns_with_the_rescuer_of_all() {
    let (registry, first) = queue("first").help(false).on_own(threadless("1 core"));
    let second = queue("second").nice(5).help(false).on(&registry);
    let stop = Count::default();
    let work = restless(&first, stop);
    first.enqueue(&work);
    assert_eq!(second.spawn(|| 7).join().unwrap(), 7);
    stop.add();
    first.drain().unwrap();
    assert!(!work.is_busy());
    assert!(registry.pool_stats().iter().all(|it| it.created == 0));
}

#[test]
fn pools_of_a_queue_take_turns_with_its_rescuer() {
    let (registry, plain) = queue("plain").help(false).on_own(threadless("2 core"));
    let keeps_rescuer_of_all = plug_into(&plain);
    let queue = queue("reclaim").with_rescuer().affinity(Cpu).help(false).on(&registry);
    let (again, stop) = (queue.clone(), Count::default());
    let work = Work::with_handle(move |this| {
        if stop.get() == 0 {
            on_cpu(&again, 0).enqueue(this);
        }
    });
    on_cpu(&queue, 0).enqueue(&work);
    wait_until(|| queue.stats().rescued > 0);
    assert_eq!(on_cpu(&queue, 1).spawn(|| 7).join().unwrap(), 7);
    stop.add();
    queue.drain().unwrap();
    assert!(!work.is_busy());
    keeps_rescuer_of_all.release();
}

#[test]
fn queues_of_every_kind_work_without_further_threads() {
    in_own_process(|| {
        let registry = detected();
        let mut kinds = kinds();
        kinds.extend([Builder::bh as fn(Builder) -> Builder, Builder::highpri, |it| it.nice(-1)]);
        let rescued = queue("rescued").with_rescuer().on(&registry);
        let (count, mut nr_due) = (Count::default(), 0);
        let _no_threads = NoThreads::begin();
        assert!(thread::Builder::new().spawn(|| ()).is_err());
        for kind in kinds {
            let queue = match kind(queue("kind").help(false)).build_in(&registry) {
                Err(BuildError::NicePermission(..)) => continue,
                built => built.unwrap(),
            };
            assert_eq!(queue.spawn(|| 7).join().unwrap(), 7);
            count.spawn(500, &queue);
            queue.flush().unwrap();
            queue.drain().unwrap();
            // The queue is destroyed although no reaper can be started.
            let plug = plug_of_owner(&queue);
            count.spawn(500, &queue);
            drop(queue);
            plug.release();
            nr_due += 1000;
        }
        let late = queue("late").with_rescuer().build_in(&registry);
        assert!(matches!(late, Err(BuildError::Rescuer(_))));
        assert_eq!(rescued.spawn(|| 7).join().unwrap(), 7);
        drop(rescued);
        shut_down(registry);
        assert_eq!(count.get(), nr_due);
    });
}

#[test]
fn without_threads_a_change_of_the_cpus_waits_for_no_owner() {
    in_own_process(|| {
        let machine = |text| Topology::synthetic(text).unwrap();
        let registry = registry("2 core");
        let builder = PerCpu::builder().topology(machine("2 core")).qpw(Qpw::Queue);
        let slots = Arc::new(builder.build(|_| ()).unwrap());
        let count = Count::default();
        let _watch = slots.drain_when_absent(move |_, ()| count.add());
        // The owner does not poll.
        let theirs = slots.clone();
        let (owned, plug) = stuck(|hole| {
            thread::spawn(move || {
                let _owner = theirs.attach(CpuId::new(1)).unwrap();
                hole.sit();
            })
        });
        let _no_threads = NoThreads::begin();
        registry.set_topology(machine("1 core"));
        let queue = queue("other").on(&registry);
        assert_eq!(queue.spawn(|| 7).join().unwrap(), 7);
        assert_eq!(count.get(), 0);
        plug.release();
        owned.join().unwrap();
        wait_until(|| count.get() == 1);
    });
}
