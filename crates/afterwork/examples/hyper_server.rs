//! An HTTP server and its clients as futures on workqueues, without another executor.
//!
//! Queues poll hyper's futures, which `spawn_async` starts. The reactor of async-io reports ready
//! sockets. Its only thread calls the wakers, which only queue items. The server and the clients
//! have separate queues, so that neither can use up the other's limit.
//!
//! `cargo run --release --example hyper_server -- [CONNECTIONS [REQUESTS OF EACH]]`

use std::convert::Infallible;
use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use afterwork::workqueue::{JoinHandle, Workqueue};
use async_io::Async;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, rt};

type Failure = Box<dyn Error + Send + Sync>;

/// The maximum number of polls that run at once on each side.
const MAX_ACTIVE: u32 = 8;

fn main() -> Result<(), Failure> {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse());
    let nr_connections: usize = numbers.next().transpose()?.unwrap_or(64);
    let nr_requests: usize = numbers.next().transpose()?.unwrap_or(500);
    let start = Instant::now();
    run(nr_connections, nr_requests)?;
    let rate = (nr_connections * nr_requests) as f64 / start.elapsed().as_secs_f64();
    println!("{nr_connections} connections, {nr_requests} requests each: {rate:.0} a second");
    Ok(())
}

/// Serves `nr_connections` clients, which make `nr_requests` requests each and check every answer.
pub fn run(nr_connections: usize, nr_requests: usize) -> Result<(), Failure> {
    let serving = Workqueue::builder("http server").max_active(MAX_ACTIVE).build()?;
    let asking = Workqueue::builder("http clients").max_active(MAX_ACTIVE).build()?;

    let listener = Async::<TcpListener>::bind(([127, 0, 0, 1], 0))?;
    let address = listener.get_ref().local_addr()?;
    let mut server = serving.spawn_async(accept(listener, serving.clone()));

    let clients: Vec<JoinHandle<_>> = (0..nr_connections)
        .map(|client| asking.spawn_async(ask(address, client, nr_requests, asking.clone())))
        .collect();
    for client in clients {
        client.join().map_err(|error| error.to_string())??;
    }
    // The server would wait for connections forever. Existing connections end with their clients.
    server.cancel();
    serving.drain()?;
    asking.drain()?;
    Ok(())
}

async fn accept(listener: Async<TcpListener>, queue: Workqueue) -> io::Result<Infallible> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.get_ref().set_nodelay(true)?;
        let connection = hyper::server::conn::http1::Builder::new()
            .serve_connection(Socket(stream), service_fn(greet));
        drop(queue.spawn_async(async move {
            if let Err(error) = connection.await {
                eprintln!("a connection: {error}");
            }
        }));
    }
}

async fn greet(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let greeting = format!("hello {}", request.uri().path());
    Ok(Response::new(Full::from(greeting)))
}

/// Makes requests one after the other on one connection, which `queue` polls.
async fn ask(
    address: SocketAddr,
    client: usize,
    nr_requests: usize,
    queue: Workqueue,
) -> Result<(), Failure> {
    let stream = Async::<TcpStream>::connect(address).await?;
    stream.get_ref().set_nodelay(true)?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(Socket(stream)).await?;
    let driver = queue.spawn_async(connection);
    for number in 0..nr_requests {
        let path = format!("/{client}/{number}");
        let request = Request::get(&path).header("host", "localhost");
        let request = request.body(Full::<Bytes>::default())?;
        sender.ready().await?;
        let response = sender.send_request(request).await?;
        assert_eq!(response.status(), StatusCode::OK);
        let body = response.into_body().collect().await?.to_bytes();
        assert_eq!(body, format!("hello {path}"));
    }
    drop(sender);
    Ok(driver.await.map_err(|error| error.to_string())??)
}

/// Implements hyper's I/O traits for a socket of async-io.
struct Socket(Async<TcpStream>);

impl rt::Read for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        // hyper's buffer may be uninitialized memory, and reading into that requires unsafe code.
        let mut bytes = [0; 4096];
        let room = buffer.remaining().min(bytes.len());
        let nr_read = loop {
            match self.0.get_ref().read(&mut bytes[..room]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.0.poll_readable(context))?;
                }
                outcome => break outcome?,
            }
        };
        buffer.put_slice(&bytes[..nr_read]);
        Poll::Ready(Ok(()))
    }
}

impl rt::Write for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            match self.0.get_ref().write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.0.poll_writable(context))?;
                }
                outcome => return Poll::Ready(outcome),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.0.get_ref().shutdown(std::net::Shutdown::Write))
    }
}
