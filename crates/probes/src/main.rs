//! Functions whose generated code `cargo xtask asm` shows, and about which it checks claims.
//!
//! If a proof or a cost depends on generated code, that code has a function here, as small as in a
//! user's program, and a row in `xtask/src/asm/claims.rs`. No function is inlined. Each is called
//! through an opaque pointer, so that the compiler does not specialize it for its only caller.
#![forbid(unsafe_code)]

pub mod percpu;
pub mod rcu;

/// Calls all functions, so that the linker keeps them.
fn main() {
    percpu::calls::run();
    rcu::calls::run();
}
