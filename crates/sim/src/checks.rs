//! The guarantees of the library, as programs that succeed or panic. `tests/sim.rs` runs them and
//! their twins on a simulated machine of many CPUs. They also run on the real machine.

use std::sync::Arc;
// The checks count with the standard library's atomics, because these cost nothing in the
// simulation.
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use afterwork::mailbox::Mailbox;
use afterwork::params::{AffinityScope, Qpw};
use afterwork::percpu::PerCpu;
use afterwork::rcu::srcu::Domain;
use afterwork::rcu::{self, Flavor, Rcu};
use afterwork::workqueue::{Builder, DelayedWork, Registry, Work, Workqueue, current_work};
use sync::{thread, time};

use crate::host::{self, work_ns};
use crate::scenarios::{Job, Scenario, registry, scenarios};

pub const CHECKS: &[Scenario] = scenarios! {
    "check-once", "each successful enqueue is one run, and runs of an item never overlap"
        => |job, _| with_queue(job, |it| it, exactly_once);
    "check-flush", "a flush of items that only workers run returns after each has run"
        => |job, _| with_queue(job, |it| it.help(false), flush_waits);
    "check-cancel", "an item runs or is cancelled, and does not run after cancel_sync"
        => |job, _| with_queue(job, |it| it, cancels);
    "check-limit", "no more than max_active items run at once, and all run"
        => |job, _| with_queue(job, |it| it.max_active(LIMIT as u32), limit_holds);
    "check-order", "an ordered queue runs items one at a time, and those of a producer in order"
        => |job, _| with_queue(job, |it| it.ordered().affinity(AffinityScope::System), order_holds);
    "check-drain", "a drain returns after items that queue themselves again have ended"
        => |job, _| with_queue(job, |it| it, drain_waits);
    "check-delayed", "a delayed item runs once and not too early, or is cancelled"
        => |job, _| with_queue(job, |it| it, delays_hold);
    "check-scope", "scopes and joins on all CPUs add up borrowed numbers"
        => |job, _| with_queue(job, |it| it, scopes_end);
    "check-mailbox", "a mailbox delivers each item once, and those of a poster in order"
        => |job, _| mail_arrives(job);
    "check-rcu", "no reader sees a version retired a grace period ago; a barrier waits for callbacks"
        => |job, _| {
            grace_periods_hold(job, rcu::Global);
            callbacks_run(job);
        };
    "check-srcu", "the same for readers of a domain"
        => |job, _| grace_periods_hold(job, Domain::new());
    "check-percpu", "owners, remote calls and queued work are in a slot one at a time, and each once"
        => |job, _| slots_are_exclusive(job);
};

/// Runs `body` on one thread for each CPU. If a thread panics, resumes its panic.
fn on_each_cpu(job: &Job, body: impl Fn(usize) + Send + Sync + 'static) {
    host::join(host::start_on(job.topology.allowed(), body));
}

/// Calls `body` with a new queue, and shuts the registry down afterwards.
fn with_queue(job: &Job, with: impl FnOnce(Builder) -> Builder, body: fn(&Job, &Arc<Workqueue>)) {
    let registry: Registry = registry(job);
    let builder = with(Workqueue::builder("check").affinity(job.scope));
    let queue = Arc::new(builder.build_in(&registry).expect("a queue"));
    body(job, &queue);
    drop(queue);
    registry.shutdown().expect("no thread uses it any more");
}

/// The number of visits in progress, the maximum of that number, and the number of completed
/// visits.
#[derive(Debug, Default)]
struct Visits {
    nr_inside: AtomicU64,
    most: AtomicU64,
    nr_ended: AtomicU64,
}

impl Visits {
    /// Makes a visit that takes some time, so that other visits can overlap with it.
    fn visit(&self, ns: u64) {
        let nr_inside = self.nr_inside.fetch_add(1, Relaxed) + 1;
        self.most.fetch_max(nr_inside, Relaxed);
        work_ns(ns);
        self.nr_ended.fetch_add(1, Relaxed);
        self.nr_inside.fetch_sub(1, Relaxed);
    }

