//! The description of the API in OpenAPI 3.1, generated from the types of requests and answers.

use cofferdam_core::error::HostErrorKind;
use cofferdam_core::failure::FailureClass;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::audit::LoggedCallView;
use super::request::{ActionRequest, CallRequest, KEY_PATTERN};
use super::response::{ActionAnswer, CallValue};
use super::{ACTIONS, AUDIT, CALLS, DESCRIPTION, response};
use crate::server::HEALTH;

/// A failure of one of the nine classes: the outcome of a call that has no value.
#[derive(Serialize, JsonSchema)]
#[serde(rename = "FailureEnvelope")]
struct FailureEnvelope {
    /// The failure.
    error: FailureBody,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename = "Failure")]
struct FailureBody {
    /// One of the nine classes. Programs branch on it.
    class: String,
    /// A sentence for people.
    message: String,
    /// True if the same call may be made again.
    retriable: bool,
    /// The layer that failed.
    boundary: String,
    /// The call's id in the audit log.
    audit_id: String,
    /// The fields of this class; `code` is always present.
    details: Map<String, Value>,
}

/// An error that is no outcome of a call: the reason why a request was not accepted.
#[derive(Serialize, JsonSchema)]
#[serde(rename = "ErrorEnvelope")]
struct ErrorEnvelope {
    /// The error.
    error: ErrorBody,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename = "Error")]
struct ErrorBody {
    /// The error's code. Programs branch on it.
    code: String,
    /// A sentence for people.
    message: String,
    /// Further fields of the error.
    details: Map<String, Value>,
    /// The id of the request in the operator's log.
    request_id: String,
}

/// The answers of the listener to requests that do not reach the API, and of the router to unknown paths.
const REFUSED: [(u16, &str); 5] = [
    (401, "The token is missing or wrong."),
    (403, "The request names a host that is not this server's, or comes from a foreign page."),
    (408, "The body took too long to arrive."),
    (413, "The body is too long."),
    (503, "The server is about to end, or the host's operator has to mend something; nothing was run."),
];

/// Returns the description; `profiles` are the available retry profiles.
pub(super) fn description(profiles: &[&str], has_token: bool) -> Value {
    let settings = SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into());
    let mut generator = settings.into_generator();
    let failure = reference::<FailureEnvelope>(&mut generator);
    let error = reference::<ErrorEnvelope>(&mut generator);
    let either = json!({"oneOf": [failure, error]});
    let mut calls = Map::new();
    calls.insert("200".into(), answer("The value.", reference::<CallValue>(&mut generator)));
    link(&mut calls, "200", "$response.body#/audit_id");
    for class in FailureClass::ALL {
        add_status(
            &mut calls,
            response::for_class(*class).as_u16(),
            &format!("`{}`.", class.name()),
            &either,
        );
    }
    for kind in HostErrorKind::ALL.iter().filter(|kind| applies_to_calls(**kind)) {
        add_status(&mut calls, response::for_kind(*kind).as_u16(), &format!("`{}`.", kind.code()), &either);
    }
    add_status(&mut calls, 415, "The body is not said to be JSON.", &either);
    let mut actions = calls.clone();
    let value = answer("The values of its steps.", reference::<ActionAnswer>(&mut generator));
    actions.insert("200".into(), value);
    link(&mut actions, "200", "$response.header.Audit-Id");
    add_status(&mut actions, 404, "`action_not_found`.", &either);
    add_status(
        &mut actions,
        422,
        "`action_unusable`: the action's file does not fit what is installed.",
        &either,
    );
    add_status(
        &mut actions,
        500,
        "Steps are done, or may be, and something else than a failure of 502 or 507 ended it.",
        &either,
    );
    for (status, response) in &mut calls {
        if status != "200"
            && let Some(response) = response.as_object_mut()
        {
            let header = json!({"description": REPLAYED, "required": false, "schema": {"type": "string"}});
            response.insert("headers".into(), json!({"Replayed": header}));
        }
    }
    let mut shown = Map::new();
    shown.insert("200".into(), answer("The call.", reference::<LoggedCallView>(&mut generator)));
    add_status(&mut shown, 404, "`audit_not_found`.", &error);
    add_status(&mut shown, 500, "`internal`.", &error);
    let mut described = Map::new();
    described.insert("200".into(), answer("This description.", json!({"type": "object"})));
    for responses in [&mut calls, &mut actions, &mut shown, &mut described] {
        for (status, text) in REFUSED {
            add_status(responses, status, text, &either);
        }
    }
    for (status, response) in &mut actions {
        add_action_headers(status, response);
    }
    let request = reference::<CallRequest>(&mut generator);
    let run = reference::<ActionRequest>(&mut generator);
    let mut schemas = Value::Object(generator.take_definitions(true));
    if let Some(retry) = schemas.pointer_mut("/CallRequest/properties/retry").and_then(Value::as_object_mut) {
        retry.remove("x-cofferdam");
        let names = profiles.iter().copied().map(Value::from).chain([Value::Null]);
        retry.insert("enum".into(), names.collect());
    }
    let key = json!({
        "name": "Idempotency-Key", "in": "header", "required": false,
        "description": "The key under which the call is done once: given again with the same call, nothing is run and the recorded outcome is answered.",
        "schema": {"type": "string", "pattern": KEY_PATTERN}
    });
    let id = json!({
        "name": "id", "in": "path", "required": true, "description": "The call's id.",
        "schema": {"type": "string", "pattern": "^audit-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"}
    });
    let name = json!({
        "name": "name", "in": "path", "required": true, "description": "The action's name.",
        "schema": {"type": "string", "pattern": "^[a-z0-9][a-z0-9-]{0,40}$"}
    });
    let healthy = json!({"description": "The process lives.", "content": {"text/plain": {"schema": {"type": "string"}}}});
    let wrong_host = answer("The request names a host that is not this server's.", error);
    let mut all = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "cofferdam",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Calls connectors: verified, granted only what they declare, limited, recorded."
        },
        "paths": {
            CALLS: {"post": {
                "operationId": "call", "summary": "Makes one call.", "parameters": [key],
                "requestBody": {"required": true, "content": {"application/json": {"schema": request}}},
                "responses": calls
            }},
            (format!("{ACTIONS}/{{name}}/run")): {"post": {
                "operationId": "action", "summary": "Runs one action.", "parameters": [name, key],
                "requestBody": {"required": true, "content": {"application/json": {"schema": run}}},
                "responses": actions
            }},
            (format!("{AUDIT}/{{id}}")): {"get": {
                "operationId": "audit", "summary": "What is on record of a call.", "parameters": [id],
                "responses": shown
            }},
            DESCRIPTION: {"get": {
                "operationId": "description", "summary": "This description.", "responses": described
            }},
            HEALTH: {"get": {
                "operationId": "health", "summary": "Whether the process lives.", "security": [],
                "responses": {"200": healthy, "403": wrong_host}
            }}
        },
        "components": {"schemas": schemas}
    });
    if has_token && let Some(all) = all.as_object_mut() {
        all.insert("security".into(), json!([{"token": []}]));
        if let Some(components) = all.get_mut("components").and_then(Value::as_object_mut) {
            components
                .insert("securitySchemes".into(), json!({"token": {"type": "http", "scheme": "bearer"}}));
        }
    }
    all
}

