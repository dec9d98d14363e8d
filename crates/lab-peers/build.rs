//! Compiles the shim of liburcu where its headers are installed; says `cfg(liburcu)` then.
//!
//! The read side of that library is inlined from its headers, as its users' is: called as functions it would cost ten
//! times as much. So a C compiler has to see it.

/// Flavors, each a file of the shim and a library.
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
    // Without the headers, or without a compiler, the lab does without.
    if compiled.is_ok() {
        println!("cargo::rustc-cfg=liburcu");
        for flavor in FLAVORS {
            println!("cargo::rustc-link-lib=urcu-{flavor}");
        }
        println!("cargo::rustc-link-lib=urcu-common");
    }
}
