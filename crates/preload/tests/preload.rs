//! Runs programs that use liburcu, with this library in its place, if `liburcu-dev` is installed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::{env, fs};

/// Compiles a program against the installed liburcu. Returns `None` if that is not possible.
fn compiled(name: &str, source: &Path, flags: &[&str]) -> Option<PathBuf> {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut command = Command::new("cc");
    command.args(["-std=gnu11", "-O2"]).args(flags).arg(source).arg("-o").arg(&program);
    let done = command.args(["-lurcu-memb", "-lurcu-cds", "-lpthread"]).output();
    if done.is_ok_and(|output| output.status.success()) {
        return Some(program);
    }
    eprintln!("skipped: no C compiler, or no liburcu-dev");
    None
}

/// Returns the installed library, linked once from the archive that Cargo built with this program.
fn library() -> &'static Path {
    static LINKED: OnceLock<PathBuf> = OnceLock::new();
    LINKED.get_or_init(link)
}

fn link() -> PathBuf {
    let beside = env::current_exe().unwrap();
    let beside = beside.parent().unwrap().read_dir().unwrap().flatten();
    let is_ours = |name: &str| name.starts_with("libafterwork_preload") && name.ends_with(".a");
    let ours = beside.filter(|file| file.file_name().to_str().is_some_and(is_ours));
    // Cargo's names contain a hash, so there may be several archives. The newest is right.
    let archive = ours.max_by_key(|file| file.metadata().unwrap().modified().unwrap());
    let archive = archive.expect("built with this program").path();
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join("liburcu-memb.so.8");
    let map = Path::new(env!("CARGO_MANIFEST_DIR")).join("liburcu.map");
    let mut command = Command::new("cc");
    command
        .args(["-shared", "-Wl,--gc-sections", "-Wl,-z,nodelete"])
        .args(["-Wl,-soname,liburcu-memb.so.8", "-Wl,--whole-archive"])
        .arg(archive)
        .arg("-Wl,--no-whole-archive")
        .arg(format!("-Wl,--version-script={}", map.display()))
        .args(["-lgcc_s", "-lpthread", "-ldl", "-lm", "-o"])
        .arg(&to);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    to
}

fn run(program: &Path) -> Output {
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", library()).output().unwrap()
}

#[test]
fn a_program_of_liburcus_runs_over_this_library_alone() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/client.c");
    let Some(program) = compiled("client", &source, &[]) else {
        return;
    };
    let output = run(&program);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{output:?}");
    let mut mapped = said.lines().filter(|line| line.contains("liburcu"));
    let ours = env!("CARGO_TARGET_TMPDIR");
    assert!(mapped.all(|line| line.starts_with(ours)), "{said}");
    assert!(said.contains(ours) && said.ends_with("1001 freed, 0 wrong\n"), "{said}");
}

#[test]
fn program_with_inlined_liburcu_readers_is_rejected_by_name() {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("inlined.c");
    let text =
        "#include <urcu.h>\nint main(void) { rcu_read_lock(); rcu_read_unlock(); return 0; }\n";
    fs::write(&source, text).unwrap();
    let Some(program) = compiled("inlined", &source, &["-D_LGPL_SOURCE"]) else {
        return;
    };
    let output = run(&program);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "it continued: {output:?}");
    assert!(said.contains("undefined symbol: urcu_memb_"), "{said}");
}
