//! Compiles the shim of liburcu if its headers are installed, and sets `cfg(liburcu)`.
//!
//! The read side of liburcu is inlined from its headers, as in the programs of its users, so this
//! needs a C compiler. As function calls, the read side would cost ten times as much.

/// The flavors. Each has a file in the shim and a library.
const FLAVORS: [&str; 4] = ["memb", "qsbr", "mb", "bp"];

fn main() {
    println!("cargo::rustc-check-cfg=cfg(liburcu)");
    println!("cargo::rerun-if-changed=liburcu");
    let files = FLAVORS.map(|flavor| format!("liburcu/{flavor}.c"));
    let compiled = cc::Build::new()
        .files(files)
        .opt_level(2)
        .cargo_metadata(true)
        .cargo_warnings(false)
        .try_compile("aw_liburcu");
    // Without the headers or a compiler, the lab leaves liburcu out.
    if compiled.is_ok() {
        println!("cargo::rustc-cfg=liburcu");
        for flavor in FLAVORS {
            println!("cargo::rustc-link-lib=urcu-{flavor}");
        }
        println!("cargo::rustc-link-lib=urcu-common");
    }
}
