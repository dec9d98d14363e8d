//! Which interrupts a CPU had, by what they are for.

use std::fs;

use topology::CpuId;

/// Counts of interrupts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interrupts {
    /// Of the timer.
    pub timer: u64,
    /// Of another CPU, that this one is to look for another thread to run.
    pub resched: u64,
    /// Of another CPU, that this one is to call a function: a barrier, a change of the page tables.
    pub call: u64,
    /// Of devices and all else.
    pub other: u64,
}

impl Interrupts {
    /// Counts those of a CPU so far; 0 where the system does not say.
    pub fn now(cpu: CpuId) -> Self {
        let table = fs::read_to_string("/proc/interrupts").unwrap_or_default();
        Self::read(&table, cpu)
    }

    /// Reads a table whose first line says which column is whose, and whose rows end with what they count.
    fn read(table: &str, cpu: CpuId) -> Self {
        let mut lines = table.lines();
        let heads: Vec<&str> = lines
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        let name = format!("CPU{cpu}");
        let mut all = Self::default();
        let Some(column) = heads.iter().position(|head| *head == name) else {
            return all;
        };
        for line in lines {
            let count = line.split_whitespace().nth(column + 1);
            let Some(count) = count.and_then(|text| text.parse::<u64>().ok()) else {
                continue;
            };
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

    /// Returns those between two moments.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            timer: self.timer.saturating_sub(before.timer),
            resched: self.resched.saturating_sub(before.resched),
            call: self.call.saturating_sub(before.call),
            other: self.other.saturating_sub(before.other),
        }
    }

    /// Returns how many there are.
    #[must_use]
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
    fn interrupts_are_counted_by_column_and_by_what_they_are_for() {
        let of = |cpu| Interrupts::read(TABLE, CpuId::new(cpu));
        let expected = Interrupts {
            timer: 21,
            resched: 5,
            call: 13,
            other: 2,
        };
        assert_eq!(of(3), expected);
        assert_eq!(of(3).since(of(3)).sum(), 0);
        // A row that ends early counts for all CPUs, and is the first one's column.
        assert_eq!(of(0).sum(), 17 + 3 + 4 + 2 + 5);
        assert_eq!(of(1), Interrupts::default());
    }
}
