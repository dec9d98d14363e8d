//! Remote callers of a slot whose owner never pauses, and owners of slots that are always called.

use crate::support::*;

const OPERATION: Duration = Duration::from_micros(200);

const NR_CALLS: usize = 20;

/// The owner's limit of operations. A call takes about 10, or 40 on a busy machine, if callers that
/// have waited for a millisecond announce themselves; otherwise hundreds.
const MOST_OPERATIONS: usize = 5_000;

fn burn(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

/// Lets an owner operate back to back until `nr_callers` threads have made their calls.
fn call_next_to_a_busy_owner(slots: &PerCpu<u64>, nr_callers: usize) {
    let (is_over, nr_operations) = (AtomicBool::new(false), AtomicUsize::new(0));
    let nr_made = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut owner = slots.attach(cpu(1)).unwrap();
            // The loop body runs inside the operation: the slot is never free for long.
            while owner.with(|_| {
                let nr = nr_operations.fetch_add(1, Ordering::Relaxed);
                burn(OPERATION);
                nr < MOST_OPERATIONS && !is_over.load(Ordering::Relaxed)
            }) {}
        });
        let callers = (0..nr_callers).map(|_| {
            scope.spawn(|| {
                for _ in 0..NR_CALLS {
                    // The owner is inside an operation when the call begins.
                    let before = nr_operations.load(Ordering::Relaxed);
                    while nr_operations.load(Ordering::Relaxed) == before {
                        if before >= MOST_OPERATIONS {
                            return;
                        }
                        thread::yield_now();
                    }
                    slots.run_on(cpu(1), |data| *data += 1);
                    nr_made.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        for caller in callers.collect::<Vec<_>>() {
            caller.join().unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let nr_operations = nr_operations.load(Ordering::Relaxed);
    let nr_made = nr_made.load(Ordering::Relaxed);
    println!("{nr_made} calls during {nr_operations} operations");
    assert!(nr_operations < MOST_OPERATIONS, "only {nr_made} calls");
    let found = slots.run_on(cpu(1), |data| *data);
    assert_eq!(found, (nr_callers * NR_CALLS) as u64);
}

#[test]
fn owner_that_yields_on_demand_starves_no_caller() {
    for how in [Escalate::Never, Escalate::Quietly] {
        let builder = builder(Qpw::OnDemand).escalate(how, Duration::from_secs(60));
        let slots = builder.build(|_| 0).unwrap();
        call_next_to_a_busy_owner(&slots, 1);
    }
}

#[test]
fn a_busy_owner_lets_several_callers_take_turns() {
    for qpw in [Qpw::EveryOp, Qpw::OnDemand] {
        let slots = builder(qpw).build(|_| 0).unwrap();
        call_next_to_a_busy_owner(&slots, 3);
    }
}

/// The callers' limit of calls. About 10 run per operation if a waiting owner announces itself.
const MOST_CALLS: usize = 5_000;

/// Lets `nr_callers` threads call back to back until the owner has called `operate` often enough.
fn operate_next_to_busy_callers(
    slots: &PerCpu<u64>,
    nr_callers: usize,
    operate: impl Fn(&mut Owner<'_, u64>),
) {
    let (is_over, nr_calls) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut nr_made = 0;
    thread::scope(|scope| {
        for _ in 0..nr_callers {
            scope.spawn(|| {
                // The loop body runs inside the call: the slot is never free for long.
                while slots.run_on(cpu(1), |_| {
                    let nr = nr_calls.fetch_add(1, Ordering::Relaxed);
                    burn(OPERATION);
                    nr < MOST_CALLS && !is_over.load(Ordering::Relaxed)
                }) {}
            });
        }
        let mut owner = slots.attach(cpu(1)).unwrap();
        while nr_made < NR_CALLS && nr_calls.load(Ordering::Relaxed) < MOST_CALLS {
            // A caller is usually inside when the operation begins.
            burn(OPERATION);
            operate(&mut owner);
            nr_made += 1;
        }
        drop(owner);
        is_over.store(true, Ordering::Relaxed);
    });
    let nr_calls = nr_calls.into_inner();
    println!("{nr_made} operations during {nr_calls} calls");
    assert!(nr_calls < MOST_CALLS, "only {nr_made} operations");
}

#[test]
fn callers_that_call_without_a_pause_starve_no_owner() {
    for qpw in [Qpw::EveryOp, Qpw::OnDemand] {
        for nr_callers in [1, 3] {
            let slots = builder(qpw).build(|_| 0).unwrap();
            operate_next_to_busy_callers(&slots, nr_callers, |owner| owner.with(|data| *data += 1));
        }
    }
}

#[test]
fn constant_callers_do_not_starve_a_returning_owner() {
    for qpw in Qpw::ALL {
        let slots = builder(qpw).build(|_| 0).unwrap();
        operate_next_to_busy_callers(&slots, 1, |owner| {
            owner.while_parked(|| burn(OPERATION));
            owner.with(|data| *data += 1);
            owner.poll();
        });
    }
}
