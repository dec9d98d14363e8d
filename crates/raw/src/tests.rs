use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use base::internal::params::Params;
use workqueue::{Builder, Registry, Workqueue};

use super::*;

/// An item embedded in a larger structure, as in a user's program.
#[repr(C)]
struct Job {
    work: RawDelayed,
    run: Arc<dyn Fn(NonNull<Job>) + Send + Sync>,
}

unsafe extern "C-unwind" fn run(work: *mut RawWork) {
    let job = NonNull::new(work.cast::<Job>()).unwrap();
    // The closure is cloned, because the function may free the job.
    // SAFETY: all items of these tests are the first field of a `Job`.
    let run = unsafe { job.as_ref() }.run.clone();
    run(job);
}

fn job(run_it: impl Fn(NonNull<Job>) + Send + Sync + 'static) -> NonNull<Job> {
    let job = Job {
        // SAFETY: `run` may be called anywhere with the address of a `Job`.
        work: unsafe { RawDelayed::new(run) },
        run: Arc::new(run_it),
    };
    NonNull::from(Box::leak(Box::new(job)))
}

fn free(job: NonNull<Job>) {
    // SAFETY: the function `job` leaked the box, and the item is idle.
    drop(unsafe { Box::from_raw(job.as_ptr()) });
}

struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Calls a function on an item that stays alive.
macro_rules! on {
    ($type:ident::$call:ident($job:expr $(, $arg:expr)*)) => {{
        // SAFETY: the job is alive until the end of the test, when it is idle and freed.
        unsafe { $type::$call($job.cast() $(, $arg)*) }.unwrap()
    }};
}

/// Blocks `queue` with a blocker item. Returns a sender that unblocks it.
fn plugged(queue: &Workqueue) -> mpsc::Sender<()> {
    let (unplug, plug) = mpsc::channel::<()>();
    let (inside, started) = mpsc::channel();
    queue
        .spawn_detached(move || {
            inside.send(()).unwrap();
            plug.recv().ok();
        })
        .unwrap();
    started.recv().unwrap();
    unplug
}

/// Builds a queue without reading files, for Miri.
fn build(builder: Builder) -> Workqueue {
    let machine = topology::Topology::synthetic("2 core").unwrap();
    let params = Params { worker_spin_limit: 0, ..Params::default() };
    let registry = Registry::new(machine, params).unwrap();
    builder.build_in(&registry).unwrap()
}

fn ordered() -> Workqueue {
    build(Workqueue::builder("raw").ordered())
}

fn wide() -> Workqueue {
    build(Workqueue::builder("raw").max_active(8))
}

fn counter() -> (Arc<AtomicU32>, NonNull<Job>) {
    let nr_runs = Arc::new(AtomicU32::new(0));
    let counted = nr_runs.clone();
    (nr_runs, job(move |_| _ = counted.fetch_add(1, Ordering::Relaxed)))
}

/// The other side of a job whose runs report their beginning and wait for `go`.
struct Gate {
    started: mpsc::Receiver<()>,
    go: mpsc::Sender<()>,
    nr_runs: Arc<AtomicU32>,
}

fn gated() -> (Gate, NonNull<Job>) {
    let (inside, started) = mpsc::channel();
    let (go, goes_on) = mpsc::channel();
    let nr_runs = Arc::new(AtomicU32::new(0));
    let (is_inside, goes_on, counted) =
        (AtomicBool::new(false), Mutex::new(goes_on), nr_runs.clone());
    let job = job(move |_| {
        assert!(!is_inside.swap(true, Ordering::Relaxed), "it runs already");
        inside.send(()).unwrap();
        goes_on.lock().unwrap().recv().unwrap();
        is_inside.store(false, Ordering::Relaxed);
        counted.fetch_add(1, Ordering::Relaxed);
    });
    (Gate { started, go, nr_runs }, job)
}

/// Returns the number of rounds that suits the back end: Miri, a simulated machine or a real one.
const fn rounds(miri: usize, sim: usize, real: usize) -> usize {
    if cfg!(miri) {
        miri
    } else if cfg!(sim) {
        sim
    } else {
        real
    }
}

