//! Many calls at once under one key: exactly one of them acts.

use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use cofferdam::{Call, Compiler, Error, Host};
use cofferdam_runtime::call::CallResult;
use cofferdam_test_support::store;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{count, host, key, post};
use crate::COFFERDAM;
use crate::shared_host::{example, run, shared_host};

#[test]
fn fifty_concurrent_calls_in_a_process_run_once() {
    const CALLS: usize = 50;
    let path = "/slow/300/crowd";
    let host = Arc::new(host());
    let outcomes = run(async {
        let mut calls = JoinSet::new();
        for _ in 0..CALLS {
            let (host, call) = (Arc::clone(&host), post(path));
            calls.spawn(async move { host.run(call).await });
        }
        calls.join_all().await
    });
    let values: Vec<Value> = outcomes
        .iter()
        .map(|ended| ended.outcome.as_ref().unwrap_or_else(|e| panic!("{e}")).clone())
        .collect();
    assert!(values.iter().all(|value| *value == values[0]));
    let ran: Vec<_> = outcomes.iter().filter(|ended| ended.report.replayed.is_none()).collect();
    assert_eq!((count(path), ran.len()), (1, 1));
    let of = &ran[0].report.audit_id;
    let others = outcomes.iter().filter_map(|ended| ended.report.replayed.as_ref());
    assert_eq!(others.filter(|other| *other == of).count(), CALLS - 1);
}

#[test]
fn transient_failures_under_one_key_run_in_turn() {
    const CALLS: usize = 12;
    let path = "/flaky/3/crowd";
    let host = Arc::new(host());
    let outcomes = run(async {
        let mut calls = JoinSet::new();
        for _ in 0..CALLS {
            let (host, call) = (Arc::clone(&host), super::fetch(path));
            calls.spawn(async move { host.run(call).await.outcome });
        }
        calls.join_all().await
    });
    // Failed calls left the key to the next; after the first value no call acted.
    assert_eq!(count(path), 4);
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_err()).count(), 3);
}

/// The home and the target of a process that a test starts.
const HOME: &str = "COFFERDAM_TEST_KEY_HOME";
const URL: &str = "COFFERDAM_TEST_KEY_URL";

/// Not a test: run by the processes of the test below. One call, and its outcome on standard output.
#[test]
#[ignore = "the other tests run it as a process of its own"]
fn one_call_in_a_process_of_its_own() {
    let (Ok(home), Ok(url)) = (std::env::var(HOME), std::env::var(URL)) else { return };
    let host_port = url.trim_start_matches("http://").split('/').next().unwrap().to_owned();
    let host = Host::builder().home(&home).compiler(Compiler::child(COFFERDAM)).allow_private(host_port);
    let host = store::with_log(host, home.as_ref()).build().unwrap();
    let call = Call::new(example("probe"), "post", json!({"url": url, "body": "b"}));
    let CallResult { outcome, report } = run(host.run(call.idempotency_key(key("processes"))));
    let outcome = match outcome {
        Ok(value) => json!({"value": value, "replayed": report.replayed}),
        Err(Error::Failure(failure)) => serde_json::to_value(&failure).unwrap(),
        Err(Error::Host(error)) => serde_json::to_value(&error).unwrap(),
    };
    // The harness prints other lines: only this line begins so.
    writeln!(std::io::stdout(), "\noutcome {outcome}").unwrap();
}

fn outcome(mut child: Child) -> Value {
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success(), "{text}");
    let line =
        text.lines().find_map(|line| line.strip_prefix("outcome ")).unwrap_or_else(|| panic!("{text}"));
    serde_json::from_str(line).unwrap()
}

#[test]
fn eight_concurrent_processes_run_one_call() {
    const PROCESSES: usize = 8;
    let path = "/slow/1000/processes";
    let test = "idempotency::concurrent::one_call_in_a_process_of_its_own";
    let start = || {
        Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--ignored", "--nocapture", "--test-threads=1"])
            .env(HOME, shared_host().home.path())
            .env(URL, shared_host().upstream.url(path))
            .envs(store::url_of(shared_host().home.path()).map(|url| (store::URL, url)))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    let children: Vec<Child> = (0..PROCESSES).map(|_| start()).collect();
    let outcomes: Vec<Value> = children.into_iter().map(outcome).collect();
    assert_eq!(count(path), 1, "{outcomes:?}");
    let values = outcomes.iter().map(|outcome| &outcome["value"]);
    assert!(values.clone().all(|value| value.is_object() && *value == outcomes[0]["value"]), "{outcomes:?}");
    assert_eq!(outcomes.iter().filter(|outcome| outcome["replayed"].is_null()).count(), 1);
}
