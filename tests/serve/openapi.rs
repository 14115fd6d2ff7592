//! The description is true: every answer that a test can cause fits the schema that it gives for it.

use serde_json::{Value, json};

use super::fixture::{Answer, Stage, probe};

/// The description, with what holds an answer against it.
pub(super) struct Described(Value);

impl Described {
    /// The description in this answer.
    #[track_caller]
    pub(super) fn of(answer: &Answer) -> Self {
        assert_eq!(answer.status, 200, "{answer:?}");
        Self(answer.json())
    }

    /// A validator of a schema that may refer to the description's components.
    fn validator(&self, schema: &Value) -> jsonschema::Validator {
        let mut whole = schema.clone();
        whole["components"] = self.0["components"].clone();
        jsonschema::draft202012::new(&whole).unwrap()
    }

    /// Whether the schema of requests at this path fits this body.
    pub(super) fn accepts(&self, path: &str, body: &Value) -> bool {
        let request = &self.0["paths"][path]["post"]["requestBody"]["content"]["application/json"];
        self.validator(&request["schema"]).is_valid(body)
    }

    #[track_caller]
    pub(super) fn fits(&self, path: &str, method: &str, answer: &Answer) {
        let response = &self.0["paths"][path][method]["responses"][answer.status.to_string()];
        assert!(response.is_object(), "{method} {path} does not say {}: {answer:?}", answer.status);
        let schema = &response["content"]["application/json"]["schema"];
        let body = answer.json();
        let wrong: Vec<_> =
            self.validator(schema).iter_errors(&body).map(|error| error.to_string()).collect();
        assert!(wrong.is_empty(), "{method} {path} {}: {wrong:?}: {body}", answer.status);
    }
}

#[test]
fn every_response_matches_the_openapi_schema() {
    let stage = Stage::new();
    let description = stage.get("/openapi.json");
    assert_eq!(description.status, 200);
    let described = Described(description.json());
    assert_eq!(described.0["openapi"], "3.1.0");
    assert_eq!(described.0["security"], json!([{"token": []}]));
    described.fits("/openapi.json", "get", &description);

    let url = |path: &str| json!({"url": stage.upstream.url(path)});
    let mut ids = Vec::new();
    for call in [
        probe("fetch", &url("/text/a")),
        probe("fetch", &url("/status/503/a")),
        probe("fetch", &json!({"url": "https://example.com/"})),
        probe("panic", &json!({"message": "a"})),
        probe("fetch", &json!({})),
        probe("none", &json!({})),
        json!({"connector": "github://acme/none@1.0.0", "op": "a"}),
        json!({}),
    ] {
        let answer = stage.post(&call);
        described.fits("/v1/calls", "post", &answer);
        let told = answer.json();
        ids.extend(told["audit_id"].as_str().or(told["error"]["audit_id"].as_str()).map(str::to_owned));
    }
    described.fits("/v1/calls", "post", &stage.ask("POST", "/v1/calls", &[], b"{}"));
    described.fits("/v1/calls", "post", &stage.ask("POST", "/v1/calls", &["host: evil.example"], b"{}"));
    assert_eq!(ids.len(), 4);
    ids.push("audit-01890000-0000-7000-8000-000000000001".to_owned());
    for id in &ids {
        described.fits("/v1/audit/{id}", "get", &stage.get(&format!("/v1/audit/{id}")));
    }
    // Its schema of a value fits every value.
    let value = &described.0["components"]["schemas"]["CallValue"];
    assert_eq!(value["required"], json!(["value", "audit_id", "attempts"]), "{value}");
    let request = &described.0["components"]["schemas"]["CallRequest"];
    assert_eq!(request["additionalProperties"], json!(false));
    let profiles = request["properties"]["retry"]["enum"].as_array().unwrap();
    assert!(profiles.contains(&json!("patient")), "{request}");
}

