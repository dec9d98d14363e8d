//! Users' code at its worst, by the dice: `--hostile`.
//!
//! Closures, destructors, wakers and handlers do here what safe code may do: they panic, also in destructors and with
//! payloads whose drop panics, sleep, change their CPU, drop the last handle of what others made, and fork. Beside that the
//! system refuses what it may refuse (`sync::fault`). Each of these is an *act* with a name, which `--without` takes away:
//! so one finds out which of them a fault needs.
//!
//! Handles travel by way of the [`loot`](hide): whoever makes something hides its last handle there, and anybody drops it,
//! anywhere. Two kinds are kept apart. To drop a *queue* is to wait for its items, so it is done where a wait is, and no item
//! of such a queue waits or drops one; all else goes away without waiting.
//!
//! What cannot come to an end, a guard that is leaked for good, is done in a child of `fork`, which then ends.

use std::{
    any::Any,
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::Duration,
};

use afterwork::observe;

use super::{Dice, FAULT, Planned, fault, options, wander};

/// What can be left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// Code panics.
    Panic,
    /// What is dropped panics, payloads of panics too.
    Bomb,
    /// Code sleeps, for less than a millisecond.
    Sleep,
    /// Code queues on others' queues and calls back.
    Queue,
    /// Code waits for others' work.
    Wait,
    /// Code drops the last handle of what is another's.
    Drop,
    /// Guards and handles are leaked.
    Leak,
    /// The process forks, and the child uses what it inherited.
    Fork,
    /// Threads change their CPU.
    Affinity,
    /// Bottom-half items do what others do.
    Bh,
    /// So do timers' items, and what they captured.
    Timer,
    /// So do handlers of panics and reports, sources of the machine, executors.
    Handler,
    /// So do wakers.
    Waker,
    /// So do callbacks of grace periods.
    Callback,
    /// So do destructors of threads that end.
    Tls,
    /// The system refuses threads.
    Thread,
    /// It refuses `membarrier`.
    Membarrier,
    /// It refuses eventfds.
    Eventfd,
    /// It refuses mappings.
    Mmap,
    /// Sleeps on a word end at once.
    Futex,
}

const ACTS: [(&str, Act); 20] = [
    ("panic", Act::Panic),
    ("bomb", Act::Bomb),
    ("sleep", Act::Sleep),
    ("queue", Act::Queue),
    ("wait", Act::Wait),
    ("drop", Act::Drop),
    ("leak", Act::Leak),
    ("fork", Act::Fork),
    ("affinity", Act::Affinity),
    ("bh", Act::Bh),
    ("timer", Act::Timer),
    ("handler", Act::Handler),
    ("waker", Act::Waker),
    ("callback", Act::Callback),
    ("tls", Act::Tls),
    ("thread", Act::Thread),
    ("membarrier", Act::Membarrier),
    ("eventfd", Act::Eventfd),
    ("mmap", Act::Mmap),
    ("futex", Act::Futex),
];

/// How much is hidden at most: enough that most of it outlives its maker's interest.
const MAX_LOOT: usize = 32;
/// After how many naps of its parent a child hangs: five minutes, far beyond what one takes beside many threads that want its CPU.
/// Not by a clock: see `NAP` of support.rs.
const LIMIT_OF_CHILD: u32 = 150_000;
const NAP_OF_PARENT: Duration = Duration::from_millis(2);

/// Which acts are on, a bit each.
static ON: AtomicU32 = AtomicU32::new(0);
static OFF: AtomicU32 = AtomicU32::new(0);

thread_local!(static EXPECTS_PANICS: Cell<bool> = const { Cell::new(false) });

/// Whatever may be dropped by anybody.
type Loot = Mutex<Vec<Box<dyn Any + Send>>>;

static QUEUES: Loot = Mutex::new(Vec::new());
static REST: Loot = Mutex::new(Vec::new());

/// Returns the names of all acts.
pub fn names() -> Vec<&'static str> {
    ACTS.iter().map(|(name, _)| *name).collect()
}

