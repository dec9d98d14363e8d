//! Builds and runs the examples with the installed library, as users do.
//!
//! Each available compiler builds each example: with pkg-config and with CMake for the shared
//! library, and with CMake for the static library. Missing tools are reported and skipped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use super::install::{URCU, URCU_FOLDER};
use crate::report::{Failure, data};
use crate::workspace::Workspace;

const COMPILERS: &[(&str, &str)] = &[("gcc", "g++"), ("clang", "clang++")];
const WARNINGS: &[&str] = &["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"];
const IN_CPP: &str = "crates/capi/tests/c/plain.cpp";

pub fn build(workspace: &Workspace, prefix: &Path) -> Result<ExitCode, Failure> {
    let sources = sources(workspace)?;
    let mut nr_built = 0;
    for (c, cpp) in COMPILERS {
        let has = [c, cpp].map(|it| is_there(it));
        let mine: Vec<&PathBuf> =
            sources.iter().filter(|it| has[usize::from(is_cpp(it))]).collect();
        let place = prefix.join("examples").join(c);
        fs::create_dir_all(&place).map_err(Failure::because(place.display()))?;
        if is_there("pkg-config") {
            for source in &mine {
                let compiler = if is_cpp(source) { cpp } else { c };
                by_pkg_config(compiler, source, prefix, &place)?;
                nr_built += 1;
            }
            if has[0] {
                nr_built += by_liburcus_names(workspace, c, prefix, &place)?;
            }
        }
        if has == [true, true] && is_there("cmake") {
            by_cmake(c, cpp, &mine, prefix, &place)?;
            nr_built += 2 * mine.len();
        }
    }
    data(&format!("capi: {nr_built} builds of examples, all run\n"));
    Ok(ExitCode::SUCCESS)
}

/// Builds a program that uses liburcu, once for each name by which pkg-config knows liburcu, and
/// runs it. pkg-config can find no other files during the builds.
fn by_liburcus_names(
    workspace: &Workspace,
    compiler: &str,
    prefix: &Path,
    place: &Path,
) -> Result<usize, Failure> {
    let source = workspace.root().join("crates/capi/tests/urcu/names.c");
    for name in URCU {
        let folder = ("PKG_CONFIG_LIBDIR", prefix.join("lib").join(URCU_FOLDER));
        let how = (compiler, vec!["-std=gnu11", "-O2"], None);
        build_and_run(how, (folder, name), &source, prefix, &place.join(name))?;
    }
    Ok(URCU.len())
}

/// Builds a program with the flags of the package `name`, which pkg-config finds with the variable
/// `folder`, and runs it.
fn build_and_run(
    (compiler, args, library): (&str, Vec<&str>, Option<&str>),
    (folder, name): ((&str, PathBuf), &str),
    source: &Path,
    prefix: &Path,
    program: &Path,
) -> Result<(), Failure> {
    let mut asked = Command::new("pkg-config");
    let flags = run(asked.env(folder.0, folder.1).args(["--cflags", "--libs", name]))?;
    let mut command = Command::new(compiler);
    command.args(args).arg(source).arg("-o").arg(program).args(flags.split_whitespace());
    run(command.args(library))?;
    run(Command::new(program).env("LD_LIBRARY_PATH", prefix.join("lib"))).map(drop)
}

fn sources(workspace: &Workspace) -> Result<Vec<PathBuf>, Failure> {
    let files = workspace.files()?.into_iter();
    let is_one = |file: &String| {
        let name = file.strip_prefix("crates/capi/examples/").unwrap_or("/");
        (name.ends_with(".c") && !name.contains('/')) || file == IN_CPP
    };
    Ok(files.filter(is_one).map(|file| workspace.root().join(file)).collect())
}

fn is_cpp(source: &Path) -> bool {
    source.extension().is_some_and(|it| it == "cpp")
}

fn is_there(program: &str) -> bool {
    let asked =
        Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if asked.is_err() {
        eprintln!("capi: skipped: {program} is missing");
    }
    asked.is_ok()
}

fn stem(source: &Path) -> String {
    let stem = source.file_stem().unwrap_or_default();
    stem.to_string_lossy().into_owned()
}

fn by_pkg_config(
    compiler: &str,
    source: &Path,
    prefix: &Path,
    place: &Path,
) -> Result<(), Failure> {
    let standard = if is_cpp(source) { "-std=c++17" } else { "-std=gnu11" };
    let args = [&[standard, "-O2"], WARNINGS].concat();
    let folder = ("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    let program = place.join(stem(source));
    let how = (compiler, args, Some("-lpthread"));
    build_and_run(how, (folder, "afterwork"), source, prefix, &program)
}

fn by_cmake(
    c: &str,
    cpp: &str,
    sources: &[&PathBuf],
    prefix: &Path,
    place: &Path,
) -> Result<(), Failure> {
    let mut text = "cmake_minimum_required(VERSION 3.16)\nproject(examples C CXX)\n\
        set(CMAKE_C_STANDARD 11)\nset(CMAKE_CXX_STANDARD 17)\nenable_testing()\n\
        find_package(afterwork 0.1 REQUIRED)\n"
        .to_string();
    for source in sources {
        for kind in ["afterwork", "static"] {
            let name = format!("{}-{kind}", stem(source));
            text += &format!(
                "add_executable({name} \"{}\")\ntarget_link_libraries({name} afterwork::{kind})\nadd_test({name} {name})\n",
                source.display()
            );
        }
    }
    let folder = place.join("cmake");
    let build = folder.join("build");
    // This removes the build directory, because another version may have configured it.
    let _ = fs::remove_dir_all(&build);
    fs::create_dir_all(&build)
        .and_then(|()| fs::write(folder.join("CMakeLists.txt"), text))
        .map_err(Failure::because(folder.display()))?;
    let (prefix, flags) = (prefix.display(), WARNINGS.join(" "));
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(&folder).arg("-B").arg(&build).args([
        format!("-DCMAKE_PREFIX_PATH={prefix}"),
        format!("-DCMAKE_C_COMPILER={c}"),
        format!("-DCMAKE_CXX_COMPILER={cpp}"),
        format!("-DCMAKE_C_FLAGS={flags}"),
        format!("-DCMAKE_CXX_FLAGS={flags}"),
    ]);
    run(&mut configure)?;
    run(Command::new("cmake").arg("--build").arg(&build))?;
    run(Command::new("ctest").arg("--output-on-failure").current_dir(&build))?;
    Ok(())
}

fn run(command: &mut Command) -> Result<String, Failure> {
    let output = command.output().map_err(Failure::because(format!("cannot run {command:?}")))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let said = text(&output.stdout) + &text(&output.stderr);
    Err(Failure::new(format!("{command:?}: {said}")))
}
