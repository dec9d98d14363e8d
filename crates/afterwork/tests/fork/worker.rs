//! Dedicated workers and local futures: their priorities, and children of `fork`.

use afterwork::mailbox::{JoinError, LocalSet, Woken, WorkerError, spawn_local};
use afterwork::params::ThreadHook;

use crate::*;

enum Mail {
    Number,
    Woken(Woken),
}

impl From<Woken> for Mail {
    fn from(woken: Woken) -> Self {
        Self::Woken(woken)
    }
}

fn poll_next(futures: &LocalSet<Mail>, mailbox: &mut Mailbox<Mail>) {
    let Ok(Mail::Woken(woken)) = mailbox.try_recv() else { panic!("no future was woken") };
    assert!(futures.poll(woken));
}

#[test]
fn child_wakes_no_local_future_and_ends_no_worker_of_the_parent() {
    let _alone = alone();
    let mut mailbox = Mailbox::<Mail>::new();
    let futures = LocalSet::new(&mailbox);
    let (send, receive) = mpsc::channel();
    let parked = futures.spawn_local(poll_fn(move |cx| {
        send.send(cx.waker().clone()).unwrap();
        Poll::<()>::Pending
    }));
    poll_next(&futures, &mut mailbox);
    let waker = receive.recv().unwrap();
    let worker = Worker::builder("parents").build().unwrap();
    let pending = worker.spawn_local(std::future::pending::<()>);
    let theirs = Worker::builder("dropped").build().unwrap();
    let mut its_own = Some((pending, theirs));
    succeeds_in_child(|| {
        let (pending, theirs) = its_own.take().unwrap();
        let wakes = waker.clone();
        spawn(move || wakes.wake()).join().unwrap();
        assert!(!parked.cancel() && parked.is_finished());
        assert!(mailbox.is_empty(), "woken");
        let refused = futures.spawn_local(async {}).join();
        assert!(matches!(refused, Err(JoinError::Closed)));
        assert!(matches!(worker.flush(), Err(JoinError::Closed)));
        worker.spawn_detached(|| unreachable!("no thread runs it"));
        assert!(matches!(pending.join(), Err(JoinError::Cancelled)));
        drop(theirs);
        let own = Worker::builder("own").build().unwrap();
        let sum = own.spawn_local(|| async { spawn_local(async { 3 }).await });
        assert_eq!(sum.join().unwrap().unwrap(), 3);
    });
    waker.wake();
    poll_next(&futures, &mut mailbox);
    worker.flush().unwrap();
    drop(its_own);
    worker.shutdown_background();
}

#[test]
fn a_child_may_drop_all_that_its_parents_threads_use() {
    const NR_FORKS: u32 = 100;
    let _alone = alone();
    let mailbox = Mailbox::builder().capacity(20).build();
    let futures = LocalSet::new(&mailbox);
    let (send, receive) = mpsc::channel();
    for _ in 0..50 {
        let send = send.clone();
        drop(futures.spawn_local(poll_fn(move |cx| {
            send.send(cx.waker().clone()).unwrap();
            Poll::<()>::Pending
        })));
    }
    let poster = mailbox.poster();
    let worker = Arc::new(Worker::builder("parents").build().unwrap());
    let slots = PerCpu::builder().qpw(Qpw::Queue).build(|_| 0).unwrap();
    let cpu = slots.cpus().first().unwrap();
    let version = Arc::new(Rcu::new(0));
    let (slots, stop) = (&slots, &AtomicBool::new(false));
    thread::scope(|scope| {
        let repeat = |mut act: Box<dyn FnMut() + Send>| {
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    act();
                }
            });
        };
        let (lazy, urgent, waits) = (poster.clone(), poster.urgent(), poster.clone());
        repeat(Box::new(move || drop(lazy.post_lazy(Mail::Number))));
        repeat(Box::new(move || {
            let mut batch = urgent.batch();
            for _ in 0..100 {
                batch.push(Mail::Number).ok();
                batch.post().ok();
            }
        }));
        let limit = Duration::from_millis(1);
        repeat(Box::new(move || drop(waits.send_timeout(Mail::Number, limit))));
        repeat(Box::new(move || receive.try_iter().for_each(|waker: Waker| waker.wake())));
        let (theirs, cell) = (worker.clone(), version.clone());
        repeat(Box::new(move || {
            theirs.spawn_local(|| async {}).join().unwrap();
            slots.queue_percpu_work(cpu, |data| *data += 1);
            cell.replace_sync(1);
        }));
        let owner = slots.attach(cpu).unwrap();
        // Only the child takes these values.
        let mut owned = Some((mailbox, futures, owner, poster.clone(), worker, version));
        for _ in 0..NR_FORKS {
            let (mailbox, futures, owner, ..) = owned.as_mut().unwrap();
            for mail in mailbox.drain(200) {
                if let Mail::Woken(woken) = mail {
                    futures.poll(woken);
                }
            }
            owner.poll();
            let mut batch = poster.batch();
            batch.push(Mail::Number).ok();
            let mut send = poster.send(Mail::Number);
            let cx = &mut Context::from_waker(Waker::noop());
            _ = Pin::new(&mut send).poll(cx);
            let mut lent = Some((batch, send));
            succeeds_in_child(|| drop((lent.take(), owned.take())));
        }
        stop.store(true, Ordering::Relaxed);
        // Ends any wait of a thread for capacity or for the owner.
        drop(owned);
    });
}

#[test]
fn worker_is_real_time_or_returns_the_reason() {
    let _alone = alone();
    // SAFETY: 0 is the ID of this thread.
    let policy = || unsafe { libc::sched_getscheduler(0) };
    let if_permitted = Worker::builder("audio").fifo_if_permitted(1).build();
    let theirs = if_permitted.unwrap().spawn(policy).join().unwrap();
    match Worker::builder("audio").fifo(1).build() {
        Ok(worker) => {
            assert_eq!(worker.spawn(policy).join().unwrap(), libc::SCHED_FIFO);
            assert_eq!(theirs, libc::SCHED_FIFO);
        }
        Err(WorkerError::Fifo(error)) => {
            assert_eq!(error.kind(), ErrorKind::PermissionDenied);
            assert_ne!(theirs, libc::SCHED_FIFO);
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn the_end_of_a_sleep_on_a_worker_costs_no_thread() {
    let _alone = alone();
    let started = Arc::new(Mutex::new(Vec::new()));
    let theirs = started.clone();
    let hook = ThreadHook::new(move || {
        let name = thread::current().name().unwrap_or_default().to_owned();
        theirs.lock().unwrap().push(name);
    });
    let params = Params { on_thread_start: Some(hook), ..Params::default() };
    let registry = Registry::new(Topology::detect().unwrap(), params).unwrap();
    let before = started.lock().unwrap().len();
    let worker = Worker::builder("sleeps").build().unwrap();
    let sleep = registry.sleep(Duration::from_millis(1));
    worker.spawn_local(|| sleep).join().unwrap();
    let started = &started.lock().unwrap()[before..];
    // The registry's own threads may start late.
    let set_aside = |name: &String| ["aw/rescuer", "aw/reserve"].contains(&&**name);
    assert!(started.iter().all(set_aside), "{started:?}");
}
