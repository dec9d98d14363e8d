//! Whether plain accesses are seen, which `plain.rs` finds out, and how their places are told.

use std::sync::atomic::{AtomicBool, Ordering};

use super::line::Site;

static IS_SEEN: AtomicBool = AtomicBool::new(false);

/// Returns `true` if plain accesses are seen: part of this program is built so.
pub fn is_seen() -> bool {
    IS_SEEN.load(Ordering::Relaxed)
}

/// Notes that they are.
pub fn note() {
    IS_SEEN.store(true, Ordering::Relaxed);
}

/// Returns what is told of a place.
pub fn told(site: Site) -> String {
    match site.file().ends_with("sim/plain.rs") {
        true => "a plain access or a count of an Arc, by the stack".into(),
        false => site.to_string(),
    }
}
