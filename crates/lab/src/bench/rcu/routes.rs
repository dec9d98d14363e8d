//! A routing table, which maps addresses to ports. It is replaced as a whole, and read under RCU.

use lab_peers::reclaim::Value;

const NR_RESIDENT: u32 = 256;
const NR_BRIDGED: u32 = 16;
const DOWN: u32 = 0;

#[derive(Clone, Debug)]
pub struct Routes {
    routes: Vec<Route>,
}

#[derive(Clone, Copy, Debug)]
struct Route {
    address: u32,
    port: u32,
}

#[derive(Clone, Copy, Debug)]
pub enum Step {
    Add,
    Configure,
    Delete,
}

pub const STEPS: [Step; 3] = [Step::Add, Step::Configure, Step::Delete];

impl Routes {
    pub fn resident() -> Self {
        let route = |n| Route { address: spread(n), port: n + 1 };
        Self::sorted((0..NR_RESIDENT).map(route).collect())
    }

    pub fn after(&self, step: Step, bridge: u32) -> Self {
        let first = NR_RESIDENT + bridge % NR_RESIDENT * NR_BRIDGED;
        let bridged: Vec<u32> = (first..first + NR_BRIDGED).map(spread).collect();
        let kept = |route: &&Route| !bridged.contains(&route.address);
        let mut routes: Vec<Route> = self.routes.iter().filter(kept).copied().collect();
        let port = match step {
            Step::Add => DOWN,
            Step::Configure => bridge + 1,
            Step::Delete => return Self { routes },
        };
        routes.extend(bridged.iter().map(|&address| Route { address, port }));
        Self::sorted(routes)
    }

    fn sorted(mut routes: Vec<Route>) -> Self {
        routes.sort_unstable_by_key(|route| route.address);
        Self { routes }
    }

    fn port(&self, address: u32) -> Option<u32> {
        let found = self.routes.binary_search_by_key(&address, |route| route.address);
        found.ok().map(|at| self.routes[at].port)
    }
}

impl Value for Routes {
    /// Looks up an address that always has a port, and an address that may be behind a bridge.
    fn look(&self, turn: usize) -> u64 {
        let turn = turn as u32;
        let resident = self.port(spread(turn % NR_RESIDENT));
        let bridged = self.port(spread(NR_RESIDENT + turn % (NR_RESIDENT * NR_BRIDGED)));
        assert!(resident.is_some_and(|port| port != DOWN), "a route is missing");
        resident.into_iter().chain(bridged).map(u64::from).sum()
    }
}

/// Returns the `n`th address. The factor is odd, so all addresses are distinct.
fn spread(n: u32) -> u32 {
    n.wrapping_mul(0x9e37_79b1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bridge_is_added_configured_and_deleted() {
        let mut routes = Routes::resident();
        let nr_resident = routes.routes.len();
        let bridged = spread(NR_RESIDENT + 7 * NR_BRIDGED);
        let mut seen = Vec::new();
        for step in STEPS {
            routes = routes.after(step, 7);
            seen.push(routes.port(bridged));
            assert!((0..1000).all(|turn| routes.look(turn) > 0));
        }
        assert_eq!(seen, [Some(DOWN), Some(8), None]);
        assert_eq!(routes.routes.len(), nr_resident);
    }
}
