//! Compiles and runs C code: headers, the suite in `tests/c`, the examples, the book's snippets.
//!
//! `cargo xtask capi` runs this. If a tool is missing, its name is printed and its tests are
//! skipped. The programs are linked with the library that Cargo built for this test.

mod support;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

use support::{
    SANITIZE, STRICT, aborts_with_one_line, has_liburcu, has_sanitizers, include, library, linked,
    place, root, runs, shared, shown, succeeds, tool, tools, under_valgrind,
};

/// The compilers for C. The tests use those that are installed.
const C: &[&str] = &["cc", "clang"];
const CPP: &[&str] = &["c++", "clang++"];

fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(folder)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|it| it == extension)).collect();
    paths.sort();
    paths
}

/// Compiles `sources` and links them with the static library, if there is a compiler.
fn compiled(name: &str, sources: &[PathBuf], flags: &[&str]) -> Option<PathBuf> {
    Some(compiled_by(tool("cc")?, name, sources, flags))
}

/// Compiles `sources` in the language of the compiler, and links them with the static library.
fn compiled_by(compiler: &str, name: &str, sources: &[PathBuf], flags: &[&str]) -> PathBuf {
    let standard = if CPP.contains(&compiler) { "-std=c++17" } else { "-std=gnu11" };
    let flags = [&[standard, "-O1"], STRICT, flags].concat();
    linked(compiler, &format!("{name}-{compiler}"), sources, &flags)
}

/// Compiles `sources` with sanitizers, with each of `compilers` that has them.
fn sanitized(compilers: &[&str], name: &str, sources: &[PathBuf]) -> Vec<PathBuf> {
    let name = format!("{name}-asan");
    let has = compilers.iter().filter(|it| has_sanitizers(it));
    has.map(|it| compiled_by(it, &name, sources, SANITIZE)).collect()
}

fn suite() -> Vec<PathBuf> {
    files("tests/c", "c")
}

/// Returns the source of a separate program.
fn apart(name: &str) -> PathBuf {
    root().join("tests/c/apart").join(name)
}

/// Compiles a separate program, if there is a compiler.
fn compiled_apart(name: &str) -> Option<PathBuf> {
    compiled(name, &[apart(&format!("{name}.c"))], &[])
}

/// Compiles and runs a separate program.
fn passes_apart(name: &str) {
    if let Some(program) = compiled_apart(name) {
        runs(program);
    }
}

/// Checks the syntax of a text under the flags for headers.
fn compiles(compiler: &str, standard: &str, name: &str, text: &str) {
    let source = place(name);
    fs::write(&source, text).unwrap();
    let mut command = Command::new(compiler);
    command.args([standard, "-fsyntax-only", &include()]).args(STRICT).arg(&source);
    succeeds(&mut command);
}

#[test]
fn the_suite_passes() {
    for compiler in tools(C) {
        let said = runs(compiled_by(compiler, "suite", &suite(), &[]));
        assert!(said.contains(" 0 failed"), "{said}");
        eprint!("{compiler}: {said}");
    }
}

#[test]
fn the_suite_passes_under_address_sanitizer() {
    for program in sanitized(C, "suite", &suite()) {
        eprint!("{}", runs(program));
    }
}

#[test]
fn the_suite_passes_under_valgrind() {
    if let Some(program) = compiled("suite-valgrind", &suite(), &[]) {
        under_valgrind(&program);
    }
}

#[test]
fn the_suite_passes_with_the_shared_library() {
    let Some(compiler) = tool("cc") else { return };
    runs(shared(compiler, "suite", &suite(), &["-O1"]));
}

#[test]
fn each_header_compiles_alone_in_c11_and_in_cpp17() {
    for header in files("include/afterwork", "h") {
        let name = header.file_name().unwrap().to_str().unwrap();
        let twice = format!("#include <afterwork/{name}>\n").repeat(2);
        let text = twice + "int main(void) { return 0; }\n";
        for (compilers, standard, extension) in [(C, "-std=c11", "c"), (CPP, "-std=c++17", "cpp")] {
            for compiler in tools(compilers) {
                compiles(compiler, standard, &format!("{compiler}-{name}.{extension}"), &text);
            }
        }
    }
}

#[test]
fn second_has_a_thousand_jiffies_on_any_system() {
    let Some(compiler) = tool("cc") else { return };
    let (ours, systems) = ("#include <afterwork/workqueue.h>\n", "#include <sys/param.h>\n");
    let assert = "_Static_assert(HZ == 1000, \"milliseconds\");\nint main(void) { return 0; }\n";
    compiles(compiler, "-std=c11", "hz-ours-first.c", &[ours, systems, assert].concat());
    compiles(compiler, "-std=c11", "hz-systems-first.c", &[systems, ours, assert].concat());
}

