//! `cargo xtask sanitize`: runs tests and tortures under ThreadSanitizer and AddressSanitizer, and
//! the C suite and the C examples under ThreadSanitizer. (`cargo xtask capi` runs the C programs
//! under AddressSanitizer.)
//!
//! The sanitizers need a nightly toolchain. ThreadSanitizer also needs the sources of the standard
//! library, in order to rebuild it. If the sources are missing, the chore installs them. If a
//! requirement is not available, the chore reports this and succeeds, because the rest of the
//! workspace needs only the stable toolchain.
//!
//! ThreadSanitizer does not model fences, so it reports a race if only a fence publishes data. This
//! chore needs no suppressions: data passes between threads by a release and an acquire of one
//! atomic. In places where a fence would suffice, such as the drop of the last handle to an item,
//! the code reads that atomic again. Fences only order the atomics of wake-ups, drains and grace
//! periods. The models check these fences, because the sanitizer cannot.
//!
//! AddressSanitizer detects uses of freed memory. It checks for leaks only in tests that do not
//! leak on purpose. Statics and the data of rejected callbacks are leaked on purpose.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use crate::report::{Failure, data, exit_code, talk};
use crate::torture::{self, Asked};
use crate::workspace::{Metadata, Workspace, output, status};

/// The packages, the test programs to run in addition to the unit tests, and `true` if leaks are
/// checked.
const SUITES: &[(&str, &[&str], bool)] = &[
    ("afterwork-mpscq", &[], true),
    ("afterwork-base", &[], false),
    ("afterwork-rcu", &[], false),
    ("afterwork-percpu", &[], false),
    ("afterwork-mailbox", &[], false),
    ("afterwork-item", &[], false),
    ("afterwork-limit", &[], false),
    ("afterwork-workqueue", &[], false),
    ("afterwork-raw", &[], false),
    ("afterwork", &["workqueue", "percpu", "rcu"], false),
];

/// The tests that are skipped under a sanitizer: the name of the sanitizer, the test, and the
/// reason.
const WITHOUT: &[(&str, &str, &str)] = &[
    ("asan", "active::pools_that_wait_for_a_seat_take_turns", SLOW),
    ("asan", "cancel::an_enqueue_does_not_wait_for_a_blocking_item_of_the_batch", SLOW),
    ("asan", "cancel::cancelled_items_leave_a_full_or_paused_queue", RETAINS),
    ("asan", "lifecycle::objects_that_are_dropped_leave_no_memory_behind", RETAINS),
    ("asan", "lifecycle::queues_that_are_dropped_leave_no_memory_behind", RETAINS),
    ("asan", "lifecycle::registries_that_are_shut_down_leave_no_memory_behind", RETAINS),
    ("asan", "sleep::a_hundred_thousand_sleeps_are_cheap_and_leave_nothing", RETAINS),
];
const RETAINS: &str = "the sanitizer retains freed memory, which counts as growth";
const SLOW: &str = "items take longer than a microsecond, so a batch has only one";

/// The exit status of a program whose sanitizer reported an error.
pub const REPORTED: i32 = 66;

#[derive(Debug, PartialEq)]
pub struct Sanitizer {
    /// The name of the command-line option and of the build folder.
    pub name: &'static str,
    title: &'static str,
    rustflag: &'static str,
    builds_std: bool,
    /// The environment variable for the options of the sanitizer.
    variable: &'static str,
    options: &'static str,
}

/// The sanitizers. The first report ends the program with [`REPORTED`]. A child of `fork` may start
/// threads.
pub const SANITIZERS: [Sanitizer; 2] = [
    // A registry that is dropped does not join its threads, which exit by themselves. This is not
    // an error.
    Sanitizer {
        name: "tsan",
        title: "ThreadSanitizer",
        rustflag: "-Zsanitizer=thread",
        builds_std: true,
        variable: "TSAN_OPTIONS",
        options: "exitcode=66 halt_on_error=1 history_size=4 report_thread_leaks=0 die_after_fork=0",
    },
    Sanitizer {
        name: "asan",
        title: "AddressSanitizer",
        rustflag: "-Zsanitizer=address",
        builds_std: false,
        variable: "ASAN_OPTIONS",
        options: "exitcode=66 detect_stack_use_after_return=1",
    },
];

#[derive(Debug, PartialEq)]
struct Options {
    only: Option<&'static Sanitizer>,
    words: Vec<String>,
}

