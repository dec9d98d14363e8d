//! Proof that a section of a domain is open.

use super::{domain::Domain, slots::Parity};

/// A read-side critical section of a [`Domain`]. It ends when the guard is dropped.
///
/// # Guarantees
///
/// Data that the section reaches stays valid if the thread that frees it first waits for a grace
/// period of the same domain. A guard may be held across `.await` and sent to another thread. A
/// guard that is leaked (`mem::forget`) delays every grace period of the domain forever. This is
/// safe.
#[must_use = "the section ends where the guard is dropped"]
#[derive(Debug)]
pub struct Guard<'domain> {
    domain: &'domain Domain,
    /// The parity under which the section was counted.
    parity: Parity,
}

/// A [`Guard`] that keeps its domain alive, for tasks that outlive their creator.
///
/// It costs one more read-modify-write on a shared count at each end of the section.
#[must_use = "the section ends where the guard is dropped"]
#[derive(Debug)]
pub struct OwnedGuard {
    domain: Domain,
    /// The parity under which the section was counted.
    parity: Parity,
}

impl<'domain> Guard<'domain> {
    #[inline(always)]
    pub(super) fn new(domain: &'domain Domain) -> Self {
        let parity = domain.shared().enter();
        Self { domain, parity }
    }

    /// Returns the domain to which this section belongs.
    pub fn domain(&self) -> &'domain Domain {
        self.domain
    }
}

impl OwnedGuard {
    pub(super) fn new(domain: Domain) -> Self {
        let parity = domain.shared().enter();
        Self { domain, parity }
    }

    /// Returns the domain to which this section belongs.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }
}

impl Drop for Guard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.domain.shared().leave(self.parity);
    }
}

impl Drop for OwnedGuard {
    fn drop(&mut self) {
        self.domain.shared().leave(self.parity);
    }
}
