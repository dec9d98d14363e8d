//! Puts headers, libraries, and what pkg-config and CMake read, where they belong.
//!
//! The shared libraries are linked here, from what Cargo makes the static ones of: Cargo has no way to give symbols a version,
//! nor one library two names.

use std::{fs, path::Path, process::Command};

use super::{PACKAGE, PRELOAD, cargo};
use crate::report::{Failure, data};
use crate::workspace::Workspace;

const HEADERS: &str = "crates/capi/include/afterwork";
/// What the shared library calls itself; `crates/capi/build.rs` says the same.
const SONAME: &str = "libafterwork.so.0";
const VERSIONS: &str = "crates/capi/afterwork.map";
/// What the library that is preloaded calls itself: the names by which programs ask for liburcu.
const PRELOADED: &[&str] = &["liburcu.so.8", "liburcu-memb.so.8"];
const PRELOADED_SYMBOLS: &str = "crates/preload/liburcu.map";
/// What a static library of Rust's needs.
const SYSTEM: &[&str] = &["-lgcc_s", "-lpthread", "-ldl", "-lm"];

/// Installs below `folder`, libraries into its folder `libraries`; false if Cargo, which has said so, failed.
pub fn into(workspace: &Workspace, folder: &Path, libraries: &str) -> Result<bool, Failure> {
    if !cargo(
        workspace,
        &["build", "--release", "-p", PACKAGE, "-p", PRELOAD],
    )? {
        return Ok(false);
    }
    let metadata = workspace.metadata(false)?;
    let package = metadata.packages.iter().find(|it| it.name == PACKAGE);
    let package = package.ok_or_else(|| Failure::new(format!("{PACKAGE} is no package here")))?;
    let builds = metadata.target_directory.join("release");
    let prefix = std::path::absolute(folder).map_err(|error| failed(folder, &error))?;
    let library = prefix.join(libraries);
    for header in workspace.files()? {
        if let Some(name) = header.strip_prefix(HEADERS) {
            let to = prefix.join(format!("include/afterwork{name}"));
            let text = workspace.text(&header)?.unwrap_or_default();
            write(&to, text.as_bytes())?;
        }
    }
    let archive = builds.join("libafterwork_capi.a");
    let bytes = fs::read(&archive).map_err(|error| failed(&archive, &error))?;
    write(&library.join("libafterwork.a"), &bytes)?;
    link(workspace, &archive, SONAME, VERSIONS, &library.join(SONAME))?;
    let short = library.join("libafterwork.so");
    // One that is there already may lead elsewhere.
    let _ = fs::remove_file(&short);
    std::os::unix::fs::symlink(SONAME, &short).map_err(|error| failed(&short, &error))?;
    for name in PRELOADED {
        let archive = builds.join("libafterwork_preload.a");
        let to = library.join("afterwork/preload").join(name);
        link(workspace, &archive, name, PRELOADED_SYMBOLS, &to)?;
    }
    let texts = [
        (
            "pkgconfig/afterwork.pc",
            pkg_config(&prefix, libraries, &package.version),
        ),
        (
            "pkgconfig/afterwork-urcu.pc",
            pkg_config_of_urcu(&prefix, &package.version),
        ),
        ("cmake/afterwork/afterworkConfig.cmake", cmake(libraries)),
        (
            "cmake/afterwork/afterworkConfigVersion.cmake",
            cmake_version(&package.version),
        ),
    ];
    for (name, text) in texts {
        write(&library.join(name), text.as_bytes())?;
    }
    data(&format!("capi: installed into {}\n", prefix.display()));
    Ok(true)
}

