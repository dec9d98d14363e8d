//! Stands for `std::thread`.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
pub use std::thread::{Result, panicking};

use crate::sim::{life, thread as backend};
pub use backend::{sleep, yield_now};

/// A thread that returns something.
#[derive(Debug)]
pub struct JoinHandle<T> {
    number: usize,
    result: Arc<Mutex<Option<T>>>,
}

/// A handle of the running thread.
#[derive(Clone, Debug)]
pub struct Thread(u32);

/// Returns a handle of the running thread.
pub fn current() -> Thread {
    Thread(backend::current())
}

impl Thread {
    /// Returns its number.
    pub fn id(&self) -> u32 {
        self.0
    }

    /// Returns its name.
    pub fn name(&self) -> Option<&'static str> {
        Some(backend::described(self.0)?.0.leak())
    }
}

/// Starts a thread.
///
/// # Panics
///
/// Outside of a simulation.
pub fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    start(Box::new(body))
}

fn start<T: 'static>(body: Box<dyn FnOnce() -> T + 'static>) -> JoinHandle<T> {
    let result = Arc::new(Mutex::new(None));
    let to = result.clone();
    let body = AssertUnwindSafe(move || {
        let value = body();
        *to.lock().expect("nothing panics") = Some(value);
    });
    let number = life::spawn("test", Box::new(|| body.0()));
    JoinHandle { number, result }
}

impl<T> JoinHandle<T> {
    /// Returns `true` if it has ended.
    pub fn is_finished(&self) -> bool {
        crate::sim::work_ns(0);
        self.result.lock().expect("nothing panics").is_some()
    }

    /// Waits for its end.
    ///
    /// # Errors
    ///
    /// What it panicked with.
    pub fn join(self) -> Result<T> {
        if let Some(payload) = life::join(self.number) {
            return Err(payload);
        }
        let value = self.result.lock().expect("nothing panics").take();
        Ok(value.expect("it has ended"))
    }
}

/// Threads that end before [`scope`] returns.
#[derive(Debug)]
pub struct Scope<'scope, 'env: 'scope> {
    threads: RefCell<Vec<usize>>,
    panicked: Arc<Mutex<bool>>,
    _of: PhantomData<(&'scope mut &'scope (), &'env mut &'env ())>,
}

// SAFETY: all tasks are on one OS thread, and no reference to the list outlives a step.
unsafe impl Sync for Scope<'_, '_> {}

/// A thread of a scope.
#[derive(Debug)]
pub struct ScopedJoinHandle<'scope, T> {
    number: usize,
    result: Arc<Mutex<Option<Result<T>>>>,
    panicked: Arc<Mutex<bool>>,
    _of: PhantomData<&'scope ()>,
}

/// Calls `body`, and waits for the threads that it started.
pub fn scope<'env, T>(body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T) -> T {
    let scope = Scope {
        threads: RefCell::default(),
        panicked: Arc::default(),
        _of: PhantomData,
    };
    let result = catch_unwind(AssertUnwindSafe(|| body(&scope)));
    loop {
        let next = scope.threads.borrow_mut().pop();
        let Some(number) = next else { break };
        life::join(number);
    }
    match result {
        Err(payload) => resume_unwind(payload),
        Ok(_) if *scope.panicked.lock().expect("nothing panics") => {
            panic!("a scoped thread panicked")
        }
        Ok(value) => value,
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a thread.
    pub fn spawn<T: Send + 'scope>(
        &'scope self,
        body: impl FnOnce() -> T + Send + 'scope,
    ) -> ScopedJoinHandle<'scope, T> {
        let result = Arc::new(Mutex::new(None));
        let (to, panicked) = (result.clone(), self.panicked.clone());
        let told = panicked.clone();
        let body: Box<dyn FnOnce() + 'scope> = Box::new(move || {
            let ended = catch_unwind(AssertUnwindSafe(body));
            *panicked.lock().expect("nothing panics") |= ended.is_err();
            *to.lock().expect("nothing panics") = Some(ended);
        });
        // SAFETY: `scope` returns after the thread has ended, whatever its body does.
        let body: Box<dyn FnOnce() + 'static> = unsafe { std::mem::transmute(body) };
        let number = life::spawn("test", body);
        self.threads.borrow_mut().push(number);
        ScopedJoinHandle {
            number,
            result,
            panicked: told,
            _of: PhantomData,
        }
    }
}

impl<T> ScopedJoinHandle<'_, T> {
    /// Waits for its end.
    ///
    /// # Errors
    ///
    /// What it panicked with.
    pub fn join(self) -> Result<T> {
        life::join(self.number);
        // Who joins it is told, and the scope's owner no more.
        *self.panicked.lock().expect("nothing panics") = false;
        let value = self.result.lock().expect("nothing panics").take();
        value.expect("it has ended")
    }

    /// Returns `true` if it has ended.
    pub fn is_finished(&self) -> bool {
        crate::sim::work_ns(0);
        self.result.lock().expect("nothing panics").is_some()
    }
}
