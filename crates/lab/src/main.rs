//! The command `afterwork`.
fn main() {}
