//! Finds a second copy of the library in this process.
//!
//! A program that is linked with the static library may open a plugin that is linked with the
//! shared library. Readers of one copy are unknown to the other copy's grace periods. Nothing fails
//! at once, so the second copy to be used writes a line on stderr.
//!
//! Each copy has a word, and an ELF note with the distance to that word. The loader lists all
//! loaded files, and the headers of a file lead to its notes. No symbol is looked up, because a
//! program does not export the symbols of its static libraries.
//!
//! ```text
//! copy, at its first use:  own word = USED;  for each other word that is not UNUSED:
//!                            of the two words, the one at the lower address: USED → REPORTED?
//!                              write the line
//! ```
//!
//! If two copies are first used at the same time, only one of their exchanges succeeds.

use std::ffi::{CStr, c_int, c_void};
use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::{ptr, slice};

const UNUSED: u32 = 0;
const USED: u32 = 1;
const REPORTED: u32 = 2;

/// A: the word of this copy, accessed by all copies.
static WORD: AtomicU32 = AtomicU32::new(UNUSED);

/// The note of a copy, in a format that all versions of the library must keep.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Note {
    head: Head,
    name: [u8; 12],
    /// The distance from this field to the word, in bytes.
    distance: i32,
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Head {
    name_len: u32,
    content_len: u32,
    kind: u32,
}

const HEAD: Head = Head { name_len: NAME.len() as u32, content_len: 4, kind: 1 };
const NAME: [u8; 12] = *b"afterwork\0\0\0";

// The note stores an offset: an address would need a relocation, and so a writable section. The
// linker recognizes notes by the section's type. The offset of a hidden word is constant.
#[cfg(not(miri))]
core::arch::global_asm!(
    ".pushsection .note.afterwork, \"a\", %note",
    ".balign 4",
    ".4byte 12, 4, 1",
    ".asciz \"afterwork\\0\\0\"",
    ".4byte {word} - .",
    ".popsection",
    ".hidden {word}",
    word = sym WORD,
);

/// Marks this copy as used, and reports another. Blocks while a thread opens or closes a library.
pub(crate) fn note_use() {
    WORD.store(USED, Ordering::Relaxed);
    // Store buffering between two copies, with this fence in both: each marks itself, then reads
    // the other's word. The copy whose fence comes second finds the mark. No model has two copies.
    fence(Ordering::SeqCst);
    let Copies { here, there } = Copies::find();
    if let Some(there) = there {
        let here = here.as_deref().unwrap_or("the program");
        crate::process::write_line(&format!(
            "two copies of the library are in use, in {here} and in {there}: a grace period of one does not wait for readers of the \
             other, and nothing may be passed between them; link both with the same shared library",
        ));
    }
}

/// The names of the files that contain copies.
#[derive(Default)]
struct Copies {
    here: Option<String>,
    /// The file of another copy, if this copy must report it.
    there: Option<String>,
}

impl Copies {
    fn find() -> Self {
        let mut copies = Self::default();
        // SAFETY: the callback accepts the arguments that are passed here, and does not unwind.
        unsafe { libc::dl_iterate_phdr(Some(inspect), (&raw mut copies).cast()) };
        copies
    }
}

