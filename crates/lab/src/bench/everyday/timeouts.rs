//! Timeouts that never fire, because all operations of the threads complete in time.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Barrier;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use afterwork::workqueue::{Registry, timeout};
use tokio::runtime::Runtime;
use top::exit::Stop;

use super::cases::{CPU_PER_TIMEOUT, TIMEOUTS_PER_S};
use crate::harness::case::Sample;
use crate::harness::switches::Usage;

const LIMIT: Duration = Duration::from_secs(3600);

pub fn ours(nr_threads: usize, count: usize) -> Result<Sample, Stop> {
    Registry::global().map_err(Stop::because("cannot create a registry"))?;
    Ok(measured(nr_threads, count, || {
        (0..count).for_each(|_| within(timeout(LIMIT, operation())));
    }))
}

pub fn tokio(runtime: &Runtime, nr_threads: usize, count: usize) -> Sample {
    measured(nr_threads, count, || {
        let _within = runtime.enter();
        (0..count).for_each(|_| within(tokio::time::timeout(LIMIT, operation())));
    })
}

/// An operation that is not ready at its first poll, so that a timeout is armed.
fn operation() -> impl Future<Output = ()> {
    let mut is_ready = false;
    poll_fn(move |_| {
        if is_ready {
            return Poll::Ready(());
        }
        is_ready = true;
        Poll::Pending
    })
}

fn within<E>(limited: impl Future<Output = Result<(), E>>) {
    let mut limited = pin!(limited);
    let mut context = Context::from_waker(Waker::noop());
    let is_pending = limited.as_mut().poll(&mut context).is_pending();
    let ended = limited.as_mut().poll(&mut context);
    assert!(is_pending && matches!(ended, Poll::Ready(Ok(()))));
}

fn measured(nr_threads: usize, count: usize, work: impl Fn() + Sync) -> Sample {
    let start = Barrier::new(nr_threads + 1);
    let before = Usage::now();
    let mut begun = Instant::now();
    thread::scope(|scope| {
        for _ in 0..nr_threads {
            scope.spawn(|| {
                start.wait();
                work();
            });
        }
        start.wait();
        begun = Instant::now();
    });
    let wall = begun.elapsed();
    let spent = Usage::now().since(before);
    let count = (nr_threads * count) as f64;
    Sample::of([
        (TIMEOUTS_PER_S, count / wall.as_secs_f64()),
        (CPU_PER_TIMEOUT, spent.cpu_ns as f64 / count),
    ])
}
