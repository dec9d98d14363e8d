//! Installs headers, libraries, and the files for pkg-config and CMake.
//!
//! This links the shared libraries from the static ones, because Cargo cannot assign versions to
//! symbols or give a library two names.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use super::{PACKAGE, PRELOAD, cargo};
use crate::report::{Failure, data};
use crate::workspace::{Workspace, status};

const HEADERS: &str = "crates/capi/include/afterwork";
/// The soname of the shared library, which must match `crates/capi/build.rs`.
const SONAME: &str = "libafterwork.so.0";
const VERSIONS: &str = "crates/capi/afterwork.map";
/// The sonames of the preloaded library, which are those of liburcu.
const PRELOADED: &[&str] = &["liburcu.so.8", "liburcu-memb.so.8"];
const PRELOADED_SYMBOLS: &str = "crates/preload/liburcu.map";
/// The names by which programs ask pkg-config for liburcu. Their files are in a separate folder. A
/// program finds them only if it names this folder.
pub const URCU: &[&str] =
    &["liburcu", "liburcu-memb", "liburcu-mb", "liburcu-signal", "liburcu-bp", "liburcu-qsbr"];
pub const URCU_FOLDER: &str = "afterwork/pkgconfig";
/// The liburcu release whose functions the library provides.
const URCU_VERSION: &str = "0.14.0";
/// The file that lists all installed files. Its path is relative to the folder of libraries.
const LIST: &str = "afterwork/files";
/// The libraries that a program needs in addition to the static library. `cc` adds the unwinding
/// support.
const PRIVATE: &str = "-lpthread -ldl -lm";
/// The libraries that a static library of Rust needs.
const SYSTEM: &[&str] = &["-lgcc_s", "-lpthread", "-ldl", "-lm"];

#[derive(Debug)]
pub struct Plan<'a> {
    /// The folder in which the files will be used. If `DESTDIR` is set, they are written below it.
    pub prefix: &'a Path,
    /// The folder of libraries below the prefix.
    pub libraries: &'a str,
    /// `true` if the library must end the process at each misuse, and keep its debug information.
    pub debug: bool,
}

impl<'a> Plan<'a> {
    pub fn of(prefix: &'a Path) -> Self {
        Self { prefix, libraries: "lib", debug: false }
    }
}

struct Installed {
    root: PathBuf,
    names: Vec<String>,
}

impl Installed {
    /// Returns the path of a file, and creates its folder.
    fn place(&mut self, name: &str) -> Result<PathBuf, Failure> {
        let to = self.root.join(name);
        let parent = to.parent().unwrap_or(&to);
        fs::create_dir_all(parent).map_err(failed(parent))?;
        // The old file may be a link, or may be mapped by a running program.
        let _ = fs::remove_file(&to);
        self.names.push(name.to_string());
        Ok(to)
    }

    fn write(&mut self, name: &str, bytes: &[u8]) -> Result<(), Failure> {
        let to = self.place(name)?;
        fs::write(&to, bytes).map_err(failed(&to))
    }
}

/// Returns the folder below which the files of `prefix` are written.
fn root(prefix: &Path) -> Result<PathBuf, Failure> {
    let prefix = std::path::absolute(prefix).map_err(failed(prefix))?;
    let staged = env::var_os("DESTDIR").filter(|staged| !staged.is_empty());
    Ok(match staged {
        Some(staged) => {
            let below = prefix.strip_prefix("/").unwrap_or(&prefix);
            let staged = Path::new(&staged).join(below);
            std::path::absolute(&staged).map_err(failed(&staged))?
        }
        None => prefix,
    })
}

