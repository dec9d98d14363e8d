//! Interrupts another thread of this process with a signal, reads memory that may be unmapped, and
//! copies the unwind tables of the loaded files.
//!
//! The interrupted thread may be anywhere, so the handler takes no lock and does not allocate.

use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;
use std::{mem, ptr, slice};

use crate::capture::answer;

/// The registers from which the walk of a stack starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Registers {
    /// The next instruction.
    pub pc: u64,
    /// The top of the stack.
    pub sp: u64,
    /// The frame pointer, in code that maintains one.
    pub fp: u64,
    /// The return address, on machines that keep it in a register.
    pub lr: u64,
}

/// The reason why a signal cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// The number is not that of a signal, or the machine or the C library uses the signal itself.
    Unfit,
    /// The process handles or ignores the signal.
    Taken,
}

/// Installs the handler of `signal`, unless the program uses the signal.
pub(crate) fn handle(signal: i32) -> Result<(), Refused> {
    const OWN: [c_int; 9] = [
        libc::SIGKILL,
        libc::SIGSTOP,
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGILL,
        libc::SIGTRAP,
        libc::SIGABRT,
        libc::SIGSYS,
    ];
    if OWN.contains(&signal) {
        return Err(Refused::Unfit);
    }
    if is_handled(signal) {
        return Ok(());
    }
    if action(signal, None).ok_or(Refused::Unfit)?.sa_sigaction != libc::SIG_DFL {
        return Err(Refused::Taken);
    }
    // SAFETY: all zeros form a valid action: the default one, with an empty mask.
    let mut ours: libc::sigaction = unsafe { mem::zeroed() };
    ours.sa_sigaction = handler_address();
    // The handler runs on the alternate stack if there is one, because the thread's own may be
    // almost full.
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    action(signal, Some(&ours)).ok_or(Refused::Unfit)?;
    Ok(())
}

/// Returns `true` while the handler of [`handle`] is installed for `signal`.
pub(crate) fn is_handled(signal: i32) -> bool {
    action(signal, None).is_some_and(|it| it.sa_sigaction == handler_address())
}

/// Sends `signal`, which [is handled](is_handled) so that it does not kill the process, to a thread
/// of this process. Returns `true` if the thread exists. A system call of the thread may fail early
/// with `EINTR` if it has a timeout or is one that the kernel never restarts.
pub(crate) fn interrupt(thread: u32, signal: i32) -> bool {
    // SAFETY: the arguments of the call are numbers.
    unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), thread, signal) == 0 }
}

/// Copies memory of this process from address `from`, with one system call, which is allowed in a
/// signal handler. Returns the number of bytes copied, up to the first one that is not mapped.
pub(crate) fn read_memory(from: u64, into: &mut [u8]) -> usize {
    const PAGE: u64 = 4096;
    const NR_PIECES: usize = 64;
    // There is one piece per page, because a piece is copied completely or not at all.
    let mut pieces = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; NR_PIECES];
    let mut nr_pieces = 0;
    let (mut at, mut left) = (from, into.len() as u64);
    while left > 0 && nr_pieces < NR_PIECES {
        let length = (PAGE - at % PAGE).min(left);
        pieces[nr_pieces] = libc::iovec { iov_base: at as *mut c_void, iov_len: length as usize };
        nr_pieces += 1;
        left -= length;
        at = at.wrapping_add(length);
    }
    let place = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // SAFETY: the call writes only into `into`, and returns an error if the pieces are not mapped.
    let nr_read = unsafe {
        let process = libc::getpid();
        libc::process_vm_readv(process, &place, 1, pieces.as_ptr(), nr_pieces as _, 0)
    };
    nr_read.try_into().unwrap_or(0)
}

/// A loaded file: the program, or one of its libraries.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The path, which is empty for the program itself.
    pub name: String,
    /// The offset that is added to an address in the file to get its address in memory.
    pub base: u64,
    /// The addresses that the file occupies in memory.
    pub range: Range<u64>,
    /// `.eh_frame_hdr`: its address range in the file, and a copy.
    pub index: (Range<u64>, Vec<u8>),
    /// `.eh_frame`, perhaps followed by other data.
    pub frames: (Range<u64>, Vec<u8>),
}

/// Returns the loaded files that have unwind tables. Waits for the loader's lock, and allocates.
pub(crate) fn loaded() -> Vec<Loaded> {
    let mut all: Vec<Loaded> = Vec::new();
    let place: *mut Vec<Loaded> = &mut all;
    // SAFETY: `note` is called with `place` only before this call returns, on this thread.
    unsafe { libc::dl_iterate_phdr(Some(note), place.cast()) };
    all
}

unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _: usize, all: *mut c_void) -> c_int {
    // SAFETY: `info` belongs to the loader and is valid during this call; `all` came from `loaded`.
    let (info, all) = unsafe { (&*info, &mut *all.cast::<Vec<Loaded>>()) };
    // Unwinding out of this would abort the process.
    if let Some(one) = tables(info) {
        all.push(one);
    }
    0
}

