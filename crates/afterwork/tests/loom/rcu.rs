//! Readers, grace periods, and threads that wait for grace periods.

use crate::support::*;

/// Two versions of a value, one of which is published.
#[derive(Default)]
pub struct Versions {
    in_sight: AtomicUsize,
    words: [Plain; 2],
}

impl Versions {
    /// Reads the published version; the caller is in a section.
    pub fn read(&self) {
        // Relaxed: both versions exist from the start, and only RCU may protect the old one.
        let version = self.in_sight.load(Ordering::Relaxed);
        assert_eq!(self.words[version].get(), 0, "a freed version was read");
    }

    /// Reads the first version, which was published when the caller's section began.
    pub fn read_first(&self) {
        assert_eq!(self.words[0].get(), 0, "a freed version was read");
    }

    pub fn read_in_section(&self) {
        let guard = rcu::read();
        self.read();
        drop(guard);
    }

    pub fn remove(&self) {
        self.in_sight.store(1, Ordering::Relaxed);
    }

    /// Overwrites the first version; loom reports a race if a reader still reads it.
    pub fn free(&self) {
        self.words[0].set(1);
    }
}

/// Gives this thread a slot that is not parked.
pub fn warm_up() {
    drop(rcu::read());
}

/// Returns versions, after the initialization of global state, which precedes all threads.
pub fn versions() -> Arc<Versions> {
    rcu::synchronize();
    Arc::default()
}

/// Starts a reader that calls `before`, which may open and end sections, and then reads once.
pub fn reader(versions: &Arc<Versions>, before: fn()) -> JoinHandle<()> {
    spawn_with(versions.clone(), move |versions| {
        before();
        versions.read_in_section();
    })
}

/// One version is replaced and freed while another thread runs `body`.
pub fn replace_during(body: impl FnOnce(&Versions) + 'static) {
    let versions = versions();
    let reader = spawn_with(versions.clone(), |versions| body(&versions));
    versions.remove();
    rcu::synchronize();
    versions.free();
    reader.join().unwrap();
}

/// The same with a reader that is not parked.
pub fn beside(body: fn(&Versions)) {
    replace_during(move |versions| {
        warm_up();
        body(versions);
    });
}

fn reads_twice(versions: &Versions) {
    versions.read_in_section();
    versions.read_in_section();
}

/// A first grace period parks the reader while it is about to read.
fn a_reader_that_is_being_parked() {
    let versions = versions();
    let reader = reader(&versions, warm_up);
    rcu::synchronize();
    versions.remove();
    rcu::synchronize();
    versions.free();
    reader.join().unwrap();
}

/// A grace period of another thread completes a cookie. A reader reads both replaced values.
fn a_cookie() {
    rcu::synchronize();
    let both: [Arc<Versions>; 2] = Default::default();
    let updater = spawn_with(both[0].clone(), |theirs| {
        theirs.remove();
        rcu::synchronize();
        theirs.free();
    });
    let reader = spawn_with(both.clone(), move |both| {
        warm_up();
        let guard = rcu::read();
        both.iter().for_each(|versions| versions.read());
        drop(guard);
    });
    both[1].remove();
    let cookie = rcu::get_state();
    rcu::cond_synchronize(cookie);
    both[1].free();
    reader.join().unwrap();
    updater.join().unwrap();
}

/// Two updaters wait for grace periods. A third thread has read before, so they need to scan.
fn two_updaters() {
    warm_up();
    let updaters = [(), ()].map(|()| spawn(rcu::synchronize));
    updaters.into_iter().for_each(|it| it.join().unwrap());
}

/// Threads acquire slots, release them and acquire them again during a scan.
fn two_readers_start_and_exit() {
    let versions = versions();
    let [first, second] = [(), ()].map(|()| reader(&versions, || ()));
    first.join().unwrap();
    versions.remove();
    rcu::synchronize();
    versions.free();
    second.join().unwrap();
}

fn a_slot_that_another_thread_takes() {
    let seat = Arc::new(Seat::left());
    let reader =
        spawn_with(seat.clone(), move |theirs| assert!(theirs.read() && theirs.is_open_of_mine()));
    assert!(!seat.is_open_of_mine(), "would end the section of another thread");
    reader.join().unwrap();
}

/// The holdout of one of three leaves may report before the next leaf is marked.
fn reports() {
    let tree = Arc::new(Tree::<3>::new());
    let words: Arc<[Plain; 2]> = Arc::default();
    tree.init();
    let holdouts = [0, 1].map(|holdout| {
        tree.mark(2 * holdout);
        let (tree, words) = (tree.clone(), words.clone());
        spawn(move || {
            words[holdout].set(1);
            u32::from(tree.report(2 * holdout))
        })
    });
    let mut nr_last = u32::from(tree.all_marked());
    if tree.is_empty() {
        let nr_reported = words[0].get() + words[1].get();
        assert_eq!(nr_reported, 2, "a report is missing");
    }
    for thread in holdouts {
        nr_last += thread.join().unwrap();
    }
    assert!(tree.is_empty());
    assert_eq!(nr_last, 1, "no reader is left to wake the driver");
}

fn a_callback() {
    let versions = versions();
    let reader = reader(&versions, warm_up);
    versions.remove();
    let theirs = versions.clone();
    rcu::call(move || theirs.free());
    model::sweep();
    reader.join().unwrap();
}

/// A callback joins the bag of an earlier one and may be taken with it, while a reader reads.
fn a_callback_that_joins() {
    let versions = versions();
    let reader = reader(&versions, warm_up);
    let sweeper = spawn(model::sweep);
    rcu::call(|| ());
    versions.remove();
    let theirs = versions.clone();
    rcu::call(move || theirs.free());
    sweeper.join().unwrap();
    reader.join().unwrap();
}

