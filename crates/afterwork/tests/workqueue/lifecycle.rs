//! Drains, drops and shutdowns, and the resources that remain after them.

use std::{
    cell::RefCell,
    fs,
    sync::{Arc, mpsc},
    time::Duration,
};

use afterwork::{
    params::Params,
    workqueue::{AffinityScope, BuildError, Registry, Work, Workqueue},
};
use topology::Topology;

use crate::support::*;

/// Returns the names of the library's threads in this process.
fn our_threads() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    tasks
        .filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .map(|name| name.trim().to_string())
        .filter(|name| name.starts_with("aw/"))
        .collect()
}

#[test]
fn drain_waits_for_all_that_is_queued_and_running() {
    let queue = queue("drain")
        .affinity(AffinityScope::Cpu)
        .build_in(&registry("64 core"))
        .unwrap();
    queue.drain().unwrap();
    let count = Count::default();
    for round in 1..50 {
        threads(4, |i| {
            pin(i);
            for _ in 0..50 {
                let count = count.clone();
                queue.spawn_detached(move || count.add()).unwrap();
            }
        });
        queue.drain().unwrap();
        assert_eq!(count.get(), round * 200);
    }
}

#[test]
fn drain_waits_for_what_items_queue() {
    let queue = queue("chained")
        .affinity(AffinityScope::Cpu)
        .build_in(&registry("64 core"))
        .unwrap();
    for _ in 0..300 {
        let (again, runs) = (queue.clone(), Count::default());
        let count = runs.clone();
        // The item moves from pod to pod, so a scan of one pod after the other may miss it.
        let work = Work::with_handle(move |this| {
            count.add();
            if count.get() < 20 {
                pin(count.get());
                again.enqueue(this);
            }
        });
        queue.enqueue(&work);
        queue.drain().unwrap();
        assert_eq!(runs.get(), 20);
    }
}

#[test]
fn drain_counts_helpers() {
    let queue = alone_on_two(queue("drain"));
    for _ in 0..300 {
        let (plug, hole) = stopper();
        let handle = queue.spawn(move || hole.sit());
        let joiner = std::thread::spawn(move || handle.join().unwrap());
        plug.wait_until_stuck();
        let drainer = {
            let queue = queue.clone();
            std::thread::spawn(move || queue.drain().unwrap())
        };
        assert!(!drainer.is_finished());
        plug.release();
        drainer.join().unwrap();
        joiner.join().unwrap();
    }
}

#[test]
fn draining_a_queue_from_its_own_item_is_refused() {
    let queue = alone_on_two(queue("own").max_active(1));
    let own = queue.clone();
    let error = queue
        .spawn(move || own.drain())
        .join()
        .unwrap()
        .unwrap_err();
    assert_eq!(error.queue(), "own");
    assert_eq!(
        error.to_string(),
        "an item of workqueue \"own\" cannot wait for its own queue"
    );
    let own = queue.clone();
    let (send, receive) = mpsc::channel();
    queue
        .spawn_detached(move || send.send(own.drain()).unwrap())
        .unwrap();
    assert_eq!(receive.recv_timeout(PATIENCE), Ok(Err(error)));
    queue.drain().unwrap();
}

#[test]
fn draining_a_queue_from_within_an_item_that_its_item_helps_is_refused() {
    ends(|| {
        let registry = registry("2 core");
        let queue = queue("own").max_active(1).build_in(&registry).unwrap();
        let (on, own) = (queue.clone(), queue.clone());
        let other = crate::support::queue("other").build_in(&registry).unwrap();
        let said = queue.spawn(move || {
            // We hold the only seat, so no worker can run the item that is queued here.
            on.spawn(move || {
                let inner = other.spawn(|| ());
                inner.join().unwrap();
                own.drain()
            })
            .join()
            .unwrap()
        });
        assert!(said.join().unwrap().is_err());
    });
}

#[test]
fn dropping_the_last_handle_waits_for_all_items() {
    let registry = registry("2 core");
    let count = Count::default();
    for round in 1..100 {
        let queue = queue("dropped").build_in(&registry).unwrap();
        for _ in 0..100 {
            let count = count.clone();
            queue.spawn_detached(move || count.add()).unwrap();
        }
        drop(queue);
        assert_eq!(count.get(), round * 100);
    }
    assert!(registry.pool_stats().is_empty());
}

