//! The accesses that a compiler reports if it instruments code for ThreadSanitizer: plain ones, and
//! atomic ones that bypass the facade.
//!
//! Crates built this way (`cargo xtask sim` names them) call the functions below before each plain
//! access, and instead of each atomic one. This crate is never instrumented, because the engine
//! would observe itself. Costs must have the same meaning with and without instrumentation:
//!
//! - A plain access that hits is free: `instr` includes it.
//! - An access to a word of the facade has been charged before (`Task::paid`).
//! - Accesses by the engine, to a task's own stack and to the host's memory are not simulated.
//! - A panic message is formatted under locks of the host, so a panicking task keeps its turn.
//! - A thread of a model of the kernel touches only the lines that the model names.
//!
//! A task may lose its turn at any access of such a crate.

use std::ffi::{c_int, c_void};
use std::panic::Location;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::arena;
use super::engine::{engine, is_inside, running};
use super::line::{LINE_BYTES, Site};
use super::memory::{self, Access};
use super::task::stack_of;

/// The end of the address range of statics, in a program that is linked at a fixed address.
const IMAGE_END: usize = 1 << 32;
const SEQ_CST: c_int = 5;

/// Set if the program has instrumented crates.
static IS_SEEN: AtomicBool = AtomicBool::new(false);

/// Returns `true` if plain accesses are visible.
pub fn is_seen() -> bool {
    IS_SEEN.load(Ordering::Relaxed)
}

/// Returns the source location that all these accesses share.
fn site() -> Site {
    Location::caller()
}

/// Returns the description of a source location.
pub fn described(site: Site) -> String {
    match site.file() == file!() {
        true => "a plain access or a count of an Arc, by the stack".into(),
        false => site.to_string(),
    }
}

fn is_of_machine(at: usize) -> bool {
    let here = 0_u8;
    let of_others = |stack| Some(stack) != stack_of((&raw const here).addr());
    running().is_some()
        && !is_inside()
        && !std::thread::panicking()
        && (at < IMAGE_END || arena::holds(at) || stack_of(at).is_some_and(of_others))
        && !engine(|e| e.task().is_kernel)
}

fn plain(at: usize, bytes: usize, access: Access) {
    if bytes > 0 && is_of_machine(at) {
        for line in at / LINE_BYTES..=(at + bytes - 1) / LINE_BYTES {
            memory::touch_plain(line * LINE_BYTES, access, site());
        }
    }
}

fn atomic(at: usize, access: Access) {
    if is_of_machine(at) && engine(|e| std::mem::take(&mut e.task().paid)) != at {
        memory::touch(at, access, site());
        engine(|e| e.task().paid = 0);
    }
}

/// Each instrumented crate calls this before `main`.
#[unsafe(no_mangle)]
extern "C" fn __tsan_init() {
    IS_SEEN.store(true, Ordering::Relaxed);
}

macro_rules! plain {
    ($($bytes:literal: $($read:ident $write:ident),*;)*) => {$($(
        #[unsafe(no_mangle)]
        extern "C" fn $read(at: *const c_void) {
            plain(at.addr(), $bytes, Access::Load);
        }
        #[unsafe(no_mangle)]
        extern "C" fn $write(at: *const c_void) {
            plain(at.addr(), $bytes, Access::Store);
        }
    )*)*};
}

