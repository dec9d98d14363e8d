//! The edit distance of two words. The torture programs also include this file.

/// Returns the number of letters that must be added, removed or replaced to turn one word into the
/// other.
pub(crate) fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, letter) in from.chars().enumerate() {
        let mut above_left = row[0];
        row[0] = i + 1;
        for (j, other) in to.iter().enumerate() {
            let replaced = above_left + usize::from(letter != *other);
            above_left = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[to.len()]
}
