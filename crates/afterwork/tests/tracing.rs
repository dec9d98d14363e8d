//! Events of the feature `tracing`, received by a test subscriber.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Write;
use std::ptr::NonNull;
use std::sync::atomic::*;
use std::sync::{Mutex, Once, mpsc};
use std::time::Duration;
use std::{fmt, io, thread};

use afterwork::params::Params;
use afterwork::rcu;
use afterwork::workqueue::{DelayedWork, Registry, Work, Workqueue, block_on};
use raw::RawWork;
use topology::Topology;
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber, span};

/// Time limit of a test for an expected event.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
struct Recorded {
    name: &'static str,
    span: Option<&'static str>,
    fields: BTreeMap<&'static str, String>,
}

/// The events of all tests. Each test selects those that name its own queue.
static RECORDED: Mutex<Vec<Recorded>> = Mutex::new(Vec::new());
/// A queue on which the subscriber queues an item at every event of the queue "outer".
static INNER: Mutex<Option<Workqueue>> = Mutex::new(None);
/// Acts that run once, keyed by the queue and the event that triggers them.
static ACTS: Mutex<BTreeMap<(String, &'static str), Act>> = Mutex::new(BTreeMap::new());
static NR_INNER: AtomicU64 = AtomicU64::new(0);

/// The metadata and reference count of every span. The index of a span is its number minus 1.
static SPANS: Mutex<Vec<(&'static Metadata<'static>, i64)>> = Mutex::new(Vec::new());

type Act = Box<dyn FnOnce() + Send>;

thread_local! {
    static INSIDE: RefCell<Vec<span::Id>> = const { RefCell::new(Vec::new()) };
}

fn count(id: &span::Id, more: i64) -> i64 {
    let mut spans = SPANS.lock().unwrap();
    let there = &mut spans[id.into_u64() as usize - 1].1;
    *there += more;
    *there
}

fn metadata(id: &span::Id) -> &'static Metadata<'static> {
    SPANS.lock().unwrap()[id.into_u64() as usize - 1].0
}

fn present() -> Option<&'static str> {
    INSIDE.with_borrow(|inside| inside.last().map(|id| metadata(id).name()))
}

/// Returns the number of references to spans named `name`.
fn nr_open(name: &str) -> i64 {
    let spans = SPANS.lock().unwrap();
    let named = spans.iter().filter(|it| it.0.name() == name);
    named.map(|it| it.1).sum()
}

/// A subscriber that records events, and queues work or panics if a test requests it.
struct Scribe;

impl Visit for Recorded {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.into());
    }
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }
}

impl Subscriber for Scribe {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("afterwork::")
    }
    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        let mut spans = SPANS.lock().unwrap();
        spans.push((attributes.metadata(), 1));
        span::Id::from_u64(spans.len() as u64)
    }
    fn clone_span(&self, id: &span::Id) -> span::Id {
        count(id, 1);
        id.clone()
    }
    fn try_close(&self, id: span::Id) -> bool {
        count(&id, -1) == 0
    }
    fn current_span(&self) -> tracing_core::span::Current {
        let innermost = INSIDE.with_borrow(|inside| inside.last().cloned());
        match innermost {
            Some(id) => tracing_core::span::Current::new(id.clone(), metadata(&id)),
            None => tracing_core::span::Current::none(),
        }
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, id: &span::Id) {
        INSIDE.with_borrow_mut(|inside| inside.push(id.clone()));
    }
    fn exit(&self, id: &span::Id) {
        assert_eq!(INSIDE.with_borrow_mut(Vec::pop).as_ref(), Some(id));
    }
    fn event(&self, event: &Event<'_>) {
        let name = event.metadata().name();
        let mut recorded = Recorded { name, span: present(), fields: BTreeMap::new() };
        event.record(&mut recorded);
        let queue = recorded.fields.get("queue").cloned().unwrap_or_default();
        RECORDED.lock().unwrap().push(recorded);
        match queue.as_str() {
            "outer" => {
                let inner = INNER.lock().unwrap().clone();
                let count = || _ = NR_INNER.fetch_add(1, Ordering::SeqCst);
                inner.into_iter().for_each(|inner| inner.spawn_detached(count).unwrap());
            }
            "panics" => panic!("subscriber"),
            _ => {}
        }
        let act = ACTS.lock().unwrap().remove(&(queue, name));
        if let Some(act) = act {
            act();
        }
    }
}

