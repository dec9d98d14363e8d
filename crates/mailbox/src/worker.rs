//! A thread for work that must stay on one thread. It has a mailbox of closures and a local set.
//!
//! The thread receives until no more items can arrive: the worker, which has the only poster, was
//! dropped and all local futures have ended (`local.rs`). To cancel everything, an urgent item ends
//! the thread's loop, and the thread drops the set and the remaining closures. No thread can post
//! closures by then. Later items are only wake-ups, so a waker never runs user code.

use std::error::Error;
use std::future::Future;
use std::io::ErrorKind::InvalidInput;
use std::io::{self};
use std::{fmt, mem};

use base::internal::panics::join_error::{JoinError, Outcome};
use base::internal::panics::{self, or_abort};
use base::internal::params::{CpuSet, ParamError, Params};
use base::internal::wake::{note_harmless, report};
use sync::unmodelled::Arc;
use sync::{cpu, thread};

use super::error::TryRecvError;
use super::join::{JoinHandle, answer};
use super::local::{LocalSet, task};
use super::mailbox::Mailbox;
use super::poster::Poster;
use super::reply::{ReplyTo, reply};
use super::target::{POSTED, Post, Target, Woken};

/// The number of items that the thread receives before it checks whether it may sleep. Items are
/// served in order.
const BATCH: usize = 32;

/// One thread that runs closures in order, and futures that stay on it.
///
/// Use it for work that is bound to a thread: a library with thread-local state (OpenGL, Python,
/// SQLite in single-thread mode, COM-like apartments), values that are not `Send`, or work with its
/// own real-time priority. For other work, a workqueue is better, because its queues share threads.
///
/// # Guarantees
///
/// - Closures run one after the other. Closures that one thread spawned run in the order of their
///   spawns, and so do the closures of two spawns if one ended before the other began. A running
///   closure or future is never moved to another thread.
/// - Futures are polled between closures, after they are woken.
/// - Dropping the worker waits until all spawned closures and futures have ended. Where the drop
///   must not wait, the thread ends on its own, as after
///   [`close_in_background`](Self::close_in_background). This applies on the worker's own thread,
///   in an item of a bottom-half queue, and in a callback of RCU or of a sleepable domain.
/// - A panic ends only its closure or future. It is reported by the panic hook, and to the handle,
///   if there is one.
///
/// # Cost
///
/// A worker costs a thread, which sleeps while there is no work. A
/// [`spawn_detached`](Self::spawn_detached) allocates once, a [`spawn`](Self::spawn) three times,
/// and a future five times.
///
/// Differs from Linux: a worker takes closures and futures instead of `kthread_work`s, which can be
/// queued repeatedly.
///
/// # Examples
///
/// State that only one thread may access, which is created on that thread and used from every
/// thread:
///
/// ```
/// use std::{cell::RefCell, rc::Rc};
/// use afterwork::mailbox::Worker;
///
/// thread_local!(static DOCUMENT: Rc<RefCell<String>> = Rc::default());
///
/// let worker = Worker::builder("document").build()?;
/// std::thread::scope(|scope| {
///     for word in ["a", "b", "c"] {
///         let worker = &worker;
///         scope.spawn(move || {
///             worker.spawn_detached(move || {
///                 DOCUMENT.with(|text| text.borrow_mut().push_str(word));
///             })
///         });
///     }
/// });
/// let len = worker.spawn(|| DOCUMENT.with(|text| text.borrow().len()));
/// assert_eq!(len.join()?, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("kthread_worker", "SingleThreadExecutor", "Actor"))]
pub struct Worker {
    /// `None` once the worker is being dropped.
    poster: Option<Poster<Message>>,
    post: Arc<Post<Message>>,
    thread: Option<thread::JoinHandle>,
    is_in_background: bool,
}

type Run = Box<dyn FnOnce(&LocalSet<Message>) + Send>;

enum Message {
    Run(Run),
    Woken(Woken),
    /// Ends the thread. Drops closures that have not started and futures that have not ended.
    Quit,
}

impl From<Woken> for Message {
    fn from(woken: Woken) -> Self {
        Self::Woken(woken)
    }
}

