//! Forms without sessions: a result asks, and the client repeats the call with the answer and the ticket it got.

use serde_json::{Value, json};

use super::client::{Client, cli};
use super::elicitation::{OFFERS, accept, approval, args, configure, count, desk, refused};
use super::http_client::{Server, alone, post};
use crate::approvals::Desk;

/// A server of this version, over either transport.
enum Transport {
    Http(Server),
    Stdio(Client),
}

impl Transport {
    /// Both, over the homes.
    fn both(desks: &[Desk; 2]) -> [Self; 2] {
        [
            Self::Http(Server::start(&desks[0].home, &OFFERS)),
            Self::Stdio(Client::start(&desks[1].home, &OFFERS)),
        ]
    }

    /// The response to a call of `probe__post` with these parameters besides, by a client with these capabilities.
    fn call_as(&mut self, capabilities: &Value, path: &str, more: &Value) -> Value {
        let mut params =
            json!({"name": "probe__post", "arguments": args(path), "_meta": alone(capabilities)});
        for (name, value) in more.as_object().unwrap() {
            params[name] = value.clone();
        }
        self.ask(&params)
    }

    fn ask(&mut self, params: &Value) -> Value {
        match self {
            Self::Stdio(client) => client.ask("tools/call", params),
            Self::Http(server) => {
                let tool = params["name"].as_str().unwrap();
                let headers = [
                    ("mcp-protocol-version", "2026-07-28"),
                    ("mcp-method", "tools/call"),
                    ("mcp-name", tool),
                ];
                let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
                post(server.address, &headers, &body.to_string()).message()
            }
        }
    }

    /// The result of a call by a client that shows forms.
    #[track_caller]
    fn call(&mut self, path: &str, more: &Value) -> Value {
        let response = self.call_as(&json!({"elicitation": {}}), path, more);
        assert!(response["result"].is_object(), "{response}");
        response["result"].clone()
    }

    /// The result that asks for the answer of a person.
    #[track_caller]
    fn question(&mut self, path: &str) -> Value {
        let asks = self.call(path, &json!({}));
        question(&asks);
        asks
    }
}

/// The result asks, by one form.
#[track_caller]
fn question(result: &Value) {
    let requests = result["inputRequests"].as_object().unwrap_or_else(|| panic!("no question: {result}"));
    assert_eq!((result["resultType"].as_str(), requests.len()), (Some("input_required"), 1), "{result}");
    assert_eq!(requests["approval"]["method"], "elicitation/create", "{result}");
    assert!(result["requestState"].is_string(), "{result}");
}

/// The parameters with which a client repeats its call.
fn answer(asks: &Value, response: Value) -> Value {
    json!({"inputResponses": {"approval": response}, "requestState": asks["requestState"]})
}

fn desks() -> [Desk; 2] {
    [desk(), desk()]
}

#[test]
fn an_approved_question_runs_the_call_once() {
    let desks = desks();
    for (mut server, (desk, path)) in Transport::both(&desks)
        .into_iter()
        .zip(desks.iter().zip(["/text/input-approved-http?form", "/text/input-approved-stdio?form"]))
    {
        let asks = server.question(path);
        let message = asks["inputRequests"]["approval"]["params"]["message"].as_str().unwrap();
        let waits = approval(desk);
        for words in ["Operation: post of", waits["id"].as_str().unwrap(), path] {
            assert!(message.contains(words), "{words}: {message}");
        }
        assert_eq!((waits["state"].as_str(), count(path)), (Some("waiting"), 0));
        let approve = answer(&asks, accept(json!({"decision": "approve", "reason": "ticket 17"})));
        let mut more = approve.clone();
        more["inputResponses"]["other"] = json!({"action": "decline"});
        let done = server.call(path, &more);
        assert_eq!((&done["isError"], count(path)), (&json!(false), 1), "{done}");
        let used = approval(desk);
        let facts = ["state", "answered_by", "reason"].map(|fact| used[fact].as_str().unwrap());
        assert_eq!(facts, ["used", "mcp:test elicitation", "ticket 17"]);
        assert_eq!(used["used_by"], done["_meta"]["cofferdam/audit_id"]);
        // The same answer is one to a question that is over.
        let again = server.call(path, &approve);
        assert_eq!((refused(&again).0.as_str(), count(path)), ("approval_required", 1));
        cli(&desk.home).run(&["audit", "verify"]).ok();
    }
}

#[test]
fn a_denied_or_dismissed_question_runs_nothing() {
    let desks = desks();
    for (n, mut server) in Transport::both(&desks).into_iter().enumerate() {
        for (case, response, code) in [
            ("cancel", json!({"action": "cancel"}), "approval_required"),
            ("empty", accept(json!({})), "approval_required"),
            ("type", accept(json!({"decision": 1})), "approval_required"),
            ("number", json!(12345), "approval_required"),
            ("null", Value::Null, "approval_required"),
            ("decline", json!({"action": "decline"}), "approval_denied"),
            ("deny", accept(json!({"decision": "deny", "reason": "not on a Friday"})), "approval_denied"),
        ] {
            let path = format!("/text/input-{case}-{n}?form");
            let asks = server.question(&path);
            let (told, text) = refused(&server.call(&path, &answer(&asks, response)));
            assert_eq!(told, code, "{case}: {text}");
            assert!(!text.contains("Friday") && !text.contains("inputRequests"), "{text}");
            if code == "approval_denied" {
                assert_eq!(refused(&server.call(&path, &json!({}))).0, code, "it is not asked again");
            } else {
                question(&server.call(&path, &json!({})));
            }
            assert_eq!(count(&path), 0);
        }
    }
}

