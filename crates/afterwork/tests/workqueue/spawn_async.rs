//! Futures that a queue polls: their polls, and their end (ready, cancelled, panicked, or without
//! handle and wakers).

use crate::support::*;

/// A gate for futures, which any thread can open. It is itself a future, which passes the gate.
#[derive(Clone, Default)]
pub struct Door(Arc<Mutex<(bool, Vec<Waker>)>>);

impl Door {
    /// Lets all later polls pass, and wakes no task.
    pub fn unlock(&self) {
        self.0.lock().unwrap().0 = true;
    }

    pub fn open(&self) {
        self.unlock();
        let wakers = mem::take(&mut self.0.lock().unwrap().1);
        wakers.into_iter().for_each(Waker::wake);
    }

    pub fn nr_waiting(&self) -> usize {
        self.0.lock().unwrap().1.len()
    }

    /// Returns the waker of the task that came last.
    pub fn waker(&self) -> Waker {
        self.0.lock().unwrap().1.last().unwrap().clone()
    }
}

impl Future for Door {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let (is_open, wakers) = &mut *self.0.lock().unwrap();
        if *is_open {
            return Poll::Ready(());
        }
        if !wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            wakers.push(context.waker().clone());
        }
        Poll::Pending
    }
}

/// Wakes its own task and returns `Pending` once.
pub async fn yields() {
    let mut waited = false;
    poll_fn(|context| {
        if mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[test]
fn self_waking_future_yields_to_others() {
    let (queue, stop) = (queue("fair").max_active(1).alone(), Count::default());
    let spinner = queue.spawn_async(async move {
        while stop.get() == 0 {
            yields().await;
        }
    });
    queue.spawn(stop.adder()).join().unwrap();
    spinner.join().unwrap();
}

/// Starts a future that counts its polls, and calls `inside` in each, until its door is unlocked.
fn counting_polls(
    queue: &Workqueue,
    inside: impl Fn() + Send + 'static,
) -> (JoinHandle<()>, Door, Count) {
    let (door, polls) = (Door::default(), Count::default());
    let mut its = door.clone();
    let handle = queue.spawn_async(poll_fn(move |context| {
        inside();
        polls.add();
        Pin::new(&mut its).poll(context)
    }));
    wait_until(|| door.nr_waiting() == 1);
    (handle, door, polls)
}

#[test]
fn a_future_is_never_polled_twice_at_once() {
    let (queue, gauge) = (queue("storm").alone(), Gauge::default());
    let yields = move || gauge.within(thread::yield_now);
    let (handle, door, polls) = counting_polls(&queue, yields);
    threads(4, |_| {
        let waker = door.waker();
        (0..2000).for_each(|_| waker.wake_by_ref());
    });
    door.open();
    handle.join().unwrap();
    assert_eq!(gauge.most(), 1);
    assert!(polls.get() <= 8002, "one poll a wake at most");
}

#[test]
fn a_wake_of_a_pending_future_adds_no_poll() {
    let queue = queue("pending").max_active(1).alone();
    let (handle, door, polls) = counting_polls(&queue, || ());
    let plug = plug_into(&queue);
    let waker = door.waker();
    (0..100).for_each(|_| waker.wake_by_ref());
    door.unlock();
    plug.release();
    handle.join().unwrap();
    assert_eq!(polls.get(), 2);
}

/// Runs `count` futures that wait for a door to open, and then call the closure of `act`.
fn behind_a_door<F: Fn() + Send + 'static>(
    queue: &Workqueue,
    count: usize,
    act: impl Fn(usize) -> F,
) {
    let door = Door::default();
    let spawn = |i| {
        let (door, act) = (door.clone(), act(i));
        queue.spawn_async(async move {
            door.await;
            act();
        })
    };
    let handles: Vec<_> = (0..count).map(spawn).collect();
    wait_until(|| door.nr_waiting() == count);
    door.open();
    handles.into_iter().for_each(|it| it.join().unwrap());
}

#[test]
fn max_active_bounds_the_polls_and_not_the_futures_that_wait() {
    let gauge = Gauge::default();
    behind_a_door(&queue("bound").max_active(2).alone(), 200, |_| {
        move || gauge.within(thread::yield_now)
    });
    assert!(gauge.most() <= 2);
}

#[test]
fn an_ordered_queue_polls_in_the_order_of_the_wakes() {
    let log = Log::default();
    behind_a_door(&queue("ordered").ordered().alone(), 50, |i| log.note(i));
    assert!(log.take().into_iter().eq(0..50));
}

#[test]
fn futures_await_one_another_on_one_worker() {
    let queue = queue("nested").max_active(1).on(&registry("1 core"));
    let inner = queue.clone();
    let sum = queue.spawn_async(async move {
        let mut sum = 0;
        for i in 0..100 {
            sum += inner.spawn_async(async move { i }).await.unwrap();
            sum += inner.spawn(move || i).await.unwrap();
        }
        sum
    });
    assert_eq!(sum.join().unwrap(), 2 * 99 * 100 / 2);
}

#[test]
fn the_task_that_awaits_a_future_is_woken_once_when_it_ends() {
    let (queue, door) = (queue("bell").alone(), Door::default());
    let handle = queue.spawn_async(door.clone());
    wait_until(|| door.nr_waiting() == 1);
    let (waker, rings) = counting_waker();
    let mut handle = polled(handle, &waker);
    let own = door.waker();
    // A poll that does not complete the future does not wake the task that awaits it.
    own.wake_by_ref();
    door.unlock();
    own.wake_by_ref();
    wait_until(|| rings.get() == 1);
    assert!(poll_with(&mut handle, &waker).is_ready());
}

#[test]
fn futures_wander_between_the_pods_of_their_wakers() {
    let queue = queue("pods").affinity(Cpu).alone();
    threads(2, |i| {
        pin(i);
        let doors: Vec<Door> = (0..50).map(|_| Door::default()).collect();
        let spawn = |door: &Door| queue.spawn_async(door.clone());
        let handles: Vec<_> = doors.iter().map(spawn).collect();
        pin(i + 1);
        for door in &doors {
            wait_until(|| door.nr_waiting() == 1);
            let waker = door.waker();
            waker.wake_by_ref();
            door.unlock();
            waker.wake();
        }
        handles.into_iter().for_each(|it| it.join().unwrap());
    });
    queue.drain().unwrap();
}

/// Starts futures that wait for a door to open, and then count their end.
fn wait_at_a_door(queue: &Workqueue, nr: usize) -> (Door, Count) {
    let (door, ended) = (Door::default(), Count::default());
    for _ in 0..nr {
        let door = door.clone();
        drop(queue.spawn_async(async move {
            door.await;
            yields().await;
            ended.add();
        }));
    }
    wait_until(|| door.nr_waiting() == nr);
    (door, ended)
}

#[test]
fn drain_waits_for_futures_that_wait() {
    let queue = queue("drain").alone();
    let (door, ended) = wait_at_a_door(&queue, 3);
    thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(ended.after_drain(&queue), 3);
        });
        door.open();
    });
}

