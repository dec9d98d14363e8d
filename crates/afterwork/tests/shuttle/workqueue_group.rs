//! Groups: items that wait for each other three deep, and then need a lock.

use shuttle::sync::Mutex;

use crate::workqueue::Managed;
use crate::*;

fn joins_three_deep() {
    // At most four items wait, and each occupies a worker.
    let (managed, mut queues) = Managed::new(&[1], 5);
    let group = Group::builder("group").max_active(1).build_in(managed.registry()).unwrap();
    for _ in 0..3 {
        let builder = Workqueue::builder("model").affinity(AffinityScope::System).max_active(2);
        let builder = builder.help(thread_rng().gen_range(0..2) == 0).group(&group);
        queues.push(builder.build_in(managed.registry()).unwrap());
    }
    let counter = Arc::new(Mutex::new(0));
    let roots = [(); 2].map(|()| {
        let [_, first, second, third] = &queues[..] else { unreachable!() };
        let (first, second, third) = (first.clone(), second.clone(), third.clone());
        let counters = [(); 3].map(|()| counter.clone());
        thread::spawn(move || {
            let [of_first, of_second, of_third] = counters;
            let outer = first.spawn(move || {
                let middle = second.spawn(move || {
                    let inner = third.spawn(move || *of_third.lock().unwrap() += 1);
                    inner.join().unwrap();
                    *of_second.lock().unwrap() += 1;
                });
                middle.join().unwrap();
                *of_first.lock().unwrap() += 1;
            });
            outer.join().unwrap();
        })
    });
    join_all(roots.into());
    managed.end(queues);
    assert_eq!(*counter.lock().unwrap(), 6);
    let stats = group.stats();
    assert_eq!((stats.nr_active, stats.nr_over, stats.nr_waiting), (0, 0, 0));
}

models! {
    fn items_of_one_seat_may_wait_for_each_other_three_deep() =
        explore(1_000, joins_three_deep)
            .detects(["group: a returning thread counts twice"])
            .deadlocks_with(["group: a waiter keeps its seats"]);
}
