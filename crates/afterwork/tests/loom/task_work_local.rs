//! Local futures: overlapping wakes, wakes during a poll, cancels during the start, and ends.

use afterwork::mailbox::JoinError;

use crate::support::*;

type Owner = (Careful<Mailbox<Mail>>, Careful<LocalSet<Mail>>);

struct Mail(Woken);

impl From<Woken> for Mail {
    fn from(woken: Woken) -> Self {
        Self(woken)
    }
}

fn owner() -> Owner {
    let mailbox = Mailbox::builder().keep(0).build();
    let set = LocalSet::new(&mailbox);
    (Careful::new(mailbox), Careful::new(set))
}

/// Spawns a future that is ready when all `flags` are set. Returns it and its stored waker.
fn lured<const N: usize>(
    (mailbox, set): &mut Owner,
    flags: [Arc<AtomicBool>; N],
) -> (impl Future<Output = Result<u32, JoinError>> + use<N>, Waker) {
    let place = Rc::new(RefCell::new(None));
    let theirs = place.clone();
    let handle = set.spawn_local(poll_fn(move |cx| {
        theirs.replace(Some(cx.waker().clone()));
        // Relaxed: the wake orders the flags.
        match flags.iter().all(|flag| flag.load(Ordering::Relaxed)) {
            true => Poll::Ready(7),
            false => Poll::Pending,
        }
    }));
    let Ok(Mail(woken)) = mailbox.try_recv() else {
        panic!("a spawn posts");
    };
    assert!(set.poll(woken));
    let waker = place.take().expect("left in the poll");
    (handle, waker)
}

fn serve((mailbox, set): &mut Owner) {
    while mailbox.wait(1).is_ok() {
        while let Ok(Mail(woken)) = mailbox.try_recv() {
            set.poll(woken);
        }
    }
    assert!(set.is_empty());
}

fn is_ready<F: Future<Output = Result<u32, JoinError>>>(handle: F) -> bool {
    let cx = &mut std::task::Context::from_waker(Waker::noop());
    matches!(std::pin::pin!(handle).poll(cx), Poll::Ready(Ok(7)))
}

/// Two threads each set a flag and wake the future; one wake may be covered by the other.
fn two_wake() {
    let mut owner = owner();
    let flags: [Arc<AtomicBool>; 2] = Default::default();
    let (handle, waker) = lured(&mut owner, flags.clone());
    let threads = flags.map(|flag| {
        spawn_with(waker.clone(), move |waker| {
            flag.store(true, Ordering::Relaxed);
            waker.wake();
        })
    });
    drop(waker);
    serve(&mut owner);
    assert!(is_ready(handle));
    threads.into_iter().for_each(|it| it.join().unwrap());
}

/// One thread wakes twice, the second time possibly during the poll that the first wake caused.
fn wake_races_with_the_poll() {
    let mut owner = owner();
    let flag: Arc<AtomicBool> = Arc::default();
    let (handle, waker) = lured(&mut owner, [flag.clone()]);
    let thread = spawn(move || {
        waker.wake_by_ref();
        flag.store(true, Ordering::Relaxed);
        waker.wake();
    });
    serve(&mut owner);
    assert!(is_ready(handle));
    thread.join().unwrap();
}

fn wake_races_with_the_end() {
    let mut owner = owner();
    let (handle, waker) = lured(&mut owner, [Arc::default()]);
    let thread = spawn(move || waker.wake());
    drop(owner.1);
    drop(owner.0);
    assert!(!is_ready(handle));
    thread.join().unwrap();
}

fn cancel_races_with_the_poll() {
    let mut owner = owner();
    let flag: Arc<AtomicBool> = Arc::default();
    let handle = owner.1.spawn_local(std::future::pending::<()>());
    let (other, waker) = lured_behind(&mut owner, &flag);
    let thread = spawn(move || {
        assert!(handle.cancel());
        flag.store(true, Ordering::Relaxed);
        waker.wake();
        handle
    });
    serve(&mut owner);
    assert!(is_ready(other));
    let cancelled = thread.join().unwrap().join();
    assert!(matches!(cancelled, Err(JoinError::Cancelled)));
}

/// Does the same as `lured`, with another future's wake-up ahead of the future's own.
fn lured_behind(
    owner: &mut Owner,
    flag: &Arc<AtomicBool>,
) -> (impl Future<Output = Result<u32, JoinError>> + use<>, Waker) {
    let Ok(Mail(woken)) = owner.0.try_recv() else {
        panic!("a spawn posts");
    };
    owner.1.poll(woken);
    lured(owner, [flag.clone()])
}

fn cancel_races_with_the_start() {
    let worker = Careful::new(Worker::builder("model").build().unwrap());
    let nr_run = Arc::new(AtomicU32::new(0));
    let theirs = nr_run.clone();
    let handle = worker.spawn(move || _ = theirs.fetch_add(1, Ordering::Relaxed));
    let was_in_time = handle.cancel();
    drop(worker);
    assert_eq!(nr_run.load(Ordering::Relaxed), u32::from(!was_in_time));
    assert_eq!(handle.join().is_ok(), !was_in_time);
}

models! {
    fn a_wake_that_finds_another_is_seen_by_its_poll() =
        bounded(2, two_wake).deadlocks_with(["local: relaxed wake", "local: relaxed clear"]);
    fn wake_during_a_poll_causes_another_poll() =
        bounded(3, wake_races_with_the_poll).deadlocks_with(["local: cleared after the poll"]);
    fn wake_may_follow_the_end_of_its_set_and_mailbox() = bounded(3, wake_races_with_the_end);
    fn a_future_that_is_cancelled_ends() = bounded(2, cancel_races_with_the_poll);
    fn a_closure_runs_or_was_cancelled_in_time() =
        bounded(2, cancel_races_with_the_start).detects(["local: a start overlooks the cancel"]);
}
