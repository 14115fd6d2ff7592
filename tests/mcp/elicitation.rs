//! Forms in sessions: a person answers in the client of a call that waits, and the call runs once or not at all.

use std::fs;
use std::io::Read as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::{Client, cli, record};
use super::http::session_with;
use super::http_client::Server;
use crate::approvals::{Desk, actions};
use crate::shared_host::shared_host;

pub(super) const OFFERS: [&str; 2] = ["--operations", "probe.post,probe.env"];

/// The configuration with these lines about approvals.
pub(super) fn configure(desk: &Desk, lines: &str) {
    let network = format!("[network]\nallow_private = [\"{}\"]\n", shared_host().upstream.host_port());
    fs::write(desk.home.path().join("config.toml"), format!("{network}[approvals]\n{lines}")).unwrap();
}

/// A home whose operator believes the answers of clients.
pub(super) fn desk() -> Desk {
    let desk = Desk::new();
    configure(&desk, "elicit = true\n");
    desk
}

pub(super) fn args(path: &str) -> Value {
    json!({"url": shared_host().upstream.url(path), "body": "b"})
}

pub(super) fn count(path: &str) -> usize {
    shared_host().upstream.seen(path).len()
}

/// The answer `accept` with these fields.
pub(super) fn accept(fields: Value) -> Value {
    json!({"action": "accept", "content": fields})
}

/// The code of a call that was not run, and its text for the agent, which names no way around.
#[track_caller]
pub(super) fn refused(result: &Value) -> (String, String) {
    let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {result}"));
    assert!(text.contains("was not run") && !result.to_string().contains("approvals approve"), "{result}");
    assert_eq!(result["isError"], true, "{result}");
    let code = result["structuredContent"]["error"]["code"].as_str().unwrap();
    (code.to_owned(), result.to_string())
}

/// The only approval of the home.
#[track_caller]
pub(super) fn approval(desk: &Desk) -> Value {
    let all = cli(&desk.home).run(&["approvals", "list", "--all", "--format", "json"]).json();
    assert_eq!(all.as_array().unwrap().len(), 1, "{all}");
    let id = all[0]["id"].as_str().unwrap();
    cli(&desk.home).run(&["approvals", "show", id, "--format", "json"]).json()
}

/// A client over standard streams that shows forms.
fn client(desk: &Desk) -> Client {
    let capabilities = json!({"elicitation": {}});
    Client::greeted_as(&desk.home, &OFFERS, "2025-11-25", &capabilities)
}

fn begin(client: &mut Client, path: &str) -> i64 {
    client.begin("tools/call", &json!({"name": "probe__post", "arguments": args(path)}))
}

/// The next message, which is a form.
#[track_caller]
fn form(client: &mut Client) -> Value {
    let form = client.read();
    assert_eq!(form["method"], "elicitation/create", "{form}");
    form
}

fn reply(client: &mut Client, form: &Value, result: Value) {
    client.send(&json!({"jsonrpc": "2.0", "id": form["id"], "result": result}).to_string());
}

/// Calls, and answers the form.
#[track_caller]
fn answered(client: &mut Client, path: &str, answer: Value) -> Value {
    let id = begin(client, path);
    let form = form(client);
    reply(client, &form, answer);
    client.answer(id)["result"].clone()
}

