//! Reads Rust source far enough to know what it names.
//!
//! The checks of this crate ask "which paths does this file name, in which module, in test code or not?"
//! and "what do its comments say?". Strings, comments and macros' punctuation must not confuse them, so
//! the text is cut into tokens first:
//!
//! ```text
//!   text ── lexer ──► tokens ── paths ──► mentions (path, line, module, test only?)
//!             └─────► comments
//! ```
//!
//! Nothing here resolves names as the compiler does. Where that matters (a glob, a renamed crate) the
//! rules forbid the form that would hide something.

mod cfg;
mod lexer;
mod paths;

pub use lexer::{Comment, lex};
pub use paths::{Mention, Outline, outline};
