//! Reusable items: enqueues, runs and lifetime.

use crate::support::*;

#[test]
fn queueing_a_pending_item_returns_false_and_runs_it_once() {
    let queue = queue("pending").max_active(1).alone();
    let (plug, (work, count)) = (plug_into(&queue), counted());
    assert!(!work.is_pending() && !work.is_busy());
    assert!(queue.enqueue(&work));
    assert!(work.is_pending() && work.is_busy());
    for _ in 0..10 {
        assert!(!queue.enqueue(&work));
    }
    plug.release_and_drain(&queue);
    assert!(!work.is_busy());
    assert_eq!(count.get(), 1);
}

#[test]
fn queueing_a_running_item_runs_it_exactly_once_more() {
    let queue = queue("running").alone();
    let (work, plug, [count, _]) = stuck_counting(&queue);
    assert!(!work.is_pending() && work.is_busy());
    assert!(queue.enqueue(&work));
    assert!(!queue.enqueue(&work) && !queue.enqueue(&work));
    plug.release();
    plug.wait_until_stuck();
    assert_eq!(count.get(), 2);
    assert_eq!(plug.release_and_count(&queue, count), 2);
}

/// Queues one item from eight threads. Checks that its runs never overlap and that none is missing.
fn hammer(queues: &[Workqueue], cancelling: bool) {
    let (gauge, nr_runs) = (Gauge::default(), Count::default());
    let work = Work::new(move || gauge.within(|| nr_runs.add()));
    let nr_due = AtomicUsize::new(0);
    threads(8, |i| {
        pin(i);
        for n in 0..5000 {
            let queue = &queues[(n + i) % queues.len()];
            nr_due.fetch_add(usize::from(queue.enqueue(&work)), Ordering::SeqCst);
            if cancelling && n % 5 == 0 {
                nr_due.fetch_sub(usize::from(work.cancel()), Ordering::SeqCst);
            }
            if n % 50 == i {
                work.flush().unwrap();
            }
        }
    });
    queues.iter().for_each(|queue| queue.drain().unwrap());
    assert!(!work.is_busy(), "{work:?}");
    assert_eq!(nr_runs.get(), nr_due.load(Ordering::SeqCst));
    assert_eq!(gauge.most(), 1, "two runs at once");
}

#[test]
fn runs_of_one_item_never_overlap_under_eight_threads() {
    hammer(&[queue("one").alone()], false);
    hammer(&[queue("one").help(false).alone()], true);
}

#[test]
fn runs_of_one_item_never_overlap_over_pods() {
    let queue = queue("pods").affinity(Cpu).on(&registry("64 core"));
    hammer(&[queue], true);
}

#[test]
fn one_item_may_be_queued_on_two_queues_in_turn() {
    let registry = registry("64 core");
    let queues = [Cpu, System].map(|scope| queue("turns").affinity(scope).on(&registry));
    hammer(&queues, false);
    hammer(&queues, true);
}

#[test]
fn one_item_may_alternate_between_ordered_and_other_queues() {
    let [ordered, single] = ordered_and_narrow();
    let plain = queue("plain").alone();
    hammer(&[plain.clone(), ordered.clone()], false);
    hammer(&[plain, ordered, single], true);
}

/// Queues an item that owns `owned`, and queues itself until it has run a thousand times.
fn queued_until_it_has_run_often(queue: &Workqueue, owned: impl Send + 'static) -> (Work, Count) {
    let (again, count) = (queue.clone(), Count::default());
    let work = Work::with_handle(move |this| {
        let _ = &owned;
        count.add();
        assert!(count.get() == 1000 || again.enqueue(this));
    });
    assert!(queue.enqueue(&work));
    (work, count)
}

#[test]
fn an_item_may_queue_itself_a_thousand_times() {
    let queue = queue("again").alone();
    let (work, count) = queued_until_it_has_run_often(&queue, ());
    assert_eq!(count.after_drain(&queue), 1000);
    assert!(!work.is_busy());
}

#[test]
fn an_item_without_handles_may_queue_itself_until_it_is_freed() {
    let (queue, census) = (queue("again").alone(), Census::default());
    let (_, count) = queued_until_it_has_run_often(&queue, census.life());
    assert_eq!(count.after_drain(&queue), 1000);
    census.all_dropped(1);
}

#[test]
fn an_item_whose_handle_is_dropped_still_runs_and_is_freed_once() {
    let queue = queue("orphan").max_active(1).alone();
    let (census, count) = (Census::default(), Count::default());
    let plug = plug_into(&queue);
    for _ in 0..100 {
        assert!(queue.enqueue(&Work::new(keeping(census.life(), count.adder()))));
    }
    assert_eq!(census.dropped(), 0);
    assert_eq!(plug.release_and_count(&queue, count), 100);
    census.all_dropped(100);
}

