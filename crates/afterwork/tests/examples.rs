//! The examples that check their own results, under a small load.
#![cfg(not(any(loom, shuttle)))]
#![allow(dead_code, reason = "a `main` is for the command line")]

#[path = "../examples/axum_offload/main.rs"]
mod axum_offload;
#[path = "../examples/executor.rs"]
mod executor;
#[path = "../examples/hyper_server.rs"]
mod hyper_server;
#[path = "../examples/kernel_port.rs"]
mod kernel_port;
#[path = "../examples/ledger.rs"]
mod ledger;
#[path = "../examples/lsm/main.rs"]
mod lsm;
#[path = "../examples/mio_loop.rs"]
mod mio_loop;

#[test]
fn server_sheds_expires_and_ends_despite_a_hanging_client() {
    axum_offload::run(2000, 40).unwrap();
}

#[test]
fn tasks_need_no_other_runtime() {
    executor::run(500).unwrap();
}

#[test]
fn a_queue_serves_http_and_every_request_is_answered() {
    hyper_server::run(16, 50).unwrap();
}

#[test]
fn a_driver_loses_no_packet_and_ends_in_order() {
    kernel_port::run(20_000, 2).unwrap();
}

#[test]
fn engine_keeps_every_key_and_frees_files_after_their_readers() {
    lsm::run(6000, 3).unwrap();
}

#[test]
fn a_ledger_keeps_its_total_though_clients_give_up() {
    ledger::run(4, 500).unwrap();
}

#[test]
fn event_loop_gets_all_answers_from_its_mailbox() {
    mio_loop::run(16, 50).unwrap();
}
