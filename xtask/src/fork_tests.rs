//! The list of all process-wide and thread-local variables, and how a `fork` treats each.
//!
//! A child has all of the memory but only one thread. State that another thread may be changing
//! must be locked during the fork, initialized before it, or reset after it. Each `static` needs a
//! row here, and the code that the row requires. Two kinds need no row, because their declaration
//! shows how a fork treats them: a child has only the thread-locals of the thread that forked, and
//! each process creates a `PerProcess` for itself.

use std::collections::{BTreeMap, BTreeSet};

use crate::source;
use crate::workspace::Workspace;

/// How a fork treats a variable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Over {
    /// A lock that the forking thread holds during the fork: `held.lock(…)` with this expression.
    Held(&'static str),
    /// The same as `Held`, but `sync::fork` itself takes the lock, with this call.
    HeldFirst(&'static str),
    /// Initialized once, before the fork, by this expression in a handler's `settle`.
    Settled(&'static str),
    /// Reset in the child by this expression in a handler's `child`.
    Reset(&'static str),
    /// A single atomic that no thread waits for. Its meaning is the same in the child.
    Word,
    /// Never changes.
    Constant,
    /// Used only in models, or in torture programs that do not fork.
    Tests,
}

use Over::{Constant, Held, HeldFirst, Reset, Settled, Tests, Word};

/// Files, with variables that a fork treats alike. A `HANDLER` needs no row: it never changes.
const LIST: &[(&str, &str, Over)] = &[
    // If a process is registered, its own handler registers the child.
    ("sync/system/asym.rs", "EXPEDITED", Word),
    ("sync/system/asym.rs", "REGISTERED", Settled("asym::init()")),
    ("sync/system/copies.rs", "WORD", Word),
    ("sync/system/cpu.rs", "CPU_ID_OFFSET GIVEN IS_REPORTED", Word),
    ("sync/system/eventfd.rs", "NR_MADE", Word),
    ("sync/fault.rs", "DICE ONE_IN SEED", Tests),
    ("sync/system/fork.rs", "GENERATION", Reset("GENERATION.fetch_add")),
    ("sync/system/fork.rs", "HANDLERS", Word),
    ("sync/system/fork.rs", "HELD", Reset("HELD.swap")),
    // This is the ID of the process that registers the handlers, so a child registers them itself.
    ("sync/system/fork.rs", "WATCHED", Word),
    ("sync/system/identity.rs", "NEXT", Word),
    ("sync/system/identity.rs", "SEATS", HeldFirst("identity::hold()")),
    ("sync/system/newborn.rs", "POLICY SLACK_NS", Word),
    ("sync/system/newborn.rs", "RECORD", Constant),
    // This is the ID of the process that exits, and of a thread in it.
    ("sync/system/process.rs", "ENDING", Word),
    ("stacks/capture.rs", "ANSWER_SLOT", Reset("ANSWER_SLOT.reset()")),
    ("stacks/capture.rs", "SILENT_UNTIL", Word),
    ("sync/slice.rs", "KERNEL", Word),
    // This is the ID of the process that holds the lock.
    ("sync/system/start.rs", "FIRST", Word),
    ("sync/system/thread.rs", "KEEPS_RESET", Word),
    ("sync/system/thread.rs", "names", HeldFirst("thread::hold_names()")),
    ("sync/system/time.rs", "RATE", Word),
    ("sync/twin.rs", "ARMED MET", Tests),
    // This is the ID of the process that owns the page.
    ("page/publisher.rs", "AT_EXIT_SET", Word),
    ("page/publisher.rs", "NTH_NAME OWNER", Word),
    ("page/publisher.rs", "PUBLISHED", Held("&PUBLISHED")),
    ("page/sources.rs", "sources", Held("sources()")),
    ("page/sources.rs", "CHECKED", Settled("publish_if_configured()")),
    ("params/environment.rs", "IS_REPORTED", Word),
    ("params/threads.rs", "HOOKS_OF_C", Word),
    ("percpu/fork.rs", "places", Held("places()")),
    // The contents of the bag are the parent's, so the child calls `bag::leave`.
    ("rcu/bag.rs", "OPEN", Reset("bag::leave()")),
    ("rcu/bag.rs", "spares", Word),
    ("rcu/batch.rs", "place", Held("&place().executor")),
    ("rcu/callback.rs", "callbacks", Reset("callbacks().inherit()")),
    ("rcu/local.rs", "global", Reset("global().inherit()")),
    ("rcu/local.rs", "stand_in", Constant),
    ("rcu/srcu/runners.rs", "of_this_run", Tests),
    ("rcu/srcu/runners.rs", "runners", Held("&runners().state")),
    ("rcu/stall.rs", "next_flood NR_REPORTED", Word),
    ("rcu/stall.rs", "handler", Held("stall::handler()")),
    ("rcu/tunables.rs", "BOOST EARLY_QS FIRST_FQS_MS", Word),
    ("rcu/tunables.rs", "FROM_ENV", Settled("settle()")),
    ("rcu/tunables.rs", "NEXT_FQS_MS QHIMARK STALL_TIMEOUT_MS WAKE_FROM_GP", Word),
    ("trace/on/spans.rs", "NR_SPANS", Reset("NR_SPANS.store")),
    ("trace/on/spans.rs", "SPANS", Held("spans()")),
    ("wake/parker.rs", "WAKER", Constant),
    ("wake/hotplug.rs", "watchers", Held("watchers()")),
    ("wake/report.rs", "LEND", Settled("report::lend_by(lend)")),
    ("wake/report.rs", "OBSERVER", Reset("OBSERVER.try_with(|place| place.borrow_mut().take())")),
    ("wake/spin.rs", "MAY", Word),
    ("item/chunks.rs", "home", Held("home()")),
    ("item/chunks.rs", "scanning", Held("scanning()")),
    // A scan is as necessary in the child as in its parent.
    ("item/chunks.rs", "wanted", Word),
    ("item/panicked.rs", "NR_KEPT", Word),
    ("item/revival.rs", "nr_cancels", Word),
    ("workqueue/manage/start.rs", "IS_REPORTED", Word),
    ("item/token.rs", "table", Tests),
    ("workqueue/queues/future.rs", "WAKER", Constant),
    ("workqueue/queues/timers.rs", "ITEM", Constant),
    ("raw/delayed.rs", "RAW", Constant),
    ("raw/runs.rs", "table", Tests),
];

fn rows() -> impl Iterator<Item = (&'static str, &'static str, Over)> {
    LIST.iter().flat_map(|&(file, names, over)| names.split(' ').map(move |it| (file, it, over)))
}

const CRATES: &str = "sync stacks mpscq base rcu percpu mailbox item limit workqueue raw afterwork";

/// Returns the source files that the list covers, by their name in the list, without tests.
fn sources() -> BTreeMap<String, String> {
    let name_of = |file: &str| {
        let (of, name) = file.strip_prefix("crates/")?.split_once("/src/")?;
        let is_covered = CRATES.split(' ').any(|it| it == of) && !source::is_test(file);
        // The folders of `base` appear under their own names.
        let folder = if of == "base" { String::new() } else { format!("{of}/") };
        is_covered.then(|| format!("{folder}{name}"))
    };
    let workspace = Workspace::find().unwrap();
    let texts = workspace.texts(|file| source::is_rust(file) && name_of(file).is_some()).unwrap();
    let named = |(file, text): &(String, String)| Some((name_of(file)?, source::code(text)));
    let sources: BTreeMap<_, _> = texts.iter().filter_map(named).collect();
    assert!(sources.len() > 100, "{} files", sources.len());
    sources
}

/// Returns the names that follow `keyword`.
fn names_after<'a>(text: &'a str, keyword: &'a str) -> impl Iterator<Item = &'a str> {
    let is_word = |byte: char| byte.is_alphanumeric() || byte == '_';
    text.match_indices(keyword).filter_map(move |(at, _)| {
        let before = text[..at].chars().next_back();
        let rest = text[at + keyword.len()..].trim_start();
        let rest = rest.strip_prefix("mut ").unwrap_or(rest);
        let end = rest.find(|byte| !is_word(byte)).unwrap_or(rest.len());
        let is_name = end > 0 && !before.is_some_and(|byte| is_word(byte) || byte == '\'');
        is_name.then_some(&rest[..end])
    })
}

/// Returns the `static`s of a file, and the accessors that `process_wide!` declares.
fn kept_in(text: &str) -> BTreeSet<&str> {
    let mut kept: BTreeSet<_> = names_after(text, "static ").collect();
    for (at, _) in text.match_indices("process_wide! {") {
        kept.extend(names_after(&text[at..], "fn ").next());
    }
    kept
}

/// Returns the same for the variables that need a row.
fn shared_in(text: &str) -> BTreeSet<&str> {
    let mut shared = kept_in(text);
    for (at, _) in text.match_indices("thread_local!") {
        let end = if text[at..].starts_with("thread_local! {\n") { "\n}" } else { "\n" };
        let end = text[at..].find(end).expect("the call ends");
        names_after(&text[at..at + end], "static ").for_each(|name| _ = shared.remove(name));
    }
    shared.retain(|name| !text.contains(&format!("static {name}: PerProcess<")));
    shared
}

#[test]
fn all_state_of_a_process_is_on_the_list() {
    let listed: BTreeSet<_> = rows().map(|(file, name, _)| (file, name)).collect();
    assert_eq!(listed.len(), rows().count(), "a row twice");
    let sources = sources();
    let (mut found, mut shared) = (BTreeSet::new(), BTreeSet::new());
    for (file, text) in &sources {
        // This is the file that defines the macros.
        let is_macro = file == "sync/lib.rs";
        let is_handler = |name: &str| name == "HANDLER" && text.contains("static HANDLER: Handler");
        let names = shared_in(text).into_iter().filter(|name| !is_macro && !is_handler(name));
        shared.extend(names.map(|name| (file.as_str(), name)));
        found.extend(kept_in(text).into_iter().map(|name| (file.as_str(), name)));
    }
    let new: Vec<_> = shared.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(new.is_empty(), "what does a fork do about these? {new:?}");
    assert!(gone.is_empty(), "not there: {gone:?}");
}

#[test]
fn each_listed_static_is_handled_as_listed() {
    let sources = sources();
    let says = |file: &str, text: &str| sources[file].contains(text);
    for (file, name, over) in rows() {
        let folder = file.split('/').next().unwrap();
        let near: Vec<_> = sources.keys().filter(|other| other.starts_with(folder)).collect();
        let declares = |with: &str| sources[file].contains(&format!("static {name}: {with}"));
        let is_done = match over {
            Held(lock) => near.iter().any(|near| says(near, &format!("held.lock({lock})"))),
            HeldFirst(hold) => says("sync/system/fork.rs", hold),
            Settled(call) => {
                let settles = format!("{call};");
                sources.values().any(|source| source.contains(&settles))
            }
            Constant => {
                let kinds = ["RawWakerVTable", "Option<Topology>", "Kind", "extern"];
                kinds.iter().any(|kind| declares(kind)) || name == "stand_in"
            }
            Reset(call) => near.iter().any(|near| says(near, call)),
            Word | Tests => true,
        };
        assert!(is_done, "{file}: {name} is not {over:?}");
        // A single atomic is never partly initialized.
        let is_made_once =
            declares("OnceLock") || declares("Mutex") || declares("std::sync::OnceLock");
        let may_be = !matches!(over, Word | Constant);
        assert!(!is_made_once || may_be, "{file}: {name} is more than {over:?}");
    }
}

#[test]
fn static_is_found_in_any_scope() {
    let text = "static A: u8 = 1;\n\
                pub(super) static B: u8 = 1;\n\
                std::thread_local!(static C: u8 = 1);\n\
                fn f(x: &'static str) { static mut D: u8 = 1; }\n\
                sync::process_wide! {\n    pub(super) fn e() -> u8 = 1\n}\n\
                // static F: u8 = 1;\n\
                #[cfg(all(test, x))]\nmod tests {\n    static G: u8 = 1;\n}\n\
                static H: PerProcess<u8> = 1;\n\
                thread_local! {\n    static I: u8 = 1;\n}\n\
                static J: u8 = 1;\n";
    let text = source::code(text);
    let kept: Vec<_> = kept_in(&text).into_iter().collect();
    assert_eq!(kept, ["A", "B", "C", "D", "H", "I", "J", "e"]);
    let shared: Vec<_> = shared_in(&text).into_iter().collect();
    assert_eq!(shared, ["A", "B", "D", "J", "e"]);
}
