//! A service on loopback TCP whose one owner thread lives in an io_uring ring.
//!
//! ```text
//! clients ──request──► owner ──request──► worker (2)
//!    ▲                │  ▲                  │
//!    └────response────┘  └────task work─────┘
//! ```
//!
//! The owner alone touches sockets: [`ring`] receives and sends for it. The work on a request is done by
//! [workers](worker), and what they finish comes home to the owner as task work. [`clients`] keep one request under
//! way on each connection. [`owner`] is the loop, [`run`] one measurement of it all.

pub mod clients;
pub mod meter;
pub mod owner;
pub mod ring;
pub mod run;
pub mod worker;