#[test]
fn a_raw_item_runs_once_for_each_time_it_was_queued() {
    let queue = ordered();
    let (nr_runs, job) = counter();
    for round in 1..=rounds(3, 10, 10) as u32 {
        let unplug = plugged(&queue);
        assert!(on!(RawWork::queue(job, &queue, None)));
        assert!(!on!(RawWork::queue(job, &queue, None)), "pending");
        assert!(on!(RawWork::busy(job)).pending);
        unplug.send(()).unwrap();
        on!(RawWork::flush(job));
        assert_eq!(nr_runs.load(Ordering::Relaxed), round);
    }
    assert_eq!(on!(RawWork::busy(job)), Default::default());
    free(job);
}

#[test]
#[cfg_attr(miri, ignore = "many rounds")]
fn an_item_that_queues_itself_again_is_never_seen_idle() {
    let queue = Arc::new(wide());
    let ended = Arc::new(AtomicBool::new(false));
    let job = job({
        let (queue, ended) = (queue.clone(), ended.clone());
        move |job| {
            if !ended.load(Ordering::Relaxed) {
                on!(RawWork::queue(job, &queue, None));
            }
        }
    });
    on!(RawWork::queue(job, &queue, None));
    let end = Ended(&ended);
    let nr_idle = (0..200_000).filter(|_| on!(RawWork::busy(job)) == Default::default()).count();
    drop(end);
    queue.drain().unwrap();
    free(job);
    assert_eq!(nr_idle, 0);
}

#[test]
fn a_raw_item_may_free_itself_in_its_run() {
    let queue = wide();
    let nr_freed = Arc::new(AtomicU32::new(0));
    let nr = if cfg!(miri) { 5 } else { 1000 };
    for _ in 0..nr {
        let nr_freed = nr_freed.clone();
        let job = job(move |job| {
            let nr_freed = nr_freed.clone();
            free(job);
            nr_freed.fetch_add(1, Ordering::Relaxed);
        });
        assert!(on!(RawWork::queue(job, &queue, None)));
    }
    queue.drain().unwrap();
    assert_eq!(nr_freed.load(Ordering::Relaxed), nr);
}

#[test]
fn raw_item_queued_in_its_run_runs_again_from_any_queue() {
    let (one, other) = (wide(), wide());
    let (Gate { started, go, nr_runs }, job) = gated();
    for (first, second) in [(&one, &one), (&one, &other), (&other, &one)] {
        assert!(on!(RawWork::queue(job, first, None)));
        started.recv().unwrap();
        assert!(on!(RawWork::queue(job, second, None)));
        assert!(!on!(RawWork::queue(job, first, None)));
        let busy = on!(RawWork::busy(job));
        assert!(busy.pending && busy.executing);
        go.send(()).unwrap();
        go.send(()).unwrap();
        on!(RawWork::flush(job));
        started.recv().unwrap();
    }
    assert_eq!(nr_runs.load(Ordering::Relaxed), 6);
    one.drain().unwrap();
    free(job);
}

#[test]
fn cancelled_raw_item_may_be_freed_at_once_in_any_list() {
    let sizes: &[u32] = if cfg!(miri) { &[1] } else { &[0, 1, 5] };
    for queue in [ordered(), wide()] {
        for &nr_before in sizes {
            let unplug = plugged(&queue);
            let (nr_runs, others) = counter();
            let jobs: Vec<_> = (0..=nr_before).map(|_| job(|_| ())).collect();
            for &job in &jobs {
                assert!(on!(RawWork::queue(job, &queue, None)));
            }
            assert!(on!(RawWork::queue(others, &queue, None)));
            let cancelled = jobs.into_iter().filter(|&job| {
                let was_pending = on!(RawWork::cancel_sync(job));
                free(job);
                was_pending
            });
            let nr_cancelled = cancelled.count() as u32;
            if queue.report().attrs.affinity == topology::AffinityScope::System {
                assert_eq!(nr_cancelled, nr_before + 1);
            }
            unplug.send(()).unwrap();
            on!(RawWork::flush(others));
            assert_eq!(nr_runs.load(Ordering::Relaxed), 1);
            free(others);
        }
    }
}

