//! Items, which record the producer to which they belong.

use std::cell::Cell;
use std::pin::Pin;
use std::ptr;

use lab_peers::CordycepsNode;
use mpscq::Node;

/// The eight bytes that every item carries: its producer, its number and its push count.
///
/// bits 0..16 index of the producer | bits 16..32 number among its items | bits 32..64 push count
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag {
    bits: u64,
}

impl Tag {
    const FIELD: u32 = 16;
    const FIELD_MASK: u64 = (1 << Self::FIELD) - 1;
    const ONE_PUSH: u64 = 1 << (2 * Self::FIELD);

    pub fn new(home: usize, number: usize) -> Self {
        let (home, number) = (home as u64, number as u64);
        debug_assert!(home <= Self::FIELD_MASK && number <= Self::FIELD_MASK);
        Self { bits: home | number << Self::FIELD }
    }

    #[inline(always)]
    pub fn home(self) -> usize {
        (self.bits & Self::FIELD_MASK) as usize
    }

    #[inline(always)]
    pub fn number(self) -> usize {
        (self.bits >> Self::FIELD & Self::FIELD_MASK) as usize
    }

    #[inline(always)]
    pub fn pushed(self) -> Self {
        Self { bits: self.bits.wrapping_add(Self::ONE_PUSH) }
    }
}

pub trait Item: Send + 'static {
    fn make() -> Self;

    fn tag(&self) -> Tag;

    fn set_tag(&mut self, tag: Tag);

    /// Writes to the item, as a producer that fills in a message does.
    #[inline(always)]
    fn fill(&mut self) {
        self.set_tag(self.tag().pushed());
    }

    /// Returns the memory address of the item, or 0 if the item is passed by value.
    fn address(&self) -> usize;
}

/// The item of channels in `push-pop`: a pointer.
pub type Boxed = Box<Cell<Tag>>;

pub type Ours = Box<Node<Cell<Tag>>>;

pub type Cordyceps = Pin<Box<CordycepsNode<Cell<Tag>>>>;

macro_rules! pointer {
    ($pointer:ty, $make:expr) => {
        impl Item for $pointer {
            fn make() -> Self {
                $make
            }

            #[inline(always)]
            fn tag(&self) -> Tag {
                self.get()
            }

            #[inline(always)]
            fn set_tag(&mut self, tag: Tag) {
                Cell::set(self, tag);
            }

            fn address(&self) -> usize {
                ptr::from_ref(&**self).addr()
            }
        }
    };
}

pointer!(Boxed, Box::default());
pointer!(Ours, Node::new(Cell::default()));
pointer!(Cordyceps, CordycepsNode::new(Cell::default()));

impl Item for Tag {
    fn make() -> Self {
        Self::default()
    }

    #[inline(always)]
    fn tag(&self) -> Tag {
        *self
    }

    #[inline(always)]
    fn set_tag(&mut self, tag: Tag) {
        *self = tag;
    }

    fn address(&self) -> usize {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keeps_its_tag<I: Item>() {
        let mut item = I::make();
        let tag = Tag::new(7, 1023);
        item.set_tag(tag);
        item.fill();
        assert_eq!(item.tag(), tag.pushed());
        assert_eq!((item.tag().home(), item.tag().number()), (7, 1023));
    }

    #[test]
    fn a_push_counts_and_touches_nothing_else() {
        let (tag, pushed) = (Tag::new(3, 5), Tag::new(3, 5).pushed());
        assert_ne!(tag, pushed);
        assert_eq!((tag.home(), tag.number()), (pushed.home(), pushed.number()));
        let full = Tag { bits: u64::MAX };
        assert_eq!((full.pushed().home(), full.pushed().number()), (full.home(), full.number()));
    }

    #[test]
    fn every_kind_of_item_keeps_its_tag() {
        keeps_its_tag::<Boxed>();
        keeps_its_tag::<Ours>();
        keeps_its_tag::<Cordyceps>();
        keeps_its_tag::<Tag>();
        assert_eq!(size_of::<Tag>(), 8);
    }
}
