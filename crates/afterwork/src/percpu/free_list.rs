//! Objects that wait on each CPU to be used again.

use std::fmt;

use sync::Mutex;
use sync::unmodelled::Arc;

use super::absent::DrainedWhenAbsent;
use super::builder::{BuildError, Builder};
use super::remote::PerCpu;
use super::station::OwnedByWorkers;

/// Keeps some objects on each CPU for whoever runs there next: last in, first out, while they are in its cache.
///
/// A CPU's list is bounded, and what does not fit is given back. Objects of CPUs that leave go to a common list, from
/// which a CPU takes that has none of its own.
///
/// # Examples
///
/// ```
/// use afterwork::percpu::{FreeList, PerCpu, Qpw};
///
/// let spare = FreeList::new(PerCpu::builder().qpw(Qpw::EveryOp), 8)?;
/// let mut text = spare.pop().unwrap_or_else(|| String::with_capacity(4096));
/// text.push_str("used");
/// text.clear();
/// // Where the list is full the object is dropped here.
/// let _ = spare.push(text);
/// assert!(spare.pop().unwrap().capacity() >= 4096);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct FreeList<T: Send + 'static> {
    lists: Arc<PerCpu<Vec<T>>>,
    /// From CPUs that left.
    homeless: Arc<Mutex<Vec<T>>>,
    capacity: usize,
    _watch: DrainedWhenAbsent,
}

impl<T: Send + 'static> FreeList<T> {
    /// Makes empty lists of at most `capacity` objects for each CPU.
    ///
    /// # Blocking
    ///
    /// As [`Builder::build`].
    ///
    /// # Errors
    ///
    /// As of [`Builder::build`].
    pub fn new(builder: Builder, capacity: usize) -> Result<Self, BuildError> {
        let lists = Arc::new(builder.build(|_| Vec::with_capacity(capacity))?);
        let homeless = Arc::new(Mutex::new(Vec::new()));
        let theirs = homeless.clone();
        let watch = lists.drain_when_absent(move |_, list| theirs.lock().append(list));
        Ok(Self {
            lists,
            homeless,
            capacity,
            _watch: watch,
        })
    }

    /// Takes the object that came last to this CPU; nothing where there is none.
    ///
    /// # Blocking
    ///
    /// As [`PerCpu::with_current`], and for a short lock where this CPU has none.
    #[inline]
    pub fn pop(&self) -> Option<T> {
        let popped = self.lists.with_current(Vec::pop);
        popped.or_else(|| self.homeless.lock().pop())
    }

    /// Leaves an object to this CPU.
    ///
    /// # Blocking
    ///
    /// As [`PerCpu::with_current`].
    ///
    /// # Errors
    ///
    /// The object, where the CPU has enough.
    #[inline]
    pub fn push(&self, object: T) -> Result<(), T> {
        let capacity = self.capacity;
        self.lists.with_current(move |list| {
            if list.len() >= capacity {
                return Err(object);
            }
            list.push(object);
            Ok(())
        })
    }

    /// Takes all objects of all CPUs.
    ///
    /// # Blocking
    ///
    /// As [`PerCpu::drain_all`].
    pub fn drain(&self) -> Vec<T> {
        let all = Mutex::new(std::mem::take(&mut *self.homeless.lock()));
        self.lists.drain_all(|_, list| all.lock().append(list));
        std::mem::take(&mut *all.lock())
    }

    /// Lets workers own the lists; see [`PerCpu::let_workers_own`].
    pub fn let_workers_own(&self) -> OwnedByWorkers {
        self.lists.let_workers_own()
    }
}

impl<T: Send + 'static> fmt::Debug for FreeList<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FreeList")
            .field("lists", &self.lists)
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}
