//! A thread that owns a map and sleeps until there is enough to do.
//!
//! Other threads post changes lazily: the owner wakes once for 32 of them, or after a millisecond,
//! and no thread takes a lock. `cargo run --release --example mailbox_thread`

use std::collections::HashMap;
use std::error::Error;
use std::thread;
use std::time::Duration;

use afterwork::mailbox::Mailbox;

/// The number of changes that the owner makes before it would do its other work.
const BATCH: usize = 32;
/// The longest time that a change waits for others.
const PATIENCE: Duration = Duration::from_millis(1);

const NR_THREADS: u64 = 4;
const NR_CHANGES: u64 = 10_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut mailbox = Mailbox::new();
    let threads: Vec<_> = (0..NR_THREADS)
        .map(|_| {
            let poster = mailbox.poster();
            thread::spawn(move || {
                for number in 0..NR_CHANGES {
                    // Fails only if the owner has exited, which waits for this thread.
                    poster
                        .post_lazy(number % 100)
                        .expect("the owner waits for us");
                }
            })
        })
        .collect();

    let mut counts = HashMap::<u64, u64>::new();
    let mut nr_turns = 0_u32;
    // Ends when the last poster is dropped and everything is received.
    while mailbox.wait_timeout(BATCH, PATIENCE).is_ok() {
        nr_turns += 1;
        for key in mailbox.drain(BATCH) {
            *counts.entry(key).or_default() += 1;
        }
    }
    for thread in threads {
        thread.join().expect("a poster panicked");
    }
    let total: u64 = counts.values().sum();
    assert_eq!(total, NR_THREADS * NR_CHANGES);
    println!(
        "{total} changes of {} keys in {nr_turns} turns of the owner",
        counts.len()
    );
    Ok(())
}
