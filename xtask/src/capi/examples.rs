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
                let (compiler, standard) =
                    if is_cpp(source) { (cpp, "-std=c++17") } else { (c, "-std=gnu11") };
                let package = ("PKG_CONFIG_PATH", "pkgconfig", "afterwork");
                let options = [&[standard, "-lpthread"], WARNINGS].concat();
                let program = place.join(stem(source));
                by_pkg_config(compiler, &options, package, source, prefix, &program)?;
                nr_built += 1;
            }
            // A program that uses liburcu is built once for each name by which pkg-config knows
            // liburcu. pkg-config can find no other files during these builds.
            let source = workspace.root().join("crates/capi/tests/urcu/names.c");
            for name in URCU.iter().filter(|_| has[0]) {
                let package = ("PKG_CONFIG_LIBDIR", URCU_FOLDER, *name);
                by_pkg_config(c, &["-std=gnu11"], package, &source, prefix, &place.join(name))?;
                nr_built += 1;
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

/// Builds a program with the flags of a package and with `options`, and runs it. The environment
/// variable `variable` makes pkg-config look for the package in `folder`, which is below the folder
/// of the libraries.
fn by_pkg_config(
    compiler: &str,
    options: &[&str],
    (variable, folder, package): (&str, &str, &str),
    source: &Path,
    prefix: &Path,
    program: &Path,
) -> Result<(), Failure> {
    let libraries = prefix.join("lib");
    let mut asked = Command::new("pkg-config");
    asked.env(variable, libraries.join(folder)).args(["--cflags", "--libs", package]);
    let flags = run(&mut asked)?;
    let mut command = Command::new(compiler);
    command.arg("-O2").arg(source).arg("-o").arg(program);
    run(command.args(flags.split_whitespace()).args(options))?;
    run(Command::new(program).env("LD_LIBRARY_PATH", libraries)).map(drop)
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
