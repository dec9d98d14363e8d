//! Reports of stalls, of items that hog a CPU, and of waits that break the promise of a rescuer,
//! and the names of items in them.

use std::any::type_name_of_val as name_of;

use crate::support::*;

fn waited_for() {}

fn reporting(change: impl FnOnce(&mut Params)) -> (Registry, Receiver<Report>) {
    let registry = tuned("1 core", change);
    let reports = reports(&registry);
    (registry, reports)
}

/// Sets parameters for a pool of one worker, with stalls reported after 20 ms.
fn impatient(params: &mut Params) {
    params.max_workers = 1;
    params.watchdog_thresh_ms = 20;
}

fn stall(report: Report) -> Option<Stall> {
    if let Report::Stall(stall) = report { Some(stall) } else { None }
}

#[test]
fn a_stall_names_the_first_item_and_those_of_all_workers() {
    let (registry, reports) = reporting(impatient);
    let [other, stuck, queue] =
        ["other", "stuck", "waits"].map(|name| queue(name).help(false).on(&registry));
    // The worker may take items of several queues at once.
    other.detach(|| ());
    let plug = plug_into(&stuck);
    queue.enqueue(&Work::new(waited_for));
    queue.detach(|| ());
    // If the first item is reported before the second one is queued, a later report contains both.
    let mut stalls = reports.iter().filter_map(stall);
    let stall = stalls.find(|stall| stall.nr_waiting == 2).unwrap();
    assert_eq!(stall.item.queue, "waits");
    assert!(stall.item.func.contains("waited_for"), "{stall}");
    assert!(stall.age.as_millis() >= 20);
    assert_eq!(stall.workers.len(), 1);
    let worker = &stall.workers[0];
    assert_eq!(worker.item.queue, "stuck");
    assert!(worker.item.func.contains("plug_into"), "{stall}");
    assert!(worker.sleeps);
    plug.release_and_drain(&queue);
    assert!(registry.pool_stats()[0].stalls >= 1);
    let text = stall.to_string();
    assert!(!text.contains('\n'));
    let thread = number_after(&text, "; thread ");
    let process = number_after(&text, "; their stacks: gdb --batch --pid=");
    assert_eq!((thread, process), (worker.thread, std::process::id()));
    // A debugger finds the thread in this folder.
    let task = format!("/proc/{process}/task/{thread}");
    assert!(std::path::Path::new(&task).exists(), "{task}");
}

#[test]
fn a_stall_that_lasts_is_reported_again_with_a_greater_age() {
    let (registry, reports) = reporting(impatient);
    let (queue, plug) = queue("stuck").help(false).plugged_on(&registry);
    queue.detach(|| ());
    let mut ages = reports.iter().filter_map(stall).map(|stall| stall.age);
    let (first, second) = (ages.next().unwrap(), ages.next().unwrap());
    assert!(second >= 2 * first, "{first:?}, {second:?}");
    plug.release_and_drain(&queue);
}

#[test]
fn items_that_wait_for_a_seat_are_not_a_stall() {
    let (registry, reports) = reporting(|it| {
        impatient(it);
        it.max_workers = 8;
    });
    let (single, plug) = one_seat("single").plugged_on(&registry);
    single.detach(|| ());
    // Until then the item waits for a worker, which may be a stall.
    wait_until(|| waiting(&single) == 1);
    // A stall of `single` would be reported before the stall of `full`, so the first report
    // shows that there was none.
    let full = queue("full").help(false).on(&registry);
    let plugs = [(); 7].map(|()| plug_into(&full));
    full.detach(|| ());
    let mut stalls = reports.iter().filter_map(stall).map(|stall| stall.item.queue);
    assert!(stalls.any(|queue| queue == "full"));
    assert_eq!(stalls.next().as_deref(), Some("full"));
    plugs.iter().for_each(Plug::release);
    plug.release_and_drain(&single);
    full.drain().unwrap();
}

#[test]
fn an_item_that_hogs_the_cpu_is_reported_by_name() {
    let (registry, reports) = reporting(|_| ());
    let (queue, stop) = (queue("hogs").help(false).on(&registry), Count::default());
    queue.detach(hogging(stop));
    queue.detach(|| ());
    let report = reports.recv().unwrap();
    stop.add();
    let Report::CpuIntensive { item, count } = report else {
        panic!("{report}");
    };
    assert_eq!((item.queue.as_str(), count), ("hogs", 1));
    assert!(item.func.contains("hogging"), "{item}");
    queue.drain().unwrap();
}