/// The schemas in this part of a description that have a default.
fn with_default(part: &Value) -> Vec<&Value> {
    let own = part.get("default").map(|_| part);
    let below: Vec<&Value> = match part {
        Value::Object(fields) => fields.values().collect(),
        Value::Array(items) => items.iter().collect(),
        _ => Vec::new(),
    };
    own.into_iter().chain(below.into_iter().flat_map(with_default)).collect()
}

/// Tools that generate clients refuse a description with one that does not.
#[test]
fn every_default_fits_its_schema() {
    let stage = Stage::new();
    for path in ["/openapi.json", "/openapi.json?connector=github://cofferdam/slack"] {
        let described = Described::of(&stage.get(path));
        let defaults = with_default(&described.0);
        assert!(defaults.len() >= 5, "{path}: {}", defaults.len());
        for schema in defaults {
            assert!(described.validator(schema).is_valid(&schema["default"]), "{path}: {schema}");
        }
    }
}

#[test]
fn without_a_token_the_schema_has_none() {
    let stage = Stage::with(&[]);
    let description = stage.get("/openapi.json").json();
    assert_eq!(
        (&description["security"], &description["components"]["securitySchemes"]),
        (&Value::Null, &Value::Null)
    );
}

#[test]
fn action_responses_match_the_openapi_schema() {
    let stage = super::actions::stage();
    let described = Described(stage.get("/openapi.json").json());
    let url = |path: &str| stage.upstream.url(path);
    let args = |url: &str| json!({"args": {"text": "a", "url": url}});
    let mut statuses = Vec::new();
    for (body, done) in [
        (args(&url("/text/got")), None),
        (args(&url("/status/404/a")), Some("posted")),
        (args(&url("/status/503/a")), Some("posted")),
        (args(&url("/drop")), Some("posted")),
        (args("https://example.com/"), Some("posted")),
        (args("no url"), Some("posted")),
        (json!({"args": {"text": "a"}}), None),
        (json!({"args": {"text": 1, "url": "a"}}), None),
        (json!({"args": {}, "wall_time": "soon"}), None),
        (json!({"argz": {}}), None),
    ] {
        let answer = super::actions::run(&stage, &[], &body);
        described.fits("/v1/actions/{name}/run", "post", &answer);
        assert_eq!(answer.header("steps-done"), done, "{body}: {answer:?}");
        let headers = &described.0["paths"]["/v1/actions/{name}/run"]["post"]["responses"]
            [answer.status.to_string()]["headers"];
        for name in ["Audit-Id", "Steps-Done", "Steps-Partial", "Replayed"] {
            assert!(answer.header(name).is_none() || headers.get(name).is_some(), "{name}: {answer:?}");
        }
        statuses.push(answer.status);
    }
    assert_eq!(statuses[..5], [200, 502, 502, 502, 500]);
    assert!(statuses[6..].iter().all(|status| *status == 400), "{statuses:?}");
    // Under one key, with other arguments.
    let keyed = |text: &str| {
        let body = json!({"args": {"text": text, "url": url("/text/got")}});
        super::actions::run(&stage, &["idempotency-key: described-1"], &body)
    };
    assert_eq!(
        [keyed("a"), keyed("a"), keyed("b")].map(|answer| {
            described.fits("/v1/actions/{name}/run", "post", &answer);
            answer.status
        }),
        [200, 200, 409]
    );
    let json = "content-type: application/json";
    let ask = |path: &str, headers: &[&str]| stage.ask("POST", path, headers, b"{}");
    for (answer, status) in [
        (ask("/v1/actions/none/run", &[json]), 404),
        (ask("/v1/actions/post-and-get/run", &[]), 415),
        (ask("/v1/actions/post-and-get/run", &[json, "host: evil.example"]), 403),
    ] {
        described.fits("/v1/actions/{name}/run", "post", &answer);
        assert_eq!(answer.status, status, "{answer:?}");
    }
    // An action's own entry can be queried as well.
    let id = keyed("a").header("audit-id").unwrap().to_owned();
    described.fits("/v1/audit/{id}", "get", &stage.get(&format!("/v1/audit/{id}")));
}
