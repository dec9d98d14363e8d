//! The choice of the mode, its effect on a slot, and the escalation of remote callers.

use std::time::Duration;

use base::internal::params::Qpw;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// The owner keeps the slot, and remote work is queued.
    Queue,
    /// The owner hands the slot over when asked.
    OnDemand,
    /// Like `OnDemand`, but a remote caller may break the bias.
    Breakable,
    /// The owner takes the slot for each operation.
    EveryOp,
}

impl Kind {
    pub(super) fn qpw(self) -> Qpw {
        match self {
            Self::Queue => Qpw::Queue,
            Self::OnDemand | Self::Breakable => Qpw::OnDemand,
            Self::EveryOp => Qpw::EveryOp,
        }
    }
}

/// The action of a remote caller in [`Qpw::OnDemand`] if the owner does not hand over the slot in
/// time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Escalate {
    /// Keeps waiting.
    #[default]
    Never,
    /// Waits a few milliseconds for a grace period of the kernel, and breaks the bias. Interrupts
    /// no CPU. Keeps waiting if the kernel does not support this, as with `nohz_full` CPUs.
    Quietly,
    /// Breaks the bias within microseconds. Interrupts each CPU that runs a thread of this process.
    Interrupt,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Escalation {
    pub(super) how: Escalate,
    pub(super) after: Duration,
}

/// Decides the way in which a slot is owned. Nothing is ever queued onto an isolated CPU, and
/// callers should not wait for its threads, so each operation takes and releases the slot there.
pub(super) fn kind_of(qpw: Qpw, escalate: Escalate, isolated: bool) -> Kind {
    match (qpw, escalate) {
        (Qpw::Queue, _) if isolated => Kind::EveryOp,
        (Qpw::Queue, _) => Kind::Queue,
        (Qpw::OnDemand, Escalate::Never) => Kind::OnDemand,
        (Qpw::OnDemand, _) => Kind::Breakable,
        (Qpw::EveryOp, _) => Kind::EveryOp,
    }
}

/// The parameter `C` of per-CPU data whose mode is [`Qpw::Queue`] at compile time, so that no
/// operation tests it.
#[doc(hidden)]
pub const COMPILED_OUT: bool = true;

#[inline(always)]
pub(super) fn chosen<const C: bool>(stored: Kind) -> Kind {
    if C { Kind::Queue } else { stored }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_has_the_chosen_mode_except_on_isolated_cpus() {
        for qpw in Qpw::ALL {
            for escalate in [Escalate::Never, Escalate::Quietly, Escalate::Interrupt] {
                assert_ne!(kind_of(qpw, escalate, true), Kind::Queue);
                assert_eq!(kind_of(qpw, escalate, false).qpw(), qpw);
            }
        }
    }

    #[test]
    fn bias_is_breakable_only_on_request() {
        assert_eq!(kind_of(Qpw::OnDemand, Escalate::Never, false), Kind::OnDemand);
        assert_eq!(kind_of(Qpw::OnDemand, Escalate::Quietly, false), Kind::Breakable);
        assert_eq!(kind_of(Qpw::OnDemand, Escalate::Interrupt, true), Kind::Breakable);
        assert_eq!(kind_of(Qpw::Queue, Escalate::Interrupt, false), Kind::Queue);
    }
}
