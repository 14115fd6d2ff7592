//! Clients that send what no client should: each message has its answer, and the next good one has its own.

use std::time::Duration;

use serde_json::{Value, json};

use super::client::{Client, home};
use super::http_client::request;

/// An answer that no request has.
#[track_caller]
fn refused(client: &mut Client, line: &str, code: i64) -> Value {
    client.send(line);
    let answer = client.read();
    assert_eq!(answer["error"]["code"], code, "{}: {answer}", &line[..line.len().min(200)]);
    assert_eq!(client.tools(), ["hello__greet"], "the server goes on");
    answer
}

#[test]
fn invalid_messages_get_errors_and_valid_ones_answers() {
    let home = home(&["hello"]);
    let mut client = Client::start(&home, &["--operations", "hello.greet"]);
    // Before initialization: nothing here ends the session.
    client.send("{\"jsonrpc\": \"2.0\", \"method\": \"notifications/initialized\"}");
    client.send("{\"jsonrpc\": \"2.0\", \"id\": 9, \"result\": {}}");
    client.send("nonsense");
    assert_eq!(client.read()["error"]["code"], -32700);
    let early = client.ask("tools/list", &json!({}));
    assert!(early["error"].is_object(), "{early}");
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    assert!(client.ask("initialize", &hello)["result"].is_object());
    for (line, code) in [
        ("{", -32700),
        ("hello", -32700),
        ("{\"jsonrpc\": \"2.0\", \"id\": NaN, \"method\": \"tools/list\"}", -32700),
        ("{\"jsonrpc\": \"2.0\", \"id\": 7, \"method\": \"tools/list\"", -32700),
        ("[{\"jsonrpc\": \"2.0\", \"id\": 7, \"method\": \"tools/list\"}]", -32600),
        ("[]", -32600),
        ("null", -32600),
        ("{\"jsonrpc\": \"2.0\", \"id\": null, \"method\": \"tools/list\"}", -32600),
        ("{\"jsonrpc\": \"2.0\", \"id\": 1.5, \"method\": \"tools/list\"}", -32600),
        ("{\"jsonrpc\": \"1.0\", \"id\": 7, \"method\": \"tools/list\"}", -32600),
        ("{\"id\": 7, \"method\": \"tools/list\"}", -32600),
        ("{\"jsonrpc\": \"2.0\", \"id\": 7777, \"method\": \"no/such\"}", -32601),
        ("{\"jsonrpc\": \"2.0\", \"id\": 7777, \"method\": \"prompts/list\"}", -32601),
        ("{\"jsonrpc\": \"2.0\", \"id\": 7777, \"method\": \"resources/list\"}", -32601),
        ("{\"jsonrpc\": \"2.0\", \"id\": 7777, \"method\": \"tools/call\"}", -32602),
        ("{\"jsonrpc\": \"2.0\", \"id\": 7777, \"method\": \"tools/call\", \"params\": []}", -32602),
        (
            "{\"jsonrpc\": \"2.0\", \"id\": 7777, \"method\": \"tools/call\", \"params\": {\"name\": 5}}",
            -32602,
        ),
        (
            "{\"jsonrpc\": \"2.0\", \"id\": 7777, \"method\": \"tools/call\", \"params\": {\"name\": \"hello__greet\", \"arguments\": [1]}}",
            -32602,
        ),
        (
            "{\"jsonrpc\": \"2.0\", \"id\": 7777, \"method\": \"tools/call\", \"params\": {\"name\": \"\"}}",
            -32602,
        ),
        (
            "{\"jsonrpc\": \"2.0\", \"id\": 7777, \"method\": \"logging/setLevel\", \"params\": {\"level\": \"loud\"}}",
            -32602,
        ),
    ] {
        let answer = refused(&mut client, line, code);
        if line.contains("7777") {
            assert_eq!(answer["id"], 7777, "{line}");
        }
        if code == -32601 {
            let message = answer["error"]["message"].as_str().unwrap();
            assert!(message.starts_with("There is no method `"), "{message}");
        }
    }
    // A call without an id is a notification, and runs nothing.
    client.send("{\"jsonrpc\": \"2.0\", \"method\": \"tools/call\", \"params\": {\"name\": \"hello__greet\", \"arguments\": {\"name\": \"Ada\"}}}");
    assert_eq!(client.tools(), ["hello__greet"]);
    client.send("");
    client.send("\r");
    let stderr = client.end();
    assert!(!stderr.contains("nonsense"), "{stderr}");
    assert!(super::client::record(&home).is_empty());
}

