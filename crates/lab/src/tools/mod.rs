//! What shows rather than measures: the machine ([`topology`](mod@topology)), and a process ([`top`]), of which [`demo`] is
//! one.

pub mod demo;
pub mod top;
pub mod topology;