#[test]
fn item_cancels_one_in_the_local_batch_of_its_worker() {
    let queue = ordered();
    let unplug = plugged(&queue);
    let victims: Vec<_> = (0..20).map(|_| counter()).collect();
    let theirs: Vec<_> = victims.iter().map(|it| it.1.as_ptr() as usize).collect();
    let first = job(move |_| {
        for &job in &theirs {
            let job = NonNull::new(job as *mut Job).unwrap();
            assert!(on!(RawWork::cancel_sync(job)));
        }
    });
    assert!(on!(RawWork::queue(first, &queue, None)));
    for (_, job) in &victims {
        assert!(on!(RawWork::queue(job, &queue, None)));
    }
    unplug.send(()).unwrap();
    queue.drain().unwrap();
    free(first);
    for (nr_runs, job) in victims {
        assert_eq!(nr_runs.load(Ordering::Relaxed), 0);
        free(job);
    }
}

#[test]
fn item_deferred_to_its_run_can_be_cancelled() {
    let queue = wide();
    let (Gate { started, go, .. }, job) = gated();
    for _ in 0..rounds(3, 10, 10) {
        assert!(on!(RawWork::queue(job, &queue, None)));
        started.recv().unwrap();
        assert!(on!(RawWork::queue(job, &queue, None)));
        // This item is queued after the job. Once it has run, a worker has popped the job and
        // handed it over.
        queue.spawn(|| ()).join().unwrap();
        assert!(on!(RawWork::cancel(job)));
        assert!(!on!(RawWork::cancel(job)));
        assert!(on!(RawWork::queue(job, &queue, None)), "and queued again");
        assert!(on!(RawWork::cancel(job)));
        go.send(()).unwrap();
        assert!(!on!(RawWork::cancel_sync(job)));
        assert!(started.try_recv().is_err(), "no second run");
    }
    free(job);
}

#[test]
fn flush_sees_writes_of_the_function() {
    let queue = wide();
    let sum = Arc::new(AtomicU64::new(0));
    let written = sum.clone();
    let job = job(move |_| {
        let before = written.load(Ordering::Relaxed);
        written.store(before + 1, Ordering::Relaxed);
    });
    for round in 1..=rounds(6, 2000, 2000) as u64 {
        assert!(on!(RawWork::queue(job, &queue, None)));
        on!(RawWork::flush(job));
        assert_eq!(sum.load(Ordering::Relaxed), round);
    }
    free(job);
}

#[test]
fn an_item_does_not_wait_for_itself() {
    let queue = wide();
    let (send, receive) = mpsc::channel();
    let job = job(move |job| {
        // SAFETY: the item is alive.
        let flushed = unsafe { RawWork::flush(job.cast()) };
        let is_current = current().addr() == job.as_ptr().addr();
        send.send((flushed, is_current, on!(RawWork::cancel_sync(job)))).unwrap();
    });
    assert!(current().is_null());
    assert!(on!(RawWork::queue(job, &queue, None)));
    let said = receive.recv().unwrap();
    assert_eq!(said, (Err(Misuse::OwnItem), true, false));
    on!(RawWork::flush(job));
    free(job);
}

#[test]
fn raw_item_that_needs_its_flushers_seat_is_rejected() {
    let queue = ordered();
    let (nr_runs, later) = counter();
    let address = later.as_ptr().addr();
    let (send, receive) = mpsc::channel();
    let own = queue.clone();
    let waiter = job(move |_| {
        let later = NonNull::new(std::ptr::with_exposed_provenance_mut(address)).unwrap();
        assert!(on!(RawWork::queue(later, &own, None)));
        // SAFETY: the item is alive.
        send.send(unsafe { RawWork::flush(later) }).unwrap();
    });
    later.as_ptr().expose_provenance();
    assert!(on!(RawWork::queue(waiter, &queue, None)));
    assert_eq!(receive.recv().unwrap(), Err(Misuse::OwnQueue));
    on!(RawWork::flush(waiter));
    on!(RawWork::flush(later));
    assert_eq!(nr_runs.load(Ordering::Relaxed), 1, "the item was lost");
    free(waiter);
    free(later);
}

