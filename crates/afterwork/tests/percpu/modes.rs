//! Each call has the same meaning in every mode.

use crate::support::*;

/// Calls `test` with data in each mode, and with each way to break a bias.
fn in_every_mode(test: impl Fn(PerCpu<u64>)) {
    for qpw in Qpw::ALL {
        println!("{qpw}");
        test(builder(qpw).build(|_| 0).unwrap());
    }
    for how in [Escalate::Quietly, Escalate::Interrupt] {
        println!("{} {how:?}", Qpw::OnDemand);
        let builder = builder(Qpw::OnDemand).escalate(how, Duration::from_millis(1));
        test(builder.build(|_| 0).unwrap());
    }
}

#[test]
fn a_call_on_a_slot_without_owner_runs_here() {
    in_every_mode(|slots| {
        let here = thread::current().id();
        let there = slots.run_on(cpu(2), |data| {
            *data += 1;
            thread::current().id()
        });
        assert_eq!(there, here);
        assert_eq!(slots.sum_over(|data| *data), 1);
    });
}

#[test]
fn an_owner_and_remote_callers_add_up() {
    const EACH: u64 = 2_000;
    in_every_mode(|slots| {
        while_owned(&slots, || {
            for _ in 0..EACH / 20 {
                slots.run_on(cpu(1), |data| *data += 1);
                slots.queue_percpu_work(cpu(1), |data| *data += 1);
            }
            slots.flush(cpu(1));
            assert_eq!(slots.run_on(cpu(1), |data| *data), EACH / 10);
        });
        thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel::<()>();
            let slots = &slots;
            scope.spawn(move || {
                let mut owner = slots.attach(cpu(3)).unwrap();
                for _ in 0..EACH {
                    owner.with(|data| *data += 1);
                    owner.poll();
                }
                serve_until(&mut owner, &receiver);
            });
            for _ in 0..EACH / 20 {
                slots.run_on(cpu(3), |data| *data += 1);
            }
            drop(sender);
        });
        assert_eq!(slots.run_on(cpu(3), |data| *data), EACH + EACH / 20);
    });
}

#[test]
fn slot_of_a_parked_owner_can_be_taken() {
    in_every_mode(|slots| {
        let (attached, over) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut owner = slots.attach(cpu(0)).unwrap();
                owner.with(|data| *data = 5);
                let parked = owner.park();
                attached.wait();
                over.wait();
                let mut owner = parked.unpark();
                assert_eq!(owner.with(|data| *data), 6);
            });
            attached.wait();
            // The owner does not poll, so a call that waits for it would hang.
            slots.run_on(cpu(0), |data| *data += 1);
            slots.flush(cpu(0));
            over.wait();
        });
    });
}

#[test]
fn parked_owner_may_call_like_any_thread() {
    in_every_mode(|slots| {
        let mut owner = slots.attach(cpu(1)).unwrap();
        owner.with(|data| *data = 1);
        owner.while_parked(|| slots.drain_all(|_, data| *data += 1));
        assert_eq!(owner.with(|data| *data), 2);
        drop(owner);
        assert_eq!(slots.sum_over(|data| *data), u64::from(NR_CPUS) + 1);
    });
}

#[test]
fn owner_that_did_not_park_is_reported() {
    in_every_mode(|slots| {
        let owner = slots.attach(cpu(1)).unwrap();
        assert_panics(|| slots.run_on(cpu(1), |_| ()));
        assert_panics(|| slots.queue_percpu_work(cpu(1), |_| ()));
        assert_panics(|| slots.flush(cpu(1)));
        assert_panics(|| slots.drain_all(|_, _| ()));
        drop(owner);
        slots.run_on(cpu(1), |_| ());
    });
}

#[test]
fn a_slot_has_one_owner() {
    in_every_mode(|slots| {
        let owner = slots.attach(cpu(0)).unwrap();
        let refused = |cpu| slots.attach(cpu).unwrap_err();
        assert_eq!(refused(cpu(0)), AttachError::Owned(cpu(0)));
        let parked = owner.park();
        assert_eq!(refused(cpu(0)), AttachError::Owned(cpu(0)));
        drop(parked);
        assert_eq!(slots.attach(cpu(0)).unwrap().cpu(), cpu(0));
        let unknown = cpu(NR_CPUS);
        assert_eq!(refused(unknown), AttachError::NoSuchCpu(unknown));
    });
}

#[test]
fn drain_reaches_every_slot_with_any_owner() {
    in_every_mode(|slots| {
        while_owned(&slots, || {
            slots.drain_all(|cpu, data| *data = u64::from(cpu.as_u32()) + 1);
            assert_eq!(slots.sum_over(|data| *data), 1 + 2 + 3 + 4);
            slots.drain_cpus(&cpus(&[1, 3, 900]), |_, data| *data = 0);
            assert_eq!(slots.sum_over(|data| *data), 1 + 3);
        });
        slots.drain_absent(&cpus(&[1, 2, 3]), |_, data| *data = 10);
        assert_eq!(slots.run_on(cpu(0), |data| *data), 10);
        let all: Vec<u64> = slots.into_data().map(|(_, data)| data).collect();
        assert_eq!(all, [10, 0, 3, 0]);
    });
}

