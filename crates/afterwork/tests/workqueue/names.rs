//! Errors and reports show items by the names of the user's functions and futures, even if the
//! library wraps them.

use std::any::type_name_of_val as name_of;

use crate::support::*;

#[test]
fn items_left_by_a_shutdown_have_the_names_of_their_functions() {
    let (queue, plug) = one_seat("busy").plugged();
    let at = Instant::now() + HOUR;
    let [mut first, mut second] = [(); 2].map(|()| CancelHandle::default());
    let owner = Arc::new(());
    let spawned = [
        queue.spawn(|| ()),
        queue.task().deadline(at).spawn(|| ()),
        queue.task().hard_deadline(at).spawn(|| ()),
        queue.task().cancel_handle(&mut first).spawn(|| ()),
        queue.task().cancel_handle(&mut second).hard_deadline(at).spawn(|| ()),
        queue.spawn_async(async {}),
        queue.task().hard_deadline(at).spawn_async(async {}),
    ];
    let works = [Work::new(|| ()), Work::with_handle(|_| ()), Work::for_weak(&owner, |_| ())];
    let delayed = [
        DelayedWork::new(|| ()),
        DelayedWork::with_handle(|_| ()),
        DelayedWork::for_weak(&owner, |_| ()),
    ];
    assert!(works.iter().all(|work| queue.enqueue(work)));
    assert!(delayed.iter().all(|work| queue.enqueue_after(work, HOUR)));
    let ticks = queue.every(HOUR, || ()).unwrap();
    let busy = still_busy(queue.shutdown(Duration::ZERO)).unwrap();
    assert_eq!(busy.nr_left, 1 + spawned.len() + works.len() + delayed.len() + 1);
    let here = name_of(&items_left_by_a_shutdown_have_the_names_of_their_functions);
    for left in &busy.left[1..] {
        // The type name of a closure or future starts with the path of the enclosing function.
        assert!(left.func.unwrap().starts_with(here), "{left:?}");
    }
    assert_eq!(busy.left[0].doing, Doing::Runs);
    plug.release();
    drop(ticks);
}

#[test]
fn reports_of_panics_have_the_names_of_their_functions() {
    fn fails() {
        panic!("on purpose");
    }
    let (send, reports) = mpsc::channel();
    let queue = queue("fails").on_panic(move |panic| send.send(panic.func).unwrap()).alone();
    let at = Instant::now() + HOUR;
    let mut cancel = CancelHandle::default();
    let owner = Arc::new(());
    let next = || reports.recv_timeout(PATIENCE).unwrap();
    let name = name_of(&fails);
    queue.task().hard_deadline(at).spawn_detached(fails).unwrap();
    queue.task().cancel_handle(&mut cancel).spawn_detached(fails).unwrap();
    queue.enqueue(&Work::new(fails));
    queue.enqueue_after(&DelayedWork::new(fails), MS);
    assert_eq!([next(), next(), next(), next()], [name; 4]);
    let of_owner = |_: &()| fails();
    queue.enqueue(&Work::for_weak(&owner, of_owner));
    assert_eq!(next(), name_of(&of_owner));
    let of_strand = |_: &mut ()| fails();
    queue.strand(()).spawn_detached(of_strand).unwrap();
    assert_eq!(next(), name_of(&of_strand));
    let future = async { fails() };
    let name = name_of(&future);
    drop(queue.task().hard_deadline(at).spawn_async(future));
    assert_eq!(next(), name);
    let ticks = queue.every(MS, fails).unwrap();
    assert_eq!(next(), name_of(&fails));
    drop(ticks);
}
