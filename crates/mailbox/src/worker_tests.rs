//! Tests of dedicated workers: the work on their threads, its order, and the end of a worker.

use std::cell::RefCell;
use std::future::{pending, poll_fn};
use std::panic::panic_any;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use base::internal::params::{CpuSet, Params, ThreadHook};
use base::internal::wake::is_harmless;

use super::*;

fn worker() -> Worker {
    Worker::builder("test").build().unwrap()
}

/// Returns a worker whose thread waits in a closure, and a sender that releases it.
fn held() -> (Worker, mpsc::Sender<()>) {
    let worker = worker();
    let (open, gate) = mpsc::channel();
    let (entered, is_entered) = mpsc::channel();
    worker.spawn_detached(move || {
        entered.send(()).unwrap();
        gate.recv().ok();
    });
    is_entered.recv().unwrap();
    (worker, open)
}

#[test]
fn closures_of_a_worker_run_in_order_on_one_thread() {
    let worker = worker();
    let list = Arc::new(Mutex::new(Vec::new()));
    let nr = if cfg!(miri) { 10 } else { 1000 };
    for number in 0..nr {
        let list = list.clone();
        let push = move || list.lock().unwrap().push((number, thread::current().id()));
        match number % 2 {
            0 => worker.spawn_detached(push),
            _ => drop(worker.spawn(push)),
        }
    }
    worker.flush().unwrap();
    let list = list.lock().unwrap();
    assert!(list.iter().map(|&(number, _)| number).eq(0..nr));
    assert!(list.iter().all(|&(_, id)| id == list[0].1 && id != thread::current().id()));
}

#[test]
fn a_flush_waits_for_closures_and_for_no_future() {
    let (worker, open) = held();
    let parked = worker.spawn_local(pending::<()>);
    let done = Arc::new(AtomicU32::new(0));
    let theirs = done.clone();
    worker.spawn_detached(move || _ = theirs.fetch_add(1, Ordering::Relaxed));
    assert_eq!(done.load(Ordering::Relaxed), 0);
    drop(open);
    worker.flush().unwrap();
    assert_eq!(done.load(Ordering::Relaxed), 1);
    assert!(!parked.is_finished());
    assert!(parked.cancel());
}

#[test]
fn non_send_values_stay_on_the_thread_of_their_worker() {
    let worker = worker();
    let sum = worker.spawn_local(|| async {
        let sum = Rc::new(RefCell::new(0));
        let adds: Vec<_> = (1..=4)
            .map(|number| {
                let sum = sum.clone();
                spawn_local(async move { *sum.borrow_mut() += number })
            })
            .collect();
        for add in adds {
            add.await.unwrap();
        }
        sum.take()
    });
    assert_eq!(sum.join().unwrap(), 10);
    let from_closure = worker.spawn(|| drop(spawn_local(async {})));
    from_closure.join().unwrap();
}

#[test]
fn panic_ends_with_its_closure_or_future_constructor() {
    let worker = worker();
    worker.spawn_detached(|| panic_any("no joiner"));
    let closure = worker.spawn(|| panic!("tape {}", 1));
    let maker = worker.spawn_local(|| -> std::future::Ready<()> { panic_any("no future") });
    let future = worker.spawn_local(|| async { panic_any("later") });
    let Err(JoinError::Panicked(payload)) = closure.join().map(|never: ()| never) else {
        panic!("it panicked");
    };
    assert_eq!(payload.text(), Some("tape 1"));
    worker.flush().unwrap();
    assert!(!maker.cancel(), "it has ended");
    assert!(matches!(maker.join(), Err(JoinError::Panicked(_))));
    assert!(matches!(future.join(), Err(JoinError::Panicked(_))));
    assert_eq!(worker.spawn(|| 1).join().unwrap(), 1);
}

#[test]
fn cancel_precedes_the_start_or_returns_false() {
    let (worker, open) = held();
    let nr_run = Arc::new(AtomicU32::new(0));
    let count = || {
        let nr_run = nr_run.clone();
        move || nr_run.fetch_add(1, Ordering::Relaxed)
    };
    let (closure, mut kept) = (worker.spawn(count()), worker.spawn(count()));
    let make = count();
    let future = worker.spawn_local(move || async move { make() });
    assert!(closure.cancel() && future.cancel());
    drop(worker.spawn(count()).cancel_on_drop());
    drop(open);
    assert!(matches!(closure.join(), Err(JoinError::Cancelled)));
    assert!(matches!(future.join(), Err(JoinError::Cancelled)));
    assert_eq!(kept.join_timeout(Duration::MAX).unwrap().unwrap(), 0);
    worker.flush().unwrap();
    let mut ended = worker.spawn(count());
    worker.flush().unwrap();
    assert!(!ended.cancel());
    assert_eq!(ended.try_join().unwrap().unwrap(), 1);
    assert_eq!(nr_run.load(Ordering::Relaxed), 2);
}

