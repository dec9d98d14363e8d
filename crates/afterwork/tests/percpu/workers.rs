//! Workers that are bound to a CPU own its slots.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Barrier, MutexGuard, mpsc};
use std::time::Duration;

use afterwork::params::Params;
use afterwork::percpu::{AttachError, OwnedByWorkers, PerCpu, Qpw};
use afterwork::workqueue::{self, AffinityScope, Registry, Workqueue};
use topology::Topology;

use crate::support::{NR_CPUS, alone, builder, cpu};

/// Data that workers own, and a queue with a pool of workers for each CPU.
struct Owned {
    slots: Arc<PerCpu<u64>>,
    queue: Workqueue,
    _owned: OwnedByWorkers,
    _alone: MutexGuard<'static, ()>,
}

impl Owned {
    fn new(qpw: Qpw) -> Self {
        let alone = alone();
        let machine = Topology::synthetic(&format!("{NR_CPUS} core")).unwrap();
        let registry = Registry::new(machine, Params::default()).unwrap();
        let slots = Arc::new(builder(qpw).build(|_| 0).unwrap());
        Self {
            _owned: slots.let_workers_own(),
            queue: Workqueue::builder("owned")
                .scope(AffinityScope::Cpu)
                .help(false)
                .build_in(&registry)
                .unwrap(),
            slots,
            _alone: alone,
        }
    }

    /// Runs `item` on a worker of a CPU, and `meanwhile` here; the item goes on when its barrier is passed.
    fn while_running(
        &self,
        number: u32,
        item: impl FnOnce(&PerCpu<u64>, &Barrier) + Send + 'static,
        meanwhile: impl FnOnce(&Barrier),
    ) {
        let barrier = Arc::new(Barrier::new(2));
        let (slots, theirs) = (self.slots.clone(), barrier.clone());
        let handle = self
            .queue
            .spawn_on(cpu(number), move || item(&slots, &theirs));
        meanwhile(&barrier);
        handle.join().unwrap();
    }
}

fn is_free(slots: &PerCpu<u64>, number: u32) -> bool {
    slots
        .try_run_on(cpu(number), Duration::ZERO, |_| ())
        .is_ok()
}

#[test]
fn an_item_works_on_the_slot_that_its_worker_owns() {
    for qpw in Qpw::ALL {
        let owned = Owned::new(qpw);
        owned.while_running(
            2,
            |slots, barrier| {
                for _ in 0..2 {
                    slots.run_on(cpu(2), |data| *data += 1);
                    slots.queue_percpu_work(cpu(2), |data| *data += 1);
                    slots.flush(cpu(2));
                    slots.drain_all(|_, data| *data += 1);
                }
                let refused = slots.attach(cpu(2)).unwrap_err();
                assert_eq!(refused, AttachError::Owned(cpu(2)));
                barrier.wait();
                barrier.wait();
            },
            |barrier| {
                barrier.wait();
                assert_eq!(is_free(&owned.slots, 2), qpw == Qpw::EveryOp);
                assert!(is_free(&owned.slots, 1));
                barrier.wait();
            },
        );
        let sum = owned.slots.sum_over(|data| *data);
        assert_eq!(sum, 4 + 2 * u64::from(NR_CPUS), "{qpw}");
    }
}

#[test]
fn a_worker_lets_others_in_between_two_items() {
    for qpw in Qpw::ALL {
        let owned = Owned::new(qpw);
        let (tell, told) = mpsc::channel();
        let remote = owned.slots.clone();
        owned.while_running(
            1,
            |slots, barrier| {
                slots.run_on(cpu(1), |data| *data += 1);
                barrier.wait();
            },
            |barrier| {
                let caller = std::thread::spawn(move || {
                    remote.run_on(cpu(1), |data| *data += 1);
                    tell.send(()).unwrap();
                });
                barrier.wait();
                // The worker is never idle until the call is through.
                while told.try_recv().is_err() {
                    let items = [(); 8].map(|()| owned.queue.spawn_on(cpu(1), || ()));
                    items.into_iter().for_each(|item| item.join().unwrap());
                }
                caller.join().unwrap();
            },
        );
        assert_eq!(owned.slots.sum_over(|data| *data), 2, "{qpw}");
    }
}

#[test]
fn a_worker_that_blocks_gives_its_slot_up() {
    for qpw in Qpw::ALL {
        let owned = Owned::new(qpw);
        owned.while_running(
            1,
            |slots, barrier| {
                slots.run_on(cpu(1), |data| *data += 1);
                workqueue::blocking(|| {
                    barrier.wait();
                    barrier.wait();
                });
                slots.run_on(cpu(1), |data| *data += 1);
            },
            |barrier| {
                barrier.wait();
                // Nobody polls: this would hang.
                owned.slots.run_on(cpu(1), |data| *data += 1);
                barrier.wait();
            },
        );
        assert_eq!(owned.slots.sum_over(|data| *data), 3, "{qpw}");
    }
}