/// Builds a [`Worker`]; created by [`Worker::builder`].
///
/// # Examples
///
/// ```
/// use afterwork::{params::Params, mailbox::Worker};
///
/// let worker = Worker::builder("audio")
///     .fifo_if_permitted(10)
///     .params(Params { stack_size: 512 << 10, ..Params::default() })
///     .build()?;
/// let name = worker.spawn(|| std::thread::current().name().map(str::to_owned));
/// assert_eq!(name.join()?.as_deref(), Some("aw/audio"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct WorkerBuilder {
    name: String,
    cpus: Option<CpuSet>,
    fifo: Option<u8>,
    must_be_fifo: bool,
    params: Params,
}

/// The error of [`WorkerBuilder::build`].
#[derive(Debug)]
#[non_exhaustive]
pub enum WorkerError {
    /// The stack or the prefix of the name is out of range.
    Params(ParamError),
    /// The name contains a NUL.
    Name,
    /// Thread creation failed.
    Thread(io::Error),
    /// The CPUs could not be set, because the set is empty or none of them is online.
    Cpus(io::Error),
    /// The real-time priority could not be set, because it is out of range or the process lacks the
    /// permission.
    Fifo(io::Error),
}

impl fmt::Display for WorkerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Params(error) => error.fmt(f),
            Self::Name => f.write_str("the name of a worker must not contain a NUL"),
            Self::Thread(error) => write!(f, "cannot create the worker's thread: {error}"),
            Self::Cpus(error) => write!(f, "cannot set the worker's CPUs: {error}"),
            Self::Fifo(error) => write!(
                f,
                "cannot set the worker's real-time priority: {error} (SCHED_FIFO takes 1 to 99, and needs CAP_SYS_NICE or \
                 RLIMIT_RTPRIO)"
            ),
        }
    }
}

impl Error for WorkerError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Params(error) => Some(error),
            Self::Name => None,
            Self::Thread(error) | Self::Cpus(error) | Self::Fifo(error) => Some(error),
        }
    }
}

base::internal::into_io_error!(WorkerError, |error| match error {
    WorkerError::Thread(error) | WorkerError::Cpus(error) | WorkerError::Fifo(error) =>
        error.kind(),
    _ => ErrorKind::InvalidInput,
});

impl WorkerBuilder {
    /// Binds the thread to these CPUs. By default, it runs on the CPUs of the process's first
    /// thread.
    #[doc(alias = "kthread_create_worker_on_cpu")]
    pub fn cpus(mut self, cpus: CpuSet) -> Self {
        self.cpus = Some(cpus);
        self
    }

    /// Gives the thread a real-time priority (`SCHED_FIFO`, 1 to 99). If the process lacks the
    /// permission, building fails. The thread runs before every ordinary thread on its CPUs,
    /// without a time limit: a long computation in a closure keeps all of them from running.
    #[doc(alias("sched_set_fifo", "SCHED_FIFO"))]
    pub fn fifo(mut self, priority: u8) -> Self {
        (self.fifo, self.must_be_fifo) = (Some(priority), true);
        self
    }

    /// Does the same as [`fifo`](Self::fifo) if the system permits it, and otherwise nothing. A
    /// priority that is out of range is an error in both cases.
    pub fn fifo_if_permitted(mut self, priority: u8) -> Self {
        (self.fifo, self.must_be_fifo) = (Some(priority), false);
        self
    }

    /// Sets the stack size, the name prefix and the hooks of the thread, as for the threads of a
    /// registry. Other tunables have no effect.
    pub fn params(mut self, params: Params) -> Self {
        self.params = params;
        self
    }

    /// Starts the thread.
    ///
    /// # Blocking
    ///
    /// Blocks until the thread has its CPUs and its priority.
    ///
    /// # Errors
    ///
    /// Returns [`WorkerError`], with the reason. In that case there is no thread.
    ///
    /// # Panics
    ///
    /// Panics if called in an item of a bottom-half queue.
    pub fn build(self) -> Result<Worker, WorkerError> {
        report::must_be_free_to_sleep();
        self.params.check_threads().map_err(WorkerError::Params)?;
        if self.name.contains('\0') {
            return Err(WorkerError::Name);
        }
        let style = self.params.thread_style();
        let mailbox = Mailbox::builder().name(&*self.name).build();
        let (poster, post) = (mailbox.poster(), Arc::new(Post::new(&mailbox)));
        let (started, is_started) = reply();
        note_harmless(&(post.waker)(Target::new(&post, POSTED)));
        let theirs = post.clone();
        let name = style.name(&self.name);
        let stack_size = style.stack_size;
        let body = move || {
            let settled = self.settle();
            theirs.settle();
            let is_fit = settled.is_ok();
            _ = started.reply(settled);
            if is_fit {
                or_abort("a dedicated worker panicked", || style.within(|| serve(mailbox, theirs)));
            }
        };
        let thread = thread::spawn_sized(&name, stack_size, body).map_err(WorkerError::Thread)?;
        let worker =
            Worker { poster: Some(poster), post, thread: Some(thread), is_in_background: false };
        // On an error, the worker is dropped, which waits for the exit of the thread.
        let settled = is_started.wait().expect("the thread answers first of all");
        settled.map(|()| worker)
    }

