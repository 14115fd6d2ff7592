//! Clients that disconnect, cancel, or end: every call is logged with its real end.

use serde_json::{Value, json};

use super::client::{Client, home, record};

#[track_caller]
fn the_one_call(home: &cofferdam_test_support::Home) -> Value {
    let calls = record(home);
    assert_eq!(calls.len(), 1, "{calls:?}");
    calls[0].clone()
}

#[test]
fn a_disconnect_over_stdio_cancels_the_call() {
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
fn a_call_running_at_end_of_input_is_answered() {
    let home = home(&["probe"]);
    let mut client = Client::greeted(&home, &["--operations", "probe.sleep"]);
    let id = client.begin("tools/call", &json!({"name": "probe__sleep", "arguments": {"ms": 800}}));
    client.hang_up();
    assert_eq!(client.answer(id)["result"]["isError"], false);
    client.end();
    assert_eq!(the_one_call(&home)["status"], "value");
}

#[test]
fn a_cancelled_call_has_no_answer_and_is_logged() {
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