#[test]
fn a_worker_that_is_dropped_waits_for_closures_and_futures() {
    let (worker, open) = held();
    let (send, receive) = mpsc::channel();
    let theirs = send.clone();
    worker.spawn_detached(move || theirs.send(1).unwrap());
    let future = worker.spawn_local(move || async move {
        // The worker may already have been dropped when this future is spawned.
        spawn_local(async move { send.send(2).unwrap() }).await.unwrap();
    });
    drop(open);
    worker.shutdown();
    assert!(receive.try_iter().eq([1, 2]));
    assert!(future.is_finished());
}

#[test]
fn a_worker_may_be_dropped_on_its_own_thread() {
    let worker = Arc::new(worker());
    let (send, receive) = mpsc::channel();
    let (own, theirs) = (worker.clone(), send.clone());
    let (open, gate) = mpsc::channel::<()>();
    worker.spawn_detached(move || {
        gate.recv().ok();
        assert!(own.is_current());
        assert!(matches!(own.flush(), Err(JoinError::OwnItem)));
        own.spawn_detached(move || theirs.send("after").unwrap());
        drop(own);
        send.send("dropped").unwrap();
    });
    assert!(!worker.is_current());
    drop(worker);
    drop(open);
    assert_eq!(receive.iter().collect::<Vec<_>>(), ["dropped", "after"]);
}

#[test]
fn worker_closed_in_background_runs_all_and_blocks_no_caller() {
    let (worker, open) = held();
    let handle = worker.spawn(|| 5);
    worker.close_in_background();
    assert!(!handle.is_finished());
    drop(open);
    assert_eq!(handle.join().unwrap(), 5);
}

#[test]
fn worker_shut_down_in_background_drops_unstarted_closures() {
    let (worker, open) = held();
    let (send, receive) = mpsc::channel::<u32>();
    let parked = worker.spawn_local(pending::<()>);
    let closures: Vec<_> = (0..20)
        .map(|number| {
            let send = send.clone();
            worker.spawn(move || send.send(number).unwrap())
        })
        .collect();
    drop(send);
    worker.shutdown_background();
    drop(open);
    let results = closures.into_iter().map(JoinHandle::join);
    let nr_run = results.filter(Result::is_ok).count();
    assert!(nr_run <= 1, "{nr_run} of 20");
    assert!(matches!(parked.join(), Err(JoinError::Cancelled)));
    assert_eq!(receive.iter().count(), nr_run);
}

#[test]
fn worker_has_the_given_name_cpus_and_hooks() {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let hook = |what| {
        let calls = calls.clone();
        let name = || thread::current().name().unwrap().to_owned();
        Some(ThreadHook::new(move || calls.lock().unwrap().push((what, name()))))
    };
    let cpus: CpuSet = sync::cpu::affinity().unwrap().iter().take(1).collect();
    let worker = Worker::builder("gl")
        .cpus(cpus.clone())
        .params(Params {
            thread_name: "app".into(),
            stack_size: 256 << 10,
            on_thread_start: hook("start"),
            on_thread_stop: hook("stop"),
            ..Params::default()
        })
        .build()
        .unwrap();
    let theirs = worker.spawn(|| sync::cpu::affinity().unwrap());
    assert_eq!(theirs.join().unwrap(), cpus);
    let size = worker.spawn(sync::thread::stack_size);
    assert!(cfg!(any(miri, sim)) || size.join().unwrap() == 256 << 10);
    drop(worker);
    let named = |what| (what, "app/gl".to_string());
    assert_eq!(*calls.lock().unwrap(), [named("start"), named("stop")]);
}

#[test]
fn impossible_worker_is_rejected_with_the_reason() {
    let refused = |builder: WorkerBuilder| builder.build().unwrap_err();
    let error = refused(Worker::builder("a\0b"));
    assert!(matches!(error, WorkerError::Name));
    let params = Params { stack_size: 1, ..Params::default() };
    let error = refused(Worker::builder("small").params(params));
    assert!(matches!(error, WorkerError::Params(_)), "{error}");
    let error = refused(Worker::builder("nowhere").cpus(CpuSet::new()));
    assert!(matches!(error, WorkerError::Cpus(_)), "{error}");
    // Without the permission, the result depends on the machine. An invalid priority, in contrast,
    // is always an error.
    if !cfg!(any(miri, sim)) {
        let urgent = || Worker::builder("urgent");
        for builder in [urgent().fifo(200), urgent().fifo_if_permitted(0)] {
            let error = refused(builder);
            assert!(error.to_string().contains("real-time priority"), "{error}");
        }
    }
}

#[test]
fn worker_wakers_are_known_to_run_no_user_code() {
    async fn is_known() -> bool {
        poll_fn(|cx| {
            let another = cx.waker().clone();
            assert_eq!(is_harmless(&another), is_harmless(cx.waker()));
            Poll::Ready(is_harmless(&another))
        })
        .await
    }
    struct Mail(Woken);
    impl From<Woken> for Mail {
        fn from(woken: Woken) -> Self {
            Self(woken)
        }
    }
    assert!(worker().spawn_local(is_known).join().unwrap());
    let mut mailbox = Mailbox::<Mail>::new();
    let set = LocalSet::new(&mailbox);
    let mut handle = set.spawn_local(is_known());
    set.poll(mailbox.try_recv().unwrap().0);
    assert!(!handle.try_join().unwrap().unwrap());
}
