//! Records whether plain accesses are visible (see `plain.rs`), and describes source locations.

use std::sync::atomic::{AtomicBool, Ordering};

use super::line::Site;

static IS_SEEN: AtomicBool = AtomicBool::new(false);

/// Returns `true` if plain accesses are visible.
pub fn is_seen() -> bool {
    IS_SEEN.load(Ordering::Relaxed)
}

/// Records that plain accesses are visible.
pub fn note() {
    IS_SEEN.store(true, Ordering::Relaxed);
}

/// Returns the description of a source location.
pub fn described(site: Site) -> String {
    match site.file().ends_with("simachine/src/plain.rs") {
        true => "a plain access or a count of an Arc, by the stack".into(),
        false => site.to_string(),
    }
}