/// Installs according to the plan. Returns `false` if Cargo failed and printed the reason.
pub fn into(workspace: &Workspace, plan: &Plan<'_>) -> Result<bool, Failure> {
    let (profile, folder): (&[&str], _) = match plan.debug {
        true => (&[], "debug"),
        false => (&["--release"], "release"),
    };
    let build = [&["build", "-p", PACKAGE, "-p", PRELOAD], profile].concat();
    if !cargo(workspace, &build)? {
        return Ok(false);
    }
    let metadata = workspace.metadata()?;
    let package = metadata.packages.iter().find(|it| it.name == PACKAGE);
    let version = &package
        .ok_or_else(|| Failure::new(format!("the workspace has no package {PACKAGE}")))?
        .version;
    let builds = metadata.target_directory.join(folder);
    let prefix = std::path::absolute(plan.prefix).map_err(failed(plan.prefix))?;
    let libraries = plan.libraries.trim_matches('/');
    let mut installed = Installed { root: root(plan.prefix)?, names: Vec::new() };
    for (header, text) in workspace.texts(|file| file.starts_with(HEADERS))? {
        let name = &header[HEADERS.len()..];
        installed.write(&format!("include/afterwork{name}"), text.as_bytes())?;
    }
    let archive = builds.join("libafterwork_capi.a");
    let to = installed.place(&format!("{libraries}/libafterwork.a"))?;
    fs::copy(&archive, &to).map_err(failed(&archive))?;
    if !plan.debug {
        strip(workspace, &to);
    }
    let to = installed.place(&format!("{libraries}/{SONAME}"))?;
    link(workspace, &archive, SONAME, VERSIONS, &to, plan.debug)?;
    let short = installed.place(&format!("{libraries}/libafterwork.so"))?;
    std::os::unix::fs::symlink(SONAME, &short).map_err(failed(&short))?;
    for name in PRELOADED {
        let archive = builds.join("libafterwork_preload.a");
        let to = installed.place(&format!("{libraries}/afterwork/preload/{name}"))?;
        let symbols = PRELOADED_SYMBOLS;
        link(workspace, &archive, name, symbols, &to, plan.debug)?;
    }
    let folder = "cmake/afterwork/afterworkConfig";
    let cmakes = [
        (format!("{folder}.cmake"), cmake(libraries)),
        (format!("{folder}Version.cmake"), cmake_version(version)),
    ];
    for (name, text) in pkg_configs(&prefix, libraries, version).into_iter().chain(cmakes) {
        installed.write(&format!("{libraries}/{name}"), text.as_bytes())?;
    }
    let list = format!("{libraries}/{LIST}");
    installed.names.push(list.clone());
    installed.names.sort();
    let text = installed.names.join("\n") + "\n";
    fs::write(installed.root.join(&list), text).map_err(failed(&installed.root.join(&list)))?;
    data(&format!(
        "capi: installed into {}: {} files, listed in {list}\n",
        installed.root.display(),
        installed.names.len()
    ));
    Ok(true)
}

/// Removes the files that `into` installed with the same plan, and the folders that are then empty.
pub fn remove(prefix: &Path, libraries: &str) -> Result<(), Failure> {
    let root = root(prefix)?;
    let list = root.join(libraries.trim_matches('/')).join(LIST);
    let names = fs::read_to_string(&list).map_err(failed(&list))?;
    let names: Vec<&str> = names.lines().collect();
    for name in &names {
        let path = root.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(&path)(error)),
            _ => {}
        }
        // This removes folders up to the first one that has other contents.
        let folders = path.ancestors().skip(1).take_while(|it| *it != root);
        for folder in folders {
            if fs::remove_dir(folder).is_err() {
                break;
            }
        }
    }
    data(&format!("capi: removed {} files from {}\n", names.len(), root.display()));
    Ok(())
}

/// Removes the debug information from an archive, if `strip` is available.
fn strip(workspace: &Workspace, archive: &Path) {
    let mut command = workspace.command("strip");
    let done = command.arg("--strip-debug").arg(archive).status();
    if !done.is_ok_and(|status| status.success()) {
        eprintln!("capi: cannot strip {}: it keeps its debug information", archive.display());
    }
}

fn link(
    workspace: &Workspace,
    archive: &Path,
    name: &str,
    symbols: &str,
    to: &Path,
    debug: bool,
) -> Result<(), Failure> {
    let mut command: Command = workspace.command("cc");
    command
        .args(["-shared", "-o"])
        .arg(to)
        .arg("-Wl,--whole-archive")
        .arg(archive)
        .args(["-Wl,--no-whole-archive", "-Wl,--gc-sections"])
        // The library must never be unloaded, because its threads keep running. Cargo uses the
        // other options as well.
        .args(["-Wl,-z,nodelete", "-Wl,-z,relro,-z,now", "-Wl,--as-needed"])
        .arg(format!("-Wl,-soname,{name}"))
        .arg(format!("-Wl,--version-script={symbols}"));
    if !debug {
        // A debugger then shows the frames inside the library as addresses, except for exports.
        command.arg("-Wl,--strip-all");
    }
    match status(command.args(SYSTEM))?.success() {
        true => Ok(()),
        false => Err(Failure::new(format!("cannot link {}", to.display()))),
    }
}