#[test]
fn a_program_may_define_names_of_the_kernel() {
    for compiler in tools(C) {
        let sources = [apart("own_names.c")];
        runs(compiled_by(compiler, "own-names", &sources, &[]));
        // A program that is linked at a fixed address has copies of a shared library's objects.
        for flags in [["-fPIE", "-pie"], ["-fno-pie", "-no-pie"], ["-fPIC", "-pie"]] {
            runs(shared(compiler, "own-names", &sources, &flags));
        }
    }
}

#[test]
fn srcu_works_with_the_names_of_liburcu() {
    let Some(compiler) = tool("cc") else { return };
    let source = [apart("beside_urcu.c")];
    // This includes our headers in either order, with liburcu's own header before SRCU.
    let ours = format!("{}/include/afterwork/urcu.h", root().display());
    let mapped = format!("-I{}/include/afterwork/liburcu", root().display());
    let before = place("before-ours.h");
    fs::write(&before, "#include <afterwork/srcu.h>\n#include <afterwork/urcu.h>\n").unwrap();
    let before = before.display().to_string();
    for (name, flags) in [
        ("beside-ours", ["-include", &ours]),
        ("beside-mapped", ["-DSRCU_AFTER", &mapped]),
        ("beside-before", ["-include", &before]),
    ] {
        runs(compiled(name, &source, &flags).unwrap());
    }
    if has_liburcu(compiler) {
        let linked = "-Wl,--push-state,--no-as-needed,-lurcu,--pop-state";
        let flags = ["-DSRCU_AFTER", "-Wall", "-Wextra", "-Werror", linked];
        runs(shared(compiler, "beside-liburcu", &source, &flags));
    }
}

#[test]
fn a_worker_calls_hooks_of_c_when_it_starts_and_stops() {
    passes_apart("hooks");
}

#[test]
fn functions_on_each_cpu_run_on_the_cpus_of_the_process() {
    passes_apart("each");
}

#[test]
fn a_program_in_cpp_defers_work() {
    let sources = files("tests/c", "cpp");
    for compiler in tools(CPP) {
        let program = compiled_by(compiler, "cpp", &sources, &[]);
        runs(&program);
        under_valgrind(&program);
    }
    for program in sanitized(CPP, "cpp", &sources) {
        runs(program);
    }
}

#[test]
fn each_allocation_and_each_thread_may_fail() {
    const WRAPPED: &[&str] = &[
        "-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc",
        "-Wl,--wrap=posix_memalign,--wrap=pthread_create",
    ];
    let walk = [apart("oom.c"), apart("refuse.c")];
    if let Some(program) = compiled("oom", &walk, WRAPPED) {
        eprint!("{}", runs(program));
    }
    // A release build continues if a case misuses a queue that it failed to create.
    if !cfg!(debug_assertions) {
        return;
    }
    let is_case = |path: &PathBuf| !path.ends_with("main.c") && !path.ends_with("misuse.c");
    let mut cases: Vec<_> = suite().into_iter().filter(is_case).collect();
    cases.extend(["refused.c", "refuse.c"].map(apart));
    let flags = [WRAPPED, &["-DREFUSES"]].concat();
    if let Some(program) = compiled("refused", &cases, &flags) {
        let now = std::time::UNIX_EPOCH.elapsed().map_or(1, |at| at.as_secs());
        let seed = env::var("CAPI_REFUSED").unwrap_or_else(|_| now.to_string());
        eprint!("{}", succeeds(Command::new(program).arg(seed)));
    }
}

#[test]
fn escaping_exception_ends_the_process_with_a_message() {
    const ITEM: &str = "function of a work item";
    let items = ["item", "delayed item", "rcu work", "on cpu", "on each cpu", "per-CPU work"];
    let others = [
        ("blocking", "function of afterwork_blocking"),
        ("callback", "callback of call_rcu"),
        ("srcu callback", "callback of call_srcu"),
        ("task work", "callback of task_work_add"),
        ("hook", "function of afterwork_on_worker_start"),
    ];
    for compiler in tools(CPP) {
        let program = compiled_by(compiler, "throws", &[apart("throws.cpp")], &[]);
        for (place, named) in items.map(|item| (item, ITEM)).into_iter().chain(others) {
            // An exception or the exit of the thread leaves the function.
            for way in ["throw", "exit"] {
                let mut command = Command::new(&program);
                aborts_with_one_line(command.args([place, way]), named);
            }
        }
    }
}

#[test]
fn each_cpu_has_a_part_where_the_machine_cannot_be_read() {
    passes_apart("unread");
}

#[test]
fn a_program_sets_the_cpus_of_the_library() {
    passes_apart("cpus");
}

#[test]
fn queue_without_max_active_uses_that_of_the_environment() {
    let Some(program) = compiled_apart("tuned") else { return };
    succeeds(Command::new(&program).env("AFTERWORK", "workqueue.max_active=1"));
    let wrong = "workqueue.max_active=1,workqueue.max_activ=1";
    for (text, is_good) in [(wrong.to_string(), true), (format!("strict,{wrong}"), false)] {
        let output = Command::new(&program).env("AFTERWORK", text).output().unwrap();
        let said = shown(&output);
        assert!(said.contains("did you mean workqueue.max_active?"), "{said}");
        assert_eq!(output.status.success(), is_good, "{said}");
    }
}