    /// Panics unless `nr_ended` visits have completed, at most `most` at a time, and no visit
    /// remains.
    #[track_caller]
    fn check(&self, nr_ended: u64, most: u64) {
        assert_eq!(self.nr_inside.load(Relaxed), 0, "one still runs");
        assert_eq!(self.nr_ended.load(Relaxed), nr_ended, "runs");
        let seen = self.most.load(Relaxed);
        assert!(seen <= most, "{seen} ran at once, of {most} at most");
    }
}

fn work(visits: &Arc<Visits>, ns: u64) -> Work {
    let visits = visits.clone();
    Work::new(move || visits.visit(ns))
}

fn nr_cpus(job: &Job) -> u64 {
    job.topology.allowed().len() as u64
}

fn exactly_once(job: &Job, queue: &Arc<Workqueue>) {
    let (visits, nr_taken) = (Arc::<Visits>::default(), Arc::new(AtomicU64::new(0)));
    let shared = work(&visits, 200);
    let (nr_rounds, queue, all, taken) =
        (job.nr_items as u64, queue.clone(), shared.clone(), nr_taken.clone());
    on_each_cpu(job, move |_| {
        let own_visits = Arc::default();
        let own = work(&own_visits, 50);
        for round in 1..=nr_rounds {
            taken.fetch_add(queue.enqueue(&all).into(), Relaxed);
            assert!(queue.enqueue(&own), "it was not pending");
            own.flush().expect("another thread's");
            own_visits.check(round, 1);
        }
    });
    shared.flush().expect("another thread's");
    visits.check(nr_taken.load(Relaxed), 1);
}

fn flush_waits(job: &Job, queue: &Arc<Workqueue>) {
    let (nr_rounds, queue) = (job.nr_items.div_ceil(4) as u64, queue.clone());
    on_each_cpu(job, move |_| {
        let visits = Arc::default();
        let works: Vec<_> = (0..4).map(|_| work(&visits, 100)).collect();
        for round in 1..=nr_rounds {
            assert_eq!(queue.task().enqueue_all(&works), works.len());
            works.iter().for_each(|work| _ = work.flush().expect("another thread's"));
            visits.check(4 * round, 4);
        }
    });
}

fn cancels(job: &Job, queue: &Arc<Workqueue>) {
    let (nr_rounds, queue) = (job.nr_items as u64, queue.clone());
    on_each_cpu(job, move |index| {
        let visits = Arc::<Visits>::default();
        let work = work(&visits, 300);
        let mut nr_cancelled = 0;
        for round in 0..nr_rounds {
            assert!(queue.enqueue(&work), "it was not pending");
            // Cancels some items before they start, some during the run, and some after it.
            work_ns((round * 1_700 + index as u64 * 300) % 9_000);
            nr_cancelled += u64::from(work.cancel_sync());
            visits.check(round + 1 - nr_cancelled, 1);
        }
    });
}

const LIMIT: u64 = 3;

fn limit_holds(job: &Job, queue: &Arc<Workqueue>) {
    let (visits, nr_items, queue) = (Arc::<Visits>::default(), job.nr_items as u64, queue.clone());
    let inside = visits.clone();
    on_each_cpu(job, move |_| {
        let spawn = |_| {
            let visits = inside.clone();
            queue.spawn(move || visits.visit(500))
        };
        let handles: Vec<_> = (0..nr_items).map(spawn).collect();
        handles.into_iter().for_each(|handle| handle.join().expect("it ran"));
    });
    visits.check(nr_items * nr_cpus(job), LIMIT);
}

fn order_holds(job: &Job, queue: &Arc<Workqueue>) {
    let visits = Arc::<Visits>::default();
    let next: Arc<Vec<_>> = Arc::new((0..nr_cpus(job)).map(|_| AtomicU64::new(0)).collect());
    let (nr_items, shared, inside, seen) =
        (job.nr_items as u64, queue.clone(), visits.clone(), next.clone());
    on_each_cpu(job, move |index| {
        let spawn = |number| {
            let (visits, next) = (inside.clone(), seen.clone());
            shared.spawn(move || {
                let expected = next[index].fetch_add(1, Relaxed);
                visits.visit(50);
                expected == number
            })
        };
        let handles: Vec<_> = (0..nr_items).map(spawn).collect();
        for handle in handles {
            assert!(handle.join().expect("it ran"), "out of order");
        }
    });
    visits.check(nr_items * nr_cpus(job), 1);
}

