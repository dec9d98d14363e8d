//! The injector, the thread-local lists and the gate, each on its own.

use crate::support::*;

/// Checks that the items of each producer arrive in order, and counts them.
#[derive(Default)]
struct Got {
    next: [usize; 3],
    total: usize,
}

impl Got {
    fn take(&mut self, items: Vec<Pushed>) {
        for (from, number) in items.into_iter().map(Pushed::open) {
            assert_eq!(
                number, self.next[from],
                "out of the order of producer {from}"
            );
            self.next[from] += 1;
            self.total += 1;
        }
    }
}

/// Two producers, of single items and of a chain. The consumer starts last, because loom looks for
/// a conflict only at the last access to a word.
fn inject() {
    let injected = Arc::new(Injected::default());
    let singles = spawn_with(injected.clone(), move |injected| {
        injected.push(0, 0);
        injected.push(0, 1);
    });
    let chain = spawn_with(injected.clone(), move |injected| injected.push_chain(1, 2));
    let taker = spawn_with(injected.clone(), move |injected| {
        let mut got = Got::default();
        got.take(injected.take());
        got
    });
    singles.join().unwrap();
    chain.join().unwrap();
    let mut got = taker.join().unwrap();
    got.take(injected.take());
    assert_eq!(got.total, 4);
}

/// A joiner takes its own item back while another producer pushes and a worker takes.
fn take_back() {
    let injected = Arc::new(Injected::default());
    injected.push(0, 0);
    let (own, _) = injected.push(1, 0);
    let producer = spawn_with(injected.clone(), move |injected| injected.push(2, 0).1);
    let taker = spawn_with(injected.clone(), move |injected| injected.take());
    let back = injected.take_back(own);
    producer.join().unwrap();
    let mut got = Got::default();
    got.take(back.into_iter().collect());
    got.take(taker.join().unwrap());
    got.take(injected.take());
    assert_eq!(got.total, 3);
}

models! {
    fn injected_items_arrive_whole_and_in_order() = exhaustive(inject);
    fn an_item_taken_back_tears_no_hole() = exhaustive(take_back);
    fn injecting_needs_release() = must_fail("stack: relaxed push", || exhaustive(inject));
    fn taking_injected_items_needs_acquire() =
        must_fail("stack: relaxed take", || exhaustive(inject));
}

/// A thread learns of an item before its push, for example from its state, and takes it back from
/// above another one. That thread starts last: see `inject`.
fn take_back_beside_the_push() {
    let injected = Arc::new(Injected::default());
    injected.push(0, 0);
    let item = Injected::make(1, 0);
    let other = spawn_with(injected.clone(), move |injected| injected.take_back(item));
    injected.push_made(item);
    let back = other.join().unwrap();
    let mut got = Got::default();
    got.take(back.into_iter().collect());
    got.take(injected.take());
    assert_eq!(got.total, 2);
}

models! {
    fn an_item_that_is_taken_back_beside_its_push_tears_no_hole() =
        exhaustive(take_back_beside_the_push);
    fn recalling_an_item_must_see_its_push() =
        must_fail("inject: relaxed read", || exhaustive(take_back_beside_the_push));
}

/// A thread releases the only seat while another requests it, and finds it or receives it.
fn one_seat() {
    let gates = Arc::new(Gates::new(1));
    assert!(gates.try_enter());
    let other = spawn_with(gates.clone(), move |gates| gates.enter_or_queue(7));
    let passed = gates.leave();
    let seated = other.join().unwrap();
    assert!(
        seated || passed == Some(7),
        "the seat is free and somebody waits for it"
    );
    assert!(!(seated && passed.is_some()), "one seat for two");
    assert_eq!(gates.nr_active(), 1);
}

/// As above, while the limit is lowered and raised.
fn seats_that_change() {
    let gates = Arc::new(Gates::new(2));
    assert!(gates.try_enter() && gates.try_enter());
    let other = spawn_with(gates.clone(), move |gates| gates.enter_or_queue(7));
    let changer = spawn_with(gates.clone(), move |gates| {
        let mut seated = gates.set_max(1);
        seated.extend(gates.set_max(2));
        seated
    });
    let mut passed: Vec<_> = gates.leave().into_iter().collect();
    let seated = other.join().unwrap();
    passed.extend(changer.join().unwrap());
    assert!(
        seated || passed == [7],
        "a seat is free and somebody waits for it"
    );
    assert_eq!(gates.nr_active(), 2);
}

models! {
    fn seat_is_never_lost_between_release_and_wait() = exhaustive(one_seat);
    fn a_seat_is_never_forgotten_while_the_limit_changes() = bounded(3, seats_that_change);
    fn standing_in_line_needs_a_second_look() =
        must_fail("active: no second check", || exhaustive(one_seat));
    fn a_seat_that_leaks_is_found() =
        must_fail("active: a seat that leaks", || bounded(3, seats_that_change));
    fn a_seat_given_twice_is_found() =
        must_fail("active: a seat given twice", || exhaustive(one_seat));
}

/// Acquires all four seats. Seats that are released then stay in the seat cache of their node.
fn all_seated() -> Gates {
    let gates = Gates::with_stocks(4);
    assert!(gates.try_enter());
    assert!((0..3).all(|_| gates.at(1).try_enter()));
    gates
}

