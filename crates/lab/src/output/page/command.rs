//! The command `report`, which reads a run and writes a page.

use std::fs::{self, File};
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use top::exit::Stop;
use top::talk;

use super::one;
use crate::output::record::Line;
use crate::output::run::Run;

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

pub fn run(args: &ReportArgs) -> Result<(), Stop> {
    write(&args.output, &one::page(&read(&args.run)?))
}

pub fn write_page(path: &Path, lines: Vec<Line>) -> Result<(), Stop> {
    let run = Run::of(lines).expect("a bench records a run");
    write(path, &one::page(&run))
}

pub fn may_write(path: &Path) -> Result<(), Stop> {
    if path.as_os_str() == "-" {
        return Ok(());
    }
    let is_new = !path.exists();
    let mut options = File::options();
    options.append(true).create(true).open(path).map_err(cannot_write(path))?;
    if is_new {
        // A file that was just created can be removed. If that fails, the page replaces it.
        let _ = fs::remove_file(path);
    }
    Ok(())
}

fn cannot_write(path: &Path) -> impl Fn(io::Error) -> Stop {
    Stop::because(format!("cannot write {}", path.display()))
}

fn read(path: &Path) -> Result<Run, Stop> {
    let name = path.display().to_string();
    if path.as_os_str() == "-" {
        return Run::read("standard input", io::stdin().lock());
    }
    let file = File::open(path).map_err(Stop::because(&name))?;
    Run::read(&name, BufReader::new(file))
}

fn write(path: &Path, text: &str) -> Result<(), Stop> {
    if path.as_os_str() == "-" {
        return Ok(io::stdout().write_all(text.as_bytes())?);
    }
    fs::write(path, text).map_err(cannot_write(path))?;
    talk::say(format_args!("the page of this run is {}", path.display()));
    Ok(())
}
