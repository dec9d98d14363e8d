//! Slots that their owners and remote callers use, in every mode.

use crate::*;

#[test]
fn an_owner_and_others_reach_a_slot_in_turns() {
    for qpw in Qpw::ALL {
        let machine = Topology::synthetic("2 core").unwrap();
        let slots = PerCpu::builder().topology(machine).qpw(qpw);
        let slots = slots.build(|_| vec![0_u64]).unwrap();
        let is_over = AtomicBool::new(false);
        let cpu = CpuId::new(1);
        thread::scope(|scope| {
            let owner = scope.spawn(|| {
                let mut owner = slots.attach(cpu).unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    owner.with(|values| values.push(1));
                    owner.poll();
                    thread::yield_now();
                }
                drop(owner.park());
            });
            for _ in 0..2 {
                slots.queue_percpu_work(cpu, |values| values.push(2));
                let nr = slots.run_on(cpu, |values| {
                    values.push(3);
                    values.len()
                });
                assert!(nr > 1);
            }
            slots.flush(cpu);
            is_over.store(true, Ordering::Relaxed);
            owner.join().unwrap();
        });
        let data: Vec<_> = slots.into_data().collect();
        assert_eq!(data[1].1.iter().filter(|&&value| value > 1).count(), 4);
    }
}
