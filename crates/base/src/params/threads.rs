//! The properties of a registry's threads.

use std::{fmt, mem, ptr};

use sync::atomic::Ordering;
use sync::unmodelled::{Arc, AtomicUsize};

use super::{ParamError, Params, keys};
use crate::panics::{Foreign, contain, guarded, of_c};

/// The maximum length of a name prefix, so that a full name fits in the kernel's 15 bytes.
const MAX_NAME: usize = 10;

/// A function of the program that a registry's threads call.
///
/// # Examples
///
/// ```
/// use afterwork::{params::{Params, ThreadHook}, workqueue::{Registry, Topology, Workqueue}};
/// use std::sync::atomic::{AtomicU32, Ordering};
///
/// static NR_ATTACHED: AtomicU32 = AtomicU32::new(0);
/// let params = Params {
///     thread_name: "db".into(),
///     on_thread_start: Some(ThreadHook::new(|| _ = NR_ATTACHED.fetch_add(1, Ordering::Relaxed))),
///     ..Params::default()
/// };
/// let registry = Registry::new(Topology::detect()?, params)?;
/// let queue = Workqueue::builder("example").help(false).build_in(&registry)?;
/// let name = queue.spawn(|| std::thread::current().name().map(str::to_owned)).join()?;
/// assert!(name.is_some_and(|name| name.starts_with("db/")));
/// assert!(NR_ATTACHED.load(Ordering::Relaxed) > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ThreadHook(Arc<Foreign<Box<Hook>>>);

type Hook = dyn Fn() + Send + Sync;

impl ThreadHook {
    /// Creates a hook that calls `func`.
    pub fn new(func: impl Fn() + Send + Sync + 'static) -> Self {
        // FOREIGN(thread-hook-drop): `Foreign` contains the drop.
        Self(Arc::new(Foreign::new(Box::new(func))))
    }

    fn call(&self) {
        // FOREIGN(thread-hook): the program's code, on a registry's thread. A panic is contained.
        contain(|| (self.0)());
    }
}

/// A hook is equal only to its clones.
impl PartialEq for ThreadHook {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ThreadHook {}

impl fmt::Debug for ThreadHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ThreadHook(..)")
    }
}

/// A C function that threads call when they start or when they have finished their work.
pub type HookOfC = unsafe extern "C-unwind" fn();

/// The moments at which threads call a [`HookOfC`]: see [`set_hook_of_c`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// Before the thread runs its first item.
    Start,
    /// After the thread has run its last item.
    Stop,
}

/// The address of the function for each [`Moment`], or 0 if there is none.
static HOOKS_OF_C: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Makes threads of all registries call `hook` from now on, nested inside the hooks of their
/// registry. Returns the previous hook.
///
/// # Blocking
///
/// Never blocks.
///
/// # Safety
///
/// 1. `hook` may be called on any thread, until the process ends.
pub unsafe fn set_hook_of_c(moment: Moment, hook: Option<HookOfC>) -> Option<HookOfC> {
    let address = hook.map_or(0, |hook| hook as *const () as usize);
    // ORDER(hook-of-c): publish and consume, other end in `call_hook_of_c`; also both ends on this
    // line, because an exchange finds the hook of the previous exchange.
    //   here:   the data that the hook needs;  address  Release
    //   thread: address  Acquire;  the hook
    // If our exchange comes first, the thread calls the new hook. If the load comes first, the
    // thread calls the previous hook.
    // Test: a_worker_calls_hooks_of_c_when_it_starts_and_stops
    hook_at(HOOKS_OF_C[moment as usize].swap(address, Ordering::AcqRel))
}

fn hook_at(address: usize) -> Option<HookOfC> {
    // SAFETY: 0 is `None`, and `set_hook_of_c` stores only the addresses of such functions.
    unsafe { mem::transmute::<*const (), Option<HookOfC>>(ptr::with_exposed_provenance(address)) }
}

fn call_hook_of_c(moment: Moment) {
    // ORDER(hook-of-c): other end in `set_hook_of_c`.
    // Test: a_worker_calls_hooks_of_c_when_it_starts_and_stops
    let Some(hook) = hook_at(HOOKS_OF_C[moment as usize].load(Ordering::Acquire)) else {
        return;
    };
    let what = match moment {
        Moment::Start => "function of afterwork_on_worker_start",
        Moment::Stop => "function of afterwork_on_worker_stop",
    };
    // FOREIGN(thread-hook): as above, a C function. Unwinding aborts the process.
    // SAFETY: (1) of `set_hook_of_c`.
    _ = guarded(|| of_c(what, hook as usize, || unsafe { hook() }));
}

/// The properties of a registry's threads.
#[derive(Clone, Debug)]
pub struct ThreadStyle {
    /// The stack size of each thread, in bytes.
    pub stack_size: usize,
    name: Box<str>,
    on_start: Option<ThreadHook>,
    on_stop: Option<ThreadHook>,
}

impl ThreadStyle {
    /// Returns the name of a thread with the role `what`.
    pub fn name(&self, what: &str) -> String {
        format!("{}/{what}", self.name)
    }

    /// Calls `body`, which does not unwind, between the hooks.
    pub fn within(&self, body: impl FnOnce()) {
        if let Some(hook) = &self.on_start {
            hook.call();
        }
        call_hook_of_c(Moment::Start);
        body();
        call_hook_of_c(Moment::Stop);
        if let Some(hook) = &self.on_stop {
            hook.call();
        }
    }
}

impl Default for ThreadStyle {
    fn default() -> Self {
        Params::default().thread_style()
    }
}

impl Params {
    /// Returns the properties of threads.
    #[doc(hidden)]
    pub fn thread_style(&self) -> ThreadStyle {
        ThreadStyle {
            stack_size: self.stack_size,
            name: self.thread_name.clone(),
            on_start: self.on_thread_start.clone(),
            on_stop: self.on_thread_stop.clone(),
        }
    }

    /// Returns a copy for pools, which call no hooks, and must not own the last handle to a hook.
    #[doc(hidden)]
    pub fn without_hooks(&self) -> Self {
        Self { on_thread_start: None, on_thread_stop: None, ..self.clone() }
    }

    /// Checks the tunables of threads.
    #[doc(hidden)]
    pub fn check_threads(&self) -> Result<(), ParamError> {
        // The table of keys defines the valid range.
        let stack_size = self.stack_size.to_string();
        keys::find("workqueue.stack_size")?.set(&mut self.clone(), &stack_size)?;
        let fits = (1..=MAX_NAME).contains(&self.thread_name.len());
        if !fits || self.thread_name.contains('\0') {
            let expects = format!("a name of 1 to {MAX_NAME} bytes, without a NUL");
            let (key, value) = ("thread_name", self.thread_name.to_string());
            return Err(ParamError::BadValue { key, value, expects });
        }
        Ok(())
    }
}
