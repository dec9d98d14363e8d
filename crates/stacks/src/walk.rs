//! Walks the copy of a stack, and resolves the names of its functions.

use std::fmt::{Error, Formatter};

use framehop::{
    CacheNative, ExplicitModuleSectionInfo, MayAllocateDuringUnwind, Module, UnwindRegsNative,
    Unwinder as _, UnwinderNative,
};

use crate::capture::Seen;
use crate::signal::{self, Loaded, Registers};
use crate::stack::{End, Stack};

/// The maximum number of functions in a stack, which may have no end. The value is a guess.
const NR_FRAMES: usize = 128;

/// The unwind data of the loaded files.
pub(crate) struct Walker {
    unwinder: UnwinderNative<Vec<u8>, MayAllocateDuringUnwind>,
    cache: CacheNative<MayAllocateDuringUnwind>,
}

impl Walker {
    pub(crate) fn new() -> Self {
        let mut unwinder = UnwinderNative::new();
        for file in signal::loaded() {
            unwinder.add_module(module(file));
        }
        Self { unwinder, cache: CacheNative::new() }
    }

    pub(crate) fn walk(&mut self, seen: &Seen, root: &'static str) -> Stack {
        let mut read = |address| seen.word(address).ok_or(());
        let registers = seen.registers;
        let first = registers.pc;
        let mut frames =
            self.unwinder.iter_frames(first, start(registers), &mut self.cache, &mut read);
        let mut addresses = Vec::new();
        let end = loop {
            match frames.next() {
                _ if addresses.len() == NR_FRAMES => break End::Cut,
                Ok(Some(frame)) => addresses.push(frame.address_for_lookup() as usize),
                Ok(None) => break End::Whole,
                Err(_) => break End::Cut,
            }
        };
        Stack { addresses, end, root }
    }
}

#[cfg(target_arch = "x86_64")]
fn start(registers: Registers) -> UnwindRegsNative {
    UnwindRegsNative::new(registers.pc, registers.sp, registers.fp)
}

#[cfg(target_arch = "aarch64")]
fn start(registers: Registers) -> UnwindRegsNative {
    UnwindRegsNative::new(registers.lr, registers.sp, registers.fp)
}

fn module(file: Loaded) -> Module<Vec<u8>> {
    let sections = ExplicitModuleSectionInfo {
        eh_frame_hdr_svma: Some(file.index.0),
        eh_frame_hdr: Some(file.index.1),
        eh_frame_svma: Some(file.frames.0),
        eh_frame: Some(file.frames.1),
        ..ExplicitModuleSectionInfo::default()
    };
    Module::new(file.name, file.range, file.base, sections)
}

/// Writes the names of the functions at an address. Returns `true` if the path of one of them
/// begins with `root`.
pub(crate) fn write_place(
    f: &mut Formatter<'_>,
    nth: usize,
    address: usize,
    root: &str,
) -> Result<bool, Error> {
    let (mut text, mut is_root) = (String::new(), false);
    // One address belongs to several functions if they are inlined. `resolve` expects a return
    // address, from which it subtracts one. The closure runs under a process-wide lock, so it does
    // not write to the user's formatter.
    backtrace::resolve((address + 1) as *mut _, |symbol| {
        let Some(name) = symbol.name() else { return };
        let name = format!("{name:#}");
        is_root |= name.starts_with(root);
        let indent = if text.is_empty() { "" } else { "\n      " };
        text += &format!("{indent}{name}");
        if let Some((file, line)) = symbol.filename().zip(symbol.lineno()) {
            text += &format!("\n             at {}:{line}", file.display());
        }
    });
    if text.is_empty() {
        text = format!("{address:#x}");
    }
    write!(f, "\n{nth:4}: {text}")?;
    Ok(is_root)
}
