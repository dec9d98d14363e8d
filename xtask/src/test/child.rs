//! Runs one command. Reads its output line by line, and ends it cleanly at a time limit or an
//! interrupt.

use std::io::{BufRead, BufReader, PipeReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::report::Failure;

/// The interval between checks of the clock and the signals.
const TICK: Duration = Duration::from_millis(100);
/// The time within which a child must exit after SIGTERM. After this time it is killed.
const GRACE: Duration = Duration::from_secs(2);

/// A flag that is set when a signal asks this program to exit.
#[derive(Debug)]
pub struct Signals(Arc<AtomicBool>);

impl Signals {
    pub fn watch() -> Result<Self, Failure> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, flag.clone())
                .map_err(Failure::because(format!("cannot handle signal {signal}")))?;
        }
        Ok(Self(flag))
    }

    pub fn caught(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug, PartialEq)]
pub enum End {
    Good,
    Bad(ExitStatus),
    OverLimit,
    Interrupted,
}

/// Runs `command` until it ends, `deadline` passes, or a signal arrives.
///
/// Calls `on` with each line of stdout and stderr, in the order in which they were written. If no
/// line arrives for 100 ms, calls `on` with `None`. When this returns, all processes in the
/// command's process group have ended.
pub fn run(
    mut command: Command,
    deadline: Instant,
    signals: &Signals,
    mut on: impl FnMut(Option<String>),
) -> Result<End, Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let cannot = Failure::because(format!("cannot run {program}"));
    let (reader, writer) = std::io::pipe().map_err(&cannot)?;
    // Both use the same pipe, so that the name of a test program precedes its results.
    command.stdout(writer.try_clone().map_err(&cannot)?).stderr(writer);
    command.env("CARGO_TERM_COLOR", "never").process_group(0);
    // Most packages are built once, so incremental compilation would only double the disk usage.
    if std::env::var_os("CARGO_INCREMENTAL").is_none() {
        command.env("CARGO_INCREMENTAL", "0");
    }
    let mut child = command.spawn().map_err(&cannot)?;
    // The command holds the write ends, which would keep the pipe open forever.
    drop(command);
    let (sender, lines) = channel();
    std::thread::spawn(move || read_lines(reader, &sender));

    let stopped = loop {
        match lines.recv_timeout(TICK) {
            Ok(line) => on(Some(line)),
            Err(RecvTimeoutError::Timeout) => on(None),
            Err(RecvTimeoutError::Disconnected) => break None,
        }
        if signals.caught() {
            break Some(End::Interrupted);
        }
        if Instant::now() >= deadline {
            break Some(End::OverLimit);
        }
    };
    if stopped.is_some() {
        stop(&mut child, &lines, &mut on);
    }
    let status = child.wait().map_err(cannot)?;
    Ok(stopped.unwrap_or(if status.success() { End::Good } else { End::Bad(status) }))
}

fn read_lines(reader: PipeReader, sender: &Sender<String>) {
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
        let text = String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']).to_string();
        if sender.send(text).is_err() {
            return;
        }
        line.clear();
    }
}

/// Ends the child's process group: sends SIGTERM first, and SIGKILL later.
fn stop(child: &mut Child, lines: &Receiver<String>, on: &mut impl FnMut(Option<String>)) {
    let group = Pid::from_child(child);
    // Both calls may fail because the group has already exited.
    let _ = kill_process_group(group, Signal::TERM);
    let asked = Instant::now();
    while asked.elapsed() < GRACE {
        match lines.recv_timeout(TICK) {
            Ok(line) => on(Some(line)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let _ = kill_process_group(group, Signal::KILL);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration, signals: &Signals) -> (End, Vec<String>) {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let mut lines = Vec::new();
        let end = run(command, Instant::now() + limit, signals, |line| lines.extend(line)).unwrap();
        (end, lines)
    }

    const LONG: Duration = Duration::from_secs(60);

    fn quiet() -> Signals {
        Signals(Arc::new(AtomicBool::new(false)))
    }

    #[test]
    fn both_streams_come_in_the_order_written() {
        let (end, lines) = shell("echo a; echo b >&2; echo c; exit 3", LONG, &quiet());
        assert_eq!(lines, ["a", "b", "c"]);
        assert!(matches!(end, End::Bad(status) if status.code() == Some(3)));
    }

    #[test]
    fn command_over_its_limit_is_stopped_with_its_children() {
        // The shell's child holds the pipe open, so the reader ends only when this child is killed.
        let (end, lines) = shell("echo a; sleep 600 & wait", Duration::ZERO, &quiet());
        assert_eq!(end, End::OverLimit);
        assert!(lines.len() <= 1);
    }

    #[test]
    fn an_interrupt_stops_the_command() {
        let caught = Signals(Arc::new(AtomicBool::new(true)));
        assert_eq!(shell("sleep 600", LONG, &caught).0, End::Interrupted);
    }

    #[test]
    fn a_missing_program_is_a_failure_in_one_line() {
        let failure =
            run(Command::new("/no/such/program"), Instant::now(), &quiet(), |_| {}).unwrap_err();
        assert!(failure.to_string().contains("/no/such/program"));
    }
}
