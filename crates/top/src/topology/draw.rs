//! Draws the machine for people.

use std::collections::BTreeMap;
use std::fmt::Write;

use topology::{AffinityScope, CpuSet, Llc, LlcSource, Pod, ShardParams, Topology};

use super::tree::{self, Branch};

/// The maximum width of a line of CPU sets, in columns.
const WIDTH: usize = 100;

/// The maximum number of sets that are printed. It is sufficient for the caches of any machine, and
/// for the cores of a small machine.
const MAX_SETS: usize = 64;

/// Draws a machine: its CPUs, the parts that they share, and the pods of each scope.
#[must_use]
pub fn draw(topology: &Topology, params: &ShardParams) -> String {
    let mut drawing = head(topology);
    drawing.push('\n');
    drawing += &tree::draw(&packages(topology));
    drawing.push('\n');
    drawing += &pods(topology, params);
    for quirk in topology.quirks() {
        drawing += &format!("\nnote: {quirk}\n");
    }
    drawing
}

fn head(topology: &Topology) -> String {
    let nr_nodes = topology.nodes().iter().filter(|node| !node.cpus.is_empty()).count();
    let mut head = [
        counted(topology.packages().len(), "package"),
        counted(nr_nodes, "node"),
        counted(topology.llcs().len(), "last-level cache"),
        counted(topology.cores().len(), "core"),
        format!("{} online\n", counted(topology.online().len(), "CPU")),
    ]
    .join(", ");
    let offline = topology.possible().difference(topology.online());
    for (what, cpus) in [
        ("allowed", topology.allowed()),
        ("offline", &offline),
        ("isolated", topology.isolated()),
        ("nohz_full", topology.nohz_full()),
    ] {
        if !cpus.is_empty() {
            head += &format!("{what:<9}  {cpus}\n");
        }
    }
    if let Some(quota) = topology.quota() {
        head += &format!("{:<9}  {quota}\n", "quota");
    }
    head
}

/// Builds the tree, package by package. A part that spans several nodes or packages appears in each
/// of them, with the CPUs that it has there.
fn packages(topology: &Topology) -> Vec<Branch> {
    let packages = topology.packages().iter().map(|package| {
        let label = package.id.map_or("unknown package".into(), |id| format!("package {id}"));
        Branch::new(label, package.cpus.to_string(), nodes(topology, &package.cpus))
    });
    let memory_only = topology.nodes().iter().filter(|node| node.cpus.is_empty());
    let memory_only =
        memory_only.map(|node| Branch::new(format!("node {}", node.id), "memory only", Vec::new()));
    packages.chain(memory_only).collect()
}

fn nodes(topology: &Topology, around: &CpuSet) -> Vec<Branch> {
    let mut homeless = around.clone();
    let mut branches = Vec::new();
    for node in topology.nodes() {
        homeless = homeless.difference(&node.cpus);
        let part = node.cpus.intersection(around);
        if !part.is_empty() {
            let label = format!("node {}", node.id);
            branches.push(Branch::new(label, part.to_string(), llcs(topology, &part)));
        }
    }
    if topology.nodes().is_empty() {
        return llcs(topology, around);
    }
    if !homeless.is_empty() {
        let below = llcs(topology, &homeless);
        branches.push(Branch::new("no node", homeless.to_string(), below));
    }
    branches
}

fn llcs(topology: &Topology, around: &CpuSet) -> Vec<Branch> {
    let parts = topology.llcs().iter().map(|llc| (llc, llc.cpus.intersection(around)));
    let branches = parts.filter(|(_, part)| !part.is_empty()).map(|(llc, part)| {
        let whole =
            if part == llc.cpus { String::new() } else { format!("  (part of {})", llc.cpus) };
        Branch::new(cache(llc), format!("{part}{whole}"), cores(topology, &part))
    });
    branches.collect()
}

fn cache(llc: &Llc) -> String {
    let name = match llc.source {
        LlcSource::Cache { level } => format!("L{level}"),
        LlcSource::Package => "unknown caches: one per package".to_owned(),
        LlcSource::Node => "unknown caches: one per node".to_owned(),
        LlcSource::System => "unknown caches: one for all".to_owned(),
    };
    llc.size.map_or(name.clone(), |bytes| format!("{name}, {}", size(bytes)))
}

