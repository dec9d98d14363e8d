//! Tests of local futures: the thread on which they are polled and dropped, and the calls that they
//! may make there.

use std::cell::{Cell, RefCell};
use std::future::{pending, poll_fn};
use std::panic::panic_any;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use super::tests::{Drops, miri_or, pair, pair_of, poll};
use super::*;

#[derive(Debug)]
enum Mail {
    Number(u32),
    Woken(Woken),
}

impl From<Woken> for Mail {
    fn from(woken: Woken) -> Self {
        Self::Woken(woken)
    }
}

fn made() -> (Mailbox<Mail>, LocalSet<Mail>) {
    let mailbox = Mailbox::new();
    let set = LocalSet::new(&mailbox);
    (mailbox, set)
}

/// Serves the items in the mailbox, and returns the number of wake-ups that were for a waiting
/// future.
fn serve(mailbox: &mut Mailbox<Mail>, set: &LocalSet<Mail>) -> u32 {
    let mut nr_polled = 0;
    while let Ok(mail) = mailbox.try_recv() {
        if let Mail::Woken(woken) = mail {
            nr_polled += u32::from(set.poll(woken));
        }
    }
    nr_polled
}

/// Serves until no more items will arrive.
fn serve_all(mailbox: &mut Mailbox<Mail>, set: &LocalSet<Mail>) {
    while mailbox.wait(1).is_ok() {
        serve(mailbox, set);
    }
}

/// A future that stores its waker, and counts its polls.
#[derive(Clone, Default)]
struct Probe {
    waker: Rc<RefCell<Option<Waker>>>,
    nr_polls: Rc<Cell<u32>>,
}

impl Probe {
    async fn wait_for(self, nr_polls: u32) -> u32 {
        poll_fn(|cx| {
            *self.waker.borrow_mut() = Some(cx.waker().clone());
            self.nr_polls.set(self.nr_polls.get() + 1);
            match self.nr_polls.get() >= nr_polls {
                true => Poll::Ready(self.nr_polls.get()),
                false => Poll::Pending,
            }
        })
        .await
    }

    fn waker(&self) -> Waker {
        self.waker.borrow().clone().expect("polled before")
    }
}