pub fn main(workspace: &Workspace, args: &[String]) -> Result<ExitCode, Failure> {
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        data(&help());
        return Ok(ExitCode::SUCCESS);
    }
    let options = options(args)?;
    let metadata = workspace.metadata()?;
    let mut is_good = true;
    let mut say = |name: &str, start: Instant, good: bool| {
        let word = if good { "good" } else { "FAULTY" };
        let took = start.elapsed().as_secs();
        data(&format!("{name}: {word}, {took} s\n"));
        is_good &= good;
    };
    for sanitizer in &SANITIZERS {
        if options.only.is_some_and(|only| only != sanitizer) {
            continue;
        }
        let left_out = |reason| talk(&format!("sanitize: {} left out: {reason}\n", sanitizer.name));
        let Ok(host) = make_ready(workspace, sanitizer).map_err(left_out) else { continue };
        for (package, tests, leaks) in SUITES {
            let start = Instant::now();
            let mut command = sanitized(workspace, &metadata, &host, sanitizer, &[]);
            sanitizer.watch(&mut command, *leaks);
            command.args(["-p", package, "--lib"]);
            command.args(tests.iter().flat_map(|test| ["--test", test]));
            let without = WITHOUT.iter().filter(|(of, ..)| *of == sanitizer.name);
            command.arg("--");
            command.args(without.flat_map(|(_, test, _)| ["--skip", test]));
            let good = status(&mut command)?.success();
            say(&format!("{} {package}", sanitizer.name), start, good);
        }
        if sanitizer.builds_std {
            let start = Instant::now();
            let good = in_c(workspace, &metadata, &host, sanitizer)?;
            say(&format!("{} programs in C", sanitizer.name), start, good);
        }
        for program in torture::programs(&metadata) {
            let start = Instant::now();
            let asked = Asked::of(&options.words, Some(sanitizer));
            let end = torture::run(workspace, &metadata, &program, &asked)?;
            let name = format!("{} torture {}", sanitizer.name, program.name);
            say(&name, start, end.is_good());
        }
    }
    Ok(exit_code(is_good))
}

/// Builds and runs the C suite and the C examples under ThreadSanitizer. Returns `true` if all
/// succeed.
///
/// This links the runtime of the Rust compiler, because the runtime of the C compiler may lack
/// functions.
fn in_c(
    workspace: &Workspace,
    metadata: &Metadata,
    host: &str,
    sanitizer: &Sanitizer,
) -> Result<bool, Failure> {
    // `AW_DEBUG` must match the build of the library.
    const FLAGS: &str = "-std=gnu11 -g -O1 -fsanitize=thread -Icrates/capi/include -DAW_DEBUG=1";
    const SYSTEM: &[&str] = &["-lstdc++", "-lpthread", "-ldl", "-lm", "-lrt"];
    let folder = metadata.target_directory.join(sanitizer.name);
    let mut build = workspace.nightly("cargo");
    build
        .env("RUSTFLAGS", sanitizer.rustflag)
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
        .args(["rustc", "--quiet", "-Zbuild-std", "--lib"])
        .args(["-p", "afterwork-capi", "--crate-type", "staticlib"])
        .args(["--target", host, "--target-dir"])
        .arg(&folder);
    output(&mut build)?;
    let folder = folder.join(host).join("debug");
    let runtime = runtime(workspace, host)?;
    let mut programs = vec![("suite".to_string(), Vec::new())];
    for file in workspace.files()? {
        let of = |folder| file.strip_prefix(folder)?.strip_suffix(".c");
        let is_whole = |stem: &&str| !stem.contains('/');
        if of("crates/capi/tests/c/").filter(is_whole).is_some() {
            programs[0].1.push(file);
        } else if let Some(stem) = of("crates/capi/examples/").filter(is_whole) {
            programs.push((stem.to_string(), vec![file.clone()]));
        }
    }
    let mut is_good = true;
    for (name, sources) in programs {
        let program = folder.join(name);
        let object = program.with_extension("o");
        let mut compile = workspace.command("cc");
        compile.args(FLAGS.split(' ')).args(["-r", "-nostdlib"]).args(&sources);
        output(compile.arg("-o").arg(&object))?;
        let mut link = workspace.command("cc");
        link.arg("-no-pie").arg(&object).arg("-o").arg(&program);
        link.arg("-Wl,--whole-archive").arg(&runtime).arg("-Wl,--no-whole-archive");
        link.arg(folder.join("libafterwork_capi.a")).args(SYSTEM);
        output(&mut link)?;
        let mut run = Command::new(&program);
        sanitizer.watch(&mut run, false);
        is_good &= status(&mut run)?.success();
    }
    Ok(is_good)
}

fn runtime(workspace: &Workspace, host: &str) -> Result<PathBuf, Failure> {
    let sysroot = rustc(workspace, &["--print", "sysroot"])?;
    let folder = Path::new(sysroot.trim()).join(format!("lib/rustlib/{host}/lib"));
    let files = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    let is_it = |path: &PathBuf| path.to_string_lossy().ends_with("_rt.tsan.a");
    let found = files.map(|file| file.path()).find(is_it);
    found.ok_or_else(|| Failure::new(format!("no tsan runtime in {}", folder.display())))
}

