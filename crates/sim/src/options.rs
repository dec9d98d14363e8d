//! The command line.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::checks::CHECKS;
use crate::machine::Machine;
use crate::once::{Point, once};
use crate::scenarios::{SCENARIOS, Scenario, scope_of};
use crate::{calibrate, could_not_run, kernel, sweep, table};

#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The scenarios, which are printed side by side if there are several.
    pub scenarios: Vec<String>,
    pub machine: PathBuf,
    pub cpus: Vec<usize>,
    pub scopes: Vec<String>,
    pub nr_seeds: u64,
    pub nr_items: Option<usize>,
    pub nr_producers: Option<usize>,
    pub varies_guesses: bool,
    pub budget: Duration,
    pub json: bool,
    /// The file with the measurements of a machine, and the machine file to write.
    pub calibrate: Option<(PathBuf, PathBuf)>,
    pub twin: Option<String>,
    pub point: Option<Point>,
}

/// Returns the programs that can be run: scenarios to measure, then checks.
pub fn programs() -> impl Iterator<Item = &'static Scenario> {
    SCENARIOS.iter().chain(kernel::SCENARIOS).chain(CHECKS)
}

/// Returns `true` if, in this scenario, each CPU queues items on a workqueue.
fn is_of_queue(name: &str) -> bool {
    matches!(name, "one-at-a-time" | "handed-over" | "batches" | "max-active")
        || kernel::SCENARIOS.iter().any(|it| it.name == name)
}

fn help() -> String {
    let scenarios = programs().map(|it| format!("  {:17} {}\n", it.name, it.about));
    format!(
        "cargo xtask sim SCENARIO[,SCENARIO…] --machine FILE [--cpus 8,72] [--scope cpu,cache_shard,system] [--seeds 3]\n\
         \x20   [--items N] [--producers N] [--no-guesses] [--no-plain] [--budget SECONDS] [--json]\n\
         cargo xtask sim check-NAME --machine FILE [--seed 1] [--cpus N] [--scope cpu] [--items N] [--twin BUG]\n\
         cargo xtask sim --calibrate NEW --machine FILE [--measured FILE] [--json]\n\n\
         The first two forms run the shipped library on a simulated machine. Each figure has its range over seeds, and over each\n\
         guessed cost halved and doubled. If there are several scenarios, each is compared with the first, between runs with equal\n\
         seeds and guesses. --producers N creates items on N of the CPUs only, on distinct cores if possible. With a nightly\n\
         toolchain, plain accesses are charged too, unless --no-plain is given.\n\n\
         The third form measures this machine, which should be otherwise idle. It fits the costs that it can, takes the others\n\
         from FILE, writes all to NEW, and simulates held-out scenarios.\n\n\
         Exit 0: success; 1: deadlock, endless loop, panic, budget exceeded, or a held-out median out of bounds; 2: could not run.\n\n{}",
        scenarios.collect::<String>()
    )
}

