//! Passes the commit and the compiler of the build to the program, which reports them.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // This file grows with each change of the checked-out commit. It does not exist outside a git
    // checkout.
    if let Some(log) = answer("git", &["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
    let commit = answer("git", &["rev-parse", "--short=12", "HEAD"]).map(|commit| {
        let changed = answer("git", &["status", "--porcelain", "--untracked-files=no"]).is_some();
        if changed { format!("{commit}+changes") } else { commit }
    });
    let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    set("AFTERWORK_COMMIT", commit);
    set("AFTERWORK_RUSTC", answer(&rustc, &["--version"]));
    set("AFTERWORK_PROFILE", env::var("PROFILE").ok());
    set("AFTERWORK_OPT_LEVEL", env::var("OPT_LEVEL").ok());
}

fn set(name: &str, value: Option<String>) {
    println!("cargo::rustc-env={name}={}", value.unwrap_or_default());
}

/// Returns the output of `program`, or `None` if it failed, could not start, or printed nothing.
fn answer(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let text = text.trim();
    (output.status.success() && !text.is_empty()).then(|| text.to_owned())
}
