//! Names the shared library, and prevents it from being unloaded, because its threads keep running.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libafterwork.so.0");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