fn tables(info: &libc::dl_phdr_info) -> Option<Loaded> {
    if info.dlpi_phdr.is_null() {
        return None;
    }
    // SAFETY: the loader's table has `dlpi_phnum` entries.
    let headers = unsafe { slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let base: u64 = info.dlpi_addr;
    let span = |it: &libc::Elf64_Phdr| it.p_vaddr..it.p_vaddr + it.p_memsz;
    let loads = || headers.iter().filter(|it| it.p_type == libc::PT_LOAD);
    let index = span(headers.iter().find(|it| it.p_type == libc::PT_GNU_EH_FRAME)?);
    let bytes = |range: &Range<u64>| {
        let length = (range.end - range.start) as usize;
        // SAFETY: the bytes are part of a readable segment, mapped while the loader's lock is held.
        unsafe { slice::from_raw_parts((base + range.start) as *const u8, length) }.to_vec()
    };
    let head = bytes(&index);
    // Version 1, in which the address of `.eh_frame` is a signed 32-bit offset. All linkers write
    // it.
    let [1, 0x1b, _, _, a, b, c, d, ..] = head[..] else {
        return None;
    };
    let distance = i32::from_le_bytes([a, b, c, d]);
    let start = (index.start + 4).checked_add_signed(distance.into())?;
    let segment = loads().map(span).find(|it| it.contains(&start))?;
    let frames = start..segment.end;
    let (low, high) = (loads().map(|it| it.p_vaddr).min()?, loads().map(|it| span(it).end).max()?);
    let name = match info.dlpi_name.is_null() {
        true => String::new(),
        // SAFETY: the name belongs to the loader and is valid during this call.
        false => unsafe { CStr::from_ptr(info.dlpi_name) }.to_string_lossy().into_owned(),
    };
    Some(Loaded {
        name,
        base,
        range: base + low..base + high,
        frames: (frames.clone(), bytes(&frames)),
        index: (index, head),
    })
}

fn handler_address() -> usize {
    on_signal as *const () as usize
}

/// Sets the process's action for a signal. Returns the previous action.
fn action(signal: i32, new: Option<&libc::sigaction>) -> Option<libc::sigaction> {
    let new = new.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: all zeros form a valid action; `new` is an action, or null for no change.
    unsafe {
        let mut old: libc::sigaction = mem::zeroed();
        (libc::sigaction(signal, new, &mut old) == 0).then_some(old)
    }
}

extern "C" fn on_signal(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: `errno` belongs to this thread. The interrupted code may need it.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    if !context.is_null() {
        // SAFETY: the context contains the interrupted thread's registers, because of `SA_SIGINFO`.
        answer(registers(unsafe { &*context.cast() }));
    }
    // SAFETY: as above.
    unsafe { *errno = before };
}

#[cfg(target_arch = "x86_64")]
fn registers(context: &libc::ucontext_t) -> Registers {
    let of = |register: c_int| context.uc_mcontext.gregs[register as usize] as u64;
    Registers { pc: of(libc::REG_RIP), sp: of(libc::REG_RSP), fp: of(libc::REG_RBP), lr: 0 }
}

#[cfg(target_arch = "aarch64")]
fn registers(context: &libc::ucontext_t) -> Registers {
    let context = &context.uc_mcontext;
    Registers { pc: context.pc, sp: context.sp, fp: context.regs[29], lr: context.regs[30] }
}

/// On other machines the registers are unknown, so the walk ends at once.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn registers(_: &libc::ucontext_t) -> Registers {
    Registers::default()
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_as_far_as_it_is_there() {
        let text = *b"fourteen bytes";
        let mut copy = [0; 14];
        assert_eq!(read_memory(text.as_ptr() as u64, &mut copy), 14);
        assert_eq!(copy, text);
        assert_eq!(read_memory(8, &mut copy), 0);
        // SAFETY: the call creates a new mapping of two pages, the second of which is unmapped at
        // once.
        let page = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let page = libc::mmap(ptr::null_mut(), 8192, libc::PROT_READ, flags, -1, 0);
            assert_ne!(page, libc::MAP_FAILED);
            libc::munmap(page.add(4096), 4096);
            page as u64
        };
        let mut copy = vec![1; 8192];
        assert_eq!(read_memory(page + 96, &mut copy), 4000);
        assert!(copy[..4000].iter().all(|&byte| byte == 0) && copy[4000] == 1);
    }

    #[test]
    fn signals_that_the_program_uses_are_left_alone() {
        for signal in [libc::SIGSEGV, libc::SIGKILL, 0, -1, 65] {
            assert_eq!(handle(signal), Err(Refused::Unfit), "{signal}");
        }
        // The standard library ignores this signal.
        assert_eq!(handle(libc::SIGPIPE), Err(Refused::Taken));
        assert!(!is_handled(libc::SIGPIPE));
    }

    #[test]
    fn the_loaded_files_include_this_program() {
        let here = the_loaded_files_include_this_program as *const () as u64;
        let all = loaded();
        let ours: Vec<_> = all.iter().filter(|it| it.range.contains(&here)).collect();
        assert_eq!(ours.len(), 1);
        assert!(!ours[0].frames.1.is_empty());
    }
}
