//! The machines whose sysfs is saved under `tests/fixtures`, described as files.
//!
//! `cargo run -p afterwork-topology --example make_fixtures` writes them. They are modeled on real
//! machines, reduced to the files that are read. The large ones contain only the last-level cache.

use std::collections::BTreeMap;
use std::ops::Range;

use afterwork_topology::{CpuId, CpuSet};

/// A saved machine.
pub struct Machine {
    /// The name of its directory.
    pub name: &'static str,
    /// Its special features.
    pub about: &'static str,
    /// Its files: path and text.
    pub files: BTreeMap<String, String>,
}

/// All machines.
pub fn all() -> Vec<Machine> {
    vec![
        xeon_snc2(),
        epyc_8ccx(),
        laptop_hybrid(),
        server_holes(),
        grace_72(),
        vm_tiny(),
        vm_nodes(),
        server_isolated(),
    ]
}

/// Two sockets of 16 cores. Linux numbers the first siblings of all cores first (0-31), then the
/// second ones (32-63). Within a socket the two clusters alternate, four cores at a time.
fn xeon_snc2() -> Machine {
    let mut machine = Machine::new(
        "xeon-snc2",
        "two-socket Xeon, 2 x 16 cores with SMT, sub-NUMA clustering: two nodes share each L3",
    );
    machine.cpu_lists("0-63", "0-63");
    for core in 0..32 {
        for cpu in [core, core + 32] {
            machine.core(cpu, &format!("{core},{}", core + 32), core / 16);
            let siblings = format!("{core},{}", core + 32);
            machine.cache(cpu, 2, 2, "Unified", "1024K", &siblings);
            let socket = ["0-15,32-47", "16-31,48-63"][core as usize / 16];
            machine.cache(cpu, 3, 3, "Unified", "22528K", socket);
        }
    }
    machine.node(0, "0-3,8-11,32-35,40-43");
    machine.node(1, "4-7,12-15,36-39,44-47");
    machine.node(2, "16-19,24-27,48-51,56-59");
    machine.node(3, "20-23,28-31,52-55,60-63");
    machine
}

fn epyc_8ccx() -> Machine {
    let mut machine = Machine::new(
        "epyc-8ccx",
        "one-socket EPYC, 64 cores with SMT, an L3 for each 8 cores, one node",
    );
    machine.cpu_lists("0-127", "0-127");
    for core in 0..64 {
        let first = core / 8 * 8;
        let l3 = format!("{first}-{},{}-{}", first + 7, first + 64, first + 71);
        for cpu in [core, core + 64] {
            machine.core(cpu, &format!("{core},{}", core + 64), 0);
            machine.cache(cpu, 3, 3, "Unified", "32768K", &l3);
        }
    }
    machine.node(0, "0-127");
    machine
}

/// Six fast cores with SMT (0-11), eight small ones with one L2 for every four (12-19), and two
/// very small ones that the L3 does not serve (20-21). The files of all caches are kept.
fn laptop_hybrid() -> Machine {
    let mut machine = Machine::new(
        "laptop-hybrid",
        "hybrid laptop: 6 P cores with SMT, 8 E cores in clusters, 2 low-power cores without an L3",
    );
    machine.cpu_lists("0-21", "0-21");
    machine.file("devices/system/cpu/nohz_full", "(null)");
    let mut core = |cpus: Range<u32>, l2: &str, l3: Option<&str>| {
        let list = list(cpus.clone());
        for cpu in cpus {
            machine.core(cpu, &list, 0);
            machine.cache(cpu, 0, 1, "Data", "48K", &list);
            machine.cache(cpu, 1, 1, "Instruction", "64K", &list);
            machine.cache(cpu, 2, 2, "Unified", "2048K", l2);
            if let Some(l3) = l3 {
                machine.cache(cpu, 3, 3, "Unified", "24576K", l3);
            }
        }
    };
    for first in (0..12).step_by(2) {
        core(first..first + 2, &list(first..first + 2), Some("0-19"));
    }
    for cpu in 12..20 {
        let l2 = if cpu < 16 { "12-15" } else { "16-19" };
        core(cpu..cpu + 1, l2, Some("0-19"));
    }
    for cpu in 20..22 {
        core(cpu..cpu + 1, "20-21", None);
    }
    machine.node(0, "0-21");
    machine
}

