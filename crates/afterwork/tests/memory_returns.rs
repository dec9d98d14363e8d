//! The memory of a burst of items is returned to the system. This is a separate program with one
//! test, because the test reads the memory of the process.
#![cfg(not(any(loom, shuttle, miri)))]

mod children;

use std::mem::MaybeUninit;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use afterwork::workqueue::{JoinHandle, Workqueue};

/// The number of items in each of four bursts. A burst uses 4 MiB.
const NR_ITEMS: usize = 32 * 1024;
/// The size of the program's other memory. A tenth of it is more than a thread or a list uses.
const BESIDE: usize = 8 << 20;
/// The documented limit.
const WITHIN: Duration = Duration::from_secs(10);

/// Returns the private memory of the process in bytes.
fn resident() -> usize {
    children::number_in("/proc/self/status", "RssAnon:").unwrap() * 1024
}

/// Creates items that wait for another one.
fn burst(queue: &Workqueue, nr_items: usize) -> impl Iterator<Item = JoinHandle<()>> {
    // With its header, an item fills a block of 128 bytes.
    let payload = [7_u64; 8];
    let item = move |i: usize| assert_eq!(std::hint::black_box(payload)[i % 8], 7);
    (0..nr_items).map(move |i| queue.spawn(move || item(i)))
}

fn join(items: &mut Vec<JoinHandle<()>>) {
    items.drain(..).for_each(|item| item.join().unwrap());
}

/// Runs four bursts that end in different ways. Returns the memory used while all items waited.
fn four_bursts(nr_items: usize, handles: &mut [Vec<JoinHandle<()>>; 3]) -> usize {
    let queue = &Workqueue::builder("burst").max_active(1).build().unwrap();
    let (open, gate) = mpsc::channel::<()>();
    let first = queue.spawn(move || gate.recv().unwrap());
    // No thread waits for these items, so workers free them.
    burst(queue, nr_items).for_each(drop);
    let [own, others, of_ended] = handles;
    own.extend(burst(queue, nr_items));
    others.extend(burst(queue, nr_items));
    thread::scope(|scope| scope.spawn(|| of_ended.extend(burst(queue, nr_items))).join()).unwrap();
    let full = resident();
    open.send(()).unwrap();
    first.join().unwrap();
    thread::scope(|scope| scope.spawn(|| join(others)).join()).unwrap();
    join(own);
    join(of_ended);
    queue.drain().unwrap();
    full
}

#[test]
fn a_burst_of_items_leaves_no_memory_behind() {
    let beside = std::hint::black_box(vec![1_u8; BESIDE]);
    // Allocated first, because the C library may or may not keep freed memory.
    let mut handles = [(); 3].map(|()| Vec::with_capacity(NR_ITEMS));
    for handles in &mut handles {
        handles.spare_capacity_mut().fill_with(MaybeUninit::zeroed);
    }
    four_bursts(100, &mut handles);
    for _ in 0..2 {
        let before = resident();
        let full = four_bursts(NR_ITEMS, &mut handles);
        assert!(full > before + 3 * NR_ITEMS * 128, "{before} {full}");
        let ended = Instant::now();
        let most = before + before / 10;
        while resident() > most {
            let after = resident();
            assert!(ended.elapsed() < WITHIN, "{before} {full} {after}");
            thread::sleep(Duration::from_millis(20));
        }
        eprintln!("{before} {full} {} {:?}", resident(), ended.elapsed());
    }
    drop(beside);
}
