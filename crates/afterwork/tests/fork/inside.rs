//! User code forks inside a call from the library, and the child returns from it.
//!
//! If the fork was on a thread of the library or in an item, the child exits with a message and a
//! special status. Otherwise it continues, without its parent's work.

use sync::fork::CAME_BACK;

use crate::*;

/// Exit status of a child that does its parent's work.
const DOES_OTHERS_WORK: i32 = 9;

/// A fork in user code, and the result of its child.
#[derive(Clone)]
struct Fork(Arc<Shared>);

struct Shared {
    parent: u32,
    /// The child's stderr.
    says: Mutex<PipeReader>,
    its_stderr: PipeWriter,
    pids: Mutex<mpsc::Receiver<libc::pid_t>>,
    pid_sender: Mutex<mpsc::Sender<libc::pid_t>>,
}

impl Fork {
    fn new() -> Self {
        let (says, its_stderr) = io::pipe().unwrap();
        let (pid_sender, pids) = mpsc::channel();
        Self(Arc::new(Shared {
            parent: std::process::id(),
            says: Mutex::new(says),
            its_stderr,
            pids: Mutex::new(pids),
            pid_sender: Mutex::new(pid_sender),
        }))
    }

    /// Forks, and returns in both processes.
    fn now(&self) {
        match children::fork() {
            Some(pid) => self.0.pid_sender.lock().unwrap().send(pid).unwrap(),
            // SAFETY: the arguments are numbers.
            None => _ = unsafe { libc::dup2(self.0.its_stderr.as_raw_fd(), 2) },
        }
    }

    fn is_in_child(&self) -> bool {
        std::process::id() != self.0.parent
    }

    /// Exits if this is the child. Work that belongs to the parent calls this.
    fn not_in_child(&self) {
        if self.is_in_child() {
            children::exit(DOES_OTHERS_WORK);
        }
    }

    /// Returns work that belongs to the parent.
    fn of_parent(&self) -> impl FnOnce() + Send + use<> {
        let fork = self.clone();
        move || fork.not_in_child()
    }

    fn status(&self) -> i32 {
        let pid = self.0.pids.lock().unwrap().recv().unwrap();
        let status = children::wait_for(pid);
        status.code().unwrap_or_else(|| panic!("killed: {status}"))
    }

    /// Asserts that the child exited and reported the reason.
    fn must_have_ended(self, what: &str) {
        assert_eq!(self.status(), CAME_BACK, "{what}");
        let mut line = [0; 512];
        let len = self.0.says.lock().unwrap().read(&mut line).unwrap();
        let line = String::from_utf8_lossy(&line[..len]);
        assert!(line.starts_with("afterwork: a child of fork returned"), "{what}: {line}");
        assert_eq!(line.matches('\n').count(), 1, "{what}: {line}");
    }
}

/// Builds a queue that runs one item at a time, and queues items that a child must not run.
fn queue_with(fork: &Fork, first: impl FnOnce(&Workqueue)) {
    let queue = Workqueue::builder("forks").max_active(1).build().unwrap();
    let (go, wait) = mpsc::channel::<()>();
    queue.spawn_detached(move || assert!(wait.recv().is_err())).unwrap();
    first(&queue);
    (0..20).for_each(|_| queue.spawn_detached(fork.of_parent()).unwrap());
    drop(go);
    queue.drain().unwrap();
}

struct ForksAsItGoes(Option<Fork>);

sync::on_drop!(ForksAsItGoes, this => if let Some(fork) = this.0.take() {
    fork.now();
});

#[test]
fn an_item_s_child_ends_where_the_item_does() {
    let _alone = alone();
    type Queues = fn(&Workqueue, Fork);
    let kinds: [(&str, Queues); 6] = [
        ("detached", |queue, fork| queue.spawn_detached(move || fork.now()).unwrap()),
        ("spawned", |queue, fork| drop(queue.spawn(move || fork.now()))),
        ("reusable", |queue, fork| assert!(queue.enqueue(&Work::new(move || fork.now())))),
        ("a future's poll", |queue, fork| drop(queue.spawn_async(async move { fork.now() }))),
        ("a future's drop", |queue, fork| {
            let forks = ForksAsItGoes(Some(fork));
            drop(queue.spawn_async(poll_fn(move |_| Poll::Ready(_ = &forks))));
        }),
        ("a result without a handle", |queue, fork| {
            drop(queue.spawn(move || ForksAsItGoes(Some(fork))));
        }),
    ];
    for (what, queues) in kinds {
        let fork = Fork::new();
        queue_with(&fork, |queue| queues(queue, fork.clone()));
        fork.must_have_ended(what);
    }
}