/// Examines one loaded file. The loader keeps the file loaded until this returns.
unsafe extern "C" fn inspect(
    info: *mut libc::dl_phdr_info,
    _: libc::size_t,
    copies: *mut c_void,
) -> c_int {
    // SAFETY: the loader passes its description and `find`'s value, valid until this returns.
    let (info, copies) = unsafe { (&*info, &mut *copies.cast::<Copies>()) };
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: the pointer and the length describe the headers of a loaded file.
    let headers = unsafe { slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let name = || {
        // SAFETY: the loader keeps the string until this returns.
        let name = (!info.dlpi_name.is_null()).then(|| unsafe { CStr::from_ptr(info.dlpi_name) });
        let name = name.unwrap_or_default().to_string_lossy();
        Some(if name.is_empty() { "the program".into() } else { name.into_owned() })
    };
    let end = |it: &libc::Elf64_Phdr| it.p_vaddr + it.p_memsz;
    let is_loaded = |note: &libc::Elf64_Phdr| {
        headers.iter().any(|it| {
            let is_readable = it.p_type == libc::PT_LOAD && it.p_flags & libc::PF_R != 0;
            is_readable && it.p_vaddr <= note.p_vaddr && end(note) <= end(it)
        })
    };
    let notes = headers.iter().filter(|it| it.p_type == libc::PT_NOTE);
    for header in notes.filter(|it| is_loaded(it)) {
        let start = (info.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize);
        let start = ptr::with_exposed_provenance::<u8>(start);
        // SAFETY: the loader keeps the notes and the words of copies, in loaded segments.
        let words = unsafe { words(start, header.p_memsz as usize) };
        for word in words {
            if ptr::eq(word, &WORD) {
                copies.here = name();
            } else if is_to_be_reported(word) {
                copies.there = name();
            }
        }
    }
    0
}

/// Returns `true` if the copy of `word` is in use, and this copy is the first to detect that.
fn is_to_be_reported(word: &AtomicU32) -> bool {
    if word.load(Ordering::Relaxed) == UNUSED {
        return false;
    }
    let lower = if ptr::from_ref(word) < &raw const WORD { word } else { &WORD };
    let (order, failed) = (Ordering::Relaxed, Ordering::Relaxed);
    lower.compare_exchange(USED, REPORTED, order, failed).is_ok()
}

/// Returns the words to which the notes of copies lead, among all notes of a file.
///
/// # Safety
///
/// 1. `len` bytes of notes at `start`, and the words to which they lead, can be read for as long as
///    `'a`. Only copies write the words, with atomic operations.
unsafe fn words<'a>(start: *const u8, len: usize) -> impl Iterator<Item = &'a AtomicU32> {
    // SAFETY: (1).
    let notes = unsafe { notes(start, len) };
    notes.map(|note| {
        let from = note.wrapping_byte_add(offset_of!(Note, distance));
        // SAFETY: (1), because the iterator returns only notes of copies.
        let distance = unsafe { from.cast::<i32>().read_unaligned() };
        let word = from.wrapping_byte_offset(distance as isize);
        // The compiler treats the word and the note as different objects.
        let word = ptr::with_exposed_provenance_mut(word.addr());
        // SAFETY: (1).
        unsafe { AtomicU32::from_ptr(word) }
    })
}

/// Returns those notes of a file that describe copies.
///
/// # Safety
///
/// 1. `len` bytes of notes at `start` can be read while the iterator is used.
unsafe fn notes(start: *const u8, len: usize) -> impl Iterator<Item = *const Note> {
    let mut at = 0;
    std::iter::from_fn(move || {
        while at + size_of::<Head>() <= len {
            let note = start.wrapping_add(at).cast::<Note>();
            // SAFETY: (1), and the condition of the loop keeps the head within the bytes.
            let head = unsafe { note.cast::<Head>().read_unaligned() };
            let padded = |len: u32| (len as usize).next_multiple_of(4);
            at += size_of::<Head>() + padded(head.name_len) + padded(head.content_len);
            // SAFETY: (1), and the sizes in the head show that the note ends within the bytes.
            if at <= len && head == HEAD && unsafe { note.read_unaligned() }.name == NAME {
                return Some(note);
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_of_copies_are_found_among_others() {
        let mut bytes = Vec::new();
        let mut add = |name: &[u8], kind: u32, content: &[u32]| {
            let lens = [name.len() as u32, content.len() as u32 * 4];
            let head = [lens[0], lens[1], kind].map(u32::to_le_bytes);
            bytes.extend(head.concat());
            bytes.extend(name);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes.extend(content.iter().flat_map(|word| word.to_le_bytes()));
        };
        add(b"GNU\0", 5, &[1, 2]);
        add(&NAME, 1, &[5]);
        add(b"x", 1, &[]);
        add(&NAME, 2, &[6]);
        add(&NAME, 1, &[7]);
        add(b"afterwork\0", 1, &[8]);
        // This note is truncated.
        add(&NAME, 1, &[9]);
        let len = bytes.len() - 1;
        // SAFETY: `bytes` outlives the iterator, and nothing writes to it.
        let found = unsafe { notes(bytes.as_ptr(), len) };
        // SAFETY: as above.
        let distances: Vec<_> =
            found.map(|note| unsafe { note.read_unaligned() }.distance).collect();
        assert_eq!(distances, [5, 7]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no loader")]
    fn loader_finds_the_word_of_this_copy() {
        note_use();
        assert_ne!(WORD.load(Ordering::Relaxed), UNUSED);
        let copies = Copies::find();
        assert_eq!([copies.here.is_some(), copies.there.is_some()], [true, false]);
    }
}