#[test]
fn invalid_sessionless_requests_are_refused() {
    let home = home(&["hello"]);
    let mut client = Client::start(&home, &["--operations", "hello.greet"]);
    let own = |params: Value| {
        let (_, request) = request("x", &params);
        serde_json::from_str::<Value>(&request).unwrap()["params"].clone()
    };
    let listed = client.ask("tools/list", &own(json!({})));
    assert_eq!(listed["result"]["resultType"], "complete", "{listed}");
    for method in
        ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "no/such"]
    {
        let refused = client.ask(method, &own(json!({})));
        assert_eq!(refused["error"]["code"], -32601, "{method}: {refused}");
    }
    let version = "io.modelcontextprotocol/protocolVersion";
    let mut unknown = own(json!({}));
    unknown["_meta"][version] = json!("1999-01-01");
    let refused = client.ask("tools/list", &unknown);
    assert_eq!(refused["error"]["data"]["requested"], "1999-01-01", "{refused}");
    assert!(refused["error"]["data"]["supported"].as_array().unwrap().contains(&json!("2026-07-28")));
    for missing in [version, "io.modelcontextprotocol/clientCapabilities"] {
        let mut params = own(json!({}));
        params["_meta"].as_object_mut().unwrap().remove(missing);
        let refused = client.ask("tools/list", &params);
        assert_eq!(refused["error"]["code"], -32602, "{missing}: {refused}");
    }
    assert_eq!(client.ask("tools/list", &own(json!({})))["result"]["tools"], listed["result"]["tools"]);
    client.end();
}

#[test]
fn an_oversized_message_is_not_buffered() {
    let home = home(&["hello"]);
    let mut client = Client::greeted(&home, &["--operations", "hello.greet"]);
    refused(&mut client, &"x".repeat(17 << 20), -32600);
    let name = "x".repeat(17 << 20);
    let long = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "hello__greet", "arguments": {"name": name}}});
    refused(&mut client, &long.to_string(), -32600);
    let deep = format!(
        "{{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"x\", \"params\": {}",
        "{\"a\":".repeat(200_000)
    );
    refused(&mut client, &deep, -32700);
    // A message within the limit is accepted.
    let result = client.call("hello__greet", &json!({"name": "Ada ".repeat(20_000)}));
    assert_eq!(result["isError"], false, "{result}");
}

#[test]
fn an_id_in_flight_is_refused() {
    let home = home(&["hello", "probe"]);
    let mut client = Client::greeted(&home, &["--operations", "hello.greet,probe.sleep"]);
    let sleep = |id: i64| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "probe__sleep", "arguments": {"ms": 700}}});
    client.send(&sleep(500).to_string());
    client.send(&json!({"jsonrpc": "2.0", "id": 500, "method": "tools/list"}).to_string());
    let refused = client.read();
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&Value::Null, &json!(-32600)), "{refused}");
    let answer = client.answer(500);
    assert_eq!(answer["result"]["isError"], false, "the first keeps its answer: {answer}");
    client.send(&sleep(500).to_string());
    assert_eq!(client.answer(500)["result"]["isError"], false, "it is free again");
}

#[test]
fn a_client_that_does_not_read_blocks_no_other() {
    let home = home(&["hello"]);
    let mut client = Client::greeted(&home, &["--operations", "hello"]);
    let reading = client.reading();
    let unread = reading.lock().unwrap();
    // More than are taken: those that are not are answered, too, and neither end waits for the other.
    let ids: Vec<i64> = (0..3_000).map(|_| client.begin("tools/list", &json!({}))).collect();
    std::thread::sleep(Duration::from_millis(200));
    drop(unread);
    let mut seen = Vec::new();
    for _ in &ids {
        let answer = client.read();
        assert!(answer["result"]["tools"].is_array() || answer["error"]["code"] == -32000, "{answer}");
        seen.push(answer["id"].as_i64().unwrap());
    }
    seen.sort_unstable();
    assert_eq!(seen, ids);
    assert_eq!(client.tools().len(), 10);
    // A client that disconnects with unread answers is not waited for.
    let unread = reading.lock().unwrap();
    for _ in 0..3_000 {
        client.begin("tools/list", &json!({}));
    }
    client.vanish(unread);
}

#[test]
fn agent_input_cannot_control_the_terminal() {
    let home = home(&["hello"]);
    let hostile = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{202e}";
    let mut client = Client::greeted(&home, &["--operations", "hello.greet", "-vvv"]);
    let result = client.call("hello__greet", &json!({"name": hostile}));
    let said = result.to_string();
    assert!(
        said.contains("Good day, ") && hostile.chars().filter(|c| c.is_control()).all(|c| !said.contains(c))
    );
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'), "{text:?}");
    client.ask(&format!("x{hostile}"), &json!({}));
    client.ask("tools/call", &json!({"name": hostile, "arguments": {}}));
    let stderr = client.end();
    assert!(!stderr.contains('\u{1b}') && !stderr.contains('\u{202e}'), "{stderr:?}");
}