/// Puts adjacent cores with the same number of siblings on one line.
fn cores(topology: &Topology, around: &CpuSet) -> Vec<Branch> {
    let sets = by_core(topology, around);
    let runs = sets.chunk_by(|one, next| one.len() == next.len()).map(|run| {
        let cores = counted(run.len(), "core");
        let (label, beside) = match run[0].len() {
            1 => (cores, union(run).to_string()),
            threads => (format!("{cores} x {threads} smt"), some_of(run)),
        };
        Branch::new(label, beside, Vec::new())
    });
    runs.collect()
}

fn by_core(topology: &Topology, cpus: &CpuSet) -> Vec<CpuSet> {
    let mut parts: BTreeMap<Option<usize>, CpuSet> = BTreeMap::new();
    for cpu in cpus {
        let core = topology.cpu(cpu).and_then(|cpu| cpu.core);
        parts.entry(core).or_default().insert(cpu);
    }
    parts.into_values().collect()
}

/// Prints the first few sets of a run, and the number of the remaining ones.
fn some_of(run: &[CpuSet]) -> String {
    const SHOWN: usize = 8;
    let shown: Vec<String> = run.iter().take(SHOWN).map(CpuSet::to_string).collect();
    let more = run.len().saturating_sub(SHOWN);
    let rest = if more == 0 { String::new() } else { format!("  and {more} more") };
    shown.join("  ") + &rest
}

fn pods(topology: &Topology, params: &ShardParams) -> String {
    let default = AffinityScope::default();
    let mut text = String::new();
    for scope in AffinityScope::ALL {
        let pods: Vec<Pod> = topology.pods(scope, params).iter().cloned().collect();
        let mark = if scope == default { "  (the default scope)" } else { "" };
        let _ = writeln!(text, "{scope:<11}  {}{mark}", shapes(topology, &pods));
        // A list of all single CPUs would not be useful.
        if scope != AffinityScope::Cpu {
            let sets: Vec<String> = pods.iter().map(|pod| pod.cpus.to_string()).collect();
            text += &wrapped(&sets);
        }
    }
    text
}

/// Returns the numbers of pods by size: `3 pods: 2 of 8 cores (16 CPUs), 1 of 4 cores`.
fn shapes(topology: &Topology, pods: &[Pod]) -> String {
    let mut shapes: Vec<((usize, usize), usize)> = Vec::new();
    for pod in pods {
        let nr_cores = by_core(topology, &pod.cpus).len();
        let shape = (nr_cores, pod.cpus.len());
        match shapes.iter_mut().find(|(known, _)| *known == shape) {
            Some((_, count)) => *count += 1,
            None => shapes.push((shape, 1)),
        }
    }
    let of = |&(nr_cores, nr_cpus): &(usize, usize)| match nr_cores == nr_cpus {
        true => counted(nr_cores, "core"),
        false => format!("{} ({})", counted(nr_cores, "core"), counted(nr_cpus, "CPU")),
    };
    match shapes.as_slice() {
        // Every pod of the scope `cpu` is part of a core. This need not be printed.
        _ if pods.iter().all(|pod| pod.cpus.len() == 1) => {
            format!("{} of 1 CPU", counted(pods.len(), "pod"))
        }
        [(shape, count)] => format!("{} of {}", counted(*count, "pod"), of(shape)),
        _ => {
            let each = shapes.iter().map(|(shape, count)| format!("{count} of {}", of(shape)));
            let each = each.collect::<Vec<_>>().join(", ");
            format!("{}: {each}", counted(pods.len(), "pod"))
        }
    }
}

/// Prints sets next to each other, in indented lines that are not too long.
fn wrapped(sets: &[String]) -> String {
    const INDENT: &str = "             ";
    const GAP: &str = "  ";
    let mut text = String::new();
    let mut line = String::new();
    for set in sets.iter().take(MAX_SETS) {
        if !line.is_empty() && INDENT.len() + line.len() + GAP.len() + set.len() > WIDTH {
            let _ = writeln!(text, "{INDENT}{line}");
            line.clear();
        }
        if !line.is_empty() {
            line += GAP;
        }
        line += set;
    }
    let _ = writeln!(text, "{INDENT}{line}");
    if let Some(more @ 1..) = sets.len().checked_sub(MAX_SETS) {
        let _ = writeln!(text, "{INDENT}and {more} more (--json lists all)");
    }
    text
}

