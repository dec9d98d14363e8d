//! The command: its arguments and its actions.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use topology::{ShardParams, Topology, current_bounds, save_snapshot};

use super::{draw, json};
use crate::exit::Stop;
use crate::talk;

const SYSFS: &str = "/sys";

/// Shows the machine as the library sees it: the CPUs, the caches that they share, and the pods of
/// each scope.
#[derive(Args, Clone, Debug)]
pub struct TopologyArgs {
    /// Print one JSON object instead of a drawing
    #[arg(long)]
    pub json: bool,

    /// Show a machine made up from its levels, outermost first: "2 numa x 4 llc x 8 core x 2 smt"
    #[arg(long, value_name = "LEVELS", conflicts_with = "sysfs")]
    pub synthetic: Option<String>,

    /// Show a saved machine: a directory laid out as /sys, as created by --save
    #[arg(long, value_name = "DIR")]
    pub sysfs: Option<PathBuf>,

    /// Cut caches into shards of at most this many cores; 0 leaves them whole
    #[arg(long, value_name = "CORES", default_value_t = ShardParams::DEFAULT_CACHE_SHARD_SIZE)]
    pub cache_shard_size: usize,

    /// Save the files that describe the machine to a new or empty directory, to attach to a
    /// report; shows nothing
    #[arg(long, value_name = "DIR", conflicts_with_all = ["synthetic", "json"])]
    pub save: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: &TopologyArgs) -> Result<(), Stop> {
    args.sysfs.as_deref().map_or(Ok(()), must_be_sysfs)?;
    if let Some(dir) = &args.save {
        // This saves the files before it parses the machine, because a machine that cannot be
        // parsed is the most useful one to send.
        return save(args.sysfs.as_deref(), dir);
    }
    let topology = machine(args)?;
    let params = ShardParams { cache_shard_size: args.cache_shard_size };
    let mut stdout = io::stdout().lock();
    if args.json {
        let json = json::json(&topology, &params).map_err(Stop::because("cannot write JSON"))?;
        writeln!(stdout, "{json}")?;
    } else {
        write!(stdout, "{}", draw::draw(&topology, &params))?;
    }
    Ok(stdout.flush()?)
}

fn machine(args: &TopologyArgs) -> Result<Topology, topology::Error> {
    match (&args.synthetic, &args.sysfs) {
        (Some(levels), _) => Topology::synthetic(levels),
        (None, Some(dir)) => Topology::from_sysfs(dir),
        (None, None) => Topology::detect(),
    }
}

/// Rejects a directory that is not laid out like `/sys`, because otherwise a file in it would be
/// reported as missing.
fn must_be_sysfs(dir: &Path) -> Result<(), Stop> {
    const CPUS: &str = "devices/system/cpu";
    let what = if !dir.is_dir() {
        "there is no such directory".into()
    } else if !dir.join(CPUS).is_dir() {
        format!("not laid out as {SYSFS}: it has no {CPUS}")
    } else {
        return Ok(());
    };
    Err(Stop::CouldNotRun(format!(
        "--sysfs {}: {what}; give {SYSFS} or a directory created by `afterwork topology --save DIR`",
        dir.display().to_string().escape_debug()
    )))
}

fn save(sysfs: Option<&Path>, dir: &Path) -> Result<(), Stop> {
    // The allowed CPUs of a saved machine are in its tree. Those of this machine are known only to
    // the process.
    let allowed = match sysfs {
        Some(_) => None,
        None => current_bounds()?,
    };
    let from = sysfs.unwrap_or(Path::new(SYSFS));
    let nr_files = save_snapshot(from, allowed.as_ref(), dir)?;
    talk::say(format_args!("saved {nr_files} files in {}", dir.display()));
    Ok(())
}

impl From<topology::Error> for Stop {
    fn from(error: topology::Error) -> Self {
        Self::CouldNotRun(error.to_string())
    }
}
