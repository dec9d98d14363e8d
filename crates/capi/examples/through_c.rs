//! Compares `queue_work` and `flush_work` in C with `enqueue` and `flush` in Rust.
//!
//! ```console
//! $ cargo run --release -p afterwork-capi --example through_c
//! ```
//!
//! Prints the median, the minimum and the maximum of the ratio between the rate through C and the
//! rate in Rust. The library is linked, and not inlined into its callers.

use std::env;
use std::error::Error;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;
use std::time::Instant;

use afterwork::workqueue::{Work, Workqueue};
use afterwork_capi as _;
use raw::RawWork;

const NR_ITEMS: u32 = 200_000;
const WQ_UNBOUND: c_uint = 1 << 1;
const WORK_CPU_UNBOUND: c_int = -1;

// These are the same declarations as in the headers.
unsafe extern "C" {
    fn aw_alloc_workqueue(name: *const c_char, flags: c_uint, max_active: c_int) -> *mut c_void;
    fn aw_queue_work(cpu: c_int, queue: *const c_void, work: *mut c_void) -> bool;
    fn aw_flush_work(work: *mut c_void) -> bool;
    fn aw_destroy_workqueue(queue: *mut c_void);
}

unsafe extern "C-unwind" fn nothing(_: *mut RawWork) {}

/// Returns the time of each call to `step` in nanoseconds.
fn timed(mut step: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..NR_ITEMS {
        step();
    }
    start.elapsed().as_nanos() as f64 / f64::from(NR_ITEMS)
}

fn main() -> Result<(), Box<dyn Error>> {
    let nr_turns: usize = env::args().nth(1).map_or(Ok(21), |turns| turns.parse())?;
    let queue = Workqueue::builder("rust").build()?;
    let work = Work::new(|| ());
    // SAFETY: the name is a C string.
    let queue_of_c = unsafe { aw_alloc_workqueue(c"c".as_ptr(), WQ_UNBOUND, 0) };
    let queue_of_c = NonNull::new(queue_of_c).ok_or("no queue")?.as_ptr();
    // SAFETY: the function may be called on any thread.
    let work_of_c = Box::into_raw(Box::new(unsafe { RawWork::new(nothing) })).cast();
    let mut by_rust = || {
        assert!(queue.enqueue(&work));
        assert!(work.flush().is_ok());
    };
    let mut by_c = || {
        // SAFETY: the queue has not been destroyed, and the item stays valid.
        assert!(unsafe { aw_queue_work(WORK_CPU_UNBOUND, queue_of_c, work_of_c) });
        // SAFETY: as above.
        unsafe { aw_flush_work(work_of_c) };
    };
    let mut turns = Vec::new();
    for turn in 0..=nr_turns {
        // The two take turns going first.
        let (c, rust) = if turn % 2 == 0 {
            (timed(&mut by_c), timed(&mut by_rust))
        } else {
            let rust = timed(&mut by_rust);
            (timed(&mut by_c), rust)
        };
        // The first turn is a warm-up.
        if turn > 0 {
            turns.push((rust / c, c, rust));
        }
    }
    turns.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (ratio, c, rust) = turns[turns.len() / 2];
    println!(
        "queue and flush, {nr_turns} turns of {NR_ITEMS}: {c:.0} ns through C, {rust:.0} ns by Rust: rate {ratio:.2} ({:.2} to {:.2})",
        turns[0].0,
        turns[turns.len() - 1].0,
    );
    // SAFETY: the queue is no longer used.
    unsafe { aw_destroy_workqueue(queue_of_c) };
    Ok(())
}