#[test]
fn a_report_handler_may_panic() {
    let registry = tuned("1 core", impatient);
    registry.on_report(|_| panic!("handler"));
    let (queue, plug) = queue("stuck").help(false).plugged_on(&registry);
    queue.detach(|| ());
    wait_until(|| registry.pool_stats()[0].stalls >= 2);
    plug.release_and_drain(&queue);
}

/// The waiting item, the awaited queue and the awaited function of a report.
type Named = (String, Option<String>, Option<&'static str>);

/// A registry, two of its queues, one with a rescuer and one without, and its reports.
struct Scene {
    registry: Registry,
    rescued: Workqueue,
    plain: Workqueue,
    reports: Receiver<Report>,
}

impl Scene {
    fn new() -> Self {
        Self::on(registry("2 core"))
    }

    fn on(registry: Registry) -> Self {
        let reports = reports(&registry);
        let rescued = queue("rescued").with_rescuer().help(false).on(&registry);
        let plain = queue("plain").help(false).on(&registry);
        Self { registry, rescued, plain, reports }
    }

    /// Calls `body` with the queue without a rescuer, in an item of the other one.
    fn within(&self, body: impl FnOnce(&Workqueue) + Send + 'static) {
        let plain = self.plain.clone();
        self.rescued.spawn(move || body(&plain)).join().unwrap();
    }

    fn reported(&self) -> Vec<Named> {
        self.reports.try_iter().filter_map(named).collect()
    }
}

fn named(report: Report) -> Option<Named> {
    let text = report.to_string();
    let Report::FlushDependency { waiter, queue, func } = report else {
        return None;
    };
    assert!(text.contains("rescued") && !text.contains('\n'), "{text}");
    Some((waiter, queue, func))
}

fn of_plain(func: Option<&'static str>) -> Named {
    ("rescued".into(), Some("plain".into()), func)
}

#[test]
fn a_flush_that_breaks_a_rescuers_promise_is_reported() {
    let scene = Scene::new();
    scene.within(|plain| plain.flush().unwrap());
    assert_eq!(scene.reported(), [of_plain(None)]);
}

#[test]
fn a_drain_that_breaks_a_rescuers_promise_is_reported() {
    let scene = Scene::new();
    scene.within(|plain| plain.drain().unwrap());
    assert_eq!(scene.reported(), [of_plain(None)]);
    let last = queue("last").on(&scene.registry);
    scene.within(move |_| drop(last));
    assert_eq!(scene.reported()[0].1.as_deref(), Some("last"));
}

#[test]
fn a_join_or_flush_that_breaks_the_promise_is_reported() {
    let scene = Scene::new();
    let next = || scene.reports.iter().find_map(named).unwrap();
    scene.plain.pause();
    let pending = Work::new(waited_for);
    scene.plain.enqueue(&pending);
    let waiter = scene.rescued.spawn(move || pending.flush().unwrap());
    let (_, queue, func) = next();
    assert_eq!(queue.as_deref(), Some("plain"), "pending");
    assert_eq!(func, Some(name_of(&waited_for)));
    scene.plain.resume();
    assert!(waiter.join().unwrap());

    let (running, plug) = stuck(|hole| scene.plain.spawn(move || hole.sit()));
    let waiter = scene.rescued.spawn(move || running.join().unwrap());
    assert_eq!(next().1.as_deref(), Some("plain"), "running");
    plug.release();
    waiter.join().unwrap();
}

#[test]
fn a_helped_wait_that_breaks_the_promise_is_reported() {
    // The only worker is in the waiting item, and without the monitor no rescuer is called.
    // Therefore only the waiter can run the awaited item.
    let scene = Scene::on(tuned("1 core", |it| {
        it.max_workers = 1;
        it.watch_tick_us = 3_600_000_000;
    }));
    let helped = queue("helped").on(&scene.registry);
    let outer = helped.clone();
    scene.within(move |plain| {
        let plain = plain.clone();
        outer.spawn(move || plain.flush().unwrap()).join().unwrap();
    });
    assert_eq!(scene.reported(), [of_plain(None)]);
}

#[test]
fn a_dependency_is_reported_once_for_each_pair() {
    let scene = Scene::new();
    (0..3).for_each(|_| scene.within(|plain| plain.flush().unwrap()));
    assert_eq!(scene.reported(), [of_plain(None)]);
    let other = queue("other").on(&scene.registry);
    let flushed = other.clone();
    scene.within(move |_| flushed.flush().unwrap());
    assert_eq!(scene.reported()[0].1.as_deref(), Some("other"));
}

#[test]
fn waits_that_keep_the_promise_of_a_rescuer_are_not_reported() {
    let scene = Scene::new();
    let second = queue("second").with_rescuer().help(false).on(&scene.registry);
    let (flushed, joined) = (second.clone(), second.spawn(|| ()));
    scene.within(move |_| {
        joined.join().unwrap();
        flushed.flush().unwrap();
    });
    // An item without a rescuer may wait for anything.
    let (first, third) = (scene.rescued.clone(), queue("third").on(&scene.registry));
    let waiter = scene.plain.spawn(move || {
        first.flush().unwrap();
        third.drain().unwrap();
    });
    waiter.join().unwrap();
    // A cancel that waits is not reported, as in the kernel.
    let (running, plug) = stuck_in(&scene.plain);
    let cancelled = running.clone();
    let waiter = scene.rescued.spawn(move || cancelled.cancel_sync());
    wait_until(|| is_slept_for(&running));
    plug.release();
    waiter.join().unwrap();
    scene.plain.flush().unwrap();
    assert_eq!(scene.reported(), []);
}

#[test]
fn items_left_by_a_shutdown_have_the_names_of_their_functions() {
    let (queue, plug) = one_seat("busy").plugged();
    let at = Instant::now() + HOUR;
    let [mut first, mut second] = [(); 2].map(|()| CancelHandle::default());
    let owner = Arc::new(());
    let spawned = [
        queue.spawn(|| ()),
        queue.task().deadline(at).spawn(|| ()),
        queue.task().hard_deadline(at).spawn(|| ()),
        queue.task().cancel_handle(&mut first).spawn(|| ()),
        queue.task().cancel_handle(&mut second).hard_deadline(at).spawn(|| ()),
        queue.spawn_async(async {}),
        queue.task().hard_deadline(at).spawn_async(async {}),
    ];
    let works = [Work::new(|| ()), Work::with_handle(|_| ()), Work::for_weak(&owner, |_| ())];
    let delayed = [
        DelayedWork::new(|| ()),
        DelayedWork::with_handle(|_| ()),
        DelayedWork::for_weak(&owner, |_| ()),
    ];
    assert!(works.iter().all(|work| queue.enqueue(work)));
    assert!(delayed.iter().all(|work| queue.enqueue_after(work, HOUR)));
    let ticks = queue.every(HOUR, || ()).unwrap();
    let busy = still_busy(queue.shutdown(Duration::ZERO)).unwrap();
    assert_eq!(busy.nr_left, 1 + spawned.len() + works.len() + delayed.len() + 1);
    let here = name_of(&items_left_by_a_shutdown_have_the_names_of_their_functions);
    for left in &busy.left[1..] {
        // The type name of a closure or future starts with the path of the enclosing function.
        assert!(left.func.unwrap().starts_with(here), "{left:?}");
    }
    assert_eq!(busy.left[0].doing, Doing::Runs);
    plug.release();
    drop(ticks);
}

#[test]
fn reports_of_panics_have_the_names_of_their_functions() {
    fn fails() {
        panic!("on purpose");
    }
    let (send, reports) = mpsc::channel();
    let queue = queue("fails").on_panic(move |panic| send.send(panic.func).unwrap()).alone();
    let at = Instant::now() + HOUR;
    let mut cancel = CancelHandle::default();
    let owner = Arc::new(());
    let next = || reports.recv_timeout(PATIENCE).unwrap();
    let name = name_of(&fails);
    queue.task().hard_deadline(at).spawn_detached(fails).unwrap();
    queue.task().cancel_handle(&mut cancel).spawn_detached(fails).unwrap();
    queue.enqueue(&Work::new(fails));
    queue.enqueue_after(&DelayedWork::new(fails), MS);
    assert_eq!([next(), next(), next(), next()], [name; 4]);
    let of_owner = |_: &()| fails();
    queue.enqueue(&Work::for_weak(&owner, of_owner));
    assert_eq!(next(), name_of(&of_owner));
    let of_strand = |_: &mut ()| fails();
    queue.strand(()).spawn_detached(of_strand).unwrap();
    assert_eq!(next(), name_of(&of_strand));
    let future = async { fails() };
    let name = name_of(&future);
    drop(queue.task().hard_deadline(at).spawn_async(future));
    assert_eq!(next(), name);
    let ticks = queue.every(MS, fails).unwrap();
    assert_eq!(next(), name_of(&fails));
    drop(ticks);
}
