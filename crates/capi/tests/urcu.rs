//! liburcu's names: the suite in `tests/urcu` for each flavor, liburcu's hash table over the library, and the programs that
//! Debian ships with liburcu, unchanged.
//!
//! What is not installed is named and left out: `liburcu-dev`, a C++ compiler, sanitizers, valgrind.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

const STRICT: &[&str] = &[
    "-Wall",
    "-Wextra",
    "-Wpedantic",
    "-Wconversion",
    "-Wshadow",
    "-Werror",
];
const SYSTEM: &[&str] = &["-lpthread", "-ldl", "-lm"];
/// Each flavor, by what chooses it.
const FLAVORS: &[(&str, &str)] = &[
    ("memb", "-DRCU_MEMBARRIER"),
    ("mb", "-DRCU_MB"),
    ("bp", "-DSUITE_BP"),
    ("qsbr", "-DSUITE_QSBR"),
];
/// Where Debian puts liburcu's own examples.
const EXAMPLES: &str = "/usr/share/doc/liburcu-dev/examples";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn place(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("urcu-{name}"))
}

/// Returns the library that Cargo built beside this program.
fn library(extension: &str) -> PathBuf {
    let program = env::current_exe().unwrap();
    program.with_file_name(format!("libafterwork_capi.{extension}"))
}

fn is_there(program: &str) -> bool {
    let is_there = Command::new(program).arg("--version").output().is_ok();
    if !is_there {
        eprintln!("left out: there is no {program}");
    }
    is_there
}

fn has_liburcu() -> bool {
    let has = Path::new("/usr/include/urcu").exists()
        || fs::read_dir("/usr/include").is_ok_and(|entries| {
            entries
                .flatten()
                .any(|entry| entry.path().join("urcu/rculfhash.h").exists())
        });
    if !has {
        eprintln!("left out: liburcu-dev is not installed");
    }
    has
}

