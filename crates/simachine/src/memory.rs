//! The costs of accesses, and the wait for a line that is in another CPU's cache.

use super::clock::NEVER;
use super::engine::{Engine, engine, give_way, suspend, sync, with};
use super::line::{LINE_BYTES, NOBODY, Site};
use super::mask::Mask;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    Load,
    Store,
    /// A locked instruction that always changes its word.
    Rmw,
    /// A compare-and-exchange, which may change nothing.
    Cas,
}

/// Charges the running task, if there is one, for an access, and waits for its turn.
#[inline(never)]
pub fn touch(addr: usize, access: Access, site: Site) {
    let wait = with(|e| {
        e.counts.accesses += 1;
        let instr = e.costs.instr;
        e.advance(instr);
        e.task().paid = addr;
        match access {
            Access::Load | Access::Cas => {
                e.task().last_site = Some(site);
                e.count_idle();
            }
            Access::Store | Access::Rmw => e.task().nr_idle = 0,
        }
        if e.is_over() { None } else { Some(e.hit(addr, access)) }
    });
    let missed = match wait {
        None => return,
        Some(Some(missed)) => missed,
        Some(None) => {
            give_way();
            engine(|e| e.hit(addr, access))
        }
    };
    if let Some(place) = missed {
        fetch(place, access, site);
    }
}

/// Charges for plain accesses to a line, if the CPU does not have the line. The first check, which
/// usually suffices, does not wait for CPUs whose clocks are behind.
pub fn touch_plain(addr: usize, access: Access, site: Site) {
    if engine(|e| e.has(addr, access)) {
        return;
    }
    sync();
    if let Some(place) = engine(|e| e.hit(addr, access)) {
        fetch(place, access, site);
    }
}

/// Records that the running task has changed something, so it is not in an endless loop.
pub fn changed() {
    with(|e| e.task().nr_idle = 0);
}

/// Fetches a line that the CPU does not have: waits for its turn, and for the transfer.
#[cold]
fn fetch(place: usize, access: Access, site: Site) {
    let from = engine(|e| e.now());
    let must_wait = engine(|e| e.join_wait_queue(place));
    if must_wait {
        suspend();
        engine(|e| e.leave_wait_queue(place));
    }
    let sample = engine(|e| {
        e.transfer(place, access);
        let waited = e.now() - from;
        e.lines.at(place).note(site, waited);
        let takes_stacks = e.machine.takes_stacks;
        takes_stacks.then(|| e.samples.is_due(waited)).flatten()
    });
    if let Some(weight) = sample {
        let stack = std::backtrace::Backtrace::force_capture();
        engine(|e| e.samples.add(place, weight, stack));
    }
}

/// Executes a full fence: waits until the store buffer is empty.
pub fn fence() {
    with(|e| {
        let fence = e.costs.fence;
        let cpu = &mut e.cpus[e.cpu];
        cpu.now = cpu.now.max(cpu.drain) + fence;
    });
}

/// Executes an expedited membarrier, which interrupts every CPU that runs a task.
pub fn membarrier() {
    if with(|_| ()).is_none() {
        return;
    }
    sync();
    engine(|e| {
        e.counts.membarriers += 1;
        let (now, irq) = (e.now(), e.costs.membarrier_irq);
        let mut nr_others = 0;
        for c in 0..e.cpus.len() {
            if c != e.cpu && e.cpus[c].cur.is_some() {
                let when = e.cpus[c].now.max(now) + irq;
                e.interrupt(c, when);
                nr_others += 1;
            }
        }
        let last = if nr_others == 0 { 0 } else { irq };
        let each = e.costs.membarrier_each * nr_others;
        e.advance(e.costs.syscall + e.costs.membarrier + each + last);
        e.set_limit();
    });
}

/// Spends CPU time. Other tasks may preempt the running one.
pub fn work(mut ps: u64) {
    /// The longest piece of work without a preemption point.
    const STEP_PS: u64 = 5_000_000;
    while ps > 0 {
        let step = ps.min(STEP_PS);
        engine(|e| {
            e.advance(step);
            e.task().nr_idle = 0;
        });
        ps -= step;
        sync();
    }
}

impl Engine {
    /// Charges for an access if this CPU has the line; otherwise returns the line's index.
    #[inline]
    pub fn hit(&mut self, addr: usize, access: Access) -> Option<usize> {
        self.check_step();
        let place = self.lines.find(addr);
        let c = self.cpu;
        let cpu = &mut self.cpus[c];
        let line = self.lines.at(place);
        let is_mine = line.is_of(c, cpu.now);
        match access {
            Access::Load if is_mine || line.sharers.has(c) => cpu.now += self.costs.load_hit,
            Access::Store if is_mine => cpu.now += self.costs.store_hit,
            Access::Rmw | Access::Cas => {
                // A locked instruction waits for earlier stores.
                cpu.now = cpu.now.max(cpu.drain);
                if !is_mine {
                    return Some(place);
                }
                if line.owner == c as u32 {
                    cpu.now = cpu.now.max(line.ready);
                }
                cpu.now += self.costs.rmw_hit;
            }
            _ => return Some(place),
        }
        None
    }

