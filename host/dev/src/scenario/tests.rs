//! Tests of the parser: what it reads, and how it refuses what it does not.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

use std::path::Path;

use cofferdam_core::failure::FailureClass;
use cofferdam_model::manifest::Manifest;

use super::*;

/// The manifest of that connector.
pub(crate) const MANIFEST: &str = "[connector]\nname = \"github://acme/tickets\"\nversion = \"1.0.0\"\n\
    [capabilities.network]\nhosts = [\"api.tickets.example:443\", \"http://localhost:8080\"]\n\
    [[capabilities.credential]]\nkind = \"bearer\"\nservice = \"tickets\"\nhosts = [\"api.tickets.example:443\"]\n\
    [[capabilities.credential]]\nkind = \"api_key\"\nservice = \"other\"\nhosts = [\"http://localhost:8080\"]\n";

/// A connector with some operations and grants.
pub(crate) fn connector() -> TestedConnector {
    TestedConnector {
        manifest: Manifest::parse("connector.toml", MANIFEST).unwrap(),
        operations: ["create_issue", "get_issue", "list_issues"].map(ToOwned::to_owned).into(),
        unused_imports: Vec::new(),
    }
}

fn parse(text: &str) -> Result<Vec<Scenario>, String> {
    parse_scenarios("t.toml", text, Path::new("/nowhere"), &connector()).map_err(|error| error.to_string())
}

const CALL: &str = "[[scenario.call]]\noperation = \"list_issues\"\n";

