//! Random hostile user code, which `--hostile` enables.
//!
//! Closures, destructors, wakers and handlers do anything that safe code may do, and system calls
//! fail at random (`sync::fault`). Each of these is an *act* with a name, which `--without`
//! disables. An act that cannot be undone, such as a leaked guard, runs in a forked child.
//!
//! A thread hides its last handle to an object in the [loot](hide), and any other thread drops it.
//! Dropping a *queue* waits for its items, so it happens only where waiting is allowed. Items of
//! such a queue neither wait nor drop a queue. All other drops do not wait.

use afterwork::observe;
use rustix::process::{Signal, set_parent_process_death_signal};

use super::{Dice, FAULT, Planned, fault, options, wander};
use crate::support::*;

/// Defines the acts with their names.
macro_rules! acts {
    ($($(#[$about:meta])* $act:ident = $name:literal,)*) => {
        /// An act that can be disabled.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Act {
            $($(#[$about])* $act,)*
        }

        const ACTS: &[(&str, Act)] = &[$(($name, Act::$act)),*];
    };
}

// An act named for user code makes it misbehave. One named for a system call makes it fail.
acts! {
    Panic = "panic",
    /// Destructors panic, including those of panic payloads.
    Bomb = "bomb",
    /// Code sleeps for less than a millisecond.
    Sleep = "sleep",
    /// Code queues on other users' queues and queues callbacks.
    Queue = "queue",
    Wait = "wait",
    /// Code drops the last handle to another user's object.
    Drop = "drop",
    Leak = "leak",
    /// The process forks, and the child uses inherited objects.
    Fork = "fork",
    Affinity = "affinity",
    Bh = "bh",
    /// Timer items, and the values that they capture, misbehave.
    Timer = "timer",
    /// Handlers of panics and reports, machine sources and executors misbehave.
    Handler = "handler",
    Waker = "waker",
    Callback = "callback",
    Tls = "tls",
    Thread = "thread",
    Membarrier = "membarrier",
    Eventfd = "eventfd",
    Mmap = "mmap",
    /// Futex waits return at once.
    Futex = "futex",
}

/// Maximum number of hidden objects. Most outlive the code that created them.
const MAX_LOOT: usize = 32;
/// The number of naps after which a child counts as hung. They take five minutes, because the
/// machine may be busy.
const LIMIT_OF_CHILD: u32 = 150_000;
const NAP_OF_PARENT: Duration = Duration::from_millis(2);

static ON: AtomicU32 = AtomicU32::new(0);
static OFF: AtomicU32 = AtomicU32::new(0);

thread_local!(static EXPECTS_PANICS: Cell<bool> = const { Cell::new(false) });

/// Objects that any thread may drop.
type Loot = Mutex<Vec<Box<dyn Any + Send>>>;

static QUEUES: Loot = Mutex::new(Vec::new());
static REST: Loot = Mutex::new(Vec::new());

pub fn allow() -> Result<(), String> {
    if !cfg!(torture) {
        let build = "only a build with --cfg torture can be hostile, see cargo xtask torture";
        return Err(format!("--hostile: {build}"));
    }
    ON.store(u32::MAX, Ordering::Relaxed);
    Ok(())
}

pub fn forbid(list: &str) -> Result<(), String> {
    let names: Vec<_> = ACTS.iter().map(|(name, _)| *name).collect();
    for name in list.split(',') {
        let known = options::find(name, &names).map_err(|e| format!("--without: {e}"))?;
        let (_, act) = ACTS.iter().find(|(act, _)| *act == known).expect("one of the names");
        OFF.fetch_or(1 << *act as u32, Ordering::Relaxed);
    }
    Ok(())
}

/// Starts the injection of faults if it is enabled, and describes it.
pub(super) fn begin(seed: u64) -> String {
    if !is_on() {
        return String::new();
    }
    #[cfg(torture)]
    {
        use sync::fault::{self, Point};
        fault::seed(seed);
        let mut dice = Dice::new(seed);
        for (act, point, one_in) in [
            (Act::Thread, Point::Thread, 4),
            (Act::Eventfd, Point::Eventfd, 4),
            (Act::Mmap, Point::Map, 2),
            (Act::Futex, Point::Sleep, 8),
        ] {
            fault::set(point, if may(act) { one_in } else { 0 });
        }
        // The first result holds for the whole process.
        if may(Act::Membarrier) && dice.below(4) == 0 {
            fault::set(Point::Membarrier, 1);
            sync::asym::init();
        }
        fault::set(Point::Membarrier, if may(Act::Membarrier) { 2 } else { 0 });
    }
    let _ = seed;
    let off = ACTS.iter().filter(|(_, act)| !may(*act));
    let off: Vec<_> = off.map(|(name, _)| *name).collect();
    match off.is_empty() {
        true => " --hostile".into(),
        false => format!(" --hostile --without {}", off.join(",")),
    }
}

pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed) != 0
}

pub fn may(act: Act) -> bool {
    ON.load(Ordering::Relaxed) & !OFF.load(Ordering::Relaxed) & (1 << act as u32) != 0
}

/// Returns `true` with probability 1 in `one_in` if `act` is allowed.
pub fn dares(act: Act, dice: &mut Dice, one_in: usize) -> bool {
    may(act) && dice.below(one_in) == 0
}

pub(super) fn expects_panics() -> bool {
    EXPECTS_PANICS.try_with(Cell::get).unwrap_or(false)
}

/// Calls `body`, which may panic as documented by the library.
pub fn refusable<R>(body: impl FnOnce() -> R) -> Option<R> {
    let before = EXPECTS_PANICS.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(body));
    EXPECTS_PANICS.set(before);
    outcome.map_err(discard).ok()
}

