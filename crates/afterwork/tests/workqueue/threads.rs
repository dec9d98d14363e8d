//! The threads of a registry: their stacks, their names, and the hooks that they call.

use std::{
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

use afterwork::{
    params::{Params, ThreadHook},
    workqueue::{Registry, RegistryError, Workqueue},
};
use topology::Topology;

use crate::support::*;

fn name() -> String {
    thread::current().name().unwrap_or_default().to_owned()
}

/// Creates a hook that records the threads that call it.
fn noting(threads: &Arc<Mutex<Vec<String>>>) -> Option<ThreadHook> {
    let threads = threads.clone();
    Some(ThreadHook::new(move || {
        threads.lock().unwrap().push(name())
    }))
}

#[test]
fn threads_call_what_they_are_given_before_their_first_item_and_after_their_last() {
    ends(|| {
        let (started, stopped) = (Arc::default(), Arc::default());
        let params = Params {
            on_thread_start: noting(&started),
            on_thread_stop: noting(&stopped),
            thread_name: "db".into(),
            ..Params::default()
        };
        let registry = registry_with("2 core", params);
        let queue = queue("hooks")
            .help(false)
            .with_rescuer()
            .build_in(&registry)
            .unwrap();
        let before = started.clone();
        let worker = queue.spawn(move || {
            assert!(before.lock().unwrap().contains(&name()));
            name()
        });
        assert_eq!(worker.join().unwrap(), "db/u0");
        assert!(stopped.lock().unwrap().is_empty());
        drop(queue);
        shut_down(registry);
        let sorted = |names: &Arc<Mutex<Vec<String>>>| {
            let mut names = names.lock().unwrap().clone();
            names.sort();
            names
        };
        let started = sorted(&started);
        assert_eq!(started, sorted(&stopped));
        for name in ["db/r:hooks", "db/rescuer", "db/u0"] {
            assert!(started.iter().any(|it| it == name), "{name}: {started:?}");
        }
    });
}

#[test]
fn hooks_may_panic_and_go_with_the_last_who_has_them() {
    ends(|| {
        let lives = Census::default();
        let life = lives.life();
        let hook = ThreadHook::new(move || {
            let _ = &life;
            panic!("in a hook");
        });
        assert!(hook == hook.clone() && hook != ThreadHook::new(|| ()));
        let params = Params {
            on_thread_start: Some(hook.clone()),
            on_thread_stop: Some(hook),
            ..Params::default()
        };
        let registry = registry_with("2 core", params);
        let queue = queue("panics").help(false).build_in(&registry).unwrap();
        assert_eq!(queue.spawn(|| 7).join().unwrap(), 7);
        drop(queue);
        assert_eq!(lives.alive(), 1);
        shut_down(registry);
        lives.all_dropped(1);
    });
}

/// Uses about `kib` KiB of stack.
fn dig(kib: usize) -> u8 {
    let room = std::hint::black_box([0u8; 1024]);
    let below = if kib > 1 { dig(kib - 1) } else { 0 };
    std::hint::black_box(&room)[kib % 1024] + below
}

#[test]
fn stacks_are_as_large_as_they_are_said_to_be() {
    ends(|| {
        let params = "workqueue.stack_size=67108864".parse().unwrap();
        let registry = registry_with("2 core", params);
        let queue = queue("large").help(false).build_in(&registry).unwrap();
        // A stack of 2 MiB is an eighth of this.
        assert_eq!(queue.spawn(|| dig(16 << 10)).join().unwrap(), 0);
    });
}

#[test]
fn nested_joins_go_on_elsewhere_where_stacks_are_small() {
    fn nest(queue: &Workqueue, depth: u32) -> u32 {
        if depth == 0 {
            return 0;
        }
        let inner = queue.clone();
        1 + queue.spawn(move || nest(&inner, depth - 1)).join().unwrap()
    }
    ends(|| {
        let params = Params {
            stack_size: 256 << 10,
            ..Params::default()
        };
        let registry = registry_with("1 core", params);
        let queue = queue("nested").max_active(1).build_in(&registry).unwrap();
        let own = queue.clone();
        let plug = plug_into(&queue);
        let handle = queue.spawn(move || nest(&own, 400));
        plug.release();
        eventually("a worker has done it", || handle.is_finished());
        assert_eq!(handle.join().unwrap(), 400);
    });
}

#[test]
fn threads_that_cannot_be_are_refused_and_the_tunable_is_named() {
    let refused = |params: Params| {
        let topology = Topology::synthetic("1 core").unwrap();
        match Registry::new(topology, params).unwrap_err() {
            RegistryError::Params(error) => error.to_string(),
            error => panic!("{error}"),
        }
    };
    for stack_size in [0, 65_535, (1 << 30) + 1, usize::MAX] {
        let params = Params {
            stack_size,
            ..Params::default()
        };
        let expected = format!(
            "workqueue.stack_size={stack_size}: expected a number from 65536 to 1073741824"
        );
        assert_eq!(refused(params), expected);
    }
    for name in ["", "of 11 bytes", "n\0l"] {
        let params = Params {
            thread_name: name.into(),
            ..Params::default()
        };
        let message = refused(params);
        assert!(message.starts_with("thread_name="), "{message}");
        assert!(
            message.ends_with("expected a name of 1 to 10 bytes, without a NUL"),
            "{message}"
        );
    }
}

#[test]
fn a_queue_has_priority_where_it_may() {
    let queue = queue("perhaps")
        .nice(5)
        .highpri_if_permitted()
        .build()
        .unwrap();
    assert!([-20, 0].contains(&queue.attrs().nice));
    assert_eq!(queue.spawn(|| 7).join().unwrap(), 7);
    let may = sync::thread::may_set_nice(-20).is_ok();
    assert_eq!(queue.attrs().nice == -20, may);
}

#[test]
fn a_hook_may_drop_the_last_handle_of_a_queue_that_waits_for_its_thread() {
    ends(|| {
        let (handles, given) = mpsc::channel::<Workqueue>();
        let given = Mutex::new(given);
        let drops = move || drop(given.lock().unwrap().try_recv());
        let params = Params {
            on_thread_start: Some(ThreadHook::new(move || {
                // Only workers drop a handle.
                if name().starts_with("aw/u") {
                    thread::sleep(Duration::from_millis(20));
                    drops();
                }
            })),
            ..Params::default()
        };
        let registry = registry_with("2 core", params);
        let queue = queue("hooks").help(false).build_in(&registry).unwrap();
        handles.send(queue.clone()).unwrap();
        let item = queue.spawn(|| 7);
        queue.close_in_background();
        assert_eq!(item.join().unwrap(), 7);
        shut_down(registry);
    });
}
