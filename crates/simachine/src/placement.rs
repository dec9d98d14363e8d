//! Decides where a woken thread runs, by rules that summarize Linux's `select_task_rq_fair`.
//!
//! The previous CPU is chosen if it is idle. Otherwise the target is the less loaded of the waker's
//! CPU and the previous CPU. The scheduler chooses an idle core that shares the target's cache;
//! failing that, an idle CPU that shares it; failing that, the target itself.

use super::mask::Mask;

/// The inputs of the placement decision.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    /// The CPU on which the thread ran before.
    pub prev: usize,
    /// The CPU of the waking thread, or `None` if no thread wakes it.
    pub waker: Option<usize>,
    /// The CPUs on which the thread may run; never empty.
    pub allowed: &'a Mask,
    pub idle: &'a Mask,
    /// For each CPU, the CPUs of its core and of its last-level cache.
    pub core_of: &'a [Mask],
    pub llc_of: &'a [Mask],
    /// Returns the number of threads that run or wait on a CPU.
    pub load: &'a dyn Fn(usize) -> usize,
}

/// Returns the CPU on which the thread will run.
pub fn place(facts: Facts) -> usize {
    let (prev, nr_cpus) = (facts.prev, facts.llc_of.len());
    let may = |cpu: usize| facts.allowed.has(cpu);
    if may(prev) && facts.idle.has(prev) {
        return prev;
    }
    let target = match facts.waker {
        Some(waker) if may(waker) && (!may(prev) || (facts.load)(waker) < (facts.load)(prev)) => {
            waker
        }
        _ if may(prev) => prev,
        _ => facts.allowed.iter().next().expect("a thread may run somewhere"),
    };
    let near = &facts.llc_of[target];
    let idle_near = (1..=nr_cpus)
        .map(|step| (target + step) % nr_cpus)
        .filter(|&cpu| facts.idle.has(cpu) && may(cpu) && near.has(cpu));
    let mut any = None;
    for cpu in idle_near {
        if !facts.core_of[cpu].leaves(facts.idle, cpu) {
            return cpu;
        }
        any.get_or_insert(cpu);
    }
    any.unwrap_or(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The machine has 2 caches with 4 cores of 2 threads each. The other inputs are random.
    #[test]
    fn thread_is_placed_on_an_allowed_idle_core_near_its_target() {
        let nr_cpus = 16;
        let group = |cpu: usize, size: usize| -> Mask {
            let first = cpu / size * size;
            (first..first + size).collect()
        };
        let core_of: Vec<_> = (0..nr_cpus).map(|cpu| group(cpu, 2)).collect();
        let llc_of: Vec<_> = (0..nr_cpus).map(|cpu| group(cpu, 8)).collect();
        let mut seed = 3_u64;
        let mut dice = |n: usize| {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (seed >> 33) as usize % n
        };
        for _ in 0..20_000 {
            let sides = 1 + dice(4);
            let mut some = || (0..nr_cpus).filter(|_| dice(sides) == 0).collect::<Mask>();
            let (mut allowed, idle) = (some(), some());
            allowed.insert(dice(nr_cpus));
            let loads: Vec<_> =
                (0..nr_cpus).map(|cpu| if idle.has(cpu) { 0 } else { 1 + dice(3) }).collect();
            let facts = Facts {
                prev: dice(nr_cpus),
                waker: (dice(3) > 0).then(|| dice(nr_cpus)),
                allowed: &allowed,
                idle: &idle,
                core_of: &core_of,
                llc_of: &llc_of,
                load: &|cpu| loads[cpu],
            };
            let cpu = place(facts);
            assert!(allowed.has(cpu));
            if allowed.has(facts.prev) && idle.has(facts.prev) {
                assert_eq!(cpu, facts.prev);
                continue;
            }
            let near = |at: usize| llc_of[cpu].has(at) && allowed.has(at);
            let whole = |at: usize| idle.has(at) && idle.has(at ^ 1);
            if (0..nr_cpus).any(|at| near(at) && idle.has(at)) {
                assert!(idle.has(cpu), "a CPU is idle, and another one was taken");
            }
            if (0..nr_cpus).any(|at| near(at) && whole(at)) {
                assert!(whole(cpu), "a core is idle, and half of another one was taken");
            }
        }
    }
}