#[test]
#[cfg_attr(miri, ignore = "reads the machine from files that Miri cannot open")]
fn a_disabled_raw_item_is_not_queued() {
    let queue = ordered();
    let (nr_runs, job) = counter();
    let unplug = plugged(&queue);
    assert!(on!(RawWork::queue(job, &queue, None)));
    assert!(on!(RawWork::disable(job)));
    assert!(!on!(RawWork::disable_sync(job)));
    let delay = Duration::from_millis(1);
    assert!(!on!(RawWork::queue(job, &queue, None)));
    assert!(!on!(RawDelayed::queue(job, &queue, None, delay)));
    let modified = on!(RawDelayed::modify(job, &queue, None, delay));
    assert_eq!(modified, Modified::Refused);
    assert!(!on!(RawWork::enable(job)));
    assert!(on!(RawWork::enable(job)));
    // SAFETY: the job is alive.
    let enabled = unsafe { RawWork::enable(job.cast()) };
    assert_eq!(enabled, Err(Misuse::NotDisabled));
    assert!(on!(RawWork::queue(job, &queue, None)));
    unplug.send(()).unwrap();
    on!(RawWork::flush(job));
    assert_eq!(nr_runs.load(Ordering::Relaxed), 1);
    free(job);
}

#[test]
fn memory_without_an_item_is_recognized() {
    let queue = ordered();
    let mut zeroes = [0u128; 8];
    let work = NonNull::from(&mut zeroes).cast::<RawWork>();
    // SAFETY: `work` points to memory that is large enough for an item.
    let queued = unsafe { RawWork::queue(work, &queue, None) };
    assert_eq!(queued, Err(Misuse::Uninitialized));
    let between = work.map_addr(|address| address | 4);
    // SAFETY: `between` points to memory that is large enough for an item.
    let queued = unsafe { RawWork::queue(between, &queue, None) };
    assert_eq!(queued, Err(Misuse::Misaligned));
}

#[test]
fn item_without_a_function_is_rejected() {
    let queue = ordered();
    // SAFETY: the function is never called.
    let mut item = unsafe { RawDelayed::new(run) };
    let this = NonNull::from(&mut item);
    // SAFETY: the write covers only the function pointer, which is inside the item.
    unsafe { this.as_ptr().byte_add(24).cast::<usize>().write(0) };
    let work = RawDelayed::work(this);
    // SAFETY: `work` points to memory that is large enough for an item.
    let queued = unsafe { RawWork::queue(work, &queue, None) };
    assert_eq!(queued, Err(Misuse::NoFunction));
    // SAFETY: as above.
    let armed = unsafe { RawDelayed::queue(this, &queue, None, Duration::from_secs(1)) };
    assert_eq!(armed, Err(Misuse::NoFunction));
}

#[test]
fn an_item_may_be_at_any_multiple_of_eight() {
    let queue = wide();
    let mut memory = [0u64; (size_of::<Job>() + 16) / 8];
    for offset in [0, 8] {
        let (nr_runs, made) = counter();
        let place = NonNull::from(&mut memory).cast::<Job>();
        // SAFETY: the offset stays inside `memory`.
        let place = unsafe { place.byte_add(offset) };
        // SAFETY: the memory is aligned and large enough, the item is idle, and the box is not used
        // again.
        unsafe {
            place.write(made.read());
            drop(Box::from_raw(made.as_ptr().cast::<std::mem::MaybeUninit<Job>>()));
        }
        for round in 1..=3 {
            assert!(on!(RawWork::queue(place, &queue, None)));
            queue.flush().unwrap();
            assert_eq!(nr_runs.load(Ordering::Relaxed), round);
        }
        // SAFETY: the item is idle.
        unsafe { place.drop_in_place() };
    }
}