#[test]
fn a_scenario_is_read_whole() {
    let text = r#"
[[scenario]]
name = "everything"
unordered = true
clock = "2026-01-02T03:04:05Z"
bind = { "bearer/tickets" = "test-token", "api_key/other" = false }

[[scenario.service]]
request = { method = "POST", url = "https://api.tickets.example/v1/issues/{{any}}?state=open&state=new", headers = { accept = "application/json" }, json = {
    title = "{{string}}",
    "..." = "{{any}}",
} }
response = { status = 201, headers = { location = "/v1/issues/7", x = ["a", "b"] }, json = { id = 7, none = "{{null}}" } }
times = 2

[[scenario.service]]
request = { method = "GET", url = "http://localhost:8080", query = { page = 2, "..." = "{{any}}" } }
response = { body = "0123456789" }
fault = { kind = "reset", after_bytes = 3 }

[[scenario.call]]
operation = "create-issue"
args = { title = "Broken", note = "{{null}}" }
key = "K1"
identity = { tickets = "work" }
expect.failure = { class = "external_api_error", code = "{{any}}", boundary = "external", retriable = true, details = { status = 503 } }
expect.attempts = 2
"#;
    let scenarios = parse(text).unwrap();
    let [scenario] = scenarios.as_slice() else { panic!("{scenarios:?}") };
    assert_eq!((scenario.name.as_str(), scenario.place.to_string().as_str()), ("everything", "t.toml:2"));
    assert!(scenario.unordered && scenario.clock.is_some());
    let bound: Vec<_> = scenario.bindings.iter().map(|binding| binding.name.to_string()).collect();
    assert_eq!(bound, ["bearer/tickets/default"]);
    let [first, second] = scenario.service.as_slice() else { panic!() };
    assert_eq!((first.times, first.request.host.to_string().as_str()), (2, "api.tickets.example:443"));
    assert_eq!((first.request.path.source(), first.request.query[0].1.len()), ("/v1/issues/{{any}}", 2));
    let Answer::Response(response) = &first.answer else { panic!() };
    assert_eq!((response.status.as_u16(), response.headers.len()), (201, 4), "with a content type");
    assert_eq!(&*response.body, br#"{"id":7,"none":null}"#);
    assert_eq!((second.request.path.source(), second.request.open_query), ("/", true));
    assert!(matches!(&second.answer, Answer::Fault(Fault::Reset(Some((_, 3))))));
    let call = &scenario.calls[0];
    assert_eq!((call.operation.as_str(), call.key.as_deref()), ("create_issue", Some("K1")));
    assert_eq!(Value::from(call.args.clone()), serde_json::json!({"title": "Broken", "note": null}));
    let ExpectedOutcome::Failure(failure) = &call.expect.outcome else { panic!() };
    assert_eq!((failure.class, call.expect.attempts), (Some(FailureClass::ExternalApiError), Some(2)));
}

#[test]
fn credentials_are_made_up_unless_they_are_named() {
    let scenario = &parse(&format!("[[scenario]]\nname = \"x\"\n{CALL}")).unwrap()[0];
    let bound: Vec<_> = scenario.bindings.iter().map(|binding| binding.name.to_string()).collect();
    assert_eq!(bound, ["bearer/tickets/default", "api_key/other/default"]);
    let named = "[[scenario]]\nname = \"x\"\nbind = { \"bearer/tickets/work\" = \"0123456789\" }\n";
    let scenario = &parse(&format!("{named}{CALL}")).unwrap()[0];
    let bound: Vec<_> = scenario.bindings.iter().map(|binding| binding.name.to_string()).collect();
    assert_eq!(bound, ["bearer/tickets/work", "api_key/other/default"]);
}

#[test]
fn problems_have_their_line_and_a_fix() {
    let service = |step: &str| format!("[[scenario]]\nname = \"x\"\n[[scenario.service]]\n{step}\n{CALL}");
    let get = "request = { method = \"GET\", url = \"https://api.tickets.example/\" }";
    for (text, line, says) in [
        (String::new(), 1, "[[scenario]]"),
        ("[[scenario]]\nname = \"x\"\n".to_owned(), 1, "[[scenario.call]]"),
        (format!("[[scenario]]\nnam = \"x\"\n{CALL}"), 2, "did you mean `name`?"),
        (format!("[[scenario]]\nname = \" \"\n{CALL}"), 2, "write one line"),
        (format!("[[scenario]]\nname = \"x\"\n{CALL}[[scenario]]\nname = \"x\"\n{CALL}"), 6, "at line 2"),
        (
            "[[scenario]]\nname = \"x\"\n[[scenario.call]]\noperation = \"list_isues\"\n".to_owned(),
            4,
            "did you mean `list_issues`?",
        ),
        (
            format!("[[scenario]]\nname = \"x\"\nbind = {{ \"bearer/ticket\" = \"s\" }}\n{CALL}"),
            3,
            "did you mean \"bearer/tickets\"?",
        ),
        (service("response = { status = 200 }"), 3, "add request"),
        (
            service("request = { method = \"GET\", url = \"https://evil.example/\" }"),
            4,
            "add \"evil.example:443\" to the hosts in connector.toml",
        ),
        (service("request = { method = \"get\", url = \"https://api.tickets.example/\" }"), 4, "\"GET\""),
        (service("request = { method = \"GET\", url = \"/v1\" }"), 4, "not an http or https URL"),
        (service(&format!("{get}\ntimes = 0")), 5, "from 1 to 10000"),
        (service(&format!("{get}\nresponse = {{ status = 100 }}")), 5, "write 200 to 599"),
        (service(&format!("{get}\nresponse = {{ json = {{}}, body = \"\" }}")), 5, "keep one of json, body"),
        (service(&format!("{get}\nresponse = {{ body_file = \"no.bin\" }}")), 5, "cannot be read"),
        (service(&format!("{get}\nresponse = {{ headers = {{ content-length = \"1\" }} }}")), 5, "remove it"),
        (service(&format!("{get}\nresponse = {{ json = \"{{{{any}}}}\" }}")), 5, "only {{null}}"),
        (service(&format!("{get}\nfault = {{ kind = \"refused\" }}")), 5, "did you mean \"refuse\"?"),
        (
            service(&format!("{get}\nfault = {{ kind = \"drip\", bytes_per_second = 1 }}")),
            5,
            "add a response",
        ),
        (
            service(&format!(
                "{get}\nresponse = {{ body = \"abc\" }}\nfault = {{ kind = \"reset\", after_bytes = 3 }}"
            )),
            6,
            "write a smaller number",
        ),
        (
            service(&format!("{get}\nresponse = {{ body = \"abc\" }}\nfault = {{ kind = \"refuse\" }}")),
            6,
            "remove the response",
        ),
        (
            format!(
                "[[scenario]]\nname = \"x\"\nunordered = true\n[[scenario.service]]\n{get}\nfault = {{ kind = \"tls\" }}\n{CALL}"
            ),
            6,
            "write unordered = false",
        ),
        (
            format!("[[scenario]]\nname = \"x\"\n{CALL}args = {{ a = \"{{{{any}}}}\" }}"),
            5,
            "write the value itself",
        ),
        (
            format!("[[scenario]]\nname = \"x\"\n{CALL}expect.value = 1\nexpect.failure = {{}}"),
            6,
            "keep one of value",
        ),
        (
            format!("[[scenario]]\nname = \"x\"\n{CALL}expect.failure = {{ class = \"network\" }}"),
            5,
            "did you mean \"network_error\"?",
        ),
        (
            format!("[[scenario]]\nname = \"x\"\n{CALL}expect.value = \"{{{{uid}}}}\""),
            5,
            "did you mean {{uuid}}?",
        ),
    ] {
        let error = parse(&text).err().unwrap_or_else(|| panic!("accepted: {text}"));
        let place = format!("t.toml:{line}:");
        assert!(
            error.lines().any(|it| it.starts_with(&place) && it.contains(says)),
            "{place} {says}: {error}"
        );
    }
}

#[test]
fn a_thousand_scenarios_are_read() {
    let text: String = (0..1000).map(|n| format!("[[scenario]]\nname = \"{n}\"\n{CALL}")).collect();
    assert_eq!(parse(&text).unwrap().len(), 1000);
}

#[test]
fn yaml_is_read_as_the_same_toml_is() {
    let (_, rest) = include_str!("reference.md").split_once("```yaml\n").unwrap();
    let (yaml, _) = rest.split_once("```").unwrap();
    let parse = |label: &str, text: &str| parse_scenarios(label, text, Path::new("."), &connector());
    let scenarios = parse("t.yaml", yaml).unwrap();
    let [scenario] = scenarios.as_slice() else { panic!("{scenarios:?}") };
    assert_eq!(scenario.place.to_string(), "t.yaml:2");
    assert_eq!(scenario.calls[0].place.to_string(), "t.yaml:7");
    assert_eq!(Value::from(scenario.calls[0].args.clone()), serde_json::json!({"number": 8}));
    let guide = include_str!("../../../../docs/guides/test-a-connector.md");
    let (_, rest) = guide.split_once("```toml\n").unwrap();
    let (toml, _) = rest.split_once("```").unwrap();
    let [same] = parse("t.toml", toml).unwrap().try_into().unwrap();
    let shown = |scenario: &Scenario| {
        let (service, call) = (&scenario.service[0], &scenario.calls[0]);
        format!("{:?} {:?} {:?} {:?}", service.request.path, service.answer, call.operation, call.expect)
    };
    assert_eq!(shown(scenario), shown(&same));
    let error = parse("t.yml", &yaml.replace("status: 404", "staus: 404")).unwrap_err().to_string();
    assert!(error.starts_with("t.yml:5:21: scenario[0].service[0].response.staus: "), "{error}");
    assert!(error.contains("did you mean `status`?"), "{error}");
}
