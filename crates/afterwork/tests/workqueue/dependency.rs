//! Reports of items of queues with a rescuer that wait for queues without one.

use std::sync::mpsc;

use afterwork::{
    params::Params,
    workqueue::{Registry, Report, Work, Workqueue},
};

use crate::support::*;

/// The waiting item, the awaited queue and the awaited function of a report.
type Named = (String, Option<String>, Option<&'static str>);

/// A registry, two of its queues, one with a rescuer and one without, and the reported waits.
struct Scene {
    registry: Registry,
    rescued: Workqueue,
    plain: Workqueue,
    reports: mpsc::Receiver<Named>,
}

impl Scene {
    fn new() -> Self {
        Self::on(registry("2 core"))
    }

    fn on(registry: Registry) -> Self {
        let (send, reports) = mpsc::channel();
        registry.on_report(move |report| {
            let text = report.to_string();
            if let Report::FlushDependency {
                waiter,
                queue,
                func,
            } = report.clone()
            {
                assert!(text.contains("rescued") && !text.contains('\n'), "{text}");
                let _ = send.send((waiter, queue, func));
            }
        });
        let rescued = queue("rescued").with_rescuer().help(false);
        Self {
            rescued: rescued.build_in(&registry).unwrap(),
            plain: queue("plain").help(false).build_in(&registry).unwrap(),
            registry,
            reports,
        }
    }

    /// Calls `body` in an item of the queue with a rescuer.
    fn within(&self, body: impl FnOnce() + Send + 'static) {
        self.rescued.spawn(body).join().unwrap();
    }

    /// Returns the reports received until now.
    fn reported(&self) -> Vec<Named> {
        self.reports.try_iter().collect()
    }
}

fn of_plain(func: Option<&'static str>) -> Named {
    ("rescued".into(), Some("plain".into()), func)
}

fn waited_for() {}

#[test]
fn a_flush_of_a_queue_without_a_rescuer_from_an_item_of_one_with_it_is_reported_by_both_names() {
    ends(|| {
        let scene = Scene::new();
        let plain = scene.plain.clone();
        scene.within(move || plain.flush().unwrap());
        assert_eq!(scene.reported(), [of_plain(None)]);
    });
}

#[test]
fn a_drain_of_a_queue_without_a_rescuer_from_an_item_of_one_with_it_is_reported() {
    ends(|| {
        let scene = Scene::new();
        let plain = scene.plain.clone();
        scene.within(move || plain.drain().unwrap());
        assert_eq!(scene.reported(), [of_plain(None)]);
        let last = queue("last").build_in(&scene.registry).unwrap();
        scene.within(move || drop(last));
        assert_eq!(scene.reported()[0].1.as_deref(), Some("last"));
    });
}

#[test]
fn a_wait_for_an_item_of_a_queue_without_a_rescuer_is_reported_whatever_the_item_is_at() {
    ends(|| {
        let scene = Scene::new();
        scene.plain.pause();
        let pending = Work::new(waited_for);
        scene.plain.enqueue(&pending);
        let waiter = scene.rescued.spawn(move || pending.flush().unwrap());
        let (queue, name) = ("plain".to_string(), std::any::type_name_of_val(&waited_for));
        let report = scene.reports.recv().unwrap();
        assert_eq!(report.1, Some(queue.clone()), "pending");
        assert!(report.2.unwrap().contains(name), "{report:?}");
        scene.plain.resume();
        assert!(waiter.join().unwrap());

        let (plug, hole) = stopper();
        let running = scene.plain.spawn(move || hole.sit());
        plug.wait_until_stuck();
        let waiter = scene.rescued.spawn(move || running.join().unwrap());
        assert_eq!(scene.reports.recv().unwrap().1, Some(queue), "running");
        plug.release();
        waiter.join().unwrap();
    });
}

#[test]
fn a_wait_inside_an_item_that_an_item_with_a_rescuer_helps_is_reported_as_its_own() {
    ends(|| {
        // The only worker is in the waiting item, and without the monitor no rescuer is called. So
        // only the waiter can run the awaited item.
        let params = Params {
            max_workers: 1,
            watch_tick_us: 3_600_000_000,
            ..Params::default()
        };
        let scene = Scene::on(registry_with("1 core", params));
        let helped = queue("helped").build_in(&scene.registry).unwrap();
        let (outer, plain) = (helped.clone(), scene.plain.clone());
        scene.within(move || {
            let inner = outer.spawn(move || plain.flush().unwrap());
            inner.join().unwrap();
        });
        assert_eq!(scene.reported(), [of_plain(None)]);
    });
}

#[test]
fn a_dependency_is_reported_once_for_each_pair() {
    ends(|| {
        let scene = Scene::new();
        for _ in 0..3 {
            let plain = scene.plain.clone();
            scene.within(move || plain.flush().unwrap());
        }
        assert_eq!(scene.reported(), [of_plain(None)]);
        let other = queue("other").build_in(&scene.registry).unwrap();
        let flushed = other.clone();
        scene.within(move || flushed.flush().unwrap());
        assert_eq!(scene.reported()[0].1.as_deref(), Some("other"));
    });
}

#[test]
fn waits_that_keep_the_promise_of_a_rescuer_are_not_reported() {
    ends(|| {
        let scene = Scene::new();
        let second = queue("second").with_rescuer().help(false);
        let second = second.build_in(&scene.registry).unwrap();
        let (flushed, joined) = (second.clone(), second.spawn(|| ()));
        scene.within(move || {
            joined.join().unwrap();
            flushed.flush().unwrap();
        });
        // An item without a rescuer may wait for anything.
        let (first, third) = (scene.rescued.clone(), queue("third"));
        let third = third.build_in(&scene.registry).unwrap();
        let waiter = scene.plain.spawn(move || {
            first.flush().unwrap();
            third.drain().unwrap();
        });
        waiter.join().unwrap();
        // A cancel that waits is not reported, as in the kernel.
        let (plug, hole) = stopper();
        let running = Work::new(move || hole.sit());
        scene.plain.enqueue(&running);
        plug.wait_until_stuck();
        let cancelled = running.clone();
        let waiter = scene.rescued.spawn(move || cancelled.cancel_sync());
        eventually("it waits", || is_slept_for(&running));
        plug.release();
        waiter.join().unwrap();
        scene.plain.flush().unwrap();
        assert_eq!(scene.reported(), []);
    });
}