#[test]
#[cfg_attr(miri, ignore = "reads the machine from files that Miri cannot open")]
fn a_timer_queues_its_item_and_not_before_its_time() {
    let queue = wide();
    let (send, receive) = mpsc::channel();
    let job = job(move |_| send.send(sync::time::now_ns()).unwrap());
    let delay = Duration::from_millis(2);
    let start_ns = sync::time::now_ns();
    assert!(on!(RawDelayed::queue(job, &queue, None, delay)));
    assert!(!on!(RawWork::queue(job, &queue, None)), "it is pending");
    assert!(receive.recv().unwrap() - start_ns >= 2_000_000);
    on!(RawWork::flush(job));
    free(job);
}

#[test]
#[cfg_attr(miri, ignore = "reads the machine from files that Miri cannot open")]
fn timer_is_removed_moved_and_expedited() {
    let hour = Duration::from_secs(3600);
    let queue = wide();
    let (nr_runs, job) = counter();
    assert!(!on!(RawDelayed::cancel(job)));
    assert!(on!(RawDelayed::queue(job, &queue, None, hour)));
    let busy = on!(RawWork::busy(job));
    assert!(busy.pending && !busy.executing);
    assert!(!on!(RawWork::cancel(job)), "that is its timer's");
    assert!(!on!(RawWork::flush(job)), "nor is it waited for");
    assert!(on!(RawDelayed::cancel_sync(job)));
    assert!(!on!(RawDelayed::cancel_sync(job)));
    let modify = |delay| on!(RawDelayed::modify(job, &queue, None, delay));
    assert_eq!(modify(hour), Modified::WasIdle);
    assert_eq!(modify(hour), Modified::WasPending);
    assert_eq!(nr_runs.load(Ordering::Relaxed), 0);
    assert!(on!(RawDelayed::flush(job)));
    assert_eq!(nr_runs.load(Ordering::Relaxed), 1);
    assert_eq!(modify(hour), Modified::WasIdle);
    assert_eq!(modify(Duration::ZERO), Modified::WasPending);
    on!(RawWork::flush(job));
    assert_eq!(nr_runs.load(Ordering::Relaxed), 2);
    free(job);
}

#[test]
#[cfg_attr(miri, ignore = "reads the machine from files that Miri cannot open")]
fn timers_of_a_queue_are_removed_before_it_is_destroyed() {
    let hour = Duration::from_secs(3600);
    let (going, staying) = (wide(), wide());
    let jobs: Vec<_> = (0..10).map(|_| job(|_| panic!("never"))).collect();
    for (nth, &job) in jobs.iter().enumerate() {
        let queue = if nth % 2 == 0 { &going } else { &staying };
        assert!(on!(RawDelayed::queue(job, queue, None, hour)));
    }
    assert_eq!(take_back_timers(&going), 5);
    drop(going);
    for (nth, job) in jobs.into_iter().enumerate() {
        assert_eq!(on!(RawDelayed::cancel_sync(job)), nth % 2 == 1);
        free(job);
    }
}

