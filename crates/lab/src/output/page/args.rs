//! The options of `afterwork-lab report`.

use std::path::PathBuf;

use clap::Args;

/// Creates a page from the output of `afterwork-lab bench --json`.
#[derive(Args, Clone, Debug)]
pub struct ReportArgs {
    /// Output of `bench --json`; - for standard input
    #[arg(value_name = "RUN")]
    pub run: PathBuf,

    /// File of the page; - for standard output
    #[arg(short, long, value_name = "FILE", default_value = "afterwork-report.html")]
    pub output: PathBuf,
}
