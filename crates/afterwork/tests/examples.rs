//! Runs the examples under a small load. They check their own results.
#![cfg(not(any(loom, shuttle)))]
#![allow(dead_code, reason = "a `main` is for the command line")]

#[path = "../examples/cache.rs"]
mod cache;
#[path = "../examples/executor.rs"]
mod executor;
#[path = "../examples/hyper_server.rs"]
mod hyper_server;
#[path = "../examples/job_runner.rs"]
mod job_runner;
#[path = "../examples/kernel_port.rs"]
mod kernel_port;
#[path = "../examples/log_shipper.rs"]
mod log_shipper;
#[path = "../examples/lsm/main.rs"]
mod lsm;
#[path = "../examples/mio_loop.rs"]
mod mio_loop;
#[path = "../examples/service.rs"]
mod service;
#[path = "../examples/tenants.rs"]
mod tenants;

use std::time::Duration;

macro_rules! examples {
    ($(fn $claim:ident() = $run:expr;)*) => {
        $(#[test] fn $claim() { $run.unwrap(); })*
    };
}

examples! {
    fn a_cache_keeps_its_limit_and_frees_its_entries() = cache::main();
    fn tasks_need_no_other_runtime() = executor::run(500);
    fn a_queue_serves_http_and_every_request_is_answered() = hyper_server::run(16, 50);
    fn a_driver_loses_no_packet_and_ends_in_order() = kernel_port::run(20_000, 2);
    fn engine_keeps_every_key_and_frees_files_after_their_readers() = lsm::run(6000, 3);
    fn event_loop_gets_all_answers_from_its_mailbox() = mio_loop::run(16, 50);
    fn jobs_are_limited_retried_recorded_and_cancelled() = job_runner::main();
    fn every_line_of_a_log_is_shipped_once_and_in_time() = log_shipper::main();
    fn a_service_sheds_expires_cancels_and_ends() = service::run(Duration::from_millis(100));
    fn tenants_are_answered_during_a_flood_and_keep_their_ceilings() = tenants::run(50, 500);
}
