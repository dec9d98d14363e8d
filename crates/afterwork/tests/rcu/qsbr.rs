//! Readers that report quiescent states.

use crate::*;

/// A loop on its own thread that runs each step that it receives.
struct Loop {
    step: mpsc::Sender<Step>,
    done: mpsc::Receiver<()>,
    thread: thread::JoinHandle<()>,
}

type Step = Box<dyn FnOnce(&mut Reader) + Send>;

impl Loop {
    fn start() -> Self {
        let (step, steps) = mpsc::channel::<Step>();
        let (notifier, done) = mpsc::channel();
        let thread = thread::spawn(move || {
            let mut reader = Reader::new();
            notifier.send(()).unwrap();
            for step in steps {
                step(&mut reader);
                notifier.send(()).unwrap();
            }
        });
        done.recv().unwrap();
        Self { step, done, thread }
    }

    fn step(&self, step: impl FnOnce(&mut Reader) + Send + 'static) {
        self.begin(step);
        self.done.recv().unwrap();
    }

    fn begin(&self, step: impl FnOnce(&mut Reader) + Send + 'static) {
        self.step.send(Box::new(step)).unwrap();
    }

    fn end(self) {
        drop(self.step);
        self.thread.join().unwrap();
    }
}

#[test]
fn grace_period_waits_for_the_report_of_an_online_reader() {
    let reading = Loop::start();
    let dropped = Run::default();
    let cell = Rcu::new(Counted(dropped.clone()));
    cell.replace(Counted(Run::default()));
    let cookie = rcu::start_poll();
    assert!(!rcu::poll_state(cookie));
    assert_eq!(dropped.nr(), 0);
    // Only a report from the loop can end the grace period now.
    reading.step(Reader::quiescent);
    rcu_has_passed(&reading, cookie);
    reading.step(Reader::quiescent);
    reading.end();
    rcu::barrier();
    assert_eq!(dropped.nr(), 1);
}

/// Waits for a grace period while a loop keeps reporting.
fn rcu_has_passed(reading: &Loop, cookie: rcu::GpCookie) {
    while !rcu::poll_state(cookie) {
        reading.step(Reader::quiescent);
    }
}

#[test]
fn offline_reader_delays_no_grace_period() {
    let reading = Loop::start();
    let (inside, is_inside) = mpsc::channel();
    let (wake, sleeping) = mpsc::channel::<()>();
    reading.begin(move |reader| {
        reader.offline(|| {
            inside.send(()).unwrap();
            sleeping.recv().unwrap();
        });
    });
    is_inside.recv().unwrap();
    for _ in 0..10 {
        rcu::synchronize();
    }
    wake.send(()).unwrap();
    reading.done.recv().unwrap();
    let cookie = rcu::start_poll();
    assert!(!rcu::poll_state(cookie));
    rcu_has_passed(&reading, cookie);
    reading.end();
}

#[test]
fn a_panic_while_offline_brings_the_reader_back_online() {
    let reading = Loop::start();
    reading.step(|reader| {
        let body = panic::AssertUnwindSafe(|| reader.offline(|| panic!("on purpose")));
        assert!(panic::catch_unwind(body).is_err());
    });
    let cookie = rcu::start_poll();
    assert!(!rcu::poll_state(cookie));
    reading.end();
    rcu::cond_synchronize(cookie);
}

#[test]
fn report_under_a_guard_or_another_reader_has_no_effect() {
    let reading = Loop::start();
    let (opened, is_open) = mpsc::channel();
    let (close, closing) = mpsc::channel::<()>();
    reading.begin(move |reader| {
        let guard = rcu::read();
        let mut second = Reader::new();
        reader.quiescent();
        second.quiescent();
        second.offline(|| ());
        opened.send(()).unwrap();
        closing.recv().unwrap();
        drop(guard);
    });
    is_open.recv().unwrap();
    let cookie = rcu::start_poll();
    for _ in 0..10 {
        assert!(!rcu::poll_state(cookie));
        thread::yield_now();
    }
    close.send(()).unwrap();
    reading.done.recv().unwrap();
    rcu_has_passed(&reading, cookie);
    reading.end();
}

#[test]
fn a_reader_may_wait_for_a_grace_period_by_itself_alone() {
    let mut reader = Reader::new();
    reader.synchronize();
    let cookie = rcu::get_state();
    assert!(!rcu::poll_state(cookie), "it came back online");
    let panicked = thread::spawn(|| {
        let _reader = Reader::new();
        rcu::synchronize();
    });
    assert!(panicked.join().is_err());
    reader.synchronize();
}

#[test]
fn readers_of_loops_and_sections_see_no_freed_version() {
    let cell = Arc::new(Rcu::new(Box::new(0_u64)));
    let is_over = Arc::new(AtomicBool::new(false));
    let readers = [true, false].map(|reports| {
        let (cell, is_over) = (cell.clone(), is_over.clone());
        thread::spawn(move || {
            let mut reader = Reader::new();
            let mut last = 0;
            while !is_over.load(Ordering::Relaxed) {
                for _ in 0..8 {
                    let now = **cell.load(&reader);
                    assert!(now >= last, "{now} after {last}");
                    last = now;
                }
                if reports {
                    reader.quiescent();
                } else {
                    reader.offline(thread::yield_now);
                }
            }
        })
    });
    for number in 1..=500 {
        assert_eq!(*cell.replace_sync(Box::new(number)), number - 1);
    }
    is_over.store(true, Ordering::Relaxed);
    readers.into_iter().for_each(|reader| reader.join().unwrap());
}

#[test]
fn grace_period_waits_for_reading_items_not_idle_workers() {
    let queue = Workqueue::builder("reads").build().unwrap();
    let together = Arc::new(Barrier::new(2));
    let theirs = together.clone();
    let item = queue.spawn(move || {
        let _reader = Reader::new();
        theirs.wait();
        theirs.wait();
    });
    together.wait();
    let cookie = rcu::start_poll();
    assert!(!rcu::poll_state(cookie));
    together.wait();
    item.join().unwrap();
    rcu::cond_synchronize(cookie);
    rcu::synchronize();
}

#[test]
fn serving_owner_reads_and_delays_nothing_while_asleep() {
    let cell = Arc::new(Rcu::new(0));
    let mut mailbox = Mailbox::new();
    let poster = mailbox.poster();
    let (seen, sees) = mpsc::channel();
    let read = cell.clone();
    let owner = thread::spawn(move || {
        mailbox.serve(2, |(), reader| seen.send(*read.load(reader)).unwrap());
    });
    for number in 1..=20 {
        poster.post(()).unwrap();
        assert_eq!(sees.recv().unwrap(), number - 1);
        cell.replace_sync(number);
    }
    (0..7).for_each(|_| poster.post(()).unwrap());
    drop(poster);
    owner.join().unwrap();
    assert_eq!(sees.iter().collect::<Vec<_>>(), [20; 7]);
}

#[test]
fn a_section_stays_open_while_its_thread_sleeps_in_the_library() {
    let (opened, is_open) = mpsc::channel();
    let mut parker = Parker::with_spin_limit(0);
    let unparker = parker.unparker();
    let reader = thread::spawn(move || {
        drop(rcu::read());
        parker.park_timeout(std::time::Duration::ZERO);
        let guard = rcu::read();
        opened.send(()).unwrap();
        parker.park();
        drop(guard);
    });
    is_open.recv().unwrap();
    let cookie = rcu::start_poll();
    for _ in 0..10 {
        assert!(!rcu::poll_state(cookie));
        thread::yield_now();
    }
    unparker.unpark();
    rcu::cond_synchronize(cookie);
    reader.join().unwrap();
}