/// Returns the events that name `queue`, oldest first.
fn events_of(queue: &str) -> Vec<Recorded> {
    let recorded = RECORDED.lock().unwrap();
    let is_it = |it: &&Recorded| it.fields.get("queue").is_some_and(|name| name == queue);
    recorded.iter().filter(is_it).cloned().collect()
}

/// Starts to listen. Ends the process if the returned value is not dropped in time.
fn ends(part: &str) -> impl Sized + use<> {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(Scribe).unwrap());
    let hangs = format!("{} hangs {part}", thread::current().name().unwrap_or_default());
    let (is_running, ended) = mpsc::channel::<()>();
    thread::spawn(move || {
        if ended.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
            // The test harness captures the output of `eprintln`, and loses it here.
            _ = writeln!(io::stderr(), "{hangs}");
            std::process::abort();
        }
    });
    is_running
}

fn registry(params: Params) -> Registry {
    Registry::new(Topology::synthetic("1 core").unwrap(), params).unwrap()
}

/// Returns a registry, and a queue on it whose items run on workers only.
fn unhelped(name: &str) -> (Registry, Workqueue) {
    let registry = registry(Params::default());
    let queue = unhelped_in(&registry, name);
    (registry, queue)
}

fn unhelped_in(registry: &Registry, name: &str) -> Workqueue {
    Workqueue::builder(name).help(false).build_in(registry).unwrap()
}

/// The only worker of a registry and its rescuer, each blocked in an item until released.
struct Held {
    busy: Workqueue,
    releases: Vec<mpsc::Sender<()>>,
}

impl Held {
    fn new(registry: &Registry) -> Self {
        let busy = unhelped_in(registry, "busy");
        let mut releases = Vec::new();
        for by_rescuer in [false, true] {
            registry.refuse_threads(by_rescuer);
            let (release, released) = mpsc::channel::<()>();
            let (inside, is_inside) = mpsc::channel();
            let item = move || {
                inside.send(()).unwrap();
                released.recv().ok();
            };
            busy.spawn_detached(item).unwrap();
            is_inside.recv().unwrap();
            releases.push(release);
        }
        Self { busy, releases }
    }

    fn let_go(self, registry: &Registry) {
        registry.refuse_threads(false);
        drop((self.releases, self.busy));
    }
}

fn steps(recorded: &[Recorded]) -> Vec<&'static str> {
    recorded.iter().map(|it| it.name).collect()
}

const ALL_STEPS: [&str; 4] = ["queue_work", "activate_work", "execute_start", "execute_end"];

#[test]
fn events_of_an_item_are_in_order_for_all_kinds_and_threads() {
    let _ends = ends("");
    let registry = registry(Params::default());
    let queue = |name, help| {
        let builder = Workqueue::builder(name).help(help);
        builder.build_in(&registry).unwrap()
    };
    queue("by a worker", false).enqueue(&Work::new(|| ()));
    let helped = queue("by its joiner", true);
    let only_worker = Held::new(&registry);
    let item = Work::new(|| ());
    helped.enqueue(&item);
    let queued = events_of("by its joiner");
    assert_eq!(steps(&queued), ["queue_work"]);
    assert_eq!(queued[0].fields["message"], "a work item is queued");
    item.flush().unwrap();
    only_worker.let_go(&registry);
    queue("a closure", true).spawn(|| ()).join().unwrap();
    queue("detached", true).spawn_detached(|| ()).unwrap();
    let future = queue("a future", true).spawn_async(async {});
    future.join().unwrap();
    queue("a chain", false).task().enqueue_all(&[Work::new(|| ())]);
    drop(helped);
    for name in ["by a worker", "by its joiner", "a closure", "detached", "a future", "a chain"] {
        let recorded = events_of(name);
        assert_eq!(steps(&recorded), ALL_STEPS, "{name}");
        for one in &recorded {
            assert_eq!(one.fields["item"], recorded[0].fields["item"], "{name}");
            let func = &one.fields["func"];
            assert!(func.contains("events_of_an_item"), "{name}: {func}");
            assert_eq!(one.fields["pool"], recorded[0].fields["pool"]);
            assert!(one.fields.contains_key("message"), "{name}");
        }
    }
}

