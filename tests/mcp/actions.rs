//! Actions as tools: their descriptions, values and failures, and the effect of a changed file.

use cofferdam::Host;
use cofferdam_test_support::Home;
use serde_json::json;

use super::client::{Client, home, record};

/// An action of two steps, whose second fails on request.
fn action(host: &Host, description: &str) -> String {
    let hash = host.list().unwrap().first().unwrap().digest.to_string();
    format!(
        "+++\nname = \"greet-twice\"\nversion = \"1.0.0\"\ntitle = \"Greet twice\"\n\n\
         [[requires.connectors]]\nname = \"github://cofferdam/hello\"\nversion = \"0.1.0\"\nhash = \"sha256:{hash}\"\n\
         capabilities = {{ operations = [\"greet\", \"divide\"] }}\n\n\
         [[inputs]]\nname = \"whom\"\ntype = \"string\"\ndescription = \"Whom to greet.\"\n\n\
         [[inputs]]\nname = \"by\"\ntype = \"integer\"\ndescription = \"By what.\"\nrequired = false\ndefault = 1\n\n\
         [[execute]]\nid = \"greeting\"\nconnector = \"github://cofferdam/hello\"\nop = \"greet\"\ninputs = {{ name = \"${{args.whom}}\" }}\n\n\
         [[execute]]\nid = \"share\"\nconnector = \"github://cofferdam/hello\"\nop = \"divide\"\ninputs = {{ dividend = 6, divisor = \"${{args.by}}\" }}\n+++\n\
         {description}\n"
    )
}

fn add(home: &Home, description: &str) {
    let host = home.host();
    let text = action(&host, description);
    crate::shared_host::run(host.add_action("greet-twice.md", text.as_bytes(), true)).unwrap();
}

#[test]
fn an_action_is_a_tool_without_being_named() {
    let home = home(&["hello"]);
    add(&home, "Greets, and divides.");
    let mut client = Client::greeted(&home, &[]);
    let tools = client.ask("tools/list", &json!({}))["result"]["tools"].clone();
    let tool = &tools[0];
    assert_eq!((&tool["name"], &tool["title"]), (&json!("greet_twice"), &json!("Greet twice")));
    let told = "Greets, and divides.\n\nAction greet-twice@1.0.0: greet, then divide.";
    assert_eq!(tool["description"], told);
    assert_eq!(tool["inputSchema"]["required"], json!(["whom"]));
    assert_eq!(tool["annotations"]["readOnlyHint"], true);
    let result = client.call("greet_twice", &json!({"whom": "Ada", "by": 4}));
    assert_eq!(result["isError"], false, "{result}");
    assert_eq!(result["structuredContent"]["output"], json!([1, 2]), "{result}");
    assert_eq!(result["structuredContent"]["steps"]["greeting"]["text"], "Good day, Ada.");
    let schema = jsonschema::validator_for(&tool["outputSchema"]).unwrap();
    assert!(schema.is_valid(&result["structuredContent"]));
    let failed = client.call("greet_twice", &json!({"whom": "Ada", "by": 0}));
    assert_eq!(failed["isError"], true, "{failed}");
    assert!(
        failed["structuredContent"].get("output").is_none() && schema.is_valid(&failed["structuredContent"])
    );
    let text = failed["content"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("Action 'greet_twice' failed: ") && text.contains("audit_id: "), "{text}");
    let wrong = client.call("greet_twice", &json!({"who": "Ada"}));
    assert_eq!(wrong["structuredContent"]["error"]["code"], "validation", "{wrong}");
    let id = failed["_meta"]["cofferdam/audit_id"].as_str().unwrap().to_owned();
    assert!(
        record(&home).iter().any(|call| call["audit_id"] == json!(id)),
        "the action's own place in the record"
    );
    add(&home, "Greets once more.");
    client.told_of_a_change();
    let tools = client.ask("tools/list", &json!({}))["result"]["tools"].clone();
    assert!(tools[0]["description"].as_str().unwrap().starts_with("Greets once more."), "{tools}");
    client.end();
}

#[test]
fn progress_names_the_running_step() {
    let home = home(&["hello"]);
    add(&home, "Greets, and divides.");
    let mut client = Client::greeted(&home, &[]);
    for (by, end) in [(4, "The action succeeded."), (0, "The action failed: connector_runtime_error.")] {
        client.notes.clear();
        let args = json!({"whom": "Ada", "by": by});
        let params = json!({"name": "greet_twice", "arguments": args, "_meta": {"progressToken": "p"}});
        client.ask("tools/call", &params);
        let told: Vec<_> = client.notes.iter().map(|note| note["params"].clone()).collect();
        let texts: Vec<_> = told.iter().map(|note| note["message"].as_str().unwrap()).collect();
        let hello = "of github://cofferdam/hello@0.1.0.";
        assert_eq!(texts.first(), Some(&&*format!("Step 1 of 2, greeting: greet {hello}")), "{texts:?}");
        assert!(texts.contains(&&*format!("Step 2 of 2, share: divide {hello}")), "{texts:?}");
        assert_eq!(texts.last(), Some(&end));
        assert!(told.iter().all(|note| note["total"] == 2.0), "{told:?}");
        let at: Vec<_> = told.iter().map(|note| note["progress"].as_f64().unwrap()).collect();
        assert!(at.is_sorted_by(|one, next| one < next), "it only grows: {at:?}");
        assert_eq!(at.last() == Some(&2.0), by == 4, "what is not done is not told as done: {at:?}");
    }
    client.end();
}

#[test]
fn completed_steps_are_reported_when_one_fails() {
    let home = home(&["hello"]);
    let host = home.host();
    let once =
        action(&host, "Greets, and divides.").replace("op = \"greet\"", "op = \"greet\"\nidempotent = false");
    crate::shared_host::run(host.add_action("greet-twice.md", once.as_bytes(), true)).unwrap();
    let mut client = Client::greeted(&home, &[]);
    let told = "It ended in step 'share'. Done before, and not undone: 'greeting'. 'greeting' must not be repeated, and \
                running the action again may do so: ask before that.";
    let failed = client.call("greet_twice", &json!({"whom": "Ada", "by": 0}));
    let text = failed["content"][0]["text"].as_str().unwrap();
    assert!(failed["isError"] == true && text.contains(told), "{text}");
    client.end();
}
