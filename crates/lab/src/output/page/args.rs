//! The options of `afterwork-lab report`.

use std::path::PathBuf;

use clap::Args;

/// Makes a page of a run printed by `afterwork-lab bench --json`, or of two such runs side by side.
#[derive(Args, Clone, Debug)]
pub struct ReportArgs {
    /// What a bench printed with --json; - for standard input
    #[arg(value_name = "RUN")]
    pub run: PathBuf,

    /// Another run, on this machine or another one, to be compared with the first
    #[arg(value_name = "OTHER")]
    pub other: Option<PathBuf>,

    /// Where to put the page; - for standard output
    #[arg(
        short,
        long,
        value_name = "FILE",
        default_value = "afterwork-report.html"
    )]
    pub output: PathBuf,
}
