//! Functions that are looked at as the compiler made them: `cargo xtask asm` shows them, and checks what is said of them.
//!
//! Where a proof or a price rests on generated code, that code has a function here, as small as a user's could be, and
//! a row in `xtask/src/asm/claims.rs`. None is inlined, and each is called by way of a pointer that the compiler cannot
//! look through: else it would make them for their one caller.
#![forbid(unsafe_code)]

pub mod percpu;
pub mod rcu;

/// Calls them all, so that they are there.
fn main() {
    percpu::calls::run();
    rcu::calls::run();
}