/// Eight cores with SMT and two caches. The numbers of two siblings differ by eight. More CPUs are
/// possible than exist. The kernel has no files for offline CPUs.
fn server_holes() -> Machine {
    let mut machine = Machine::new(
        "server-holes",
        "8 cores with SMT and two L3, CPUs 3, 7 and 12-14 offline, 16-31 possible but absent",
    );
    machine.cpu_lists("0-31", "0-2,4-6,8-11,15");
    let online: CpuSet = "0-2,4-6,8-11,15".parse().expect("a list");
    let still_online =
        |cpus: &str| cpus.parse::<CpuSet>().expect("a list").intersection(&online).to_string();
    for cpu in online.iter().map(CpuId::as_u32) {
        let core = cpu % 8;
        machine.core(cpu, &still_online(&format!("{core},{}", core + 8)), 0);
        let l3 = if core < 4 { "0-3,8-11" } else { "4-7,12-15" };
        machine.cache(cpu, 3, 3, "Unified", "16384K", &still_online(l3));
    }
    machine.node(0, &still_online("0-15"));
    machine
}

fn grace_72() -> Machine {
    let mut machine = Machine::new(
        "grace-72",
        "arm64 similar to Grace: 72 cores without SMT under one L3, a second node of memory only",
    );
    machine.cpu_lists("0-71", "0-71");
    for cpu in 0..72 {
        machine.core(cpu, &cpu.to_string(), 0);
        machine.cache(cpu, 3, 3, "Unified", "116736K", "0-71");
    }
    machine.node(0, "0-71");
    machine.node(1, "");
    machine
}

fn vm_tiny() -> Machine {
    let mut machine = Machine::new(
        "vm-tiny",
        "virtual machine of 2 CPUs on an old kernel: no caches, no nodes, siblings under their old name",
    );
    machine.cpu_lists("0-1", "0-1");
    for cpu in 0..2 {
        machine.topology(cpu, "thread_siblings_list", &cpu.to_string());
        machine.topology(cpu, "physical_package_id", "0");
    }
    machine
}

fn vm_nodes() -> Machine {
    let mut machine = Machine::new(
        "vm-nodes",
        "arm64 virtual machine of 2 nodes: no caches, unknown packages (-1)",
    );
    machine.cpu_lists("0-3", "0-3");
    for cpu in 0..4 {
        machine.topology(cpu, "core_cpus_list", &cpu.to_string());
        machine.topology(cpu, "physical_package_id", "-1");
    }
    machine.node(0, "0-1");
    machine.node(1, "2-3");
    machine
}

fn server_isolated() -> Machine {
    let mut machine = Machine::new(
        "server-isolated",
        "8 cores with SMT and two L3, half of them isolated and without a tick, and not allowed",
    );
    machine.cpu_lists("0-15", "0-15");
    machine.file("devices/system/cpu/isolated", "4-7,12-15");
    machine.file("devices/system/cpu/nohz_full", "4-7,12-15");
    machine.file("allowed", "0-3,8-11");
    for cpu in 0..16 {
        let core = cpu % 8;
        machine.core(cpu, &format!("{core},{}", core + 8), 0);
        let l3 = if core < 4 { "0-3,8-11" } else { "4-7,12-15" };
        machine.cache(cpu, 3, 3, "Unified", "16384K", l3);
    }
    machine.node(0, "0-15");
    machine
}

impl Machine {
    fn new(name: &'static str, about: &'static str) -> Self {
        Self { name, about, files: BTreeMap::new() }
    }

    fn file(&mut self, path: &str, text: &str) {
        self.files.insert(path.to_owned(), format!("{text}\n"));
    }

    fn cpu_lists(&mut self, possible: &str, online: &str) {
        self.file("devices/system/cpu/possible", possible);
        self.file("devices/system/cpu/online", online);
        self.file("devices/system/cpu/isolated", "");
    }

    fn topology(&mut self, cpu: u32, name: &str, text: &str) {
        self.file(&format!("devices/system/cpu/cpu{cpu}/topology/{name}"), text);
    }

    fn core(&mut self, cpu: u32, siblings: &str, package: u32) {
        self.topology(cpu, "core_cpus_list", siblings);
        self.topology(cpu, "physical_package_id", &package.to_string());
    }

    fn cache(&mut self, cpu: u32, index: u32, level: u32, kind: &str, size: &str, shared: &str) {
        let dir = format!("devices/system/cpu/cpu{cpu}/cache/index{index}");
        self.file(&format!("{dir}/level"), &level.to_string());
        self.file(&format!("{dir}/type"), kind);
        self.file(&format!("{dir}/size"), size);
        self.file(&format!("{dir}/shared_cpu_list"), shared);
    }

    fn node(&mut self, id: u32, cpus: &str) {
        self.file(&format!("devices/system/node/node{id}/cpulist"), cpus);
    }
}

fn list(cpus: Range<u32>) -> String {
    cpus.map(CpuId::new).collect::<CpuSet>().to_string()
}
