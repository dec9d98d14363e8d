//! Proof that a section of a domain is open.

use std::borrow::Borrow;

use super::domain::Domain;
use super::slots::Parity;
use crate::flavor::Section;

/// A read-side critical section of a [`Domain`]. It ends when the guard is dropped.
///
/// # Guarantees
///
/// Data that the section reaches stays valid if the thread that frees it first waits for a grace
/// period of the same domain. A guard may be held across `.await` and sent to another thread. A
/// guard that is leaked (`mem::forget`) delays every grace period of the domain forever.
pub type Guard<'domain> = GuardOf<&'domain Domain>;

/// A [`Guard`] that keeps its domain alive, for tasks that outlive their creator.
///
/// It costs one more read-modify-write on a shared count at each end of the section.
pub type OwnedGuard = GuardOf<Domain>;

/// A [`Guard`] or an [`OwnedGuard`].
#[must_use = "the section ends where the guard is dropped"]
pub struct GuardOf<D: Borrow<Domain>> {
    domain: D,
    /// The parity under which the section was counted.
    parity: Parity,
}

impl<D: Borrow<Domain>> GuardOf<D> {
    #[inline(always)]
    pub(super) fn new(domain: D) -> Self {
        let parity = domain.borrow().shared.enter();
        Self { domain, parity }
    }

    /// Returns the domain to which this section belongs.
    pub fn domain(&self) -> &Domain {
        self.domain.borrow()
    }
}

impl<D: Borrow<Domain>> Section<Domain> for GuardOf<D> {
    #[inline(always)]
    fn is_of(&self, flavor: &Domain) -> bool {
        flavor.same_as(self.domain())
    }
}

impl<D: Borrow<Domain>> Drop for GuardOf<D> {
    #[inline(always)]
    fn drop(&mut self) {
        self.domain().shared.leave(self.parity);
    }
}
