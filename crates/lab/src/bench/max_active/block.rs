//! What blocks of a file contain.

/// Fills a block so that it shrinks to about a half: runs of bytes that follow from its number, and noise.
pub fn fill(block: &mut [u8], number: usize) {
    let mut random = fastrand::Rng::with_seed(number as u64);
    for chunk in block.chunks_mut(64) {
        let (noise, run) = chunk.split_at_mut(32);
        random.fill(noise);
        run.fill(number as u8);
    }
}
