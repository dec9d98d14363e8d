//! The command `afterwork`: see `afterwork --help`.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    afterwork_top::main()
}