#[test]
fn dropping_the_queue_waits_for_its_futures() {
    let queue = queue("drop").alone();
    let (door, ended) = wait_at_a_door(&queue, 1);
    let opener = thread::spawn(move || door.open());
    drop(queue);
    assert_eq!(ended.get(), 1);
    opener.join().unwrap();
}

#[test]
fn a_future_may_own_the_last_handle_of_its_queue() {
    for nr_waits in 0..3 {
        let queue = queue("own").alone();
        let (owned, ended) = (queue.clone(), Count::default());
        drop(queue.spawn_async(async move {
            for _ in 0..nr_waits {
                yields().await;
            }
            drop(owned);
            ended.add();
        }));
        drop(queue);
        wait_until(|| ended.get() == 1);
    }
    let queue = queue("cancel").capacity(1).paused();
    let inner = queue.clone();
    let mut handle = queue.spawn_async(async move { drop(inner) });
    drop(queue);
    assert!(handle.cancel());
    assert!(is_cancelled(handle.join()));
}

#[test]
fn a_worker_drops_a_cancelled_future_before_the_join_returns() {
    let queue = queue("cancel").alone();
    let (door, (send, receive)) = (Door::default(), mpsc::channel());
    let inside = door.clone();
    let guard = at_drop(move || send.send(thread::current().id()).unwrap());
    let mut handle = queue.spawn_async(async move {
        let _guard = guard;
        inside.await;
    });
    wait_until(|| door.nr_waiting() == 1);
    assert!(handle.cancel());
    assert!(is_cancelled(handle.join()));
    assert_ne!(receive.try_recv().expect("it is dropped"), thread::current().id());
}

