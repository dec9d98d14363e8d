//! Last handles that a callback drops.

use crate::*;

/// The name of a way to run a callback, and its function.
type Kind<'a> = (&'a str, &'a dyn Fn(&Domain, Callback));

struct Last(Option<Callback>);

sync::on_drop!(Last, this => if let Some(callback) = this.0.take() {
    callback();
});

// SAFETY: no method takes a shared reference.
unsafe impl Sync for Last {}

/// Drops an owner of a thread in each kind of callback. Its closure waits for all callbacks.
fn drops_end<T: Send + 'static>(make: impl Fn(Callback) -> T) {
    let nested = |domain: &Domain, callback: Callback| {
        let inner = domain.clone();
        rcu::call(move || inner.call(callback));
    };
    let kinds: [Kind<'_>; 7] = [
        ("call", &|_, callback| rcu::call(callback)),
        ("call_head", &|_, callback| call_head(callback)),
        ("replace", &|_, callback| Rcu::new(Last(Some(callback))).replace(Last(None))),
        ("domain.call", &|domain, callback| domain.call(callback)),
        ("replace in a domain", &|domain, callback| {
            Rcu::new_in(Last(Some(callback)), domain.clone()).replace(Last(None));
        }),
        ("the last handle of a domain", &|domain, callback| {
            let (other, ours) = (Domain::new(), Last(Some(callback)));
            domain.call(move || {
                other.call(move || drop(ours));
                drop(other);
            });
        }),
        ("nested", &nested),
    ];
    for (kind, call) in kinds {
        let domain = Domain::new();
        let (begin, may_begin) = mpsc::channel::<()>();
        let (send, ended) = mpsc::channel();
        let theirs = domain.clone();
        let owner = make(Box::new(move || {
            may_begin.recv().unwrap();
            rcu::barrier();
            theirs.barrier();
            send.send(()).unwrap();
        }));
        let (dropping, is_dropping) = mpsc::channel();
        let callback = Box::new(move || {
            dropping.send(()).unwrap();
            drop(owner);
        });
        call(&domain, callback);
        is_dropping.recv_timeout(PATIENCE).expect(kind);
        begin.send(()).unwrap();
        assert_eq!(ended.recv_timeout(PATIENCE), Ok(()), "{kind}");
    }
}

fn worker(closure: Callback) -> Worker {
    let worker = Worker::builder("dropped").build().unwrap();
    worker.spawn_detached(closure);
    worker
}

#[test]
fn a_worker_that_any_callback_drops_ends_by_itself() {
    drops_end(worker);
}

#[test]
fn a_queue_that_any_callback_drops_ends_by_itself() {
    drops_end(|closure| {
        let queue = Workqueue::builder("dropped").build().unwrap();
        queue.spawn_detached(closure).unwrap();
        queue
    });
}

#[test]
fn a_batch_that_drops_a_worker_does_not_wait_for_it() {
    let _alone = children::alone();
    let (batches, inbox) = mpsc::channel::<Batch>();
    let runner = thread::spawn(move || inbox.into_iter().for_each(Batch::run));
    rcu::run_callbacks_on(Some(Box::new(move |batch| batches.send(batch).unwrap())));
    drops_end(worker);
    rcu::run_callbacks_on(None);
    runner.join().unwrap();
}
