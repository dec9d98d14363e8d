//! The queue behind a mailbox: the FIFO, or the LIFO list that it replaces, to measure one against the other.

use crossbeam_utils::CachePadded;
use mpscq::{Linked, Pop, RawCursor, RawQueue, Stack};

use super::slot::{Letter, Letters, Slot};

/// How posts are kept until the owner takes them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Backlog {
    /// The wait-free queue: one swap a post, taken in order as they come.
    #[default]
    Fifo,
    /// A lock-free list: a compare-exchange loop a post, taken all at once and turned round. The old way, kept to
    /// measure against; order and guarantees are the same.
    Lifo,
}

/// The posters' side.
#[derive(Debug)]
pub(super) struct Inbox<T> {
    backlog: Backlog,
    fifo: CachePadded<RawQueue<Slot<T>>>,
    lifo: CachePadded<Stack<Slot<T>>>,
}

/// The owner's side.
#[derive(Debug)]
pub(super) struct Reader<T> {
    fifo: RawCursor<Slot<T>>,
    /// What was taken from the list and turned round.
    turned: Letters<T>,
}

/// What a read found.
pub(super) enum Found<T> {
    Letter(Letter<T>),
    Empty,
    MidPush,
}

impl<T> Inbox<T> {
    /// Makes both sides.
    pub(super) fn new(backlog: Backlog) -> (Self, Reader<T>) {
        let inbox = Self {
            backlog,
            fifo: CachePadded::new(RawQueue::new()),
            lifo: CachePadded::new(Stack::new()),
        };
        (
            inbox,
            Reader {
                fifo: RawCursor::new(),
                turned: Letters::new(),
            },
        )
    }

    /// Appends a letter.
    #[inline(always)]
    pub(super) fn push(&self, letter: Letter<T>) {
        match self.backlog {
            Backlog::Fifo => {
                let letter = Slot::into_raw(letter.into_blank());
                // SAFETY: 1, 2: the handle, sole right to the node, was just given up. 3: `self` lives in the allocation
                // that owner and posters share, and is freed after the last of them.
                unsafe { self.fifo.push(letter) };
            }
            Backlog::Lifo => {
                self.lifo.push(letter.into_blank());
            }
        }
    }

    /// Appends the letters of a chain, in its order.
    #[inline]
    pub(super) fn push_chain(&self, letters: Letters<T>) {
        let mut letters = letters.into_chain();
        match self.backlog {
            Backlog::Fifo => {
                if let Some((first, last, _)) = letters.into_raw_parts() {
                    // SAFETY: 1: a chain's links lead from its first item to its last. 2: it gave up owning them; the
                    // rest as in `push`.
                    unsafe { self.fifo.push_chain(first, last) };
                }
            }
            Backlog::Lifo => {
                letters.reverse();
                self.lifo.push_chain(letters);
            }
        }
    }

    /// Takes the oldest letter.
    ///
    /// # Safety
    ///
    /// 1. `reader` was made with this inbox.
    #[inline(always)]
    pub(super) unsafe fn read(&self, reader: &mut Reader<T>) -> Found<T> {
        match self.backlog {
            // SAFETY: 1: (1). 2: there is one reader, borrowed by `&mut`, and it moves between threads by what
            // orders their use of it.
            Backlog::Fifo => match unsafe { self.fifo.pop(&mut reader.fifo) } {
                Pop::Item(slot) => {
                    // SAFETY: a pop hands each node out once, and `push` gave up its handle.
                    let blank = unsafe { Slot::from_raw(slot) };
                    // SAFETY: `push` takes letters.
                    Found::Letter(unsafe { Letter::from_blank(blank) })
                }
                Pop::Empty => Found::Empty,
                Pop::MidPush => Found::MidPush,
            },
            Backlog::Lifo => {
                if reader.turned.is_empty() {
                    // SAFETY: `push` takes letters.
                    reader.turned = unsafe { Letters::from_chain(self.lifo.take_all_fifo()) };
                }
                reader
                    .turned
                    .pop_front()
                    .map_or(Found::Empty, Found::Letter)
            }
        }
    }
}

// SAFETY: letters move from poster to owner, and nothing else crosses.
unsafe impl<T: Send> Send for Inbox<T> {}
// SAFETY: as above: to share the inbox is to be able to push, which moves values.
unsafe impl<T: Send> Sync for Inbox<T> {}
