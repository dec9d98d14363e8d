//! The unit tests on simulated machines: `cargo xtask test --only sim`.

extern crate test;

use sync::sim::{Arena, testing};

#[global_allocator]
static ARENA: Arena = Arena::new();

/// Tests that are left out, by the beginning of their names, and why.
const LEFT_OUT: &[(&str, &str)] = &[
    (
        "page::tests::no_bytes_are_too_strange",
        "one thread, for seconds",
    ),
    (
        "rcu::bag::tests::what_a_thread_hands_over_at_its_very_end_",
        "asks for a thread whose locals are dropped one after the other",
    ),
    (
        "task_work::tests::items_are_dropped_once_when_the_owner_ends_in_the_middle",
        "posts without end until its owner has a turn, for seconds",
    ),
    ("workqueue::item::slab::tests::a_fork_", "forks"),
    (
        "workqueue::pools::manager::tests::a_thread_that_unwinds_ends_the_process",
        "is to end the process",
    ),
];

/// Bugs, and the tests that must fail where they are put back.
const TWINS: &[(&str, &str)] = &[
    (
        "active: a seat given twice",
        "workqueue::limit::active::tests::a_seat_given_back_goes_to_the_first_in_line",
    ),
    (
        "lanes: one is counted",
        "task_work::lanes_tests::a_sleeping_owner_is_woken_by_urgent_posts",
    ),
    (
        "local: cleared after the poll",
        "task_work::local_tests::a_local_future_is_polled_and_dropped_where_its_set_is",
    ),
    (
        "park: no token",
        "wake::parker::tests::a_token_given_early_ends_the_next_park",
    ),
    (
        "raw: a start forgets its waiters",
        "workqueue::raw::tests::a_cancelled_raw_item_may_be_freed_at_once_wherever_it_was",
    ),
    (
        "raw: runs beside itself",
        "workqueue::raw::tests::a_raw_item_that_is_queued_in_its_run_runs_again_after_it_also_from_another_queue",
    ),
    (
        "rcu: a callback is lost",
        "rcu::raw::tests::a_function_of_c_is_called_with_its_head",
    ),
    (
        "reply: given without a wake-up",
        "task_work::reply_tests::every_call_gets_its_own_answer",
    ),
    (
        "room: closing leaves the line asleep",
        "task_work::send_tests::closing_and_dropping_a_mailbox_give_back_what_waits_for_room",
    ),
    (
        "shares: a new link begins as an idle one",
        "workqueue::limit::account::histories::links_get_their_due_however_many_new_ones_come",
    ),
    (
        "srcu: a callback is lost",
        "rcu::srcu::tests::an_awaited_grace_period_waits_for_the_sections_and_wakes_its_task",
    ),
];

/// Runs all, for the compiler's harness.
pub fn main(tests: &[&test::TestDescAndFn]) {
    let tests: Vec<_> = tests.iter().filter_map(|it| test_of(it)).collect();
    testing::main(&tests, LEFT_OUT, TWINS)
}

fn test_of(it: &test::TestDescAndFn) -> Option<testing::Test> {
    let (test::TestName::StaticTestName(name), test::TestFn::StaticTestFn(body)) =
        (&it.desc.name, &it.testfn)
    else {
        return None;
    };
    Some(testing::Test {
        name,
        body: *body,
        panics: it.desc.should_panic != test::ShouldPanic::No,
        twin: None,
    })
}
