//! Errors that can occur when a registry is created.

use std::fmt;

use base::internal::params::{ParamError, VARIABLE};

/// The error returned if a registry cannot be created.
#[derive(Debug)]
#[non_exhaustive]
pub enum RegistryError {
    /// The machine has no CPU that the process is allowed to use.
    Topology(topology::Error),
    /// The manager thread could not be created.
    Thread(std::io::Error),
    /// A tunable is out of range, or the environment variable `AFTERWORK` is invalid and contains
    /// the word `strict`.
    Params(ParamError),
    /// The registry belongs to the parent of this forked process. Its threads do not exist here.
    Forked,
}

impl fmt::Display for RegistryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topology(error) => write!(f, "the machine's topology cannot be read: {error}"),
            Self::Thread(error) => write!(f, "cannot create the manager's thread: {error}"),
            Self::Params(error) => write!(f, "{VARIABLE}: {error}"),
            Self::Forked => f.write_str(
                "the registry's threads are in the process that this one was forked from",
            ),
        }
    }
}

impl std::error::Error for RegistryError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Topology(error) => Some(error),
            Self::Thread(error) => Some(error),
            Self::Params(error) => Some(error),
            Self::Forked => None,
        }
    }
}

/// The error returned by an attempt to set the topology of a process that already has one. Contains
/// the rejected topology.
#[derive(Debug)]
pub struct TopologyInUse(pub Box<topology::Topology>);

base::internal::into_io_error!(RegistryError, |_| ErrorKind::Other);
base::internal::into_io_error!(
    TopologyInUse,
    |_| ErrorKind::AlreadyExists,
    "the process has a topology already: set one before the first use"
);
