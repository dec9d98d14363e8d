//! Interrupts of a CPU, by purpose.

use std::fs;

use topology::CpuId;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interrupts {
    pub timer: u64,
    /// The number of requests by another CPU to schedule a different thread.
    pub resched: u64,
    /// The number of requests by another CPU to call a function, such as a barrier or a TLB flush.
    pub call: u64,
    pub other: u64,
}

impl Interrupts {
    pub fn now(cpu: CpuId) -> Self {
        let table = fs::read_to_string("/proc/interrupts").unwrap_or_default();
        Self::read(&table, cpu)
    }

    /// Parses a table whose first line names the CPUs and whose rows end with the purpose of the
    /// interrupts.
    fn read(table: &str, cpu: CpuId) -> Self {
        let mut lines = table.lines();
        let heads: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().collect();
        let name = format!("CPU{cpu}");
        let mut all = Self::default();
        let Some(column) = heads.iter().position(|head| *head == name) else { return all };
        for line in lines {
            let count = line.split_whitespace().nth(column + 1);
            let Some(count) = count.and_then(|text| text.parse::<u64>().ok()) else { continue };
            let about = |words: &[&str]| words.iter().any(|word| line.contains(word));
            *if about(&["timer"]) {
                &mut all.timer
            } else if about(&["Rescheduling"]) {
                &mut all.resched
            } else if about(&["Function call", "TLB"]) {
                &mut all.call
            } else {
                &mut all.other
            } += count;
        }
        all
    }

    pub fn since(self, before: Self) -> Self {
        Self {
            timer: self.timer.saturating_sub(before.timer),
            resched: self.resched.saturating_sub(before.resched),
            call: self.call.saturating_sub(before.call),
            other: self.other.saturating_sub(before.other),
        }
    }

    pub fn sum(self) -> u64 {
        self.timer + self.resched + self.call + self.other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "      CPU0  CPU3
  0:    7    1  IO-APIC  2-edge  timer
 24:    3    2  PCI-MSIX  virtio-net
LOC:   10   20  Local timer interrupts
RES:    4    5  Rescheduling interrupts
CAL:    1    6  Function call interrupts
TLB:    1    7  TLB shootdowns
ERR:    5
";

    #[test]
    fn interrupts_are_counted_by_column_and_purpose() {
        let of = |cpu| Interrupts::read(TABLE, CpuId::new(cpu));
        let expected = Interrupts { timer: 21, resched: 5, call: 13, other: 2 };
        assert_eq!(of(3), expected);
        assert_eq!(of(3).since(of(3)).sum(), 0);
        // A row with a single column counts for all CPUs, and is attributed to the first CPU.
        assert_eq!(of(0).sum(), 17 + 3 + 4 + 2 + 5);
        assert_eq!(of(1), Interrupts::default());
    }
}
