//! Interrupts of a CPU, by purpose.

use std::{array, fs};

use topology::CpuId;

/// The number of timer interrupts, of requests by another CPU to schedule a different thread, of
/// requests by another CPU to call a function (such as a barrier or a TLB flush), and of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interrupts(pub [u64; 4]);

/// The words in the rows of each kind, but the last one.
const PURPOSES: [&[&str]; 3] = [&["timer"], &["Rescheduling"], &["Function call", "TLB"]];

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
            let is_meant = |words: &&[&str]| words.iter().any(|word| line.contains(word));
            let purpose = PURPOSES.iter().position(is_meant).unwrap_or(PURPOSES.len());
            all.0[purpose] += count;
        }
        all
    }

    pub fn since(self, before: Self) -> Self {
        Self(array::from_fn(|purpose| self.0[purpose].saturating_sub(before.0[purpose])))
    }

    pub fn sum(self) -> u64 {
        self.0.iter().sum()
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
        assert_eq!(of(3), Interrupts([21, 5, 13, 2]));
        assert_eq!(of(3).since(of(3)).sum(), 0);
        // A row with a single column counts for all CPUs, and is attributed to the first CPU.
        assert_eq!(of(0).sum(), 17 + 3 + 4 + 2 + 5);
        assert_eq!(of(1), Interrupts::default());
    }
}
