//! Cancellation that running code sees: the flag of an item, and tokens.

use afterwork::workqueue::is_cancelled;

use crate::support::*;

/// Calls `spawn` with a closure that polls the flag, and waits for its start.
fn polling<T>(spawn: impl FnOnce(Box<dyn FnMut() + Send>) -> T) -> T {
    let started = Count::default();
    let spawned = spawn(Box::new(move || {
        assert!(!is_cancelled());
        started.add();
        wait_until(is_cancelled);
    }));
    wait_until(|| started.get() > 0);
    spawned
}

fn poller(queue: &Workqueue) -> JoinHandle<()> {
    polling(|polls| queue.spawn(polls))
}

#[test]
fn a_running_closure_sees_each_kind_of_cancel() {
    let queue = queue("cancelled").help(false).alone();
    assert!(!is_cancelled(), "outside of items");
    let mut handle = poller(&queue);
    assert!(!handle.cancel(), "it runs");
    handle.join().unwrap();
    let handle = poller(&queue);
    drop(handle.cancel_on_drop());
    queue.drain().unwrap();
    assert!(block_on(timeout(Duration::from_millis(1), poller(&queue).cancel_on_drop())).is_err());
    queue.drain().unwrap();
    let mut set = TaskSet::new(&queue);
    set.add(poller(&queue));
    set.cancel_all();
    assert!(set.join_next_blocking().unwrap().is_ok());
    // The next item is not cancelled.
    queue.spawn(|| assert!(!is_cancelled())).join().unwrap();
    // A reusable item sees it too.
    let work = polling(|polls| {
        let work = Work::new(polls);
        queue.enqueue(&work);
        work
    });
    work.cancel_sync();
    // So does the token of an item.
    let (send, started) = mpsc::channel();
    let (handle, canceller) = cancellable(&queue, |task| {
        task.spawn(move || {
            send.send(CancellationToken::current()).unwrap();
            wait_until(is_cancelled);
        })
    });
    let token = started.recv_timeout(PATIENCE).unwrap();
    assert!(!token.is_cancelled());
    assert!(canceller.cancel());
    assert!(token.is_cancelled());
    handle.join().unwrap();
}

#[test]
fn a_closure_is_cancelled_at_its_hard_deadline() {
    let queue = queue("hard").help(false).alone();
    let (was_late, token) = before_deadline(|deadline| {
        let item = move || {
            wait_until(is_cancelled);
            (Instant::now() >= deadline, CancellationToken::current())
        };
        queue.task().hard_deadline(deadline).spawn(item).join()
    });
    assert!(was_late && token.is_cancelled());
}

#[test]
fn only_the_cancelled_closure_of_a_strand_sees_the_cancel() {
    let queue = queue("cancelled").alone();
    let (strand, started) = (queue.strand(()), Count::default());
    let mut first = strand.spawn(move |()| {
        started.add();
        CancellationToken::current().wait_timeout(HOUR)
    });
    let second = strand.spawn(|()| is_cancelled());
    wait_until(|| started.get() == 1);
    assert!(!first.cancel());
    assert!(first.join().unwrap());
    assert!(!second.join().unwrap());
}

#[test]
fn a_token_of_an_item_ends_each_wait_inside() {
    let (queue, started) = (queue("cancelled").help(false).alone(), Count::default());
    let mut handle = queue.spawn(move || {
        let token = CancellationToken::current();
        started.add();
        let slept = block_on(token.until_cancelled(sleep(HOUR)));
        let waited = block_on(token.until_cancelled(pending::<()>()));
        let ready = block_on(token.until_cancelled(async { 7 }));
        (slept, waited, ready, token.wait_timeout(HOUR))
    });
    wait_until(|| started.get() == 1);
    handle.cancel();
    assert_eq!(handle.join().unwrap(), (None, None, Some(7), true));
}