#[test]
fn child_of_a_dedicated_worker_exits_with_closure_or_future() {
    let _alone = alone();
    type Spawn = fn(&Worker, Fork);
    let kinds: [(&str, Spawn); 3] = [
        ("a closure", |worker, fork| worker.spawn_detached(move || fork.now())),
        ("a local future", |worker, fork| {
            drop(worker.spawn_local(move || async move { fork.now() }))
        }),
        ("what makes one", |worker, fork| {
            drop(worker.spawn_local(move || {
                fork.now();
                async {}
            }))
        }),
    ];
    for (what, spawn) in kinds {
        let fork = Fork::new();
        let worker = Worker::builder("forks").build().unwrap();
        spawn(&worker, fork.clone());
        worker.spawn_detached(fork.of_parent());
        worker.shutdown();
        fork.must_have_ended(what);
    }
}

#[test]
fn panicking_item_in_a_child_does_not_call_the_handler() {
    let _alone = alone();
    let fork = Fork::new();
    let handler = fork.clone();
    let builder = Workqueue::builder("panics").on_panic(move |_| handler.not_in_child());
    let queue = builder.build().unwrap();
    let forks = fork.clone();
    let item = move || {
        forks.now();
        resume_unwind(Box::new("on purpose"));
    };
    queue.spawn_detached(item).unwrap();
    queue.drain().unwrap();
    fork.must_have_ended("an item that panics");
    let fork = Fork::new();
    let handler = fork.clone();
    let builder = Workqueue::builder("panics").on_panic(move |_| handler.now());
    let queue = builder.build().unwrap();
    queue.spawn_detached(|| resume_unwind(Box::new("on purpose"))).unwrap();
    queue.drain().unwrap();
    fork.must_have_ended("the handler");
}

#[test]
fn an_item_that_its_joiner_runs_ends_a_child_on_a_user_s_thread() {
    let _alone = alone();
    let fork = Fork::new();
    let queue = Workqueue::builder("joined").build().unwrap();
    let joiner = thread::current().id();
    let has_forked = Arc::new(AtomicBool::new(false));
    // Repeats until the joiner is faster than the worker.
    while !has_forked.load(Ordering::Relaxed) {
        let (forks, forked) = (fork.clone(), has_forked.clone());
        let joined = queue.spawn(move || {
            if thread::current().id() == joiner {
                forked.store(true, Ordering::Relaxed);
                forks.now();
            }
        });
        joined.join().unwrap();
        fork.not_in_child();
    }
    fork.must_have_ended("a joiner");
}

struct ForksToWake(Fork, thread::Thread);

impl Wake for ForksToWake {
    fn wake(self: Arc<Self>) {
        if !self.0.is_in_child() {
            self.0.now();
            self.1.unpark();
        }
    }
}

#[test]
fn a_waker_that_a_worker_calls_ends_a_child() {
    let _alone = alone();
    let fork = Fork::new();
    queue_with(&fork, |queue| {
        let (go, wait) = mpsc::channel::<()>();
        let mut handle = queue.spawn(move || assert!(wait.recv().is_err()));
        let waker = Waker::from(Arc::new(ForksToWake(fork.clone(), thread::current())));
        let polled = std::pin::Pin::new(&mut handle).poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        drop(go);
        // The worker runs the item, and its pool continues.
        std::mem::forget(handle);
    });
    fork.must_have_ended("a waker");
}