#[test]
fn forged_answers_get_nothing() {
    let (desks, path) = (desks(), "/text/input-forged?form");
    for (mut server, desk) in Transport::both(&desks).into_iter().zip(&desks) {
        let approve = json!({"approval": accept(json!({"decision": "approve"}))});
        // Before anything was asked, and after, but without the ticket.
        for _ in 0..2 {
            question(&server.call(path, &json!({"inputResponses": approve})));
        }
        let asks = server.question(path);
        let (state, id) = (asks["requestState"].as_str().unwrap(), approval(desk)["id"].clone());
        let id = id.as_str().unwrap();
        for forged in [
            format!("{state}-TAMPERED"),
            format!("{id}.{}", "0".repeat(64)),
            state.replace(id, "approval-01890000-0000-7000-8000-000000000001"),
            id.to_owned(),
            String::new(),
        ] {
            let more = json!({"inputResponses": approve, "requestState": forged});
            let refused = server.call_as(&json!({"elicitation": {}}), path, &more);
            assert_eq!(refused["error"]["code"], -32602, "{forged}: {refused}");
        }
        // A ticket is its own tool's and client's.
        let more = json!({"inputResponses": approve, "requestState": state});
        let mut other =
            json!({"name": "probe__env", "arguments": {}, "_meta": alone(&json!({"elicitation": {}}))});
        let mut theirs = json!({"name": "probe__post", "arguments": args(path), "_meta": other["_meta"]});
        theirs["_meta"]["io.modelcontextprotocol/clientInfo"]["name"] = json!("other");
        for params in [&mut other, &mut theirs] {
            for (name, value) in more.as_object().unwrap() {
                params[name] = value.clone();
            }
            assert_eq!(server.ask(params)["error"]["code"], -32602, "{params}");
        }
        // Without forms it is as good as none.
        let plain = server.call_as(&json!({}), path, &more);
        assert_eq!(refused(&plain["result"]).0, "approval_required");
        for wrong in [json!({"inputResponses": 5}), json!({"inputResponses": approve, "requestState": 5})] {
            let refused = server.call_as(&json!({"elicitation": {}}), path, &wrong);
            assert_eq!(refused["error"]["code"], -32602, "{wrong}: {refused}");
        }
        let huge = json!({"inputResponses": {"approval": accept(json!({"reason": "x".repeat(4 << 20)}))}});
        let refused = server.call_as(&json!({"elicitation": {}}), path, &huge);
        assert_eq!(refused["error"]["code"], -32600, "{refused}");
        assert_eq!((approval(desk)["state"].as_str(), count(path)), (Some("waiting"), 0));
    }
}

#[test]
fn an_answer_is_for_the_arguments_that_were_shown() {
    let desks = desks();
    for (n, mut server) in Transport::both(&desks).into_iter().enumerate() {
        let (path, other) = (format!("/text/input-shown-{n}?form"), format!("/text/input-other-{n}?form"));
        let asks = server.question(&path);
        let approve = answer(&asks, accept(json!({"decision": "approve"})));
        assert_eq!(refused(&server.call(&other, &approve)).0, "approval_required");
        assert_eq!((count(&path), count(&other)), (0, 0));
        // What was shown is approved, for the one call.
        assert_eq!(server.call(&path, &json!({}))["isError"], false);
        question(&server.call(&path, &json!({})));
        assert_eq!((count(&path), count(&other)), (1, 0));
    }
}

#[test]
fn a_missing_answer_is_asked_for_again() {
    let desks = desks();
    for (n, mut server) in Transport::both(&desks).into_iter().enumerate() {
        let path = format!("/text/input-missing-{n}?form");
        let asks = server.question(&path);
        for responses in
            [json!({}), json!({"wrong_key": accept(json!({"decision": "approve"}))}), Value::Null]
        {
            let more = json!({"inputResponses": responses, "requestState": asks["requestState"]});
            question(&server.call(&path, &more));
        }
        let approve = answer(&asks, accept(json!({"decision": "approve"})));
        assert_eq!(server.call(&path, &approve)["isError"], false);
        assert_eq!(count(&path), 1);
    }
}

#[test]
fn clients_without_forms_are_not_asked() {
    let path = "/text/input-undeclared?form";
    for (lines, capabilities) in [
        ("elicit = true\n", json!({})),
        ("elicit = true\n", json!({"sampling": {}, "elicitation": {"url": {}}})),
        ("elicit = false\n", json!({"elicitation": {}})),
        ("", json!({"elicitation": {}})),
    ] {
        let desks = [Desk::new(), Desk::new()];
        desks.iter().for_each(|desk| configure(desk, lines));
        for mut server in Transport::both(&desks) {
            let approve = json!({"approval": accept(json!({"decision": "approve"}))});
            for more in [json!({}), json!({"inputResponses": approve, "requestState": "x"})] {
                let response = server.call_as(&capabilities, path, &more);
                assert_eq!(refused(&response["result"]).0, "approval_required", "{lines} {capabilities}");
            }
        }
    }
    assert_eq!(count(path), 0);
}

#[test]
fn another_process_of_the_home_takes_the_answer() {
    let (desk, path) = (desk(), "/text/input-process?form");
    let [mut one, mut other] = [0, 1].map(|_| Transport::Http(Server::start(&desk.home, &OFFERS)));
    let asks = one.question(path);
    let done = other.call(path, &answer(&asks, accept(json!({"decision": "approve"}))));
    assert_eq!((&done["isError"], count(path)), (&json!(false), 1), "{done}");
}
