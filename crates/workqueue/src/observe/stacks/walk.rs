//! Walking up the copy of a stack, and the names of what is found there.

use std::fmt::{Error, Formatter};

use framehop::{
    CacheNative, ExplicitModuleSectionInfo, MayAllocateDuringUnwind, Module, UnwindRegsNative,
    Unwinder as _, UnwinderNative,
};
use sync::stack::{self, Loaded, Registers};

use super::{End, Stack, take::Seen};

/// How many functions are told. A guess; a stack that runs away has no end.
const NR_FRAMES: usize = 128;

/// What is known of the loaded files.
pub(super) struct Walker {
    unwinder: UnwinderNative<Vec<u8>, MayAllocateDuringUnwind>,
    cache: CacheNative<MayAllocateDuringUnwind>,
}

impl Walker {
    pub(super) fn new() -> Self {
        let mut unwinder = UnwinderNative::new();
        for file in stack::loaded() {
            unwinder.add_module(module(file));
        }
        Self {
            unwinder,
            cache: CacheNative::new(),
        }
    }

    pub(super) fn walk(&mut self, seen: &Seen) -> Stack {
        let mut read = |address| seen.word(address).ok_or(());
        let registers = seen.registers;
        let first = registers.pc;
        let mut frames =
            self.unwinder
                .iter_frames(first, start(registers), &mut self.cache, &mut read);
        let mut addresses = Vec::new();
        let end = loop {
            match frames.next() {
                _ if addresses.len() == NR_FRAMES => break End::Cut,
                Ok(Some(frame)) => addresses.push(frame.address_for_lookup() as usize),
                Ok(None) => break End::Whole,
                Err(_) => break End::Cut,
            }
        };
        Stack { addresses, end }
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

/// What a worker is in whatever it runs: what is below says nothing of an item.
const WORKER: &str = "afterwork::workqueue::pools::serve::";

/// Writes the names of what lies at an address. Returns `true` if that is the worker's own.
pub(crate) fn write_place(
    f: &mut Formatter<'_>,
    nth: usize,
    address: usize,
) -> Result<bool, Error> {
    let (mut text, mut is_worker) = (String::new(), false);
    // Several where functions are inlined. One is added because it takes away one, as of the address that a call returns to.
    // Nothing is written from within: a lock of the process is held there, and what is written to is a user's.
    backtrace::resolve((address + 1) as *mut _, |symbol| {
        let Some(name) = symbol.name() else { return };
        let name = format!("{name:#}");
        is_worker |= name.starts_with(WORKER);
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
    Ok(is_worker)
}