#[test]
fn a_future_cancelled_before_its_first_poll_is_never_polled() {
    let (queue, plug) = queue("cancel").max_active(1).plugged();
    let mut handle = queue.spawn_async(async { unreachable!("cancelled") });
    assert!(handle.cancel());
    assert!(handle.is_finished() && !handle.cancel());
    plug.release();
    assert!(is_cancelled::<()>(handle.join()));
    assert_eq!(queue.drained().panicked, 0);
}

#[test]
fn futures_cancelled_before_their_first_poll_leave_no_memory() {
    for builder in
        [queue("cancel"), queue("cancel").capacity(1), queue("cancel").ordered().capacity(1)]
    {
        let queue = builder.paused();
        let kept = Arc::new(());
        // Each call of the closure creates 10 MiB of futures.
        retains_less_than(4096, "cancelled futures", || {
            for number in 0..10_000 {
                let theirs = (kept.clone(), [7_u8; 1024]);
                let future = async move { drop(theirs) };
                if number % 2 == 0 {
                    assert!(queue.spawn_async(future).cancel());
                } else {
                    let (handle, canceller) = cancellable(&queue, |task| task.spawn_async(future));
                    drop(handle);
                    assert!(canceller.cancel());
                }
                assert_eq!(Arc::strong_count(&kept), 1, "dropped by the cancel");
            }
        });
        assert_eq!(waiting(&queue), 0);
        queue.resume_and_drain();
    }
}

#[test]
fn a_cancel_before_the_first_poll_wakes_the_task_that_awaits() {
    let queue = queue("cancel").paused();
    let (handle, canceller) = cancellable(&queue, |task| task.spawn_async(pending::<()>()));
    let (waker, rings) = counting_waker();
    let mut handle = polled(handle, &waker);
    assert!(canceller.cancel());
    assert_eq!(rings.get(), 1);
    assert!(matches!(poll_with(&mut handle, &waker), Poll::Ready(Err(JoinError::Cancelled))));
}

#[test]
fn a_future_cancelled_in_its_poll_is_not_polled_again() {
    let (queue, polls) = (queue("cancel").alone(), Count::default());
    let (mut handle, plug) = stuck(|hole| {
        queue.spawn_async(poll_fn(move |context| {
            polls.add();
            hole.sit();
            context.waker().wake_by_ref();
            Poll::<()>::Pending
        }))
    });
    assert!(handle.cancel());
    plug.release();
    assert!(is_cancelled(handle.join()));
    assert_eq!(polls.get(), 1);
}

#[test]
fn a_future_that_ends_in_its_cancelled_poll_keeps_its_value() {
    let queue = queue("cancel").alone();
    let (mut handle, plug) = stuck(|hole| {
        queue.spawn_async(async move {
            hole.sit();
            9
        })
    });
    assert!(handle.cancel());
    plug.release();
    assert_eq!(handle.join().unwrap(), 9);
}

#[test]
fn a_future_that_has_ended_is_not_cancelled() {
    let queue = queue("cancel").alone();
    let mut handle = queue.spawn_async(async { 3 });
    queue.drain().unwrap();
    assert!(!handle.cancel());
    assert_eq!(handle.join().unwrap(), 3);
}

#[test]
fn a_panic_in_a_poll_reaches_the_joiner_and_drops_the_future() {
    let (queue, census) = (queue("panic").alone(), Census::default());
    let life = census.life();
    let handle = queue.spawn_async(async move {
        let _life = life;
        yields().await;
        panic!("in a poll");
    });
    assert_eq!(handle.join().unwrap_err().to_string(), "the work item panicked: in a poll");
    census.all_dropped(1);
    assert_eq!(queue.stats().panicked, 1);
}