#[test]
fn expired_deadline_returns_the_closure() {
    for qpw in [Qpw::Queue, Qpw::OnDemand] {
        let slots = builder(qpw).build(|_| 0u64).unwrap();
        let calls = || {
            let token = Box::new(7);
            let refused = [Duration::ZERO, Duration::from_millis(1)].map(|deadline| {
                let result = slots.try_run_on(cpu(1), deadline, |data| *data += *token);
                matches!(result, Err(NotRun::Busy(_)))
            });
            assert_eq!(refused, [true; 2], "{qpw}");
        };
        // In mode `on_demand`, the owner keeps the slot after its first operation.
        let check = |owner: &mut Owner<'_, u64>| {
            owner.poll();
            assert_eq!(owner.with(|data| *data), 0, "it was taken back");
        };
        beside_owner(&slots, |owner| owner.with(|_| ()), calls, check);
        let taken = slots.try_run_on(cpu(1), Duration::ZERO, |data| *data);
        assert!(matches!(taken, Ok(0)));
        assert!(slots.try_run_on(cpu(77), Duration::ZERO, |_| ()).is_err());
    }
}

#[test]
fn absent_owner_is_bypassed_on_request() {
    for how in [Escalate::Quietly, Escalate::Interrupt] {
        let builder = builder(Qpw::OnDemand).escalate(how, Duration::from_micros(10));
        let slots = builder.build(|_| 0u64).unwrap();
        // This way is skipped if the kernel does not support it on this machine.
        if how == Escalate::Quietly && !sync::asym::heavy_quiet() {
            continue;
        }
        let call = || slots.run_on(cpu(1), |data| *data += 1);
        // The first operation biases the slot toward its owner.
        let operate = |owner: &mut Owner<'_, u64>| {
            owner.with(|data| *data += 1);
            owner.with(|data| *data += 1);
        };
        beside_owner(&slots, operate, call, |owner| assert_eq!(owner.with(|data| *data), 3));
    }
}

#[test]
fn panic_reaches_the_caller_and_leaves_the_slot_usable() {
    in_every_mode(|slots| {
        while_owned(&slots, || {
            for number in [0, 1] {
                assert_panics(|| slots.run_on(cpu(number), |_| -> () { panic!("expected") }));
                slots.run_on(cpu(number), |data| *data += 1);
            }
        });
        let mut owner = slots.attach(cpu(0)).unwrap();
        assert_panics(|| owner.with(|_| panic!("expected")));
        assert_eq!(owner.with(|data| *data), 1);
        drop(owner);
        assert_eq!(slots.sum_over(|data| *data), 2);
    });
}

#[test]
fn panic_of_queued_work_is_counted_and_reported() {
    for qpw in Qpw::ALL {
        for handler_panics in [false, true] {
            let reported = Arc::new(AtomicU64::new(0));
            let sum = reported.clone();
            let report = move |cpu: CpuId| {
                sum.fetch_add(cpu.as_u32().into(), Ordering::Relaxed);
                assert!(!handler_panics, "the handler");
            };
            let slots = builder(qpw).on_panic(report).build(|_| 0u64).unwrap();
            while_owned(&slots, || {
                for number in [1, 2] {
                    slots.queue_percpu_work(cpu(number), |_| panic!("expected"));
                    slots.queue_percpu_work(cpu(number), |data| *data += 1);
                    slots.flush(cpu(number));
                    assert_eq!(slots.run_on(cpu(number), |data| *data), 1, "{qpw}");
                }
            });
            assert_eq!(slots.nr_panics(), 2);
            assert_eq!(reported.load(Ordering::Relaxed), 3);
        }
    }
}

#[test]
fn work_runs_in_the_order_in_which_it_was_queued() {
    for qpw in Qpw::ALL {
        let slots = builder(qpw).build(|_| Vec::new()).unwrap();
        while_owned(&slots, || {
            for number in 0..100 {
                slots.queue_percpu_work(cpu(1), move |list: &mut Vec<i32>| list.push(number));
            }
            slots.flush(cpu(1));
            let list = slots.run_on(cpu(1), std::mem::take);
            assert!(list.iter().copied().eq(0..100), "{qpw}: {list:?}");
        });
    }
}

#[test]
fn nothing_is_queued_onto_an_isolated_cpu() {
    let builder = builder(Qpw::Queue).isolated(&cpus(&[1]));
    let slots = builder.build(|_| 0u64).unwrap();
    let calls = || {
        let here = thread::current().id();
        slots.queue_percpu_work(cpu(1), move |data| {
            assert_eq!(thread::current().id(), here);
            *data += 1;
        });
        slots.flush(cpu(1));
        assert_eq!(slots.run_on(cpu(1), |data| *data), 2);
    };
    beside_owner(&slots, |owner| owner.with(|data| *data += 1), calls, |_| ());
    assert_eq!(slots.nr_panics(), 0);
}

#[test]
fn compiled_out_is_queue_for_good() {
    let isolated = builder(Qpw::EveryOp).isolated(&cpus(&[2]));
    let slots = isolated.build_compiled_out(|_| 0u64).unwrap();
    let refused = slots.attach(cpu(2)).unwrap_err();
    assert_eq!(refused, AttachError::Isolated(cpu(2)));
    let mut owner = slots.attach(cpu(1)).unwrap();
    owner.with(|data| *data += 1);
    thread::scope(|scope| {
        let refused = scope.spawn(|| slots.try_run_on(cpu(1), Duration::ZERO, |_| ()).is_err());
        assert!(refused.join().unwrap(), "the owner keeps it");
    });
    owner.while_parked(|| slots.run_on(cpu(1), |data| *data += 1));
    assert_eq!(owner.with(|data| *data), 2);
}

#[test]
fn thread_without_a_slot_runs_the_work_itself() {
    in_every_mode(|slots| {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..500).for_each(|_| slots.with_current(|data| *data += 1)));
            }
        });
        assert_eq!(slots.sum_over(|data| *data), 2_000);
    });
}
