//! A cell that several threads update and read.

use crate::*;

/// A version that counts how many versions are alive.
struct Version {
    number: usize,
    nr_alive: Arc<AtomicUsize>,
}

impl Version {
    fn new(number: usize, nr_alive: &Arc<AtomicUsize>) -> Self {
        nr_alive.fetch_add(1, Ordering::Relaxed);
        let nr_alive = nr_alive.clone();
        Self { number, nr_alive }
    }
}

sync::on_drop!(Version, this => this.nr_alive.fetch_sub(1, Ordering::Relaxed));

fn updated() {
    let nr_alive = Arc::new(AtomicUsize::new(0));
    let domain = Domain::new();
    let cell = Arc::new(Rcu::new_in(Version::new(0, &nr_alive), domain.clone()));
    let theirs = cell.clone();
    join_all(spawn_each(3, move |_| {
        for _ in 0..2 {
            theirs.update(|old| Version::new(old.number + 1, &old.nr_alive));
            let guard = theirs.read();
            assert!(theirs.load(&guard).number >= 1);
        }
    }));
    let last = cell.load(&cell.read()).number;
    assert_eq!(last, 6, "an update was lost");
    domain.barrier();
    assert_eq!(nr_alive.load(Ordering::Relaxed), 1);
    drop(cell);
    assert_eq!(nr_alive.load(Ordering::Relaxed), 0);
}

models! {
    fn no_update_of_a_cell_is_lost_and_no_version_kept() = explore(1_000, updated);
}
