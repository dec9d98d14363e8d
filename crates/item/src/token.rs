//! Tokens. A token is a flag that is set once. It records its children and the tasks that wait for
//! it.
//!
//! # The protocol
//!
//! ```text
//! cancel: lock: set the flag; take wakers and children;  unlock: fire; cancel the children
//! poll:   lock: is the flag set?  ready;  otherwise register the waker
//! child:  lock: is the flag set?  the child is cancelled;  otherwise add it to the children
//! ```
//!
//! The lock decides the order. If a poll or a child acquires the lock after the cancel, it finds
//! the flag set. If it acquires the lock before the cancel, it is in the lists that the canceller
//! takes. Twin `token: checks before the lock`. The flag can also be read without the lock, as a
//! hint. Such a read does not make the canceller's writes visible.
//!
//! # The token of an item
//!
//! A one-shot item has a token only if its code requests one while it runs. That token is stored in
//! a table under the item's address, and two flags of the item's state connect the two threads:
//!
//! ```text
//! item:      insert the token into the table;  set WATCHED;  CANCELLED?  cancel the token
//! canceller: set CANCELLED;  WATCHED?  cancel the token in the table
//! ```
//!
//! Both flags are set by transitions of one word, so one of the threads finds the other's flag.
//! Twin `token: overlooks an earlier cancel`. The token is removed when the item is freed, so no
//! later item at that address finds it.
//!
//! The first check in a run stores the address of the token in the record of the run
//! (`execute/run.rs`), so that later checks acquire no lock.

use std::collections::HashMap;
use std::ptr;
use std::task::Waker;

use base::internal::numbered::Numbered;
use base::internal::panics::Foreign;
use sync::atomic::{AtomicBool, Ordering};
#[cfg(not(any(loom, shuttle)))]
use sync::fork::PerProcess;
use sync::fork::Process;
use sync::unmodelled::{Arc, AtomicU64, Weak};
use sync::{Mutex, MutexGuard, twin};

use super::head::{Head, State};
use crate::cleanups;

/// A flag with waiters and children.
pub struct Token {
    /// A: written under the lock of `list`.
    is_set: AtomicBool,
    /// This lock is a leaf in the lock order.
    list: Mutex<Waiting>,
    /// I: the parent, whose cancel also cancels this token.
    parent: Option<Arc<Token>>,
    /// The key of this token among the parent's children. Written once, before the token is
    /// shared.
    number: AtomicU64,
    /// I: the process that created the token.
    process: Process,
}

#[derive(Default)]
struct Waiting {
    wakers: Numbered<Foreign<Waker>>,
    children: Numbered<Weak<Token>>,
}

pub type WakerKey = Option<u64>;

type Table = Mutex<HashMap<usize, Arc<Token>>>;

#[cfg(any(loom, shuttle))]
sync::process_wide! {
    fn table() -> Table = Mutex::new(HashMap::new())
}

/// Returns the tokens of items, by address. A child of `fork` has its own.
#[cfg(not(any(loom, shuttle)))]
fn table() -> &'static Table {
    static TOKENS: PerProcess<Table> = PerProcess::new();
    TOKENS.get().unwrap_or_else(|| TOKENS.get_or_set(Mutex::new(HashMap::new())))
}

impl Token {
    pub fn new() -> Arc<Self> {
        Arc::new(Self::of(None))
    }

    fn of(parent: Option<Arc<Self>>) -> Self {
        Self {
            is_set: AtomicBool::new(false),
            list: Mutex::new(Waiting::default()),
            parent,
            number: AtomicU64::new(0),
            process: Process::this(),
        }
    }

    pub fn child(self: &Arc<Self>) -> Arc<Self> {
        let child = Arc::new(Self::of(Some(self.clone())));
        let mut list = self.lock();
        let is_set = self.is_set();
        let number = list.children.add(Arc::<Self>::downgrade(&child));
        drop(list);
        child.number.store(number, Ordering::Relaxed);
        if is_set {
            child.cancel();
        }
        child
    }