#[test]
fn forbidden_nice_value_is_reported_and_workers_are_ordinary() {
    let Some(program) = compiled_apart("humble") else { return };
    let output = Command::new(program).output().unwrap();
    match output.status.code() {
        Some(77) => eprintln!("skipped: this process cannot drop its rights"),
        code => assert_eq!(code, Some(0), "{}", shown(&output)),
    }
}

/// `CAPI_QUEUES` sets the number of queues.
#[test]
fn very_many_queues_take_bounded_memory() {
    // A debug build takes a hundred times as long per queue.
    let number = if cfg!(debug_assertions) { 2_000 } else { 100_000 };
    let number = env::var("CAPI_QUEUES").unwrap_or_else(|_| number.to_string());
    if let Some(program) = compiled_apart("queues") {
        eprint!("{}", succeeds(Command::new(program).arg(number)));
    }
}

#[test]
fn the_library_is_opened_and_closed_at_run_time() {
    let Some(compiler) = tool("cc") else { return };
    let program = place("plugin");
    let mut command = Command::new(compiler);
    command.args(["-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", &include()]);
    succeeds(command.arg(apart("plugin.c")).arg("-o").arg(&program).arg("-ldl"));
    succeeds(Command::new(program).arg(library("so")));
}

#[test]
fn two_copies_of_the_library_that_are_in_use_are_reported_once() {
    let Some(program) = compiled_apart("copies") else { return };
    for (order, nr_lines) in [("", 0), ("ss", 0), ("dd", 0), ("sds", 1), ("dsd", 1)] {
        let output = Command::new(&program).arg(library("so")).arg(order).output().unwrap();
        let said = shown(&output);
        assert!(output.status.success(), "{order}: {said}");
        let lines = said.lines().filter(|line| line.contains("two copies"));
        assert_eq!(lines.count(), nr_lines, "{order}: {said}");
        let names =
            said.contains("in the program and in /") || said.contains(".so and in the program");
        assert_eq!(names, nr_lines == 1, "{order}: {said}");
    }
}

/// Returns the library's own symbols that appear in `text`.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let is_ours = |word: &&str| word.starts_with("aw_");
    words.filter(is_ours).map(str::to_string).collect()
}

#[test]
fn shared_library_exports_exactly_the_symbols_of_the_headers() {
    if tool("nm").is_none() {
        return;
    }
    let mut declared = BTreeSet::new();
    for header in files("include/afterwork", "h") {
        let text = fs::read_to_string(header).unwrap();
        // A declaration begins at the start of its line. Among the lines with a symbol and a
        // parenthesis, only inline functions begin there as well.
        for line in text.lines().filter(|line| !line.starts_with(['\t', '#', ' '])) {
            if line.starts_with("extern ") && line.ends_with(';') {
                // The line that declares an object ends with the name of its symbol.
                declared.extend(names(line));
            } else if line.ends_with(");") && line.contains(' ') {
                declared.extend(names(line.split('(').next().unwrap_or(line)));
            }
        }
    }
    let mut command = Command::new("nm");
    command.args(["-D", "--defined-only", "--format=posix"]).arg(library("so"));
    let listed = succeeds(&mut command);
    let exported: BTreeSet<String> = listed
        .lines()
        .filter_map(|line| line.split([' ', '@']).next())
        .filter(|&name| name != "rust_eh_personality")
        .map(str::to_string)
        .collect();
    assert!(declared.len() > 40, "{declared:?}");
    assert_eq!(exported, declared);
}

#[test]
fn the_examples_run() {
    for source in files("examples", "c") {
        let name = source.file_stem().unwrap().to_str().unwrap().to_string();
        let sources = [source];
        if let Some(program) = compiled(&name, &sources, &[]) {
            eprint!("{}", runs(&program));
            under_valgrind(&program);
        }
        for program in sanitized(C, &name, &sources) {
            runs(program);
        }
    }
}

#[test]
fn the_snippets_of_the_book_compile_and_run() {
    let docs = root().join("../..");
    let mut nr_found = 0;
    for page in ["README.md", "docs/c.md"] {
        let text = fs::read_to_string(docs.join(page)).unwrap();
        for (nth, part) in text.split("```c\n").skip(1).enumerate() {
            let snippet = part.split("```").next().unwrap_or_default();
            nr_found += 1;
            let name = format!("{}-{nth}", page.replace(['/', '.'], "-"));
            let source = place(&format!("{name}.c"));
            fs::write(&source, snippet).unwrap();
            if let Some(program) = compiled(&name, &[source], &[]) {
                eprint!("{}", runs(program));
            }
        }
    }
    assert!(nr_found >= 2, "{nr_found} snippets");
}
