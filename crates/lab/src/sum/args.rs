//! The options of `afterwork sum`.

use std::ffi::OsString;

use clap::{Args, ValueEnum};

/// Prints or checks SHA-256 checksums of files and of all files below directories.
///
/// Output is that of sha256sum, byte for byte, in the order of the arguments and, below a directory, of
/// the names' bytes. Symbolic links below a directory are left alone, as `find -type f` does; one that is
/// named as an argument is followed.
#[derive(Args, Clone, Debug)]
pub struct SumArgs {
    /// Files, directories, or - for standard input; with --check, files that hold checksums
    #[arg(value_name = "PATH", default_value = "-")]
    pub paths: Vec<OsString>,

    /// Read checksums from the PATHs and check the files that they name
    #[arg(short, long)]
    pub check: bool,

    /// End each line with NUL instead of a newline, and escape no names
    #[arg(short, long, conflicts_with = "check")]
    pub zero: bool,

    /// Print one JSON record a file instead
    #[arg(long, conflicts_with_all = ["zero", "quiet", "status"])]
    pub json: bool,

    /// With --check: print no OK
    #[arg(long, requires = "check")]
    pub quiet: bool,

    /// With --check: print nothing, let the exit status speak
    #[arg(long, requires = "check")]
    pub status: bool,

    /// With --check: files that are missing are no failure
    #[arg(long, requires = "check")]
    pub ignore_missing: bool,

    /// With --check: lines that are no checksums are a failure
    #[arg(long, requires = "check")]
    pub strict: bool,

    /// With --check: name each line that is no checksum
    #[arg(short, long, requires = "check")]
    pub warn: bool,

    /// How many batches of 8 files are under way at once [default: as many as are hashed by the allowed CPUs, and up to
    /// four times as many while some wait for the disk]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=512))]
    pub jobs: Option<u32>,

    /// How files are read
    #[arg(long, value_name = "WAY", default_value = "auto")]
    pub read: Read,
}

/// Ways to read files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Read {
    /// By io_uring where there is one, else by plain calls
    Auto,
    /// By io_uring, all from one thread
    Uring,
    /// By plain calls of the threads that hash
    Plain,
}
