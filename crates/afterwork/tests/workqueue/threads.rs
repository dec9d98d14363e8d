//! The threads of a registry: their stacks, their names, and the hooks that they call.

use crate::nested::descend;
use crate::support::*;

fn noting(threads: Log<String>) -> Option<ThreadHook> {
    Some(ThreadHook::new(move || threads.push(thread_name())))
}

#[test]
fn threads_call_their_hooks_around_all_their_items() {
    let (started, stopped) = (Log::default(), Log::default());
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

fn dig(kib: usize) -> u8 {
    let room = std::hint::black_box([0u8; 1024]);
    let below = if kib > 1 { dig(kib - 1) } else { 0 };
    std::hint::black_box(&room)[kib % 1024] + below
}

#[test]
fn stacks_have_the_size_of_the_parameter() {
    let params = "workqueue.stack_size=67108864".parse().unwrap();
    let queue = queue("large").help(false).on(&registry_with("2 core", params));
    // A stack of 2 MiB is an eighth of this.
    assert_eq!(queue.spawn(|| dig(16 << 10)).join().unwrap(), 0);
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
fn a_queue_has_priority_where_it_may() {
    let queue = queue("perhaps").nice(5).highpri_if_permitted().build().unwrap();
    assert_eq!(queue.spawn(|| 7).join().unwrap(), 7);
    let may = sync::thread::may_set_nice(-20).is_ok();
    assert_eq!(queue.report().attrs.nice, if may { -20 } else { 0 });
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
