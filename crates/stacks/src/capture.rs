//! Asks threads for their stacks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use sync::atomic::Ordering;
use sync::fork::{self, Handler};
use sync::unmodelled::AtomicU64;
use sync::{thread, time};

use crate::answer_slot::AnswerSlot;
use crate::signal::{self, Refused, Registers};
use crate::stack::{End, Stack};
use crate::walk::Walker;

/// The maximum number of threads that one call asks. The value is a guess.
const NR_ASKED: usize = 16;

/// The number of bytes that are copied from a stack. The value is a guess; a frame has about a
/// hundred bytes.
const NR_BYTES: usize = 128 << 10;

/// The time for which a call waits for an answer, and the pause between two reads of the slot.
/// Copying takes 20 µs, but the thread must get a CPU.
const TIMEOUT_NS: u64 = 100_000_000;
const PAUSE: Duration = Duration::from_micros(500);

/// The time in nanoseconds for which no thread is asked after one has failed to answer. If all
/// threads block the signal, the caller loses at most a hundredth of its time.
const SILENCE_NS: u64 = 100 * TIMEOUT_NS;

/// The time, by `time::now_ns`, until which no thread is asked.
static SILENT_UNTIL: AtomicU64 = AtomicU64::new(0);

/// The data that the asked thread copies.
pub(crate) struct Seen {
    pub(crate) registers: Registers,
    nr_bytes: usize,
    bytes: [u8; NR_BYTES],
}

impl Seen {
    pub(crate) fn word(&self, address: u64) -> Option<u64> {
        let at: usize = address.checked_sub(self.registers.sp)?.try_into().ok()?;
        let bytes = self.bytes[..self.nr_bytes].get(at..at.checked_add(8)?)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }
}

static ANSWER_SLOT: AnswerSlot<Seen> = AnswerSlot::new(Seen {
    registers: Registers { pc: 0, sp: 0, fp: 0, lr: 0 },
    nr_bytes: 0,
    bytes: [0; NR_BYTES],
});

static HANDLER: Handler = Handler { child: || ANSWER_SLOT.reset(), ..Handler::IDLE };

/// Prepares [`capture`] to use `signal`. Call this once per process. Does nothing if `signal` is 0.
///
/// # Errors
///
/// If the signal cannot be used, returns the requirement that it does not meet. In that case
/// nothing has changed.
pub fn enable(signal: u32) -> Result<(), &'static str> {
    if signal == 0 {
        return Ok(());
    }
    fork::register(&HANDLER);
    let number = i32::try_from(signal).unwrap_or(0);
    signal::handle(number).map_err(|refused| match refused {
        Refused::Unfit => "0, or a signal without a meaning to the kernel, such as 23 (SIGURG)",
        Refused::Taken => "0, or a signal that this program neither handles nor ignores",
    })
}

/// Returns the stacks of the first 16 `threads`, which are kernel thread IDs, up to the first
/// function whose path begins with `root`. The result ends early after a thread that did not
/// answer, and is empty if `signal` is 0.
///
/// # Blocking
///
/// Waits at most a tenth of a second for each thread. After a thread that does not answer, no
/// thread is asked for ten seconds.
pub fn capture(
    threads: impl IntoIterator<Item = u32>,
    signal: u32,
    root: &'static str,
) -> Vec<Stack> {
    let mut stacks = Vec::new();
    let Ok(signal @ 1..) = i32::try_from(signal) else {
        return stacks;
    };
    let mut kept = None;
    // A walker that panics is not used again.
    let mut walk = |seen: &Seen| {
        let mut walker = kept.take().unwrap_or_else(Walker::new);
        let stack = walker.walk(seen, root);
        kept = Some(walker);
        stack
    };
    for thread in threads.into_iter().take(NR_ASKED) {
        let taken = take(thread, signal, &mut walk);
        let is_answered = taken.is_ok();
        stacks.push(taken.unwrap_or_else(|why| Stack {
            addresses: Vec::new(),
            end: End::Missing(why),
            root,
        }));
        if !is_answered {
            break;
        }
    }
    stacks
}