#[test]
fn an_approved_form_runs_the_call_once() {
    let (desk, path) = (desk(), "/text/form-approved?form");
    let mut client = client(&desk);
    let id = begin(&mut client, path);
    let form = form(&mut client);
    let waits = approval(&desk);
    let message = form["params"]["message"].as_str().unwrap();
    for words in [
        "Operation: post of github://cofferdam/probe@0.1.0",
        "Effect: destructive",
        "Asked by: mcp:test",
        waits["id"].as_str().unwrap(),
        waits["hash"].as_str().unwrap(),
        waits["arguments"]["text"].as_str().unwrap(),
        path,
    ] {
        assert!(message.contains(words), "{words}: {message}");
    }
    assert_eq!((waits["state"].as_str(), count(path)), (Some("waiting"), 0));
    let answer = accept(json!({"decision": "approve", "reason": "ticket 17"}));
    reply(&mut client, &form, answer.clone());
    let done = client.answer(id)["result"].clone();
    assert_eq!((&done["isError"], count(path)), (&json!(false), 1), "{done}");
    let used = approval(&desk);
    let facts = ["state", "answered_by", "reason"].map(|fact| used[fact].as_str().unwrap());
    assert_eq!(facts, ["used", "mcp:test elicitation", "ticket 17"]);
    assert_eq!(used["used_by"], done["_meta"]["cofferdam/audit_id"]);
    let changes = cli(&desk.home).run(&["audit", "changes", "--format", "json"]).ok();
    for words in ["\"approve\"", "mcp:test elicitation", "ticket 17"] {
        assert!(changes.contains(words), "{words}: {changes}");
    }
    // The same answer again is one to nothing, and the same call asks again.
    reply(&mut client, &form, answer);
    let id = begin(&mut client, path);
    let second = self::form(&mut client);
    assert_ne!(second["id"], form["id"]);
    reply(&mut client, &form, accept(json!({"decision": "approve"})));
    reply(&mut client, &second, json!({"action": "cancel"}));
    assert_eq!(refused(&client.answer(id)["result"]).0, "approval_required");
    assert_eq!(count(path), 1);
    client.end();
    cli(&desk.home).run(&["audit", "verify"]).ok();
}

#[test]
fn a_denied_form_names_no_way_around() {
    let desk = desk();
    let mut client = client(&desk);
    let reason = accept(json!({"decision": "deny", "reason": "not on a Friday"}));
    for (path, answer) in
        [("/text/form-denied?form", reason), ("/text/form-declined?form", json!({"action": "decline"}))]
    {
        let (code, text) = refused(&answered(&mut client, path, answer));
        assert_eq!(code, "approval_denied", "{text}");
        assert!(!text.contains("Friday") && !text.contains("suggestion"), "{text}");
        // It is refused without another form.
        let again = client.call("probe__post", &args(path));
        assert_eq!((refused(&again).0.as_str(), count(path)), ("approval_denied", 0));
    }
    let changes = cli(&desk.home).run(&["audit", "changes", "--format", "json"]).ok();
    assert!(changes.contains("not on a Friday") && changes.contains("mcp:test elicitation"), "{changes}");
}

#[test]
fn any_other_answer_leaves_the_call_waiting() {
    let (desk, path) = (desk(), "/text/form-unanswered?form");
    let mut client = client(&desk);
    for answer in [
        json!({"action": "cancel"}),
        json!({"action": "cancel", "content": {"decision": "approve"}}),
        json!({"action": "approve"}),
        json!({"action": "accept"}),
        accept(json!({})),
        accept(json!({"decision": true})),
        accept(json!({"decision": "approve", "reason": ["x"]})),
        accept(json!({"decision": "approve!"})),
        accept(json!(["approve"])),
        json!({}),
        json!("approve"),
        Value::Null,
    ] {
        let result = answered(&mut client, path, answer.clone());
        assert_eq!(refused(&result).0, "approval_required", "{answer}");
    }
    let id = begin(&mut client, path);
    let form = form(&mut client);
    let error =
        json!({"jsonrpc": "2.0", "id": form["id"], "error": {"code": -1, "message": "User rejected"}});
    client.send(&error.to_string());
    assert_eq!(refused(&client.answer(id)["result"]).0, "approval_required");
    assert_eq!((approval(&desk)["state"].as_str(), count(path)), (Some("waiting"), 0));
}