/// Calls `body`, which may panic as planned. Returns `true` if it did.
pub fn contained(body: impl FnOnce()) -> bool {
    let outcome = catch_unwind(AssertUnwindSafe(body));
    outcome.map_err(discard).is_err()
}

/// Drops a panic payload, and the payloads of panics in its drop.
pub fn discard(payload: Box<dyn Any + Send>) {
    let mut payload = Some(payload);
    while let Some(last) = payload.take() {
        payload = catch_unwind(AssertUnwindSafe(|| drop(last))).err();
    }
}

/// Performs a random act that does not wait, does nothing, or panics.
pub fn misbehave(dice: &mut Dice) {
    match dice.below(24) {
        0..3 if may(Act::Sleep) => {
            thread::sleep(Duration::from_micros(dice.below(300) as u64));
        }
        3..5 if may(Act::Affinity) => wander(dice),
        5..8 if may(Act::Drop) => rob(&REST, dice),
        8..11 if may(Act::Panic) && !thread::panicking() => {
            let fuse = if may(Act::Bomb) { dice.below(3) } else { 0 };
            Planned::panic_twice(fuse as u32);
        }
        11 => thread::yield_now(),
        _ => {}
    }
}

/// Performs a random act that may drop the last handle to a queue. Catches its panics.
pub fn misbehave_at_length(dice: &mut Dice) {
    if !is_on() {
        return;
    }
    contained(|| {
        if dares(Act::Drop, dice, 4) {
            rob(&QUEUES, dice);
        }
        if dares(Act::Mmap, dice, 16) {
            show(dice);
        }
        misbehave(dice);
    });
}

/// Publishes this process or hides it, while other threads may do the same.
fn show(dice: &mut Dice) {
    if dice.below(2) == 0 {
        // The mapping or the thread may fail.
        drop(observe::publish());
    } else {
        observe::unpublish();
    }
}

/// Publishes this process, which no other thread may do, and hides it again. No file remains.
fn show_alone() {
    if !may(Act::Mmap) {
        return;
    }
    match observe::publish() {
        Ok(path) => {
            assert!(path.exists(), "a page is shown that is not there");
            assert!(observe::unpublish(), "a page that is shown is not hidden");
            assert!(!path.exists(), "a page that is hidden is there");
        }
        Err(_) => assert!(!observe::unpublish(), "a page that was refused is shown"),
    }
}

/// Hides a queue, or an object that holds one. Any thread that may wait can drop it.
pub fn hide_queue(dice: &mut Dice, queue: impl Any + Send) {
    put(&QUEUES, dice, Box::new(queue));
}

/// Hides an object whose drop does not wait. Any thread can drop it.
pub fn hide(dice: &mut Dice, thing: impl Any + Send) {
    put(&REST, dice, Box::new(thing));
}

fn put(loot: &Loot, dice: &mut Dice, thing: Box<dyn Any + Send>) {
    let mut loot = loot.lock().unwrap();
    loot.push(thing);
    let too_much = (loot.len() > MAX_LOOT).then(|| loot.swap_remove(dice.below(MAX_LOOT)));
    drop(loot);
    contained(|| drop(too_much));
}

fn rob(loot: &Loot, dice: &mut Dice) {
    // Releases the lock before the drop. In a forked child the lock may be held forever.
    let Ok(mut loot) = loot.try_lock() else {
        return;
    };
    if loot.is_empty() {
        return;
    }
    let at = dice.below(loot.len());
    let thing = loot.swap_remove(at);
    drop(loot);
    drop(thing);
}

pub fn clean_up() {
    for loot in [&QUEUES, &REST] {
        let next = || loot.lock().unwrap().pop();
        while let Some(thing) = next() {
            contained(|| drop(thing));
        }
    }
}

