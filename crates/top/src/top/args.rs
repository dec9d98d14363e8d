//! The options of `afterwork top`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

/// Shows what a process that uses the library does: queues, pools, RCU, mailboxes, per-CPU data.
///
/// The process must have said that it may be looked at: started with AFTERWORK=observe.publish=on, or by
/// a call of observe::publish(). Without PID this lists the processes that have. Looking stops nothing and
/// costs the process a few microseconds a look.
///
///   AFTERWORK=observe.publish=on my-program &
///   afterwork top            which processes there are
///   afterwork top 4711       one of them, every second
///   afterwork top 4711 --tui the same, full screen
///   afterwork demo           a load worth watching
#[derive(Args, Clone, Debug)]
#[command(verbatim_doc_comment)]
pub struct TopArgs {
    /// The process, by its number or by the path of its page; without it, a list of processes
    #[arg(value_name = "PID")]
    pub process: Option<String>,

    /// Look once, and end
    #[arg(long)]
    pub once: bool,

    /// Full screen: ? tells the keys; without PID one is picked from a list
    #[arg(long, conflicts_with_all = ["once", "json", "prometheus"])]
    pub tui: bool,

    /// Print one JSON object a look, or an array of processes
    #[arg(long, conflicts_with = "prometheus")]
    pub json: bool,

    /// Look once and print text for Prometheus; without PID, of all processes
    #[arg(long)]
    pub prometheus: bool,

    /// Say what each figure means, as JSON with --json, and end
    #[arg(long, conflicts_with_all = ["process", "tui", "once", "prometheus", "prune"])]
    pub fields: bool,

    /// Remove the pages that processes of this user left when they were killed, and end
    #[arg(long, conflicts_with_all = ["process", "tui", "once", "json", "prometheus"])]
    pub prune: bool,

    /// Milliseconds between two looks
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = pause)]
    pub every: u64,

    /// Where pages lie
    #[arg(long, value_name = "DIR", default_value = afterwork::page::DIRECTORY)]
    pub directory: PathBuf,
}

/// Parses a pause. The error describes a valid pause.
fn pause(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|it| (10..=3_600_000).contains(it));
    number.ok_or_else(|| "not a whole number from 10 to 3600000".to_owned())
}

impl TopArgs {
    /// Returns the time between two looks.
    pub(super) fn pause(&self) -> Duration {
        Duration::from_millis(self.every)
    }
}