#[test]
fn span_of_the_enqueuer_follows_all_kinds_of_work() {
    let _ends = ends("");
    let registry = registry(Params::default());
    let build = |help| Workqueue::builder("spans").help(help).build_in(&registry);
    let (queue, helps) = (build(false).unwrap(), build(true).unwrap());
    let (send, seen) = mpsc::channel();
    let send_span = move || send.send(present()).unwrap();
    let work = Work::new(send_span.clone());
    let request = tracing::span!(target: "afterwork::test", tracing::Level::INFO, "request");
    let mut handles = Vec::new();
    request.in_scope(|| {
        handles.push(queue.spawn(send_span.clone()));
        queue.spawn_detached(send_span.clone()).unwrap();
        queue.enqueue(&work);
        let (send_span, mut nr_polls) = (send_span.clone(), 0);
        handles.push(queue.spawn_async(std::future::poll_fn(move |context| {
            send_span();
            nr_polls += 1;
            if nr_polls == 3 {
                return std::task::Poll::Ready(());
            }
            // The future is woken from a thread that is in no span.
            let waker = context.waker().clone();
            thread::spawn(move || waker.wake());
            std::task::Poll::Pending
        })));
    });
    handles.into_iter().for_each(|handle| handle.join().unwrap());
    queue.drain().unwrap();
    let within = request.in_scope(|| helps.spawn(send_span.clone()));
    within.join().unwrap();
    let (inner, other) = (send_span.clone(), queue.clone());
    let outer = move || other.spawn_detached(inner).unwrap();
    request.in_scope(|| helps.spawn(outer)).join().unwrap();
    queue.drain().unwrap();
    let inside: Vec<_> = seen.try_iter().collect();
    assert_eq!(inside, [Some("request"); 8], "3 runs, 3 polls, helped, and from inside");
    // An item that is queued outside of any span runs outside of any span.
    queue.enqueue(&work);
    queue.spawn_detached(send_span).unwrap();
    queue.drain().unwrap();
    assert_eq!(seen.try_iter().collect::<Vec<_>>(), [None; 2]);
    assert_eq!(present(), None);
    assert_eq!(nr_open("request"), 1, "ours alone");
    let steps = events_of("spans");
    let starts = steps.iter().filter(|it| it.name == "execute_start");
    let nr_within = starts.filter(|it| it.span == Some("request")).count();
    assert_eq!(nr_within, 9);
}

#[test]
fn span_of_an_item_that_never_runs_is_closed() {
    let _ends = ends("");
    let (_registry, queue) = unhelped("never");
    queue.pause();
    let span = tracing::span!(target: "afterwork::test", tracing::Level::INFO, "never");
    let works = [(); 2].map(|()| Work::new(|| ()));
    let mut handle = span.in_scope(|| {
        works.iter().for_each(|work| assert!(queue.enqueue(work)));
        queue.spawn_detached(|| ()).unwrap();
        drop(queue.spawn_async(std::future::pending::<()>()));
        queue.spawn(|| ())
    });
    assert_eq!(nr_open("never"), 6);
    assert!(works[0].cancel());
    assert_eq!(nr_open("never"), 5);
    assert!(handle.cancel());
    queue.cancel_all();
    queue.resume();
    queue.drain().unwrap();
    while nr_open("never") > 1 {
        thread::yield_now();
    }
}

