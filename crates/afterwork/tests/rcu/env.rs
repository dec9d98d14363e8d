//! Tunables from the environment.

use crate::*;

const UNKNOWN: &str = "unknown key \"rcu.bost\"; did you mean rcu.boost?";

/// Runs the test with the function path `inside` in its own process, and returns that process's
/// stderr. Returns `None` there.
pub fn alone(inside: &str, text: &str) -> Option<String> {
    if children::mode().is_some() {
        return None;
    }
    let test = inside.split_once("::").and_then(|it| it.1.rsplit_once("::"));
    let test = test.unwrap().0;
    let output = children::this_test(test, "alone").env("AFTERWORK", text).output().unwrap();
    assert!(output.status.success(), "{test} alone: {output:?}");
    Some(String::from_utf8(output.stderr).unwrap())
}

#[test]
fn environment_configures_grace_periods() {
    let text = "rcu.boost=off,rcu.jiffies_till_first_fqs=1,rcu.stall_timeout=77";
    run_alone!(text);
    let start = std::time::Instant::now();
    rcu::synchronize();
    assert!(start.elapsed() >= std::time::Duration::from_millis(1));
    let from_env =
        Tunables { boost: false, first_fqs_ms: 1, stall_timeout_ms: 77, ..Tunables::default() };
    assert_eq!(rcu::tunables(), from_env);
    rcu::set_tunables(Tunables::default());
    assert_eq!(rcu::tunables(), Tunables::default());
}

#[test]
fn a_wrong_strict_environment_is_reported_and_changes_nothing() {
    run_alone!("strict,rcu.stall_timeout=77,rcu.bost=off", UNKNOWN, 1);
    rcu::synchronize();
    rcu::synchronize();
    assert_eq!(rcu::tunables(), Tunables::default());
}

#[test]
fn a_wrong_environment_is_reported_once_and_the_rest_counts() {
    run_alone!("rcu.stall_timeout=77,rcu.bost=off", &format!("AFTERWORK: {UNKNOWN}"), 1);
    rcu::synchronize();
    let from_env = Tunables { stall_timeout_ms: 77, ..Tunables::default() };
    assert_eq!(rcu::tunables(), from_env);
    afterwork::workqueue::system().unwrap();
}

#[test]
fn wrong_environment_without_stderr_changes_nothing() {
    let texts = ["rcu.bost=off", "strict,rcu.bost=off"];
    if texts.iter().all(|text| alone!(text).is_some()) {
        return;
    }
    // Every write to this file fails.
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    // SAFETY: both descriptors are open, and nothing else uses the one that is replaced.
    assert_eq!(unsafe { libc::dup2(full.as_raw_fd(), 2) }, 2);
    rcu::call(|| ());
    rcu::barrier();
    assert_eq!(rcu::tunables(), Tunables::default());
}