#[test]
fn clients_without_forms_get_the_answer_without_one() {
    let path = "/text/form-undeclared?form";
    let with = json!({"elicitation": {"form": {}}});
    for (version, lines, capabilities) in [
        ("2025-11-25", "elicit = true\n", json!({})),
        ("2025-11-25", "elicit = true\n", json!({"elicitation": {"url": {}}, "sampling": {}})),
        ("2025-03-26", "elicit = true\n", with.clone()),
        ("2025-11-25", "elicit = false\n", with.clone()),
        ("2025-11-25", "", with),
    ] {
        let desk = Desk::new();
        configure(&desk, lines);
        let mut client = Client::greeted_as(&desk.home, &OFFERS, version, &capabilities);
        let id = begin(&mut client, path);
        let result = client.answer(id)["result"].clone();
        let text = result["content"][0]["text"].as_str().unwrap();
        assert!(text.starts_with("Action 'probe__post' was not run: approval_required"), "{text}");
        assert_eq!(client.notes, [] as [Value; 0], "{version} {lines} {capabilities}");
        // A form that was not shown cannot be answered.
        let answer = accept(json!({"decision": "approve"}));
        for id in [json!(0), json!(1), json!(id), json!("0")] {
            client.send(&json!({"jsonrpc": "2.0", "id": id, "result": answer}).to_string());
        }
        assert_eq!(client.ask("ping", &json!({}))["result"], json!({}));
        assert_eq!(approval(&desk)["state"], "waiting");
        client.end();
    }
    assert_eq!(count(path), 0);
}

#[test]
fn a_form_without_an_answer_ends_in_time() {
    let (desk, path) = (Desk::new(), "/text/form-late?form");
    configure(&desk, "elicit = true\nelicit_timeout = \"5s\"\n");
    let mut client = client(&desk);
    let id = begin(&mut client, path);
    let form = form(&mut client);
    let answer = accept(json!({"decision": "approve"}));
    let own = form["id"].as_i64().unwrap();
    for other in [json!(own + 1), json!(id), json!("x")] {
        client.send(&json!({"jsonrpc": "2.0", "id": other, "result": answer}).to_string());
    }
    // A huge answer is refused, and not in the name of a request of the client's.
    for bytes in [70 << 10, 4 << 20, 8 << 20] {
        reply(&mut client, &form, accept(json!({"decision": "approve", "reason": "x".repeat(bytes)})));
        let error = client.read();
        assert_eq!((&error["id"], &error["error"]["code"]), (&Value::Null, &json!(-32600)), "{error}");
    }
    let result = client.answer(id)["result"].clone();
    assert_eq!(refused(&result).0, "approval_required");
    let withdrawn = match client.notes.pop() {
        Some(note) => note,
        None => client.read(),
    };
    assert_eq!(withdrawn["method"], "notifications/cancelled", "{withdrawn}");
    assert_eq!(withdrawn["params"]["requestId"], form["id"]);
    reply(&mut client, &form, answer);
    assert_eq!(client.ask("ping", &json!({}))["result"], json!({}));
    assert_eq!((approval(&desk)["state"].as_str(), count(path)), (Some("waiting"), 0));
}

#[test]
fn a_cancelled_call_withdraws_its_form() {
    let (desk, path) = (desk(), "/text/form-cancelled?form");
    let mut client = client(&desk);
    let id = begin(&mut client, path);
    let form = form(&mut client);
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
    client.send(&cancel.to_string());
    let withdrawn = client.read();
    assert_eq!(withdrawn["method"], "notifications/cancelled", "{withdrawn}");
    assert_eq!(withdrawn["params"]["requestId"], form["id"]);
    reply(&mut client, &form, accept(json!({"decision": "approve"})));
    assert_eq!(client.ask("ping", &json!({}))["result"], json!({}), "the call has no answer");
    assert_eq!((approval(&desk)["state"].as_str(), count(path)), (Some("waiting"), 0));
}

#[test]
fn an_open_form_ends_with_the_server() {
    let (desk, path) = (desk(), "/text/form-shutdown?form");
    let mut client = client(&desk);
    let id = begin(&mut client, path);
    form(&mut client);
    let from = Instant::now();
    client.hang_up();
    assert_eq!(refused(&client.answer(id)["result"]).0, "approval_required");
    client.end();
    assert!(from.elapsed() < Duration::from_secs(8), "{:?}: not the grace period", from.elapsed());
    assert_eq!((approval(&desk)["state"].as_str(), count(path)), (Some("waiting"), 0));
}