#[test]
fn a_future_that_panics_as_it_is_dropped_panicked() {
    let queue = queue("panic").alone();
    let fuse = |text| at_drop(move || panic_any(text));
    let mut cancelled = queue.spawn_async(async move {
        let _fuse = fuse("a future");
        pending::<()>().await;
    });
    cancelled.cancel();
    assert!(matches!(cancelled.join(), Err(JoinError::Panicked(_) | JoinError::Cancelled)));
    queue.drain().unwrap();
    let before = queue.stats().panicked;
    // The drops of a future and of its value may both panic.
    for _ in 0..4 {
        let first = fuse("a future");
        let ready = queue.spawn_async(poll_fn(move |_| {
            let _ = &first;
            Poll::Ready(fuse("its value"))
        }));
        assert!(matches!(ready.join(), Err(JoinError::Panicked(_))));
    }
    assert_eq!(queue.drained().panicked, before + 4);
    // A waker that panics when it is dropped delays no drain.
    let bomb = fuse("a waker");
    let waker = waker(move || _ = &bomb);
    let handle = polled(pending_in(&queue), &waker);
    // Only the handle keeps the waker now.
    drop(waker);
    drop(handle);
    queue.drain().unwrap();
}

#[test]
fn a_future_without_handle_and_wakers_is_dropped() {
    let (queue, census) = (queue("forlorn").alone(), Census::default());
    (0..20).for_each(|_| drop(queue.spawn_async(census.future())));
    queue.drain().unwrap();
    census.all_dropped(20);
}

#[test]
fn the_last_waker_of_a_detached_future_drops_it() {
    let queue = queue("forlorn").alone();
    let (door, census) = (Door::default(), Census::default());
    let (there, life) = (door.clone(), census.life());
    drop(queue.spawn_async(async move {
        let _life = life;
        there.await;
    }));
    wait_until(|| door.nr_waiting() == 1);
    let waker = door.0.lock().unwrap().1.pop().unwrap();
    // The future also owns the door, but no waker of its own task.
    assert_eq!(census.alive(), 1);
    drop(waker);
    census.all_dropped(1);
    queue.drain().unwrap();
}

#[test]
fn a_detached_future_that_a_waker_keeps_is_polled() {
    let queue = queue("detached").alone();
    let (door, ended) = wait_at_a_door(&queue, 1);
    door.open();
    assert_eq!(ended.after_drain(&queue), 1);
}

/// Starts a future that returns `value` when the door has been opened.
fn behind<T: Send + 'static>(queue: &Workqueue, door: &Door, value: T) -> JoinHandle<T> {
    let its = door.clone();
    let handle = queue.spawn_async(async move {
        its.await;
        value
    });
    wait_until(|| door.nr_waiting() == 1);
    handle
}

#[test]
fn a_waker_may_outlive_its_future_and_its_queue() {
    let (door, census) = (Door::default(), Census::default());
    let queue = queue("outlived").alone();
    let handle = behind(&queue, &door, census.life());
    let wakers: Vec<_> = (0..4).map(|_| door.waker()).collect();
    door.unlock();
    wakers[0].wake_by_ref();
    drop(handle.join().unwrap());
    census.all_dropped(1);
    drop(queue);
    wakers[1].wake_by_ref();
    drop(wakers[1].clone());
    threads(2, |_| wakers.iter().for_each(Waker::wake_by_ref));
    assert!(wakers[2].will_wake(&wakers[3]));
}

#[test]
fn a_result_without_a_handle_is_dropped() {
    let queue = queue("unwanted").alone();
    let (census, door) = (Census::default(), Door::default());
    // One future is detached before its end, and one after its end.
    drop(behind(&queue, &door, census.life()));
    let waker = door.waker();
    door.unlock();
    waker.wake_by_ref();
    let life = census.life();
    let after = queue.spawn_async(async move { life });
    queue.drain().unwrap();
    drop(after);
    census.all_dropped(2);
    drop(waker);
}
