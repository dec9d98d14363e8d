//! The machines whose sysfs is saved under `tests/fixtures`, described as files.
//!
//! `cargo run -p afterwork-topology --example make_fixtures` writes them. They are modeled on real
//! machines, reduced to the files that are read. The large ones contain only the last-level cache.

use std::collections::BTreeMap;

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
    let about =
        "two-socket Xeon, 2 x 16 cores with SMT, sub-NUMA clustering: two nodes share each L3";
    let mut machine = Machine::new("xeon-snc2", about, "0-63", "0-63");
    for cpu in 0..64 {
        let core = cpu % 32;
        let siblings = format!("{core},{}", core + 32);
        machine.core(cpu, &siblings, core as i32 / 16);
        machine.cache(cpu, 2, 2, "Unified", "1024K", &siblings);
        machine.l3(cpu, "22528K", ["0-15,32-47", "16-31,48-63"][core as usize / 16]);
    }
    machine.with_nodes(&[
        "0-3,8-11,32-35,40-43",
        "4-7,12-15,36-39,44-47",
        "16-19,24-27,48-51,56-59",
        "20-23,28-31,52-55,60-63",
    ])
}

fn epyc_8ccx() -> Machine {
    let about = "one-socket EPYC, 64 cores with SMT, an L3 for each 8 cores, one node";
    let mut machine = Machine::new("epyc-8ccx", about, "0-127", "0-127");
    for cpu in 0..128 {
        let core = cpu % 64;
        let first = core / 8 * 8;
        let l3 = format!("{first}-{},{}-{}", first + 7, first + 64, first + 71);
        machine.core(cpu, &format!("{core},{}", core + 64), 0);
        machine.l3(cpu, "32768K", &l3);
    }
    machine.with_nodes(&["0-127"])
}

/// Six fast cores with SMT (0-11), eight small ones with one L2 for every four (12-19), and two
/// very small ones that the L3 does not serve (20-21). The files of all caches are kept.
fn laptop_hybrid() -> Machine {
    let about =
        "hybrid laptop: 6 P cores with SMT, 8 E cores in clusters, 2 low-power cores without an L3";
    let mut machine = Machine::new("laptop-hybrid", about, "0-21", "0-21");
    machine.file("devices/system/cpu/nohz_full", "(null)");
    for cpu in 0..22 {
        let first = cpu / 2 * 2;
        let pair = format!("{first}-{}", first + 1);
        let (core, l2) = match cpu {
            0..12 => (pair.clone(), pair),
            12..16 => (cpu.to_string(), "12-15".into()),
            16..20 => (cpu.to_string(), "16-19".into()),
            _ => (cpu.to_string(), "20-21".into()),
        };
        machine.core(cpu, &core, 0);
        machine.cache(cpu, 0, 1, "Data", "48K", &core);
        machine.cache(cpu, 1, 1, "Instruction", "64K", &core);
        machine.cache(cpu, 2, 2, "Unified", "2048K", &l2);
        if cpu < 20 {
            machine.l3(cpu, "24576K", "0-19");
        }
    }
    machine.with_nodes(&["0-21"])
}

/// Eight cores with SMT and two caches. The numbers of two siblings differ by eight. More CPUs are
/// possible than exist. The kernel has no files for offline CPUs.
fn server_holes() -> Machine {
    let about =
        "8 cores with SMT and two L3, CPUs 3, 7 and 12-14 offline, 16-31 possible but absent";
    let online = "0-2,4-6,8-11,15";
    let mut machine = Machine::new("server-holes", about, "0-31", online);
    let online: CpuSet = online.parse().expect("a list");
    let still_online =
        |cpus: &str| cpus.parse::<CpuSet>().expect("a list").intersection(&online).to_string();
    for cpu in online.iter().map(CpuId::as_u32) {
        let core = cpu % 8;
        machine.core(cpu, &still_online(&format!("{core},{}", core + 8)), 0);
        let l3 = if core < 4 { "0-3,8-11" } else { "4-7,12-15" };
        machine.l3(cpu, "16384K", &still_online(l3));
    }
    machine.with_nodes(&[&still_online("0-15")])
}

