//! An async task that owns a log, on a minimal executor.
//!
//! Any executor works, because the mailbox needs only the task's waker.
//! `cargo run --release --example mailbox_async`

use std::error::Error;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use afterwork::mailbox::Mailbox;

const NR_THREADS: usize = 3;
const NR_LINES: usize = 1000;

/// Wakes the thread that runs a future.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut mailbox = Mailbox::new();
    let threads: Vec<_> = (0..NR_THREADS)
        .map(|from| {
            let poster = mailbox.poster();
            thread::spawn(move || {
                let mut batch = poster.batch();
                for number in 0..NR_LINES {
                    batch
                        .push(format!("thread {from}, line {number}"))
                        .expect("there is no bound");
                    if batch.len() == 10 {
                        batch.post_lazy().expect("the owner waits for us");
                    }
                }
            })
        })
        .collect();

    let nr_lines = block_on(async {
        let mut log = Vec::new();
        // Wakes once per 100 lines, and for the rest when the last poster is dropped.
        while mailbox.ready(100).await.is_ok() {
            log.extend(mailbox.drain(100));
        }
        log.len()
    });
    for thread in threads {
        thread.join().expect("a poster panicked");
    }
    assert_eq!(nr_lines, NR_THREADS * NR_LINES);
    println!("{nr_lines} lines");
    Ok(())
}
