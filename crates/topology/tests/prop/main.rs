//! The guarantees of pods, checked on random machines with random allowed CPUs.

mod machine;
mod pods;
