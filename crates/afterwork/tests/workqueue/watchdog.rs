//! Reports of stalls, and of items that hog a CPU.

use std::sync::mpsc;

use afterwork::{
    params::Params,
    workqueue::{Registry, Report, Work},
};

use crate::support::*;

/// Returns a registry, and the receiver of its reports.
fn reporting(params: Params) -> (Registry, mpsc::Receiver<Report>) {
    let registry = registry_with("1 core", params);
    let (send, reports) = mpsc::channel();
    registry.on_report(move |report| drop(send.send(report.clone())));
    (registry, reports)
}

/// Parameters for a pool of one worker, with stalls reported after 20 ms.
fn impatient() -> Params {
    Params {
        max_workers: 1,
        watchdog_thresh_ms: 20,
        ..Params::default()
    }
}

fn waits_behind() {}

/// Returns the number that follows `word` in `text`.
fn number_after(text: &str, word: &str) -> u32 {
    let (_, rest) = text.split_once(word).expect(word);
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
    digits.and_then(|it| it.parse().ok()).expect(word)
}

#[test]
fn a_stall_names_the_first_item_and_what_every_worker_is_in() {
    ends(|| {
        let (registry, reports) = reporting(impatient());
        let stuck = queue("stuck").help(false).build_in(&registry).unwrap();
        let plug = plug_into(&stuck);
        let queue = queue("waits").help(false).build_in(&registry).unwrap();
        queue.enqueue(&Work::new(waits_behind));
        queue.spawn_detached(|| ()).unwrap();
        // If the first item is reported before the second is queued, a later report has both.
        let both = |report| match report {
            Report::Stall(stall) => (stall.nr_waiting == 2).then_some(stall),
            _ => None,
        };
        let stall = reports.iter().find_map(both).unwrap();
        assert_eq!(stall.item.queue, "waits");
        assert!(stall.item.func.contains("waits_behind"), "{stall}");
        assert!(stall.age.as_millis() >= 20);
        assert_eq!(stall.workers.len(), 1);
        let worker = &stall.workers[0];
        assert_eq!(worker.item.queue, "stuck");
        assert!(worker.item.func.contains("plug_into"), "{stall}");
        assert!(worker.sleeps);
        plug.release();
        queue.drain().unwrap();
        assert!(registry.pool_stats()[0].stalls >= 1);
        let text = stall.to_string();
        assert!(!text.contains('\n'));
        let thread = number_after(&text, "; thread ");
        let process = number_after(&text, "; their stacks: gdb --batch --pid=");
        assert_eq!(thread, worker.thread);
        assert_eq!(process, std::process::id());
        // A debugger finds the thread in this folder.
        let task = format!("/proc/{process}/task/{thread}");
        assert!(std::path::Path::new(&task).exists(), "{task}");
    });
}

#[test]
fn a_stall_that_lasts_is_told_again_and_its_age_grows() {
    ends(|| {
        let (registry, reports) = reporting(impatient());
        let queue = queue("stuck").help(false).build_in(&registry).unwrap();
        let plug = plug_into(&queue);
        queue.spawn_detached(|| ()).unwrap();
        let mut ages = reports.iter().filter_map(|report| match report {
            Report::Stall(stall) => Some(stall.age),
            _ => None,
        });
        let (first, second) = (ages.next().unwrap(), ages.next().unwrap());
        assert!(second >= 2 * first, "{first:?}, {second:?}");
        plug.release();
        queue.drain().unwrap();
    });
}

#[test]
fn items_that_wait_for_a_seat_are_no_stall() {
    ends(|| {
        let params = Params {
            max_workers: 8,
            ..impatient()
        };
        let (registry, reports) = reporting(params);
        let single = queue("single").max_active(1).help(false);
        let single = single.build_in(&registry).unwrap();
        let plug = plug_into(&single);
        single.spawn_detached(|| ()).unwrap();
        // Until then the item waits for a worker, which may be a stall.
        eventually("it waits for a seat", || single.stats().nr_inactive == 1);
        // A stall of `single` would be reported before the stall of `full`, so the first report
        // shows that there was none.
        let full = queue("full").help(false).build_in(&registry).unwrap();
        let plugs: Vec<_> = (0..7).map(|_| plug_into(&full)).collect();
        full.spawn_detached(|| ()).unwrap();
        let mut stalls = reports.iter().filter_map(|report| match report {
            Report::Stall(stall) => Some(stall.item.queue),
            _ => None,
        });
        assert!(stalls.any(|queue| queue == "full"));
        assert_eq!(stalls.next().as_deref(), Some("full"));
        plug.release();
        plugs.iter().for_each(Plug::release);
        single.drain().unwrap();
        full.drain().unwrap();
    });
}

#[test]
fn an_item_that_hogs_the_cpu_is_reported_by_name() {
    ends(|| {
        let (registry, reports) = reporting(Params::default());
        let queue = queue("hogs").help(false).build_in(&registry).unwrap();
        let (send, receive) = mpsc::channel::<()>();
        queue
            .spawn_detached(move || {
                while let Err(mpsc::TryRecvError::Empty) = receive.try_recv() {
                    std::hint::spin_loop();
                }
            })
            .unwrap();
        queue.spawn_detached(|| ()).unwrap();
        let report = reports.recv().unwrap();
        drop(send);
        let Report::CpuIntensive { item, count } = report else {
            panic!("{report}");
        };
        assert_eq!((item.queue.as_str(), count), ("hogs", 1));
        assert!(item.func.contains("an_item_that_hogs_the_cpu"), "{item}");
        queue.drain().unwrap();
    });
}

#[test]
fn a_handler_that_panics_does_no_harm() {
    ends(|| {
        let registry = registry_with("1 core", impatient());
        registry.on_report(|_| panic!("handler"));
        let queue = queue("stuck").help(false).build_in(&registry).unwrap();
        let plug = plug_into(&queue);
        queue.spawn_detached(|| ()).unwrap();
        eventually("it is told twice", || registry.pool_stats()[0].stalls >= 2);
        plug.release();
        queue.drain().unwrap();
    });
}