/// Waits for one wake-up, which it triggers itself.
async fn yield_once() {
    let mut is_first = true;
    poll_fn(|cx| {
        if std::mem::take(&mut is_first) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await;
}

#[test]
fn a_local_future_is_polled_and_dropped_where_its_set_is() {
    let (mut mailbox, set) = made();
    let (here, drops) = (thread::current().id(), Drops::default());
    let life = drops.life();
    let mut handle = set.spawn_local(async move {
        let _life = life;
        yield_once().await;
        thread::current().id()
    });
    assert_eq!((set.len(), drops.nr()), (1, 0));
    serve_all(&mut mailbox, &set);
    assert_eq!(handle.try_join().unwrap().unwrap(), here);
    assert!(set.is_empty());
    assert_eq!(drops.nr(), 1);
}

#[test]
fn wakes_before_a_poll_are_one_item_and_each_after_it_another() {
    let (mut mailbox, set) = made();
    let probe = Probe::default();
    let mut handle = set.spawn_local(probe.clone().wait_for(3));
    serve(&mut mailbox, &set);
    let waker = probe.waker();
    (0..5).for_each(|_| waker.wake_by_ref());
    assert_eq!((mailbox.len(), serve(&mut mailbox, &set)), (1, 1));
    assert_eq!((mailbox.len(), probe.nr_polls.get()), (0, 2));
    thread::spawn(move || waker.wake()).join().unwrap();
    serve(&mut mailbox, &set);
    assert_eq!(handle.try_join().unwrap().unwrap(), 3);
}

#[test]
fn a_waker_outlives_its_future_its_set_and_its_mailbox() {
    let (mut mailbox, set) = made();
    let probes: [Probe; 2] = Default::default();
    let handles = [1, 2].map(|n| set.spawn_local(probes[n as usize - 1].clone().wait_for(n)));
    serve(&mut mailbox, &set);
    let wakers = probes.map(|probe| probe.waker());
    let wake = |wakers: [Waker; 2]| {
        let woken = thread::spawn(move || wakers.iter().for_each(Waker::wake_by_ref));
        woken.join().unwrap();
    };
    // The first future has ended.
    wake(wakers.clone());
    assert_eq!(mailbox.len(), 1);
    let Ok(Mail::Woken(late)) = mailbox.try_recv() else {
        panic!("one was woken");
    };
    let [first, second] = handles;
    drop(set);
    assert_eq!(first.join().unwrap(), 1);
    assert!(matches!(second.join(), Err(JoinError::Cancelled)));
    wake(wakers.clone());
    assert!(!LocalSet::new(&mailbox).poll(late));
    drop(mailbox);
    wake(wakers);
}

#[test]
fn wake_up_overtakes_waiting_senders_and_uses_no_capacity() {
    let (mut mailbox, poster) = pair_of(1);
    let set = LocalSet::new(&mailbox);
    let probe = Probe::default();
    let mut handle = set.spawn_local(probe.clone().wait_for(2));
    serve(&mut mailbox, &set);
    poster.post(Mail::Number(1)).unwrap();
    let mut send = poster.send(Mail::Number(2));
    assert!(poll(&mut send).is_pending());
    probe.waker().wake();
    assert_eq!((mailbox.len(), poster.nr_inside()), (2, Some(1)));
    assert!(matches!(poster.post(Mail::Number(3)), Err(PostError::Full(_))));
    assert!(matches!(mailbox.try_recv(), Ok(Mail::Number(1))));
    assert_eq!((mailbox.len(), poster.nr_inside()), (2, Some(1)), "the sender is admitted");
    let Ok(Mail::Woken(woken)) = mailbox.try_recv() else {
        panic!("the wake-up is before the item of the sender");
    };
    assert!(set.poll(woken));
    assert_eq!(handle.try_join().unwrap().unwrap(), 2);
    assert!(matches!(mailbox.try_recv(), Ok(Mail::Number(2))));
    assert!(matches!(poll(&mut send), Poll::Ready(Ok(()))));
    assert_eq!((mailbox.len(), poster.nr_inside()), (0, Some(0)));
}

#[test]
fn items_are_received_despite_self_waking_futures() {
    const CAPACITY: usize = 2;
    let (mut mailbox, poster) = pair_of(CAPACITY);
    let set = LocalSet::new(&mailbox);
    for _ in 0..3 * CAPACITY {
        drop(set.spawn_local(async {
            loop {
                yield_once().await;
            }
        }));
    }
    for round in 0..miri_or(3, 20) {
        // Each future was polled once, and has woken itself again.
        for mail in mailbox.drain(3 * CAPACITY) {
            let Mail::Woken(woken) = mail else {
                panic!("only wake-ups are inside");
            };
            assert!(set.poll(woken));
        }
        assert_eq!(mailbox.len(), 3 * CAPACITY);
        (0..CAPACITY as u32).for_each(|number| poster.post(Mail::Number(number)).unwrap());
        let mut send = poster.send(Mail::Number(CAPACITY as u32));
        assert!(poll(&mut send).is_pending(), "round {round}");
        let mut numbers = Vec::new();
        while numbers.len() <= CAPACITY {
            match mailbox.try_recv().unwrap() {
                Mail::Woken(woken) => assert!(set.poll(woken)),
                Mail::Number(number) => numbers.push(number),
            }
        }
        assert!(numbers.into_iter().eq(0..=CAPACITY as u32));
        assert!(poll(&mut send).is_ready());
    }
}

#[test]
fn futures_of_a_dropped_mailbox_end_with_their_set() {
    let (mut mailbox, set) = made();
    let probe = Probe::default();
    let handle = set.spawn_local(probe.clone().wait_for(2));
    let unpolled = set.spawn_local(pending::<()>());
    match mailbox.try_recv() {
        Ok(Mail::Woken(woken)) => assert!(set.poll(woken)),
        other => panic!("{other:?}"),
    }
    drop(mailbox);
    probe.waker().wake();
    assert_eq!((probe.nr_polls.get(), set.len()), (1, 2));
    assert!(!handle.is_finished() && !unpolled.is_finished());
    assert!(matches!(set.spawn_local(async {}).join(), Err(JoinError::Closed)));
    drop(set);
    assert!(matches!(handle.join(), Err(JoinError::Cancelled)));
    assert!(matches!(unpolled.join(), Err(JoinError::Cancelled)));
}

thread_local!(static DEPTHS: Cell<(u32, u32)> = const { Cell::new((0, 0)) });

/// Calls `body`, and counts how deeply these calls nest.
fn nested(body: impl FnOnce()) {
    let (depth, deepest) = DEPTHS.get();
    DEPTHS.set((depth + 1, deepest.max(depth + 1)));
    body();
    let (depth, deepest) = DEPTHS.get();
    DEPTHS.set((depth - 1, deepest));
}

/// A value that spawns a future with a shorter chain when it is dropped.
struct Chain(Rc<LocalSet<Mail>>, u32);

impl Drop for Chain {
    fn drop(&mut self) {
        nested(|| {
            if self.1 > 0 {
                let next = Self(self.0.clone(), self.1 - 1);
                let refused = self.0.spawn_local(async move { drop(next) });
                assert!(matches!(refused.join(), Err(JoinError::Closed)));
            }
        });
    }
}

#[test]
fn rejected_futures_that_spawn_when_dropped_do_not_nest() {
    let mailbox = Mailbox::<Mail>::new();
    let set = Rc::new(LocalSet::new(&mailbox));
    mailbox.close();
    DEPTHS.set((0, 0));
    let chain = Chain(set.clone(), miri_or(10, 1000));
    let mut refused = set.spawn_local(async move { drop(chain) });
    assert!(matches!(refused.try_join(), Some(Err(JoinError::Closed))));
    assert_eq!((DEPTHS.get(), Rc::strong_count(&set)), ((0, 1), 1));
}

/// An item whose drop wakes a local future.
struct Waking {
    waker: Option<Waker>,
    _woken: Option<Woken>,
}

impl From<Woken> for Waking {
    fn from(woken: Woken) -> Self {
        Self { waker: None, _woken: Some(woken) }
    }
}

impl Drop for Waking {
    fn drop(&mut self) {
        nested(|| self.waker.take().into_iter().for_each(Waker::wake));
    }
}

#[test]
fn the_drop_of_a_mailbox_does_not_nest_the_drops_of_its_items() {
    let nr_items = miri_or(10, 100);
    let (mut mailbox, poster) = pair::<Waking>();
    let set = LocalSet::new(&mailbox);
    let probes: Vec<Probe> = (0..nr_items).map(|_| Probe::default()).collect();
    for probe in &probes {
        drop(set.spawn_local(probe.clone().wait_for(2)));
    }
    for mut mail in mailbox.drain(usize::MAX) {
        assert!(set.poll(mail._woken.take().unwrap()));
    }
    for probe in &probes {
        let mail = Waking { waker: Some(probe.waker()), _woken: None };
        assert!(poster.post(mail).is_ok());
    }
    DEPTHS.set((0, 0));
    drop(mailbox);
    assert_eq!(DEPTHS.get(), (0, 1));
    assert_eq!(set.len(), nr_items);
}

#[test]
fn futures_that_wait_keep_the_mailbox_open_and_no_others() {
    let (mut mailbox, set) = made();
    let probe = Probe::default();
    drop(set.spawn_local(probe.clone().wait_for(2)));
    serve(&mut mailbox, &set);
    assert_eq!(mailbox.try_recv().unwrap_err(), TryRecvError::Empty);
    let (waker, late) = (probe.waker(), probe.waker());
    let waking = thread::spawn(move || waker.wake());
    serve_all(&mut mailbox, &set);
    waking.join().unwrap();
    assert_eq!(mailbox.try_recv().unwrap_err(), TryRecvError::Closed);
    late.wake();
    assert_eq!(mailbox.try_recv().unwrap_err(), TryRecvError::Closed);
    // The next future keeps the mailbox open again.
    let handle = set.spawn_local(async {});
    serve_all(&mut mailbox, &set);
    assert!(handle.is_finished());
}

#[test]
#[cfg_attr(miri, ignore = "safe code; others have the threads")]
fn closed_mailbox_rejects_futures_and_accepts_wake_ups() {
    let (mut mailbox, set) = made();
    let probe = Probe::default();
    let handle = set.spawn_local(probe.clone().wait_for(2));
    serve(&mut mailbox, &set);
    mailbox.close();
    let refused = set.spawn_local(async {});
    assert!(matches!(refused.join(), Err(JoinError::Closed)));
    probe.waker().wake();
    serve(&mut mailbox, &set);
    assert!(handle.is_finished());
}

#[test]
#[cfg_attr(miri, ignore = "safe code; others have the threads")]
fn panic_of_a_poll_or_drop_is_the_outcome() {
    let (mut mailbox, set) = made();
    let mut polled = set.spawn_local(async { panic!("disk {} is missing", 3) });
    let bomb = || Drops::default().bomb();
    let _bomb = bomb();
    let mut dropped = set.spawn_local(async move {
        let _bomb = _bomb;
        7
    });
    let (bomb, mut after) = (bomb(), set.spawn_local(async { 1 }));
    let parked = set.spawn_local(async move {
        pending::<()>().await;
        drop(bomb);
    });
    serve(&mut mailbox, &set);
    let Err(JoinError::Panicked(payload)) = polled.try_join().unwrap().map(|never: ()| never)
    else {
        panic!("it panicked");
    };
    assert_eq!(payload.text(), Some("disk 3 is missing"));
    let dropped = dropped.try_join().unwrap();
    assert!(matches!(dropped, Err(JoinError::Panicked(_))));
    assert_eq!(after.try_join().unwrap().unwrap(), 1);
    drop(set);
    assert!(matches!(parked.join(), Err(JoinError::Panicked(_))));
}

#[test]
#[cfg_attr(miri, ignore = "safe code; others have the threads")]
fn unwanted_results_and_panics_end_on_the_thread_of_the_set() {
    let (mut mailbox, set) = made();
    let drops = Drops::default();
    let (bomb, payload, life) = (drops.bomb(), drops.bomb(), drops.life());
    drop(set.spawn_local(async { bomb }));
    drop(set.spawn_local(async { panic_any(payload) }));
    drop(set.spawn_local(async { life }));
    serve_all(&mut mailbox, &set);
    assert_eq!(drops.nr(), 3);
}

#[test]
fn a_future_may_spawn_cancel_itself_and_others_and_wake_itself() {
    let (mut mailbox, set) = made();
    let victim = set.spawn_local(pending::<()>());
    let own: Rc<RefCell<Option<JoinHandle<()>>>> = Rc::default();
    let theirs = own.clone();
    let suicide = set.spawn_local(async move {
        let child = spawn_local(async {
            yield_once().await;
            5
        });
        assert!(victim.cancel());
        assert!(matches!(victim.await, Err(JoinError::Cancelled)));
        assert_eq!(child.await.unwrap(), 5);
        let own = theirs.borrow_mut().take().unwrap();
        assert!(own.cancel());
        pending::<()>().await;
    });
    *own.borrow_mut() = Some(suicide);
    serve_all(&mut mailbox, &set);
    assert!(set.is_empty() && own.borrow().is_none());
}

#[test]
fn a_handle_cancels_from_any_thread_and_by_its_drop() {
    let (mut mailbox, set) = made();
    let drops = Drops::default();
    let spawn = || {
        let life = drops.life();
        set.spawn_local(async move {
            pending::<()>().await;
            drop(life);
        })
    };
    let (cancelled, dropped, detached) = (spawn(), spawn(), spawn());
    serve(&mut mailbox, &set);
    let cancelling = thread::spawn(move || {
        assert!(cancelled.cancel());
        cancelled
    });
    let cancelled = cancelling.join().unwrap();
    drop(dropped.cancel_on_drop());
    drop(detached);
    assert_eq!(drops.nr(), 0);
    serve(&mut mailbox, &set);
    assert_eq!((drops.nr(), set.len()), (2, 1));
    assert!(!cancelled.cancel());
    assert!(matches!(cancelled.join(), Err(JoinError::Cancelled)));
    set.cancel_all();
    serve_all(&mut mailbox, &set);
    assert_eq!(drops.nr(), 3);
}

#[test]
fn owner_that_would_wait_for_itself_gets_an_error() {
    let (mut mailbox, set) = made();
    let handle = set.spawn_local(async { 7 });
    assert!(matches!(handle.join(), Err(JoinError::OwnItem)));
    let mut handle = set.spawn_local(async { 7 });
    let answer = handle.join_timeout(Duration::MAX).unwrap();
    assert!(matches!(answer, Err(JoinError::OwnItem)));
    serve(&mut mailbox, &set);
    let handle = set.spawn_local(async { 7 });
    serve(&mut mailbox, &set);
    assert_eq!(handle.join().unwrap(), 7);
}

#[test]
fn a_future_may_serve_its_own_mailbox() {
    let mailbox = Mailbox::new();
    let set = Rc::new(LocalSet::new(&mailbox));
    let mailbox = Rc::new(RefCell::new(mailbox));
    let (theirs, futures) = (mailbox.clone(), Rc::downgrade(&set));
    let mut outer = set.spawn_local(async move {
        let inner = spawn_local(async { 3 });
        poll_fn(move |cx| {
            let set = futures.upgrade().expect("it polls us");
            // This wake-up is received further down, while we are polled.
            cx.waker().wake_by_ref();
            serve(&mut theirs.borrow_mut(), &set);
            match inner.is_finished() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
        yield_once().await;
        1
    });
    for _ in 0..9 {
        let received = mailbox.borrow_mut().try_recv();
        if let Ok(Mail::Woken(woken)) = received {
            set.poll(woken);
        }
    }
    assert_eq!(outer.try_join().unwrap().unwrap(), 1);
}

#[test]
#[cfg_attr(miri, ignore = "safe code; others have the threads")]
fn dropped_set_notifies_all_handles_despite_reentrant_drops() {
    struct Spawns(Rc<RefCell<Vec<Waker>>>);
    impl Drop for Spawns {
        fn drop(&mut self) {
            self.0.borrow().iter().for_each(Waker::wake_by_ref);
            // This panics, because the thread is not running the work of a set. The panic is
            // contained.
            drop(spawn_local(async {}));
        }
    }
    let (mut mailbox, set) = made();
    let wakers: Rc<RefCell<Vec<Waker>>> = Rc::default();
    let handles: Vec<_> = (0..4)
        .map(|_| {
            let spawns = Spawns(wakers.clone());
            set.spawn_local(async move {
                poll_fn(|cx| {
                    spawns.0.borrow_mut().push(cx.waker().clone());
                    Poll::<()>::Pending
                })
                .await
            })
        })
        .collect();
    serve(&mut mailbox, &set);
    drop(set);
    for handle in handles {
        assert!(matches!(handle.join(), Err(JoinError::Panicked(_))));
    }
    assert_eq!(mailbox.len(), 0, "a future that was dropped is not woken");
}

#[test]
#[cfg_attr(miri, ignore = "safe code; others have the threads")]
fn entries_of_a_burst_are_freed_after_it() {
    let (mut mailbox, set) = made();
    for (nr_futures, nr_kept) in [(1000, 1000), (5000, 0), (1, 1)] {
        (0..nr_futures).for_each(|_| drop(set.spawn_local(yield_once())));
        assert_eq!(set.nr_places(), nr_futures);
        serve(&mut mailbox, &set);
        assert_eq!((set.len(), set.nr_places()), (0, nr_kept));
    }
}

/// An item whose conversion fails for every second wake-up.
struct Fussy(Woken);

static NR_MADE: AtomicU32 = AtomicU32::new(0);

impl From<Woken> for Fussy {
    fn from(woken: Woken) -> Self {
        if NR_MADE.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
            panic_any("a conversion");
        }
        Self(woken)
    }
}

#[test]
#[cfg_attr(miri, ignore = "safe code; others have the threads")]
fn failed_wake_up_item_lets_the_next_wake_up_retry() {
    let mut mailbox = Mailbox::<Fussy>::new();
    let set = LocalSet::new(&mailbox);
    let handle = set.spawn_local(async { 4 });
    assert!(mailbox.is_empty(), "the first panicked");
    assert!(handle.cancel());
    let Fussy(woken) = mailbox.try_recv().unwrap();
    assert!(set.poll(woken));
    assert!(matches!(handle.join(), Err(JoinError::Cancelled)));
}

#[test]
fn local_handle_is_send_and_sync() {
    fn is_free<T: Send + Sync + Unpin + std::panic::UnwindSafe + 'static>(_: &T) {}
    let (mut mailbox, set) = made();
    let handle = set.spawn_local(async { 7 });
    is_free(&handle);
    serve(&mut mailbox, &set);
    let joined = thread::spawn(move || handle.join().unwrap());
    assert_eq!(joined.join().unwrap(), 7);
}