/// Allows every act, where the build can refuse what the system grants.
pub fn allow() -> Result<(), String> {
    if !cfg!(torture) {
        return Err(
            "--hostile: only a build with --cfg torture can be hostile, see cargo xtask torture"
                .into(),
        );
    }
    ON.store(u32::MAX, Ordering::Relaxed);
    Ok(())
}

/// Forbids the acts of a list of names.
pub fn forbid(list: &str) -> Result<(), String> {
    for name in list.split(',') {
        let known = options::find(name, &names()).map_err(|e| format!("--without: {e}"))?;
        let (_, act) = ACTS
            .iter()
            .find(|(act, _)| *act == known)
            .expect("one of the names");
        OFF.fetch_or(1 << *act as u32, Ordering::Relaxed);
    }
    Ok(())
}

/// Has the system refuse things from now on, if that is asked for; says what was asked for.
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
        // The first answer is for the whole process.
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

/// Returns `true` if anything hostile is done at all.
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed) != 0
}

/// Returns `true` if `act` is allowed.
pub fn may(act: Act) -> bool {
    let bit = 1 << act as u32;
    ON.load(Ordering::Relaxed) & !OFF.load(Ordering::Relaxed) & bit != 0
}

/// Returns `true` if to do `act` now, once in `one_in`. Throws no dice where it is not allowed.
pub fn dares(act: Act, dice: &mut Dice, one_in: usize) -> bool {
    may(act) && dice.below(one_in) == 0
}

/// Returns `true` if a panic of this thread is an answer that was asked for.
pub(super) fn expects_panics() -> bool {
    EXPECTS_PANICS.try_with(Cell::get).unwrap_or(false)
}

/// Calls `body`, which the library may answer by a panic that its documentation promises.
pub fn refusable<R>(body: impl FnOnce() -> R) -> Option<R> {
    let before = EXPECTS_PANICS.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(body));
    EXPECTS_PANICS.set(before);
    outcome.map_err(discard).ok()
}

/// Calls `body`, which panics as planned or not at all; returns `true` if it did.
pub fn contained(body: impl FnOnce()) -> bool {
    let outcome = catch_unwind(AssertUnwindSafe(body));
    outcome.map_err(discard).is_err()
}

/// Drops what a panic carried, and what that panics with.
pub fn discard(payload: Box<dyn Any + Send>) {
    let mut payload = Some(payload);
    while let Some(last) = payload.take() {
        payload = catch_unwind(AssertUnwindSafe(|| drop(last))).err();
    }
}

/// Does something that waits for nobody, or nothing, or panics.
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

/// Does something that may also drop the last handle of a queue, and so wait for its items; panics by none of it.
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

/// Shows this process to others or hides it, beside whoever does the same.
fn show(dice: &mut Dice) {
    if dice.below(2) == 0 {
        // The system may refuse the mapping, and the thread.
        drop(observe::publish());
    } else {
        observe::unpublish();
    }
}

/// Shows this process, where no other thread does, and hides it again: nothing is left behind.
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

/// Hides a queue, or what holds one, for anybody to drop who may wait.
pub fn hide_queue(dice: &mut Dice, queue: impl Any + Send) {
    put(&QUEUES, dice, Box::new(queue));
}

/// Hides what goes away without waiting, for anybody to drop.
pub fn hide(dice: &mut Dice, thing: impl Any + Send) {
    put(&REST, dice, Box::new(thing));
}

fn put(loot: &Loot, dice: &mut Dice, thing: Box<dyn Any + Send>) {
    let mut loot = loot.lock().unwrap();
    loot.push(thing);
    let too_much = (loot.len() > MAX_LOOT).then(|| {
        let at = dice.below(MAX_LOOT);
        loot.swap_remove(at)
    });
    drop(loot);
    contained(|| drop(too_much));
}

