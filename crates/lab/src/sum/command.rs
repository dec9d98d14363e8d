//! The command: what it prints, and how it ends.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, IsTerminal, StdoutLock, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::args::SumArgs;
use super::check::{List, Tally, Verdict};
use super::line;
use super::sums::{Sink, Summed, Sums};
use super::walk::{Found, Walk};
use crate::exit::{Exit, Stop};
use crate::talk;

/// Runs the command.
///
/// # Errors
///
/// [`Stop::CouldNotRun`] where there are no workers, or no io_uring and it was asked for. What is wrong with a file
/// is told in its place, and the exit status is then [`Exit::FileFailed`].
pub fn run(args: &SumArgs) -> Result<Exit, Stop> {
    let sums = Sums::new(args.read, args.jobs)?;
    let mut out = BufWriter::new(io::stdout().lock());
    let good = if args.check {
        let mut good = true;
        for list in &args.paths {
            good &= check(args, &sums, list.as_ref(), &mut out)?;
        }
        good
    } else {
        print(args, &sums, &mut out)?
    };
    out.flush()?;
    Ok(if good { Exit::Good } else { Exit::FileFailed })
}

/// Sums what is wanted with a line on the terminal that says how far it is.
fn with_progress(
    sums: &Sums,
    wanted: &mut dyn Iterator<Item = Found>,
    sink: &mut Sink<'_>,
) -> Result<(), Stop> {
    let progress = progress();
    let done = sums.each(wanted, &mut |summed| {
        progress.inc(1);
        sink(summed)
    });
    progress.finish_and_clear();
    done
}

/// Shown where nobody's lines would run into it: standard error is a terminal, standard output is not.
fn progress() -> ProgressBar {
    if !io::stderr().is_terminal() || io::stdout().is_terminal() {
        return ProgressBar::hidden();
    }
    ProgressBar::new_spinner().with_style(style())
}

fn style() -> ProgressStyle {
    let style = ProgressStyle::with_template("{spinner} {human_pos} files, {per_sec}, {elapsed}");
    style.expect("a template that a test has read")
}

/// What `--json` prints of a file.
#[derive(Serialize)]
struct Record<'a> {
    path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ok: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

fn print(args: &SumArgs, sums: &Sums, out: &mut BufWriter<StdoutLock<'_>>) -> Result<bool, Stop> {
    let mut good = true;
    with_progress(sums, &mut Walk::new(&args.paths), &mut |summed| {
        good &= summed.sum.is_ok();
        if args.json {
            return record(out, &summed, None);
        }
        let name = summed.path.as_os_str().as_bytes();
        match &summed.sum {
            Ok(digest) if args.zero => out.write_all(&line::format_zero(digest, name))?,
            Ok(digest) => out.write_all(&line::format(digest, name))?,
            Err(error) => tell(out, &summed.path, error)?,
        }
        Ok(())
    })?;
    Ok(good)
}

fn check(
    args: &SumArgs,
    sums: &Sums,
    path: &Path,
    out: &mut BufWriter<StdoutLock<'_>>,
) -> Result<bool, Stop> {
    let mut list = match read_list(path) {
        Ok(list) => list,
        Err(error) => {
            tell(out, path, &error)?;
            return Ok(false);
        }
    };
    if list.names.is_empty() {
        say(path, "no properly formatted checksum lines found");
        return Ok(false);
    }
    if args.warn {
        for number in &list.improper {
            say(
                path,
                format_args!("{number}: improperly formatted SHA256 checksum line"),
            );
        }
    }
    let names = std::mem::take(&mut list.names);
    let mut wanted = names.into_iter().map(|path| Found { path, error: None });
    let mut tally = Tally::default();
    with_progress(sums, &mut wanted, &mut |summed| {
        let expected = list.expected.pop_front().expect("one for each name");
        let verdict = Verdict::of(&summed, &expected, args.ignore_missing);
        tally.add(verdict);
        let is_told = match verdict {
            Verdict::Missing => false,
            Verdict::Matches => !args.quiet && !args.status,
            Verdict::Differs | Verdict::Unreadable => !args.status,
        };
        if args.json {
            return record(out, &summed, Some(verdict));
        }
        if let (Verdict::Unreadable, Err(error)) = (verdict, &summed.sum) {
            tell(out, &summed.path, error)?;
        }
        if is_told {
            let (name, escaped) = line::escape(summed.path.as_os_str().as_bytes());
            let mark: &[u8] = if escaped { b"\\" } else { b"" };
            out.write_all(&[mark, &name, b": ", verdict.word().as_bytes(), b"\n"].concat())?;
        }
        Ok(())
    })?;
    out.flush()?;
    if !args.status {
        for warning in tally.warnings(list.improper.len()) {
            talk::say(format_args!("afterwork sum: {warning}"));
        }
        if tally == Tally::default() {
            say(path, "no file was verified");
        }
    }
    Ok(tally.is_good() && (list.improper.is_empty() || !args.strict))
}

fn read_list(path: &Path) -> io::Result<List> {
    if path.as_os_str() == "-" {
        List::read(io::stdin().lock())
    } else {
        List::read(BufReader::new(File::open(path)?))
    }
}

fn record(out: &mut impl Write, summed: &Summed, verdict: Option<Verdict>) -> Result<(), Stop> {
    if verdict == Some(Verdict::Missing) {
        return Ok(());
    }
    let record = Record {
        path: &summed.path.to_string_lossy(),
        sha256: summed.sum.as_ref().ok().map(line::hex),
        ok: verdict.map(|verdict| verdict == Verdict::Matches),
        error: summed.sum.as_ref().err().map(reason),
    };
    serde_json::to_writer(&mut *out, &record).map_err(io::Error::from)?;
    Ok(out.write_all(b"\n")?)
}

/// Tells of an error, after what was printed before it.
fn tell(out: &mut impl Write, path: &Path, error: &io::Error) -> Result<(), Stop> {
    out.flush()?;
    say(path, reason(error));
    Ok(())
}

fn say(path: &Path, what: impl std::fmt::Display) {
    talk::say(format_args!("afterwork sum: {}: {what}", path.display()));
}

/// The system's words, without the number that Rust puts behind them.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((words, _)) => words.into(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_progress_line_is_well_formed() {
        let _ = style();
    }

    #[test]
    fn reasons_are_words_alone() {
        assert_eq!(
            reason(&io::Error::from_raw_os_error(2)),
            "No such file or directory"
        );
        assert_eq!(reason(&io::Error::other("words")), "words");
    }
}
