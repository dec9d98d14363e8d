//! Versions, callbacks and readers, and the memory that belongs to each.

use afterwork::rcu;

use crate::workqueue::Count;
use crate::*;

/// The number is small, because Miri makes each operation a thousand times slower.
const NR_VERSIONS: usize = 4;

fn replaces_while_two_read<F: Flavor + Send + Sync>(cell: &Rcu<Vec<usize>, F>) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let guard = cell.read();
                    let seen = cell.load(&guard);
                    assert_eq!(seen[0], seen[1]);
                    thread::yield_now();
                }
            });
        }
        for version in 1..NR_VERSIONS {
            cell.replace(vec![version; 2]);
            cell.update(|seen| vec![seen[0] + 100; 2]);
            let old = cell.replace_sync(vec![version; 2]);
            assert_eq!(old[0], version + 100);
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn versions_stay_valid_until_the_last_reader() {
    let mut cell = Rcu::new(vec![0; 2]);
    replaces_while_two_read(&cell);
    assert_eq!(cell.get_mut()[0], NR_VERSIONS - 1);
    let guard = rcu::read();
    let seen = cell.load(&guard);
    cell.replace(vec![7; 2]);
    assert_eq!(seen[0], NR_VERSIONS - 1);
    drop(guard);
    rcu::barrier();
}

#[test]
fn versions_of_a_domain_stay_valid_until_the_last_reader() {
    let domain = Domain::new();
    let cell = Rcu::new_in(vec![0; 2], domain.clone());
    replaces_while_two_read(&cell);
    let guard = domain.read_owned();
    let reader = thread::spawn(move || drop(guard));
    domain.synchronize_expedited();
    reader.join().unwrap();
    domain.barrier();
}

#[test]
fn callbacks_of_all_kinds_run_once_even_after_thread_exit() {
    #[repr(C)]
    struct Node(rcu::Head, Count);
    unsafe extern "C-unwind" fn count(head: *mut rcu::Head) {
        // SAFETY: the node was leaked for this callback.
        let node = unsafe { Box::from_raw(head.cast::<Node>()) };
        node.1.add();
    }
    let nr_run = Count::default();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for number in 0..3 {
                    rcu::call(nr_run.adder());
                    // The closure is too large for a slot in a bag.
                    let (add, large) = (nr_run.adder(), [number; 40]);
                    rcu::call(move || {
                        assert_eq!(large[39], large[0]);
                        add();
                    });
                    rcu::call_drop(vec![number]);
                    let node = Box::into_raw(Box::new(Node(rcu::Head::new(), nr_run.clone())));
                    // SAFETY: the head is the first field of a box that no other code refers to.
                    unsafe { rcu::raw::call_c(node.cast(), count) };
                }
            });
        }
    });
    rcu::barrier();
    assert_eq!(nr_run.get(), 18);
}

#[test]
fn qsbr_reader_delays_reclamation_until_it_reports() {
    let cell = Rcu::new(vec![1]);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut reader = qsbr::Reader::new();
            for _ in 0..3 {
                assert_eq!(cell.load(&reader).len(), 1);
                reader.quiescent();
                reader.offline(thread::yield_now);
            }
            reader.synchronize();
        });
        drop(cell.replace_sync(vec![2]));
        cell.replace(vec![3]);
    });
    rcu::synchronize_expedited();
    rcu::barrier();
}

#[test]
fn a_grace_period_is_polled_for_and_awaited() {
    let cookie = rcu::start_poll();
    until(|| rcu::poll_state(cookie));
    let mut grace = pin!(rcu::synchronize_async());
    let mut context = Context::from_waker(Waker::noop());
    until(|| grace.as_mut().poll(&mut context).is_ready());
}