#[test]
fn an_item_whose_handle_drops_in_its_run_is_freed_after_it() {
    let (queue, census) = (queue("orphan").alone(), Census::default());
    let (_, plug) = stuck(|hole| {
        queue.enqueue(&Work::new(keeping(census.life(), move || hole.sit())));
    });
    assert_eq!(census.dropped(), 0);
    plug.release_and_drain(&queue);
    census.all_dropped(1);
}

#[test]
fn an_idle_item_is_freed_with_its_last_handle() {
    let census = Census::default();
    let work = Work::new(owning(census.life()));
    let other = work.clone();
    drop(work);
    assert_eq!(census.dropped(), 0);
    drop(other);
    census.all_dropped(1);
}

#[test]
fn a_run_may_keep_a_handle_of_an_item_that_has_none_left() {
    let (queue, census) = (queue("adopt").alone(), Census::default());
    let (life, kept, mut first) = (census.life(), Log::default(), true);
    let (work, plug) = stuck(|hole| {
        let work = Work::with_handle(move |this| {
            let _ = &life;
            if mem::take(&mut first) {
                hole.sit();
                kept.push(this.clone());
            }
        });
        assert!(queue.enqueue(&work));
        work
    });
    drop(work);
    plug.release_and_drain(&queue);
    let kept = kept.take().remove(0);
    assert_eq!(census.dropped(), 0);
    assert!(queue.enqueue(&kept));
    kept.flush().unwrap();
    drop(kept);
    queue.drain().unwrap();
    census.all_dropped(1);
}

#[test]
fn a_handle_kept_by_a_run_survives_the_drop_of_the_last_one() {
    let (queue, census) = (queue("adopt").help(false).alone(), Census::default());
    for _ in 0..3000 {
        let kept = Arc::new(Mutex::new(None));
        let (life, keep) = (census.life(), Arc::downgrade(&kept));
        let work = Work::with_handle(move |this| {
            let _ = &life;
            if let Some(keep) = keep.upgrade() {
                keep.lock().unwrap().get_or_insert_with(|| this.clone());
            }
        });
        assert!(queue.enqueue(&work));
        drop(work);
        queue.drain().unwrap();
        let before = census.dropped();
        let work = kept.lock().unwrap().take().expect("it has run");
        assert_eq!(census.alive(), 1, "freed although a handle is left");
        drop(work);
        queue.drain().unwrap();
        assert_eq!(census.dropped(), before + 1);
    }
    census.all_dropped(3000);
}

#[test]
fn a_run_sees_the_writes_of_the_enqueuer_and_the_last_run() {
    let queue = queue("visible").alone();
    // No two threads write a cell at the same time. A race detector reports an error if they do.
    static WRITTEN: AtomicUsize = AtomicUsize::new(0);
    let mut last = 0;
    let work = Work::new(move || {
        let now = WRITTEN.load(Ordering::Relaxed);
        assert!(now > last, "{now} after {last}");
        last = now;
    });
    for i in 1..20_000 {
        WRITTEN.store(i, Ordering::Relaxed);
        assert!(queue.enqueue(&work));
        work.flush().unwrap();
    }
}

#[test]
fn an_item_may_queue_other_items_on_any_queue() {
    let [first, second] = [queue("first"), queue("second").ordered()].map(On::alone);
    let count = Count::default();
    let (to, others) = (second.clone(), [(); 100].map(|()| counting(count)));
    first.detach(move || assert_eq!(to.task().enqueue_all(&others), 100));
    first.drain().unwrap();
    assert_eq!(count.after_drain(&second), 100);
}

#[test]
fn an_item_is_the_current_one_in_its_run_alone() {
    let queue = queue("current").alone();
    assert!(current_work().is_none());
    let inner = Work::new(|| assert!(current_work().is_some_and(|it| it.is_busy())));
    let (own, log) = (queue.clone(), Log::default());
    queue.enqueue(&Work::new(move || {
        let before = current_work().expect("it runs");
        own.enqueue(&inner);
        // If the item runs on this thread, it is the innermost one.
        inner.flush().unwrap();
        assert!(own.spawn(|| current_work().is_none()).join().unwrap());
        log.push(before);
    }));
    queue.drain().unwrap();
    let handle = log.take().pop().expect("it ran");
    assert!(queue.enqueue(&handle), "it is an ordinary handle");
    queue.drain().unwrap();
    assert_eq!(log.take().len(), 1, "it ran again");
    // No item is the current one in its drop.
    let (send, receive) = mpsc::channel();
    let asks = at_drop(move || _ = send.send(current_work().is_some()));
    queue.enqueue(&Work::new(keeping(asks, || drop(current_work().expect("it runs")))));
    assert!(!receive.recv_timeout(PATIENCE).unwrap());
}
