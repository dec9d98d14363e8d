//! The full screen: acquires the terminal, and restores it no matter how the command ends or stops.
//!
//! The drawing thread may be inside a write that never returns, or inside a crossterm read that
//! spins because the terminal has vanished. A separate thread, the *keeper*, therefore waits for
//! signals and for the end of the terminal:
//!
//! | event | action of the keeper |
//! |---|---|
//! | SIGINT, SIGTERM, SIGHUP, SIGQUIT | restores the terminal, ends the process with that signal |
//! | the terminal has vanished | does the same, but with SIGHUP |
//! | SIGTSTP | restores the terminal and stops the process, unless no shell could continue it |
//! | SIGCONT | acquires the terminal again, and requests a complete redraw |
//!
//! One lock guards the terminal. The drawing thread holds it while it draws, and the keeper holds
//! it while it acquires or restores the terminal. If a signal ends the process, the keeper waits
//! for the lock for at most [`LOCK_WAIT`].

use std::io::{self, IsTerminal, Read};
use std::mem::{self, ManuallyDrop};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};
use std::{fs, thread};

use nix::unistd::{Pid, getpgid, getppid, getsid};
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::prelude::CrosstermBackend;
use ratatui::{DefaultTerminal, Frame, Terminal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::SigId;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH};
use signal_hook::low_level::{self, emulate_default_handler, raise};

const SIGNALS: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGCONT];

/// The time for which the keeper waits for the drawing thread before it ends the process. This is
/// an estimate: if a terminal accepts nothing for a second, its user has stopped it, or it has
/// vanished.
const LOCK_WAIT: Duration = Duration::from_secs(1);
const LOCK_RETRY: Duration = Duration::from_millis(10);

/// The interval at which the keeper checks that the terminal exists. Some terminals do not wake a
/// poll when they vanish. The value is an estimate: two checks a second have no measurable cost.
const CHECK: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };

/// The current contents of the terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shown {
    Screen,
    /// The full screen, which must be redrawn completely.
    Fresh,
    /// The user's shell. The process is about to stop, or is stopped.
    Away,
    /// The user's shell. The full screen has not begun, or is over.
    Over,
}

type State = Arc<Mutex<Shown>>;

/// The terminal while it shows the full screen.
pub struct Screen {
    /// This is never dropped. If the terminal has vanished, the drop would panic, because it writes
    /// an error to stderr.
    terminal: ManuallyDrop<DefaultTerminal>,
    state: State,
    ids: Vec<SigId>,
    /// Closing this, when the screen ends, ends the keeper.
    _keeper: UnixStream,
}

impl Screen {
    pub fn take() -> io::Result<Self> {
        // The signals are set up first. A signal that arrives before the terminal is acquired only
        // ends or stops the process.
        let state = State::new(Mutex::new(Shown::Over));
        let terminals = terminals()?;
        let (end, keeper) = UnixStream::pair()?;
        let (mut ids, mut pipes) = (Vec::new(), Vec::new());
        for signal in SIGNALS {
            let (reads, writes) = UnixStream::pair()?;
            reads.set_nonblocking(true)?;
            ids.push(low_level::pipe::register(signal, writes)?);
            pipes.push((signal, reads));
        }
        let theirs = state.clone();
        thread::Builder::new()
            .name("keeper".to_owned())
            .spawn(move || keep(&theirs, &pipes, &terminals, &end))?;
        let mut shown = lock(&state);
        let terminal = ratatui::try_init().inspect_err(|_| restore())?;
        *shown = Shown::Screen;
        drop(shown);
        Ok(Self { terminal: ManuallyDrop::new(terminal), state, ids, _keeper: keeper })
    }

    pub fn draw(&mut self, render: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        let mut shown = lock(&self.state);
        match *shown {
            Shown::Away | Shown::Over => return Ok(()),
            Shown::Fresh => {
                // Nothing has been drawn yet. `clear` would ask the terminal for the position of
                // its cursor and wait for the answer.
                let fresh = Terminal::new(CrosstermBackend::new(io::stdout()))?;
                mem::forget(mem::replace(&mut *self.terminal, fresh));
            }
            Shown::Screen => {}
        }
        *shown = Shown::Screen;
        self.terminal.draw(render).map(|_| ())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let mut shown = lock(&self.state);
        if *shown != Shown::Away {
            restore();
        }
        *shown = Shown::Over;
        drop(shown);
        for id in self.ids.drain(..) {
            low_level::unregister(id);
        }
    }
}