/// Makes a shared library of a static one.
fn link(
    workspace: &Workspace,
    archive: &Path,
    name: &str,
    symbols: &str,
    to: &Path,
) -> Result<(), Failure> {
    let parent = to.parent().unwrap_or(to);
    fs::create_dir_all(parent).map_err(|error| failed(parent, &error))?;
    let mut command: Command = workspace.command("cc");
    command
        .args(["-shared", "-o"])
        .arg(to)
        .arg("-Wl,--whole-archive")
        .arg(archive)
        .args(["-Wl,--no-whole-archive", "-Wl,--gc-sections"])
        // Its threads run on, so it is never unloaded. The rest as Cargo links.
        .args(["-Wl,-z,nodelete", "-Wl,-z,relro,-z,now", "-Wl,--as-needed"])
        .arg(format!("-Wl,-soname,{name}"))
        .arg(format!("-Wl,--version-script={symbols}"))
        .args(SYSTEM);
    let status = command
        .status()
        .map_err(|error| Failure::new(format!("cannot run cc: {error}")))?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure::new(format!("cannot link {}", to.display())))
    }
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
fn pkg_config(prefix: &Path, libraries: &str, version: &str) -> String {
    format!(
        "prefix={}
includedir=${{prefix}}/include
libdir=${{prefix}}/{libraries}

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

/// Returns what pkg-config is to know of programs that include liburcu's headers by liburcu's names.
fn pkg_config_of_urcu(prefix: &Path, version: &str) -> String {
    format!(
        "prefix={}
includedir=${{prefix}}/include

Name: afterwork-urcu
Description: liburcu's headers, over afterwork
Version: {version}
Requires: afterwork
Cflags: -I${{includedir}}/afterwork/liburcu
",
        prefix.display()
    )
}

/// Returns what CMake's `find_package` reads. It finds itself: the whole folder may be moved.
fn cmake(libraries: &str) -> String {
    // From the folder of this file up to the prefix.
    let up = "/..".repeat(libraries.split('/').filter(|part| !part.is_empty()).count() + 2);
    format!(
        "# afterwork::afterwork, shared, and afterwork::static
get_filename_component(_afterwork_prefix \"${{CMAKE_CURRENT_LIST_DIR}}{up}\" ABSOLUTE)
find_package(Threads REQUIRED)
foreach(_afterwork_kind afterwork static)
  if(TARGET afterwork::${{_afterwork_kind}})
    continue()
  endif()
  if(_afterwork_kind STREQUAL static)
    add_library(afterwork::static STATIC IMPORTED)
    set_target_properties(afterwork::static PROPERTIES
      IMPORTED_LOCATION \"${{_afterwork_prefix}}/{libraries}/libafterwork.a\"
      INTERFACE_LINK_LIBRARIES \"Threads::Threads;${{CMAKE_DL_LIBS}};m\")
  else()
    add_library(afterwork::afterwork SHARED IMPORTED)
    set_target_properties(afterwork::afterwork PROPERTIES
      IMPORTED_LOCATION \"${{_afterwork_prefix}}/{libraries}/{SONAME}\"
      IMPORTED_SONAME {SONAME}
      INTERFACE_LINK_LIBRARIES Threads::Threads)
  endif()
  set_target_properties(afterwork::${{_afterwork_kind}} PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES \"${{_afterwork_prefix}}/include\")
endforeach()
"
    )
}

/// Returns what CMake asks for a version: below 1.0 each minor version is another interface.
fn cmake_version(version: &str) -> String {
    format!(
        "set(PACKAGE_VERSION {version})
string(REGEX MATCH \"^[0-9]+[.][0-9]+\" _afterwork_have \"${{PACKAGE_VERSION}}\")
string(REGEX MATCH \"^[0-9]+[.][0-9]+\" _afterwork_want \"${{PACKAGE_FIND_VERSION}}\")
if(_afterwork_have STREQUAL _afterwork_want AND NOT PACKAGE_VERSION VERSION_LESS PACKAGE_FIND_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
if(PACKAGE_VERSION VERSION_EQUAL PACKAGE_FIND_VERSION)
  set(PACKAGE_VERSION_EXACT TRUE)
endif()
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pkg_config_is_told_names_the_place() {
        let text = pkg_config(Path::new("/opt/aw"), "lib/x", "1.2.3");
        assert!(text.starts_with("prefix=/opt/aw\n") && text.contains("\nVersion: 1.2.3\n"));
        assert!(text.contains("-L${libdir} -lafterwork\n") && text.contains("${prefix}/lib/x\n"));
    }

    #[test]
    fn cmake_finds_the_prefix_from_any_folder_of_libraries() {
        assert!(cmake("lib").contains("LIST_DIR}/../../..\""));
        assert!(cmake("lib/x86_64-linux-gnu").contains("LIST_DIR}/../../../..\""));
    }
}