#[test]
fn the_token_of_an_item_that_has_ended_is_left_alone() {
    let queue = queue("cancelled").help(false).alone();
    let mut handle = queue.spawn(CancellationToken::current);
    wait_until(|| handle.is_finished());
    assert!(!handle.cancel());
    let token = handle.join().unwrap();
    assert!(!token.is_cancelled());
    // Calls inside an item return the same token. Each call outside returns a new one.
    let [one, other] =
        queue.spawn(|| [(); 2].map(|()| CancellationToken::current())).join().unwrap();
    one.cancel();
    assert!(other.is_cancelled());
    assert!(!CancellationToken::current().is_cancelled());
}

/// The inner item runs on the thread of the outer one, which has already requested its token.
#[test]
fn each_nested_item_sees_its_own_token() {
    let queue = queue("cancelled").max_active(1).alone();
    let outer = queue.spawn_own(|own| {
        CancellationToken::current().cancel();
        assert!(is_cancelled());
        let inner = own.spawn(|| {
            let before = is_cancelled();
            let token = CancellationToken::current();
            let states = [before, is_cancelled()];
            token.cancel();
            (states, is_cancelled())
        });
        (inner.join().unwrap(), is_cancelled())
    });
    assert_eq!(outer.join().unwrap(), (([false, false], true), true));
}

#[test]
fn later_poll_of_a_future_sees_the_cancel_of_its_token() {
    let queue = queue("cancelled").alone();
    let (send, started) = mpsc::channel();
    let future = queue.spawn_async(async move {
        let (token, root) = (CancellationToken::current(), CancellationToken::new());
        assert!(!is_cancelled());
        send.send((token, root.clone())).unwrap();
        root.cancelled().await;
        (is_cancelled(), is_cancelled())
    });
    let (token, root) = started.recv_timeout(PATIENCE).unwrap();
    token.cancel();
    root.cancel();
    assert_eq!(future.join().unwrap(), (true, true));
}

#[test]
fn children_are_cancelled_with_their_parent_and_alone() {
    let root = CancellationToken::new();
    let (left, right) = (root.child(), root.child());
    let leaf = left.child();
    left.cancel();
    let states = || [&root, &left, &right, &leaf].map(CancellationToken::is_cancelled);
    assert_eq!(states(), [false, true, false, true]);
    root.cancel();
    assert_eq!(states(), [true; 4]);
    assert!(root.child().is_cancelled());
    block_on(root.child().cancelled());
    // Dropping a child does not affect its parent.
    let other = CancellationToken::new();
    drop(other.child());
    other.cancel();
    // The drop of a long line of tokens does not recurse.
    let root = CancellationToken::new();
    let leaf = (0..1_000_000).fold(root.clone(), |parent, _| parent.child());
    assert!(!leaf.is_cancelled());
    drop(leaf);
    root.cancel();
    // A wait ends in time.
    let token = CancellationToken::new();
    let start = Instant::now();
    assert!(!token.wait_timeout(Duration::from_millis(2)));
    assert!(start.elapsed() >= Duration::from_millis(2));
    let canceller = beside(&token, |token| token.cancel());
    assert!(token.clone().wait_timeout(PATIENCE));
    canceller.join().unwrap();
}

/// The next items reuse the memory of the future, and therefore its address.
#[test]
fn a_destructor_leaves_no_token_to_the_next_item() {
    let queue = queue("cancelled").max_active(1).alone();
    let spawn = |is_last: bool| {
        let cancels = at_drop(move || {
            if is_last {
                CancellationToken::current().cancel();
            }
        });
        queue.spawn_async(async move {
            let _cancels = cancels;
            let is_cancelled = CancellationToken::current().is_cancelled();
            if is_last {
                pending::<()>().await;
            }
            is_cancelled
        })
    };
    for _ in 0..10 {
        let waits = spawn(true);
        // With one seat, this ends after the first poll.
        queue.spawn(|| ()).join().unwrap();
        drop(waits);
        for next in [(); 4].map(|()| spawn(false)) {
            assert!(!next.join().unwrap());
        }
    }
}