#[test]
#[cfg_attr(miri, ignore = "reads the machine from files that Miri cannot open")]
fn under_load_each_queued_item_runs_or_is_cancelled_once() {
    let nr_rounds = rounds(10, 200, 3000);
    let queues = [ordered(), wide(), wide()];
    let seed = sync::time::now_ns();
    println!("seed {seed}");
    let jobs: Vec<(Arc<AtomicU32>, usize)> = (0..4)
        .map(|_| {
            let nr_runs = Arc::new(AtomicU32::new(0));
            let is_inside = AtomicBool::new(false);
            let counted = nr_runs.clone();
            let job = job(move |_| {
                assert!(!is_inside.swap(true, Ordering::Relaxed), "twice at once");
                counted.fetch_add(1, Ordering::Relaxed);
                is_inside.store(false, Ordering::Relaxed);
            });
            (nr_runs, job.as_ptr() as usize)
        })
        .collect();
    let balance: Vec<AtomicU64> = jobs.iter().map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (queues, jobs, balance) = (&queues, &jobs, &balance);
            scope.spawn(move || {
                let mut state = seed ^ thread.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let mut dice = |below: u64| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (state >> 33) % below
                };
                for _ in 0..nr_rounds {
                    let nth = dice(4) as usize;
                    let job = NonNull::new(jobs[nth].1 as *mut Job).unwrap();
                    let queue = &queues[dice(3) as usize];
                    let delay = Duration::from_micros(dice(200));
                    let (mut queued, mut cancelled) = (false, false);
                    match dice(9) {
                        0..=2 => queued = on!(RawWork::queue(job, queue, None)),
                        3 => queued = on!(RawDelayed::queue(job, queue, None, delay)),
                        4 => cancelled = on!(RawDelayed::cancel(job)),
                        5 => cancelled = on!(RawDelayed::cancel_sync(job)),
                        6 => cancelled = on!(RawWork::cancel(job)),
                        7 => match on!(RawDelayed::modify(job, queue, None, delay)) {
                            Modified::WasIdle => queued = true,
                            Modified::Cancelled => cancelled = true,
                            Modified::WasPending | Modified::Refused => {}
                        },
                        _ => {
                            on!(RawDelayed::flush(job));
                        }
                    }
                    // The balance wraps below zero if a canceller is counted first.
                    balance[nth].fetch_add(u64::from(queued), Ordering::Relaxed);
                    balance[nth].fetch_sub(u64::from(cancelled), Ordering::Relaxed);
                }
            });
        }
    });
    for ((nr_runs, job), balance) in jobs.into_iter().zip(balance) {
        let job = NonNull::new(job as *mut Job).unwrap();
        on!(RawDelayed::flush(job));
        let nr_runs = u64::from(nr_runs.load(Ordering::Relaxed));
        assert_eq!(balance.into_inner(), nr_runs);
        free(job);
    }
}

#[test]
fn item_is_idle_after_cancel_sync_unless_queued_again() {
    let nr_rounds = rounds(10, 200, 1000);
    let queues = [wide(), wide()];
    let is_inside = Arc::new(AtomicBool::new(false));
    let flag = is_inside.clone();
    let job = job(move |_| {
        assert!(!flag.swap(true, Ordering::Relaxed), "twice at once");
        // The loop is long enough for other threads to run in between.
        (0..20).for_each(|_| std::hint::spin_loop());
        flag.store(false, Ordering::Relaxed);
    });
    let address = job.as_ptr() as usize;
    let there = || NonNull::new(address as *mut Job).unwrap();
    std::thread::scope(|scope| {
        // Each round lets two threads wait once, so the work does not depend on their speed.
        let waiters = [true, false].map(|waits| {
            let (sender, rounds) = mpsc::channel::<()>();
            scope.spawn(move || {
                for () in rounds {
                    if waits {
                        on!(RawWork::flush(there()));
                    } else {
                        on!(RawDelayed::flush(there()));
                        on!(RawWork::cancel(there()));
                    }
                }
            });
            sender
        });
        for round in 0..nr_rounds {
            for waiter in &waiters {
                waiter.send(()).unwrap();
            }
            on!(RawWork::queue(job, &queues[round % 2], None));
            if round % 3 > 0 {
                on!(RawWork::queue(job, &queues[round / 2 % 2], None));
            }
            if round % 5 > 0 {
                // In most rounds, wait briefly for the run to begin, so that the cancel is likely
                // to find the item running.
                let waits = (0..1000).take_while(|_| !is_inside.load(Ordering::Relaxed));
                waits.for_each(|_| std::hint::spin_loop());
            }
            on!(RawDelayed::cancel_sync(job));
            assert!(!is_inside.load(Ordering::Relaxed), "it runs: {round}");
            assert_eq!(on!(RawWork::busy(job)), Default::default(), "{round}");
        }
        drop(waiters);
    });
    free(job);
}
