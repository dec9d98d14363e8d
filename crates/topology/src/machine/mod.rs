//! Reads topologies from the system or from files, saves them, and divides them into pods.

pub(crate) mod bounds;
pub(crate) mod build;
pub(crate) mod cgroup;
pub(crate) mod detect;
pub(crate) mod error;
pub(crate) mod faults;
pub(crate) mod file;
pub(crate) mod parts;
pub(crate) mod pods;
pub(crate) mod quirk;
pub(crate) mod quota;
pub(crate) mod shard;
pub(crate) mod snapshot;
pub(crate) mod sorted;
pub(crate) mod sysfs;
pub(crate) mod topology;