/// Drops something that was hidden, here and now.
fn rob(loot: &Loot, dice: &mut Dice) {
    // With a lock free before anything is dropped; a child of `fork` may find it taken for ever.
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

/// Drops all that was hidden.
pub fn clean_up() {
    for loot in [&QUEUES, &REST] {
        loop {
            let Some(thing) = loot.lock().unwrap().pop() else {
                break;
            };
            contained(|| drop(thing));
        }
    }
}

/// Misbehaves when it is dropped, and shows a use after it by changing its mark.
pub struct Grenade {
    dice: Dice,
    mark: Box<AtomicU32>,
}

const INTACT: u32 = 0x5afe_5afe;

impl Grenade {
    /// Makes one that is armed, if grenades are allowed.
    pub fn new(dice: &mut Dice) -> Self {
        Self {
            dice: Dice::new(dice.bits()),
            mark: Box::new(AtomicU32::new(INTACT)),
        }
    }

    /// Fails if it has been dropped.
    pub fn check(&self) {
        let mark = self.mark.load(Ordering::Relaxed);
        assert_eq!(mark, INTACT, "used after it was dropped");
    }
}

impl Drop for Grenade {
    fn drop(&mut self) {
        self.check();
        self.mark.store(0, Ordering::Relaxed);
        if may(Act::Bomb) {
            misbehave(&mut self.dice);
        }
    }
}

/// A waker that misbehaves when it is called and when it is dropped; what counts is counted first.
pub struct Rattle {
    dice: Mutex<Dice>,
    /// How often it was called.
    pub nr_calls: AtomicUsize,
    sleeper: thread::Thread,
    _grenade: Grenade,
}

impl Rattle {
    /// Makes one for this thread.
    pub fn new(dice: &mut Dice) -> Arc<Self> {
        Arc::new(Self {
            dice: Mutex::new(Dice::new(dice.bits())),
            nr_calls: AtomicUsize::new(0),
            sleeper: thread::current(),
            _grenade: Grenade::new(dice),
        })
    }
}

impl Wake for Rattle {
    fn wake(self: Arc<Self>) {
        self.nr_calls.fetch_add(1, Ordering::Relaxed);
        self.sleeper.unpark();
        let mut dice = Dice::new(self.dice.lock().unwrap().bits());
        misbehave(&mut dice);
    }
}

/// Waits for `future` as a thread does, with a waker that misbehaves.
pub fn await_rudely<F: Future + Unpin>(mut future: F, dice: &mut Dice) -> F::Output {
    loop {
        let waker = if may(Act::Waker) {
            Waker::from(Rattle::new(dice))
        } else {
            Waker::from(Arc::new(Unpark(thread::current())))
        };
        let polled = std::pin::Pin::new(&mut future).poll(&mut Context::from_waker(&waker));
        contained(|| drop(waker));
        match polled {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Starts a thread as the library does, in a child of `fork` too: the standard library's start takes a lock that a thread of the parent,
/// just starting or ending, may have held at the fork. Waits until the system grants it.
pub fn start_anyhow(body: impl FnOnce() + Send + 'static) -> ::sync::thread::JoinHandle {
    let body = Arc::new(Mutex::new(Some(body)));
    loop {
        let theirs = body.clone();
        let begin = move || {
            let body = theirs.lock().unwrap().take();
            body.expect("one thread is started")();
        };
        match ::sync::thread::spawn("torture", begin) {
            Ok(thread) => return thread,
            Err(_) => thread::yield_now(),
        }
    }
}

/// Forks; the child calls `body` and ends, and whatever is wrong there is wrong here.
///
/// What the child leaves it leaves for ever, guards too: it ends without destructors.
pub fn in_child(what: &str, body: impl FnOnce()) {
    // SAFETY: the child does what a user's does who read that the library survives a fork; the C library's memory does.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // Nobody else would end one that hangs.
        // SAFETY: takes numbers; the signal that is sent then ends the process.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        // Before the body's threads may do the same.
        contained(show_alone);
        contained(body);
        // At its end a child is not shown: it ends without what would remove its page.
        observe::unpublish();
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(0) }
    }
    if pid < 0 {
        // No memory for another process: nothing of ours.
        return;
    }
    let mut status = 0;
    for nap in 0.. {
        // SAFETY: `status` lives over the call.
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
        _ => fault(&format!(
            "a child of fork was killed by signal {signal}: {what}"
        )),
    }
}
