//! A network driver with the structure of a kernel driver: work items, queues and an ordered
//! teardown.
//!
//! | kernel driver | here |
//! |---|---|
//! | `INIT_WORK(&nic->rx, nic_rx)`, `queue_work` from the interrupt | `Work::new`, `enqueue` |
//! | `INIT_DELAYED_WORK`, which requeues itself | `DelayedWork::with_handle`, `enqueue_after` |
//! | `alloc_ordered_workqueue("nic_ctl")` | `.ordered()` |
//! | `alloc_workqueue("nic_rx", WQ_UNBOUND \| WQ_MEM_RECLAIM, 0)` | `.with_rescuer()` |
//! | `list_add_rcu`, `list_del_rcu` | `Rcu<Vec<…>>`: `update` |
//! | `list_for_each_entry_rcu` | `load` |
//! | `synchronize_rcu` | `rcu::synchronize` |
//! | `cancel_delayed_work_sync`, `cancel_work_sync`, `destroy_workqueue` | the same calls |
//! | `container_of` | a `Weak` in the item's closure |
//!
//! `cargo run --release --example kernel_port -- [PACKETS [INTERRUPT THREADS]]`

use std::collections::VecDeque;
use std::error::Error;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::Duration;

use afterwork::rcu::{self, Rcu};
use afterwork::workqueue::{DelayedWork, JoinHandle, Work, Workqueue};

type Failure = Box<dyn Error + Send + Sync>;

/// The number of packets that a run of the receiver takes before it yields, as in NAPI.
const BUDGET: usize = 64;
const WATCHDOG_PERIOD: Duration = Duration::from_millis(1);
const NR_COMMANDS: u32 = 100;

fn main() -> Result<(), Failure> {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse());
    let nr_packets = numbers.next().transpose()?.unwrap_or(1_000_000);
    let nr_interrupts = numbers.next().transpose()?.unwrap_or(4);
    run(nr_packets, nr_interrupts)
}

/// Delivers `nr_packets` packets from each of `nr_interrupts` threads, while listeners are added
/// and removed, and then removes the driver.
pub fn run(nr_packets: u64, nr_interrupts: u64) -> Result<(), Failure> {
    let nic = Nic::probe()?;
    let all = Listener::new();
    nic.add_listener(&all);
    thread::scope(|scope| {
        let interrupts: Vec<_> = (0..nr_interrupts)
            .map(|_| scope.spawn(|| (1..=nr_packets).for_each(|packet| nic.interrupt(packet))))
            .collect();
        let commands: Vec<_> = (0..NR_COMMANDS).map(|mtu| nic.set_mtu(mtu)).collect();
        while interrupts.iter().any(|it| !it.is_finished()) {
            let listener = Listener::new();
            nic.add_listener(&listener);
            nic.remove_listener(&listener);
            // Every receiver that saw the listener has finished with it.
            listener.has_gone.store(true, Relaxed);
        }
        for (mtu, command) in commands.into_iter().enumerate() {
            let done = command.join().expect("it did not panic");
            assert_eq!(done as usize, mtu);
        }
    });

    let nr_dropped = nic.remove()?;
    let nr_heard = all.nr_packets.load(Relaxed);
    assert_eq!(nr_heard + nr_dropped, nr_interrupts * nr_packets);
    // Commands run in order.
    assert_eq!(*nic.mtus.lock().unwrap(), Vec::from_iter(0..NR_COMMANDS));
    // An interrupt after the removal changes nothing.
    let nr_runs = nic.nr_runs.load(Relaxed);
    nic.interrupt(1);
    assert!(!nic.rx.is_busy() && !nic.watchdog.is_pending());
    assert_eq!(nic.nr_runs.load(Relaxed), nr_runs);
    println!("{nr_heard} packets in {nr_runs} runs, {nr_dropped} dropped at the end");
    println!("the watchdog ran {} times", nic.nr_watches.load(Relaxed));
    Ok(())
}

struct Nic {
    /// Packets that have arrived; `None` once the device is off.
    ring: Mutex<Option<VecDeque<u64>>>,
    rx: Work,
    watchdog: DelayedWork,
    /// It must make progress when memory is low, because freeing memory may depend on the network.
    receiving: Workqueue,
    /// Runs commands one at a time.
    control: Workqueue,
    /// Receivers of packets, read by each run of `rx` and rarely written.
    listeners: Rcu<Vec<Arc<Listener>>>,
    mtus: Mutex<Vec<u32>>,
    nr_runs: AtomicU64,
    nr_watches: AtomicU64,
}