    #[inline]
    pub fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
    }

    /// Sets the flag and those of all children, and wakes the waiters. Call it with no lock held.
    pub fn cancel(self: &Arc<Self>) {
        let mut wakers = Vec::new();
        let mut left = vec![self.clone()];
        while let Some(token) = left.pop() {
            let mut list = token.lock();
            token.is_set.store(true, Ordering::Relaxed);
            wakers.extend(list.wakers.take_all());
            // The children are dropped in the loop, because dropping a child's last reference
            // acquires the lock of its parent.
            left.extend(list.children.iter().filter_map(Weak::upgrade));
        }
        cleanups::fire_all(wakers);
    }

    /// Registers `waker`, in place of the one with this key. Returns `false` if the flag is set.
    pub fn leave_waker(&self, key: &mut WakerKey, waker: Foreign<Waker>) -> bool {
        if twin::armed("token: checks before the lock") && self.is_set() {
            return false;
        }
        let mut list = self.lock();
        if self.is_set() && !twin::armed("token: checks before the lock") {
            return false;
        }
        let before = key.take().and_then(|key| list.wakers.remove(key));
        *key = Some(list.wakers.add(waker));
        drop(list);
        // FOREIGN(token-drop): the drop of the waker, on the polling thread, with no lock held; a
        // panic is contained by `Foreign`.
        drop(before);
        true
    }

    pub fn remove_waker(&self, key: &mut WakerKey) {
        if let Some(key) = key.take()
            && self.process.is_this()
        {
            let before = self.list.lock().wakers.remove(key);
            // FOREIGN(token-drop): as above, on the thread that drops the future.
            drop(before);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        assert!(
            self.process.is_this(),
            "the token was created before the process was forked: create one in the child"
        );
        self.list.lock()
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        if twin::torn_down() {
            return;
        }
        let number = |token: &Self| token.number.load(Ordering::Relaxed);
        // This is a loop, because nested drops of a long chain of parents would overflow the stack.
        let mut next = self.parent.take().map(|parent| (parent, number(self)));
        while let Some((parent, number_there)) = next {
            if parent.process.is_this() {
                parent.list.lock().children.remove(number_there);
            }
            let ended = Arc::into_inner(parent);
            next = ended.and_then(|mut it| Some((it.parent.take()?, number(&it))));
        }
    }
}

impl Head {
    /// Returns the token of this item, which the caller runs: `fresh`, unless the item has one
    /// already.
    pub fn watch(&self, fresh: Arc<Token>) -> Arc<Token> {
        let mut tokens = table().lock();
        let token = tokens.entry(self.address()).or_insert_with(|| fresh.clone()).clone();
        // Unlock before `fresh` may be dropped, because its drop locks its parent.
        drop(tokens);
        let from = self.update(|state| Some(state.watched()));
        let is_cancelled = from.is_some_and(|(from, _)| from.is_cancelled());
        if is_cancelled && !twin::armed("token: overlooks an earlier cancel") {
            token.cancel();
        }
        token
    }

    /// Records the cancellation of a closure that a thread runs, or is about to run.
    #[cold]
    pub fn cancel_started(&self) {
        if self.update(State::cancel_started).is_some() {
            self.notify_cancelled();
        }
    }

    /// Cancels the token of a cancelled item, if it has one.
    #[cold]
    pub fn notify_cancelled(&self) {
        if self.load().is_watched() {
            let token = table().lock().get(&self.address()).cloned();
            if let Some(token) = token {
                token.cancel();
            }
        }
    }

    /// Returns the token of this item, which the caller runs, or null. The table keeps the token
    /// until the item is freed.
    #[cold]
    pub fn token(&self) -> *const Token {
        table().lock().get(&self.address()).map_or(ptr::null(), Arc::as_ptr)
    }

    /// Removes the token of an item that is about to be freed.
    #[inline]
    pub fn unwatch(&self) {
        if self.load().is_watched() {
            let token = table().lock().remove(&self.address());
            drop(token);
        }
    }

    fn address(&self) -> usize {
        ptr::from_ref(self).addr()
    }
}