    fn settle(&self) -> Result<(), WorkerError> {
        if let Some(cpus) = &self.cpus {
            cpu::set_affinity(None, cpus).map_err(WorkerError::Cpus)?;
        }
        match self.fifo.map(thread::set_fifo) {
            Some(Err(error)) if self.must_be_fifo || error.kind() == InvalidInput => {
                Err(WorkerError::Fifo(error))
            }
            _ => Ok(()),
        }
    }
}

fn serve(mut mailbox: Mailbox<Message>, post: Arc<Post<Message>>) {
    let set = LocalSet::with(post);
    set.within(|| {
        while mailbox.wait(1).is_ok() {
            for message in mailbox.drain(BATCH) {
                match message {
                    Message::Run(run) => run(&set),
                    Message::Woken(woken) => _ = set.poll(woken),
                    Message::Quit => return,
                }
            }
        }
    });
    drop(set);
    loop {
        match mailbox.try_recv() {
            // FOREIGN(worker-skip): as in `skip`.
            Ok(message) => _ = panics::contain(|| drop(message)),
            Err(TryRecvError::MidPush) => thread::yield_now(),
            Err(_) => return,
        }
    }
}

fn call<R>(func: impl FnOnce() -> R) -> Outcome<R> {
    // FOREIGN(worker-item): a user's closure, on the worker's thread. A panic becomes its outcome.
    panics::guarded(func).map_err(JoinError::panicked)
}

fn skip<R>(func: impl Sized, to: ReplyTo<Outcome<R>>) {
    // FOREIGN(worker-skip): the drop of a user's closure, on the worker. A panic is caught.
    panics::contain(|| drop(func));
    answer(to, Err(JoinError::Cancelled));
}

impl Worker {
    /// Returns a builder for a worker with this name. The kernel shows the first 12 bytes of the
    /// name after `aw/`.
    #[doc(alias = "kthread_create_worker")]
    pub fn builder(name: impl Into<String>) -> WorkerBuilder {
        WorkerBuilder {
            name: name.into(),
            cpus: None,
            fifo: None,
            must_be_fifo: false,
            params: Params::default(),
        }
    }