#[test]
fn the_span_of_an_item_of_c_that_is_taken_back_is_closed() {
    let _ends = ends("");
    let (_registry, queue) = unhelped("taken back");
    queue.pause();
    let span = tracing::span!(target: "afterwork::test", tracing::Level::INFO, "raw");
    unsafe extern "C-unwind" fn nothing(_: *mut RawWork) {}
    // The items are leaked, because they are still queued if an assertion fails.
    let item = || {
        // SAFETY: `nothing` may be called with any pointer.
        let item = Box::leak(Box::new(unsafe { RawWork::new(nothing) }));
        // SAFETY: the item is leaked, so it is always valid.
        let queued = span.in_scope(|| unsafe { RawWork::queue(item.into(), &queue, None) });
        assert_eq!(queued, Ok(true));
        NonNull::from(item)
    };
    let items = [item(), item(), item(), item()];
    // SAFETY: in all of these, the items are leaked, so they are always valid.
    unsafe {
        assert_eq!(nr_open("raw"), 5);
        assert_eq!(RawWork::cancel(items[0]), Ok(true));
        assert_eq!(nr_open("raw"), 4);
        assert_eq!(RawWork::cancel_sync(items[1]), Ok(true));
        assert_eq!(nr_open("raw"), 3);
        assert_eq!(RawWork::disable(items[2]), Ok(true));
        assert_eq!(nr_open("raw"), 2);
    }
    queue.resume();
    queue.drain().unwrap();
    assert_eq!(nr_open("raw"), 1, "ours");
}

#[test]
fn revived_item_emits_a_second_queue_event() {
    let _ends = ends("");
    let (_registry, queue) = unhelped("revived");
    queue.pause();
    let item = Work::new(|| ());
    assert!(queue.enqueue(&item) && item.cancel() && queue.enqueue(&item));
    queue.resume();
    queue.drain().unwrap();
    let recorded = events_of("revived");
    assert_eq!(steps(&recorded)[..2], ["queue_work"; 2]);
    assert_eq!(steps(&recorded)[2..], ALL_STEPS[1..]);
}

#[test]
fn a_subscriber_may_queue_work_at_every_event() {
    let _ends = ends("");
    let registry = registry(Params::default());
    // An event emitted under the lock of the queues' pool would deadlock.
    let inner = Workqueue::builder("inner").build_in(&registry).unwrap();
    *INNER.lock().unwrap() = Some(inner.clone());
    let outer = unhelped_in(&registry, "outer");
    (0..10).for_each(|_| outer.spawn_detached(|| ()).unwrap());
    outer.drain().unwrap();
    *INNER.lock().unwrap() = None;
    inner.drain().unwrap();
    let nr_reported = events_of("outer").len() as u64;
    assert!(nr_reported >= 40);
    assert_eq!(NR_INNER.load(Ordering::SeqCst), nr_reported);
}

#[test]
fn a_subscriber_may_join_where_a_join_is_being_offered() {
    let _ends = ends("");
    let registry = registry(Params::default());
    let again = Workqueue::builder("again").build_in(&registry).unwrap();
    again.pause();
    let (theirs, key) = (again.clone(), ("again".to_string(), "queue_work"));
    let act = Box::new(move || _ = theirs.join(|| (), || ()));
    ACTS.lock().unwrap().insert(key.clone(), act);
    again.join(|| (), || ());
    assert!(!ACTS.lock().unwrap().contains_key(&key));
    again.resume();
    again.drain().unwrap();
    // A ticket that is not cancelled would bring a worker to a join that has ended.
    let recorded = events_of("again");
    assert!(!recorded.is_empty() && recorded.iter().all(|it| it.name != "execute_start"));
}

