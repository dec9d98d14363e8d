//! Workers: their CPUs, their number, their start and exit, and the CPU quota that limits them.

use std::path::PathBuf;
use std::process;

use topology::CpuQuota;

use crate::support::*;

fn only_pool(registry: &Registry) -> PoolStats {
    let mut pools = registry.pool_stats();
    assert_eq!(pools.len(), 1);
    pools.remove(0)
}

fn affinity() -> CpuSet {
    sync::cpu::affinity().unwrap()
}

#[test]
fn workers_run_on_the_cpus_of_their_pod() {
    for strict in [false, true] {
        let (registry, queue) = queue("pods").affinity(Cpu).strict(strict).on_own(detected());
        let allowed = affinity();
        threads(allowed.len(), |i| {
            pin(i);
            let (mine, seen) = (affinity(), queue.in_worker(|_| affinity()));
            // On a loaded machine, a worker of a queue that is not strict may run on another CPU.
            assert!(seen == mine || !strict && seen == allowed, "{seen} for {mine}");
        });
        for pool in registry.pool_stats() {
            assert_eq!((pool.cpus.len(), pool.strict), (1, strict));
        }
    }
}

#[test]
fn strict_worker_never_leaves_its_pod() {
    let (registry, queue) = queue("strict").affinity(Cpu).strict(true).on_own(detected());
    pin(0);
    let mine = affinity();
    let plugs = [(); 4].map(|()| plug_into(&queue));
    wait_until(|| {
        queue.detach(|| ());
        registry.pool_stats().iter().any(|pool| pool.seen_asleep > 0)
    });
    assert_eq!(queue.in_worker(|_| affinity()), mine);
    plugs.iter().for_each(Plug::release);
    queue.drain().unwrap();
    assert!(registry.pool_stats().iter().all(|pool| pool.repatriated == 0));
}

#[test]
fn a_starved_loose_worker_leaves_its_pod_and_returns() {
    if affinity().len() < 2 {
        return;
    }
    let registry = detected();
    // With this nice value, the worker rarely gets its CPU, which other threads keep busy.
    let queue = queue("loose").affinity(Cpu).nice(19).on(&registry);
    let allowed = affinity();
    pin(0);
    let (mine, stop) = (affinity(), Count::default());
    // The nicer the hogs are, the more of them are necessary.
    let nr_hogs = 3 + nice_here().max(0);
    let hogs: Vec<_> = (0..nr_hogs).map(|_| thread::spawn(hogging(stop))).collect();
    let items = [(); 3].map(|()| {
        let allowed = allowed.clone();
        queue.spawn(move || while affinity() != allowed {})
    });
    // The items are not joined, because a join would run an item on this thread.
    wait_until(|| items.iter().all(JoinHandle::is_finished));
    stop.add();
    hogs.into_iter().for_each(|it| it.join().unwrap());
    wait_until(|| queue.in_worker(|_| affinity()) == mine);
    assert!(registry.pool_stats().iter().any(|pool| pool.repatriated > 0));
}

#[test]
fn workers_have_the_nice_value_of_their_queue() {
    let registry = registry("2 core");
    let before = nice_here();
    for wanted in [(before + 1).min(19), 15, 19] {
        let queue = queue("nice").nice(wanted).on(&registry);
        for _ in 0..3 {
            assert_eq!(queue.in_worker(|_| nice_here()), wanted);
        }
        assert_eq!(only_pool(&registry).nice, wanted);
    }
    assert_eq!(nice_here(), before);
    if sync::thread::may_set_nice(-5).is_ok() {
        assert_eq!(queue("nice").nice(-5).on(&registry).in_worker(|_| nice_here()), -5);
    }
}

#[test]
fn queues_with_different_attributes_have_their_own_pools() {
    let registry = registry("2 numa x 2 llc x 4 core x 2 smt");
    let count = || registry.pool_stats().len();
    let again = queue("again").affinity(System).on(&registry);
    // Each entry has a queue, and the number of pools that it adds.
    let all = [
        (queue("q").affinity(System), 0),
        (queue("q").affinity(Numa), 2),
        (queue("q").affinity(Cache), 4),
        (queue("q").affinity(Smt), 16),
        (queue("q").affinity(Numa).strict(true), 2),
        (queue("q").affinity(Numa).nice(5), 2),
    ];
    let mut nr_pools = 1;
    let queues = all.map(|(builder, nr_more)| {
        let queue = builder.on(&registry);
        nr_pools += nr_more;
        assert_eq!(count(), nr_pools);
        queue
    });
    for queue in queues.iter().chain([&again]) {
        assert_eq!(queue.spawn(|| 1).join().unwrap(), 1);
        queue.drain().unwrap();
    }
    drop(queues);
    assert_eq!(count(), 1);
    drop(again);
    assert_eq!(count(), 0);
}