#[test]
fn the_last_handle_may_be_dropped_inside_an_item() {
    let registry = registry("2 core");
    for i in 0..200 {
        let queue = queue("inside").build_in(&registry).unwrap();
        let own = queue.clone();
        let (send, receive) = mpsc::channel();
        let (plug, hole) = stopper();
        match i % 3 {
            0 => drop(queue.spawn_detached(move || {
                hole.sit();
                drop(own);
                send.send(()).unwrap();
            })),
            1 => drop(queue.spawn(move || {
                hole.sit();
                drop(own);
                send.send(()).unwrap();
            })),
            _ => {
                let mut own = Some(own);
                let work = Work::new(move || {
                    hole.sit();
                    drop(own.take());
                    send.send(()).unwrap();
                });
                queue.enqueue(&work);
            }
        }
        plug.wait_until_stuck();
        drop(queue);
        plug.release();
        receive.recv_timeout(PATIENCE).expect("the item hangs");
    }
    eventually("all queues have gone", || registry.pool_stats().is_empty());
    shut_down(registry);
}

#[test]
fn the_last_handle_may_be_dropped_by_the_drop_of_a_closure_or_a_result() {
    let registry = registry("2 core");
    let census = Census::default();
    for i in 0..200 {
        let queue = queue("inside").build_in(&registry).unwrap();
        let owned = (queue.clone(), census.life());
        let (plug, hole) = stopper();
        match i % 3 {
            0 => drop(queue.spawn_detached(move || {
                let _owned = owned;
                hole.sit();
            })),
            1 => drop(queue.spawn(move || {
                hole.sit();
                owned
            })),
            _ => {
                let work = Work::new(move || {
                    let _ = &owned;
                    hole.sit();
                });
                queue.enqueue(&work);
            }
        }
        plug.wait_until_stuck();
        drop(queue);
        plug.release();
    }
    census.all_dropped(200);
    shut_down(registry);
}

#[test]
fn the_last_handle_may_be_dropped_by_an_item_of_another_queue() {
    let registry = registry("2 core");
    let other = queue("other").build_in(&registry).unwrap();
    let count = Count::default();
    for _ in 0..100 {
        let queue = queue("mine").build_in(&registry).unwrap();
        for _ in 0..20 {
            let count = count.clone();
            queue.spawn_detached(move || count.add()).unwrap();
        }
        other.spawn_detached(move || drop(queue)).unwrap();
    }
    other.drain().unwrap();
    assert_eq!(count.get(), 2000);
    drop(other);
    shut_down(registry);
}

#[test]
fn shutdown_is_refused_while_the_registry_is_in_use() {
    let registry = registry("2 core");
    let queue = queue("user").build_in(&registry).unwrap();
    let clone = registry.clone();
    let error = registry.shutdown().unwrap_err();
    assert_eq!(error.nr_users, 2);
    assert_eq!(
        error.to_string(),
        "2 queues or clones still use the registry"
    );
    drop(clone);
    queue.spawn(|| ()).join().unwrap();
    let error = error.registry.shutdown().unwrap_err();
    assert_eq!(error.nr_users, 1);
    drop(queue);
    error.registry.shutdown().unwrap();
}

#[test]
fn no_thread_is_left_after_shutdown() {
    in_own_process("lifecycle::no_thread_is_left_after_shutdown", || {
        for round in 0..100 {
            let registry = registry("4 core");
            let queues: Vec<_> = [AffinityScope::Cpu, AffinityScope::System]
                .into_iter()
                .map(|scope| {
                    queue("threads")
                        .affinity(scope)
                        .build_in(&registry)
                        .unwrap()
                })
                .collect();
            for queue in &queues {
                for _ in 0..50 {
                    queue.spawn_detached(|| ()).unwrap();
                }
                if round % 2 == 0 {
                    queue.drain().unwrap();
                }
                // The join may return before the requested worker exists.
                queue.spawn(|| ()).join().unwrap();
            }
            drop(queues);
            registry.shutdown().unwrap();
            // The kernel wakes a joiner before it removes the thread from its list.
            eventually("no thread is left", || our_threads().is_empty());
        }
    });
}

