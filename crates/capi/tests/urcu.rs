//! Tests of liburcu's names: the suite in `tests/urcu` for each flavor, liburcu's hash table on top
//! of the library, and the unmodified programs that Debian ships with liburcu.
//!
//! Tests of which a tool is missing (`liburcu-dev`, C++, sanitizers, valgrind) are skipped.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{
    SANITIZE, STRICT, aborts_with_one_line, debug, has_liburcu, has_sanitizers, include, linked,
    root, runs, shared, succeeds, tool, tools, under_valgrind,
};

/// The flavors, each with the compiler flag that selects it.
const FLAVORS: &[(&str, &str)] = &[
    ("memb", "-DRCU_MEMBARRIER"),
    ("mb", "-DRCU_MB"),
    ("bp", "-DSUITE_BP"),
    ("qsbr", "-DSUITE_QSBR"),
];
/// The directory of liburcu's own examples in Debian.
const EXAMPLES: &str = "/usr/share/doc/liburcu-dev/examples";

/// Calls `test` with each of `compilers` that is there, and with each flavor and its flag.
fn for_each_flavor(compilers: &[&str], test: impl Fn(&str, &str, &str)) {
    for compiler in tools(compilers) {
        FLAVORS.iter().for_each(|(flavor, choice)| test(compiler, flavor, choice));
    }
}

/// Compiles a program and links it with the static library.
fn compiled(compiler: &str, name: &str, source: &Path, flags: &[&str]) -> PathBuf {
    linked(compiler, &format!("urcu-{name}"), &[source], &[&["-O2"], flags].concat())
}

fn suite() -> PathBuf {
    root().join("tests/urcu/suite.c")
}

#[test]
fn each_flavor_passes_the_suite() {
    for_each_flavor(&["cc", "clang"], |compiler, flavor, choice| {
        let flags = [&["-std=gnu11", choice], STRICT].concat();
        let said = runs(compiled(compiler, &format!("{compiler}-{flavor}"), &suite(), &flags));
        eprint!("{compiler}, {flavor}: {said}");
        assert!(said.contains(" 0 failed"), "{said}");
    });
}

#[test]
fn the_suite_is_a_program_in_cpp_as_well() {
    for_each_flavor(&["c++", "clang++"], |compiler, flavor, choice| {
        let flags = [&["-xc++", "-std=c++17", "-fsyntax-only", choice], STRICT].concat();
        let mut command = Command::new(compiler);
        succeeds(command.args(&flags).args([&include(), "-DAW_DEBUG=0"]).arg(suite()));
        eprintln!("{compiler}, {flavor}: compiles");
    });
}

#[test]
fn escaping_exception_ends_the_process_with_a_message() {
    let source = root().join("tests/urcu/throws.cpp");
    for_each_flavor(&["c++", "clang++"], |compiler, flavor, choice| {
        let flags = [&["-std=c++17", choice], STRICT].concat();
        let name = format!("{compiler}-throws-{flavor}");
        let program = compiled(compiler, &name, &source, &flags);
        for place in ["call_rcu", "defer_rcu"] {
            aborts_with_one_line(Command::new(&program).arg(place), place);
        }
    });
}

#[test]
fn the_suite_passes_under_address_sanitizer() {
    if has_sanitizers("cc") {
        for_each_flavor(&["cc"], |compiler, flavor, choice| {
            let flags = [&["-std=gnu11", choice], SANITIZE].concat();
            runs(compiled(compiler, &format!("asan-{flavor}"), &suite(), &flags));
        });
    }
}

#[test]
fn called_and_inlined_sections_are_the_same() {
    // With the shared library, the inlined C code uses the library's thread-local variable.
    for_each_flavor(&["cc"], |compiler, flavor, choice| {
        runs(shared(compiler, &format!("urcu-{flavor}"), &[suite()], &["-O2", choice]));
    });
}

#[test]
fn additional_names_of_liburcu_exist() {
    let source = root().join("tests/urcu/names.c");
    let headers = format!("-I{}", root().join("include/afterwork/liburcu").display());
    let compilers = [
        ("cc", &["-std=gnu11"][..]),
        ("clang", &["-std=gnu11"][..]),
        ("c++", &["-xc++", "-std=c++17", "-fsyntax-only"][..]),
        ("clang++", &["-xc++", "-std=c++17", "-fsyntax-only"][..]),
    ];
    for (compiler, flags) in compilers.into_iter().filter(|it| tool(it.0).is_some()) {
        let flags = [flags, STRICT, &[&headers]].concat();
        if flags.contains(&"-fsyntax-only") {
            let mut command = Command::new(compiler);
            succeeds(command.args(&flags).args([include(), debug()]).arg(&source));
        } else {
            runs(compiled(compiler, &format!("{compiler}-names"), &source, &flags));
        }
    }
}

#[test]
fn liburcus_hash_table_runs_over_the_library() {
    if !has_liburcu("cc") {
        return;
    }
    let source = root().join("examples/liburcu/hash.c");
    let flags = [&["-std=gnu11", "-lurcu-cds"], STRICT].concat();
    let program = compiled("cc", "hash", &source, &flags);
    eprint!("{}", runs(&program));
    under_valgrind(&program);
}

#[test]
fn liburcu_examples_run_unchanged() {
    let folders = ["urcu-flavors", "rculfhash", "list", "hlist", "rculfqueue"];
    if !has_liburcu("cc") || !Path::new(EXAMPLES).exists() {
        eprintln!("skipped: liburcu's examples are not installed");
        return;
    }
    let headers = format!("-I{}", root().join("include/afterwork/liburcu").display());
    let mut nr_run = 0;
    for folder in folders {
        for entry in fs::read_dir(Path::new(EXAMPLES).join(folder)).into_iter().flatten() {
            let source = entry.unwrap().path();
            let name = source.file_stem().unwrap().to_string_lossy().into_owned();
            // The signal flavor no longer exists in later versions.
            if source.extension().is_none_or(|it| it != "c") || name == "signal" {
                continue;
            }
            let flags = ["-std=gnu11", &headers, "-lurcu-cds"];
            let program = compiled("cc", &format!("{folder}-{name}"), &source, &flags);
            runs(&program);
            let mut command = Command::new("nm");
            let wanted = succeeds(command.args(["-D", "--undefined-only"]).arg(&program));
            let theirs = |line: &&str| line.contains(" urcu_");
            assert_eq!(wanted.lines().find(theirs), None, "{name} uses their RCU");
            nr_run += 1;
        }
    }
    eprintln!("{nr_run} programs of liburcu's");
    assert!(nr_run > 10);
}
