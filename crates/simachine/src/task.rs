//! Simulated threads: coroutines whose stack addresses depend only on the thread's number.

use std::any::Any;
use std::backtrace::Backtrace;
use std::num::NonZeroUsize;
use std::sync::Mutex;

use corosensei::stack::StackPointer;
use corosensei::{Coroutine, Yielder};

use super::arena::map;
use super::line::Site;
use super::mask::Mask;

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum State {
    Runnable,
    Running,
    #[default]
    Asleep,
    Done,
}

/// The value of a thread-local in one thread.
pub enum Slot {
    Unmade,
    Made { value: Box<dyn Any>, has_destructor: bool },
    Destroyed,
}

#[derive(Default)]
pub struct Task {
    pub name: String,
    pub state: State,
    pub cpu: usize,
    pub allowed: Mask,
    pub vruntime: u64,
    /// The CPU time used before the current turn.
    pub ran: u64,
    pub on_since: u64,
    /// The time since which the task has been waiting for a CPU.
    pub ready_at: u64,
    /// The number of the current sleep. A timer ends only the sleep for which it was set.
    pub sleep_seq: u64,
    /// The word on which the task sleeps, or 0.
    pub asleep_on: usize,
    /// The address of the coroutine's yielder, once it has started.
    pub yielder: Option<*const Yielder<(), ()>>,
    pub coroutine: Option<Coroutine<(), (), (), Stack>>,
    pub locals: Vec<Slot>,
    pub locals_are_gone: bool,
    pub joiners: Vec<usize>,
    /// Set if this is a kernel thread, which makes no system calls.
    pub is_kernel: bool,
    pub panic: Option<Box<dyn Any + Send>>,
    /// The number of accesses since the task last changed something.
    pub nr_idle: u64,
    /// The source location of the task's last access.
    pub last_site: Option<Site>,
    /// The word for which the task's last access was charged.
    pub paid: usize,
    /// The task's stack trace, if the engine has requested it.
    pub backtrace: Option<Backtrace>,
}

/// The address of the first stack, far below the addresses that the kernel chooses.
const STACKS_AT: usize = 0x2000_0000_0000;
const STACK_BYTES: usize = 512 << 10;
/// Unmapped memory below each stack, so that an overflow faults.
const GUARD_BYTES: usize = 64 << 10;
const NR_STACKS: usize = 1 << 20;

/// The numbers of free stacks, and the next unused number.
static FREE: Mutex<(Vec<usize>, usize)> = Mutex::new((Vec::new(), 0));

/// A stack at a fixed address.
pub struct Stack(usize);

impl Stack {
    pub fn new() -> std::io::Result<Self> {
        let stack = {
            let (free, next) = &mut *FREE.lock().expect("nothing panics");
            if let Some(number) = free.pop() {
                return Ok(Self(number));
            }
            *next += 1;
            Self(*next - 1)
        };
        match map(stack.lowest(), STACK_BYTES) {
            true => Ok(stack),
            false => Err(std::io::Error::last_os_error()),
        }
    }

    fn lowest(&self) -> usize {
        STACKS_AT + self.0 * (STACK_BYTES + GUARD_BYTES) + GUARD_BYTES
    }
}

/// Returns the number of the stack that contains an address.
pub fn stack_of(addr: usize) -> Option<usize> {
    let number = addr.checked_sub(STACKS_AT)? / (STACK_BYTES + GUARD_BYTES);
    (number < NR_STACKS).then_some(number)
}

impl Drop for Stack {
    fn drop(&mut self) {
        FREE.lock().expect("nothing panics").0.push(self.0);
    }
}

// SAFETY: the memory belongs to the stack until it is dropped, the memory below is not mapped, and
// both ends are multiples of 64 KiB.
unsafe impl corosensei::stack::Stack for Stack {
    fn base(&self) -> StackPointer {
        NonZeroUsize::new(self.lowest() + STACK_BYTES).expect("not null")
    }
    fn limit(&self) -> StackPointer {
        NonZeroUsize::new(self.lowest() - GUARD_BYTES).expect("not null")
    }
}