#[test]
fn a_worker_that_blocks_inside_an_operation_keeps_its_slot() {
    for qpw in Qpw::ALL {
        let owned = Owned::new(qpw);
        owned.while_running(
            1,
            |slots, barrier| {
                slots.run_on(cpu(1), |data| {
                    workqueue::blocking(|| {
                        barrier.wait();
                        barrier.wait();
                    });
                    *data += 1;
                });
            },
            |barrier| {
                barrier.wait();
                assert!(!is_free(&owned.slots, 1), "{qpw}");
                barrier.wait();
            },
        );
        assert_eq!(owned.slots.run_on(cpu(1), |data| *data), 1);
    }
}

#[test]
fn an_idle_worker_owns_nothing() {
    for qpw in Qpw::ALL {
        let owned = Owned::new(qpw);
        owned.while_running(3, |slots, _| slots.run_on(cpu(3), |data| *data = 7), |_| ());
        assert_eq!(owned.slots.run_on(cpu(3), |data| *data), 7);
        let Owned {
            mut slots,
            queue,
            _owned,
            _alone,
        } = owned;
        drop((queue, _owned));
        // A worker lets go of the data before it sleeps.
        let slots = loop {
            match Arc::try_unwrap(slots) {
                Ok(slots) => break slots,
                Err(shared) => slots = shared,
            }
            std::thread::yield_now();
        };
        let all: Vec<u64> = slots.into_data().map(|(_, data)| data).collect();
        assert_eq!(all, [0, 0, 0, 7]);
    }
}

#[test]
fn workers_that_want_each_others_slots_both_get_them() {
    for qpw in Qpw::ALL {
        let owned = Owned::new(qpw);
        for _ in 0..20 {
            let both = Arc::new(Barrier::new(2));
            let items = [(0, 1), (1, 0)].map(|(here, there)| {
                let (slots, both) = (owned.slots.clone(), both.clone());
                owned.queue.spawn_on(cpu(here), move || {
                    slots.run_on(cpu(here), |data| *data += 1);
                    both.wait();
                    slots.run_on(cpu(there), |data| *data += 1);
                })
            });
            items.into_iter().for_each(|item| item.join().unwrap());
        }
        assert_eq!(owned.slots.sum_over(|data| *data), 80, "{qpw}");
    }
}

#[test]
fn an_operation_inside_another_one_is_refused_and_queued_work_comes_after_it() {
    for qpw in Qpw::ALL {
        let owned = Owned::new(qpw);
        owned.while_running(
            0,
            |slots, _| {
                let seen = slots.run_on(cpu(0), |data| {
                    let nested = || slots.run_on(cpu(0), |_| ());
                    assert!(catch_unwind(AssertUnwindSafe(nested)).is_err());
                    slots.queue_percpu_work(cpu(0), |data| *data += 10);
                    *data += 1;
                    *data
                });
                assert_eq!(seen, 1);
                slots.flush(cpu(0));
                assert_eq!(slots.run_on(cpu(0), |data| *data), 11);
                // A drain finds out before it has begun.
                slots.run_on(cpu(0), |_| {
                    let nested = || slots.drain_all(|_, data| *data += 100);
                    assert!(catch_unwind(AssertUnwindSafe(nested)).is_err());
                });
            },
            |_| (),
        );
        assert_eq!(owned.slots.sum_over(|data| *data), 11, "{qpw}");
    }
}

#[test]
fn work_that_calls_the_slot_of_its_worker_is_refused_also_when_that_gives_it_up() {
    let owned = Owned::new(Qpw::Queue);
    let inner = owned.slots.clone();
    owned.while_running(
        1,
        |slots, barrier| {
            slots.run_on(cpu(1), |data| *data += 1);
            barrier.wait();
            barrier.wait();
            // Gives the slot up, and runs what was mailed.
            workqueue::blocking(|| ());
            assert_eq!(slots.nr_panics(), 1);
        },
        |barrier| {
            barrier.wait();
            owned.slots.queue_percpu_work(cpu(1), move |data| {
                *data += 10;
                inner.run_on(cpu(1), |data| *data += 100);
            });
            barrier.wait();
        },
    );
    assert_eq!(owned.slots.run_on(cpu(1), |data| *data), 11);
}

#[test]
fn workers_give_up_what_they_are_not_to_own_any_more() {
    let Owned {
        slots,
        queue,
        _owned: owned,
        _alone,
    } = Owned::new(Qpw::Queue);
    queue.spawn_on(cpu(1), || ()).join().unwrap();
    drop(owned);
    let (attached, over) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let item = queue.spawn_on(cpu(1), {
        let (attached, over) = (attached.clone(), over.clone());
        move || {
            attached.wait();
            over.wait();
        }
    });
    attached.wait();
    assert!(is_free(&slots, 1));
    over.wait();
    item.join().unwrap();
}