fn grace_72() -> Machine {
    let about =
        "arm64 similar to Grace: 72 cores without SMT under one L3, a second node of memory only";
    let mut machine = Machine::new("grace-72", about, "0-71", "0-71");
    for cpu in 0..72 {
        machine.core(cpu, &cpu.to_string(), 0);
        machine.l3(cpu, "116736K", "0-71");
    }
    machine.with_nodes(&["0-71", ""])
}

fn vm_tiny() -> Machine {
    let about = "virtual machine of 2 CPUs on an old kernel: no caches, no nodes, siblings under their old name";
    let mut machine = Machine::new("vm-tiny", about, "0-1", "0-1");
    for cpu in 0..2 {
        machine.topology(cpu, "thread_siblings_list", &cpu.to_string());
        machine.topology(cpu, "physical_package_id", "0");
    }
    machine
}

fn vm_nodes() -> Machine {
    let about = "arm64 virtual machine of 2 nodes: no caches, unknown packages (-1)";
    let mut machine = Machine::new("vm-nodes", about, "0-3", "0-3");
    for cpu in 0..4 {
        machine.core(cpu, &cpu.to_string(), -1);
    }
    machine.with_nodes(&["0-1", "2-3"])
}

fn server_isolated() -> Machine {
    let about =
        "8 cores with SMT and two L3, half of them isolated and without a tick, and not allowed";
    let mut machine = Machine::new("server-isolated", about, "0-15", "0-15");
    machine.file("devices/system/cpu/isolated", "4-7,12-15");
    machine.file("devices/system/cpu/nohz_full", "4-7,12-15");
    machine.file("allowed", "0-3,8-11");
    for cpu in 0..16 {
        let core = cpu % 8;
        machine.core(cpu, &format!("{core},{}", core + 8), 0);
        machine.l3(cpu, "16384K", if core < 4 { "0-3,8-11" } else { "4-7,12-15" });
    }
    machine.with_nodes(&["0-15"])
}

impl Machine {
    fn new(name: &'static str, about: &'static str, possible: &str, online: &str) -> Self {
        let mut machine = Self { name, about, files: BTreeMap::new() };
        machine.file("devices/system/cpu/possible", possible);
        machine.file("devices/system/cpu/online", online);
        machine.file("devices/system/cpu/isolated", "");
        machine
    }

    fn file(&mut self, path: &str, text: &str) {
        self.files.insert(path.to_owned(), format!("{text}\n"));
    }

    fn topology(&mut self, cpu: u32, name: &str, text: &str) {
        self.file(&format!("devices/system/cpu/cpu{cpu}/topology/{name}"), text);
    }

    fn core(&mut self, cpu: u32, siblings: &str, package: i32) {
        self.topology(cpu, "core_cpus_list", siblings);
        self.topology(cpu, "physical_package_id", &package.to_string());
    }

    fn l3(&mut self, cpu: u32, size: &str, shared: &str) {
        self.cache(cpu, 3, 3, "Unified", size, shared);
    }

    fn cache(&mut self, cpu: u32, index: u32, level: u32, kind: &str, size: &str, shared: &str) {
        let level = level.to_string();
        for (name, text) in
            [("level", &*level), ("type", kind), ("size", size), ("shared_cpu_list", shared)]
        {
            let path = format!("devices/system/cpu/cpu{cpu}/cache/index{index}/{name}");
            self.file(&path, text);
        }
    }

    fn with_nodes(mut self, nodes: &[&str]) -> Self {
        for (id, cpus) in nodes.iter().enumerate() {
            self.file(&format!("devices/system/node/node{id}/cpulist"), cpus);
        }
        self
    }
}