/// An object that misbehaves in its drop. A changed mark reveals a use after the drop.
pub struct Grenade {
    dice: Dice,
    mark: Box<AtomicU32>,
}

const INTACT: u32 = 0x5afe_5afe;

impl Grenade {
    pub fn new(dice: &mut Dice) -> Self {
        Self { dice: Dice::new(dice.bits()), mark: Box::new(AtomicU32::new(INTACT)) }
    }

    pub fn check(&self) {
        let mark = self.mark.load(Ordering::Relaxed);
        assert_eq!(mark, INTACT, "used after its drop");
    }
}

sync::on_drop!(Grenade, this => {
    this.check();
    this.mark.store(0, Ordering::Relaxed);
    if may(Act::Bomb) {
        misbehave(&mut this.dice);
    }
});

/// Returns a function that misbehaves. A call after its drop is detected.
pub fn rude_item(dice: &mut Dice) -> impl FnMut() + Send + use<> {
    let (grenade, mut own) = (Grenade::new(dice), Dice::new(dice.bits()));
    move || {
        grenade.check();
        misbehave(&mut own);
    }
}

/// The same for a handler, which may be called on several threads at once.
pub fn rude_handler(dice: &mut Dice) -> impl Fn() + Send + Sync + use<> {
    let (grenade, seed) = (Grenade::new(dice), dice.bits());
    move || {
        grenade.check();
        misbehave(&mut Dice::new(seed));
    }
}

/// A waker that misbehaves in calls and in its drop.
struct Rattle {
    dice: Mutex<Dice>,
    sleeper: Thread,
    _grenade: Grenade,
}

impl Wake for Rattle {
    fn wake(self: Arc<Self>) {
        self.sleeper.unpark();
        let mut dice = Dice::new(self.dice.lock().unwrap().bits());
        misbehave(&mut dice);
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Returns a waker that unparks this thread.
pub fn unpark() -> Waker {
    Arc::new(Unpark(thread::current())).into()
}

/// Polls once, with a waker that misbehaves.
pub fn poll_rudely<F: Future + Unpin>(mut future: F, dice: &mut Dice) -> Poll<F::Output> {
    let waker = if may(Act::Waker) {
        let (dice, grenade) = (Mutex::new(Dice::new(dice.bits())), Grenade::new(dice));
        Arc::new(Rattle { dice, sleeper: thread::current(), _grenade: grenade }).into()
    } else {
        unpark()
    };
    let polled = Pin::new(&mut future).poll(&mut Context::from_waker(&waker));
    contained(|| drop(waker));
    polled
}

pub fn await_rudely<F: Future + Unpin>(mut future: F, dice: &mut Dice) -> F::Output {
    park_until_ready(|| poll_rudely(&mut future, dice))
}

/// Repeats `poll`, whose waker unparks this thread.
pub fn park_until_ready<T>(mut poll: impl FnMut() -> Poll<T>) -> T {
    loop {
        match poll() {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// Starts a thread without the lock of the standard library, which may have been held at a fork.
pub fn start_anyhow(body: impl FnOnce() + Send + 'static) -> ::sync::thread::JoinHandle {
    let body = Arc::new(Mutex::new(Some(body)));
    insist(|| {
        let theirs = body.clone();
        ::sync::thread::spawn("torture", move || {
            let body = theirs.lock().unwrap().take();
            body.expect("one thread is started")();
        })
    })
}

/// Forks. The child calls `body` and exits without destructors. Its faults are faults here.
pub fn in_child(what: &str, body: impl FnOnce()) {
    // SAFETY: this library and the C library's allocator support a fork.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // No other process would kill a child that hangs.
        _ = set_parent_process_death_signal(Some(Signal::KILL));
        // The threads of `body` may do the same later.
        contained(show_alone);
        contained(body);
        // The child exits without the code that would remove its page, so it hides itself first.
        observe::unpublish();
        // SAFETY: the call exits the process at once.
        unsafe { libc::_exit(0) }
    }
    if pid < 0 {
        // The system has no memory for another process, which is not a fault.
        return;
    }
    let mut status = 0;
    for nap in 0.. {
        // SAFETY: `status` outlives the call.
        if unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) } == pid {
            break;
        }
        if nap == LIMIT_OF_CHILD {
            fault(&format!("a child of fork hangs: {what}"));
        }
        thread::sleep(NAP_OF_PARENT);
    }
    if status == 0 {
        return;
    }
    let (signal, code) = (libc::WTERMSIG(status), libc::WEXITSTATUS(status));
    match signal {
        0 if code == i32::from(FAULT) => fault(&format!("that was in a child of fork: {what}")),
        0 => fault(&format!("a child of fork ended with {code}: {what}")),
        _ => fault(&format!("a child of fork was killed by signal {signal}: {what}")),
    }
}
