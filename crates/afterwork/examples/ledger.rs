//! A ledger that one thread owns, without locks. Transfers wait, and clients cancel them.
//!
//! | common solution | here |
//! |---|---|
//! | `Arc<Mutex<Account>>` and a lock order | `Rc` and `Cell` on the thread of a `Worker` |
//! | a thread for each waiting transfer | a local future for each one: `spawn_local` |
//! | a check under the locks, or a recheck | `queue.spawn(check).await`; accounts stay reserved |
//! | a flag that the client has disconnected | `cancel_on_drop` |
//!
//! `cargo run --release --example ledger -- [CLIENTS [TRANSFERS OF EACH]]`

use std::{
    cell::{Cell, RefCell},
    error::Error,
    future::poll_fn,
    rc::Rc,
    task::{Poll, Waker},
    thread,
    time::Duration,
};

use afterwork::{
    mailbox::{JoinError, Worker},
    workqueue::Workqueue,
};

/// Any error of the example.
pub type Failure = Box<dyn Error + Send + Sync>;

const NR_ACCOUNTS: usize = 16;
const OPENING_BALANCE: u64 = 1000;
/// The time that an impatient client waits.
const PATIENCE: Duration = Duration::from_micros(50);

thread_local! {
    /// The accounts, which live on the worker's thread.
    static LEDGER: [Rc<Account>; NR_ACCOUNTS] = std::array::from_fn(|_| Rc::new(Account::new()));
}

fn main() -> Result<(), Failure> {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse());
    let nr_clients = numbers.next().transpose()?.unwrap_or(8);
    let nr_transfers = numbers.next().transpose()?.unwrap_or(10_000);
    run(nr_clients, nr_transfers)
}

/// Lets `nr_clients` threads make `nr_transfers` transfers each. The total must stay the same.
pub fn run(nr_clients: usize, nr_transfers: usize) -> Result<(), Failure> {
    let ledger = Worker::builder("ledger").build()?;
    let checks = Workqueue::builder("checks").max_active(2).build()?;
    let mut nr_made = 0;
    let mut nr_given_up = 0;
    let pay = |client| pay(client, nr_transfers, &ledger, &checks);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..nr_clients)
            .map(|client| scope.spawn(move || pay(client)))
            .collect();
        // Audits the books between any two steps of transfers.
        while clients.iter().any(|client| !client.is_finished()) {
            assert_eq!(ledger.spawn(total).join()?, total_at_first());
        }
        for client in clients {
            let (made, given_up) = client.join().expect("a client does not panic")?;
            nr_made += made;
            nr_given_up += given_up;
        }
        Ok::<_, JoinError>(())
    })?;
    assert_eq!(nr_made + nr_given_up, nr_clients * nr_transfers);
    assert_eq!(ledger.spawn(total).join()?, total_at_first());
    // Waits until the cancelled transfers have been dropped.
    ledger.shutdown();
    println!(
        "{nr_made} transfers made or declined, {nr_given_up} given up; the books are in order"
    );
    Ok(())
}

/// Makes one client's transfers. Returns the number that completed and that were cancelled.
fn pay(
    client: usize,
    nr_transfers: usize,
    ledger: &Worker,
    checks: &Workqueue,
) -> Result<(usize, usize), JoinError> {
    let (mut nr_made, mut nr_given_up) = (0, 0);
    for number in 0..nr_transfers {
        let from = (client + number) % NR_ACCOUNTS;
        let to = (from + 1 + number % (NR_ACCOUNTS - 1)) % NR_ACCOUNTS;
        let checks = checks.clone();
        let transfer = ledger.spawn_local(move || transfer(from, to, number as u64 % 90, checks));
        if number % 8 == 0 {
            // After the timeout the handle is dropped, which cancels the transfer.
            match transfer.cancel_on_drop().join_timeout(PATIENCE) {
                Some(made) => _ = made?,
                None => {
                    nr_given_up += 1;
                    continue;
                }
            }
        } else {
            transfer.join()?;
        }
        nr_made += 1;
    }
    Ok((nr_made, nr_given_up))
}

/// Moves money if the balance suffices and the check passes. May be dropped at any `.await`.
async fn transfer(from: usize, to: usize, amount: u64, checks: Workqueue) -> bool {
    // Accounts are reserved in one order, so that no two transfers wait for each other.
    let [first, second] = [from.min(to), from.max(to)].map(account);
    let _kept = (first.keep().await, second.keep().await);
    let is_fine = checks.spawn(move || check(from, to, amount)).await;
    let [payer, payee] = [from, to].map(account);
    let is_made = is_fine.unwrap_or(false) && payer.balance.get() >= amount;
    if is_made {
        payer.balance.set(payer.balance.get() - amount);
        payee.balance.set(payee.balance.get() + amount);
    }
    is_made
}

/// A placeholder for a computation.
fn check(from: usize, to: usize, amount: u64) -> bool {
    let digest = (0..1000_u64).fold(amount, |digest, round| {
        digest.rotate_left(5) ^ (round + from as u64 + to as u64)
    });
    !digest.is_multiple_of(16)
}

fn account(number: usize) -> Rc<Account> {
    LEDGER.with(|accounts| accounts[number].clone())
}

fn total() -> u64 {
    LEDGER.with(|accounts| accounts.iter().map(|account| account.balance.get()).sum())
}

const fn total_at_first() -> u64 {
    NR_ACCOUNTS as u64 * OPENING_BALANCE
}

struct Account {
    balance: Cell<u64>,
    is_kept: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
}

/// Keeps an account reserved for one transfer.
struct Kept(Rc<Account>);

impl Account {
    fn new() -> Self {
        Self {
            balance: Cell::new(OPENING_BALANCE),
            is_kept: Cell::new(false),
            waiting: RefCell::default(),
        }
    }

    async fn keep(self: Rc<Self>) -> Kept {
        poll_fn(|cx| {
            if self.is_kept.replace(true) {
                self.waiting.borrow_mut().push(cx.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
        Kept(self)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.is_kept.set(false);
        // All waiters are woken, because the first one may have been cancelled.
        self.0.waiting.take().into_iter().for_each(Waker::wake);
    }
}
