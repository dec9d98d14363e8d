//! The machine, its state and the build, as shown at the head of every result.

use std::fs;

use rustix::time::{ClockId, clock_getres};
use serde::{Deserialize, Serialize};
use top::exit::Stop;
use topology::{AffinityScope, CpuQuota, ShardParams, Topology};

/// The machine and the build. A value that the machine does not provide is `None`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fingerprint {
    pub cpu: Option<String>,
    pub arch: String,
    pub cpus_online: usize,
    pub cpus_allowed: usize,
    /// The CPU quota in thousandths of a CPU, or `None` if there is no limit.
    pub cpu_quota_milli: Option<u64>,
    pub cores: usize,
    pub caches: usize,
    pub nodes: usize,
    /// The number of pods of the default affinity scope among the allowed CPUs.
    pub cache_shards: usize,
    pub smt: bool,
    /// `true` for a virtual machine, or `None` if that cannot be determined.
    pub is_virtual: Option<bool>,
    pub product: Option<String>,
    pub kernel: String,
    pub hz: Option<u64>,
    pub governor: Option<String>,
    pub scaling_driver: Option<String>,
    pub version: String,
    /// The commit of the build, with `+changes` if the tree was modified.
    pub commit: Option<String>,
    pub profile: String,
    pub opt_level: String,
    pub rustc: Option<String>,
}

pub fn find_cpus() -> Result<Topology, Stop> {
    Topology::detect().map_err(Stop::because("cannot find the CPUs"))
}

impl Fingerprint {
    pub fn take(topology: &Topology) -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let first = topology.allowed().iter().next().map_or(0, |cpu| cpu.index());
        let cpufreq = format!("/sys/devices/system/cpu/cpu{first}/cpufreq");
        let names = ["sys_vendor", "product_name"];
        let names = names.iter().filter_map(|name| word(&format!("/sys/class/dmi/id/{name}")));
        let product = known(&names.collect::<Vec<_>>().join(" "));
        Self {
            cpu: cpu_name(&cpuinfo),
            arch: std::env::consts::ARCH.into(),
            cpus_online: topology.online().iter().count(),
            cpus_allowed: topology.allowed().iter().count(),
            cpu_quota_milli: topology.quota().map(CpuQuota::millicpus),
            cores: topology.cores().len(),
            caches: topology.llcs().len(),
            nodes: topology.nodes().len(),
            cache_shards: topology.pods(AffinityScope::CacheShard, &ShardParams::default()).len(),
            smt: topology.cores().len() < topology.online().iter().count(),
            is_virtual: is_virtual(&cpuinfo, product.as_deref()),
            product,
            kernel: word("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".into()),
            hz: ticks_per_second(clock_getres(ClockId::MonotonicCoarse).tv_nsec),
            governor: word(&format!("{cpufreq}/scaling_governor")),
            scaling_driver: word(&format!("{cpufreq}/scaling_driver")),
            version: env!("CARGO_PKG_VERSION").into(),
            commit: known(env!("AFTERWORK_COMMIT")),
            profile: env!("AFTERWORK_PROFILE").into(),
            opt_level: env!("AFTERWORK_OPT_LEVEL").into(),
            rustc: known(env!("AFTERWORK_RUSTC")),
        }
    }

    pub fn is_optimised(&self) -> bool {
        self.opt_level != "0" && !cfg!(debug_assertions)
    }

    /// No line is wider than a table.
    pub fn lines(&self) -> Vec<String> {
        let smt = if self.smt { "SMT" } else { "no SMT" };
        let kind = match self.is_virtual {
            Some(true) => "virtual machine",
            Some(false) => "real machine",
            None => "virtual or real: unknown",
        };
        let product = self.product.as_ref().map_or(String::new(), |name| format!(" ({name})"));
        let hz = self.hz.map_or_else(|| "unknown".into(), |hz| hz.to_string());
        let [cpu, governor, driver, rustc] =
            [&self.cpu, &self.governor, &self.scaling_driver, &self.rustc]
                .map(|it| it.as_deref().unwrap_or("unknown"));
        let commit = self.commit.as_deref().unwrap_or("outside git");
        let quota = self.cpu_quota_milli.map_or(String::new(), |milli| {
            format!(", quota {}.{:03} of one", milli / 1000, milli % 1000)
        });
        vec![
            format!("machine  {cpu}, {}, {kind}{product}", self.arch),
            format!(
                "cpus     {} allowed of {} online{quota}; cores: {}, {smt}; last-level caches: {}; nodes: {}",
                self.cpus_allowed, self.cpus_online, self.cores, self.caches, self.nodes
            ),
            format!(
                "system   Linux {}, HZ {hz}, governor {governor}, driver {driver}",
                self.kernel
            ),
            format!(
                "build    afterwork {} ({commit}), {} at opt-level {}, {rustc}",
                self.version, self.profile, self.opt_level
            ),
        ]
    }
}

