//! A TCP service on the loopback interface, with one owner thread that uses io_uring.
//!
//! ```text
//! clients ──request──► owner ──request──► worker (2)
//!    ▲                │  ▲                  │
//!    └────response────┘  └────task work─────┘
//! ```

pub mod clients;
pub mod meter;
pub mod owner;
pub mod ring;
pub mod run;
pub mod worker;
