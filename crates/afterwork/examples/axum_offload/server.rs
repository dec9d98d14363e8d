//! The server: tokio does the I/O, and the queue does the computations.

use std::{
    error::Error,
    future::pending,
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use afterwork::workqueue::{JoinError, Workqueue};
use axum::{
    Router,
    extract::{Path, State},
    http::StatusCode,
    routing::get,
};
use tokio::{net::TcpListener, runtime, sync::oneshot, task};

/// Any error of the example.
pub type Failure = Box<dyn Error + Send + Sync>;

/// The number of requests that may wait.
pub const CAPACITY: usize = 32;
/// The number of requests that are computed at once.
const MAX_ACTIVE: u32 = 2;

async fn digest(
    State(queue): State<Workqueue>,
    Path(seed): Path<u64>,
) -> Result<String, StatusCode> {
    match queue.try_spawn(move || digest_of(seed)) {
        // The handle is dropped with this future if the client disconnects.
        Ok(handle) => answer(handle.cancel_on_drop().await),
        Err(_full_or_closed) => Err(StatusCode::SERVICE_UNAVAILABLE),
    }
}

async fn digest_within(
    State(queue): State<Workqueue>,
    Path((seed, ms)): Path<(u64, u64)>,
) -> Result<String, StatusCode> {
    let deadline = Instant::now() + Duration::from_millis(ms);
    let handle = queue
        .task()
        .deadline(deadline)
        .spawn(move || digest_of(seed));
    answer(handle.cancel_on_drop().await)
}

/// Long polling for an event that never occurs.
async fn event(State(queue): State<Workqueue>) -> Result<String, StatusCode> {
    answer(queue.spawn_async(pending()).cancel_on_drop().await)
}

fn answer(outcome: Result<u64, JoinError>) -> Result<String, StatusCode> {
    outcome
        .map(|digest| digest.to_string())
        .map_err(|error| match error {
            JoinError::Expired => StatusCode::GATEWAY_TIMEOUT,
            JoinError::Full | JoinError::Closed | JoinError::Cancelled => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        })
}

/// A placeholder for a computation.
pub fn digest_of(seed: u64) -> u64 {
    (0..20_000).fold(seed, |digest, number| {
        (digest ^ number).wrapping_mul(0x0100_0000_01b3)
    })
}

pub struct Server {
    pub queue: Workqueue,
    pub address: SocketAddr,
    pub runtime: runtime::Runtime,
    /// Stops accepting connections.
    pub stop: oneshot::Sender<()>,
    /// Completes when all connections have ended.
    pub served: task::JoinHandle<io::Result<()>>,
}

impl Server {
    pub fn start() -> Result<Self, Failure> {
        let queue = Workqueue::builder("requests")
            .max_active(MAX_ACTIVE)
            .capacity(CAPACITY)
            .build()?;
        let app = Router::new()
            .route("/digest/{seed}", get(digest))
            .route("/digest/{seed}/within/{ms}", get(digest_within))
            .route("/event", get(event))
            .with_state(queue.clone());
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0)))?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let serve = axum::serve(listener, app).with_graceful_shutdown(async {
            let _ = stopped.await;
        });
        let served = runtime.spawn(serve.into_future());
        Ok(Self {
            queue,
            address,
            runtime,
            stop,
            served,
        })
    }
}
