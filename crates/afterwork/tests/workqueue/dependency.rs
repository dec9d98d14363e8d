//! Reports of waits: an item waits for a queue without a rescuer, although its own queue has one.

use crate::support::*;

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

fn waited_for() {}

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
    assert_eq!(func, Some(std::any::type_name_of_val(&waited_for)));
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