fn union(sets: &[CpuSet]) -> CpuSet {
    sets.iter().fold(CpuSet::new(), |all, set| all.union(set))
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Prints a size in the largest unit in which it is a whole number.
fn size(bytes: u64) -> String {
    const UNITS: [(&str, u32); 3] = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let whole = UNITS.iter().find(|(_, shift)| bytes != 0 && bytes.trailing_zeros() >= *shift);
    whole.map_or_else(|| format!("{bytes} B"), |(unit, shift)| format!("{} {unit}", bytes >> shift))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn drawn(levels: &str) -> String {
        draw(&Topology::synthetic(levels).unwrap(), &ShardParams::default())
    }

    fn saved(machine: &str) -> String {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../topology/tests/fixtures");
        draw(&Topology::from_sysfs(&fixtures.join(machine)).unwrap(), &ShardParams::default())
    }

    #[test]
    fn machine_is_drawn_from_package_to_core_with_its_pods() {
        let expected = "\
1 package, 2 nodes, 4 last-level caches, 40 cores, 80 CPUs online
allowed    0-79

package 0                  0-79
├─ node 0                  0-39
│  ├─ L3                   0-19
│  │  └─ 10 cores x 2 smt  0-1  2-3  4-5  6-7  8-9  10-11  12-13  14-15  and 2 more
│  └─ L3                   20-39
│     └─ 10 cores x 2 smt  20-21  22-23  24-25  26-27  28-29  30-31  32-33  34-35  and 2 more
└─ node 1                  40-79
   ├─ L3                   40-59
   │  └─ 10 cores x 2 smt  40-41  42-43  44-45  46-47  48-49  50-51  52-53  54-55  and 2 more
   └─ L3                   60-79
      └─ 10 cores x 2 smt  60-61  62-63  64-65  66-67  68-69  70-71  72-73  74-75  and 2 more

cpu          80 pods of 1 CPU
smt          40 pods of 1 core (2 CPUs)
             0-1  2-3  4-5  6-7  8-9  10-11  12-13  14-15  16-17  18-19  20-21  22-23  24-25  26-27
             28-29  30-31  32-33  34-35  36-37  38-39  40-41  42-43  44-45  46-47  48-49  50-51
             52-53  54-55  56-57  58-59  60-61  62-63  64-65  66-67  68-69  70-71  72-73  74-75
             76-77  78-79
cache_shard  8 pods of 5 cores (10 CPUs)  (the default scope)
             0-9  10-19  20-29  30-39  40-49  50-59  60-69  70-79
cache        4 pods of 10 cores (20 CPUs)
             0-19  20-39  40-59  60-79
numa         2 pods of 20 cores (40 CPUs)
             0-39  40-79
system       1 pod of 40 cores (80 CPUs)
             0-79
";
        assert_eq!(drawn("2 numa x 2 llc x 10 core x 2 smt"), expected);
    }

    #[test]
    fn parts_that_few_machines_have_are_drawn() {
        for (machine, part) in [
            ("xeon-snc2", "L3, 22 MiB"),
            ("xeon-snc2", "0-3,8-11,32-35,40-43  (part of 0-15,32-47)"),
            ("xeon-snc2", "note: the last-level cache of CPUs 0-15,32-47 spans several nodes"),
            ("server-holes", "\noffline    3,7,12-14,16-31\n"),
            ("server-isolated", "\nisolated   4-7,12-15\n"),
            ("server-isolated", "\nnohz_full  4-7,12-15\n"),
            ("grace-72", "\nnode 1             memory only\n"),
            ("vm-nodes", "unknown caches: one per node"),
            (
                "laptop-hybrid",
                "\ncache_shard  3 pods: 1 of 7 cores (13 CPUs), 1 of 7 cores, 1 of 2 cores  (",
            ),
        ] {
            let drawing = saved(machine);
            assert!(drawing.contains(part), "{part} of {machine} is missing in\n{drawing}");
        }
    }

    #[test]
    fn big_machine_is_drawn_in_few_and_short_lines() {
        let drawing = drawn("4 numa x 64 llc x 8 core x 4 smt");
        assert!(drawing.lines().count() < 250, "{}", drawing.lines().count());
        assert!(drawing.contains("48 more"), "{drawing}");
        assert!(drawing.lines().all(|line| line.chars().count() <= 120), "{drawing}");
    }

    #[test]
    fn size_is_whole_in_its_unit() {
        assert_eq!(size(32 << 20), "32 MiB");
        assert_eq!(size(1280 << 10), "1280 KiB");
        assert_eq!(size(1 << 30), "1 GiB");
        assert_eq!((size(100), size(0)), ("100 B".into(), "0 B".into()));
    }
}
