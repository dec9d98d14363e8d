//! SHA-256 of two files side by side.
//!
//! Each round of SHA-256 needs the one before, so a core that hashes one file waits for its own instructions most of the
//! time. Given blocks of two files by turns it begins the second while it ends the first. That takes no more than calling
//! the hash's own code block by block.

use std::slice;

use sha2::Sha256VarCore;
use sha2::digest::Output;
use sha2::digest::core_api::{Block, Buffer, UpdateCore, VariableOutputCore};

use super::line::Digest;

const BLOCK_BYTES: usize = 64;

/// The hash of what it was given so far.
pub struct Hasher {
    core: Sha256VarCore,
    /// What does not fill a block yet.
    rest: Buffer<Sha256VarCore>,
}

impl Default for Hasher {
    fn default() -> Self {
        let core = Sha256VarCore::new(size_of::<Digest>()).expect("a length of SHA-256's");
        let rest = Buffer::<Sha256VarCore>::default();
        Self { core, rest }
    }
}

impl Hasher {
    /// Adds `data`.
    pub fn update(&mut self, data: &[u8]) {
        let Self { core, rest } = self;
        rest.digest_blocks(data, |blocks| core.update_blocks(blocks));
    }

    /// Returns the hash of all.
    pub fn finish(mut self) -> Digest {
        let mut hash = Output::<Sha256VarCore>::default();
        self.core.finalize_variable_core(&mut self.rest, &mut hash);
        hash.into()
    }

    fn is_between_blocks(&self) -> bool {
        self.rest.get_pos() == 0
    }

    fn block(&mut self, block: &[u8]) {
        let block = Block::<Sha256VarCore>::from_slice(block);
        self.core.update_blocks(slice::from_ref(block));
    }
}

/// Adds to two hashes at once; sooner done than one after the other.
pub fn update_both(first: (&mut Hasher, &[u8]), second: (&mut Hasher, &[u8])) {
    let ((one, ones), (other, others)) = (first, second);
    let mut nr_common = 0;
    if one.is_between_blocks() && other.is_between_blocks() {
        let blocks = ones.chunks_exact(BLOCK_BYTES);
        for (ours, theirs) in blocks.zip(others.chunks_exact(BLOCK_BYTES)) {
            one.block(ours);
            other.block(theirs);
            nr_common += BLOCK_BYTES;
        }
    }
    one.update(&ones[nr_common..]);
    other.update(&others[nr_common..]);
}

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha256};

    use super::*;

    #[test]
    fn hashes_side_by_side_are_those_of_each_alone() {
        let data: Vec<u8> = (0..4096_u32).map(|byte| byte as u8).collect();
        let lengths = [0, 1, 55, 56, 63, 64, 65, 119, 120, 128, 1000, 4096];
        for ours in lengths {
            for theirs in lengths {
                let mut hashers = [Hasher::default(), Hasher::default()];
                let [one, other] = &mut hashers;
                let pieces = [&data[..ours], &data[..theirs]];
                // The second round begins inside a block of some.
                for _ in 0..2 {
                    update_both((&mut *one, pieces[0]), (&mut *other, pieces[1]));
                }
                let expected =
                    pieces.map(|piece| Digest::from(Sha256::digest([piece; 2].concat())));
                assert_eq!(hashers.map(Hasher::finish), expected, "{ours} and {theirs}");
            }
        }
    }
}
