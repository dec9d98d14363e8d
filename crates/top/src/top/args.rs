//! The options of `afterwork top`.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::cli::number;

/// Shows the activity of a process that uses the library: queues, pools, RCU, mailboxes, per-CPU
/// data, workers and the functions that they run.
///
/// The process must allow it: started with AFTERWORK=observe.publish=on, or by a call of
/// observe::publish(). Without PID this lists the processes that allow it. Each snapshot costs the
/// process a few microseconds, and stops no thread. On a terminal the list and the process are
/// shown full screen, otherwise as text.
///
///   AFTERWORK=observe.publish=on my-program &
///   afterwork top               the list of processes
///   afterwork top 4711          one of them, every second
///   afterwork top 4711 --plain  the same, as text
///   afterwork demo              a load worth watching
#[derive(Args, Clone, Debug)]
#[command(verbatim_doc_comment)]
pub struct TopArgs {
    /// The process, by its number or by the path of its page; without it, a list of processes
    #[arg(value_name = "PID")]
    pub process: Option<String>,

    /// Show one snapshot, and exit
    #[arg(long)]
    pub once: bool,

    /// Print text on a terminal, too, instead of the full screen
    #[arg(long)]
    pub plain: bool,

    /// Print one JSON object per snapshot, or an array of processes
    #[arg(long, conflicts_with = "prometheus")]
    pub json: bool,

    /// Print one snapshot as text for Prometheus; without PID, of all processes
    #[arg(long)]
    pub prometheus: bool,

    /// Print the meaning of each figure, as JSON with --json, and exit
    #[arg(long, conflicts_with_all = ["process", "plain", "once", "prometheus", "prune"])]
    pub fields: bool,

    /// Remove the pages of killed processes of this user, and exit
    #[arg(long, conflicts_with_all = ["process", "plain", "once", "json", "prometheus"])]
    pub prune: bool,

    /// Milliseconds between two snapshots
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = number::<10, 3_600_000>)]
    pub every: u64,

    /// The directory of the pages
    #[arg(long, value_name = "DIR", default_value = afterwork::page::DIRECTORY)]
    pub directory: PathBuf,
}

impl TopArgs {
    pub(super) fn is_full_screen(&self) -> bool {
        let is_text = self.plain || self.once || self.json || self.prometheus;
        !is_text && io::stdin().is_terminal() && io::stdout().is_terminal()
    }

    pub(super) fn pause(&self) -> Duration {
        Duration::from_millis(self.every)
    }
}
