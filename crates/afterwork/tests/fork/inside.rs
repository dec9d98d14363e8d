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
    /// The child, or 0.
    pid: AtomicI32,
    /// The child's stderr.
    says: Mutex<PipeReader>,
    its_stderr: PipeWriter,
}

impl Fork {
    fn new() -> Self {
        let (says, its_stderr) = io::pipe().unwrap();
        let (parent, pid, says) = (std::process::id(), AtomicI32::new(0), Mutex::new(says));
        Self(Arc::new(Shared { parent, pid, says, its_stderr }))
    }

    /// Forks, and returns in both processes.
    fn now(&self) {
        match children::fork() {
            Some(pid) => self.0.pid.store(pid, Ordering::Release),
            // SAFETY: the arguments are numbers.
            None => _ = unsafe { libc::dup2(self.0.its_stderr.as_raw_fd(), 2) },
        }
    }

    /// Returns work that forks.
    fn work(&self) -> impl FnOnce() + Send + use<> {
        let fork = self.clone();
        move || fork.now()
    }

    fn has_forked(&self) -> bool {
        self.is_in_child() || self.0.pid.load(Ordering::Acquire) != 0
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
        let pid = || self.0.pid.load(Ordering::Acquire);
        until(|| pid() != 0);
        let status = wait_for(pid());
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

/// Builds a dedicated worker, and gives it a closure that a child must not run.
fn worker_with(fork: &Fork, first: impl FnOnce(&Worker)) {
    let worker = Worker::builder("forks").build().unwrap();
    first(&worker);
    worker.spawn_detached(fork.of_parent());
    worker.shutdown();
}

struct ForksAsItGoes(Option<Fork>);

sync::on_drop!(ForksAsItGoes, this => if let Some(fork) = this.0.take() {
    fork.now();
});

struct ForksToWake(Fork, thread::Thread);

impl Wake for ForksToWake {
    fn wake(self: Arc<Self>) {
        if !self.0.is_in_child() {
            self.0.now();
            self.1.unpark();
        }
    }
}

/// Code of users that the library calls, and how it forks there.
type Place = (&'static str, fn(&Fork));

const PLACES: [Place; 17] = [
    ("a detached item", |fork| {
        queue_with(fork, |queue| queue.spawn_detached(fork.work()).unwrap());
    }),
    ("a spawned item", |fork| queue_with(fork, |queue| drop(queue.spawn(fork.work())))),
    ("a reusable item", |fork| {
        let forks = fork.clone();
        queue_with(fork, |queue| assert!(queue.enqueue(&Work::new(move || forks.now()))));
    }),
    ("a future's poll", |fork| {
        let forks = fork.work();
        queue_with(fork, |queue| drop(queue.spawn_async(async { forks() })));
    }),
    ("a future's drop", |fork| {
        let forks = ForksAsItGoes(Some(fork.clone()));
        queue_with(fork, |queue| {
            drop(queue.spawn_async(poll_fn(move |_| Poll::Ready(_ = &forks))))
        });
    }),
    ("a result without a handle", |fork| {
        let forks = ForksAsItGoes(Some(fork.clone()));
        queue_with(fork, |queue| drop(queue.spawn(move || forks)));
    }),
    ("a waker that a worker calls", |fork| {
        queue_with(fork, |queue| {
            let (go, wait) = mpsc::channel::<()>();
            let mut handle = queue.spawn(move || assert!(wait.recv().is_err()));
            let waker = Waker::from(Arc::new(ForksToWake(fork.clone(), thread::current())));
            let polled = Pin::new(&mut handle).poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
            drop(go);
            // The worker runs the item, and its pool continues.
            std::mem::forget(handle);
        });
    }),
    ("an item that panics", |fork| {
        let (handler, forks) = (fork.clone(), fork.work());
        let builder = Workqueue::builder("panics").on_panic(move |_| handler.not_in_child());
        let queue = builder.build().unwrap();
        let item = move || {
            forks();
            resume_unwind(Box::new("on purpose"));
        };
        queue.spawn_detached(item).unwrap();
        queue.drain().unwrap();
    }),
    ("a handler of panics", |fork| {
        let handler = fork.clone();
        let builder = Workqueue::builder("panics").on_panic(move |_| handler.now());
        let queue = builder.build().unwrap();
        queue.spawn_detached(|| resume_unwind(Box::new("on purpose"))).unwrap();
        queue.drain().unwrap();
    }),
    ("an item that its joiner runs", |fork| {
        let queue = Workqueue::builder("joined").build().unwrap();
        let joiner = thread::current().id();
        // Repeats until the joiner is faster than the worker.
        while !fork.has_forked() {
            let forks = fork.work();
            let item = move || {
                if thread::current().id() == joiner {
                    forks();
                }
            };
            queue.spawn(item).join().unwrap();
            fork.not_in_child();
        }
    }),
    ("a closure of a dedicated worker", |fork| {
        worker_with(fork, |worker| worker.spawn_detached(fork.work()));
    }),
    ("a local future", |fork| {
        let forks = fork.work();
        worker_with(fork, |worker| drop(worker.spawn_local(|| async { forks() })));
    }),
    ("what makes a local future", |fork| {
        let forks = fork.work();
        let make = || {
            forks();
            async {}
        };
        worker_with(fork, |worker| drop(worker.spawn_local(make)));
    }),
    ("a source of the topology", |fork| {
        let params = Params { topology_refresh_ms: 1, ..Params::default() };
        let forks = fork.clone();
        let source = move || {
            forks.not_in_child();
            let is_manager = thread::current().name() == Some("aw/manager");
            if is_manager && !forks.has_forked() {
                forks.now();
            }
            None
        };
        let machine = Topology::synthetic("2 core").unwrap();
        let registry = Registry::watching(machine, params, source).unwrap();
        let queue = Workqueue::builder("waits").build_in(&registry).unwrap();
        // Waiting work causes the manager to sample.
        while !fork.has_forked() {
            let nap = || thread::sleep(Duration::from_millis(2));
            (0..4).for_each(|_| queue.spawn_detached(nap).unwrap());
            queue.drain().unwrap();
        }
    }),
    ("a callback", |fork| {
        let guard = rcu::read();
        rcu::call(fork.work());
        (0..100).for_each(|_| rcu::call(fork.of_parent()));
        drop(guard);
        rcu::barrier();
    }),
    ("an executor", |fork| {
        let forks = fork.clone();
        rcu::run_callbacks_on(Some(Box::new(move |batch: rcu::Batch| {
            if !forks.has_forked() {
                forks.now();
            }
            // In the child, the batch belongs to the parent and is not run.
            batch.run();
        })));
        (0..10).for_each(|_| rcu::call(fork.of_parent()));
        rcu::barrier();
        rcu::run_callbacks_on(None);
    }),
    ("a callback of a domain", |fork| {
        let domain = Domain::new();
        let (go, wait) = mpsc::channel::<()>();
        domain.call(move || assert!(wait.recv().is_err()));
        domain.call(fork.work());
        (0..10).for_each(|_| domain.call(fork.of_parent()));
        drop(go);
        domain.barrier();
    }),
];

#[test]
fn child_ends_where_the_code_that_forked_returns() {
    let _alone = alone();
    for (place, forks) in PLACES {
        let fork = Fork::new();
        forks(&fork);
        fork.must_have_ended(place);
    }
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