    /// Runs `func` on the thread, and returns a handle for its result.
    ///
    /// # Blocking
    ///
    /// Never blocks. In a child of `fork` the handle returns [`Closed`](JoinError::Closed).
    pub fn spawn<R: Send + 'static>(
        &self,
        func: impl FnOnce() -> R + Send + 'static,
    ) -> JoinHandle<R> {
        self.spawn_with(move |_, target, to| {
            if target.mark.end() {
                skip(func, to);
            } else {
                answer(to, call(func));
            }
        })
    }

    /// Runs `func` on the thread, without a handle.
    ///
    /// # Blocking
    ///
    /// Never blocks. In a child of `fork` it only drops `func`.
    #[doc(alias("enqueue", "kthread_queue_work"))]
    pub fn spawn_detached(&self, func: impl FnOnce() + Send + 'static) {
        self.enqueue(Box::new(move |_| {
            if let Err(error) = call(func) {
                // FOREIGN(worker-item): the drop of the panic payload, as above. A panic is caught.
                panics::contain(|| drop(error));
            }
        }));
    }

    /// Calls `make` on the thread, and runs the returned future there.
    ///
    /// Neither the future nor its captures need to be `Send`. The future may add others with
    /// [`spawn_local`](super::spawn_local).
    ///
    /// # Blocking
    ///
    /// Never blocks. In a child of `fork` the handle returns [`Closed`](JoinError::Closed).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::{rc::Rc, time::Duration};
    /// use afterwork::{mailbox::Worker, workqueue::sleep};
    ///
    /// let worker = Worker::builder("example").build()?;
    /// let handle = worker.spawn_local(|| async {
    ///     let text = Rc::new(String::from("not Send"));
    ///     sleep(Duration::from_millis(1)).await;
    ///     text.len()
    /// });
    /// assert_eq!(handle.join()?, 8);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "spawn_pinned")]
    pub fn spawn_local<F>(&self, make: impl FnOnce() -> F + Send + 'static) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        self.spawn_with(move |set, target, to| {
            if target.mark.is_cancelled() {
                return skip(make, to);
            }
            match call(make) {
                // A cancellation before this point is seen before the first poll.
                Ok(future) => set.start(target, task(future, to)),
                Err(error) => answer(to, Err(error)),
            }
        })
    }

    /// Waits until all closures that were spawned before this call have ended, and all futures that
    /// were spawned before it have been polled at least once.
    ///
    /// # Blocking
    ///
    /// Blocks until then.
    ///
    /// # Errors
    ///
    /// Returns [`JoinError::OwnItem`] on the worker's own thread, and [`JoinError::Closed`] in a
    /// child of `fork`.
    ///
    /// # Panics
    ///
    /// Panics if called in an item of a bottom-half queue.
    #[doc(alias = "kthread_flush_worker")]
    pub fn flush(&self) -> Result<(), JoinError> {
        report::must_be_free_to_sleep();
        self.spawn(|| ()).join()
    }

    /// Returns `true` on the worker's thread.
    pub fn is_current(&self) -> bool {
        self.post.is_owner()
    }

    /// Waits until everything that was spawned has ended. Dropping the worker does the same.
    ///
    /// # Blocking
    ///
    /// Blocks until then, and forever if a future is never woken. If it is called inside a work
    /// item, the item's pool gets another worker during the wait. On the worker's own thread, it
    /// does not wait.
    #[doc(alias = "kthread_destroy_worker")]
    pub fn shutdown(self) {}

    /// Lets everything that was spawned run to completion, but does not wait for it.
    ///
    /// # Blocking
    ///
    /// Never blocks.
    pub fn close_in_background(mut self) {
        self.is_in_background = true;
    }

    /// Cancels all closures that have not started and all futures, without waiting. A running
    /// closure runs to completion.
    ///
    /// Cancelled work is dropped on the worker's thread, and its handles return
    /// [`Cancelled`](JoinError::Cancelled). Up to one more closure may start.
    ///
    /// # Blocking
    ///
    /// Never blocks.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::{mailbox::Worker, workqueue::JoinError};
    ///
    /// let worker = Worker::builder("example").build()?;
    /// let handle = worker.spawn_local(|| std::future::pending::<()>());
    /// worker.shutdown_background();
    /// assert!(matches!(handle.join(), Err(JoinError::Cancelled)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shutdown_background(mut self) {
        self.is_in_background = true;
        if self.post.is_at_home()
            && let Some(poster) = &self.poster
        {
            // The mailbox is unbounded, and its thread receives as long as this poster exists.
            _ = poster.urgent().post(Message::Quit);
        }
    }

    fn spawn_with<R: Send + 'static>(
        &self,
        start: impl FnOnce(&LocalSet<Message>, Arc<Target<Message>>, ReplyTo<Outcome<R>>)
        + Send
        + 'static,
    ) -> JoinHandle<R> {
        let (to, reply) = reply();
        let target = Target::new(&self.post, POSTED);
        let theirs = target.clone();
        if self.enqueue(Box::new(move |set| start(set, theirs, to))) {
            JoinHandle::new(reply, Some(target))
        } else {
            JoinHandle::refused()
        }
    }

    /// Posts `run` to the thread. Returns `false` in a child of `fork`.
    fn enqueue(&self, run: Run) -> bool {
        let poster = self.poster.as_ref().filter(|_| self.post.is_at_home());
        let Some(poster) = poster else {
            // FOREIGN(worker-refused): the drop of a user's closure, on the thread that calls
            // `spawn` in the child. A panic is caught.
            panics::contain(|| drop(run));
            return false;
        };
        poster.post(Message::Run(run)).is_ok()
    }
}

sync::on_drop!(Worker, it => {
    let thread = it.thread.take();
    if !it.post.is_at_home() {
        // The thread and its mailbox belong to the parent.
        return mem::forget((it.poster.take(), thread));
    }
    it.poster = None;
    let may_wait = !it.is_in_background && report::may_wait_for_users() && !it.is_current();
    if let Some(thread) = thread.filter(|_| may_wait) {
        let ended = report::while_asleep(|| thread.join());
        ended.expect("a dedicated worker does not panic");
    }
});