fn drain_waits(job: &Job, queue: &Arc<Workqueue>) {
    let (visits, nr_again) = (Arc::<Visits>::default(), job.nr_items as u64);
    let (inside, shared) = (visits.clone(), queue.clone());
    on_each_cpu(job, move |_| {
        let (visits, queue) = (inside.clone(), Arc::downgrade(&shared));
        let mut nr_left = nr_again;
        let work = Work::new(move || {
            if nr_left > 0 {
                nr_left -= 1;
                let (queue, own) = (queue.upgrade(), current_work());
                // The draining thread keeps the queue alive.
                queue.expect("it is there").enqueue(&own.expect("it runs"));
            }
            visits.visit(100);
        });
        assert!(shared.enqueue(&work), "it was not pending");
    });
    queue.drain().expect("not in an item");
    visits.check((nr_again + 1) * nr_cpus(job), nr_cpus(job));
}

fn delays_hold(job: &Job, queue: &Arc<Workqueue>) {
    let (nr_rounds, queue) = (job.nr_items.div_ceil(2) as u64, queue.clone());
    on_each_cpu(job, move |index| {
        let ran_at = Arc::new(AtomicU64::new(0));
        let visits = Arc::<Visits>::default();
        let (at, inside) = (ran_at.clone(), visits.clone());
        let work = DelayedWork::new(move || {
            at.store(time::now_ns(), Relaxed);
            inside.visit(50);
        });
        let mut nr_runs = 0;
        for round in 0..nr_rounds {
            let delay = Duration::from_micros(20 + (round * 7 + index as u64 * 13) % 50);
            let start_ns = time::now_ns();
            if round % 2 == 0 {
                assert!(queue.enqueue_after(&work, delay), "it was not pending");
            } else {
                queue.enqueue_after(&work, Duration::from_secs(3600));
                assert_eq!(queue.reschedule(&work, delay), Ok(false), "it was pending");
            }
            if round % 3 == 2 {
                thread::sleep(delay);
                nr_runs += u64::from(!work.cancel_sync());
                visits.check(nr_runs, 1);
                continue;
            }
            nr_runs += 1;
            while visits.nr_ended.load(Relaxed) < nr_runs {
                thread::sleep(Duration::from_micros(20));
            }
            let late_ns = ran_at.load(Relaxed).saturating_sub(start_ns);
            assert!(u128::from(late_ns) >= delay.as_nanos(), "after {late_ns} ns of {delay:?}");
        }
        work.cancel_sync();
        visits.check(nr_runs, 1);
    });
}

fn sum(queue: &Workqueue, numbers: &[u64]) -> u64 {
    if let [number] = numbers {
        work_ns(300);
        return *number;
    }
    let (left, right) = numbers.split_at(numbers.len() / 2);
    let (left, right) = queue.join(|| sum(queue, left), || sum(queue, right));
    left + right
}

fn scopes_end(job: &Job, queue: &Arc<Workqueue>) {
    let (nr_items, queue) = (job.nr_items as u64, queue.clone());
    on_each_cpu(job, move |index| {
        let mut numbers: Vec<u64> = (1..=nr_items).collect();
        queue.scope(|scope| {
            for number in &mut numbers {
                scope.spawn(move || {
                    work_ns(100);
                    *number += index as u64;
                });
            }
        });
        let expected = nr_items * (nr_items + 1) / 2 + nr_items * index as u64;
        assert_eq!(numbers.iter().sum::<u64>(), expected);
        assert_eq!(sum(&queue, &numbers), expected);
    });
}

fn mail_arrives(job: &Job) {
    let mut mailbox = Mailbox::<(usize, usize)>::new();
    let (poster, nr_items) = (mailbox.poster(), job.nr_items);
    let nr_posters = nr_cpus(job) as usize;
    let owner = move || {
        let mut next = vec![0; nr_posters];
        let mut nr_left = nr_posters * nr_items;
        while nr_left > 0 {
            mailbox.wait(nr_posters.min(nr_left)).expect("the posters are there");
            for (index, number) in mailbox.drain(64) {
                assert_eq!(number, next[index], "the next of poster {index}");
                next[index] += 1;
                nr_left -= 1;
            }
        }
        assert_eq!(mailbox.drain(64).count(), 0, "no item arrives twice");
    };
    let owner = thread::spawn("owner", owner).expect("a thread");
    on_each_cpu(job, move |index| {
        for number in 0..nr_items {
            let posted = match number % 3 {
                0 => poster.post((index, number)),
                _ => poster.post_lazy((index, number)),
            };
            posted.expect("the owner is there");
            work_ns(20);
        }
    });
    host::join([owner]);
}