fn parse(args: &[String]) -> Result<Options, String> {
    let mut options = Options {
        scopes: vec!["cpu".into(), "cache_shard".into(), "system".into()],
        nr_seeds: 3,
        varies_guesses: true,
        budget: Duration::from_secs(600),
        ..Options::default()
    };
    let (mut seed, mut changed) = (None, None);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().cloned().ok_or_else(|| format!("{arg} needs a value"));
        let number = |text: String| {
            text.parse::<u64>().map_err(|_| format!("{arg}: `{text}` is not a number"))
        };
        let positive = |text: String| match number(text)? {
            0 => Err(format!("{arg} must be at least 1")),
            value => Ok(value),
        };
        match arg.as_str() {
            "--machine" => options.machine = value()?.into(),
            "--cpus" => {
                let cpus = value()?;
                let counts =
                    cpus.split(',').map(|count| number(count.into()).map(|count| count as usize));
                options.cpus = counts.collect::<Result<_, _>>()?;
            }
            "--scope" => options.scopes = value()?.split(',').map(Into::into).collect(),
            "--seeds" => options.nr_seeds = positive(value()?)?,
            "--producers" => options.nr_producers = Some(positive(value()?)? as usize),
            "--items" => options.nr_items = Some(positive(value()?)? as usize),
            "--budget" => options.budget = Duration::from_secs(number(value()?)?),
            "--no-guesses" => options.varies_guesses = false,
            "--json" => options.json = true,
            "--calibrate" => options.calibrate = Some((value()?.into(), value()?.into())),
            "--twin" => options.twin = Some(value()?),
            "--seed" => seed = Some(number(value()?)?),
            "--change" => {
                let text = value()?;
                let (name, factor) = text.split_once(':').ok_or("--change NAME:FACTOR")?;
                let factor = factor.parse().map_err(|_| "--change NAME:FACTOR")?;
                changed = Some((name.to_owned(), factor));
            }
            names if !names.starts_with('-') && options.scenarios.is_empty() => {
                options.scenarios = names.split(',').map(Into::into).collect();
            }
            _ => return Err(format!("unknown option `{arg}`\n\n{}", help())),
        }
    }
    if options.calibrate.is_some() {
        return Ok(options);
    }
    let is_known = |name: &String| programs().any(|it| it.name == name);
    if options.scenarios.is_empty() || !options.scenarios.iter().all(is_known) {
        let names = options.scenarios.join(",");
        return Err(format!("unknown scenario `{names}`\n\n{}", help()));
    }
    let other = options.scenarios.iter().find(|name| !is_of_queue(name));
    if let Some(name) = other {
        if options.scenarios.len() > 1 {
            return Err(format!("{name} cannot be compared with other scenarios: run it alone"));
        }
        if options.nr_producers.is_some() {
            return Err(format!("{name} does not support --producers"));
        }
    }
    if options.machine.as_os_str().is_empty() {
        return Err("--machine needs a file, for example one of machines/".into());
    }
    let first = options.scenarios[0].as_str();
    if matches!(first, "mailbox" | "readers" | "percpu-drain") {
        // These scenarios have no queue.
        options.scopes = vec!["system".into()];
        if options.cpus.iter().any(|&nr_cpus| nr_cpus < 2) {
            return Err(format!("{first} needs at least 2 CPUs"));
        }
    }
    options.scopes.iter().try_for_each(|scope| scope_of(scope).map(drop))?;
    // A check is not measured.
    let is_check = CHECKS.iter().any(|it| it.name == first);
    if options.twin.is_some() && !is_check {
        return Err("--twin needs a check: a scenario whose name begins with check-".into());
    }
    if let Some(seed) = seed.or(is_check.then_some(1)) {
        if options.scenarios.len() > 1 {
            return Err("--seed needs exactly one scenario".into());
        }
        options.point = Some(Point {
            scenario: first.into(),
            scope: options.scopes[0].clone(),
            nr_cpus: options.cpus.first().copied().unwrap_or(2),
            seed,
            changed,
        });
    }
    Ok(options)
}

/// The total number of items, over all CPUs, whose simulation takes about half a second.
const ITEMS_IN_ALL: usize = 12_000;

impl Options {
    pub fn items_for(&self, nr_cpus: usize) -> usize {
        let nr_producers = self.nr_producers.unwrap_or(nr_cpus);
        self.nr_items.unwrap_or_else(|| (ITEMS_IN_ALL / nr_producers).clamp(40, 1000))
    }
}

pub fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.is_empty() || args.iter().any(|arg| arg == "--help") {
        print!("{}", help());
        return ExitCode::SUCCESS;
    }
    let read = |args: &[String]| {
        let mut options = parse(args)?;
        if options.calibrate.is_some() && options.machine.as_os_str().is_empty() {
            return Err("--calibrate needs --machine FILE, for the costs that it cannot fit".into());
        }
        let machine = Machine::read(&options.machine)?;
        if options.cpus.is_empty() {
            options.cpus = vec![machine.nr_cpus()];
        }
        options.cpus.iter().try_for_each(|&nr_cpus| machine.topology(nr_cpus).map(drop))?;
        let few = options.cpus.iter().min().copied();
        if options.nr_producers > few {
            return Err("--producers must not exceed the number of CPUs".into());
        }
        Ok::<_, String>((options, machine))
    };
    let (options, machine) = match read(&args) {
        Ok(both) => both,
        Err(error) => return could_not_run(&error),
    };
    if let Some((measured, made)) = &options.calibrate {
        return calibrate::main(&options, machine, measured, made);
    }
    let done = match &options.point {
        Some(point) => {
            if let Some(bug) = &options.twin {
                sync::twin::arm(bug);
            }
            once(&options, &machine, point).map(|value| println!("{value}"))
        }
        None => sweep::sweep(&options, &machine).map(|value| match options.json {
            true => println!("{value:#}"),
            false => print!("{}", table::shown(&value)),
        }),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sim: {error}");
            ExitCode::FAILURE
        }
    }
}
