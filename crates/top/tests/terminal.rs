//! Tests `afterwork top` in a terminal: signals that end or stop it, and a terminal that vanishes.

mod support;

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::io::ioctl_fionbio;
use rustix::process::{Resource, Rlimit, ioctl_tiocsctty, setpgid, setrlimit, setsid};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use support::eventually;

/// The sequences that enter and leave the full screen.
const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";
const SHOW_CURSOR: &str = "\x1b[?25h";
const SHELL_MODES: LocalModes = LocalModes::ECHO.union(LocalModes::ICANON).union(LocalModes::ISIG);
/// The text of a list without processes.
const HEADER: &str = "AFTERWORK=observe";

/// The relation between the command and its terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tie {
    /// The command is started as from a shell. When the terminal ends, the command receives SIGHUP.
    Controlling,
    /// The command does not belong to the session of the terminal, and ignores SIGHUP.
    Loose,
    /// The command is a job of this process, which can continue it.
    Job,
    /// The command is the first process of a PID namespace. Its session was created outside the
    /// namespace.
    Namespace,
}

/// A command on a terminal of its own.
struct OnTerminal {
    child: Child,
    /// The other end of the terminal, or `None` once the terminal has vanished.
    master: Option<OwnedFd>,
    /// Keeps the terminal open after the command has ended.
    slave: Option<OwnedFd>,
    output: Arc<Mutex<String>>,
    vanishes: Arc<AtomicBool>,
    reader: Option<thread::JoinHandle<()>>,
    _place: tempfile::TempDir,
}

/// The words that run a command in a PID namespace.
const NAMESPACE: [&str; 6] =
    ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"];

fn has_namespaces() -> bool {
    let unshare = Command::new(NAMESPACE[0]).args(&NAMESPACE[1..]).arg("true").output();
    unshare.is_ok_and(|it| it.status.success())
}