struct Listener {
    nr_packets: AtomicU64,
    has_gone: AtomicBool,
}

impl Listener {
    fn new() -> Arc<Self> {
        Arc::new(Self { nr_packets: AtomicU64::new(0), has_gone: AtomicBool::new(false) })
    }
}

impl Nic {
    fn probe() -> Result<Arc<Self>, Failure> {
        let receiving = Workqueue::builder("nic_rx").with_rescuer().build()?;
        let control = Workqueue::builder("nic_ctl").ordered().build()?;
        let nic = Arc::new_cyclic(|nic: &Weak<Self>| {
            let (to_receive, to_watch) = (nic.clone(), nic.clone());
            Self {
                ring: Mutex::new(Some(VecDeque::new())),
                rx: Work::with_handle(move |rx| {
                    if let Some(nic) = to_receive.upgrade() {
                        nic.receive(rx);
                    }
                }),
                watchdog: DelayedWork::with_handle(move |watchdog| {
                    if let Some(nic) = to_watch.upgrade() {
                        nic.watch(watchdog);
                    }
                }),
                receiving,
                control,
                listeners: Rcu::new(Vec::new()),
                mtus: Mutex::default(),
                nr_runs: AtomicU64::new(0),
                nr_watches: AtomicU64::new(0),
            }
        });
        nic.receiving.enqueue_after(&nic.watchdog, WATCHDOG_PERIOD);
        Ok(nic)
    }

    /// The top half: stores the packet and defers the rest.
    fn interrupt(&self, packet: u64) {
        if let Some(ring) = &mut *self.ring.lock().unwrap() {
            ring.push_back(packet);
        }
        // If the item is already pending, that run takes this packet.
        self.receiving.enqueue(&self.rx);
    }

    /// The bottom half.
    fn receive(&self, rx: &Work) {
        self.nr_runs.fetch_add(1, Relaxed);
        let (packets, has_more) = match &mut *self.ring.lock().unwrap() {
            Some(ring) => {
                let count = ring.len().min(BUDGET);
                (ring.drain(..count).collect(), !ring.is_empty())
            }
            None => (Vec::new(), false),
        };
        let guard = rcu::read();
        for listener in self.listeners.load(&guard) {
            assert!(!listener.has_gone.load(Relaxed), "its grace period is over");
            let nr_packets = packets.len() as u64;
            listener.nr_packets.fetch_add(nr_packets, Relaxed);
        }
        drop(guard);
        if has_more {
            self.receiving.enqueue(rx);
        }
    }

    fn watch(&self, watchdog: &DelayedWork) {
        self.nr_watches.fetch_add(1, Relaxed);
        // The call is rejected while another thread cancels the item.
        self.receiving.enqueue_after(watchdog, WATCHDOG_PERIOD);
    }

    fn set_mtu(self: &Arc<Self>, mtu: u32) -> JoinHandle<u32> {
        let nic = self.clone();
        self.control.spawn(move || {
            nic.mtus.lock().unwrap().push(mtu);
            mtu
        })
    }

    fn add_listener(&self, new: &Arc<Listener>) {
        self.listeners.update(|old| old.iter().chain([new]).cloned().collect());
    }

    /// Removes a listener. Returns once no receiver uses it.
    fn remove_listener(&self, gone: &Arc<Listener>) {
        let stays = |listener: &&Arc<Listener>| !Arc::ptr_eq(listener, gone);
        self.listeners.update(|old| old.iter().filter(stays).cloned().collect());
        rcu::synchronize();
    }

    /// Removes the device. Returns the number of packets that were not received.
    fn remove(&self) -> Result<u64, Failure> {
        // First stop the producer: no interrupt queues the item from here on.
        let ring = self.ring.lock().unwrap().take();
        // Then cancel the item that queues itself, and the item that interrupts queued.
        self.watchdog.cancel_sync();
        self.rx.disable_sync();
        self.control.shutdown(Duration::MAX)?;
        self.receiving.shutdown(Duration::MAX)?;
        Ok(ring.map_or(0, |ring| ring.len() as u64))
    }
}