#[test]
fn many_queues_own_no_thread_until_used_and_then_share_pools() {
    in_own_process(
        "lifecycle::many_queues_own_no_thread_until_used_and_then_share_pools",
        || {
            let registry = registry("8 core");
            let queues: Vec<_> = (0..1000)
                .map(|i| queue(&format!("queue {i}")).build_in(&registry).unwrap())
                .collect();
            eventually("the registry's threads have their names", || {
                our_threads() == ["aw/rescuer", "aw/reserve", "aw/manager"]
            });
            assert_eq!(registry.pool_stats().len(), 1);
            let count = Count::default();
            for queue in &queues {
                let count = count.clone();
                queue.spawn_detached(move || count.add()).unwrap();
            }
            for queue in &queues {
                queue.drain().unwrap();
                assert_eq!(queue.stats().started, 1);
            }
            assert_eq!(count.get(), 1000);
            let nr_threads = our_threads().len();
            assert!(nr_threads <= 3 + 8 + 8, "{nr_threads} threads for 8 CPUs");
            drop(queues);
            registry.shutdown().unwrap();
        },
    );
}

#[test]
fn a_registry_dropped_without_shutdown_ends_its_threads() {
    in_own_process(
        "lifecycle::a_registry_dropped_without_shutdown_ends_its_threads",
        || {
            for _ in 0..20 {
                let queue = queue("only").build_in(&registry("2 core")).unwrap();
                queue.spawn(|| ()).join().unwrap();
                queue.spawn_detached(|| ()).unwrap();
            }
            eventually("all threads have ended", || our_threads().is_empty());
        },
    );
}

#[test]
fn queues_come_and_go_while_others_work() {
    let registry = registry("64 core");
    threads(6, |i| {
        pin(i);
        let scopes = [
            AffinityScope::Cpu,
            AffinityScope::System,
            AffinityScope::Cache,
        ];
        for n in 0..150 {
            let queue = queue("brief")
                .affinity(scopes[(n + i) % 3])
                .strict(n % 2 == 0);
            let queue = queue.build_in(&registry).unwrap();
            let handle = queue.spawn(move || n);
            queue.spawn_detached(|| ()).unwrap();
            if n % 3 == 0 {
                drop(queue);
                assert_eq!(handle.join().unwrap(), n);
            } else {
                assert_eq!(handle.join().unwrap(), n);
            }
        }
    });
    assert!(registry.pool_stats().is_empty());
    shut_down(registry);
}

#[test]
fn the_queue_of_the_whole_process_works() {
    let queue = Workqueue::builder("global").build().unwrap();
    assert_eq!(queue.spawn(|| 1).join().unwrap(), 1);
    let global = Registry::global().unwrap();
    assert_eq!(*global.params(), Params::default());
    assert_eq!(
        global.topology().nr_cpus(),
        Topology::detect().unwrap().nr_cpus(),
    );
}

thread_local! {
    static LAST: RefCell<Option<AtExit>> = const { RefCell::new(None) };
}

struct AtExit {
    queue: Workqueue,
    said: mpsc::Sender<i32>,
}

impl Drop for AtExit {
    fn drop(&mut self) {
        let work = Work::new(|| ());
        self.queue.enqueue(&work);
        work.flush().unwrap();
        let result = self.queue.spawn(|| 5).join().unwrap();
        self.queue.drain().unwrap();
        self.said.send(result).unwrap();
    }
}

#[test]
fn a_thread_may_wait_for_items_while_it_ends() {
    in_own_process(
        "lifecycle::a_thread_may_wait_for_items_while_it_ends",
        || {
            for help in [true, false] {
                let queue = alone_on_two(queue("late").help(help));
                let (said, heard) = mpsc::channel();
                std::thread::spawn(move || {
                    // The first local of the thread is destroyed last.
                    LAST.set(Some(AtExit {
                        queue: queue.clone(),
                        said,
                    }));
                    queue.spawn(|| ()).join().unwrap();
                    queue.drain().unwrap();
                })
                .join()
                .unwrap();
                assert_eq!(heard.recv_timeout(PATIENCE), Ok(5));
            }
        },
    );
}

#[test]
fn the_last_handle_dropped_inside_an_item_is_safe_when_no_thread_can_be_had() {
    in_own_process(
        "lifecycle::the_last_handle_dropped_inside_an_item_is_safe_when_no_thread_can_be_had",
        || {
            if has_memory_without_end() {
                return;
            }
            let registry = registry("2 core");
            let queue = queue("reaped").max_active(2).build_in(&registry).unwrap();
            let plugs: Vec<_> = (0..2).map(|_| plug_into(&queue)).collect();
            plugs.iter().for_each(Plug::release);
            queue.drain().unwrap();
            let (send, receive) = mpsc::channel();
            let own = queue.clone();
            let (plug, hole) = stopper();
            let count = Count::default();
            let runs = count.clone();
            queue
                .spawn_detached(move || {
                    hole.sit();
                    drop(own);
                    send.send(()).unwrap();
                })
                .unwrap();
            plug.wait_until_stuck();
            queue.set_max_active(1).unwrap();
            for _ in 0..500 {
                let runs = runs.clone();
                queue.spawn_detached(move || runs.add()).unwrap();
            }
            drop(queue);
            refuse_further_threads();
            plug.release();
            receive.recv_timeout(PATIENCE).unwrap();
            eventually("the items that were left have run", || count.get() == 500);
            // No reaper could be started. The queue is destroyed all the same.
            shut_down(registry);
        },
    );
}

