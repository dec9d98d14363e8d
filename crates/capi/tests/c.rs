//! Drives the C compiler: the headers by themselves, the suite in `tests/c`, the examples and the book's snippets.
//!
//! `cargo xtask capi` runs this. What is not installed is named and left out; without a C compiler that is all. The library
//! that is linked is the one that Cargo has just built for this test.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// What headers have to stand.
const STRICT: &[&str] = &[
    "-Wall",
    "-Wextra",
    "-Wpedantic",
    "-Wconversion",
    "-Wshadow",
    "-Werror",
];
/// What a static library of Rust's needs.
const SYSTEM: &[&str] = &["-lpthread", "-ldl", "-lm"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn include() -> String {
    format!("-I{}", root().join("include").display())
}

/// Returns the library that Cargo built beside this program.
fn library(extension: &str) -> PathBuf {
    let program = env::current_exe().unwrap();
    let path = program.with_file_name(format!("libafterwork_capi.{extension}"));
    assert!(path.exists(), "{} is not there", path.display());
    path
}

/// Returns where a test may write, by the name of what it makes.
fn place(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Returns the command if it can be run.
fn tool(name: &str) -> Option<&str> {
    let there = Command::new(name).arg("--version").output();
    if there.is_err() {
        eprintln!("left out: there is no {name}");
    }
    there.is_ok().then_some(name)
}

fn shown(output: &Output) -> String {
    let part = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    part(&output.stdout) + &part(&output.stderr)
}

fn succeeds(command: &mut Command) -> String {
    let output = command.output().expect("it was there a moment ago");
    let shown = shown(&output);
    assert!(output.status.success(), "{command:?}: {shown}");
    shown
}

fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(folder)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|it| it == extension))
        .collect();
    paths.sort();
    paths
}

/// Compiles `sources` against the static library, if that can be done with `flags`.
fn compiled(name: &str, sources: &[PathBuf], flags: &[&str]) -> Option<PathBuf> {
    let compiler = tool("cc")?;
    let program = place(name);
    let mut command = Command::new(compiler);
    command
        .args(["-std=gnu11", "-g", "-O1", &include()])
        .args(STRICT)
        .args(flags)
        .arg(format!("-DAW_DEBUG={}", u8::from(cfg!(debug_assertions))))
        .args(sources)
        .arg("-o")
        .arg(&program)
        .arg(library("a"))
        .args(SYSTEM);
    succeeds(&mut command);
    Some(program)
}

/// Compiles `sources` with sanitizers; nothing where the compiler has none.
fn sanitized(name: &str, sources: &[PathBuf]) -> Option<PathBuf> {
    const FLAGS: &[&str] = &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    let probe = place("sanitizer-probe.c");
    fs::write(&probe, "int main(void) { return 0; }\n").unwrap();
    let mut command = Command::new(tool("cc")?);
    command
        .args(FLAGS)
        .arg(&probe)
        .arg("-o")
        .arg(place("sanitizer-probe"));
    if !command.status().is_ok_and(|status| status.success()) {
        eprintln!("left out: the compiler has no sanitizers");
        return None;
    }
    compiled(name, sources, FLAGS)
}

fn under_valgrind(program: &Path) {
    if tool("valgrind").is_some() {
        let mut command = Command::new("valgrind");
        command
            .args([
                "-q",
                "--error-exitcode=9",
                "--leak-check=full",
                "--child-silent-after-fork=yes",
            ])
            .args([
                "--show-leak-kinds=definite",
                "--errors-for-leak-kinds=definite",
            ])
            .arg(program);
        eprint!("{}", succeeds(&mut command));
    }
}

fn suite() -> Vec<PathBuf> {
    files("tests/c", "c")
}

#[test]
fn the_suite_passes() {
    if let Some(program) = compiled("suite", &suite(), &[]) {
        let said = succeeds(&mut Command::new(program));
        assert!(said.contains(" 0 failed"), "{said}");
        eprint!("{said}");
    }
}