fn grace_periods_hold(job: &Job, flavor: impl Flavor + Send + Sync + 'static) {
    // A version, which records whether it was retired.
    type Version = Arc<AtomicBool>;
    let cell = Arc::new(Rcu::new_in(Version::default(), flavor));
    let (nr_periods, nr_done) = (job.nr_items, Arc::new(AtomicU64::new(0)));
    on_each_cpu(job, move |index| {
        if index == 0 {
            for _ in 0..nr_periods {
                let old = cell.replace_sync(Version::default());
                old.store(true, Relaxed);
            }
            nr_done.store(1, Relaxed);
            return;
        }
        while nr_done.load(Relaxed) == 0 {
            let guard = cell.read();
            let version = cell.load(&guard);
            // This takes longer than a grace period without readers.
            for _ in 0..8 {
                assert!(!version.load(Relaxed), "retired while it is read");
                work_ns(500);
            }
            drop(guard);
            work_ns(30);
        }
    });
}

fn callbacks_run(job: &Job) {
    let nr_items = job.nr_items as u64;
    let nr_ran = Arc::new(AtomicU64::new(0));
    let ran = nr_ran.clone();
    on_each_cpu(job, move |_| {
        for _ in 0..nr_items {
            let ran = ran.clone();
            rcu::call(move || _ = ran.fetch_add(1, Relaxed));
        }
    });
    rcu::barrier();
    assert_eq!(nr_ran.load(Relaxed), nr_items * nr_cpus(job), "callbacks");
}

fn slots_are_exclusive(job: &Job) {
    #[derive(Default)]
    struct Slot {
        is_inside: bool,
        nr_calls: u64,
        nr_beside: u64,
    }
    fn visit(slot: &mut Slot) {
        // A concurrent visitor would see the flag set.
        slot.nr_beside += u64::from(std::hint::black_box(slot.is_inside));
        slot.is_inside = true;
        work_ns(50);
        slot.nr_calls += 1;
        slot.is_inside = std::hint::black_box(false);
    }
    let builder = PerCpu::builder().qpw(Qpw::OnDemand).topology(job.topology.clone());
    let data = Arc::new(builder.build(|_| Slot::default()).expect("per-CPU data"));
    let cpus: Vec<_> = job.topology.allowed().iter().collect();
    let (nr_items, shared) = (job.nr_items, data.clone());
    on_each_cpu(job, move |index| {
        let mut owner = shared.attach(cpus[index]).expect("no other thread owns it");
        for round in 0..nr_items {
            for _ in 0..4 {
                owner.with(visit);
            }
            // Parks, because owners that wait for each other's next operation would deadlock.
            let parked = owner.park();
            let other = cpus[(index + 1 + round) % cpus.len()];
            shared.run_on(other, visit);
            shared.queue_percpu_work(other, visit);
            shared.flush(other);
            owner = parked.unpark();
        }
    });
    let data = Arc::into_inner(data).expect("the threads have ended");
    let expected = nr_cpus(job) * job.nr_items as u64 * 6;
    let slots = data.into_data().map(|(_, slot)| slot);
    let (calls, beside) = slots
        .fold((0, 0), |(calls, beside), slot| (calls + slot.nr_calls, beside + slot.nr_beside));
    assert_eq!((calls, beside), (expected, 0), "calls, and two at once");
}

#[cfg(all(test, not(sim)))]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "its own tests of these parts are smaller")]
    fn every_check_holds_on_the_real_machine() {
        let job = Job {
            topology: sync::cpu::topology().expect("the machine's CPUs"),
            scope: AffinityScope::Cache,
            nr_items: 60,
            nr_producers: usize::MAX,
        };
        for check in CHECKS {
            (check.run)(&job, &Arc::default());
        }
    }
}
