//! Reports of stalls, and of items that hog a CPU.

use crate::support::*;

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

fn waits_behind() {}

/// Returns the number that follows `word` in `text`.
fn number_after(text: &str, word: &str) -> u32 {
    let (_, rest) = text.split_once(word).expect(word);
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
    digits.and_then(|it| it.parse().ok()).expect(word)
}

#[test]
fn a_stall_names_the_first_item_and_those_of_all_workers() {
    let (registry, reports) = reporting(impatient);
    let [stuck, queue] = ["stuck", "waits"].map(|name| queue(name).help(false).on(&registry));
    let plug = plug_into(&stuck);
    queue.enqueue(&Work::new(waits_behind));
    queue.detach(|| ());
    // If the first item is reported before the second one is queued, a later report contains both.
    let mut stalls = reports.iter().filter_map(stall);
    let stall = stalls.find(|stall| stall.nr_waiting == 2).unwrap();
    assert_eq!(stall.item.queue, "waits");
    assert!(stall.item.func.contains("waits_behind"), "{stall}");
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
