//! Executors: users decide where callbacks run.

use crate::stall::tuned;
use crate::*;

fn run_some() {
    let run = Run::default();
    (0..100).for_each(|_| rcu::call(run.callback()));
    rcu::barrier();
    assert_eq!(run.nr(), 100);
}

#[test]
fn forgotten_batch_is_recalled() {
    let _alone = children::alone();
    let _tuned = tuned(Tunables { stall_timeout_ms: 5, ..Tunables::default() });
    rcu::run_callbacks_on(Some(Box::new(mem::forget)));
    run_some();
    rcu::run_callbacks_on(None);
    run_some();
}

#[test]
fn unstarted_batch_is_recalled_from_a_replaced_executor() {
    let _alone = children::alone();
    let _tuned = tuned(Tunables { stall_timeout_ms: 0, ..Tunables::default() });
    let (sender, batches) = mpsc::channel();
    rcu::run_callbacks_on(Some(Box::new(move |batch| sender.send(batch).unwrap())));
    let run = Run::default();
    rcu::call(run.callback());
    let late = batches.recv().unwrap();
    rcu::run_callbacks_on(None);
    run_some();
    late.run();
    assert_eq!(run.nr(), 1, "once");
}

#[test]
fn executor_that_waits_for_callbacks_panics_and_loses_none() {
    let _alone = children::alone();
    let (sender, messages) = mpsc::channel();
    rcu::run_callbacks_on(Some(Box::new(move |batch: rcu::Batch| {
        sender.send(message_of(rcu::barrier)).ok();
        // An executor may wait for a grace period.
        rcu::synchronize();
        batch.run();
    })));
    run_some();
    rcu::run_callbacks_on(None);
    assert_eq!(messages.recv().unwrap(), "barrier inside a callback waits for itself");
}

struct Bomb;

sync::on_drop!(Bomb, this => panic!("on purpose"));

#[test]
fn an_executor_whose_drop_panics_stops_nothing() {
    let _alone = children::alone();
    for replaced_in_its_batch in [false, true] {
        let bomb = Bomb;
        rcu::run_callbacks_on(Some(Box::new(move |batch: rcu::Batch| {
            let _mine = &bomb;
            if replaced_in_its_batch {
                // The sweeper then owns the executor's last handle.
                rcu::run_callbacks_on(None);
            }
            batch.run();
        })));
        run_some();
        rcu::run_callbacks_on(None);
        run_some();
    }
}

#[test]
fn executor_that_waits_for_callbacks_in_its_drop_panics() {
    struct Waits(mpsc::Sender<String>);
    sync::on_drop!(Waits, this => this.0.send(message_of(rcu::barrier)).ok());
    let _alone = children::alone();
    let (sender, messages) = mpsc::channel();
    let waits = Waits(sender);
    rcu::run_callbacks_on(Some(Box::new(move |batch: rcu::Batch| {
        let _mine = &waits;
        // The sweeper then owns the executor's last handle.
        rcu::run_callbacks_on(None);
        batch.run();
    })));
    run_some();
    assert_eq!(messages.recv().unwrap(), "barrier inside a callback waits for itself");
    run_some();
}