#[test]
fn the_suite_passes_under_address_sanitizer() {
    if let Some(program) = sanitized("suite-asan", &suite()) {
        eprint!("{}", succeeds(&mut Command::new(program)));
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
    let folder = place("shared");
    fs::create_dir_all(&folder).unwrap();
    // As it is installed.
    for name in ["libafterwork.so", "libafterwork.so.0"] {
        fs::copy(library("so"), folder.join(name)).unwrap();
    }
    let program = folder.join("suite");
    let mut command = Command::new(compiler);
    command
        .args(["-std=gnu11", "-g", "-O1", &include()])
        .arg(format!("-DAW_DEBUG={}", u8::from(cfg!(debug_assertions))))
        .args(suite())
        .arg("-o")
        .arg(&program)
        .arg(format!("-L{}", folder.display()))
        .arg(format!("-Wl,-rpath,{}", folder.display()))
        .args(["-lafterwork", "-lpthread"]);
    succeeds(&mut command);
    succeeds(&mut Command::new(program));
}

#[test]
fn each_header_stands_alone_in_c11_and_in_cpp17() {
    let compilers = [
        ("cc", "-std=c11", "c"),
        ("c++", "-std=c++17", "cpp"),
        ("clang", "-std=c11", "c"),
        ("clang++", "-std=c++17", "cpp"),
    ];
    for (compiler, standard, extension) in compilers {
        let Some(compiler) = tool(compiler) else {
            continue;
        };
        for header in files("include/afterwork", "h") {
            let name = header.file_name().unwrap().to_str().unwrap();
            let source = place(&format!("{compiler}-{name}.{extension}"));
            let text = format!(
                "#include <afterwork/{name}>\n#include <afterwork/{name}>\nint main(void) {{ return 0; }}\n"
            );
            fs::write(&source, text).unwrap();
            let mut command = Command::new(compiler);
            command
                .args([standard, "-fsyntax-only", &include()])
                .args(STRICT)
                .arg(&source);
            succeeds(&mut command);
        }
    }
}

#[test]
fn a_second_has_a_thousand_jiffies_whatever_the_system_says() {
    let Some(compiler) = tool("cc") else { return };
    let (ours, systems) = (
        "#include <afterwork/workqueue.h>\n",
        "#include <sys/param.h>\n",
    );
    for (name, text) in [
        ("hz-ours-first", [ours, systems]),
        ("hz-systems-first", [systems, ours]),
    ] {
        let source = place(&format!("{name}.c"));
        let assert =
            "_Static_assert(HZ == 1000, \"milliseconds\");\nint main(void) { return 0; }\n";
        fs::write(&source, text.concat() + assert).unwrap();
        let mut command = Command::new(compiler);
        command
            .args(["-std=c11", "-fsyntax-only", &include()])
            .args(STRICT)
            .arg(&source);
        succeeds(&mut command);
    }
}

#[test]
fn a_program_in_cpp_defers_work() {
    let Some(compiler) = tool("c++") else { return };
    let program = place("cpp");
    let mut command = Command::new(compiler);
    command
        .args(["-std=c++17", "-g", "-O1", &include()])
        .args(STRICT)
        .args(files("tests/c", "cpp"))
        .arg("-o")
        .arg(&program)
        .arg(library("a"))
        .args(SYSTEM);
    succeeds(&mut command);
    succeeds(&mut Command::new(program));
}

/// Returns a source that is a program by itself.
fn apart(name: &str) -> PathBuf {
    root().join("tests/c/apart").join(name)
}

#[test]
fn each_allocation_and_each_thread_may_be_refused() {
    const WRAPPED: &[&str] = &[
        "-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc",
        "-Wl,--wrap=posix_memalign,--wrap=pthread_create",
    ];
    if let Some(program) = compiled("oom", &[apart("oom.c")], WRAPPED) {
        eprint!("{}", succeeds(&mut Command::new(program)));
    }
}

#[test]
fn what_an_exception_leaves_ends_the_process_with_a_line() {
    use std::os::unix::process::ExitStatusExt;
    let Some(compiler) = tool("c++") else { return };
    let program = place("throws");
    let mut command = Command::new(compiler);
    command
        .args(["-std=c++17", "-g", "-O1", &include()])
        .args(STRICT)
        .arg(apart("throws.cpp"))
        .arg("-o")
        .arg(&program)
        .arg(library("a"))
        .args(SYSTEM);
    succeeds(&mut command);
    for place in ["item", "callback", "task work"] {
        let output = Command::new(&program).arg(place).output().unwrap();
        let said = shown(&output);
        assert_eq!(output.status.signal(), Some(6), "{place}: {said}");
        assert!(said.contains('\n'), "{place} ends without a line");
    }
}

#[test]
fn each_cpu_has_a_part_where_the_machine_cannot_be_read() {
    if let Some(program) = compiled("unread", &[apart("unread.c")], &[]) {
        succeeds(&mut Command::new(program));
    }
}

#[test]
fn the_library_is_opened_and_closed_at_run_time() {
    let Some(compiler) = tool("cc") else { return };
    let program = place("plugin");
    let mut command = Command::new(compiler);
    command
        .args(["-std=gnu11", "-g", "-O1", &include()])
        .args(["-Wall", "-Wextra", "-Werror"])
        .arg(apart("plugin.c"))
        .arg("-o")
        .arg(&program)
        .arg("-ldl");
    succeeds(&mut command);
    succeeds(Command::new(program).arg(library("so")));
}

/// Returns the names of the library's own that a text has.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let is_ours = |word: &&str| word.starts_with("aw_");
    words.filter(is_ours).map(str::to_string).collect()
}

#[test]
fn the_shared_library_has_the_symbols_of_the_headers_and_no_others() {
    if tool("nm").is_none() {
        return;
    }
    let mut declared = BTreeSet::new();
    for header in files("include/afterwork", "h") {
        let text = fs::read_to_string(header).unwrap();
        // Declarations begin their line, and nothing else with a name of ours and a bracket does but what is inline.
        let prototypes = text.lines().filter(|line| {
            let is_data = line.starts_with("extern ") && line.ends_with(';');
            (is_data || line.ends_with(");"))
                && !line.starts_with(['\t', '#', ' '])
                && line.contains(" ")
        });
        for line in prototypes {
            let name = line.split('(').next().unwrap_or_default();
            declared.extend(names(name));
        }
    }
    let mut command = Command::new("nm");
    command
        .args(["-D", "--defined-only", "--format=posix"])
        .arg(library("so"));
    let listed = succeeds(&mut command);
    let exported: BTreeSet<String> = listed
        .lines()
        .filter_map(|line| line.split(' ').next())
        .map(|name| name.split('@').next().unwrap_or(name).to_string())
        .filter(|name| name != "rust_eh_personality")
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
            eprint!("{}", succeeds(&mut Command::new(&program)));
            under_valgrind(&program);
        }
        if let Some(program) = sanitized(&format!("{name}-asan"), &sources) {
            succeeds(&mut Command::new(program));
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
            let stem = page.replace(['/', '.'], "-");
            let source = place(&format!("{stem}-{nth}.c"));
            fs::write(&source, snippet).unwrap();
            if let Some(program) = compiled(&format!("{stem}-{nth}"), &[source], &[]) {
                eprint!("{}", succeeds(&mut Command::new(program)));
            }
        }
    }
    assert!(nr_found >= 2, "{nr_found} snippets");
}