/// One thread queues more callbacks than a bag holds while another sweeps.
fn bags() {
    let run: Arc<[Plain; 4]> = Arc::default();
    rcu::synchronize();
    let sweeper = spawn(model::sweep);
    for at in 0..4 {
        let run = run.clone();
        rcu::call(move || run[at].set(1 + run[at].get()));
    }
    sweeper.join().unwrap();
    model::sweep();
    let all: Vec<u32> = run.iter().map(Plain::get).collect();
    assert_eq!(all, [1; 4], "each callback runs once");
}

/// One thread takes both spare bags and returns the first; another takes one at the same time.
fn spare_bags() {
    let stock = Arc::new(model::Stock::new());
    let other = spawn_with(stock.clone(), move |stock| {
        let (first, second) = (stock.take(), stock.take());
        first.into_iter().for_each(|it| stock.give(it));
        second
    });
    let mut taken: Vec<usize> = stock.take().into_iter().collect();
    taken.extend(other.join().unwrap());
    taken.extend(std::iter::from_fn(|| stock.take()));
    taken.sort_unstable();
    assert_eq!(taken, [0, 1], "each is taken by one");
}

fn two_sweeps() {
    let run = Arc::new(Plain::default());
    rcu::synchronize();
    let runs = run.clone();
    rcu::call(move || runs.set(1));
    let other = spawn(model::sweep);
    model::sweep();
    assert_eq!(run.get(), 1, "a sweep ended amid another");
    other.join().unwrap();
}

fn a_barrier() {
    let run = Arc::new([Plain::default(), Plain::default()]);
    let stop = Arc::new(AtomicBool::new(false));
    rcu::synchronize();
    let [first, second] = [run.clone(), run.clone()];
    rcu::call(move || first[0].set(1));
    let sweeper = spawn_with(stop.clone(), move |stop| {
        while !stop.load(Ordering::Relaxed) {
            model::sweep_when_wanted();
        }
    });
    rcu::call(move || second[1].set(1));
    rcu::barrier();
    assert_eq!(run[0].get() + run[1].get(), 2, "a callback was forgotten");
    stop.store(true, Ordering::Relaxed);
    let _ = rcu::start_poll();
    sweeper.join().unwrap();
}

/// A grace period of another thread completes a cookie, although no thread reads.
fn a_cookie_and_a_synchronize() {
    let is_made = Arc::new(AtomicBool::new(false));
    let owner = spawn_with(is_made.clone(), move |made| {
        let cookie = rcu::get_state();
        made.store(true, Ordering::Release);
        cookie
    });
    let was_made = is_made.load(Ordering::Acquire);
    rcu::synchronize();
    let cookie = owner.join().unwrap();
    // In a section, `poll_state` considers only the number of grace periods.
    let guard = rcu::read();
    assert!(!was_made || rcu::poll_state(cookie));
    drop(guard);
}

models! {
    fn answer_counts_as_a_quiescent_state() = bounded(3, || beside(reads_twice));
    fn threads_start_and_exit() = bounded(2, two_readers_start_and_exit);
    fn section_protects_the_version_it_read() =
        bounded(4, || beside(Versions::read_in_section)).detects([
            "rcu: no light barrier at lock",
            "rcu: no heavy barrier",
            "rcu: no light barrier at unlock",
            "rcu: relaxed answer",
        ]);
    fn parked_reader_resumes() =
        bounded(4, || replace_during(Versions::read_in_section))
            .detects(["rcu: no fence after parking"]);
    /// A section that begins during the grace period does not delay it, and reads the new version.
    fn a_section_that_begins_later_is_not_waited_for() =
        bounded(4, a_reader_that_is_being_parked).detects(["rcu: park is tested first"]);
    fn grace_period_serves_all_earlier_callers() =
        bounded(2, a_cookie),
        must_fail("rcu: no fence before the cookie", || bounded(3, a_cookie));
    fn waiter_for_another_driver_is_woken() =
        bounded(2, two_updaters).detects(["rcu: no next driver"]);
    fn exiting_thread_ignores_sections_of_other_threads() =
        exhaustive(a_slot_that_another_thread_takes).detects(["rcu: a slot keeps its owner"]);
    fn reports_climb_to_the_root_once() =
        bounded(3, reports).detects(["node: no bias", "node: relaxed report"]);
    fn a_callback_runs_after_its_grace_period() =
        bounded(3, a_callback).detects(["rcu: callbacks without a grace period"]);
    fn a_callback_that_joins_others_has_a_grace_period_of_its_own() =
        bounded(2, a_callback_that_joins),
        must_fail("rcu: a bag is left open", || bounded(3, a_callback_that_joins));
    fn a_bag_is_used_again() =
        bounded(3, bags).detects([
            "rcu: relaxed end of a bag",
            "rcu: relaxed gift of a bag",
            "rcu: relaxed take of a bag",
        ]);
    fn one_thread_takes_a_spare_bag() = bounded(3, spare_bags).detects(["rcu: two take a bag"]);
    fn two_sweeps_take_turns() = bounded(3, two_sweeps).detects(["rcu: sweeps overlap"]);
    fn barrier_waits_for_every_earlier_callback() =
        bounded(3, a_barrier).detects(["rcu: barrier joins a running sweep"]);
    fn synchronize_completes_every_earlier_cookie() =
        exhaustive(a_cookie_and_a_synchronize).detects(["rcu: synchronize overlooks cookies"]);
}