/// Returns true if a call can end with this error.
fn applies_to_calls(kind: HostErrorKind) -> bool {
    use HostErrorKind as Kind;
    !matches!(
        kind,
        Kind::Downgrade
            | Kind::InputUnreadable
            | Kind::BindingNotFound
            | Kind::AuditNotFound
            | Kind::NotReplayable
            | Kind::AuditTampered
            | Kind::OutputUnwritable
            | Kind::Tool
    )
}

fn reference<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    Schema::to_value(generator.subschema_for::<T>())
}

fn answer(description: &str, schema: Value) -> Value {
    json!({"description": description, "content": {"application/json": {"schema": schema}}})
}

/// Adds a link to the audit entry of the call.
fn link(responses: &mut Map<String, Value>, status: &str, id: &str) {
    if let Some(response) = responses.get_mut(status).and_then(Value::as_object_mut) {
        let record = json!({"operationId": "audit", "parameters": {"id": id}});
        response.insert("links".into(), json!({"record": record}));
    }
}

/// Adds the headers of an action's answer.
fn add_action_headers(status: &str, response: &mut Value) {
    let header = |text: &str| json!({"description": text, "required": false, "schema": {"type": "string"}});
    let mut headers = Map::new();
    let id = header(
        "The id of the action's own record, of whatever was taken up. That of a failure is its step's.",
    );
    headers.insert("Audit-Id".into(), id);
    headers.insert("Replayed".into(), header(REPLAYED));
    if status == "200" {
        let partial =
            header("The steps whose values are partial, each as `step=3`: so many of its items failed.");
        headers.insert("Steps-Partial".into(), partial);
    } else {
        let done = header(
            "The steps that are done although the action failed, with commas between them; nothing undoes them. It is \
             there wherever a step was begun.",
        );
        headers.insert("Steps-Done".into(), done);
    }
    if let Some(response) = response.as_object_mut() {
        response.insert("headers".into(), headers.into());
    }
}

/// The description of the header `Replayed`.
const REPLAYED: &str = "The audit id of the call or action whose recorded outcome this is, for the idempotency key: nothing was run.";

/// Adds one more reason for a status.
fn add_status(responses: &mut Map<String, Value>, status: u16, text: &str, schema: &Value) {
    let response = responses.entry(status.to_string()).or_insert_with(|| answer("", schema.clone()));
    if let Some(Value::String(description)) = response.get_mut("description") {
        if !description.is_empty() {
            description.push(' ');
        }
        description.push_str(text);
    }
}
