//! `cargo xtask test`: runs all layers of tests, and counts the tests.
//!
//! Progress goes to stderr: a line when a test program ends, and a live line on a terminal. The
//! final table goes to stdout. Its last line is `N passed, N failed`, possibly followed by `, N
//! skipped`. The output of failed tests is shown. On an interrupt, the chore stops the running
//! command, prints the partial table, and exits with code 130.
//!
//! ```text
//!   options ─► plan (layer ─► steps) ─► child (one step) ─► libtest (lines ─► counts) ─► tally
//!                                            └────────────► progress
//! ```

mod child;
mod libtest;
mod miri;
mod options;
mod plan;
mod progress;
mod tally;

use std::process::ExitCode;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use child::{End, Signals};
use libtest::Reader;
use options::Options;
pub use plan::with_cfg;
use plan::{Layer, Step};
use progress::Progress;
use tally::{LayerTally, Tally};

use crate::report::{Failure, data, talk};
use crate::workspace::{Metadata, Workspace};

/// The exit code of an interrupted program. As in shells, it is 128 plus the number of the signal.
const EXIT_INTERRUPTED: u8 = 130;

pub fn main(workspace: &Workspace, args: &[String]) -> Result<ExitCode, Failure> {
    let options = Options::parse(args)?;
    if options.help {
        data(&options::help());
        return Ok(ExitCode::SUCCESS);
    }
    let metadata = workspace.metadata()?;
    if options.list {
        data(&plan::list(&metadata));
        return Ok(ExitCode::SUCCESS);
    }
    let signals = Signals::watch()?;
    let mut tally = Tally::default();
    for layer in &options.layers {
        tally.layers.push(run_layer(workspace, &metadata, layer, &signals)?);
        if signals.caught() {
            talk("interrupted; results so far:\n");
            break;
        }
    }
    data(&if options.json { tally.json() } else { tally.table() });
    Ok(match () {
        () if signals.caught() => ExitCode::from(EXIT_INTERRUPTED),
        () if tally.total().failed > 0 => ExitCode::FAILURE,
        () => ExitCode::SUCCESS,
    })
}

fn run_layer(
    workspace: &Workspace,
    metadata: &Metadata,
    layer: &'static Layer,
    signals: &Signals,
) -> Result<LayerTally, Failure> {
    let mut progress = Progress::new(layer);
    let mut tally = LayerTally::new(layer.name);
    let mut steps = plan::steps(layer, metadata, |name| std::env::var(name).ok());
    if layer.name == plan::SIM && !crate::sim::can_show_plain(workspace) {
        let nr_steps = steps.len();
        steps.retain(|step| step.without.is_empty());
        progress.say("skipped: no nightly toolchain to show plain accesses");
        tally.count.skipped += (nr_steps - steps.len()) as u64;
    }
    if layer.name == plan::MIRI
        && !steps.is_empty()
        && let Err(reason) = miri::make_ready(workspace)
    {
        progress.say(&format!("skipped: {reason}"));
        tally.count.skipped += steps.len() as u64;
    } else {
        let shown = Mutex::new((progress, tally));
        let next = Mutex::new(steps.iter());
        let take = || next.lock().expect("a step does not panic").next();
        let run_on = || {
            while let Some(step) = take().filter(|_| !signals.caught()) {
                run_step(workspace, step, layer, signals, &shown)?;
            }
            Ok(())
        };
        thread::scope(|scope| {
            let runs: Vec<_> = (0..layer.at_once).map(|_| scope.spawn(run_on)).collect();
            runs.into_iter().try_for_each(|run| run.join().expect("a step does not panic"))
        })?;
        (progress, tally) = shown.into_inner().expect("a step does not panic");
    }
    tally.seconds = progress.seconds();
    progress.done(&tally);
    Ok(tally)
}

fn run_step(
    workspace: &Workspace,
    step: &Step,
    layer: &Layer,
    signals: &Signals,
    shown: &Mutex<(Progress, LayerTally)>,
) -> Result<(), Failure> {
    let shown = || shown.lock().expect("a step does not panic");
    let mut command = workspace.command(&step.args[0]);
    command.args(&step.args[1..]).envs(step.env.iter().cloned());
    for name in step.without {
        command.env_remove(name);
    }
    let mut reader = Reader::new(step.prefix.as_deref());
    let mut output = Vec::new();
    let end = child::run(command, Instant::now() + layer.limit, signals, |line| {
        let Some(line) = line else { return shown().0.tick() };
        if let Some(done) = reader.read(&line) {
            shown().0.say(&done);
        }
        shown().0.doing(&line);
        output.push(line);
    })?;
    let why = match end {
        End::Good => None,
        End::Bad(status) => Some(format!("ended with {status}")),
        End::OverLimit => Some(format!("stopped at the limit of {} s", layer.limit.as_secs())),
        End::Interrupted => {
            reader.interrupt();
            None
        }
    };
    reader.finish(why.as_deref());
    let (progress, tally) = &mut *shown();
    if why.is_some() {
        progress.show(&step.shown(), &output);
    }
    tally.add(reader);
    Ok(())
}
