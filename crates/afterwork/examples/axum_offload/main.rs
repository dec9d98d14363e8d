//! An axum server that computes on a queue with a capacity, and its behavior under overload.
//!
//! | event | effect | by |
//! |---|---|---|
//! | the queue is full | 503 at once | `JoinError::Full` |
//! | a request has not started in time | 504, and it never starts | `task().deadline(…)` |
//! | a client disconnects | its item is cancelled | `cancel_on_drop` |
//! | shutdown, a client hangs | a report; others are cancelled | `drain_timeout`, `cancel_all` |
//!
//! The queue is paused where the order matters. Memory is sampled and plotted during the flood.
//! `cargo run --release --example axum_offload -- [REQUESTS [CLIENTS]]`

mod clients;
mod server;

use std::{
    io,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use afterwork::workqueue::{self, DrainError, block_on, timeout};

use clients::{Client, plot, resident, until};
use server::{CAPACITY, Failure, Server, digest_of};

/// The limit of each step of the shutdown.
const GRACE: Duration = Duration::from_millis(100);
const SAMPLE_EVERY: Duration = Duration::from_millis(10);
/// The limit of memory growth in bytes: more than the queue needs, less than an unbounded flood.
const MAX_GROWTH: u64 = 64 << 20;

fn main() -> Result<(), Failure> {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse());
    let nr_requests = numbers.next().transpose()?.unwrap_or(100_000);
    let nr_clients = numbers.next().transpose()?.unwrap_or(64);
    run(nr_requests, nr_clients)
}

/// Makes `nr_requests` requests on `nr_clients` connections. Then tests each event of the table.
pub fn run(nr_requests: u64, nr_clients: u64) -> Result<(), Failure> {
    let server = Server::start()?;
    server.shed()?;
    server.forget_leaving()?;
    server.expire()?;
    server.flood(nr_requests, nr_clients)?;
    server.shut_down()
}

impl Server {
    /// Fills the queue. One more request is rejected, and those in the queue are answered.
    fn shed(&self) -> Result<(), Failure> {
        self.queue.pause();
        let mut inside = self.ask_all(CAPACITY)?;
        self.wait_for_capacity(0);
        assert_eq!(Client::new(self.address)?.ask("/digest/0")?.0, 503);
        assert_eq!(
            Client::new(self.address)?.ask("/digest/0/within/60000")?.0,
            503
        );
        self.queue.resume();
        for (seed, client) in inside.iter_mut().enumerate() {
            let digest = digest_of(seed as u64).to_string();
            assert_eq!(client.answer()?, (200, digest));
        }
        Ok(())
    }

    fn forget_leaving(&self) -> Result<(), Failure> {
        self.queue.pause();
        let clients = self.ask_all(3)?;
        self.wait_for_capacity(CAPACITY - 3);
        drop(clients);
        // The queue is paused, so the requests were cancelled.
        self.wait_for_capacity(CAPACITY);
        self.queue.resume();
        Ok(())
    }

    fn expire(&self) -> Result<(), Failure> {
        self.queue.pause();
        let nr_before = self.queue.stats().expired;
        let mut client = Client::new(self.address)?;
        client.send("/digest/0/within/1")?;
        // The deadline may pass before the request reaches the queue.
        let has_come = || self.queue.report().free_capacity < Some(CAPACITY);
        until(|| has_come() || self.queue.stats().expired > nr_before);
        thread::sleep(Duration::from_millis(2));
        self.queue.resume();
        assert_eq!(client.answer()?.0, 504);
        Ok(())
    }

    fn flood(&self, nr_requests: u64, nr_clients: u64) -> Result<(), Failure> {
        let samples = Arc::new(Mutex::new(vec![resident()]));
        let theirs = samples.clone();
        let sample = move || theirs.lock().unwrap().push(resident());
        let sampling = workqueue::system_unbound()?.every(SAMPLE_EVERY, sample)?;

        let counts = thread::scope(|scope| -> io::Result<[u64; 3]> {
            let ask =
                |client| move || self.ask_many((client..nr_requests).step_by(nr_clients as usize));
            let clients: Vec<_> = (0..nr_clients)
                .map(|client| scope.spawn(ask(client)))
                .collect();
            let mut sum = [0; 3];
            for client in clients {
                let counts = client.join().expect("a client panicked")?;
                sum = [0, 1, 2].map(|it| sum[it] + counts[it]);
            }
            Ok(sum)
        })?;
        sampling.cancel_sync();

        let [nr_answered, nr_shed, nr_late] = counts;
        assert_eq!(nr_answered + nr_shed + nr_late, nr_requests);
        println!(
            "{nr_requests} requests: {nr_answered} answered, {nr_shed} shed, {nr_late} too late"
        );
        let samples = samples.lock().unwrap();
        plot(&samples, SAMPLE_EVERY);
        let growth = samples
            .iter()
            .max()
            .map_or(0, |most| most - samples[0].min(*most));
        assert!(growth <= MAX_GROWTH, "memory grew by {growth} bytes");
        Ok(())
    }

    /// Returns the numbers of requests that were answered, rejected and late.
    fn ask_many(&self, seeds: impl Iterator<Item = u64>) -> io::Result<[u64; 3]> {
        let mut client = Client::new(self.address)?;
        let mut counts = [0; 3];
        for seed in seeds {
            let limit = if seed % 2 == 0 { "" } else { "/within/50" };
            let (status, body) = client.ask(&format!("/digest/{seed}{limit}"))?;
            match status {
                200 => assert_eq!(body, digest_of(seed).to_string()),
                503 | 504 => assert_eq!(body, ""),
                other => panic!("status {other}: {body}"),
            }
            counts[[200, 503, 504].iter().position(|it| *it == status).unwrap()] += 1;
        }
        Ok(counts)
    }

    /// One client waits for an event that never occurs, and three others for a paused queue.
    fn shut_down(self) -> Result<(), Failure> {
        let nr_polls = self.queue.stats().started;
        let mut hanging = Client::new(self.address)?;
        hanging.send("/event")?;
        until(|| self.queue.stats().started > nr_polls);
        self.queue.pause();
        let mut behind = self.ask_all(3)?;
        self.wait_for_capacity(CAPACITY - 3);

        let start = Instant::now();
        // The server accepts no connections from here on, and no requests after the drain.
        let _ = self.stop.send(());
        match self.queue.drain_timeout(GRACE) {
            Err(DrainError::StillBusy(busy)) => {
                println!("{busy}");
                assert_eq!(busy.nr_left, 4);
            }
            other => panic!("a client hangs, but {other:?}"),
        }
        assert_eq!(self.queue.cancel_all(), 3);
        for client in &mut behind {
            assert_eq!(client.answer()?.0, 503);
        }
        // The server waits for the hanging client. The shutdown of the runtime cancels it.
        assert!(block_on(timeout(GRACE, self.served)).is_err());
        self.runtime.shutdown_timeout(GRACE);
        self.queue.resume();
        self.queue.drain()?;
        println!(
            "shut down in {} ms, a client hanging",
            start.elapsed().as_millis()
        );
        Ok(())
    }

    fn ask_all(&self, count: usize) -> io::Result<Vec<Client>> {
        let ask = |seed| {
            let mut client = Client::new(self.address)?;
            client.send(&format!("/digest/{seed}"))?;
            Ok(client)
        };
        (0..count).map(ask).collect()
    }

    fn wait_for_capacity(&self, room: usize) {
        until(|| self.queue.report().free_capacity == Some(room));
    }
}
