//! The command's answers to typical command lines.

#[path = "../../top/tests/support/mod.rs"]
mod support;

use support::{assert_helps, assert_rejected};

const COMMAND: &str = env!("CARGO_BIN_EXE_afterwork-lab");

#[test]
fn introduction_help_and_version_are_data() {
    let words = ["Try:", "afterwork-lab bench --quick", "standard output", "Exit status"];
    assert_helps(COMMAND, "bench", &words);
}

#[test]
fn bad_input_is_reported_in_one_line_with_valid_values() {
    let bad = r#"
        nosuch | ; commands: try, bench, report
        --nosuch | '--nosuch' found; see `afterwork-lab --help`
        report | provided: <RUN>; see `afterwork-lab report --help`
        bench nosuch | benches: workqueue, blocking, mpscq, task-work, rcu, percpu, everyday, groups, scale, max-active
        bench lock-hold | it is a case: afterwork-lab bench --cases lock-hold; benches:
        bench -q | '-q' found; see `afterwork-lab bench --help`
        bench rcu --nosuch | found; see `afterwork-lab bench rcu --help`
        bench workqueue --only 'defered, producers: 1' | --only defered, producers: 1: unknown name; nearest: '
        bench percpu --only parkd | nearest: 'parked';
        bench --cases one-at-a-tim | nearest: 'one-at-a-time';
        bench --cases queues | --cases queues: it is a case of `bench scale`,
        bench --cases flood | --cases flood: it is a case of `bench groups`,
        bench scale --peers nope | --peers nope: unknown name; nearest: 'none';
        bench percpu --only '' | --only '': unknown name
        bench queues | it is a case: afterwork-lab bench scale --cases queues;
        bench rcu --pin | --pin: this bench pins no producers; workqueue, mpscq and everyday do
        bench --seed x | a whole number from 0 to 18446744073709551615
        bench --repeat 0 | from 1 to
        bench --repeat -1 | '-1' for '--repeat <N>': not a whole number from 1 to 10000
        bench rcu --seconds -5 | '-5' for '--seconds <S>': not a whole number
        bench --seconds 0 | from 1 to
        bench workqueue --producers 0 | from 1 to 1024
        bench workqueue --producers many | a whole number from 1 to
        bench workqueue --items 0 | from 1 to
        bench workqueue --only nosuch | crossbeam
        bench workqueue --workers 1025 | from 1 to 1024
        bench workqueue --cases nosuch | one-at-a-time, batch-1000, fan-out, lock-hold
        bench workqueue --peers tokio,nosuch | tokio, rayon, threadpool, crossbeam
        bench workqueue --scope cpu,nosuch | cpu, smt, cache_shard, cache, numa, system
        bench mpscq --items many | a whole number from 1 to
        bench mpscq --cases nosuch | push-pop, push-pop-contiguous, owned
        bench mpscq --peers nosuch | cordyceps
        bench task-work --items 0 | from 1 to 10000000
        bench task-work --cases wake,nosuch | wake, wake-burst, service-8, service-1024
        bench task-work --peers rayon | std, tokio, crossbeam, flume, kanal
        bench task-work --only nosuch | wait-32+cap
        bench seeds --cases nosuch | lock-hold, replace-idle, replace-8-busy, bridge, joins
        bench seeds --peers tokio | --peers tokio: unknown name; valid: none
        bench seeds --against /bin/true | seeds: its tables compare old and new ways of this program
    "#;
    assert_rejected(COMMAND, bad);
}