plain! {
    1: __tsan_read1 __tsan_write1;
    2: __tsan_read2 __tsan_write2, __tsan_unaligned_read2 __tsan_unaligned_write2;
    4: __tsan_read4 __tsan_write4, __tsan_unaligned_read4 __tsan_unaligned_write4;
    8: __tsan_read8 __tsan_write8, __tsan_unaligned_read8 __tsan_unaligned_write8;
    16: __tsan_read16 __tsan_write16, __tsan_unaligned_read16 __tsan_unaligned_write16;
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __tsan_memcpy(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 {
    // SAFETY: the compiler calls this as `memcpy`, which is stricter than `memmove`.
    unsafe { __tsan_memmove(to, from, bytes) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __tsan_memmove(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 {
    plain(from.addr(), bytes, Access::Load);
    plain(to.addr(), bytes, Access::Store);
    // SAFETY: the compiler calls this as `memmove`.
    unsafe { ptr::copy(from, to, bytes) };
    to
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __tsan_memset(to: *mut u8, byte: c_int, bytes: usize) -> *mut u8 {
    plain(to.addr(), bytes, Access::Store);
    // SAFETY: the compiler calls this as `memset`.
    unsafe { ptr::write_bytes(to, byte as u8, bytes) };
    to
}

#[unsafe(no_mangle)]
extern "C" fn __tsan_atomic_thread_fence(order: c_int) {
    if order == SEQ_CST && running().is_some() && !is_inside() {
        memory::fence();
    }
}

#[unsafe(no_mangle)]
extern "C" fn __tsan_atomic_signal_fence(_order: c_int) {}

// Threads of the host call these functions, too. No argument relies on the ordering.
const ORDER: Ordering = Ordering::SeqCst;

macro_rules! atomics {
    ($($type:ty, $word:ident: $load:ident $store:ident $swap:ident $exchange:ident, $($name:ident $step:ident)*;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $load(at: *mut $type, _order: c_int) -> $type {
            atomic(at.addr(), Access::Load);
            // SAFETY: the compiler calls this for an atomic load of that word.
            unsafe { $word::from_ptr(at) }.load(ORDER)
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $store(at: *mut $type, value: $type, order: c_int) {
            atomic(at.addr(), if order == SEQ_CST { Access::Rmw } else { Access::Store });
            // SAFETY: as above, for a store.
            unsafe { $word::from_ptr(at) }.store(value, ORDER);
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $exchange(at: *mut $type, seen: $type, value: $type, _done: c_int, _failed: c_int) -> $type {
            atomic(at.addr(), Access::Rmw);
            // SAFETY: as above, for an exchange.
            let result = unsafe { $word::from_ptr(at) }.compare_exchange(seen, value, ORDER, ORDER);
            result.unwrap_or_else(|now| now)
        }
        atomics!(@ $type, $word: $swap swap $($name $step)*);
    )*};
    (@ $type:ty, $word:ident: $($name:ident $step:ident)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(at: *mut $type, value: $type, _order: c_int) -> $type {
            atomic(at.addr(), Access::Rmw);
            // SAFETY: as above, for this operation.
            unsafe { $word::from_ptr(at) }.$step(value, ORDER)
        }
    )*};
}

atomics! {
    u8, AtomicU8: __tsan_atomic8_load __tsan_atomic8_store __tsan_atomic8_exchange __tsan_atomic8_compare_exchange_val,
        __tsan_atomic8_fetch_add fetch_add __tsan_atomic8_fetch_sub fetch_sub
        __tsan_atomic8_fetch_and fetch_and __tsan_atomic8_fetch_or fetch_or __tsan_atomic8_fetch_xor fetch_xor;
    u16, AtomicU16: __tsan_atomic16_load __tsan_atomic16_store __tsan_atomic16_exchange __tsan_atomic16_compare_exchange_val,
        __tsan_atomic16_fetch_add fetch_add __tsan_atomic16_fetch_sub fetch_sub
        __tsan_atomic16_fetch_and fetch_and __tsan_atomic16_fetch_or fetch_or __tsan_atomic16_fetch_xor fetch_xor;
    u32, AtomicU32: __tsan_atomic32_load __tsan_atomic32_store __tsan_atomic32_exchange __tsan_atomic32_compare_exchange_val,
        __tsan_atomic32_fetch_add fetch_add __tsan_atomic32_fetch_sub fetch_sub
        __tsan_atomic32_fetch_and fetch_and __tsan_atomic32_fetch_or fetch_or __tsan_atomic32_fetch_xor fetch_xor;
    u64, AtomicU64: __tsan_atomic64_load __tsan_atomic64_store __tsan_atomic64_exchange __tsan_atomic64_compare_exchange_val,
        __tsan_atomic64_fetch_add fetch_add __tsan_atomic64_fetch_sub fetch_sub
        __tsan_atomic64_fetch_and fetch_and __tsan_atomic64_fetch_or fetch_or __tsan_atomic64_fetch_xor fetch_xor;
}
