//! What shows rather than measures: the machine ([`topology`](mod@topology)), and a process ([`top`]).

pub mod top;
pub mod topology;
