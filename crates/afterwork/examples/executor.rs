//! An async program without another runtime.
//!
//! Pages are fetched from mirrors, some of which never answer. A second queue parses them, and an
//! actor counts them and answers questions. The program itself uses only the thread `main`.
//!
//! | feature | provided by |
//! |---|---|
//! | tasks, joined as they complete | `TaskSet` |
//! | a mirror that does not answer | `timeout` around the request |
//! | a bound on the pages that wait to be parsed | `capacity` and `task().reserve().await` |
//! | an actor with waiting senders | a bounded `Mailbox`: `send().await`, `recv().await` |
//! | a question to the actor | `reply`, `ReplyTo` |
//! | progress | `interval` |
//! | a task that is cancelled | `CancelHandle` |
//!
//! `cargo run --release --example executor -- [PAGES]`

use std::collections::BTreeMap;
use std::error::Error;
use std::future::pending;
use std::time::Duration;

use afterwork::mailbox::{Mailbox, Poster, ReplyTo, reply};
use afterwork::workqueue::{
    CancelHandle, JoinError, TaskSet, Workqueue, block_on, interval, sleep, timeout,
};

type Failure = Box<dyn Error + Send + Sync>;

/// Every tenth page has a mirror that never answers.
const NR_TO_A_HANG: u64 = 10;
const PATIENCE: Duration = Duration::from_millis(2);
/// The number of pages that may wait to be parsed, and to be counted.
const CAPACITY: usize = 16;

fn main() -> Result<(), Failure> {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse());
    run(numbers.next().transpose()?.unwrap_or(10_000))
}

/// Fetches `nr_pages` pages, and checks the actor's counts.
pub fn run(nr_pages: u64) -> Result<(), Failure> {
    block_on(count(nr_pages))
}

enum Mail {
    Page { number: u64, nr_words: u64 },
    HowMany(ReplyTo<usize>),
}

async fn count(nr_pages: u64) -> Result<(), Failure> {
    let tasks = Workqueue::builder("tasks").build()?;
    let parsers = Workqueue::builder("parsers").max_active(2).capacity(CAPACITY).build()?;
    let mailbox = Mailbox::builder().capacity(CAPACITY).build();
    let poster = mailbox.poster();
    let actor = tasks.spawn_async(keep(mailbox));

    let progress = tasks.spawn_async(report(poster.clone())).cancel_on_drop();
    let mut canceller = CancelHandle::default();
    let lost = tasks.task().cancel_handle(&mut canceller).spawn_async(pending::<()>());
    let mut set = TaskSet::new(&tasks);
    for number in 0..nr_pages {
        let (parsers, poster) = (parsers.clone(), poster.clone());
        set.spawn_async(async move { fetch(number, &parsers, &poster).await });
    }
    let (mut nr_fetched, mut nr_second) = (0, 0);
    while let Some(fetched) = set.join_next().await {
        nr_second += u64::from(fetched??);
        nr_fetched += 1;
    }
    assert_eq!(nr_fetched, nr_pages);
    assert!(nr_second >= nr_pages / NR_TO_A_HANG);

    assert!(canceller.cancel());
    assert!(matches!(lost.await, Err(JoinError::Cancelled)));
    assert_eq!(how_many(&poster).await? as u64, nr_pages);
    // This drops all posters, so the actor ends.
    drop((progress, poster));
    let pages = actor.await?;
    for (expected, (number, nr_words)) in pages.into_iter().enumerate() {
        assert_eq!((number, nr_words), (expected as u64, parse(number)));
    }
    println!("{nr_pages} pages, {nr_second} of them from a second mirror");
    tasks.drain_async().await?;
    parsers.drain_async().await?;
    Ok(())
}

/// The actor, which owns the counts.
async fn keep(mut mailbox: Mailbox<Mail>) -> BTreeMap<u64, u64> {
    let mut pages = BTreeMap::new();
    while let Ok(mail) = mailbox.recv().await {
        match mail {
            Mail::Page { number, nr_words } => drop(pages.insert(number, nr_words)),
            // The task that asked may have been cancelled.
            Mail::HowMany(to) => drop(to.reply(pages.len())),
        }
    }
    pages
}

async fn report(poster: Poster<Mail>) -> Result<(), Failure> {
    let mut ticks = interval(Duration::from_millis(100))?;
    loop {
        ticks.tick().await;
        println!("{} pages", how_many(&poster).await?);
    }
}

/// Asks the actor for its count, after all earlier messages.
async fn how_many(poster: &Poster<Mail>) -> Result<usize, Failure> {
    let (to, answer) = reply();
    poster.send(Mail::HowMany(to)).await?;
    Ok(answer.await?)
}

/// Fetches a page, parses it and posts its word count. Returns `true` if a second mirror was asked.
async fn fetch(number: u64, parsers: &Workqueue, poster: &Poster<Mail>) -> Result<bool, Failure> {
    let hangs = number.is_multiple_of(NR_TO_A_HANG);
    let first = timeout(PATIENCE, ask_mirror(number, hangs)).await;
    let asked_second = first.is_err();
    let page = match first {
        Ok(page) => page,
        Err(_elapsed) => ask_mirror(number, false).await,
    };
    let permit = parsers.task().reserve().await;
    let nr_words = permit.spawn(move || parse(page)).await?;
    poster.send(Mail::Page { number, nr_words }).await?;
    Ok(asked_second)
}

/// A placeholder for a request over a socket.
async fn ask_mirror(number: u64, hangs: bool) -> u64 {
    sleep(Duration::from_micros(number % 500)).await;
    if hangs {
        pending::<()>().await;
    }
    number
}

/// A placeholder for a computation.
fn parse(page: u64) -> u64 {
    (0..1000).fold(page, |sum, number| (sum ^ number) + 1) % 1000
}
