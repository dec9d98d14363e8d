//! The CPU time that other programs and the host took during a measurement.

use std::time::Duration;
use std::{fs, thread};

use top::exit::Stop;

use super::handover;
use super::switches::Usage;

/// The time for which the machine is watched before a bench: 40 ticks of /proc/stat per CPU.
const WATCH: Duration = Duration::from_millis(400);

/// The share of the CPUs above which other programs disturb the results. This is a guess.
pub const OTHERS_LIMIT: f64 = 0.05;

/// The share of the CPU time above which steal distorts latencies. This is a guess.
const STEAL_LIMIT: f64 = 0.01;

/// The relative MAD above which two runs cannot be compared. This is a guess.
pub const SPREAD_LIMIT: f64 = 0.10;

pub const FEW_REPETITIONS: usize = 3;

/// The disturbances during a period, as shares of its CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Noise {
    /// The CPU time of other programs and of the kernel's own threads.
    pub others: f64,
    pub steal: f64,
    /// The transfer times before and after; see [`handover`]. They are `None` on a single CPU.
    pub handover_ns: [Option<f64>; 2],
}

#[derive(Clone, Copy, Debug)]
pub struct NoiseMeter {
    cpus: CpuTimes,
    own: [Usage; 2],
}

impl NoiseMeter {
    pub fn start() -> Result<Self, Stop> {
        // A peer may run in a child process.
        Ok(Self { cpus: CpuTimes::now()?, own: [Usage::now(), Usage::of_children()] })
    }

    pub fn noise(&self) -> Result<Noise, Stop> {
        let now = Self::start()?;
        let own = now.own.iter().zip(&self.own);
        let own_ns: u64 = own.map(|(now, then)| now.since(*then).cpu_ns).sum();
        Ok(noise(&self.cpus, &now.cpus, own_ns as f64 / NS_PER_TICK))
    }
}

pub fn before() -> Result<Noise, Stop> {
    let meter = NoiseMeter::start()?;
    thread::sleep(WATCH);
    meter.noise()
}

pub fn warnings(noise: &Noise, when: &str) -> Vec<String> {
    let mut lines = Vec::new();
    if noise.others > OTHERS_LIMIT {
        lines.push(format!(
            "other programs used {:.0} % of the CPUs {when}: trust ratios more than figures, and \
             neither much",
            noise.others * 100.0
        ));
    }
    if noise.steal > STEAL_LIMIT {
        lines.push(format!(
            "the host took {:.0} % of this virtual machine's CPU time {when}: high percentiles show \
             the host, not the code",
            noise.steal * 100.0
        ));
    }
    let [before, after] = noise.handover_ns;
    lines.extend(handover::warning(before, after));
    lines
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct CpuTimes {
    busy: f64,
    idle: f64,
    steal: f64,
}

/// The nanoseconds per tick. /proc/stat counts in USER_HZ, which Linux fixes at 100 for user space.
const NS_PER_TICK: f64 = 10_000_000.0;

impl CpuTimes {
    fn now() -> Result<Self, Stop> {
        let path = "/proc/stat";
        let text =
            fs::read_to_string(path).map_err(Stop::because(format!("cannot read {path}")))?;
        Self::parse(&text).ok_or("no line `cpu` with eight numbers").map_err(Stop::because(path))
    }

    /// Parses the first line: `cpu user nice system idle iowait irq softirq steal guest
    /// guest_nice`. User time already includes guest time.
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<f64> =
            line.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
        let [user, nice, system, idle, iowait, irq, softirq, steal] = *ticks.first_chunk()?;
        Some(Self { busy: user + nice + system + irq + softirq, idle: idle + iowait, steal })
    }
}

fn noise(from: &CpuTimes, to: &CpuTimes, own_ticks: f64) -> Noise {
    let (busy, steal) = (to.busy - from.busy, to.steal - from.steal);
    let total = busy + steal + (to.idle - from.idle);
    if total <= 0.0 {
        return Noise::default();
    }
    // The machine's time is in ticks, so the difference may be negative.
    Noise {
        others: ((busy - own_ticks) / total).clamp(0.0, 1.0),
        steal: (steal / total).clamp(0.0, 1.0),
        handover_ns: [None; 2],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn times(busy: f64, idle: f64, steal: f64) -> CpuTimes {
        CpuTimes { busy, idle, steal }
    }

    const fn noise_of(others: f64, steal: f64) -> Noise {
        let handover_ns = [None; 2];
        Noise { others, steal, handover_ns }
    }

    #[test]
    fn proc_stat_is_read_by_column() {
        let text = "cpu  100 1 10 500 50 2 3 7 40 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(CpuTimes::parse(text), Some(times(116.0, 550.0, 7.0)));
        assert_eq!(CpuTimes::parse("cpu 1 2 3\n"), None);
        assert_eq!(CpuTimes::parse("cpu a b c d e f g h\n"), None);
    }

    #[test]
    fn own_time_is_not_noise() {
        let (from, to) = (CpuTimes::default(), times(60.0, 30.0, 10.0));
        assert_eq!(noise(&from, &to, 60.0), noise_of(0.0, 0.1));
        assert_eq!(noise(&from, &to, 20.0), noise_of(0.4, 0.1));
        assert_eq!(noise(&from, &to, 61.0).others, 0.0);
        assert_eq!(noise(&to, &to, 0.0), Noise::default());
    }

    #[test]
    fn a_quiet_machine_draws_no_warning_and_each_noise_its_own() {
        assert!(warnings(&Noise::default(), "now").is_empty());
        let others = warnings(&noise_of(0.37, 0.0), "before the start");
        assert_eq!(others.len(), 1);
        assert!(others[0].contains("37 %"), "{others:?}");
        assert_eq!(warnings(&noise_of(0.5, 0.5), "during the run").len(), 2);
    }

    #[test]
    fn this_machine_can_be_watched() {
        let noise = NoiseMeter::start().unwrap().noise().unwrap();
        assert!((0.0..=1.0).contains(&noise.others) && (0.0..=1.0).contains(&noise.steal));
    }
}