#[test]
fn equal_calls_open_one_form() {
    let (desk, path) = (desk(), "/text/form-twice?form");
    let mut client = client(&desk);
    let first = begin(&mut client, path);
    let form = form(&mut client);
    let second = client.call("probe__post", &args(path));
    let (code, text) = refused(&second);
    assert_eq!(code, "approval_required");
    assert!(text.contains(approval(&desk)["id"].as_str().unwrap()), "{text}");
    reply(&mut client, &form, accept(json!({"decision": "approve"})));
    assert_eq!(client.answer(first)["result"]["isError"], false);
    assert_eq!(count(path), 1);
}

#[test]
fn an_open_form_holds_no_permit() {
    let (desk, path) = (desk(), "/text/form-permit?form");
    let args: Vec<_> = OFFERS.iter().copied().chain(["--concurrency", "1"]).collect();
    let mut client = Client::greeted_as(&desk.home, &args, "2025-11-25", &json!({"elicitation": {}}));
    let id = begin(&mut client, path);
    let form = form(&mut client);
    assert_eq!(client.call("probe__env", &json!({}))["isError"], false);
    reply(&mut client, &form, accept(json!({"decision": "approve"})));
    assert_eq!(client.answer(id)["result"]["isError"], false);
    assert_eq!(count(path), 1);
}

#[test]
fn an_answer_elsewhere_decides_first() {
    let (desk, path, denied) = (desk(), "/text/form-elsewhere?form", "/text/form-elsewhere-denied?form");
    let mut client = client(&desk);
    let id = begin(&mut client, path);
    let first = form(&mut client);
    cli(&desk.home).run(&["approvals", "approve", approval(&desk)["id"].as_str().unwrap()]).ok();
    reply(&mut client, &first, accept(json!({"decision": "approve"})));
    assert_eq!(client.answer(id)["result"]["isError"], false);
    assert_eq!(count(path), 1, "two approvals of one request are one");
    let id = begin(&mut client, denied);
    let second = form(&mut client);
    let waits = cli(&desk.home).run(&["approvals", "list", "--format", "json"]).json();
    cli(&desk.home).run(&["approvals", "deny", waits[0]["id"].as_str().unwrap()]).ok();
    reply(&mut client, &second, accept(json!({"decision": "approve"})));
    assert_eq!(refused(&client.answer(id)["result"]).0, "approval_denied");
    assert_eq!(count(denied), 0);
}

#[test]
fn a_disconnect_after_the_answer_runs_it_once() {
    let (desk, path) = (desk(), "/text/form-disconnect?form");
    let mut client = client(&desk);
    let id = begin(&mut client, path);
    let form = form(&mut client);
    reply(&mut client, &form, accept(json!({"decision": "approve"})));
    client.hang_up();
    let done = client.answer(id)["result"].clone();
    client.end();
    assert_eq!((&done["isError"], count(path)), (&json!(false), 1), "{done}");
    assert_eq!(approval(&desk)["state"], "used");
    assert_eq!(record(&desk.home).iter().filter(|call| call["status"] == "value").count(), 1);
}

#[test]
fn an_action_asks_once_and_its_progress_grows() {
    let (desk, path) = (desk(), "/text/form-action?form");
    actions::action(&desk, path);
    let mut client = Client::greeted_as(&desk.home, &[], "2025-11-25", &json!({"elicitation": {}}));
    let call = json!({"name": "post_twice", "arguments": {"text": "a"}, "_meta": {"progressToken": 5}});
    let id = client.begin("tools/call", &call);
    let form = form(&mut client);
    let message = form["params"]["message"].as_str().unwrap();
    assert!(message.contains("\nAction: action://post-twice@1.0.0\n"), "{message}");
    assert!(message.contains("\nAction file: sha256:") && !message.contains("Package:"), "{message}");
    assert_eq!(message.matches("Would call: github://cofferdam/probe@0.1.0 post").count(), 2, "{message}");
    assert_eq!(count(path), 0, "not even its first step ran");
    reply(&mut client, &form, accept(json!({"decision": "approve"})));
    let done = client.answer(id)["result"].clone();
    assert_eq!((&done["isError"], count(path)), (&json!(false), 3), "{done}");
    let progress = client.notes.iter().map(|note| note["params"]["progress"].as_f64().unwrap());
    let progress = progress.collect::<Vec<_>>();
    assert!(progress.len() > 3 && progress.is_sorted_by(|one, next| one < next), "{progress:?}");
}