fn options(args: &[String]) -> Result<Options, Failure> {
    let mut options = Options { only: None, words: vec!["--minutes".into(), "1".into()] };
    let wrong = |arg: &str| Failure::new(format!("unknown argument `{arg}`; see --help"));
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if arg == "--hostile" {
            options.words.push(arg.clone());
            continue;
        }
        let value = args.next().ok_or_else(|| wrong(arg))?;
        match arg.as_str() {
            // The last value takes precedence.
            "--minutes" | "--seed" | "--without" => {
                options.words.extend([arg.clone(), value.clone()]);
            }
            "--only" => {
                let mut all = SANITIZERS.iter();
                let named = all.find(|sanitizer| sanitizer.name == value);
                options.only = Some(named.ok_or_else(|| wrong(value))?);
            }
            _ => return Err(wrong(arg)),
        }
    }
    Ok(options)
}

impl Sanitizer {
    /// Configures `command`, which runs sanitized programs, to stop at the first report.
    pub fn watch(&self, command: &mut Command, looks_for_leaks: bool) {
        let leaks = u32::from(looks_for_leaks);
        command.env(self.variable, format!("{} detect_leaks={leaks}", self.options));
    }
}

/// Returns the target of this machine, or the reason in one line if a requirement of `sanitizer` is
/// not available.
pub fn make_ready(workspace: &Workspace, sanitizer: &Sanitizer) -> Result<String, Failure> {
    if let Some(host) = host_that_has(workspace, sanitizer.builds_std) {
        return Ok(host);
    }
    workspace.add_to_nightly(&["rust-src"])?;
    host_that_has(workspace, sanitizer.builds_std)
        .ok_or_else(|| Failure::new("the nightly toolchain has no rust-src"))
}

fn rustc(workspace: &Workspace, args: &[&str]) -> Result<String, Failure> {
    let text = output(workspace.nightly("rustc").args(args))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

pub fn host_that_has(workspace: &Workspace, sources: bool) -> Option<String> {
    let sysroot = rustc(workspace, &["--print", "sysroot"]).ok()?;
    let library = Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/std");
    let version = rustc(workspace, &["-vV"]).ok()?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.filter(|_| !sources || library.is_dir()).map(String::from)
}

/// Creates a command that runs tests under a sanitizer, with the given `--cfg` names.
pub fn sanitized(
    workspace: &Workspace,
    metadata: &Metadata,
    host: &str,
    sanitizer: &Sanitizer,
    cfgs: &[&str],
) -> Command {
    let cfg = |cfg: &&str| [" --cfg ", cfg].concat();
    let flags: String = cfgs.iter().map(cfg).collect();
    let folder = [&[sanitizer.name], cfgs].concat().join("-");
    let mut command = workspace.nightly("cargo");
    command
        .env("RUSTFLAGS", format!("{}{flags}", sanitizer.rustflag))
        .env("CARGO_PROFILE_TEST_OPT_LEVEL", "1")
        .args(["test", "--quiet"])
        .args(sanitizer.builds_std.then_some("-Zbuild-std"))
        .args(["--target", host, "--target-dir"])
        .arg(metadata.target_directory.join(folder));
    sanitizer.watch(&mut command, false);
    command
}

fn help() -> String {
    let mut text = String::from(
        "Runs tests and tortures under sanitizers. Needs a nightly toolchain; the build takes minutes.\n\n\
         Usage: cargo xtask sanitize [--only NAME] [--minutes M] [--seed S] [--hostile [--without ACT,ACT...]]\n\nNames:\n",
    );
    for sanitizer in &SANITIZERS {
        let sources = [", needs rust-src", ""][usize::from(!sanitizer.builds_std)];
        text += &format!("  {}  {}{sources}\n", sanitizer.name, sanitizer.title);
    }
    text += "
  --only NAME  one of them [default: both]
  --minutes M  minutes for each torture [default: 1]
  --seed S     seed of the tortures [default: from the clock, printed]
  --hostile    tortures with hostile user code; see cargo xtask torture --help
";
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Options, Failure> {
        let words: Vec<_> = line.split_whitespace().map(str::to_string).collect();
        options(&words)
    }

    #[test]
    fn seed_and_duration_are_forwarded() {
        let options = parsed("--seed 7 --minutes 0.5 --only asan").unwrap();
        assert_eq!(options.words[2..], ["--seed", "7", "--minutes", "0.5"]);
        assert_eq!(options.only.unwrap().title, "AddressSanitizer");
        assert_eq!(parsed("").unwrap().words, ["--minutes", "1"]);
    }

    #[test]
    fn builds_with_and_without_bugs_do_not_share_a_folder() {
        let workspace = Workspace::find().unwrap();
        let metadata = Metadata { packages: Vec::new(), target_directory: "t".into() };
        let folder = |cfgs: &[&str]| {
            let command = sanitized(&workspace, &metadata, "here", &SANITIZERS[1], cfgs);
            let last = command.get_args().last().unwrap();
            last.to_string_lossy().into_owned()
        };
        assert_eq!(folder(&[]), "t/asan");
        assert_eq!(folder(&["torture"]), "t/asan-torture");
    }

    #[test]
    fn unknown_arguments_are_named() {
        for line in ["--config x", "--seed"] {
            let word = line.split(' ').next().unwrap();
            assert!(parsed(line).unwrap_err().to_string().contains(word));
        }
    }
}