/// Vendors and products of hypervisors in DMI, for CPUs that do not report virtualization.
const HYPERVISORS: &str = "qemu|kvm|vmware|virtualbox|xen|amazon ec2|google|bochs|virtual machine";

fn is_virtual(cpuinfo: &str, product: Option<&str>) -> Option<bool> {
    // Only x86 has this line, and there a missing flag means that the machine is not virtual.
    if let Some(flags) = field(cpuinfo, "flags") {
        return Some(flags.split(' ').any(|flag| flag == "hypervisor"));
    }
    // Amazon names its bare-metal instances `*.metal`.
    let product = product?.to_lowercase();
    Some(!product.contains(".metal") && HYPERVISORS.split('|').any(|name| product.contains(name)))
}

fn cpu_name(cpuinfo: &str) -> Option<String> {
    // arm64 has no model name, but only an implementer and a part.
    field(cpuinfo, "model name").map(str::to_owned).or_else(|| {
        let implementer = field(cpuinfo, "CPU implementer")?;
        Some(format!("implementer {implementer} part {}", field(cpuinfo, "CPU part")?))
    })
}

fn field<'a>(cpuinfo: &'a str, name: &str) -> Option<&'a str> {
    cpuinfo.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

/// The coarse clock advances once per tick, so its resolution is the length of a tick.
fn ticks_per_second(resolution_ns: i64) -> Option<u64> {
    let resolution_ns = u64::try_from(resolution_ns).ok().filter(|&ns| ns > 0)?;
    // The result is rounded, because the resolution of 300 ticks per second is 3 333 333 ns.
    Some((1_000_000_000 + resolution_ns / 2) / resolution_ns)
}

fn word(path: &str) -> Option<String> {
    known(fs::read_to_string(path).ok()?.trim())
}

fn known(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const X86: &str = "processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: fpu hypervisor lm\n";
    const ARM: &str = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n";

    #[test]
    fn virtual_machines_are_detected_by_flags_or_by_vendor() {
        let plain = X86.replace("hypervisor ", "");
        for (cpuinfo, product, expected) in [
            (X86, None, Some(true)),
            (&plain, Some("QEMU"), Some(false)),
            (ARM, Some("QEMU QEMU Virtual Machine"), Some(true)),
            (ARM, Some("Amazon EC2 c7g.metal"), Some(false)),
            (ARM, Some("GIGABYTE R133"), Some(false)),
            (ARM, None, None),
        ] {
            assert_eq!(is_virtual(cpuinfo, product), expected, "{product:?}");
        }
    }

    #[test]
    fn a_cpu_without_a_name_has_its_part_number() {
        assert_eq!(cpu_name(X86).unwrap(), "AMD EPYC");
        assert_eq!(cpu_name(ARM).unwrap(), "implementer 0x41 part 0xd4f");
        assert_eq!(cpu_name(""), None);
    }

    #[test]
    fn the_tick_is_the_resolution_of_the_coarse_clock() {
        let known = [4_000_000, 10_000_000, 3_333_333, 1_000_000].map(ticks_per_second);
        assert_eq!(known, [250, 100, 300, 1000].map(Some));
        assert_eq!(ticks_per_second(0), None);
    }

    #[test]
    fn this_machine_has_a_fingerprint_that_survives_json() {
        let fingerprint = Fingerprint::take(&find_cpus().unwrap());
        assert!((1..=fingerprint.cpus_online).contains(&fingerprint.cpus_allowed));
        let text = serde_json::to_string(&fingerprint).unwrap();
        let read: Fingerprint = serde_json::from_str(&text).unwrap();
        assert_eq!(read, fingerprint);
    }
}
