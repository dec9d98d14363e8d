//! An async task that owns a log.
//!
//! Any executor works, because the mailbox needs only the task's waker.
//! `cargo run --release --example mailbox_async`

use std::error::Error;
use std::thread;

use afterwork::mailbox::Mailbox;
use afterwork::workqueue::block_on;

const NR_THREADS: usize = 3;
const NR_LINES: usize = 1000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut mailbox = Mailbox::new();
    let threads: Vec<_> = (0..NR_THREADS)
        .map(|from| {
            let poster = mailbox.poster();
            thread::spawn(move || {
                let mut batch = poster.batch();
                for number in 0..NR_LINES {
                    batch.push(format!("thread {from}, line {number}")).expect("there is no bound");
                    if batch.len() == 10 {
                        batch.post_lazy().expect("the owner waits for us");
                    }
                }
            })
        })
        .collect();

    let nr_lines = block_on(async {
        let mut log = Vec::new();
        // The task wakes once per 100 lines, and again for the rest when the last poster is
        // dropped.
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
