//! Clients that go away in the middle, cancel, or end: what ran is on record as what it was.

use serde_json::{Value, json};

use super::client::{Client, home, record};

#[track_caller]
fn the_one_call(home: &cofferdam_test_support::Home) -> Value {
    let calls = record(home);
    assert_eq!(calls.len(), 1, "{calls:?}");
    calls[0].clone()
}

#[test]
fn attack_161_a_client_that_is_gone_has_its_call_cancelled() {
    let home = home(&["probe"]);
    let mut client = Client::greeted(&home, &["--operations", "probe.sleep", "--grace", "300ms"]);
    client.begin("tools/call", &json!({"name": "probe__sleep", "arguments": {"ms": 25_000}}));
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    client.end();
    let call = the_one_call(&home);
    assert_eq!(call["status"], "cancelled", "{call}");
    assert_eq!(call["actor"], "mcp:test", "{call}");
}

#[test]
fn what_runs_when_the_client_says_goodbye_still_has_its_answer() {
    let home = home(&["probe"]);
    let mut client = Client::greeted(&home, &["--operations", "probe.sleep"]);
    let id = client.begin("tools/call", &json!({"name": "probe__sleep", "arguments": {"ms": 800}}));
    client.hang_up();
    assert_eq!(client.answer(id)["result"]["isError"], false);
    client.end();
    assert_eq!(the_one_call(&home)["status"], "value");
}

#[test]
fn a_call_that_is_cancelled_has_no_answer_and_is_on_record() {
    let home = home(&["probe"]);
    let mut client = Client::greeted(&home, &["--operations", "probe.sleep"]);
    let id = client.begin("tools/call", &json!({"name": "probe__sleep", "arguments": {"ms": 25_000}}));
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id, "reason": "enough"}});
    client.send(&cancel.to_string());
    assert_eq!(client.tools(), ["probe__sleep"], "the next answer is another's");
    client.end();
    assert_eq!(the_one_call(&home)["status"], "cancelled");
}