#[test]
fn queues_are_built_or_refused_by_name_when_no_thread_can_be_had() {
    in_own_process(
        "lifecycle::queues_are_built_or_refused_by_name_when_no_thread_can_be_had",
        || {
            if has_memory_without_end() {
                return;
            }
            let registry = registry("2 core");
            refuse_further_threads();
            for builder in [queue("highpri").highpri(), queue("nice").nice(-1)] {
                let built = builder.build_in(&registry).map(drop);
                assert!(matches!(
                    built,
                    Ok(()) | Err(BuildError::NicePermission(..))
                ));
            }
            queue("bh").bh().build_in(&registry).unwrap();
            queue("plain").build_in(&registry).unwrap();
            let reclaiming = queue("reclaiming").with_rescuer().build_in(&registry);
            assert!(matches!(reclaiming, Err(BuildError::Rescuer(_))));
            registry.shutdown().unwrap();
        },
    );
}

/// Makes the creation of further threads fail, because a stack would exceed the address-space
/// limit. The sleeping threads use up the stacks that the C library has cached.
fn refuse_further_threads() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    others_sleep();
    let limit = mapped_bytes() + (1 << 20);
    let limit = Rlimit {
        current: Some(limit),
        maximum: None,
    };
    setrlimit(Resource::As, limit).unwrap();
    let sleeper = || {
        std::thread::Builder::new().spawn(|| {
            loop {
                std::thread::park();
            }
        })
    };
    let refused = (0..64).any(|_| sleeper().is_err());
    assert!(refused, "threads can still be had");
}

/// Returns `true` and prints a message if a sanitizer has mapped too much memory for a limit.
fn has_memory_without_end() -> bool {
    let is_so = mapped_bytes() > 1 << 40;
    if is_so {
        println!("a sanitizer has mapped the memory that is to be refused; nothing is tested");
    }
    is_so
}

fn mapped_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}

#[test]
fn threads_that_wait_for_a_drain_are_woken_by_the_last_item() {
    let queue = alone_on_two(queue("drain"));
    let plug = plug_into(&queue);
    let drainers: Vec<_> = (0..4)
        .map(|_| {
            let queue = queue.clone();
            std::thread::spawn(move || queue.drain().unwrap())
        })
        .collect();
    // Lets the drainers fall asleep. The test passes without it.
    std::thread::sleep(Duration::from_millis(5));
    assert!(drainers.iter().all(|drainer| !drainer.is_finished()));
    plug.release();
    for drainer in drainers {
        drainer.join().unwrap();
    }
    drop(Arc::new(queue));
}

/// Returns the CPU time to create and drop one queue, while `nr_queues` queues exist.
fn ns_per_queue(registry: &Registry, nr_queues: u32) -> u64 {
    fn cpu_ns() -> u64 {
        // SAFETY: a structure of integers.
        let mut time: libc::timespec = unsafe { std::mem::zeroed() };
        // SAFETY: the call writes the structure, which outlives it.
        assert_eq!(0, unsafe {
            libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time)
        });
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
    let start = cpu_ns();
    let make = |_| queue("one of many").build_in(registry).unwrap();
    let queues: Vec<_> = (0..nr_queues).map(make).collect();
    // Drops the second half from the end and the first half from the start.
    let (first, last) = queues.split_at(queues.len() / 2);
    let (first, last) = (first.to_vec(), last.to_vec());
    drop(queues);
    last.into_iter().rev().for_each(drop);
    first.into_iter().for_each(drop);
    (cpu_ns() - start) / u64::from(nr_queues)
}

#[test]
fn what_a_queue_costs_does_not_grow_with_their_number() {
    let registry = registry("2 core");
    ns_per_queue(&registry, 100);
    let (few, many) = (
        ns_per_queue(&registry, 2000),
        ns_per_queue(&registry, 32_000),
    );
    assert!(many < 4 * few, "{few} ns each of 2000, {many} of 32000");
}