#[test]
fn idle_workers_are_culled_down_to_two() {
    let registry = tuned("8 core", |it| it.idle_timeout_ms = 10);
    let queue = queue("cull").help(false).on(&registry);
    for _ in 0..3 {
        run_at_once(&queue, 8);
        wait_until(|| only_pool(&registry).nr_workers == 2);
        let stats = only_pool(&registry);
        assert!(stats.culled >= 6, "{stats:?}");
    }
    // Two workers are kept, although they remain idle.
    thread::sleep(Duration::from_millis(50));
    assert_eq!(only_pool(&registry).nr_workers, 2);
    assert_eq!(queue.in_worker(|_| 1), 1);
    // Workers that were started for joins are culled, too.
    for _ in 0..20 {
        let registry = tuned("1 core", |it| it.idle_timeout_ms = 10);
        let queue = self::queue("cull").help(false).on(&registry);
        // There are three workers: two sleep in a join, and one runs the innermost item.
        let inner = |own: &Workqueue| own.spawn(|| ()).join().unwrap();
        queue.in_worker(move |own| own.spawn_own(inner).join().unwrap());
        wait_until(|| {
            let stats = only_pool(&registry);
            stats.created < 3 || stats.nr_workers <= 2
        });
    }
    // The idle workers that are kept release the memory of their stacks.
    let registry = tuned("1 core", |it| it.idle_timeout_ms = 10);
    let queue = self::queue("deep").help(false).on(&registry);
    // The second round checks that the manager wakes up again after it has freed the first stack.
    for _ in 0..2 {
        let deep = queue.in_worker(|_| dig(256));
        wait_until(|| !is_resident(deep));
        assert_eq!(queue.in_worker(|_| 1), 1);
    }
    assert_eq!(only_pool(&registry).culled, 0);
}

/// Returns `true` if the page at `address` of this process is in memory.
fn is_resident(address: usize) -> bool {
    // SAFETY: the call takes a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let (start, mut resident) = (std::ptr::without_provenance_mut(address & !(page - 1)), 0);
    // SAFETY: the page may be unmapped, because the call does not access it.
    assert_eq!(unsafe { libc::mincore(start, page, &raw mut resident) }, 0);
    resident & 1 == 1
}

#[test]
fn items_run_without_threads_and_workers_start_later() {
    let registry = threadless("4 core");
    let (queue, count) = (queue("refused").help(false).on(&registry), Count::default());
    for _ in 0..50 {
        count.spawn(2, &queue);
        queue.drain().unwrap();
    }
    assert_eq!(count.get(), 100);
    let stats = only_pool(&registry);
    assert!(stats.created == 0 && stats.spawn_failed > 0, "{stats:?}");
    registry.refuse_threads(false);
    wait_until(|| {
        queue.detach(|| ());
        queue.drain().unwrap();
        only_pool(&registry).created > 0
    });
    run_at_once(&queue, 4);
    drop(queue);
    registry.shutdown().unwrap();
}

#[test]
fn existing_workers_run_all_items_when_no_more_can_start() {
    let (registry, queue) = queue("refused").help(false).on_own(registry("4 core"));
    queue.in_worker(|_| ());
    registry.refuse_threads(true);
    let count = Count::default();
    threads(4, |_| count.spawn(500, &queue));
    assert_eq!(count.after_drain(&queue), 2000);
    registry.refuse_threads(false);
    run_at_once(&queue, 4);
}

#[test]
fn a_pool_does_not_grow_past_max_workers() {
    let registry = tuned("8 core", |it| it.max_workers = 3);
    let queue = queue("few").help(false).on(&registry);
    let (plugs, count) = ([(); 3].map(|()| plug_into(&queue)), Count::default());
    count.spawn(100, &queue);
    wait_until(|| only_pool(&registry).seen_asleep == 3);
    assert_eq!(only_pool(&registry).nr_workers, 3);
    plugs.iter().for_each(Plug::release);
    assert_eq!(count.after_drain(&queue), 100);
    assert!(only_pool(&registry).created <= 3);
}

