//! Functions that run the C compiler, shared by `c.rs` and `urcu.rs`.
#![allow(dead_code, reason = "not each test program needs all")]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

/// The warnings that headers must not cause.
pub const STRICT: &[&str] =
    &["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"];
/// The sanitizers, which end the program at the first report.
pub const SANITIZE: &[&str] = &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
/// The system libraries that a static library of Rust needs.
pub const SYSTEM: &[&str] = &["-lpthread", "-ldl", "-lm"];

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub fn include() -> String {
    format!("-I{}", root().join("include").display())
}

/// Returns the library that Cargo built with this program.
pub fn library(extension: &str) -> PathBuf {
    let program = env::current_exe().unwrap();
    let path = program.with_file_name(format!("libafterwork_capi.{extension}"));
    assert!(path.exists(), "{} is not there", path.display());
    path
}

/// Returns the path of a named file that a test may write.
pub fn place(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Returns `name` if it is a command that can be run. Otherwise prints that it is missing.
pub fn tool(name: &str) -> Option<&str> {
    let there = Command::new(name).arg("--version").output();
    if there.is_err() {
        eprintln!("skipped: {name} is missing");
    }
    there.is_ok().then_some(name)
}

pub fn shown(output: &Output) -> String {
    let part = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    part(&output.stdout) + &part(&output.stderr)
}

pub fn succeeds(command: &mut Command) -> String {
    let output = command.output().expect("it was there a moment ago");
    let shown = shown(&output);
    assert!(output.status.success(), "{command:?}: {shown}");
    shown
}

/// Runs a program, which must succeed. Returns its output.
pub fn runs(program: impl AsRef<OsStr>) -> String {
    succeeds(&mut Command::new(program))
}

/// Runs a command, which must abort with one line that contains `named`.
pub fn aborts_with_one_line(command: &mut Command, named: &str) {
    use std::os::unix::process::ExitStatusExt;
    let output = command.env("RUST_BACKTRACE", "1").output().unwrap();
    let said = shown(&output);
    assert_eq!(output.status.signal(), Some(6), "{command:?}: {said}");
    let is_line = said.starts_with("afterwork: ") && said.lines().count() == 1;
    assert!(is_line && said.contains(named), "{command:?}: {said}");
}

/// Returns the compiler flag that states how the library was built.
pub fn debug() -> String {
    format!("-DAW_DEBUG={}", u8::from(cfg!(debug_assertions)))
}

/// Returns the compilers in `names` that can be run.
pub fn tools<'a>(names: &[&'a str]) -> Vec<&'a str> {
    names.iter().filter_map(|name| tool(name)).collect()
}

/// Returns `true` if the compiler has sanitizers. Its name determines the language.
pub fn has_sanitizers(compiler: &str) -> bool {
    let text = "int main(void) { return 0; }\n";
    tool(compiler).is_some() && can_compile(compiler, SANITIZE, text, "its sanitizers are missing")
}

/// Compiles and links a text. If this fails, prints the reason for which tests are skipped.
fn can_compile(compiler: &str, flags: &[&str], text: &str, why: &str) -> bool {
    // The names are distinct, because one test may write the file while another one compiles it.
    let probe = place(&format!("probe-{compiler}-{:?}.c", std::thread::current().id()));
    fs::write(&probe, text).unwrap();
    let mut command = Command::new(compiler);
    let output = command.args(flags).arg(&probe).arg("-o").arg(probe.with_extension("")).output();
    let can = output.is_ok_and(|output| output.status.success());
    if !can {
        eprintln!("skipped: {compiler}: {why}");
    }
    can
}

/// Returns `true` if the compiler is there and finds liburcu.
pub fn has_liburcu(compiler: &str) -> bool {
    let text = "#include <urcu.h>\n#include <urcu/rculfhash.h>\n";
    can_compile(compiler, &["-fsyntax-only"], text, "liburcu-dev is not installed")
}

/// Compiles a program and links it with the static library. The libraries in `flags` follow it.
pub fn linked(
    compiler: &str,
    name: &str,
    sources: &[impl AsRef<OsStr>],
    flags: &[&str],
) -> PathBuf {
    let (libraries, flags): (Vec<&str>, Vec<&str>) =
        flags.iter().partition(|flag| flag.starts_with("-l"));
    let program = place(name);
    let mut command = Command::new(compiler);
    command.args(["-g", &include(), &debug()]).args(flags).args(sources);
    command.arg("-o").arg(&program).arg(library("a")).args(libraries).args(SYSTEM);
    succeeds(&mut command);
    program
}

/// Compiles a suite and links it with the shared library, as with an installed library.
pub fn shared(compiler: &str, name: &str, sources: &[PathBuf], flags: &[&str]) -> PathBuf {
    let folder = place(&format!("shared-{name}"));
    fs::create_dir_all(&folder).unwrap();
    for name in ["libafterwork.so", "libafterwork.so.0"] {
        fs::copy(library("so"), folder.join(name)).unwrap();
    }
    let program = folder.join(name);
    let mut command = Command::new(compiler);
    command
        .args(["-std=gnu11", "-g", &include(), &debug()])
        .args(flags)
        .args(sources)
        .arg("-o")
        .arg(&program)
        .arg(format!("-L{}", folder.display()))
        .arg(format!("-Wl,-rpath,{}", folder.display()))
        .args(["-lafterwork", "-lpthread"]);
    succeeds(&mut command);
    program
}

/// Runs the program under valgrind, if valgrind is installed.
pub fn under_valgrind(program: &Path) {
    if tool("valgrind").is_some() {
        let mut command = Command::new("valgrind");
        command
            .args(["-q", "--error-exitcode=9", "--leak-check=full"])
            .args(["--child-silent-after-fork=yes", "--fair-sched=yes"])
            .args(["--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"])
            .arg(program);
        eprint!("{}", succeeds(&mut command));
    }
}