fn failed(path: &Path) -> impl Fn(std::io::Error) -> Failure {
    Failure::because(path.display())
}

/// Returns the files for pkg-config: names relative to the folder of the libraries, and contents.
fn pkg_configs(prefix: &Path, libraries: &str, version: &str) -> Vec<(String, String)> {
    let libs = format!("Libs: -L${{libdir}} -lafterwork\nLibs.private: {PRIVATE}");
    let file = |folder: &str, name: &str, [about, version, flags, needs]: [&str; 4]| {
        let text = format!(
            "prefix={}
includedir=${{prefix}}/include
libdir=${{prefix}}/{libraries}

Name: {name}
Description: {about}
Version: {version}
Cflags: {flags}
{needs}
",
            prefix.display()
        );
        (format!("{folder}/{name}.pc"), text)
    };
    let about = "Deferred work by the rules of the Linux kernel: workqueues, RCU, SRCU";
    let ours = [about, version, "-I${includedir}", &libs];
    // `afterwork-urcu` is for programs that include liburcu's headers by liburcu's names.
    let flags = "-I${includedir}/afterwork/liburcu";
    let headers = ["liburcu's headers, over afterwork", version, flags, "Requires: afterwork"];
    // The packages `URCU` are for programs that ask for liburcu. They refer to no other file.
    let flags = format!("{flags} -I${{includedir}}");
    let as_urcu = ["liburcu's functions, over afterwork", URCU_VERSION, &flags, &libs];
    let mut files =
        vec![file("pkgconfig", "afterwork", ours), file("pkgconfig", "afterwork-urcu", headers)];
    files.extend(URCU.iter().map(|name| file(URCU_FOLDER, name, as_urcu)));
    files
}

/// Returns the file for CMake's `find_package`. Its paths are relative, so that the folder can be
/// moved.
fn cmake(libraries: &str) -> String {
    // The path from the folder of this file to the prefix.
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

/// Returns CMake's version file. Below 1.0, each minor version is a different interface.
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
    fn pkg_config_files_have_prefix_version_headers_and_libraries() {
        let files = pkg_configs(Path::new("/opt/aw"), "lib/x", "1.2.3");
        let libs = "Libs: -L${libdir} -lafterwork\nLibs.private: -lpthread -ldl -lm\n";
        for (name, version, needs) in [
            ("pkgconfig/afterwork", "1.2.3\nCflags: -I${includedir}", libs),
            (
                "pkgconfig/afterwork-urcu",
                "1.2.3\nCflags: -I${includedir}/afterwork/liburcu",
                "Requires: afterwork\n",
            ),
            (
                "afterwork/pkgconfig/liburcu-mb",
                "0.14.0\nCflags: -I${includedir}/afterwork/liburcu -I${includedir}",
                libs,
            ),
        ] {
            let (_, text) = files.iter().find(|it| it.0 == format!("{name}.pc")).unwrap();
            assert!(text.starts_with("prefix=/opt/aw\n") && text.contains("${prefix}/lib/x\n"));
            assert!(text.contains(&format!("\nName: {}\n", name.rsplit('/').next().unwrap())));
            assert!(text.ends_with(&format!("\nVersion: {version}\n{needs}")), "{text}");
        }
    }

    #[test]
    fn an_uninstall_removes_only_listed_files_and_empty_folders() {
        let name = format!("afterwork-uninstall-{}", std::process::id());
        let root = env::temp_dir().join(name);
        let mut installed = Installed { root: root.clone(), names: Vec::new() };
        for name in ["include/afterwork/a.h", "lib/x/libafterwork.a"] {
            installed.write(name, b"ours").unwrap();
        }
        fs::write(root.join("lib/x/other"), "theirs").unwrap();
        let list = format!("lib/x/{LIST}");
        let names = installed.names.join("\n") + "\n" + &list + "\n";
        installed.write(&list, names.as_bytes()).unwrap();
        remove(&root, "lib/x").unwrap();
        assert!(!root.join("include").exists() && !root.join("lib/x/afterwork").exists());
        assert!(!root.join("lib/x/libafterwork.a").exists());
        assert!(root.join("lib/x/other").exists());
        assert!(remove(&root, "lib/x").is_err(), "nothing is listed");
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn cmake_finds_the_prefix_from_any_folder_of_libraries() {
        assert!(cmake("lib").contains("LIST_DIR}/../../..\""));
        assert!(cmake("lib/x86_64-linux-gnu").contains("LIST_DIR}/../../../..\""));
    }
}
