use std::cell::RefCell;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use super::{Domain, Guard, OwnedGuard};

fn is_send<T: Send>() {}

#[test]
fn guards_may_travel() {
    is_send::<Guard<'static>>();
    is_send::<OwnedGuard>();
    let domain = Domain::new();
    let (to_there, from_here) = mpsc::channel::<OwnedGuard>();
    let ender = thread::spawn(move || from_here.into_iter().for_each(drop));
    for _ in 0..100 {
        to_there.send(domain.read_owned()).unwrap();
    }
    drop(to_there);
    domain.synchronize();
    ender.join().unwrap();
}

#[test]
fn a_grace_period_waits_for_the_section_that_began_before_it() {
    let domain = Domain::new();
    let guard = domain.read();
    let cookie = domain.get_state();
    let is_over = AtomicBool::new(false);
    let may_wait = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            may_wait.wait();
            domain.synchronize();
            is_over.store(true, Ordering::SeqCst);
        });
        may_wait.wait();
        for _ in 0..1000 {
            // Sections that begin later neither end the wait nor prolong it.
            drop(domain.read());
            assert!(!is_over.load(Ordering::SeqCst) && !domain.poll_state(cookie));
        }
        drop(guard);
    });
    assert!(domain.poll_state(cookie));
}

#[test]
fn overlapping_sections_do_not_starve_a_grace_period() {
    let domain = Domain::new();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut guard = domain.read();
                while !is_over.load(Ordering::Relaxed) {
                    // A section of this thread is open at all times.
                    let next = domain.read();
                    drop(std::mem::replace(&mut guard, next));
                }
            });
        }
        for _ in 0..if cfg!(any(miri, sim)) { 2 } else { 200 } {
            domain.synchronize();
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn domains_do_not_wait_for_each_other() {
    let (slow, other) = (Domain::new(), Domain::new());
    let held = slow.read();
    other.synchronize();
    other.synchronize_expedited();
    assert!(!slow.same_as(&other) && held.domain().same_as(&slow));
}

#[test]
fn callbacks_run_in_order_and_a_panic_loses_none() {
    let domain = Domain::new();
    let seen = Arc::new(AtomicUsize::new(0));
    let guard = domain.read();
    for number in 0..100 {
        let seen = seen.clone();
        domain.call(move || {
            let before = seen.fetch_add(1, Ordering::Relaxed);
            assert_eq!(before, number, "out of order");
            if number == 10 {
                std::panic::resume_unwind(Box::new("part of the test"));
            }
        });
    }
    assert_eq!(seen.load(Ordering::Relaxed), 0, "run under a reader");
    drop(guard);
    domain.barrier();
    assert_eq!(seen.load(Ordering::Relaxed), 100);
    assert_eq!(domain.nr_panicked(), 1);
}

#[test]
fn barrier_in_an_own_callback_panics_and_elsewhere_waits() {
    let (domain, other) = (Domain::new(), Domain::new());
    let (sender, receiver) = mpsc::channel();
    let theirs = domain.clone();
    domain.call(move || {
        other.call(|| ());
        other.barrier();
        let waits = std::panic::AssertUnwindSafe(|| theirs.barrier());
        let refused = std::panic::catch_unwind(waits).unwrap_err();
        sender.send(*refused.downcast::<&str>().unwrap()).unwrap();
    });
    domain.barrier();
    let message = receiver.recv().unwrap();
    assert_eq!(message, "barrier inside a callback of its domain waits for itself");
}

#[test]
fn callbacks_outlive_the_last_handle() {
    let domain = Domain::new();
    let (done, ran) = mpsc::channel();
    domain.call(move || done.send(()).unwrap());
    drop(domain);
    ran.recv().unwrap();
}

#[test]
fn a_started_poll_ends_by_itself() {
    let domain = Domain::new();
    let cookie = domain.start_poll();
    domain.barrier();
    assert!(domain.poll_state(cookie));
    domain.cond_synchronize(cookie);
}

#[test]
fn a_thread_may_end_within_a_section_and_after_its_own_data() {
    sync::thread_local!(static LAST: RefCell<Option<OwnedGuard>> = RefCell::new(None));
    let domain = Domain::new();
    for _ in 0..20 {
        let theirs = domain.clone();
        thread::spawn(move || LAST.with(|last| *last.borrow_mut() = Some(theirs.read_owned())))
            .join()
            .unwrap();
        let theirs = domain.clone();
        let guard = thread::spawn(move || theirs.read_owned()).join().unwrap();
        drop(guard);
        domain.synchronize();
    }
}

#[test]
fn awaited_grace_period_waits_for_sections_and_wakes_its_task() {
    struct Notify(mpsc::Sender<()>);
    impl Wake for Notify {
        fn wake(self: Arc<Self>) {
            self.0.send(()).unwrap();
        }
    }
    let (sender, woken) = mpsc::channel();
    let waker = Arc::new(Notify(sender)).into();
    let mut cx = Context::from_waker(&waker);
    let domain = Domain::new();
    let guard = domain.read();
    let mut waiting = pin!(domain.synchronize_async());
    for _ in 0..3 {
        assert_eq!(waiting.as_mut().poll(&mut cx), Poll::Pending);
    }
    assert!(woken.try_recv().is_err());
    drop(guard);
    woken.recv().unwrap();
    assert_eq!(waiting.as_mut().poll(&mut cx), Poll::Ready(()));
}

#[test]
fn waker_that_waits_in_its_drop_is_dropped_under_no_lock() {
    /// A waker whose drop waits for the callback that would wake it.
    struct Waits(Domain, mpsc::Sender<()>);
    impl Wake for Waits {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for Waits {
        fn drop(&mut self) {
            self.1.send(()).unwrap();
            self.0.barrier();
        }
    }
    let domain = Domain::new();
    let (go, wait) = mpsc::channel();
    domain.call(move || wait.recv().unwrap());
    let waker = Waker::from(Arc::new(Waits(domain.clone(), go)));
    let mut waiting = pin!(domain.synchronize_async());
    let first = waiting.as_mut().poll(&mut Context::from_waker(&waker));
    assert_eq!(first, Poll::Pending);
    drop(waker);
    let mut cx = Context::from_waker(Waker::noop());
    // This poll drops the waker that the future has stored.
    assert_eq!(waiting.as_mut().poll(&mut cx), Poll::Pending);
    assert_eq!(waiting.as_mut().poll(&mut cx), Poll::Ready(()));
}
