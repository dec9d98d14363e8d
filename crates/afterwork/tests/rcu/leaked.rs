//! Sections that a callback leaves open on the thread that runs callbacks.

use crate::*;

#[derive(PartialEq, Eq, Debug)]
enum Event {
    /// The callback thread waits for its own section.
    Stalled,
    Dropped,
}

struct Version(Sender<Event>);

sync::on_drop!(Version, this => this.0.send(Event::Dropped).ok());

/// Replaces a version that a callback sees in a section left open. No grace period ends later.
fn seen_version_stays(leave_open: fn(&Rcu<Version>)) {
    static CELL: OnceLock<Rcu<Version>> = OnceLock::new();
    let (sender, events) = mpsc::channel();
    CELL.set(Rcu::new(Version(sender.clone()))).ok().unwrap();
    let notifier = sender.clone();
    rcu::on_stall(Some(Box::new(move |stall| {
        if stall.name.as_deref() == Some("rcu") {
            notifier.send(Event::Stalled).ok();
        }
    })));
    let (left, is_open) = mpsc::channel();
    rcu::call(move || {
        leave_open(CELL.get().unwrap());
        left.send(()).unwrap();
    });
    // A barrier might wait for another sweep.
    is_open.recv().unwrap();
    CELL.get().unwrap().replace(Version(sender));
    assert_eq!(events.recv().unwrap(), Event::Stalled);
    let cookie = rcu::get_state();
    std::thread::spawn(rcu::synchronize);
    assert_eq!(events.recv().unwrap(), Event::Stalled);
    assert!(!rcu::poll_state(cookie));
}

#[test]
fn guard_forgotten_by_a_callback_protects_its_data() {
    run_alone!("rcu.stall_timeout=5");
    seen_version_stays(|cell| {
        let guard = rcu::read();
        cell.load(&guard);
        mem::forget(guard);
    });
}

#[test]
fn guard_kept_by_a_callback_protects_its_data() {
    thread_local!(static KEPT: RefCell<Vec<rcu::Guard>> = const { RefCell::new(Vec::new()) });
    run_alone!("rcu.stall_timeout=5");
    seen_version_stays(|cell| {
        let guard = rcu::read();
        cell.load(&guard);
        KEPT.with_borrow_mut(|kept| kept.push(guard));
    });
}

#[test]
fn reader_forgotten_by_a_callback_protects_its_data() {
    run_alone!("rcu.stall_timeout=5");
    seen_version_stays(|cell| {
        let reader = Reader::new();
        cell.load(&reader);
        mem::forget(reader);
    });
}

#[test]
fn domain_guard_kept_by_a_callback_delays_later_callbacks() {
    static KEPT: Mutex<Option<OwnedGuard>> = Mutex::new(None);
    static IS_CLOSED: AtomicBool = AtomicBool::new(false);
    let domain = Domain::new();
    let theirs = domain.clone();
    domain.call(move || *KEPT.lock().unwrap() = Some(theirs.read_owned()));
    domain.barrier();
    let (sender, receiver) = mpsc::channel();
    let cookie = domain.get_state();
    domain.call(move || sender.send(IS_CLOSED.load(Ordering::Acquire)).unwrap());
    assert!(receiver.try_recv().is_err() && !domain.poll_state(cookie));
    IS_CLOSED.store(true, Ordering::Release);
    drop(KEPT.lock().unwrap().take());
    assert!(receiver.recv().unwrap(), "the section was still open");
}