/// A way in which a subscriber uses a queue handle, with its name.
type Deed = (&'static str, fn(Workqueue));

const DEEDS: [Deed; 5] = [
    ("cancels all", |queue| _ = queue.cancel_all()),
    ("drops", drop),
    ("changes attributes", |queue| {
        // The call returns an error if it would have to wait.
        let _ = queue.set_attrs(|attrs| attrs.nice = 1);
        let _ = queue.set_attrs(|attrs| attrs.nice = 0);
    }),
    ("shuts down", Workqueue::shutdown_background),
    ("pauses", |queue| {
        queue.pause();
        queue.resume();
    }),
];

/// Makes the subscriber perform each deed at the first `event` of a queue that `uses` uses.
fn at_each_deed(
    how: &str,
    event: &'static str,
    kinds: &[(&str, Build)],
    uses: impl Fn(Workqueue, &Registry),
) {
    for (kind, build) in kinds {
        for (deed, act) in DEEDS {
            let name = format!("{deed}, {kind}, {how}, {event}");
            let _ends = ends(&name);
            let registry = registry(Params::default());
            let queue = build(&name, &registry);
            let theirs = queue.clone();
            let (send, done) = mpsc::channel();
            let act = Box::new(move || {
                act(theirs);
                send.send(()).ok();
            });
            ACTS.lock().unwrap().insert((name, event), act);
            uses(queue, &registry);
            done.recv().unwrap();
            // The thread that fires timers still runs.
            block_on(registry.sleep(Duration::from_millis(1)));
        }
    }
}

fn plain(name: &str, registry: &Registry) -> Workqueue {
    Workqueue::builder(name).build_in(registry).unwrap()
}

fn ordered(name: &str, registry: &Registry) -> Workqueue {
    Workqueue::builder(name).ordered().build_in(registry).unwrap()
}

type Build = fn(&str, &Registry) -> Workqueue;
const PLAIN: (&str, Build) = ("plain", plain);
const ORDERED: (&str, Build) = ("in order", ordered);

#[test]
fn a_subscriber_may_stop_the_queue_of_a_timer_or_a_flush() {
    at_each_deed("by a timer", "queue_work", &[PLAIN, ORDERED], |queue, registry| {
        queue.enqueue_after(&DelayedWork::new(|| ()), Duration::from_millis(1));
        drop(queue);
        block_on(registry.sleep(Duration::from_millis(10)));
    });
    at_each_deed("by a flush", "queue_work", &[PLAIN, ORDERED], |queue, _| {
        let work = DelayedWork::new(|| ());
        queue.enqueue_after(&work, Duration::from_secs(3600));
        drop(queue);
        work.flush().unwrap();
    });
}

#[test]
fn a_subscriber_may_stop_an_ordered_queue_at_each_enqueue() {
    at_each_deed("one", "queue_work", &[ORDERED], |queue, _| {
        queue.spawn_detached(|| ()).unwrap();
    });
    at_each_deed("at once", "queue_work", &[ORDERED], |queue, _| {
        queue.enqueue_after(&DelayedWork::new(|| ()), Duration::ZERO);
    });
    at_each_deed("many", "queue_work", &[ORDERED], |queue, _| {
        queue.task().enqueue_all(&[Work::new(|| ()), Work::new(|| ())]);
        queue.task().spawn_detached_all((0..2).map(|_| || ()));
    });
    at_each_deed("a future", "queue_work", &[ORDERED], |queue, _| {
        drop(queue.spawn_async(async {}));
    });
}

#[test]
fn subscriber_may_stop_a_queue_at_each_transition_of_an_item() {
    for event in ["activate_work", "execute_start", "execute_end"] {
        at_each_deed("by a worker", event, &[PLAIN, ORDERED], |queue, _| {
            queue.spawn_detached(|| ()).unwrap();
            drop(queue);
        });
        at_each_deed("by a joiner", event, &[PLAIN], |queue, registry| {
            let only_worker = Held::new(registry);
            let handle = queue.spawn(|| ());
            drop(queue);
            let _ = handle.join();
            only_worker.let_go(registry);
        });
    }
}

#[test]
fn items_of_an_ordered_queue_run_in_the_span_that_queued_them() {
    let _ends = ends("");
    let registry = registry(Params::default());
    let queue = ordered("in order, in a span", &registry);
    let (send, seen) = mpsc::channel();
    let send_span = move || send.send(present()).unwrap();
    let span = tracing::trace_span!(target: "afterwork::test", "around");
    let works = [(); 2].map(|()| Work::new(send_span.clone()));
    span.in_scope(|| {
        queue.task().enqueue_all(&works);
        queue.spawn_detached(send_span.clone()).unwrap();
    });
    queue.spawn_detached(send_span).unwrap();
    queue.drain().unwrap();
    let seen: Vec<_> = seen.iter().take(4).collect();
    assert_eq!(seen, [Some("around"), Some("around"), Some("around"), None]);
    drop(span);
    assert_eq!(nr_open("around"), 0, "each is closed");
}

#[test]
fn a_subscriber_that_panics_costs_no_worker_and_no_item() {
    let _ends = ends("");
    let registry = registry(Params::default());
    let queue = plain("panics", &registry);
    assert_eq!(queue.spawn(|| 7).join().unwrap(), 7);
    queue.spawn_detached(|| ()).unwrap();
    queue.drain().unwrap();
    let created = registry.pool_stats()[0].created;
    assert_eq!(registry.pool_stats()[0].nr_workers as u64, created);
    drop(queue);
    registry.shutdown().unwrap();
}

#[test]
fn rescuer_calls_and_batches_emit_events() {
    let _ends = ends("");
    let registry = registry(Params::default());
    let only_worker = Held::new(&registry);
    let queue = Workqueue::builder("rescued").with_rescuer().help(false);
    let queue = queue.build_in(&registry).unwrap();
    queue.spawn_detached(|| ()).unwrap();
    queue.drain().unwrap();
    only_worker.let_go(&registry);
    let recorded = events_of("rescued");
    let names = steps(&recorded);
    let position = |name| names.iter().position(|it| *it == name).unwrap();
    assert!(position("mayday") < position("rescue"), "{names:?}");
    assert!(position("rescue") < position("execute_start"), "{names:?}");
    assert_eq!(recorded[position("rescue")].fields["nr_items"], "1");
}

#[test]
fn watchdog_reports_emit_events() {
    let _ends = ends("");
    let params = Params { max_workers: 1, watchdog_thresh_ms: 20, ..Params::default() };
    let registry = registry(params);
    let (send, reports) = mpsc::channel();
    registry.on_report(move |_| _ = send.send(()));
    let queue = unhelped_in(&registry, "stalls");
    let (release, released) = mpsc::channel::<()>();
    queue.spawn_detached(move || _ = released.recv()).unwrap();
    queue.spawn_detached(|| ()).unwrap();
    // The event is emitted before the handler runs.
    reports.recv_timeout(PATIENCE).unwrap();
    drop(release);
    queue.drain().unwrap();
    let recorded = events_of("stalls");
    let report = recorded.iter().find(|it| it.name == "report").unwrap();
    assert_eq!(report.fields["kind"], "stall");
    assert!(report.fields["message"].contains("of stalls"));
}

#[test]
fn item_that_would_wait_for_itself_emits_an_event() {
    let _ends = ends("");
    let (_registry, queue) = unhelped("own");
    let own = queue.clone();
    queue.spawn(move || own.flush().unwrap_err()).join().unwrap();
    queue.enqueue(&Work::with_handle(|this| assert!(this.flush().is_err())));
    queue.drain().unwrap();
    let recorded = events_of("own");
    let reports: Vec<_> = recorded.iter().filter(|it| it.name == "report").collect();
    assert_eq!(reports.len(), 2);
    assert!(reports.iter().all(|it| it.fields["kind"] == "own_wait"));
}

#[test]
fn grace_periods_emit_begin_and_end_events() {
    let _ends = ends("");
    let guard = rcu::read();
    let waiter = thread::spawn(rcu::synchronize);
    let count = |name: &str| {
        let recorded = RECORDED.lock().unwrap();
        let ours = |it: &&Recorded| it.name == name && it.fields["flavor"] == "rcu";
        recorded.iter().filter(ours).count()
    };
    while count("gp_start") == 0 {
        thread::yield_now();
    }
    drop(guard);
    waiter.join().unwrap();
    assert!(count("gp_end") > 0);
    let domain = rcu::srcu::Domain::new();
    domain.synchronize();
    let recorded = RECORDED.lock().unwrap();
    let of_srcu = |it: &&Recorded| it.fields.get("flavor").is_some_and(|it| it == "srcu");
    let of_srcu: Vec<_> = recorded.iter().filter(of_srcu).map(|it| it.name).collect();
    assert_eq!(of_srcu, ["gp_start", "gp_end"]);
}
