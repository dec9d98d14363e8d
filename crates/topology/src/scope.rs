//! Affinity scopes, which determine the CPUs that share a pod.

use std::fmt;
use std::str::FromStr;

/// A rule that determines which CPUs may share a worker pool.
///
/// Scopes are ordered from the finest to the coarsest. Each scope refines every coarser one: CPUs
/// of one `smt` pod are in one `cache_shard` pod, and so on. If the parts of a machine do not nest
/// like that, the coarser part divides the finer one, and
/// [`Topology::quirks`](crate::Topology::quirks) reports it:
///
/// - If a last-level cache spans nodes (sub-NUMA clustering), there is one `cache` pod per node,
///   with the CPUs that share the cache *and* the node.
/// - If the siblings of a core are not all on one cache and one node, there is one `smt` pod for
///   each cache and node.
/// - If the kernel knows no nodes, the whole machine counts as one.
///
/// The default is `cache_shard`, as in Linux since 7.1.
///
/// # Examples
///
/// ```
/// use afterwork_topology::AffinityScope;
///
/// let scope: AffinityScope = "cache_shard".parse()?;
/// assert_eq!(scope, AffinityScope::default());
/// assert!(AffinityScope::Cpu < scope && scope < AffinityScope::System);
/// # Ok::<(), afterwork_topology::UnknownScope>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AffinityScope {
    /// Each CPU is a pod.
    Cpu,
    /// The SMT siblings of a core that are online and allowed, so a pod may be a single CPU.
    Smt,
    /// A shard of a last-level cache, with at most
    /// [`cache_shard_size`](crate::ShardParams::cache_shard_size) cores.
    #[default]
    CacheShard,
    /// All CPUs that share a last-level cache.
    Cache,
    /// A NUMA node.
    Numa,
    /// All CPUs.
    System,
}

impl AffinityScope {
    /// All scopes, from the finest to the coarsest.
    pub const ALL: [Self; 6] =
        [Self::Cpu, Self::Smt, Self::CacheShard, Self::Cache, Self::Numa, Self::System];

    /// Returns the kernel's word for the scope.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Smt => "smt",
            Self::CacheShard => "cache_shard",
            Self::Cache => "cache",
            Self::Numa => "numa",
            Self::System => "system",
        }
    }
}

impl fmt::Display for AffinityScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for AffinityScope {
    type Err = UnknownScope;

    fn from_str(word: &str) -> Result<Self, UnknownScope> {
        let known = Self::ALL.into_iter().find(|scope| scope.as_str() == word);
        known.ok_or_else(|| UnknownScope { word: word.to_owned() })
    }
}

/// The error of parsing a word that is not an affinity scope. Its text lists the valid words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownScope {
    word: String,
}

impl fmt::Display for UnknownScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let valid = AffinityScope::ALL.map(AffinityScope::as_str).join(", ");
        write!(f, "unknown affinity scope {:?}: expected one of {valid}", self.word)
    }
}

impl std::error::Error for UnknownScope {}

crate::into_io_error!(UnknownScope, |_| ErrorKind::InvalidInput);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_listed_in_their_order_and_read_back() {
        assert!(AffinityScope::ALL.is_sorted());
        for scope in AffinityScope::ALL {
            assert_eq!(scope.to_string().parse(), Ok(scope));
        }
    }

    #[test]
    fn unknown_scope_lists_the_valid_ones_in_one_line() {
        let error = "no\nsuch".parse::<AffinityScope>().unwrap_err().to_string();
        let expected = "unknown affinity scope \"no\\nsuch\": expected one of cpu, smt, cache_shard, cache, numa, system";
        assert_eq!(error, expected);
    }
}