/// A seat is released to a seat cache while the other node requests it, and finds or receives it.
fn a_stock_meets_a_line() {
    let gates = all_seated();
    let other = spawn_with(gates.at(1), move |gates| gates.enter_or_queue(7));
    let passed = gates.leave();
    let seated = other.join().unwrap();
    assert!(
        seated || passed == Some(7),
        "a seat is kept and somebody waits for it"
    );
    assert!(!(seated && passed.is_some()), "one seat for two");
    assert_eq!(gates.nr_active(), 4);
}

/// A runner releases its seat to a seat cache. A drain sees the effects of the run, or is notified.
fn a_stock_meets_a_drain() {
    let (gates, has_run) = (Gates::with_stocks(4), Arc::new(AtomicU32::new(0)));
    assert!(gates.try_enter(), "and the stocks are open");
    let runner = spawn_with((gates.clone(), has_run.clone()), move |(gates, has_run)| {
        has_run.store(1, Ordering::Relaxed);
        gates.leave_last()
    });
    let idle = gates.is_idle();
    let seen = has_run.load(Ordering::Relaxed);
    let notified = runner.join().unwrap();
    assert!(idle || notified, "the drain sleeps for ever");
    assert!(!idle || seen == 1, "the queue goes before its item has run");
}

/// A helper that a seat cache counts, and a flush, as above.
fn a_stock_meets_a_flush() {
    let (gates, has_run) = (Gates::with_stocks(4), Arc::new(AtomicU32::new(0)));
    assert!(gates.try_enter(), "and the stocks are open");
    assert_eq!(gates.leave(), None, "and one seat is kept");
    let helps = gates.help().unwrap();
    let helper = spawn_with((gates.clone(), has_run.clone()), move |(gates, has_run)| {
        has_run.store(1, Ordering::Relaxed);
        gates.end_help(helps)
    });
    let flush = gates.flush();
    let ended = flush.has_ended();
    let seen = has_run.load(Ordering::Relaxed);
    let notified = helper.join().unwrap();
    assert!(ended || notified, "the flush sleeps for ever");
    assert!(
        !ended || seen == 1,
        "the flush ends before an item that was queued before it"
    );
    assert!(flush.has_ended());
}

models! {
    fn cached_seat_is_found_by_a_waiter() = exhaustive(a_stock_meets_a_line);
    fn drain_sees_writes_of_holders_of_cached_seats() = exhaustive(a_stock_meets_a_drain);
    fn flush_sees_writes_of_helpers_counted_in_stocks() = exhaustive(a_stock_meets_a_flush);
    fn stocks_that_are_not_closed_are_found() =
        must_fail("stock: a wait queue leaves it open", || exhaustive(a_stock_meets_a_line)),
        must_fail("stock: a drain leaves it open", || exhaustive(a_stock_meets_a_drain)),
        must_fail("stock: a flush leaves it open", || exhaustive(a_stock_meets_a_flush));
    fn closing_stocks_must_see_writes_and_be_notified() =
        must_fail("stock: relaxed transitions", || exhaustive(a_stock_meets_a_drain)),
        must_fail("stock: relaxed read of the helpers", || exhaustive(a_stock_meets_a_flush)),
        must_fail("stock: the last helper does not notify", || exhaustive(a_stock_meets_a_flush));
}

/// The owner uses its value twice, and the collector checks twice. Each takes the whole value.
fn owner_meets_scanner() {
    let shared_count = Arc::new(SharedCount::default());
    let owner = spawn_with(shared_count.clone(), move |shared_count| {
        (0..2).filter_map(|_| shared_count.add()).sum::<u32>()
    });
    let taken: u32 = (0..2).filter_map(|_| shared_count.scan().1).sum();
    let given = owner.join().unwrap();
    // Both are done, so the value is no longer in use.
    assert_eq!(given + taken + shared_count.scan().1.unwrap_or(0), 2);
}

models! {
    fn owner_and_scanner_never_use_the_data_together() = exhaustive(owner_meets_scanner);
    fn the_looker_must_pass_a_barrier() =
        must_fail("biased: scans without a barrier", || exhaustive(owner_meets_scanner));
    fn the_looker_must_not_overlook_the_owner() =
        must_fail("biased: overlooks the owner", || exhaustive(owner_meets_scanner));
    fn scanner_must_not_take_data_that_was_taken_back() =
        must_fail("biased: overlooks a recall", || exhaustive(owner_meets_scanner));
    fn writes_of_the_owner_are_seen() =
        must_fail("biased: relaxed leave", || exhaustive(owner_meets_scanner)),
        must_fail("biased: relaxed scan", || exhaustive(owner_meets_scanner));
    fn writes_of_the_scanner_are_seen() =
        must_fail("biased: relaxed return", || exhaustive(owner_meets_scanner)),
        must_fail("biased: relaxed read of the ask", || exhaustive(owner_meets_scanner));
}

/// A thread returns a value while the collector checks.
fn remote_add_meets_scanner() {
    let shared_count = Arc::new(SharedCount::default());
    let adder = spawn_with(shared_count.clone(), move |shared_count| {
        shared_count.add_remote()
    });
    let (added, _) = shared_count.scan();
    let notified = adder.join().unwrap();
    assert!(notified || added == 1, "it lies there, and nobody looks");
}

#[test]
fn remote_addition_is_taken_or_notified() {
    exhaustive(remote_add_meets_scanner);
    for twin in [
        "biased: adds without a barrier",
        "biased: adds without notifying",
    ] {
        must_fail(twin, || exhaustive(remote_add_meets_scanner));
    }
}
