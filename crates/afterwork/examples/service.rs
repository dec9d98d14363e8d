//! An axum server that computes on a queue, and handles overload, disconnected clients and SIGTERM.
//!
//! | event | effect | provided by |
//! |---|---|---|
//! | 64 requests wait | 503 at once | `capacity`, `JoinError::Full` |
//! | a request has waited for 100 ms | 504, and it never starts | `task().deadline(…)` |
//! | a client disconnects | its request is cancelled, or stops | `cancel_on_drop`, `is_cancelled` |
//! | SIGTERM while a client hangs | a timely end that names unfinished work | `shutdown_async` |
//!
//! `cargo run --release --example service`

use std::error::Error;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use afterwork::workqueue::{
    CancellationToken, DrainError, JoinError, Registry, Workqueue, is_cancelled, timeout,
    timeout_at,
};
use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use rustix::process::{Signal, getpid, kill_process};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{JoinHandle, JoinSet};

type Failure = Box<dyn Error + Send + Sync>;

/// The number of requests that may wait, and the time that each of them may wait.
const CAPACITY: usize = 64;
const PATIENCE: Duration = Duration::from_millis(100);

fn main() -> Result<(), Failure> {
    run(Duration::from_millis(4900)) // so that it ends within five seconds
}

/// Tests each event in the table, with `grace` as the time limit for the shutdown.
pub fn run(grace: Duration) -> Result<(), Failure> {
    let runtime = Runtime::new()?;
    let tests = async {
        overload().await?;
        terminate(grace).await
    };
    let result = runtime.block_on(timeout(Duration::from_secs(60), tests));
    // Drops the connections of clients that hang.
    runtime.shutdown_background();
    result?
}

/// The queue, the registry whose clock decides whether a request is late, and the log.
type Shared = (Workqueue, Registry, UnboundedSender<String>);

struct Server {
    queue: Workqueue,
    address: SocketAddr,
    log: UnboundedReceiver<String>,
    /// Completes when the server has ended.
    end: JoinHandle<Result<(), DrainError>>,
}

impl Server {
    /// Starts a server, which ends at most `grace` after SIGTERM.
    async fn start(registry: &Registry, grace: Duration) -> Result<Self, Failure> {
        let requests = Workqueue::builder("requests").capacity(CAPACITY);
        let queue = requests.max_active(2).build_in(registry)?;
        let (sender, log) = unbounded_channel();
        let app = Router::new().route("/digest/{seed}/{nr_rounds}", get(digest));
        let app = app.with_state((queue.clone(), registry.clone(), sender));
        let mut sigterm = signal(SignalKind::terminate())?;
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let server = axum::serve(listener, app)
            .with_graceful_shutdown(async move { stopped.cancelled().await });
        let served = tokio::spawn(server.into_future());
        let requests = queue.clone();
        let end = tokio::spawn(async move {
            sigterm.recv().await;
            let limit = Instant::now() + grace;
            stop.cancel();
            let result = requests.shutdown_async(grace).await;
            // The last answers are sent. A client that hangs does not receive its answer.
            let _ = timeout_at(limit, served).await;
            result
        });
        Ok(Self { queue, address, log, end })
    }
}

async fn digest(
    State((queue, registry, log)): State<Shared>,
    Path((seed, nr_rounds)): Path<(u64, u64)>,
) -> Result<String, StatusCode> {
    let task = queue.task().deadline(registry.now() + PATIENCE);
    let answer = task.spawn(move || digest_of(seed, nr_rounds, &log));
    // The handle is dropped with this future if the client disconnects.
    match answer.cancel_on_drop().await {
        Ok(Some(digest)) => Ok(digest.to_string()),
        Err(JoinError::Expired) => Err(StatusCode::GATEWAY_TIMEOUT),
        Err(JoinError::Panicked(_)) => Err(StatusCode::INTERNAL_SERVER_ERROR),
        Ok(None) | Err(_) => Err(StatusCode::SERVICE_UNAVAILABLE),
    }
}

/// A placeholder for a computation. Returns `None` if it was cancelled.
fn digest_of(seed: u64, nr_rounds: u64, log: &UnboundedSender<String>) -> Option<u64> {
    let _ = log.send(format!("{seed} started"));
    let mut digest = seed;
    for round in 0..nr_rounds {
        digest = (digest ^ round).wrapping_mul(0x0100_0000_01b3);
        if is_cancelled() {
            let _ = log.send(format!("{seed} cancelled"));
            return None;
        }
    }
    Some(digest)
}

/// Makes a request, and returns the status of the answer.
async fn ask(address: SocketAddr, path: String) -> Result<u16, Failure> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer.get(9..12).unwrap_or_default().parse()?)
}

/// Tests overload on a paused queue, with a clock that only this function advances.
async fn overload() -> Result<(), Failure> {
    let mut registry = Registry::for_tests()?;
    let mut server = Server::start(&registry, Duration::ZERO).await?;
    let ask = |seed| ask(server.address, format!("/digest/{seed}/1"));
    let ask_all = || (0..=CAPACITY).map(ask).collect::<JoinSet<_>>();

    server.queue.pause();
    let mut clients = ask_all();
    assert_eq!(clients.join_next().await.unwrap()??, 503, "64 wait");
    registry.advance(PATIENCE);
    while let Some(status) = clients.join_next().await {
        assert_eq!(status??, 504, "it has waited for too long");
    }

    let mut clients = ask_all();
    clients.join_next().await;
    // All other clients disconnect. Their requests are cancelled and release their capacity.
    drop(clients);
    let mut permits = Vec::new();
    for _ in 0..CAPACITY {
        permits.push(server.queue.task().reserve().await);
    }
    drop(permits);
    server.queue.resume();
    assert_eq!(ask(7).await?, 200);
    assert_eq!(server.log.recv().await.unwrap(), "7 started", "no other");
    Ok(())
}

async fn terminate(grace: Duration) -> Result<(), Failure> {
    let mut server = Server::start(Registry::global()?, grace).await?;
    let path = |seed| format!("/digest/{seed}/{}", u64::MAX);
    let ask = |seed| tokio::spawn(ask(server.address, path(seed)));

    let client = ask(1);
    assert_eq!(server.log.recv().await.unwrap(), "1 started");
    client.abort();
    assert_eq!(server.log.recv().await.unwrap(), "1 cancelled");

    let _client = ask(2);
    assert_eq!(server.log.recv().await.unwrap(), "2 started");
    let mut silent = TcpStream::connect(server.address).await?;
    silent.write_all(b"GET /digest").await?;
    let start = Instant::now();
    kill_process(getpid(), Signal::TERM)?;
    let Err(DrainError::StillBusy(left)) = server.end.await? else {
        return Err("a request runs, and the shutdown has not named it".into());
    };
    println!("{left}; ended after {} ms", start.elapsed().as_millis());
    assert_eq!(left.nr_left, 1);
    assert_eq!(server.log.recv().await.unwrap(), "2 cancelled");
    Ok(())
}
