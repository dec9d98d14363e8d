//! The command: selects the processes, the interval and the output format.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{io, thread};

use afterwork::page::Kind;

use super::args::TopArgs;
use super::plain::plain;
use super::snapshot::{NoSnapshot, Snapshot, Watched};
use super::{json, processes, prometheus, text, tui};
use crate::exit::Stop;
use crate::interrupt::Interrupt;
use crate::talk;

/// The maximum delay until a request to stop takes effect during a pause.
const NAP: Duration = Duration::from_millis(50);

/// Runs the command.
pub fn run(args: &TopArgs) -> Result<(), Stop> {
    if args.fields {
        return print(&if args.json { format!("{}\n", json::fields()) } else { fields() });
    }
    if args.prune {
        return prune(&args.directory);
    }
    let Some(process) = &args.process else {
        if args.is_full_screen() {
            return tui::pick(&args.directory, args.pause());
        }
        return all(args);
    };
    let path = path_of(&args.directory, process)?;
    let cannot_show = |no_look: NoSnapshot| cannot_show(&path, &no_look);
    let mut watched = Watched::open(&path).map_err(cannot_show)?;
    let first = watched.snapshot().map_err(cannot_show)?;
    if args.prometheus {
        return print(&prometheus::text(&[&first]));
    }
    if args.is_full_screen() {
        return tui::run(&mut watched, first, args.pause()).map(|_| ());
    }
    watch(&mut watched, first, args)
}

fn path_of(directory: &Path, process: &str) -> Result<PathBuf, Stop> {
    if process.contains('/') {
        return Ok(PathBuf::from(process));
    }
    let hint = "is not a process: give its number, or the path of its page";
    let number = process.parse();
    let pid = number.map_err(|_| Stop::CouldNotRun(format!("{process:?} {hint}")))?;
    Ok(processes::page_of(directory, pid))
}

fn cannot_show(path: &Path, no_look: &NoSnapshot) -> Stop {
    let hint = match no_look {
        NoSnapshot::Refused(_) if !path.exists() => {
            "; `afterwork top` lists the processes that can be shown; start one with AFTERWORK=observe.publish=on"
        }
        _ => "",
    };
    let path = path.display().to_string();
    Stop::CouldNotRun(format!("cannot read {}: {}{hint}", plain(&path), no_look.reason()))
}

fn unreadable(directory: &Path) -> impl Fn(io::Error) -> Stop {
    Stop::because(format!("cannot read {}", directory.display()))
}

/// Reads the page repeatedly until the process ends or the user quits.
fn watch(watched: &mut Watched, first: Snapshot, args: &TopArgs) -> Result<(), Stop> {
    let color = talk::may_color(&io::stdout());
    let interrupt = Interrupt::install().map_err(Stop::because("cannot handle signals"))?;
    let (mut before, mut now) = (None, first);
    loop {
        let shown = match args.json {
            true => json::snapshot(&now, before.as_ref()).to_string(),
            false => text::snapshot(&now, before.as_ref(), color),
        };
        let end = if args.json || !args.once { "\n" } else { "" };
        print(&format!("{shown}{end}"))?;
        if args.once || !rest(args.pause(), &interrupt) {
            return Ok(());
        }
        before = Some(now);
        now = match watched.snapshot() {
            Ok(snapshot) => snapshot,
            Err(NoSnapshot::Stale(reason)) => {
                talk::say(reason);
                return Ok(());
            }
            Err(NoSnapshot::Refused(reason)) => return Err(Stop::CouldNotRun(reason)),
        };
    }
}

/// Waits for `pause` or for an interrupt. Returns `true` if the command must continue.
fn rest(pause: Duration, interrupt: &Interrupt) -> bool {
    let start = Instant::now();
    while !interrupt.requested() {
        let left = pause.saturating_sub(start.elapsed());
        if left.is_zero() {
            return true;
        }
        thread::sleep(left.min(NAP));
    }
    false
}

fn all(args: &TopArgs) -> Result<(), Stop> {
    let directory = &args.directory;
    let found = processes::find(directory).map_err(unreadable(directory))?;
    if args.prometheus {
        let snapshots: Vec<_> = found.iter().filter_map(|it| it.snapshot.as_ref().ok()).collect();
        return print(&prometheus::text(&snapshots));
    }
    if args.json {
        return print(&format!("{}\n", json::processes(&found)));
    }
    if found.is_empty() {
        talk::say("no process publishes a page: start one with AFTERWORK=observe.publish=on");
        return Ok(());
    }
    print(&text::processes(&found, talk::may_color(&io::stdout())))?;
    if found.iter().any(|it| matches!(it.snapshot, Err(NoSnapshot::Stale(_)))) {
        talk::say("exited processes left pages behind; remove them with: afterwork top --prune");
    }
    Ok(())
}

fn prune(directory: &Path) -> Result<(), Stop> {
    let gone = processes::prune(directory).map_err(unreadable(directory))?;
    let line = |path: &PathBuf| format!("removed {}\n", plain(&path.display().to_string()));
    print(&gone.iter().map(line).collect::<String>())?;
    if gone.is_empty() {
        talk::say("no exited process left a page behind");
    }
    Ok(())
}

fn fields() -> String {
    let mut text = String::new();
    for kind in Kind::ALL {
        text += &format!("{}\n", kind.name());
        for field in kind.fields() {
            let measure = json::measure(field.measure);
            text += &format!("  {:<16} {measure:<6} {}\n", field.name, field.about);
        }
    }
    text
}

fn print(text: &str) -> Result<(), Stop> {
    crate::print(text.as_bytes()).map(|_| ())
}
