//! Models of single parts: the injector, the gate, and the slabs of item memory.

use crate::support::*;

/// Checks that the items of each producer arrive in order, and counts them.
#[derive(Default)]
struct Got {
    next: [usize; 3],
    total: usize,
}

impl Got {
    fn take(&mut self, items: impl IntoIterator<Item = Pushed>) {
        for (from, number) in items.into_iter().map(Pushed::open) {
            assert_eq!(number, self.next[from], "out of the order of producer {from}");
            self.next[from] += 1;
            self.total += 1;
        }
    }
}

/// The consumer starts last, because loom checks for a conflict only at the last access to a word.
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
    got.take(back);
    got.take(taker.join().unwrap());
    got.take(injected.take());
    assert_eq!(got.total, 3);
}

/// A thread takes an item back while it is pushed above another one. It starts last: see `inject`.
fn recall_races_with_the_push() {
    let injected = Arc::new(Injected::default());
    injected.push(0, 0);
    let item = Injected::make(1, 0);
    let other = spawn_with(injected.clone(), move |injected| injected.take_back(item));
    injected.push_made(item);
    let back = other.join().unwrap();
    let mut got = Got::default();
    got.take(back);
    got.take(injected.take());
    assert_eq!(got.total, 2);
}

fn one_seat() {
    let gates = Arc::new(Gates::new(1));
    assert!(gates.try_enter());
    let other = spawn_with(gates.clone(), move |gates| gates.enter_or_queue(7));
    let passed = gates.leave();
    let seated = other.join().unwrap();
    assert!(seated || passed == Some(7), "the seat is free while a pwq waits for it");
    assert!(!(seated && passed.is_some()), "one seat for two");
    assert_eq!(gates.nr_active(), 1);
}

/// The same as `one_seat`, while the limit is lowered and raised.
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
    assert!(seated || passed == [7], "a seat is free while a pwq waits for it");
    assert_eq!(gates.nr_active(), 2);
}

/// Acquires all four seats. Seats that are released then stay in the seat cache of their node.
fn all_seated() -> Gates {
    let gates = Gates::with_stocks(4);
    assert!(gates.try_enter());
    assert!((0..3).all(|_| gates.at(1).try_enter()));
    gates
}

/// A seat is released to a seat cache while the other node requests it, and finds or receives it.
fn stock_races_with_a_waiter() {
    let gates = all_seated();
    let other = spawn({
        let gates = gates.at(1);
        move || gates.enter_or_queue(7)
    });
    let passed = gates.leave();
    let seated = other.join().unwrap();
    assert!(seated || passed == Some(7), "a seat is cached while a pwq waits for it");
    assert!(!(seated && passed.is_some()), "one seat for two");
    assert_eq!(gates.nr_active(), 4);
}

/// A runner releases its seat to a seat cache. A drain sees the effects of the run, or is notified.
fn stock_races_with_a_drain() {
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
    assert!(!idle || seen == 1, "the queue is destroyed before its item has run");
}

/// A helper that a seat cache counts ends. A flush sees the effects of the run, or is notified.
fn stock_races_with_a_flush() {
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
    assert!(!ended || seen == 1, "the flush ends before an item that was queued before it");
    assert!(flush.has_ended());
}

/// Two threads free a block each while the owner allocates. It starts last: see `inject`.
fn freers_meet_owner(alloc: fn(&Blocks) -> [bool; 2]) {
    let blocks = Arc::new(Blocks::new(false));
    let freers = [0, 1].map(|nth| spawn_with(blocks.clone(), move |blocks| blocks.free(nth)));
    let owner = spawn_with(blocks.clone(), move |blocks| [alloc(&blocks), alloc(&blocks)]);
    freers.into_iter().for_each(|freer| _ = freer.join().unwrap());
    let [first, second] = owner.join().unwrap();
    let found = [first, second, blocks.alloc_lowest()];
    for nth in 0..2 {
        let times = found.iter().filter(|has| has[nth]).count();
        assert_eq!(times, 1, "how often a freed block is found");
    }
}

/// The owner allocates and frees blocks while the scanner scans. No block and no page is lost.
fn owner_races_with_scanner() {
    let blocks = Arc::new(Blocks::new(true));
    let owner = spawn_with(blocks.clone(), move |blocks| {
        let has = blocks.alloc();
        (0..2).filter(|nth| has[*nth]).for_each(|nth| _ = blocks.free(nth));
    });
    blocks.scan();
    owner.join().unwrap();
    assert!(blocks.return_pages(), "a page is left");
    assert_eq!(blocks.alloc_lowest(), [true; 2], "the blocks are found");
}

fn freers_meet_scanner() {
    let blocks = Arc::new(Blocks::new(false));
    let freers = [0, 1].map(|nth| spawn_with(blocks.clone(), move |blocks| blocks.free(nth)));
    let is_discarded = blocks.scan();
    let notified = freers.map(|freer| freer.join().unwrap());
    assert!(is_discarded || notified.contains(&true), "no scan is scheduled for a free chunk");
}

models! {
    fn freed_blocks_are_seen_and_found() =
        exhaustive(|| freers_meet_owner(Blocks::alloc)),
        exhaustive(|| freers_meet_owner(Blocks::alloc_lowest)).detects([
            "chunk: relaxed free",
            "chunk: relaxed take",
            "chunk: clears the ready bit late",
        ]);
    fn scanner_has_the_chunks_that_it_discards() =
        exhaustive(owner_races_with_scanner).detects([
            "chunk: relaxed claim",
            "chunk: claims blocks in use",
            "chunk: is clean after its return",
        ]);
    fn freed_chunk_is_scanned_or_notified() =
        exhaustive(freers_meet_scanner)
            .detects(["chunk: notifies without a fence", "chunk: scans without a fence"]);
    fn injected_items_arrive_whole_and_in_order() =
        exhaustive(inject).detects(["stack: relaxed push", "stack: relaxed take"]);
    fn recalled_item_leaves_no_gap() = exhaustive(take_back);
    fn item_recalled_during_its_push_leaves_no_gap() =
        exhaustive(recall_races_with_the_push).detects(["inject: relaxed read"]);
    fn seat_is_never_lost_between_release_and_wait() =
        exhaustive(one_seat).detects(["active: no second check", "active: a seat given twice"]);
    fn a_seat_is_never_forgotten_while_the_limit_changes() =
        bounded(3, seats_that_change).detects(["active: a seat that leaks"]);
    fn cached_seat_is_found_by_a_waiter() =
        exhaustive(stock_races_with_a_waiter).detects(["stock: a wait queue leaves it open"]);
    fn drain_sees_writes_of_holders_of_cached_seats() =
        exhaustive(stock_races_with_a_drain)
            .detects(["stock: a drain leaves it open", "stock: relaxed transitions"]);
    fn flush_sees_writes_of_helpers_counted_in_stocks() =
        exhaustive(stock_races_with_a_flush).detects([
            "stock: a flush leaves it open",
            "stock: relaxed read of the helpers",
            "stock: the last helper does not notify",
        ]);
}
