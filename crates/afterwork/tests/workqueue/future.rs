//! Handles as futures, on an executor of ten lines.

use crate::support::*;

fn block_on<F: Future>(future: F) -> F::Output {
    let mut parker = Parker::new();
    let unparker = parker.unparker();
    let waker = waker(move || unparker.unpark());
    let mut future = pin!(future);
    loop {
        match poll_with(&mut future, &waker) {
            Poll::Ready(value) => return value,
            Poll::Pending => parker.park(),
        }
    }
}

#[test]
fn a_handle_is_a_future() {
    let queue = queue("future").alone();
    for i in 0..3000 {
        assert_eq!(block_on(queue.spawn(move || i)).unwrap(), i);
    }
    assert_eq!(queue.stats().helped, 0, "a poll never runs the closure");
    // A panic reaches the awaiting task.
    let error = block_on(queue.spawn(|| panic!("async"))).unwrap_err();
    assert_eq!(error.to_string(), "the work item panicked: async");
}

#[test]
fn the_waker_of_the_last_poll_is_woken_once_and_no_other() {
    let queue = queue("wakers").alone();
    let (mut handle, plug) = stuck(|hole| queue.spawn(move || hole.sit()));
    let [(first, first_rung), (last, last_rung)] = [counting_waker(), counting_waker()];
    for _ in 0..3 {
        for waker in [&first, &last] {
            assert!(poll_with(&mut handle, waker).is_pending());
        }
    }
    plug.release();
    wait_until(|| last_rung.get() > 0);
    queue.drain().unwrap();
    assert_eq!((first_rung.get(), last_rung.get()), (0, 1));
    assert!(poll_with(&mut handle, &first).is_ready());
    // The last of ever new wakers is not lost.
    for _ in 0..1000 {
        let mut handle = queue.spawn(|| 9);
        loop {
            let [(waker, rung), (newer, newer_rung)] = [counting_waker(), counting_waker()];
            if let Poll::Ready(value) = poll_with(&mut handle, &waker) {
                assert_eq!(value.unwrap(), 9);
                break;
            }
            if poll_with(&mut handle, &newer).is_ready() {
                break;
            }
            wait_until(|| newer_rung.get() == 1);
            assert!(rung.get() <= 1);
        }
    }
}

#[test]
fn wakers_are_dropped_with_their_handles() {
    let (queue, census) = (queue("wakers").max_active(1).alone(), Census::default());
    for i in 0..200 {
        let (plug, life) = (plug_into(&queue), census.life());
        let waker = waker(move || _ = &life);
        let mut handle = queue.spawn(|| ());
        assert!(poll_with(&mut handle, &waker).is_pending());
        drop(waker);
        match i % 3 {
            0 => drop(handle),
            1 => drop(handle.cancel()),
            _ => {
                plug.release();
                handle.join().unwrap();
                continue;
            }
        }
        plug.release();
    }
    queue.drain().unwrap();
    census.all_dropped(200);
}
