//! The environment variable, tested in separate processes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown};

use crate::*;

fn command(test: &str, variable: impl AsRef<OsStr>) -> Command {
    let mut command = this_test(test, "inner");
    command.env("AFTERWORK", variable);
    command
}

/// Runs only `test`, which must succeed. Returns the lines that the library wrote to stderr.
fn lines(command: &mut Command) -> Vec<String> {
    let output: Output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let lines = stderr.lines().filter(|line| line.starts_with("afterwork: "));
    lines.map(str::to_owned).collect()
}

#[test]
fn each_wrong_pair_is_reported_once_and_ignored() {
    const TEST: &str = "environment::each_wrong_pair_is_reported_once_and_ignored";
    if mode().is_some() {
        use_everything();
        assert_eq!(Params::from_env().unwrap().max_active, 5);
        assert_eq!(Registry::global().unwrap().params().max_active, 5);
        assert_eq!(Registry::global().unwrap().params().stall_signal, 0);
        return;
    }
    let _alone = alone();
    // No program can handle SIGKILL.
    let text = b"workqueue.max_active=5,workqueue.max_activ=6,\xff,qpw=x,workqueue.stall_signal=9";
    let lines = lines(&mut command(TEST, OsStr::from_bytes(text)));
    let expected = [
        "did you mean workqueue.max_active?",
        "has no value",
        "qpw=x: expected one of",
        "workqueue.stall_signal=9: expected 0",
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:?}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.contains(expected), "{line}");
        assert!(line.contains("it is ignored"), "{line}");
    }
}

#[test]
fn a_strict_environment_rejects_wrong_pairs() {
    const TEST: &str = "environment::a_strict_environment_rejects_wrong_pairs";
    if mode().is_some() {
        assert!(system().is_err());
        assert!(PerCpu::builder().build(|_| 0).is_err() || Params::from_env().is_ok());
        return;
    }
    let _alone = alone();
    for text in [
        b"strict,workqueue.max_activ=6".as_slice(),
        b"qpw=x,strict",
        b"strict,\xff",
        b"strict,workqueue.stall_signal=9",
    ] {
        let lines = lines(&mut command(TEST, OsStr::from_bytes(text)));
        assert_eq!(lines, [""; 0]);
    }
}

/// A user and a group that own nothing.
const NOBODY: u32 = 65534;

#[test]
fn a_program_with_more_rights_ignores_the_environment() {
    const TEST: &str = "environment::a_program_with_more_rights_ignores_the_environment";
    if mode().is_some() {
        use_everything();
        let found = Params::from_env().unwrap().max_active;
        // SAFETY: the call takes and returns a number.
        let is_marked = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
        println!("marked: {is_marked}, found: {found}");
        return;
    }
    // A child that another test forks would keep the program open for writing.
    let _alone = alone();
    let text = "workqueue.max_active=5,observe.publish=on,bad=1";
    let folder = env::temp_dir().join(format!("aw-secure-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).unwrap();
    let program = folder.join("program");
    let own = command(TEST, text);
    fs::copy(own.get_program(), &program).unwrap();
    let mut outcomes = Vec::new();
    for mode in [0o755, 0o4755, 0o2755] {
        // If this process may not change the owner of files, the mode bits have no effect.
        let given = chown(&program, Some(0), Some(0));
        fs::set_permissions(&program, PermissionsExt::from_mode(mode)).unwrap();
        let mut command = Command::new(&program);
        command
            .args(own.get_args())
            .envs(own.get_envs().map(|(name, value)| (name, value.unwrap())));
        command.current_dir("/");
        if given.is_ok() {
            command.uid(NOBODY).gid(NOBODY);
        }
        outcomes.push((mode, command.output().unwrap()));
    }
    fs::remove_dir_all(&folder).unwrap();
    for (mode, output) in outcomes {
        let out = String::from_utf8_lossy(&output.stdout);
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{mode:o}: {output:?}");
        if mode == 0o755 {
            assert!(out.contains("marked: false, found: 5"), "{out}");
            assert!(err.contains("unknown key \"bad\""), "{err}");
        } else if out.contains("marked: false") {
            eprintln!("skipped: no program of mode {mode:o} has more rights here");
        } else {
            let default = Params::default().max_active;
            assert!(out.contains(&format!("found: {default}")), "{mode:o}: {out}");
            assert!(!err.contains("afterwork: "), "{mode:o}: {err}");
        }
    }
}