#[test]
fn child_of_a_forking_topology_source_exits() {
    let _alone = alone();
    let fork = Fork::new();
    let params = Params { topology_refresh_ms: 1, ..Params::default() };
    let has_forked = Arc::new(AtomicBool::new(false));
    let (forks, forked) = (fork.clone(), has_forked.clone());
    let machine = Topology::synthetic("2 core").unwrap();
    let registry = Registry::watching(machine, params, move || {
        forks.not_in_child();
        let is_manager = thread::current().name() == Some("aw/manager");
        if is_manager && !forked.swap(true, Ordering::Relaxed) {
            forks.now();
        }
        None
    });
    let queue = Workqueue::builder("waits").build_in(&registry.unwrap()).unwrap();
    // Waiting work causes the manager to sample.
    while !has_forked.load(Ordering::Relaxed) {
        let nap = || thread::sleep(Duration::from_millis(2));
        (0..4).for_each(|_| queue.spawn_detached(nap).unwrap());
        queue.drain().unwrap();
    }
    fork.must_have_ended("a source");
}

#[test]
fn child_of_a_workers_thread_destructor_exits_with_the_thread() {
    thread_local!(static LAST: RefCell<ForksAsItGoes> = const { RefCell::new(ForksAsItGoes(None)) });
    let _alone = alone();
    let fork = Fork::new();
    let machine = Topology::synthetic("1 core").unwrap();
    let registry = Registry::new(machine, Params::default()).unwrap();
    let queue = Workqueue::builder("ends").help(false).build_in(&registry).unwrap();
    let forks = fork.clone();
    let leave = move || LAST.with(|last| last.borrow_mut().0 = Some(forks));
    queue.spawn(leave).join().unwrap();
    drop((queue, registry));
    // This was the last thread of that process.
    assert_eq!(fork.status(), 0);
}

#[test]
fn child_of_a_callback_runs_no_later_callbacks() {
    let _alone = alone();
    let fork = Fork::new();
    let guard = rcu::read();
    let forks = fork.clone();
    rcu::call(move || forks.now());
    (0..100).for_each(|_| rcu::call(fork.of_parent()));
    drop(guard);
    rcu::barrier();
    fork.must_have_ended("a callback");
}

#[test]
fn an_executor_s_child_runs_nothing_of_its_batch() {
    let _alone = alone();
    let fork = Fork::new();
    let forks = Mutex::new(Some(fork.clone()));
    rcu::run_callbacks_on(Some(Box::new(move |batch: rcu::Batch| {
        let fork = forks.lock().unwrap().take();
        if let Some(fork) = &fork {
            fork.now();
        }
        // In the child, the batch belongs to the parent and is not run.
        batch.run();
    })));
    (0..10).for_each(|_| rcu::call(fork.of_parent()));
    rcu::barrier();
    rcu::run_callbacks_on(None);
    fork.must_have_ended("an executor");
}

#[test]
fn child_of_a_domain_callback_exits_without_later_callbacks() {
    let _alone = alone();
    let fork = Fork::new();
    let domain = Domain::new();
    let (go, wait) = mpsc::channel::<()>();
    domain.call(move || assert!(wait.recv().is_err()));
    let forks = fork.clone();
    domain.call(move || forks.now());
    (0..10).for_each(|_| domain.call(fork.of_parent()));
    drop(go);
    domain.barrier();
    fork.must_have_ended("a callback of a domain");
}

#[test]
fn queued_call_that_forks_leaves_later_calls_to_the_parent() {
    let _alone = alone();
    let slots = PerCpu::builder().qpw(Qpw::Queue).build(|_| 0).unwrap();
    let cpu = slots.cpus().first().unwrap();
    let mut owner = slots.attach(cpu).unwrap();
    let fork = Fork::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            let forks = fork.clone();
            slots.queue_percpu_work(cpu, move |data| {
                forks.now();
                *data += 1;
            });
            for _ in 0..10 {
                let fork = fork.clone();
                slots.queue_percpu_work(cpu, move |data| {
                    fork.not_in_child();
                    *data += 1;
                });
            }
        });
    });
    owner.while_parked(|| slots.flush(cpu));
    let sum = owner.with(|data| *data);
    if fork.is_in_child() {
        // The owner is a user's thread and holds the slot.
        children::exit(sum);
    }
    assert_eq!(sum, 11);
    assert_eq!(fork.status(), 1, "what had forked, and no other");
}
