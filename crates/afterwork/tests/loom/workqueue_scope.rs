//! Scopes: their end while a guest panics, an item that is taken back, and a sleeping owner.
//!
//! Guests are threads of the model that run a ticket. The scheduler may run no worker.

use crate::support::*;

/// A guest runs an item that writes and panics. The owner ends the scope and writes.
fn end_races_with_a_panicking_guest() {
    let scope = OpenScope::new(false);
    let word = Arc::new(Plain::default());
    let theirs = word.clone();
    scope.bring(move || {
        theirs.set(theirs.get() + 1);
        std::panic::resume_unwind(Box::new("an item"));
    });
    let guest = spawn_with(scope.clone(), move |scope| scope.visit());
    assert!(scope.finish());
    assert_eq!(word.get(), 1);
    word.set(2);
    guest.join().unwrap();
    assert_eq!(word.get(), 2);
}

fn item_is_added_while_a_guest_leaves() {
    let scope = OpenScope::new(false);
    let is_started = Arc::new(AtomicBool::new(false));
    let guest = spawn(scope.ticket());
    let theirs = is_started.clone();
    scope.bring(move || theirs.store(true, Ordering::Relaxed));
    let is_sent = scope.wants_ticket();
    guest.join().unwrap();
    assert!(is_sent || is_started.load(Ordering::Relaxed));
    scope.finish();
}

fn owner_claims_the_item_that_a_worker_starts() {
    let word = Arc::new(Plain::default());
    let theirs = word.clone();
    let pair = OpenPair::new(move || theirs.set(theirs.get() + 1));
    let guest = spawn_with(pair.clone(), move |pair| pair.visit());
    pair.finish();
    assert_eq!(word.get(), 1);
    word.set(2);
    guest.join().unwrap();
    assert_eq!(word.get(), 2);
}

/// A guest waits for an item that it added. The owner must start it, even if it sleeps.
fn guest_adds_an_item_for_a_sleeping_owner() {
    let scope = OpenScope::new(false);
    let (gate, started) = (Arc::new(Barred::default()), Arc::new(Barred::default()));
    let (inner, starts) = (scope.clone(), started.clone());
    scope.bring(move || {
        starts.open();
        let opens = gate.clone();
        inner.bring(move || opens.open());
        gate.pass();
    });
    let guest = spawn_with(scope.clone(), move |scope| scope.visit());
    started.pass();
    scope.finish();
    guest.join().unwrap();
}

/// A guest takes two items off the stack. It starts the first, which waits for the second.
fn guest_leaves_items_in_the_list() {
    let scope = OpenScope::new(false);
    let started = Arc::new(Barred::default());
    let (inner, starts) = (scope.clone(), started.clone());
    scope.bring(move || {
        starts.open();
        let gate = Arc::new(Barred::default());
        let opens = gate.clone();
        inner.bring(move || gate.pass());
        inner.bring(move || opens.open());
    });
    let guest = spawn_with(scope.clone(), move |scope| scope.visit());
    started.pass();
    scope.finish();
    guest.join().unwrap();
}

/// The guest is inside when the owner writes an item's data and then adds the item.
fn item_is_added_for_a_guest() {
    let scope = OpenScope::new(false);
    let word = Arc::new(Plain::default());
    let guest = spawn_with(scope.clone(), move |scope| scope.visit());
    word.set(7);
    let theirs = word.clone();
    scope.bring(move || assert_eq!(theirs.get(), 7));
    assert!(!scope.finish());
    guest.join().unwrap();
}

fn items_in_order() {
    let scope = OpenScope::new(true);
    let word = Arc::new(Plain::default());
    for turn in 0..2 {
        let word = word.clone();
        scope.bring(move || {
            assert_eq!(word.get(), turn);
            word.set(turn + 1);
        });
    }
    let guest = spawn_with(scope.clone(), move |scope| scope.visit());
    assert!(!scope.finish());
    assert_eq!(word.get(), 2);
    guest.join().unwrap();
}

fn two_threads_share_a_range() {
    let range = OpenRange::new(3);
    let words: Arc<[Plain; 3]> = Arc::default();
    let work = |words: &[Plain; 3], at: usize| words[at].set(words[at].get() + 1);
    let guest = spawn_with((range.clone(), words.clone()), move |(range, words)| {
        range.serve(|at| work(&words, at))
    });
    range.serve(|at| work(&words, at));
    guest.join().unwrap();
    assert!(words.iter().all(|word| word.get() == 1));
}

fn scope_on_a_queue() {
    let (_machine, queue) = queue(1, false);
    let ended = AtomicBool::new(false);
    let word = Plain::default();
    queue.scope(|s| {
        s.spawn(|| {
            word.set(1);
            ended.store(true, Ordering::Relaxed);
        });
    });
    assert!(ended.load(Ordering::Relaxed));
    word.set(2);
    wind_up(queue);
}

fn join_on_a_queue() {
    let (_machine, queue) = queue(1, false);
    let word = Plain::default();
    let add = |queue: &Workqueue| {
        // This join is nested in another one, and is offered if a worker is free for it.
        queue.join(|| (), || word.set(word.get() + 1));
    };
    queue.join(|| (), || add(&queue));
    assert_eq!(word.get(), 1);
    wind_up(queue);
}

models! {
    fn a_scope_ends_after_its_guests() =
        bounded(3, end_races_with_a_panicking_guest).detects([
            "crew: the end overlooks guests",
            "crew: the last guest does not wake the owner",
        ]);
    fn item_added_as_a_guest_leaves_is_run_or_gets_a_ticket() =
        exhaustive(item_is_added_while_a_guest_leaves)
            .detects(["crew: tickets of leaving guests are enough"]);
    fn a_closure_runs_once_whether_its_owner_or_a_worker_is_first() =
        exhaustive(owner_claims_the_item_that_a_worker_starts).detects([
            "crew: relaxed leave",
            "crew: a guest enters after the end",
            "crew: the end overlooks guests",
        ]);
    fn sleeping_owner_starts_an_item_added_by_a_guest() =
        bounded(3, guest_adds_an_item_for_a_sleeping_owner)
            .detects(["scope: the owner is not woken"]);
    fn sleeping_owner_leaves_no_item_in_the_list() =
        bounded(3, guest_leaves_items_in_the_list).detects(["scope: a mark next to items"]);
    fn guest_sees_writes_before_its_item_was_added() =
        bounded(3, item_is_added_for_a_guest).detects(["stack: relaxed push"]);
    fn items_of_an_ordered_queue_run_one_at_a_time_on_any_thread() =
        bounded(3, items_in_order).detects(["scope: items overlap"]);
    fn each_element_of_a_range_is_one_participants() =
        exhaustive(two_threads_share_a_range).detects(["pieces: a piece is taken without a check"]);
    fn a_scope_of_a_queue_ends_after_its_item() = bounded(2, scope_on_a_queue);
    fn both_parts_of_a_join_have_ended_when_it_returns() = bounded(2, join_on_a_queue);
}
