//! Futures on a queue that use tokio's timers.
#![cfg(not(any(loom, shuttle)))]

use std::any::Any;
use std::cell::RefCell;
use std::future::pending;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use afterwork::workqueue::{Workqueue, block_on, in_tokio, sleep, timeout};
use tokio::runtime::{Builder, Handle, Runtime};

const SHORT: Duration = Duration::from_millis(2);
const LONG: Duration = Duration::from_secs(3600);

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap()
}

#[test]
fn tokio_timers_work_in_a_queues_future_and_on_a_thread() {
    let runtime = runtime();
    let queue = Workqueue::builder("tokio").build().unwrap();
    let start = Instant::now();
    let task = queue.spawn_async(in_tokio(runtime.handle(), async {
        tokio::time::sleep(SHORT).await;
        // This future uses both kinds of timers.
        sleep(SHORT).await;
        let late = tokio::time::timeout(SHORT, pending::<()>()).await;
        (late.is_err(), tokio::spawn(async { 7 }).await.unwrap())
    }));
    assert_eq!(task.join().unwrap(), (true, 7));
    assert!(start.elapsed() >= 3 * SHORT);
    block_on(in_tokio(runtime.handle(), async { tokio::time::sleep(SHORT).await }));
}

#[test]
fn a_future_is_dropped_in_the_runtime_s_context_and_not_beyond() {
    struct SendsInRuntime(mpsc::Sender<bool>);
    sync::on_drop!(SendsInRuntime, this => this.0.send(Handle::try_current().is_ok()).unwrap());
    let runtime = runtime();
    let (send, receive) = mpsc::channel();
    let on_drop = SendsInRuntime(send);
    let future = in_tokio(runtime.handle(), async move {
        let _on_drop = on_drop;
        pending::<()>().await;
    });
    assert!(block_on(timeout(SHORT, future)).is_err());
    assert!(receive.recv().unwrap());
    assert!(Handle::try_current().is_err());
}

#[test]
fn our_timers_work_in_tokio_s_tasks() {
    let runtime = runtime();
    let task = runtime.spawn(async {
        sleep(SHORT).await;
        timeout(LONG, async { 7 }).await
    });
    assert_eq!(runtime.block_on(task).unwrap(), Ok(7));
    let late = runtime.block_on(async { timeout(SHORT, pending::<()>()).await });
    assert!(late.is_err());
}

/// A destructor of a thread-local may run after tokio's.
#[test]
fn future_of_an_exiting_thread_is_dropped() {
    struct SendsOnDrop(mpsc::Sender<()>);
    sync::on_drop!(SendsOnDrop, this => this.0.send(()).unwrap());
    thread_local!(static KEPT: RefCell<Option<Box<dyn Any>>> = const { RefCell::new(None) });
    let runtime = runtime();
    let handle = runtime.handle().clone();
    let (send, receive) = mpsc::channel();
    let thread = thread::spawn(move || {
        // This is initialized before tokio's locals, so it is dropped after them.
        KEPT.with(|kept| *kept.borrow_mut() = None);
        let on_drop = SendsOnDrop(send);
        let future = in_tokio(&handle, async move {
            let _sender = on_drop;
        });
        KEPT.with(|kept| *kept.borrow_mut() = Some(Box::new(future)));
        drop(handle.enter());
    });
    thread.join().unwrap();
    assert_eq!(receive.recv(), Ok(()));
}
