//! Deferred work in user space.