fn take(
    thread: u32,
    signal: i32,
    mut walk: impl FnMut(&Seen) -> Stack,
) -> Result<Stack, &'static str> {
    // If the signal is not handled, it might kill the process.
    if !signal::is_handled(signal) {
        return Err("the program now handles the signal itself");
    }
    let start_ns = time::now_ns();
    if start_ns < SILENT_UNTIL.load(Ordering::Relaxed) {
        return Err("stack capture is paused for ten seconds: a thread did not answer the signal");
    }
    if !ANSWER_SLOT.ask(thread) {
        return Err("another caller is capturing a stack");
    }
    let mut read = || ANSWER_SLOT.read(|seen| contained(|| walk(seen)));
    let is_asked = signal::interrupt(thread, signal);
    while is_asked && time::now_ns() < start_ns + TIMEOUT_NS {
        if let Some(taken) = read() {
            return taken;
        }
        thread::sleep(PAUSE);
    }
    // Even if the signal could not be sent, the thread may have answered an earlier one.
    let late = ANSWER_SLOT.give_up(thread).then(read).flatten();
    late.unwrap_or_else(|| {
        if !is_asked {
            return Err("the thread has ended");
        }
        let now_ns = time::now_ns();
        SILENT_UNTIL.store(now_ns + SILENCE_NS, Ordering::Relaxed);
        Err("the thread did not answer the signal: it blocks the signal, or gets no CPU")
    })
}

/// Calls `walk` and catches its panics: a misleading unwind table must not leave the slot occupied.
fn contained(walk: impl FnOnce() -> Stack) -> Result<Stack, &'static str> {
    catch_unwind(AssertUnwindSafe(walk)).map_err(|_| "the walk up the stack panicked")
}

pub(crate) fn answer(registers: Registers) {
    ANSWER_SLOT.answer(thread::current().0, |seen| {
        seen.registers = registers;
        seen.nr_bytes = signal::read_memory(registers.sp, &mut seen.bytes);
    });
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32};
    use std::sync::{Arc, Mutex, mpsc};

    use super::*;

    const SIGURG: u32 = 23;

    static ALONE: Mutex<()> = Mutex::new(());

    #[test]
    fn thread_answers_at_any_instruction() {
        let _alone = ALONE.lock();
        enable(SIGURG).unwrap();
        let (number, ended) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
        let (its_number, its_end) = (number.clone(), ended.clone());
        let asked = std::thread::spawn(move || {
            its_number.store(thread::current().0, Ordering::Relaxed);
            let mut kept = Vec::new();
            // The signal arrives in the allocator, the loader, the unwinder, and system calls.
            while !its_end.load(Ordering::Relaxed) {
                kept.push(vec![1_u8; kept.len() % 5000]);
                kept.truncate(1000);
                signal::loaded();
                assert!(
                    std::panic::catch_unwind(|| std::panic::resume_unwind(Box::new(1))).is_err()
                );
                thread::sleep(Duration::from_micros(1));
            }
        });
        while number.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        let thread = number.load(Ordering::Relaxed);
        let mut walker = Walker::new();
        let mut nr_whole = 0;
        for _ in 0..3000 {
            // On a busy machine an answer may be late.
            SILENT_UNTIL.store(0, Ordering::Relaxed);
            let taken = take(thread, SIGURG as i32, |seen| walker.walk(seen, ""));
            nr_whole += u32::from(taken.is_ok_and(|it| it.end == End::Whole));
        }
        assert!(nr_whole > 2000, "{nr_whole}");
        ended.store(true, Ordering::Relaxed);
        asked.join().unwrap();
        // For a moment, the exiting thread accepts a signal without answering.
        let mut ask = || take(thread, SIGURG as i32, |seen| walker.walk(seen, ""));
        while ask() != Err("the thread has ended") {
            SILENT_UNTIL.store(0, Ordering::Relaxed);
        }
    }

    #[test]
    fn panicking_walk_is_reported_and_later_ones_work() {
        let _alone = ALONE.lock();
        enable(SIGURG).unwrap();
        let (send, receive) = mpsc::channel();
        let (go, stop) = mpsc::channel::<()>();
        let asked = std::thread::spawn(move || {
            send.send(thread::current().0).unwrap();
            _ = stop.recv();
        });
        let thread = receive.recv().unwrap();
        // On a busy machine the answer may be late.
        let ask = |walk: fn(&Seen) -> Stack| loop {
            SILENT_UNTIL.store(0, Ordering::Relaxed);
            match take(thread, SIGURG as i32, walk) {
                Err(why) if why.starts_with("the thread did not answer") => {}
                taken => return taken,
            }
        };
        assert_eq!(ask(|_| panic!("a table that misleads")), Err("the walk up the stack panicked"));
        assert!(ask(|seen| Walker::new().walk(seen, "")).is_ok());
        drop(go);
        asked.join().unwrap();
    }
}
