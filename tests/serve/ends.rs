//! Early ends of calls and the server: disconnected clients, and the signal to end.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::fixture::{Stage, probe, read};

/// The only logged call; null before it is there.
fn only(stage: &Stage) -> Value {
    let list = stage.cli().run(&["audit", "list", "--format", "json"]).json();
    assert!(list.as_array().unwrap().len() <= 1, "{list}");
    list[0].clone()
}

/// Waits until the one call has this status.
fn becomes(stage: &Stage, status: &str) {
    let begun = Instant::now();
    while only(stage)["status"] != status {
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", only(stage));
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn hang(stage: &Stage, path: &str) -> TcpStream {
    let stream = stage.begin_post(&[], &probe("fetch", &json!({"url": stage.upstream.url(path)})));
    stage.reaches(path);
    stream
}

#[test]
fn a_disconnected_client_cancels_its_call() {
    let stage = Stage::new();
    let stream = hang(&stage, "/hang/gone");
    drop(stream);
    becomes(&stage, "cancelled");
    assert_eq!(stage.get("/healthz").status, 200, "nobody else notices");
    stage.cli().run(&["audit", "verify"]).ok();
}

#[test]
fn the_first_signal_drains_running_calls() {
    let mut stage = Stage::new();
    let call = probe("sleep", &json!({"ms": 1_500}));
    let running = stage.begin_post(&[], &call);
    becomes(&stage, "running");
    stage.signal("-TERM");
    let answer = read(running);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(stage.ended().code(), Some(0));
    assert!(TcpStream::connect(stage.address).is_err());
    assert_eq!(only(&stage)["status"], "value");
}

#[test]
fn the_second_signal_cancels_running_calls() {
    let mut stage = Stage::new();
    let running = hang(&stage, "/hang/end");
    stage.signal("-INT");
    stage.signal("-TERM");
    let answer = read(running);
    assert_eq!((answer.status, answer.word().as_str()), (503, "cancelled"), "{answer:?}");
    assert_eq!(stage.ended().code(), Some(0));
    assert_eq!(only(&stage)["status"], "cancelled");
    stage.cli().run(&["audit", "verify"]).ok();
}

#[test]
fn unsafe_server_options_are_refused() {
    let stage = Stage::new();
    let cli = stage.cli();
    let fails = |args: &[&str], code: u8, said: &str| {
        cli.run(&[&["serve", "--format", "json"], args].concat()).fails(code).said(said);
    };
    fails(&["--listen", "0.0.0.0:0"], 64, "token");
    fails(&["--listen", "0.0.0.0:0", "--token-file", "token"], 64, "certificate");
    fails(&["--listen", &stage.address.to_string()], 64, "cannot listen");
    std::fs::write(stage.home.path().join("open"), super::fixture::TOKEN).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(stage.home.path().join("open"), mode).unwrap();
    fails(&["--token-file", "open", "--listen", "127.0.0.1:0"], 65, "chmod 600");
    fails(&["--token-file", "nowhere", "--listen", "127.0.0.1:0"], 66, "nowhere");
}
