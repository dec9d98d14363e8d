//! The memory of a burst of items goes back to the system after it. A program of its own, with one test: it reads what the
//! process has. It takes some seconds, for looks are one apart.
#![cfg(not(any(loom, shuttle, miri)))]

use std::{
    mem::MaybeUninit,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use afterwork::workqueue::{JoinHandle, Workqueue};

/// Items of each of four bursts; 4 MiB.
const NR_ITEMS: usize = 32 * 1024;
/// What the program has beside: a tenth of it is more than a thread or a list takes.
const BESIDE: usize = 8 << 20;
/// What is promised.
const WITHIN: Duration = Duration::from_secs(10);

/// Returns how many bytes of memory the process has of its own.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:"));
    let kib = line.unwrap().split_whitespace().nth(1).unwrap();
    kib.parse::<usize>().unwrap() * 1024
}

/// Makes items that wait behind another one.
fn burst(queue: &Workqueue, nr_items: usize) -> impl Iterator<Item = JoinHandle<()>> {
    // With the header it fills a block of 128 bytes.
    let payload = [7_u64; 8];
    let item = move |i: usize| assert_eq!(std::hint::black_box(payload)[i % 8], 7);
    (0..nr_items).map(move |i| queue.spawn(move || item(i)))
}

fn join(items: &mut Vec<JoinHandle<()>>) {
    items.drain(..).for_each(|item| item.join().unwrap());
}

/// Has four bursts wait at once, which end in different ways; returns what the process had when all waited.
fn four_bursts(nr_items: usize, handles: &mut [Vec<JoinHandle<()>>; 3]) -> usize {
    let queue = &Workqueue::builder("burst").max_active(1).build().unwrap();
    let (open, gate) = mpsc::channel::<()>();
    let first = queue.spawn(move || gate.recv().unwrap());
    // Nobody waits for these: they are freed by workers, for this thread.
    burst(queue, nr_items).for_each(drop);
    let [own, others, of_ended] = handles;
    own.extend(burst(queue, nr_items));
    others.extend(burst(queue, nr_items));
    thread::scope(|scope| {
        scope
            .spawn(|| of_ended.extend(burst(queue, nr_items)))
            .join()
    })
    .unwrap();
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
    // Theirs is there before: the C library keeps what is freed, or not.
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
