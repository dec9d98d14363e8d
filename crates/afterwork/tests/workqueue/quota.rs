//! Pools that follow the CPU quota of the process's cgroup.

use std::path::PathBuf;
use std::process;

use topology::CpuQuota;

use crate::support::*;

/// Returns a machine of four CPUs with a quota in thousandths of a CPU.
fn machine(millicpus: Option<u64>) -> Topology {
    let quota = millicpus.and_then(|milli| CpuQuota::new(milli * 100, 100_000));
    Topology::synthetic("4 core").unwrap().with_quota(quota)
}

/// Creates a registry without a monitor, so that no worker is replaced, however long its item runs.
fn limited(millicpus: u64, cpu_quota: bool) -> Registry {
    let params = Params { watch_tick_us: 3_600_000_000, cpu_quota, ..Params::default() };
    Registry::new(machine(Some(millicpus)), params).unwrap()
}

fn most_at_once(queue: &Workqueue) -> usize {
    let gauge = Gauge::default();
    let work = move || gauge.within(|| (0..2_000).for_each(|_| std::hint::spin_loop()));
    (0..400).for_each(|_| queue.detach(work));
    queue.drain().unwrap();
    gauge.most()
}

/// Runs `count` items that wait for each other without reporting it.
fn meet(queue: &Workqueue, count: usize) {
    meet_in(queue, count);
    queue.drain().unwrap();
}

#[test]
fn a_pool_runs_as_many_workers_as_its_quota_allows() {
    let (registry, queue) = queue("fed").on_own(limited(500, true));
    assert_eq!(most_at_once(&queue), 1, "half a CPU allows one worker, not none");
    // More items run at once as soon as the quota grows.
    registry.set_topology(machine(Some(3500)));
    meet(&queue, 4);
    registry.set_topology(machine(Some(1000)));
    assert_eq!(registry.topology().quota().unwrap().nr_cpus(), 1);
    wait_until(|| most_at_once(&queue) == 1);
    registry.set_topology(machine(None));
    meet(&queue, 4);
    // A registry may overlook the quota.
    meet(&self::queue("unfed").on(&limited(1000, false)), 4);
    // Waiting work starts when the quota grows.
    let (registry, queue) = self::queue("grows").on_own(limited(1000, true));
    let plug = plug_into(&queue);
    let handle = queue.spawn(|| ());
    registry.set_topology(machine(Some(2000)));
    // The first item still blocks its worker.
    wait_until(|| handle.is_finished());
    plug.release();
}

#[test]
fn unbound_queues_keep_to_the_cpus_that_a_parameter_names() {
    let params: Params = "workqueue.unbound_cpus=1+3".parse().unwrap();
    let registry = registry_with("4 core", params);
    assert_eq!(registry.unbound_cpus().unwrap().to_string(), "1,3");
    let queue = queue("bound").on(&registry);
    queue.spawn(|| ()).join().unwrap();
    let pools = registry.pool_stats();
    assert!(pools.iter().all(|pool| pool.cpus.to_string() == "1,3"), "{pools:?}");
    registry.set_unbound_cpus(None);
    assert_eq!(registry.unbound_cpus(), None);
}

/// A temporary cgroup, in whichever cgroup version has the `cpu` controller.
struct Cgroup {
    dir: PathBuf,
    is_v2: bool,
    /// The cgroup that this process was in before.
    home: PathBuf,
}

impl Cgroup {
    /// Creates a cgroup below the process's own, and moves the process there.
    fn enter() -> io::Result<Self> {
        let cgroups = fs::read_to_string("/proc/self/cgroup")?;
        let mut lines = cgroups.lines().filter_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            Some((fields.next()?, fields.next()?))
        });
        let has_cpu = |&(controllers, _): &(&str, _)| controllers.split(',').any(|it| it == "cpu");
        let v1 = lines.clone().find(has_cpu);
        let (mount, path, is_v2) = match v1 {
            Some((controllers, path)) => (format!("/sys/fs/cgroup/{controllers}"), path, false),
            None => {
                let v2 = lines.find(|(controllers, _)| controllers.is_empty());
                let path = v2.ok_or(io::ErrorKind::NotFound)?.1;
                ("/sys/fs/cgroup".to_owned(), path, true)
            }
        };
        let home = PathBuf::from(mount).join(path.trim_start_matches('/'));
        let dir = home.join(format!("afterwork-test-{}", process::id()));
        fs::create_dir(&dir)?;
        let cgroup = Self { dir, is_v2, home };
        cgroup.set(400_000)?;
        fs::write(cgroup.dir.join("cgroup.procs"), process::id().to_string())?;
        Ok(cgroup)
    }

    /// Sets the quota in microseconds per 100 ms.
    fn set(&self, quota_us: u64) -> io::Result<()> {
        if self.is_v2 {
            return fs::write(self.dir.join("cpu.max"), format!("{quota_us} 100000"));
        }
        fs::write(self.dir.join("cpu.cfs_period_us"), "100000")?;
        fs::write(self.dir.join("cpu.cfs_quota_us"), quota_us.to_string())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::write(self.home.join("cgroup.procs"), process::id().to_string());
        let _ = fs::remove_dir(&self.dir);
    }
}

#[test]
fn the_registry_of_the_process_follows_the_quota_of_its_cgroup() {
    in_own_process(|| {
        let cgroup = match Cgroup::enter() {
            Ok(cgroup) => cgroup,
            Err(error) => return eprintln!("skipped: cannot create a cgroup: {error}"),
        };
        cgroup.set(150_000).unwrap();
        let registry = Registry::global().unwrap();
        let quota = || registry.topology().quota().map(CpuQuota::millicpus);
        assert_eq!(quota(), Some(1500));
        let queue = queue("process").build().unwrap();
        queue.spawn(|| ()).join().unwrap();
        cgroup.set(50_000).unwrap();
        // The manager may read the new quota before this thread does.
        wait_until(|| {
            registry.refresh_topology();
            quota() == Some(500)
        });
        assert_eq!(queue.spawn(|| 7).join().unwrap(), 7);
    });
}
