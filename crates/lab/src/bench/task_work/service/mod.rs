//! A TCP service on the loopback interface, with one owner thread that uses io_uring.
//!
//! ```text
//! clients ──request──► owner ──request──► worker (2)
//!    ▲                │  ▲                  │
//!    └────response────┘  └────task work─────┘
//! ```
//!
//! Only the owner accesses sockets, through a [`ring`]. [Workers](worker) process the requests, and
//! return them to the owner as task work. [`clients`] keep one request in progress on each
//! connection. [`owner`] is the loop of the owner, and [`run`] is one measurement.

pub mod clients;
pub mod meter;
pub mod owner;
pub mod ring;
pub mod run;
pub mod worker;