#[test]
fn both_ways_of_waking_do_the_same_work() {
    for wake in [WakeMode::Deferred, WakeMode::UnderLock] {
        let registry = tuned("64 core", |it| it.wake = wake);
        for scope in [Cpu, System] {
            let queue = queue("wake").affinity(scope).on(&registry);
            let count = Count::default();
            threads(4, |i| {
                pin(i);
                let work = counting(count);
                for n in 0..1000 {
                    assert_eq!(queue.spawn(move || n).join().unwrap(), n);
                    assert!(queue.enqueue(&work));
                    work.flush().unwrap();
                    queue.detach(count.adder());
                }
            });
            assert_eq!(count.after_drain(&queue), 8000);
        }
        registry.shutdown().unwrap();
    }
}

#[test]
fn the_histogram_counts_each_hold_of_a_kick() {
    for wake in [WakeMode::Deferred, WakeMode::UnderLock] {
        let registry = tuned("2 core", |it| {
            it.wake = wake;
            it.lock_stat = true;
            it.worker_spin_limit = 0;
        });
        let queue = queue("hold").help(false).on(&registry);
        assert_eq!(registry.lock_hold().count, 0);
        for _ in 0..200 {
            queue.in_worker(|_| ());
            queue.drain().unwrap();
        }
        let hold = registry.lock_hold();
        assert!(hold.count > 0 && hold.count <= 400, "{}", hold.count);
        assert_eq!(hold.count, hold.buckets.iter().sum::<u64>());
        assert!(hold.total_ns > 0 && hold.mean_ns() > 0.0);
        assert!(hold.quantile_ns(0.5) <= hold.quantile_ns(1.0));
    }
    let quiet = registry("2 core");
    queue("hold").on(&quiet).in_worker(|_| ());
    assert_eq!(quiet.lock_hold().count, 0, "it was not requested");
    assert_eq!(quiet.lock_wait_ns(), 0, "it was not requested");
}

#[test]
fn odd_tunables_still_work() {
    let changes: [fn(&mut Params); 10] = [
        |it| it.max_batch = 0,
        |it| it.max_batch = usize::MAX,
        |it| it.worker_spin_limit = 0,
        |it| it.worker_spin_limit = u32::MAX,
        |it| it.idle_timeout_ms = 0,
        |it| it.idle_timeout_ms = u64::MAX,
        |it| it.watch_tick_us = 0,
        |it| it.watch_tick_us = u64::MAX,
        |it| it.max_workers = 1,
        |it| it.max_workers = 0,
    ];
    for change in changes {
        let registry = tuned("4 core", change);
        let (queue, count) = (queue("odd").help(false).on(&registry), Count::default());
        count.spawn(2000, &queue);
        assert_eq!(count.after_drain(&queue), 2000);
        drop(queue);
        registry.shutdown().unwrap();
    }
}

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

#[test]
fn a_pool_runs_as_many_workers_as_its_quota_allows() {
    let (registry, queue) = queue("fed").on_own(limited(500, true));
    assert_eq!(concurrency(&queue, 400), 1, "half a CPU allows one worker, not none");
    // More items run at once as soon as the quota grows.
    registry.set_topology(machine(Some(3500)));
    run_at_once(&queue, 4);
    registry.set_topology(machine(Some(1000)));
    assert_eq!(registry.topology().quota().unwrap().nr_cpus(), 1);
    wait_until(|| concurrency(&queue, 400) == 1);
    registry.set_topology(machine(None));
    run_at_once(&queue, 4);
    // A registry may overlook the quota.
    run_at_once(&self::queue("unfed").on(&limited(1000, false)), 4);
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
        let find = |is_meant: fn(&str) -> bool| {
            cgroups.lines().find_map(|line| {
                let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
                is_meant(controllers).then(|| format!("/sys/fs/cgroup/{controllers}{path}"))
            })
        };
        let v1 = find(|controllers| controllers.split(',').any(|it| it == "cpu"));
        let is_v2 = v1.is_none();
        let home = v1.or_else(|| find(str::is_empty)).ok_or(io::ErrorKind::NotFound)?;
        let home = PathBuf::from(home);
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
