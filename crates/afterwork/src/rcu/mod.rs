//! Work that waits until no reader can still see the old version.
//!
//! | readers | grace periods |
//! |---|---|
//! | sleep, cross `.await` and threads | [`srcu::Domain`]: one for each, independent |

pub mod srcu;
