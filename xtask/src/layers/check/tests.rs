//! Small files in every layer, and what must be found in them.

use super::*;
use crate::source::outline;

fn file(name: &str, text: &str) -> File {
    File {
        name: name.into(),
        place: Place::of(name).unwrap(),
        outline: outline(text).unwrap(),
    }
}

/// Lines of `text`, as file `name`, that break a rule.
fn broken(name: &str, text: &str) -> Vec<u32> {
    check(&[file(name, text)])
        .iter()
        .map(|finding| finding.line)
        .collect()
}

const POOL: &str = "crates/afterwork/src/workqueue/pool.rs";

#[test]
fn places_follow_the_files() {
    let place = |name: &str| Place::of(name).map(|place| place.module.join("::"));
    assert_eq!(place("crates/afterwork/src/lib.rs").as_deref(), Some(""));
    assert_eq!(
        place("crates/afterwork/src/wake/mod.rs").as_deref(),
        Some("wake")
    );
    assert_eq!(
        place("crates/afterwork/src/wake/parker.rs").as_deref(),
        Some("wake::parker")
    );
    assert_eq!(place("crates/afterwork/tests/loom/main.rs"), None);
    assert_eq!(place("xtask/src/main.rs"), None);
}

#[test]
fn a_folder_may_name_what_lies_below() {
    let text =
        "use crate::wake::{Parker, WakeQ};\nuse crate::{params::Params, rcu};\nuse super::Work;";
    assert!(broken("crates/afterwork/src/task_work/wait.rs", text).is_empty());
}

#[test]
fn a_folder_in_a_folder_is_a_layer_of_its_own() {
    let name = "crates/afterwork/src/workqueue/item/head.rs";
    let text = "use super::state;\nuse crate::workqueue::{errands,\n pools::pool};\nuse super::super::queues;";
    assert_eq!(broken(name, text), [3, 4]);
}

#[test]
fn a_folder_may_not_name_what_lies_above() {
    let name = "crates/afterwork/src/wake/parker.rs";
    assert_eq!(broken(name, "\nuse crate::workqueue::Work;"), [2]);
    assert_eq!(broken(name, "use crate::{\n  wake::a,\n  rcu::b,\n};"), [3]);
    assert_eq!(
        broken(name, "fn f() {\n super::super::workqueue::g()\n}"),
        [2]
    );
    assert_eq!(
        broken(name, "mod m {\n use super::super::super::task_work;\n}"),
        [2]
    );
    assert_eq!(
        broken(name, "macro_rules! m { () => {\n $crate::rcu::f() } }"),
        [2]
    );
}

#[test]
fn comments_and_strings_name_nothing() {
    let text = "//! See crate::workqueue.\n/// [`crate::rcu`] std::thread\nconst A: &str = \"std::sync::Arc\";";
    assert!(broken("crates/afterwork/src/wake/parker.rs", text).is_empty());
}

#[test]
fn the_roots_re_exports_are_no_way_around() {
    assert_eq!(
        broken(
            "crates/afterwork/src/wake/parker.rs",
            "use crate::Workqueue;"
        ),
        [1]
    );
    assert_eq!(
        broken(
            "crates/afterwork/src/wake/parker.rs",
            "fn f() -> crate::Work { g() }"
        ),
        [1]
    );
    assert!(broken("crates/afterwork/src/wake/parker.rs", "crate::helper!();").is_empty());
}

#[test]
fn the_root_and_observe_may_name_all() {
    assert!(
        broken(
            "crates/afterwork/src/lib.rs",
            "pub use workqueue::Work; pub use crate::rcu::Guard;"
        )
        .is_empty()
    );
    assert!(
        broken(
            "crates/afterwork/src/observe/mod.rs",
            "use crate::{percpu, workqueue};"
        )
        .is_empty()
    );
}

#[test]
fn a_folder_without_a_layer_is_named() {
    let found = check(&[file("crates/afterwork/src/surprise.rs", "")]);
    assert!(
        found[0].rule.contains("`surprise` has no layer"),
        "{}",
        found[0]
    );
}

#[test]
fn nothing_above_sync_reaches_past_it() {
    assert_eq!(broken(POOL, "use sync::Mutex;\nuse std::sync::Arc;"), [2]);
    assert_eq!(
        broken(
            "crates/mpscq/src/lib.rs",
            "use core::sync::atomic::Ordering;"
        ),
        [1]
    );
    assert_eq!(broken(POOL, "use std::time::{Duration, Instant};"), [1]);
    assert_eq!(
        broken(POOL, "fn f() { let x = std::thread::current(); }"),
        [1]
    );
    assert_eq!(broken(POOL, "thread_local! { static A: u8 = 1; }"), [1]);
    assert!(
        broken(
            POOL,
            "use sync::thread_local;\nthread_local! { static A: u8 = 1; }"
        )
        .is_empty()
    );
    assert!(broken(POOL, "sync::thread_local! { static A: u8 = 1; }").is_empty());
}

#[test]
fn what_lies_below_sync_or_measures_is_free() {
    let text = "use std::sync::Arc; use std::time::Instant; use std::thread;";
    assert!(broken("crates/topology/src/lib.rs", text).is_empty());
    assert!(broken("crates/sync/src/lock.rs", text).is_empty());
    assert!(broken("crates/lab/src/main.rs", text).is_empty());
}

#[test]
fn unit_tests_may_start_threads_but_read_no_clock() {
    let tests = "mod tests {\nuse std::sync::Arc;\nuse std::thread;\nuse std::time::Instant;\n}";
    assert_eq!(broken(POOL, &format!("#[cfg(test)]\n{tests}")), [5]);
    assert_eq!(
        broken(POOL, &format!("#[cfg(not(test))]\n{tests}")),
        [3, 4, 5]
    );
}

#[test]
fn a_test_module_in_its_own_file_is_test_code() {
    let parent = file(POOL, "#[cfg(test)]\nmod tests;");
    let child = file(
        "crates/afterwork/src/workqueue/pool/tests.rs",
        "use std::thread;",
    );
    assert_eq!(check(&[parent, child]).len(), 0);
    let parent = file(POOL, "mod tests;");
    let child = file(
        "crates/afterwork/src/workqueue/pool/tests.rs",
        "use std::thread;",
    );
    assert_eq!(check(&[parent, child]).len(), 1);
}

#[test]
fn a_crate_may_not_name_one_above_it() {
    assert_eq!(
        broken("crates/sync/src/lib.rs", "use afterwork::wake;"),
        [1]
    );
    assert_eq!(
        broken(
            "crates/topology/src/lib.rs",
            "fn f() { sync::hint::spin_loop() }"
        ),
        [1]
    );
    assert!(
        broken(
            "crates/topology/src/lib.rs",
            "use std::sync; fn f() { sync::f() }"
        )
        .is_empty()
    );
    assert!(broken("crates/sync/src/cpu.rs", "use topology::CpuId;").is_empty());
    assert!(broken("crates/lab/src/main.rs", "use afterwork::Workqueue;").is_empty());
}
