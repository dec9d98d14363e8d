//! Ships the log of a process in batches. Each CPU has a buffer, so threads rarely contend.
//!
//! | promise | kept by |
//! |---|---|
//! | a line is shipped within 100 ms | a `DelayedWork`, armed by the first line of a buffer |
//! | a buffer of 64 KiB is shipped at once | `reschedule` with no delay |
//! | no line is lost at the end | `flush` of the item, when the shipper is dropped |
//! | shipping does not delay the threads that log | `PerCpu::run_on` takes a whole buffer |
//!
//! `cargo run --release --example log_shipper`

use std::collections::HashSet;
use std::error::Error;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;
use std::{mem, thread};

use afterwork::percpu::PerCpu;
use afterwork::workqueue::{DelayedWork, Registry, Workqueue};

type Failure = Box<dyn Error + Send + Sync>;

const MAX_AGE: Duration = Duration::from_millis(100);
const MAX_BYTES: usize = 64 << 10;
const NR_LINES: usize = 10_000;

struct Shipper {
    buffers: Arc<PerCpu<String>>,
    queue: Workqueue,
    flush: DelayedWork,
}

impl Shipper {
    /// Creates a shipper that passes batches of lines to `ship`, one batch at a time.
    fn new(
        registry: &Registry,
        mut ship: impl FnMut(String) + Send + 'static,
    ) -> Result<Self, Failure> {
        let buffers = Arc::new(PerCpu::builder().name("log").build(|_cpu| String::new())?);
        let filled = buffers.clone();
        let flush = DelayedWork::new(move || {
            for cpu in filled.cpus() {
                let batch = filled.run_on(cpu, mem::take);
                if !batch.is_empty() {
                    ship(batch);
                }
            }
        });
        let queue = Workqueue::builder("log").build_in(registry)?;
        Ok(Self { buffers, queue, flush })
    }

    fn log(&self, line: &str) {
        let nr_bytes = self.buffers.with_current(|buffer| {
            buffer.push_str(line);
            buffer.push('\n');
            buffer.len()
        });
        if nr_bytes >= MAX_BYTES {
            let _ = self.queue.reschedule(&self.flush, Duration::ZERO);
        } else if nr_bytes == line.len() + 1 {
            self.queue.enqueue_after(&self.flush, MAX_AGE);
        }
    }
}

impl Drop for Shipper {
    fn drop(&mut self) {
        let _ = self.flush.flush();
    }
}

/// Tests each promise. Only `advance` moves the clock.
pub fn main() -> Result<(), Failure> {
    let mut registry = Registry::for_tests()?;
    let (sender, batches) = channel();
    let shipper = Shipper::new(&registry, move |batch| sender.send(batch).unwrap())?;
    shipper.log("one");
    registry.advance(MAX_AGE - Duration::from_millis(1));
    assert!(batches.try_recv().is_err(), "it waits for other lines");
    registry.advance(Duration::from_millis(1));
    assert_eq!(batches.try_recv()?, "one\n");
    shipper.log(&"x".repeat(MAX_BYTES));
    registry.run_until_idle();
    assert!(batches.try_recv().is_ok(), "it does not wait");

    let log = |thread| (0..NR_LINES).for_each(|line| shipper.log(&format!("{thread}:{line}")));
    thread::scope(|threads| (0..4).for_each(|thread| _ = threads.spawn(move || log(thread))));
    drop(shipper);
    let batches: Vec<_> = batches.iter().collect();
    let lines: Vec<_> = batches.iter().flat_map(|batch| batch.lines()).collect();
    let different: HashSet<_> = lines.iter().collect();
    assert_eq!(lines.len(), 4 * NR_LINES, "no line is lost");
    assert_eq!(different.len(), lines.len());
    println!("{} lines in {} batches", lines.len(), batches.len());
    Ok(())
}
