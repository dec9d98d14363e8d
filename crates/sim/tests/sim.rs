//! Tests the program that simulates scenarios, as `cargo xtask test --only sim` builds it.
#![cfg(sim)]

use std::path::PathBuf;
use std::process::{Command, Output};

fn machine(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../machines").join(name)
}

fn command(args: &str, machine_file: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_afterwork-sim"));
    command.args(args.split_whitespace()).arg("--machine").arg(machine(machine_file));
    command
}

fn sim(args: &str, machine_file: &str) -> Output {
    command(args, machine_file).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the output of a run that succeeds.
fn good(args: &str, machine_file: &str) -> String {
    let output = sim(args, machine_file);
    assert!(output.status.success(), "{args} on {machine_file}: {}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn equal_seeds_give_equal_bytes_and_others_do_not() {
    let once = |scenario: &str, seed: u32, word: &str| {
        let args = format!("{scenario} --cpus 36 --scope system --items 40 --seed {seed}");
        // The variable changes the addresses on the host's stack.
        let output = command(&args, "grace-72.toml").env("WORD", word).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        output.stdout
    };
    for (scenario, nr_runs) in [("one-at-a-time", 10), ("kernel-deferred", 3)] {
        let first = once(scenario, 1, "");
        assert!(!first.is_empty());
        for run in 1..nr_runs {
            let again = once(scenario, 1, &"x".repeat(run * 1000));
            assert_eq!(again, first, "{scenario}, run {run}");
        }
        assert_ne!(once(scenario, 2, ""), first);
    }
}

/// No scenario deadlocks, loops endlessly or panics, on few CPUs and on several nodes.
#[test]
fn every_scenario_ends() {
    let ours = "one-at-a-time handed-over batches max-active fan-out mailbox readers percpu-drain";
    let models = "kernel-under-lock kernel-deferred kernel-bare";
    for scenario in ours.split(' ').chain(models.split(' ')) {
        for (file, cpus) in [("vm-2.toml", 2), ("epyc-256.toml", 64)] {
            let args = format!("--cpus {cpus} --scope cache --items 60 --seed 5 --budget 60");
            let text = good(&format!("{scenario} {args}"), file);
            assert!(text.contains("\"items_per_s\":"), "{text}");
        }
    }
}

/// Two CPUs take turns writing sixteen lines under a lock. Two lines move with the lock if plain
/// accesses are invisible.
#[test]
fn plain_accesses_under_a_lock_move_their_lines() {
    use sync::atomic::AtomicU32;
    use sync::{Mutex, sim, thread};
    use topology::{CpuId, Topology};

    #[repr(align(64))]
    struct Line(u64);
    const NR_LINES: u64 = 16;
    const NR_TURNS: u64 = 1000;
    static LINES: Mutex<[Line; NR_LINES as usize]> =
        Mutex::new([const { Line(0) }; NR_LINES as usize]);
    static TURN: AtomicU32 = AtomicU32::new(0);
    let topology = Topology::synthetic("2 core").unwrap();
    let machine = sim::Machine::new(topology, sim::Costs::example());
    let outcome = sim::run(machine, || {
        let on = |me: u32| {
            move || {
                let here = [CpuId::new(me)].into_iter().collect();
                sync::cpu::set_affinity(None, &here).unwrap();
                for turn in (me..NR_TURNS as u32).step_by(2) {
                    while TURN.load(std::sync::atomic::Ordering::Relaxed) != turn {
                        sync::hint::spin_loop();
                    }
                    LINES.lock().iter_mut().for_each(|line| line.0 += 1);
                    TURN.store(turn + 1, std::sync::atomic::Ordering::Relaxed);
                }
            }
        };
        let threads = [0, 1].map(|me| thread::spawn("by turns", on(me)).unwrap());
        threads.into_iter().for_each(|it| it.join().unwrap());
    });
    let moves = outcome.unwrap().counts.moves / NR_TURNS;
    assert_eq!(moves >= NR_LINES, sim::sees_plain(), "{moves} a turn");
}

const CHECKS: [&str; 12] = [
    "once", "flush", "cancel", "limit", "order", "drain", "delayed", "scope", "mailbox", "rcu",
    "srcu", "percpu",
];

/// Runs all checks on a machine in each of `scopes`, each with its own seed.
fn every_check_holds(file: &str, cpus: u32, scopes: &[&str], items: u32) {
    for check in CHECKS {
        for (seed, scope) in (1..).zip(scopes) {
            let args = format!(
                "check-{check} --cpus {cpus} --scope {scope} --items {items} --seed {seed} --budget 60"
            );
            good(&args, file);
        }
    }
}

#[test]
fn every_check_holds_on_two_cpus() {
    every_check_holds("vm-2.toml", 2, &["cpu", "system", "cache"], 60);
}

#[test]
fn every_check_holds_on_eight_cpus() {
    every_check_holds("guest-8.toml", 8, &["cpu", "system", "cache"], 40);
}

#[test]
fn every_check_holds_on_64_cpus_of_several_caches() {
    every_check_holds("epyc-256.toml", 64, &["cpu", "system", "cache", "cache_shard"], 12);
}

/// A check fails if one line of the shipped code is wrong: it reports a wrong result, or waits
/// forever. Without the bug it succeeds.
#[test]
fn a_check_fails_where_a_bug_is_put_back() {
    let twins = [
        ("flush", "item: completion forgets its sleepers", "deadlock: all threads wait"),
        ("limit", "active: a seat given twice", "deadlock: all threads wait"),
        ("order", "take: forgets the inactive", "deadlock: all threads wait"),
        ("rcu", "rcu: a callback is lost", "callbacks"),
        ("percpu", "percpu: yields without marking it", "calls, and two at once"),
    ];
    for (check, bug, expected) in twins {
        let args = format!("check-{check} --cpus 8 --scope cache --items 40 --seed 2 --budget 60");
        good(&args, "guest-8.toml");
        let output = command(&args, "guest-8.toml").args(["--twin", bug]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{check} passed with: {bug}");
        assert!(said(&output).contains(expected), "{bug}: {}", said(&output));
    }
}

#[test]
fn sweep_has_intervals_a_banner_and_the_contended_lines() {
    let text = good("one-at-a-time --cpus 8 --scope cpu --items 100 --seeds 2", "mesh-512.toml");
    assert!(text.contains("SIMULATED, not measured"), "{text}");
    for part in ["are guesses", "over seeds", "and guesses", ": the rate x ", "a line: ", ".rs:"] {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
}

/// Prints one table with the requested CPUs. Later scenarios show their difference from the first.
#[test]
fn several_scenarios_are_compared() {
    let args = "kernel-under-lock,kernel-deferred,handed-over --cpus 8 --producers 2 --scope cache --items 60 --seeds 2 --no-guesses";
    let text = good(args, "guest-8.toml");
    for part in [
        "\nkernel-under-lock cache ",
        "\nkernel-deferred to kernel-under-lock, cache scope, 8 CPUs:\n  items/s ",
        "\nhanded-over to kernel-under-lock, ",
        " over seeds, ",
        "wq_locked",
        "lock of the kernel's pool: taken ",
    ] {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
    let json = good(&format!("{args} --json"), "guest-8.toml");
    let expected: serde_json::Value = serde_json::from_str(&json).unwrap();
    let rows = expected["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    for row in rows {
        assert_eq!(row["median"]["nr_items"], 120.0, "two producers of 60");
        let is_first = row["scenario"] == "kernel-under-lock";
        let ratio = &row["to_first"]["queued_p95_ns"]["over_seeds"][1];
        assert_eq!(ratio.as_f64().is_none(), is_first, "{row}");
        assert!(row["median"]["queued_p95_ns"].as_f64() > Some(0.0), "{row}");
    }
}

#[test]
fn impossible_runs_are_reported() {
    let cases = [
        ("one-at-a-time --cpus 2000", "1 to 1024", 2),
        ("one-at-a-time --cpus 7,300", "cannot be made of", 2),
        ("two-at-a-time", "unknown scenario", 2),
        ("one-at-a-time --scope galaxy", "unknown scope", 2),
        ("batches --twin x", "--twin needs a check", 2),
        ("batches,readers", "cannot be compared", 2),
        ("batches,handed-over --seed 1", "needs exactly one scenario", 2),
        ("fan-out --producers 2", "does not support --producers", 2),
        ("batches --cpus 8,4 --producers 5", "exceed the number of CPUs", 2),
        ("one-at-a-time --cpus 8 --budget 0", "over the budget", 1),
        ("one-at-a-time --seeds 0", "--seeds must be at least 1", 2),
        ("one-at-a-time --items 0", "--items must be at least 1", 2),
    ];
    for (args, expected, code) in cases {
        let output = sim(args, "epyc-256.toml");
        assert!(said(&output).contains(expected), "{args}: {}", said(&output));
        assert_eq!(output.status.code(), Some(code), "{args}");
    }
    assert!(said(&sim("one-at-a-time", "no-such.toml")).contains("no-such.toml"));
    let output = Command::new(env!("CARGO_BIN_EXE_afterwork-sim")).arg("batches").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("--machine needs a file"), "{}", said(&output));
}
