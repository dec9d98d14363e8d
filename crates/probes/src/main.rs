//! Functions whose generated code `cargo xtask asm` prints and checks against claims.
//!
//! If a proof or a cost depends on generated code, a function here compiles to just that code, as
//! it would in a user's program, and `xtask/src/asm/claims.rs` has a row for it. No function is
//! inlined. Each is called through an opaque pointer, so that the compiler does not specialize it
//! for its only caller.
#![forbid(unsafe_code)]

pub mod mpscq;
pub mod percpu;
pub mod rcu;

/// Calls all functions, so that the linker keeps them.
fn main() {
    mpscq::calls::run();
    percpu::calls::run();
    rcu::calls::run();
}