    /// Returns `true` if this CPU can make the access without a transfer of the line.
    fn has(&mut self, addr: usize, access: Access) -> bool {
        let (c, now) = (self.cpu, self.now());
        let place = self.lines.find(addr);
        let line = self.lines.at(place);
        line.is_of(c, now) || (access == Access::Load && line.sharers.has(c))
    }

    /// Joins the queue for a line if it is busy. Returns `true` if the task must suspend.
    fn join_wait_queue(&mut self, place: usize) -> bool {
        let c = self.cpu;
        let line = self.lines.at(place);
        if line.busy <= self.cpus[c].now && line.queue.is_empty() {
            return false;
        }
        if self.machine.reserves_ahead {
            self.cpus[c].now = self.cpus[c].now.max(line.busy);
            return false;
        }
        line.queue.push_back(c as u32);
        let is_first = line.queue.len() == 1;
        self.cpus[c].parked = Some(if is_first { line.busy } else { NEVER });
        true
    }

    fn leave_wait_queue(&mut self, place: usize) {
        let c = self.cpu;
        let line = self.lines.at(place);
        let first = line.queue.pop_front();
        debug_assert_eq!(first, Some(c as u32), "a line was granted out of turn");
        let cpu = &mut self.cpus[c];
        cpu.parked = None;
        cpu.now = cpu.now.max(line.busy);
    }

    /// Moves a line to this CPU, and sets the time at which the next CPU in the queue gets it.
    fn transfer(&mut self, place: usize, access: Access) {
        let c = self.cpu;
        let writes = access != Access::Load;
        let start = self.cpus[c].now;
        let took = self.transfer_time(place, writes);
        let early = if self.machine.reserves_ahead { 0 } else { self.machine.early_per_mille };
        let (hold, read_gap) = (self.costs.hold, self.costs.read_gap);
        let line = self.lines.at(place);
        let there = start + took;
        if line.exclusive && line.owner != c as u32 {
            line.prev = line.owner;
            line.until = start + took * early / 1000;
        }
        if writes {
            line.owner = c as u32;
            line.exclusive = true;
            line.sharers = Mask::one(c);
            line.busy = there + hold;
            line.ready = there;
        } else {
            line.busy = if line.exclusive { there } else { start + read_gap };
            line.exclusive = false;
            line.sharers.insert(c);
        }
        line.check();
        let next = line.queue.front().map(|&next| (next as usize, line.busy));
        let cpu = &mut self.cpus[c];
        match access {
            Access::Load => cpu.now = there,
            Access::Rmw | Access::Cas => cpu.now = there + self.costs.rmw_hit,
            Access::Store => {
                cpu.now += self.costs.store_hit;
                cpu.drain = cpu.drain.max(there);
            }
        }
        self.counts.moves += 1;
        if let Some((next, when)) = next {
            self.cpus[next].parked = Some(when);
            self.clock.set(next, when);
            self.set_limit();
        }
    }

    fn transfer_time(&mut self, place: usize, writes: bool) -> u64 {
        let (c, costs) = (self.cpu, &self.costs);
        let (core, llc, node) = (&self.core_of[c], &self.llc_of[c], &self.node_of[c]);
        let line = self.lines.at(place);
        // This is the cost of the farthest CPU that loses the line.
        let farthest = |mask: &Mask| match () {
            () if mask.leaves(node, c) => costs.xnode,
            () if mask.leaves(llc, c) => costs.xllc,
            () if mask.leaves(core, c) => costs.llc_dirty,
            () => costs.smt,
        };
        if line.owner == NOBODY && line.sharers.is_empty_but(c) {
            return if line.sharers.has(c) { costs.llc } else { costs.dram };
        }
        if writes {
            let mut others = line.sharers;
            if line.exclusive {
                others.insert(line.owner as usize);
            }
            return if others.is_empty_but(c) { costs.llc } else { farthest(&others) };
        }
        match () {
            () if line.exclusive => farthest(&Mask::one(line.owner as usize)),
            () if line.sharers.meets(core) => costs.smt,
            () if line.sharers.meets(llc) => costs.llc,
            () if line.sharers.meets(node) => costs.xllc,
            () => costs.xnode,
        }
    }
}

/// Charges for the lines that a lock guards. These lines move with the lock.
pub fn touch_guarded(addr: usize, bytes: usize, site: Site) {
    let Some(most) = with(|e| e.machine.guarded_lines) else {
        return;
    };
    for at in 0..bytes.div_ceil(LINE_BYTES).min(most) {
        touch(addr + at * LINE_BYTES, Access::Load, site);
        touch(addr + at * LINE_BYTES, Access::Store, site);
    }
}
