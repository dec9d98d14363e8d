//! The parts that have records, without the feature `page`: none.

use super::image::Image;

/// Owned by a part that would have records.
#[derive(Debug)]
pub struct Joined;

/// Drops `source`, because no reader can ask for records.
pub fn join(source: impl Fn(&mut Image) + Send + Sync + 'static) -> Joined {
    drop(source);
    Joined
}
