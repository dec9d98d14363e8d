//! Describes the machine for programs.
//!
//! The output is one object. Sets of CPUs are strings in the kernel's list format. `core`, `llc`
//! and `package` of a CPU are indices into the arrays `cores`, `llcs` and `packages`. `node` is the
//! kernel's number. Unknown values are `null`.

use std::collections::BTreeMap;

use serde::Serialize;
use topology::{AffinityScope, CpuQuota, CpuSet, LlcSource, ShardParams, Topology};

#[derive(Serialize)]
struct Machine {
    possible: String,
    online: String,
    allowed: String,
    isolated: String,
    nohz_full: String,
    /// The quota, in thousandths of a CPU.
    quota_millicpus: Option<u64>,
    cpus: Vec<Cpu>,
    cores: Vec<String>,
    llcs: Vec<Llc>,
    packages: Vec<Part>,
    nodes: Vec<Part>,
    cache_shard_size: usize,
    default_scope: &'static str,
    pods: BTreeMap<&'static str, Vec<Pod>>,
    quirks: Vec<String>,
}

#[derive(Serialize)]
struct Cpu {
    cpu: u32,
    online: bool,
    allowed: bool,
    core: Option<usize>,
    llc: Option<usize>,
    package: Option<usize>,
    node: Option<u32>,
}

#[derive(Serialize)]
struct Llc {
    cpus: String,
    /// `null` if the machine does not describe its caches. `presumed` then names the substitute.
    level: Option<u32>,
    presumed: Option<&'static str>,
    size_bytes: Option<u64>,
}

#[derive(Serialize)]
struct Part {
    id: Option<u32>,
    cpus: String,
}

#[derive(Serialize)]
struct Pod {
    cpus: String,
    node: Option<u32>,
}

/// Writes a machine as one JSON object on several lines.
///
/// # Errors
///
/// Returns the errors of the serializer. None occur for this object.
pub fn json(topology: &Topology, params: &ShardParams) -> serde_json::Result<String> {
    serde_json::to_string_pretty(&machine(topology, params))
}

fn machine(topology: &Topology, params: &ShardParams) -> Machine {
    Machine {
        possible: topology.possible().to_string(),
        online: topology.online().to_string(),
        allowed: topology.allowed().to_string(),
        isolated: topology.isolated().to_string(),
        nohz_full: topology.nohz_full().to_string(),
        quota_millicpus: topology.quota().map(CpuQuota::millicpus),
        cpus: topology.cpus().map(|it| cpu(it, topology)).collect(),
        cores: topology.cores().iter().map(|core| core.cpus.to_string()).collect(),
        llcs: topology.llcs().iter().map(llc).collect(),
        packages: topology.packages().iter().map(|it| part(it.id, &it.cpus)).collect(),
        nodes: topology.nodes().iter().map(|node| part(Some(node.id), &node.cpus)).collect(),
        cache_shard_size: params.cache_shard_size,
        default_scope: AffinityScope::default().as_str(),
        pods: AffinityScope::ALL.map(|it| (it.as_str(), pods(topology, it, params))).into(),
        quirks: topology.quirks().iter().map(ToString::to_string).collect(),
    }
}

fn cpu(cpu: &topology::Cpu, topology: &Topology) -> Cpu {
    let &topology::Cpu { id, online, core, llc, package, node, .. } = cpu;
    let allowed = topology.allowed().contains(id);
    Cpu { cpu: id.as_u32(), online, allowed, core, llc, package, node }
}

fn llc(llc: &topology::Llc) -> Llc {
    let (level, presumed) = match llc.source {
        LlcSource::Cache { level } => (Some(level), None),
        LlcSource::Package => (None, Some("package")),
        LlcSource::Node => (None, Some("node")),
        LlcSource::System => (None, Some("system")),
    };
    Llc { cpus: llc.cpus.to_string(), level, presumed, size_bytes: llc.size }
}

fn part(id: Option<u32>, cpus: &CpuSet) -> Part {
    Part { id, cpus: cpus.to_string() }
}

fn pods(topology: &Topology, scope: AffinityScope, params: &ShardParams) -> Vec<Pod> {
    let pods = topology.pods(scope, params);
    pods.iter().map(|pod| Pod { cpus: pod.cpus.to_string(), node: pod.node }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn object_holds_machine_and_pods_of_every_scope() {
        let topology = Topology::synthetic("2 numa x 2 core x 2 smt").unwrap();
        let text = super::json(&topology, &ShardParams::default()).unwrap();
        let object: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(object["allowed"], "0-7");
        assert_eq!(object["cores"], json!(["0-1", "2-3", "4-5", "6-7"]));
        assert_eq!(object["nodes"][1], json!({"id": 1, "cpus": "4-7"}));
        let llc = json!({"cpus": "0-3", "level": 3, "presumed": null, "size_bytes": null});
        assert_eq!(object["llcs"][0], llc);
        let cpu = json!({
            "cpu": 5, "online": true, "allowed": true, "core": 2, "llc": 1, "package": 0, "node": 1,
        });
        assert_eq!(object["cpus"][5], cpu);
        assert_eq!(object["pods"]["numa"][1], json!({"cpus": "4-7", "node": 1}));
        assert_eq!(object["pods"]["system"], json!([{"cpus": "0-7", "node": null}]));
        for scope in AffinityScope::ALL {
            let pods = object["pods"][scope.as_str()].as_array().unwrap();
            assert_eq!(pods.len(), topology.pods(scope, &ShardParams::default()).len(), "{scope}");
        }
    }
}
