//! The clients, which speak a subset of HTTP, and measurements of the process.

use std::{
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::Duration,
};

/// A connection that sends one request at a time.
pub struct Client(BufReader<TcpStream>);

impl Client {
    pub fn new(address: SocketAddr) -> io::Result<Self> {
        Ok(Self(BufReader::new(TcpStream::connect(address)?)))
    }

    pub fn ask(&mut self, path: &str) -> io::Result<(u16, String)> {
        self.send(path)?;
        self.answer()
    }

    pub fn send(&mut self, path: &str) -> io::Result<()> {
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        self.0.get_mut().write_all(request.as_bytes())
    }

    /// Reads an answer. Returns its status and body.
    pub fn answer(&mut self) -> io::Result<(u16, String)> {
        let (mut status, mut length) = (0, 0);
        for line in self.0.by_ref().lines() {
            let line = line?;
            match line.split_once(' ') {
                None => break,
                Some(("HTTP/1.1", text)) => status = text[..3].parse().map_err(io::Error::other)?,
                Some(("content-length:", text)) => {
                    length = text.parse().map_err(io::Error::other)?
                }
                Some(_) => {}
            }
        }
        let mut body = String::new();
        self.0.by_ref().take(length).read_to_string(&mut body)?;
        Ok((status, body))
    }
}

pub fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the resident memory of the process in bytes.
pub fn resident() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").expect("procfs is there");
    let nr_pages = statm
        .split(' ')
        .nth(1)
        .and_then(|text| text.parse::<u64>().ok());
    nr_pages.expect("the second figure") * rustix::param::page_size() as u64
}

/// Plots `samples`, taken every `every`, in at most sixteen lines that each show their maximum.
pub fn plot(samples: &[u64], every: Duration) {
    let nr_each = samples.len().div_ceil(16);
    let peak = samples.iter().max().map_or(1, |most| *most);
    for (number, some) in samples.chunks(nr_each).enumerate() {
        let time = every * (number * nr_each) as u32;
        let most = some.iter().max().map_or(0, |most| *most);
        let bar = "#".repeat((most * 50 / peak) as usize);
        println!(
            "{:>6} ms {:>7.1} MiB {bar}",
            time.as_millis(),
            most as f64 / f64::from(1 << 20)
        );
    }
}