fn lock(state: &State) -> MutexGuard<'_, Shown> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Acquires the lock if the other thread releases it in time.
fn lock_in_time(state: &State) -> Option<MutexGuard<'_, Shown>> {
    let end = Instant::now() + LOCK_WAIT;
    loop {
        match state.try_lock() {
            Ok(shown) => return Some(shown),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if Instant::now() > end => return None,
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_RETRY),
        }
    }
}

/// Returns the descriptors on which the end of the terminal is visible.
fn terminals() -> io::Result<Vec<OwnedFd>> {
    let mut terminals = vec![io::stdout().as_fd().try_clone_to_owned()?];
    if io::stdin().is_terminal() {
        terminals.push(io::stdin().as_fd().try_clone_to_owned()?);
    }
    Ok(terminals)
}

fn keep(state: &State, pipes: &[(i32, UnixStream)], terminals: &[OwnedFd], end: &UnixStream) {
    loop {
        let mut fds = vec![PollFd::new(end, PollFlags::IN)];
        fds.extend(pipes.iter().map(|it| PollFd::new(&it.1, PollFlags::IN)));
        // For these, poll always reports a hang-up.
        fds.extend(terminals.iter().map(|it| PollFd::new(it, PollFlags::empty())));
        // If a signal interrupted the poll, the next iteration finds the signal.
        poll(&mut fds, Some(&CHECK)).ok();
        let came = |at: usize| !fds[at].revents().is_empty();
        if came(0) {
            return;
        }
        for (at, (signal, pipe)) in pipes.iter().enumerate() {
            if came(1 + at) && matches!((&*pipe).read(&mut [0; 64]), Ok(1..)) {
                match *signal {
                    SIGTSTP => stop(state),
                    SIGCONT => go_on(state),
                    signal => end_by(state, signal),
                }
            }
        }
        if (1 + pipes.len()..fds.len()).any(came) {
            end_by(state, SIGHUP);
        }
    }
}

/// Restores the terminal. A vanished terminal is not an error.
fn restore() {
    disable_raw_mode().ok();
    execute!(io::stdout(), LeaveAlternateScreen, Show).ok();
}

fn end_by(state: &State, signal: i32) {
    match lock_in_time(state).as_deref() {
        Some(Shown::Away | Shown::Over) => {}
        Some(Shown::Screen | Shown::Fresh) => restore(),
        // The other thread is inside a write that does not return, so this thread must not write.
        None => _ = disable_raw_mode(),
    }
    emulate_default_handler(signal).ok();
}

/// Returns `true` if a shell watches the process group and can continue it after a stop.
///
/// Otherwise the group is orphaned, and the kernel ignores SIGTSTP by default. This happens if a
/// terminal runs only this command, as with `xterm -e` and `ssh -t`. It is sufficient to check the
/// first ancestor that belongs to another group, because the other members of the group are other
/// children of the ancestors.
///
/// In a namespace of process IDs, the session and the group may have been created outside the
/// namespace. Their ID is then 0, which `rustix` cannot represent.
fn may_stop() -> bool {
    let (Ok(session), Ok(group)) = (getsid(None), getpgid(None)) else { return false };
    let mut ancestor = Some(getppid());
    while let Some(pid) = ancestor {
        if getsid(Some(pid)) != Ok(session) {
            return false;
        }
        if getpgid(Some(pid)) != Ok(group) {
            return true;
        }
        ancestor = parent(pid);
    }
    false
}

fn parent(pid: Pid) -> Option<Pid> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok().map(Pid::from_raw)
}

/// Restores the terminal and stops the process, if a shell can continue it.
fn stop(state: &State) {
    if !may_stop() {
        return;
    }
    if let Some(mut shown) = lock_in_time(state)
        && matches!(*shown, Shown::Screen | Shown::Fresh)
    {
        restore();
        *shown = Shown::Away;
    }
    emulate_default_handler(SIGTSTP).ok();
}

/// Acquires the terminal again after a stop, even if the stop was not caused by SIGTSTP.
fn go_on(state: &State) {
    let mut shown = lock(state);
    if *shown == Shown::Over {
        return;
    }
    // The shell may have changed the modes in the meantime.
    disable_raw_mode().ok();
    enable_raw_mode().ok();
    execute!(io::stdout(), EnterAlternateScreen, Clear(ClearType::All)).ok();
    *shown = Shown::Fresh;
    drop(shown);
    // This wakes the thread that waits for a key, in the same way as a new size of the terminal.
    raise(SIGWINCH).ok();
}
