//! `cargo xtask capi`: the C interface, tested in C, or installed.
//!
//! The tests are a test program of Rust's, `crates/capi/tests/c.rs`, which drives the C compiler: `cargo xtask test` runs it among
//! the integration tests, and this shows what it says.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use crate::report::{Failure, data};
use crate::workspace::Workspace;

const PACKAGE: &str = "afterwork-capi";
const HEADERS: &str = "crates/capi/include/afterwork";
/// What the shared library calls itself; `crates/capi/build.rs` says the same.
const SONAME: &str = "libafterwork.so.0";

/// Runs the tests, or installs into the folder that `args` name.
pub fn main(workspace: &Workspace, args: &[String]) -> Result<ExitCode, Failure> {
    match args {
        [] => cargo(
            workspace,
            &["test", "-p", PACKAGE, "--test", "c", "--", "--nocapture"],
        ),
        [option, folder] if option == "--install" => install(workspace, Path::new(folder)),
        _ => Err(Failure::new(
            "`capi` takes nothing, or `--install DIR`".to_string(),
        )),
    }
}

fn cargo(workspace: &Workspace, args: &[&str]) -> Result<ExitCode, Failure> {
    let status = workspace
        .command("cargo")
        .args(args)
        .status()
        .map_err(|error| Failure::new(format!("cannot run cargo: {error}")))?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn install(workspace: &Workspace, folder: &Path) -> Result<ExitCode, Failure> {
    let built = cargo(workspace, &["build", "--release", "-p", PACKAGE])?;
    if built != ExitCode::SUCCESS {
        return Ok(built);
    }
    let metadata = workspace.metadata(false)?;
    let package = metadata.packages.iter().find(|it| it.name == PACKAGE);
    let package = package.ok_or_else(|| Failure::new(format!("{PACKAGE} is no package here")))?;
    let builds = metadata.target_directory.join("release");
    let prefix = std::path::absolute(folder).map_err(|error| failed(folder, &error))?;
    let library = prefix.join("lib");
    for header in workspace.files()? {
        if let Some(name) = header.strip_prefix(HEADERS) {
            let to = prefix.join(format!("include/afterwork{name}"));
            let text = workspace.text(&header)?.unwrap_or_default();
            write(&to, text.as_bytes())?;
        }
    }
    for (from, to) in [
        ("libafterwork_capi.a", "libafterwork.a"),
        ("libafterwork_capi.so", SONAME),
    ] {
        let bytes =
            fs::read(builds.join(from)).map_err(|error| failed(&builds.join(from), &error))?;
        write(&library.join(to), &bytes)?;
    }
    let link = library.join("libafterwork.so");
    // One that is there already may lead elsewhere.
    let _ = fs::remove_file(&link);
    std::os::unix::fs::symlink(SONAME, &link).map_err(|error| failed(&link, &error))?;
    let described = pkg_config(&prefix, &package.version);
    write(
        &library.join("pkgconfig/afterwork.pc"),
        described.as_bytes(),
    )?;
    data(&format!("capi: installed into {}\n", prefix.display()));
    Ok(ExitCode::SUCCESS)
}

fn write(to: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let parent = to.parent().unwrap_or(to);
    fs::create_dir_all(parent)
        .and_then(|()| fs::write(to, bytes))
        .map_err(|error| failed(to, &error))
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("{}: {error}", path.display()))
}

/// Returns what pkg-config is to know.
fn pkg_config(prefix: &Path, version: &str) -> String {
    format!(
        "prefix={}
includedir=${{prefix}}/include
libdir=${{prefix}}/lib

Name: afterwork
Description: Deferred work by the rules of the Linux kernel: workqueues, RCU, SRCU
Version: {version}
Cflags: -I${{includedir}}
Libs: -L${{libdir}} -lafterwork
Libs.private: -lpthread -ldl -lm
",
        prefix.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pkg_config_is_told_names_the_place() {
        let text = pkg_config(Path::new("/opt/aw"), "1.2.3");
        assert!(text.starts_with("prefix=/opt/aw\n") && text.contains("\nVersion: 1.2.3\n"));
        assert!(text.contains("-L${libdir} -lafterwork\n"));
    }
}
