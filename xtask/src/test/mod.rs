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
use std::sync::{Mutex, MutexGuard};
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
    let begin = Instant::now();
    let mut tally = Tally::default();
    for layers in options.layers.chunk_by(|layer, next| layer.at_once == next.at_once) {
        tally.layers.extend(run_layers(workspace, &metadata, layers, &signals)?);
        if signals.caught() {
            talk("interrupted; results so far:\n");
            break;
        }
    }
    tally.seconds = begin.elapsed().as_secs_f64();
    data(&if options.json { tally.json() } else { tally.table() });
    Ok(match () {
        () if signals.caught() => ExitCode::from(EXIT_INTERRUPTED),
        () if tally.total().failed > 0 => ExitCode::FAILURE,
        () => ExitCode::SUCCESS,
    })
}

/// A layer and its results so far.
struct Run {
    layer: &'static Layer,
    steps: Vec<Step>,
    shown: Mutex<Shown>,
}

struct Shown {
    progress: Progress,
    tally: LayerTally,
    /// The number of steps that have not ended.
    nr_left: usize,
}

impl Run {
    fn new(workspace: &Workspace, metadata: &Metadata, layer: &'static Layer) -> Self {
        let mut progress = Progress::new(layer);
        let mut tally = LayerTally::new(layer.name);
        let mut steps = plan::steps(layer, metadata, |name| std::env::var(name).ok());
        let nr_steps = steps.len();
        if layer.name == plan::SIM && !crate::sim::can_show_plain(workspace) {
            steps.retain(|step| step.without.is_empty());
            progress.say("skipped: no nightly toolchain to show plain accesses");
        }
        if layer.name == plan::MIRI
            && !steps.is_empty()
            && let Err(reason) = miri::make_ready(workspace)
        {
            steps.clear();
            progress.say(&format!("skipped: {reason}"));
        }
        let nr_left = steps.len();
        tally.count.skipped += (nr_steps - nr_left) as u64;
        Self { layer, steps, shown: Mutex::new(Shown { progress, tally, nr_left }) }
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().expect("a step does not panic")
    }
}

/// Runs layers that have the same `at_once`, in their order. If this is more than one, the first
/// commands of a layer start while the last ones of the previous layer run, so that no CPU is idle.
fn run_layers(
    workspace: &Workspace,
    metadata: &Metadata,
    layers: &[&'static Layer],
    signals: &Signals,
) -> Result<Vec<LayerTally>, Failure> {
    let runs: Vec<_> = layers.iter().map(|layer| Run::new(workspace, metadata, layer)).collect();
    let steps = runs.iter().flat_map(|run| run.steps.iter().map(move |step| (run, step)));
    let next = Mutex::new(steps);
    let take = || next.lock().expect("a step does not panic").next();
    let run_some = || {
        while let Some((run, step)) = take().filter(|_| !signals.caught()) {
            run_step(workspace, run, step, signals)?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..layers[0].at_once).map(|_| scope.spawn(run_some)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a step does not panic"))
    })?;
    let tallies =
        runs.into_iter().map(|run| run.shown.into_inner().expect("a step does not panic"));
    Ok(tallies.map(|shown| shown.tally).collect())
}

fn run_step(
    workspace: &Workspace,
    run: &Run,
    step: &Step,
    signals: &Signals,
) -> Result<(), Failure> {
    let limit = run.layer.limit;
    run.shown().progress.begin();
    let mut command = workspace.command(&step.args[0]);
    command.args(&step.args[1..]).envs(step.env.iter().cloned());
    for name in step.without {
        command.env_remove(name);
    }
    let mut reader = Reader::new(step.prefix.as_deref());
    let mut output = Vec::new();
    let end = child::run(command, Instant::now() + limit, signals, |line| {
        let Some(line) = line else { return run.shown().progress.tick() };
        if let Some(done) = reader.read(&line) {
            run.shown().progress.say(&done);
        }
        run.shown().progress.doing(&line);
        output.push(line);
    })?;
    let why = match end {
        End::Good => None,
        End::Bad(status) => Some(format!("ended with {status}")),
        End::OverLimit => Some(format!("stopped at the limit of {} s", limit.as_secs())),
        End::Interrupted => {
            reader.interrupt();
            None
        }
    };
    reader.finish(why.as_deref());
    let Shown { progress, tally, nr_left } = &mut *run.shown();
    if why.is_some() {
        progress.show(&step.shown(), &output);
    }
    tally.add(reader);
    tally.seconds = progress.seconds();
    *nr_left -= 1;
    if *nr_left == 0 {
        progress.done(tally);
    }
    Ok(())
}
