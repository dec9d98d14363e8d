//! Sets of CPUs.

/// The maximum number of CPUs of a simulated machine.
pub const MAX_CPUS: usize = 1024;

/// A set of CPUs, by number.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Mask([u64; MAX_CPUS / 64]);

impl Mask {
    pub fn one(cpu: usize) -> Self {
        Self::from_iter([cpu])
    }

    #[inline]
    pub fn has(&self, cpu: usize) -> bool {
        self.0[cpu / 64] >> (cpu % 64) & 1 != 0
    }

    #[inline]
    pub fn insert(&mut self, cpu: usize) {
        self.0[cpu / 64] |= 1 << (cpu % 64);
    }

    #[inline]
    pub fn remove(&mut self, cpu: usize) {
        self.0[cpu / 64] &= !(1 << (cpu % 64));
    }

    pub fn meets(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).any(|(a, b)| a & b != 0)
    }

    /// Returns `true` if a member other than `but` is not in `other`.
    pub fn leaves(&self, other: &Self, but: usize) -> bool {
        let mut rest = *self;
        rest.remove(but);
        rest.0.iter().zip(&other.0).any(|(a, b)| a & !b != 0)
    }

    /// Returns `true` if the set has no member other than `but`.
    pub fn is_empty_but(&self, but: usize) -> bool {
        !self.leaves(&Self::default(), but)
    }

    pub fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..MAX_CPUS / 64).flat_map(move |at| {
            let mut word = self.0[at];
            std::iter::from_fn(move || {
                let bit = (word != 0).then(|| word.trailing_zeros() as usize)?;
                word &= word - 1;
                Some(64 * at + bit)
            })
        })
    }
}

impl FromIterator<usize> for Mask {
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> Self {
        let mut mask = Self::default();
        cpus.into_iter().for_each(|cpu| mask.insert(cpu));
        mask
    }
}

impl From<&topology::CpuSet> for Mask {
    fn from(cpus: &topology::CpuSet) -> Self {
        cpus.iter().map(|cpu| cpu.index()).collect()
    }
}
