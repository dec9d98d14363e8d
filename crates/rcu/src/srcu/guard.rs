//! Proof that a section of a domain runs.

use super::{domain::Domain, slots::Parity};

/// A read-side critical section of a [`Domain`]. It ends when this is dropped.
///
/// # Guarantees
///
/// What the section reaches stays valid, if whoever frees it waits for a grace period of the same domain first. A guard may
/// be held across `.await` and sent to another thread. A guard that is forgotten (`mem::forget`) holds up every grace period
/// of the domain for good, which is safe.
#[must_use = "the section ends where the guard is dropped"]
#[derive(Debug)]
pub struct Guard<'domain> {
    domain: &'domain Domain,
    /// The parity under which the section was counted.
    parity: Parity,
}

/// A [`Guard`] that keeps its domain alive, for tasks that outlive their creator.
///
/// Costs one more read-modify-write, of a shared count, at either end.
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

    /// Returns the domain whose section this is.
    pub fn domain(&self) -> &'domain Domain {
        self.domain
    }
}

impl OwnedGuard {
    pub(super) fn new(domain: Domain) -> Self {
        let parity = domain.shared().enter();
        Self { domain, parity }
    }

    /// Returns the domain whose section this is.
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
