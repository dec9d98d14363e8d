//! The example `hyper_server` under a small load.
#![cfg(not(any(loom, shuttle)))]

#[path = "../examples/hyper_server.rs"]
#[allow(dead_code, reason = "its `main` is for the command line")]
mod hyper_server;

#[test]
fn a_queue_serves_http_and_every_request_is_answered() {
    hyper_server::run(16, 50).unwrap();
}