fn succeeds(command: &mut Command) -> String {
    let output = command.output().expect("it was there a moment ago");
    let said = [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
    let said = said.concat();
    assert!(output.status.success(), "{command:?}: {said}");
    said
}

/// Compiles a program against the static library.
fn compiled(compiler: &str, name: &str, source: &Path, flags: &[&str]) -> PathBuf {
    let program = place(name);
    let mut command = Command::new(compiler);
    command
        .args(["-g", "-O2"])
        .arg(format!("-I{}", root().join("include").display()))
        .arg(format!("-DAW_DEBUG={}", u8::from(cfg!(debug_assertions))))
        .args(flags.iter().filter(|flag| !flag.starts_with("-l")))
        .arg(source)
        .arg("-o")
        .arg(&program)
        .arg(library("a"))
        .args(flags.iter().filter(|flag| flag.starts_with("-l")))
        .args(SYSTEM);
    succeeds(&mut command);
    program
}

fn suite() -> PathBuf {
    root().join("tests/urcu/suite.c")
}

#[test]
fn each_flavor_passes_the_suite() {
    let compilers = [("cc", "-std=gnu11"), ("clang", "-std=gnu11")];
    for (compiler, standard) in compilers.into_iter().filter(|it| is_there(it.0)) {
        for (flavor, choice) in FLAVORS {
            let flags = [&[standard, choice], STRICT].concat();
            let program = compiled(compiler, &format!("{compiler}-{flavor}"), &suite(), &flags);
            let said = succeeds(&mut Command::new(program));
            eprint!("{compiler}, {flavor}: {said}");
            assert!(said.contains(" 0 failed"), "{said}");
        }
    }
}

#[test]
fn the_suite_is_a_program_in_cpp_as_well() {
    for compiler in ["c++", "clang++"].into_iter().filter(|it| is_there(it)) {
        for (flavor, choice) in FLAVORS {
            let flags = [&["-xc++", "-std=c++17", "-fsyntax-only", choice], STRICT].concat();
            let mut command = Command::new(compiler);
            command
                .args(&flags)
                .arg(format!("-I{}", root().join("include").display()))
                .arg("-DAW_DEBUG=0")
                .arg(suite());
            succeeds(&mut command);
            eprintln!("{compiler}, {flavor}: compiles");
        }
    }
}

#[test]
fn the_suite_passes_under_address_sanitizer() {
    const FLAGS: &[&str] = &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    let probe = place("probe.c");
    fs::write(&probe, "int main(void) { return 0; }\n").unwrap();
    let mut command = Command::new("cc");
    command
        .args(FLAGS)
        .arg(&probe)
        .arg("-o")
        .arg(place("probe"));
    if !command.output().is_ok_and(|output| output.status.success()) {
        eprintln!("left out: the compiler has no sanitizers");
        return;
    }
    for (flavor, choice) in FLAVORS {
        let flags = [&["-std=gnu11", choice], FLAGS].concat();
        let program = compiled("cc", &format!("asan-{flavor}"), &suite(), &flags);
        succeeds(&mut Command::new(program));
    }
}

#[test]
fn a_section_that_is_called_is_that_which_is_inlined() {
    if !is_there("cc") {
        return;
    }
    // Through the shared library, which C finds its thread-local variable in.
    let folder = place("shared");
    fs::create_dir_all(&folder).unwrap();
    for name in ["libafterwork.so", "libafterwork.so.0"] {
        fs::copy(library("so"), folder.join(name)).unwrap();
    }
    for (flavor, choice) in FLAVORS {
        let program = folder.join(flavor);
        let mut command = Command::new("cc");
        command
            .args(["-std=gnu11", "-g", "-O2", choice])
            .arg(format!("-I{}", root().join("include").display()))
            .arg(format!("-DAW_DEBUG={}", u8::from(cfg!(debug_assertions))))
            .arg(suite())
            .arg("-o")
            .arg(&program)
            .arg(format!("-L{}", folder.display()))
            .arg(format!("-Wl,-rpath,{}", folder.display()))
            .args(["-lafterwork", "-lpthread"]);
        succeeds(&mut command);
        succeeds(&mut Command::new(program));
    }
}

#[test]
fn liburcus_hash_table_runs_over_the_library() {
    if !is_there("cc") || !has_liburcu() {
        return;
    }
    let source = root().join("examples/liburcu/hash.c");
    let flags = [&["-std=gnu11", "-lurcu-cds"], STRICT].concat();
    let program = compiled("cc", "hash", &source, &flags);
    eprint!("{}", succeeds(&mut Command::new(&program)));
    if is_there("valgrind") {
        let mut command = Command::new("valgrind");
        command
            .args(["-q", "--error-exitcode=9", "--leak-check=full"])
            .args([
                "--show-leak-kinds=definite",
                "--errors-for-leak-kinds=definite",
                "--fair-sched=yes",
            ])
            .arg(program);
        eprint!("{}", succeeds(&mut command));
    }
}

#[test]
fn what_liburcu_ships_as_examples_runs_unchanged() {
    let folders = ["urcu-flavors", "rculfhash", "list", "hlist", "rculfqueue"];
    if !is_there("cc") || !has_liburcu() || !Path::new(EXAMPLES).exists() {
        eprintln!("left out: liburcu's examples are not installed");
        return;
    }
    let headers = format!("-I{}", root().join("include/afterwork/liburcu").display());
    let mut nr_run = 0;
    for folder in folders {
        for entry in fs::read_dir(Path::new(EXAMPLES).join(folder))
            .into_iter()
            .flatten()
        {
            let source = entry.unwrap().path();
            let name = source.file_stem().unwrap().to_string_lossy().into_owned();
            // Of the signal flavor, which later versions do not have.
            if source.extension().is_none_or(|it| it != "c") || name == "signal" {
                continue;
            }
            let flags = ["-std=gnu11", &headers, "-lurcu-cds"];
            let program = compiled("cc", &format!("{folder}-{name}"), &source, &flags);
            succeeds(&mut Command::new(&program));
            let mut command = Command::new("nm");
            command.args(["-D", "--undefined-only"]).arg(&program);
            let wanted = succeeds(&mut command);
            let theirs = |line: &&str| line.contains(" urcu_");
            assert_eq!(wanted.lines().find(theirs), None, "{name} uses their RCU");
            nr_run += 1;
        }
    }
    eprintln!("{nr_run} programs of liburcu's");
    assert!(nr_run > 10);
}