/// Reads events until a form arrives; the form, and the id of its event.
#[track_caller]
fn form_event(stream: &mut TcpStream) -> (Value, String) {
    let (mut heard, mut more) = (String::new(), [0; 4096]);
    loop {
        let length = stream.read(&mut more).unwrap();
        assert_ne!(length, 0, "{heard}");
        heard.push_str(std::str::from_utf8(&more[..length]).unwrap());
        let data = heard.lines().filter_map(|line| line.strip_prefix("data:"));
        let messages = data.filter_map(|data| serde_json::from_str::<Value>(data).ok());
        let mut forms = messages.filter(|message| message["method"] == "elicitation/create");
        if let Some(form) = forms.next_back() {
            let id = heard.lines().filter_map(|line| line.strip_prefix("id: ")).next_back().unwrap();
            return (form, id.to_owned());
        }
    }
}

#[test]
fn a_session_over_http_asks_on_the_calls_stream() {
    let (desk, path) = (desk(), "/text/form-http?form");
    let server = Server::start(&desk.home, &OFFERS);
    let of = session_with(&server, &json!({"elicitation": {"form": {}, "url": {}}}));
    let headers = of.each_ref().map(|(name, value)| (*name, value.as_str()));
    let call = |id: i64, path: &str| {
        let params = json!({"name": "probe__post", "arguments": args(path)});
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
    };
    let answer = |form: &Value, decision: &str| {
        let result = accept(json!({"decision": decision}));
        json!({"jsonrpc": "2.0", "id": form["id"], "result": result}).to_string()
    };
    let mut stream = server.open(&headers, &call(7, path));
    let (form, _) = form_event(&mut stream);
    let foreign = session_with(&server, &json!({"elicitation": {}}));
    let foreign = foreign.each_ref().map(|(name, value)| (*name, value.as_str()));
    assert_eq!(server.post(&foreign, &answer(&form, "approve")).status, 202);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!((approval(&desk)["state"].as_str(), count(path)), (Some("waiting"), 0), "of another session");
    let huge = json!({"jsonrpc": "2.0", "id": form["id"], "result": {"action": "x".repeat(4 << 20)}});
    let huge = server.post(&headers, &huge.to_string());
    let error: Value = serde_json::from_str(&huge.body).unwrap();
    assert_eq!((huge.status, &error["id"]), (400, &Value::Null), "{error}");
    assert_eq!(server.post(&headers, &answer(&form, "approve")).status, 202);
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("\"isError\":false"), "{rest}");
    assert_eq!(count(path), 1);
    // A client that is away when its person answers gets the result when it returns.
    let away = "/text/form-away?form";
    let mut stream = server.open(&headers, &call(8, away));
    let (form, place) = form_event(&mut stream);
    drop(stream);
    assert_eq!(server.post(&headers, &answer(&form, "approve")).status, 202);
    let resumed = server
        .bare("GET", &[headers[0], headers[1], ("accept", "text/event-stream"), ("last-event-id", &place)]);
    let message = resumed.message();
    assert_eq!((&message["id"], &message["result"]["isError"]), (&json!(8), &json!(false)), "{message}");
    assert_eq!(count(away), 1);
    // The end of the session ends the wait.
    let ended = "/text/form-session-ended?form";
    let mut stream = server.open(&headers, &call(9, ended));
    let (form, _) = form_event(&mut stream);
    assert_eq!(server.bare("DELETE", &headers).status, 204);
    assert_eq!(server.post(&headers, &answer(&form, "approve")).status, 404);
    server.end();
    assert_eq!(count(ended), 0);
}
