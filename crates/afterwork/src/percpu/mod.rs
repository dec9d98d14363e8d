//! Per-CPU data that others can drain without disturbing its owner.
//!
//! A [`PerCpu`] holds one slot of data for each CPU of the machine. A thread that lives on a CPU *owns* its slot
//! ([`PerCpu::attach`]) and works on it with plain loads and stores ([`Owner::with`]). Now and then somebody else must
//! reach it: to flush a cache, to read a sum, because the CPU leaves. The old way is to queue work to that CPU, which
//! throws off it whatever runs there. The other way is to do the work here, on the data there. Which of them it is, is
//! chosen when the program starts ([`Qpw`]); the calls are the same and mean the same.
//!
//! | [`Qpw`] | the owner gives its slot up | an operation of the owner's costs | a remote call |
//! |---|---|---|---|
//! | `Queue` | never | nothing | is mailed; the owner runs it when it [polls](Owner::poll) |
//! | `OnDemand` | when somebody asks, at its next operation or poll | a load | runs here, after that |
//! | `EveryOp` | after each operation | a locked instruction | runs here, at once |
//!
//! A slot whose owner is [parked](Owner::park), or that has none, is free to take in every mode. In a
//! [`CompiledOut`] one the mode is `Queue` and no code asks for it.
//!
//! # One word, three states
//!
//! ```text
//!              take: anybody                          bias: the owner
//!    FREE ───────────────────────► HELD ───────────────────────────────► OWNED
//!     ▲    ◄───────────────────────      ◄───────────────────────────────   │
//!     │      release: the holder           break: OnDemand, escalated       │
//!     └─────────────────────────────────────────────────────────────────────┘
//!       give up: the owner: parks, ends, or (OnDemand) was asked
//! ```
//!
//! - `HELD` is a lock: whoever moved the word there touches the data, and moves it on.
//! - `OWNED` is a lock that its owner keeps between operations. It never occurs in `EveryOp`.
//! - Data is touched in `HELD`, or by the owner in `OWNED`. Nobody else ever looks at it, so `&mut` is what it says.
//!
//! What of this lies on the owner's own road differs by mode. In `EveryOp` it takes and releases. In `Queue` it does
//! nothing. In `OnDemand` it loads the word `want`, which counts who asks; zero says go. The one rule that makes this
//! right is that **`want` is zero only while the owner has the bias, or is inside**: whoever moves the word away from `OWNED` puts
//! `AWAY` into `want`, before anybody else can leave it at zero, and the owner alone takes it out again, while it is
//! inside and about to move the word back to `OWNED`. `bias.rs` has the steps.
//!
//! # Mail
//!
//! In `Queue`, work for an owned slot lies in the slot's mail until its owner polls. Whoever takes or releases a slot
//! runs its mail too, so mail never lies in a `FREE` slot without somebody about to look:
//!
//! ```text
//! release: word = FREE;  fence;  mail?         then take, run it, release again
//! post:    push mail;    fence;  word FREE?    then take, run it, release
//! ```
//!
//! # Who waits, and how
//!
//! Remote callers wait; owners do not, except for a remote section in progress on their own slot. A waiter looks, gives
//! its CPU away, and then naps between looks (`patience.rs`). Nobody ever wakes it: a wake-up would cost the owner a
//! system call, and keeping owners undisturbed is what this module is for. An owner that is preempted inside an
//! operation holds its slot as long as it is off its CPU; hence [`PerCpu::try_run_on`], and: keep operations short.
//!
//! # Breaking the bias
//!
//! `OnDemand` waits for an owner that does not come by for ever, unless it is told to [escalate](Escalate). Then the
//! owner also notes, with plain stores, when it is inside an operation (`busy`), and a remote caller whose patience is
//! over makes all threads pass a fence by `membarrier`: after that it either sees `busy`, or the owner will see `want`.
//!
//! Differs from Linux: there a CPU's data is locked by whoever runs on it, with preemption off; here a thread says
//! that it owns it. `Queue` and `EveryOp` are `qpw=0` and `qpw=1` of the per-CPU work proposal; the kernel has no
//! `OnDemand`.

mod absent;
mod attempt;
mod bias;
mod builder;
mod call;
mod choice;
mod counter;
mod drain;
mod fork;
mod mail;
mod owner;
mod pages;
mod patience;
mod remote;
mod slot;
mod table;
mod tally;

pub use crate::params::Qpw;
pub use absent::{DrainedWhenAbsent, set_online_cpus};
pub use builder::{BuildError, Builder};
pub use choice::{AtStart, Choice, CompiledOut, Escalate};
pub use counter::SloppyCounter;
pub use owner::{AttachError, Owner, Parked};
pub use pages::{Page, PageBatches};
pub use remote::{NotRun, PerCpu};
