//! Futures that a queue polls.

use crate::support::*;

/// A gate for futures, which any thread can open. It is itself a future, which passes the gate.
#[derive(Clone, Default)]
pub struct Door(pub Arc<Mutex<(bool, Vec<Waker>)>>);

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
fn a_large_future_and_its_result_arrive_whole() {
    let queue = queue("large").alone();
    let bytes = [7u8; 4096];
    let handle = queue.spawn_async(async move {
        yields().await;
        bytes
    });
    assert_eq!(handle.join().unwrap(), [7; 4096]);
}

#[test]
fn the_task_that_awaits_a_future_is_woken_once_when_it_ends() {
    let (queue, door) = (queue("bell").alone(), Door::default());
    let mut handle = queue.spawn_async(door.clone());
    wait_until(|| door.nr_waiting() == 1);
    let (waker, rings) = counting_waker();
    assert!(poll_with(&mut handle, &waker).is_pending());
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
