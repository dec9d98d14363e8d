//! The command `afterwork-lab`: see `afterwork-lab --help`.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    afterwork_lab::main()
}