impl OnTerminal {
    fn start(tie: Tie) -> Self {
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let no_tty = OpenptFlags::NOCTTY.bits() as i32;
        let slave = File::options().read(true).write(true).custom_flags(no_tty).open(name);
        let slave = OwnedFd::from(slave.unwrap());
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&slave, size).unwrap();
        let place = tempfile::tempdir().unwrap();
        let program = env!("CARGO_BIN_EXE_afterwork");
        let mut command = Command::new(if tie == Tie::Namespace { NAMESPACE[0] } else { program });
        if tie == Tie::Namespace {
            command.args(&NAMESPACE[1..]).arg(program);
        }
        command.args(["top", "--every", "100", "--directory"]);
        command.arg(place.path()).env("TERM", "xterm");
        let end = || slave.try_clone().unwrap();
        command.stdin(end()).stdout(end()).stderr(end());
        // SAFETY: the closure makes only system calls that are allowed in a child, and sets no
        // handler.
        unsafe {
            command.pre_exec(move || {
                match tie {
                    Tie::Controlling | Tie::Namespace => {
                        setsid()?;
                        ioctl_tiocsctty(std::io::stdin().as_fd())?;
                    }
                    Tie::Loose => {
                        setsid()?;
                        signal(Signal::SIGHUP, SigHandler::SigIgn)?;
                    }
                    Tie::Job => setpgid(None, None)?,
                }
                let none = Rlimit { current: Some(0), maximum: Some(0) };
                Ok(setrlimit(Resource::Core, none)?)
            });
        }
        let child = command.spawn().unwrap();
        let mut started = Self {
            child,
            master: Some(master),
            slave: Some(slave),
            output: Arc::default(),
            vanishes: Arc::default(),
            reader: None,
            _place: place,
        };
        started.read();
        started.shows(1);
        started
    }

    /// Reads the output of the command until the terminal vanishes.
    fn read(&mut self) {
        let master = self.master.as_ref().unwrap().try_clone().unwrap();
        ioctl_fionbio(&master, true).unwrap();
        let mut from = File::from(master);
        let (to, vanishes) = (self.output.clone(), self.vanishes.clone());
        let mut bytes = [0; 4096];
        self.reader = Some(thread::spawn(move || {
            while !vanishes.load(Ordering::Relaxed) {
                match from.read(&mut bytes) {
                    Ok(nr) => *to.lock().unwrap() += &String::from_utf8_lossy(&bytes[..nr]),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        thread::sleep(Duration::from_millis(5));
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        }));
    }

    /// Closes all of this process's descriptors for the terminal.
    fn vanish(&mut self) {
        self.vanishes.store(true, Ordering::Relaxed);
        self.reader.take().unwrap().join().unwrap();
        drop((self.master.take(), self.slave.take()));
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    /// Returns those modes that the full screen clears.
    fn modes(&self) -> LocalModes {
        tcgetattr(self.slave.as_ref().unwrap()).unwrap().local_modes & SHELL_MODES
    }

    /// Waits until the screen has been acquired `nr_times` times and shows the list.
    fn shows(&self, nr_times: usize) {
        eventually("the screen was not taken", || {
            let output = self.output.lock().unwrap();
            let (before, after) = output.rsplit_once(ENTER).unwrap_or_default();
            before.matches(ENTER).count() + 1 == nr_times && after.contains(HEADER)
        });
        assert_eq!(self.modes(), LocalModes::empty());
    }

    /// Waits until the screen has been left `nr_times` times. Asserts that the terminal is
    /// restored.
    fn assert_restored(&self, nr_times: usize) {
        eventually("the screen was not left", || {
            let output = self.output.lock().unwrap();
            let (before, after) = output.rsplit_once(LEAVE).unwrap_or_default();
            let is_left = before.matches(LEAVE).count() + 1 == nr_times;
            is_left && after.contains(SHOW_CURSOR) && !after.contains(HEADER)
        });
        assert_eq!(self.modes(), SHELL_MODES);
    }

    fn press(&self, key: &[u8]) {
        let master = self.master.as_ref().unwrap().try_clone().unwrap();
        File::from(master).write_all(key).unwrap();
    }

    fn ends(&mut self) -> ExitStatus {
        let mut status = None;
        eventually("the command keeps running", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    fn stops(&self) {
        eventually("the command does not stop", || {
            let flags = WaitPidFlag::WUNTRACED | WaitPidFlag::WNOHANG;
            let status = waitpid(self.pid(), Some(flags)).unwrap();
            assert!(!matches!(status, WaitStatus::Exited(..) | WaitStatus::Signaled(..)));
            matches!(status, WaitStatus::Stopped(..))
        });
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        self.vanishes.store(true, Ordering::Relaxed);
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
fn a_signal_that_ends_the_full_screen_restores_the_terminal() {
    use Signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    for tie in [Tie::Controlling, Tie::Loose] {
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
            let mut top = OnTerminal::start(tie);
            kill(top.pid(), signal).unwrap();
            let status = top.ends();
            assert_eq!(status.signal(), Some(signal as i32), "{status}");
            top.assert_restored(1);
        }
    }
}

#[test]
fn a_terminal_that_vanishes_ends_the_full_screen() {
    for tie in [Tie::Controlling, Tie::Loose] {
        let mut top = OnTerminal::start(tie);
        top.vanish();
        let status = top.ends();
        // The signal kills the command, or the command exits because of a failed write.
        let is_hang_up = status.signal() == Some(Signal::SIGHUP as i32);
        assert!(is_hang_up || status.code() == Some(2), "{status}");
    }
}

#[test]
fn a_stop_restores_the_terminal_and_a_continue_takes_it_again() {
    for by_key in [true, false] {
        let mut top = OnTerminal::start(Tie::Job);
        for nr_stops in 1..3 {
            if by_key {
                top.press(b"\x1a");
            } else {
                kill(top.pid(), Signal::SIGTSTP).unwrap();
            }
            top.stops();
            top.assert_restored(nr_stops);
            kill(top.pid(), Signal::SIGCONT).unwrap();
            top.shows(nr_stops + 1);
        }
        // SIGSTOP cannot be caught. After it, the command acquires the terminal again.
        kill(top.pid(), Signal::SIGSTOP).unwrap();
        top.stops();
        kill(top.pid(), Signal::SIGCONT).unwrap();
        top.shows(4);
        top.press(b"q");
        assert!(top.ends().success());
        top.assert_restored(3);
    }
}

#[test]
fn a_stop_that_no_shell_could_end_is_ignored() {
    for tie in [Tie::Controlling, Tie::Loose, Tie::Namespace] {
        if tie == Tie::Namespace && !has_namespaces() {
            println!("skipped {tie:?}: the namespace was refused");
            continue;
        }
        let mut top = OnTerminal::start(tie);
        top.press(b"\x1a");
        if tie != Tie::Namespace {
            kill(top.pid(), Signal::SIGTSTP).unwrap();
        }
        top.press(b"q");
        assert!(top.ends().success());
        top.assert_restored(1);
    }
}
