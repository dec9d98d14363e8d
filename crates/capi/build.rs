//! How the shared library calls itself, and that it is never unloaded: its threads run on.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libafterwork.so.0");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
