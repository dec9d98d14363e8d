//! Samples the number of threads and the memory of this process during a run.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use top::exit::Stop;

/// The time between two samples, which is a hundredth of the shortest run.
const PERIOD: Duration = Duration::from_millis(5);

/// The maximum time to wait until threads of earlier runs have exited.
const GOING: Duration = Duration::from_secs(2);

const KIB: u64 = 1024;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    pub threads: u64,
    pub resident: u64,
}

pub struct Gauge {
    before: Size,
    stop: Arc<AtomicBool>,
    looker: JoinHandle<Size>,
}

impl Size {
    pub fn now() -> Result<Self, Stop> {
        let status = fs::read_to_string("/proc/self/status")
            .map_err(Stop::because("cannot read /proc/self/status"))?;
        Ok(Self { threads: field(&status, "Threads:"), resident: field(&status, "VmRSS:") * KIB })
    }
}

fn field(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next());
    number.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn settled() -> Result<Size, Stop> {
    static FIRST: OnceLock<u64> = OnceLock::new();
    let mut now = Size::now()?;
    let first = *FIRST.get_or_init(|| now.threads);
    let end = Instant::now() + GOING;
    while now.threads > first && Instant::now() < end {
        thread::sleep(PERIOD);
        now = Size::now()?;
    }
    Ok(now)
}

impl Gauge {
    pub fn start() -> Result<Self, Stop> {
        let before = settled()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let looker = thread::Builder::new()
            .name("gauge".into())
            .spawn(move || {
                let mut most = Size::default();
                while !stopped.load(Ordering::Relaxed) {
                    let now = Size::now().unwrap_or_default();
                    most.threads = most.threads.max(now.threads);
                    most.resident = most.resident.max(now.resident);
                    thread::park_timeout(PERIOD);
                }
                most
            })
            .map_err(Stop::because("cannot start the gauge"))?;
        Ok(Self { before, stop, looker })
    }

    /// Stops sampling and returns the maximum growth, without the sampling thread.
    pub fn growth(self) -> Size {
        self.stop.store(true, Ordering::Relaxed);
        self.looker.thread().unpark();
        let most = self.looker.join().unwrap_or_default();
        Size {
            threads: most.threads.saturating_sub(self.before.threads + 1),
            resident: most.resident.saturating_sub(self.before.resident),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_with_their_names() {
        let status = "Name:\tx\nVmRSS:\t    12 kB\nThreads:\t7\n";
        assert_eq!((field(status, "Threads:"), field(status, "VmRSS:")), (7, 12));
        assert_eq!(field(status, "VmSwap:"), 0);
    }

    #[test]
    fn memory_that_is_touched_is_seen() {
        let gauge = Gauge::start().unwrap();
        let room = vec![1_u8; 64 << 20];
        std::hint::black_box(&room);
        while Size::now().unwrap().resident < gauge.before.resident + (32 << 20) {}
        thread::sleep(4 * PERIOD);
        assert!(gauge.growth().resident >= 32 << 20);
        drop(room);
    }
}
