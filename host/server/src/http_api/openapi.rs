//! The description of the API in OpenAPI 3.1, generated from the types of requests and answers.

use cofferdam_audit::approvals::Approval;
use cofferdam_audit::{NamedCalls, StatsGrouping, StatsReport};
use cofferdam_core::error::HostErrorKind;
use cofferdam_core::failure::FailureClass;
use cofferdam_model::package::{Package, ValueShape};
use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::approvals::ApprovalList;
use super::audit::{CallPage, LoggedCallView};
use super::changes::ChangePage;
use super::connectors::{ConnectorList, ConnectorView, operations_path};
use super::difference::ConnectorDifference;
use super::grant_requests::GrantRequestList;
use super::health::HealthReport;
use super::history::HistoryReport;
use super::job_request::JobRequest;
use super::jobs::JobView;
use super::network::NetworkReport;
use super::query::{self, APPROVAL_PATTERN, ID_PATTERN};
use super::request::{ActionRequest, CallRequest, KEY_PATTERN, OperationRequest};
use super::response::{ActionAnswer, CallValue};
use super::{
    ACTIONS, APPROVALS, AUDIT, CALLS, CHANGES, CONNECTOR_PATH, CONNECTORS, DESCRIPTION, GRANT_REQUESTS,
    HEALTH_REPORT, HISTORY, JOBS, LIVE, NETWORK, STATS, response,
};
use crate::author_text::{PARAMETER_BYTES, sanitize_text};
use crate::json_schema;
use crate::server::{HEALTH, READY};

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

/// The responses of calls, and the schemas that other responses share with them.
struct CallResponses {
    calls: Map<String, Value>,
    error: Value,
    either: Value,
}

impl CallResponses {
    fn new(generator: &mut SchemaGenerator) -> Self {
        let failure = reference::<FailureEnvelope>(generator);
        let error = reference::<ErrorEnvelope>(generator);
        let either = json!({"oneOf": [failure, error]});
        let mut calls = Map::new();
        calls.insert("200".into(), answer("The value.", reference::<CallValue>(generator)));
        for class in FailureClass::ALL {
            let status = response::for_class(*class).as_u16();
            add_status(&mut calls, status, &format!("`{}`.", class.name()), &either);
        }
        for kind in HostErrorKind::ALL.iter().filter(|kind| applies_to_calls(**kind)) {
            add_status(
                &mut calls,
                response::for_kind(*kind).as_u16(),
                &format!("`{}`.", kind.code()),
                &either,
            );
        }
        add_status(&mut calls, 415, "The body is not said to be JSON.", &either);
        Self { calls, error, either }
    }
}

fn generator() -> SchemaGenerator {
    let settings = SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into());
    settings.into_generator()
}

/// Adds the header of replayed outcomes to the errors of a call.
fn add_replayed_header(calls: &mut Map<String, Value>) {
    for (status, response) in calls {
        if status != "200"
            && let Some(response) = response.as_object_mut()
        {
            let header = json!({"description": REPLAYED, "required": false, "schema": {"type": "string"}});
            response.insert("headers".into(), json!({"Replayed": header}));
        }
    }
}

/// Adds the listener's own answers.
fn add_refused(responses: &mut Map<String, Value>, schema: &Value) {
    for (status, text) in REFUSED {
        add_status(responses, status, text, schema);
    }
}

/// Returns the schemas of all types that were referred to. The retry profiles are those of the host.
fn definitions(generator: &mut SchemaGenerator, profiles: &[String]) -> Value {
    let mut schemas = Value::Object(generator.take_definitions(true));
    for request in ["/CallRequest/properties/retry", "/OperationRequest/properties/retry"] {
        if let Some(retry) = schemas.pointer_mut(request).and_then(Value::as_object_mut) {
            retry.remove("x-cofferdam");
            let names = profiles.iter().map(|name| Value::from(name.as_str())).chain([Value::Null]);
            retry.insert("enum".into(), names.collect());
        }
    }
    schemas
}

/// Returns the parameter with the idempotency key.
fn key_parameter() -> Value {
    json!({
        "name": "Idempotency-Key", "in": "header", "required": false,
        "description": "The key under which the call is done once: given again with the same call, nothing is run and the recorded outcome is answered. One that begins with `audit-` is accepted only with the call whose failure names it (`details.repeat_with_key`).",
        "schema": {"type": "string", "pattern": KEY_PATTERN}
    })
}

/// Requires the token of the server.
fn require_token(description: &mut Value) {
    let Some(all) = description.as_object_mut() else { return };
    all.insert("security".into(), json!([{"token": []}]));
    if let Some(components) = all.get_mut("components").and_then(Value::as_object_mut) {
        components.insert("securitySchemes".into(), json!({"token": {"type": "http", "scheme": "bearer"}}));
    }
}

/// Returns the description of the operations of one connector, a path for each with its own types. `connector` is its name
/// as the paths have it: with the version, or without it for the active one.
pub(super) fn connector_description(
    connector: &str,
    package: &Package,
    profiles: &[String],
    has_token: bool,
) -> Value {
    let mut generator = generator();
    let CallResponses { mut calls, either, .. } = CallResponses::new(&mut generator);
    add_refused(&mut calls, &either);
    add_replayed_header(&mut calls);
    generator.subschema_for::<OperationRequest>();
    let mut schemas = definitions(&mut generator, profiles);
    let mut take =
        |name: &str| schemas.as_object_mut().and_then(|all| all.shift_remove(name)).unwrap_or_default();
    let (mut request, value) = (take("OperationRequest"), take("CallValue"));
    set_identities(&mut request, package);
    let path = operations_path(connector, None);
    let paths: Map<String, Value> = package
        .operations()
        .iter()
        .map(|operation| {
            let op = operation.name().json();
            let docs = package.docs().operation(op);
            let mut request = request.clone();
            set(&mut request, "/properties", "args", json_schema::input(operation, docs).into());
            if operation.params().iter().any(|param| !matches!(param.shape, ValueShape::Option(_))) {
                set(&mut request, "", "required", json!(["args"]));
            }
            let mut value = value.clone();
            set(&mut value, "/properties", "value", json_schema::result(operation).into());
            let mut responses = calls.clone();
            responses.insert("200".into(), answer("The value.", value));
            let text = docs.map(|docs| sanitize_text(docs.text(), PARAMETER_BYTES)).unwrap_or_default();
            let post = json!({
                "operationId": op,
                "summary": format!("Calls {op} of {connector}."),
                "description": text,
                "parameters": [key_parameter()],
                "requestBody": {"required": true, "content": {"application/json": {"schema": request}}},
                "responses": responses
            });
            (format!("{path}/{op}"), json!({"post": post}))
        })
        .collect();
    let manifest = package.manifest();
    let mut all = json!({
        "openapi": "3.1.0",
        "info": {
            "title": connector,
            "version": manifest.version().to_string(),
            "description": sanitize_text(manifest.description().unwrap_or_default(), PARAMETER_BYTES)
        },
        "paths": paths,
        "components": {"schemas": schemas}
    });
    if has_token {
        require_token(&mut all);
    }
    all
}

/// Names the services for which an identity can be chosen: those of the connector's credentials.
fn set_identities(request: &mut Value, package: &Package) {
    let services = package.manifest().credentials().iter().map(|grant| grant.service().to_owned());
    let services: Map<String, Value> = services.map(|service| (service, json!({"type": "string"}))).collect();
    let Some(Value::Object(properties)) = request.pointer_mut("/properties") else { return };
    if services.is_empty() {
        properties.shift_remove("identities");
    } else if let Some(Value::Object(identities)) = properties.get_mut("identities") {
        identities.insert("properties".into(), services.into());
        identities.insert("additionalProperties".into(), false.into());
    }
}

/// Sets a field of the object at this pointer.
fn set(schema: &mut Value, pointer: &str, field: &str, value: Value) {
    if let Some(object) = schema.pointer_mut(pointer).and_then(Value::as_object_mut) {
        object.insert(field.to_owned(), value);
    }
}

/// Returns the description; `profiles` are the available retry profiles, and `has_jobs` is true if there is a queue.
pub(super) fn description(profiles: &[String], has_token: bool, has_jobs: bool) -> Value {
    let mut generator = generator();
    let CallResponses { mut calls, error, either } = CallResponses::new(&mut generator);
    link(&mut calls, "200", "$response.body#/audit_id");
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
    add_replayed_header(&mut calls);
    let mut shown = Map::new();
    shown.insert("200".into(), answer("The call.", reference::<LoggedCallView>(&mut generator)));
    add_status(&mut shown, 404, "`audit_not_found`.", &error);
    add_status(&mut shown, 500, "`internal`.", &error);
    let described = answer("This description, or that of the connector.", json!({"type": "object"}));
    let mut described = read_responses(described, &either);
    add_status(&mut described, 404, "`connector_not_found`.", &either);
    add_status(&mut described, 422, "The package of the connector cannot be run.", &either);
    for responses in [&mut calls, &mut actions, &mut shown] {
        add_refused(responses, &either);
    }
    let connectors = answer("The connectors.", reference::<ConnectorList>(&mut generator));
    let connectors = read_responses(connectors, &either);
    let connector = answer("The connector.", reference::<ConnectorView>(&mut generator));
    let mut connector = read_responses(connector, &either);
    add_status(&mut connector, 404, "`connector_not_found`.", &either);
    add_status(&mut connector, 422, "The package cannot be read.", &either);
    let difference = answer("The changes.", reference::<ConnectorDifference>(&mut generator));
    let mut difference = read_responses(difference, &either);
    add_status(&mut difference, 404, "`connector_not_found`: one of the versions is not installed.", &either);
    add_status(&mut difference, 422, "A package cannot be read, or was changed.", &either);
    let page = read_responses(answer("The calls.", reference::<CallPage>(&mut generator)), &either);
    let stats = read_responses(answer("The statistics.", stats_schema(&mut generator)), &either);
    let approvals = answer("The approvals.", reference::<ApprovalList>(&mut generator));
    let approvals = read_responses(approvals, &either);
    let approval = answer("The approval.", reference::<Approval>(&mut generator));
    let mut approval = read_responses(approval, &either);
    add_status(&mut approval, 404, "`audit_not_found`.", &either);
    let operation = reference::<OperationRequest>(&mut generator);
    for (status, response) in &mut actions {
        add_action_headers(status, response);
    }
    let jobs = if has_jobs { job_paths(&mut generator, &either) } else { Map::new() };
    let overviews = overview_paths(&mut generator, &either);
    let request = reference::<CallRequest>(&mut generator);
    let run = reference::<ActionRequest>(&mut generator);
    let schemas = definitions(&mut generator, profiles);
    let id = json!({
        "name": "id", "in": "path", "required": true, "description": "The call's id.",
        "schema": {"type": "string", "pattern": ID_PATTERN}
    });
    let name = json!({
        "name": "name", "in": "path", "required": true, "description": "The action's name.",
        "schema": {"type": "string", "pattern": "^[a-z0-9][a-z0-9-]{0,40}$"}
    });
    let healthy = json!({"description": "The process lives.", "content": {"text/plain": {"schema": {"type": "string"}}}});
    let wrong_host = answer("The request names a host that is not this server's.", error);
    let ready = json!({
        "type": "object", "required": ["ready", "missing"],
        "properties": {
            "ready": {"type": "boolean"}, "missing": {"type": "array", "items": {"type": "string"}}
        }
    });
    let mut all = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "cofferdam",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Calls connectors: verified, granted only what they declare, limited, recorded."
        },
        "paths": {
            CALLS: {"post": {
                "operationId": "call", "summary": "Makes one call.", "parameters": [key_parameter()],
                "requestBody": {"required": true, "content": {"application/json": {"schema": request}}},
                "responses": calls
            }},
            (format!("{ACTIONS}/{{name}}/run")): {"post": {
                "operationId": "action", "summary": "Runs one action.", "parameters": [name, key_parameter()],
                "requestBody": {"required": true, "content": {"application/json": {"schema": run}}},
                "responses": actions
            }},
            (format!("{AUDIT}/{{id}}")): {"get": {
                "operationId": "audit", "summary": "What is on record of a call.", "parameters": [id],
                "responses": shown
            }},
            CONNECTORS: {"get": {
                "operationId": "connectors", "summary": "The installed connectors.", "responses": connectors
            }},
            CONNECTOR_PATH: {"get": {
                "operationId": "connector", "summary": "What a connector may do, and the types of its operations.",
                "parameters": name_parameters(), "responses": connector
            }},
            (format!("{CONNECTOR_PATH}/difference")): {"get": {
                "operationId": "difference", "summary": "The changes between two installed versions of a connector.",
                "parameters": difference_parameters(), "responses": difference
            }},
            (format!("{CONNECTOR_PATH}/operations/{{op}}")): {"post": {
                "operationId": "operation", "summary": "Calls one operation of a connector.",
                "parameters": operation_parameters(),
                "requestBody": {"required": true, "content": {"application/json": {"schema": operation}}},
                "responses": calls
            }},
            AUDIT: {"get": {
                "operationId": "audit_list", "summary": "The calls on record, the newest first.",
                "parameters": query::page_parameters(), "responses": page
            }},
            APPROVALS: {"get": {
                "operationId": "approvals", "summary": "The calls that wait for a person, the oldest first.",
                "parameters": query::approval_parameters(), "responses": approvals
            }},
            (format!("{APPROVALS}/{{id}}")): {"get": {
                "operationId": "approval", "summary": "One call that waits for a person, and its answer.",
                "parameters": [{
                    "name": "id", "in": "path", "required": true, "description": "The approval's id.",
                    "schema": {"type": "string", "pattern": APPROVAL_PATTERN}
                }],
                "responses": approval
            }},
            STATS: {"get": {
                "operationId": "stats", "summary": "The number of calls, and how long they took.",
                "parameters": query::stats_parameters(), "responses": stats
            }},
            DESCRIPTION: {"get": {
                "operationId": "description", "summary": "This description, or that of one connector's operations.",
                "parameters": [query::parameter(
                    "connector", "Describes the operations of this connector instead, each with its own types.",
                    json!({"type": "string", "pattern": query::CONNECTOR_PATTERN})
                )],
                "responses": described
            }},
            HEALTH: {"get": {
                "operationId": "health", "summary": "Whether the process lives.", "security": [],
                "responses": {"200": healthy, "403": wrong_host}
            }},
            READY: {"get": {
                "operationId": "readiness", "summary": "Whether calls can be run now, and what is missing.",
                "security": [],
                "responses": {
                    "200": answer("Nothing is missing.", ready.clone()),
                    "403": wrong_host,
                    "503": answer("Something is missing: an audit log, a queue, a vault.", ready)
                }
            }}
        },
        "components": {"schemas": schemas}
    });
    if let Some(paths) = all.get_mut("paths").and_then(Value::as_object_mut) {
        paths.extend(overviews);
        paths.extend(jobs);
    }
    if has_token {
        require_token(&mut all);
    }
    all
}

/// Returns the responses of a request that reads something.
fn read_responses(found: Value, error: &Value) -> Map<String, Value> {
    let mut responses = Map::from_iter([("200".to_owned(), found)]);
    add_status(&mut responses, 400, "`validation`.", error);
    add_status(&mut responses, 500, "`internal`, `configuration`.", error);
    add_refused(&mut responses, error);
    responses
}

/// Returns the paths of what an operator looks at: many calls at once, and the state of the host.
fn overview_paths(generator: &mut SchemaGenerator, error: &Value) -> Map<String, Value> {
    let get = |path: &str, id: &str, summary: &str, parameters: Vec<Value>, found: Value| {
        let responses = read_responses(found, error);
        let get = json!({
            "operationId": id, "summary": summary, "parameters": parameters, "responses": responses
        });
        (path.to_owned(), json!({"get": get}))
    };
    let history = answer("The history.", reference::<HistoryReport>(generator));
    let changes = answer("The changes, the newest first.", reference::<ChangePage>(generator));
    let network = answer("The requests.", reference::<NetworkReport>(generator));
    let health = answer("The state.", reference::<HealthReport>(generator));
    let grants = answer("The requests for grants.", reference::<GrantRequestList>(generator));
    let live = json!({
        "description": "An event `changed` now, and when there is something new, every two seconds at most.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}}
    });
    Map::from_iter([
        get(LIVE, "live", "The events that tell of new entries in the audit log.", Vec::new(), live),
        get(CHANGES, "changes", "The changes that operators made.", query::changes_parameters(), changes),
        get(HISTORY, "history", "The calls of a time, step by step.", query::history_parameters(), history),
        get(
            NETWORK,
            "network",
            "The requests of connectors by operation and host.",
            query::network_parameters(),
            network,
        ),
        get(HEALTH_REPORT, "health_report", "The state of what calls depend on.", Vec::new(), health),
        get(GRANT_REQUESTS, "grant_requests", "The access that calls were denied.", Vec::new(), grants),
    ])
}

/// Returns the parameters that name a connector in a path.
fn name_parameters() -> Vec<Value> {
    let part = |name: &str, description: &str, schema: Value| json!({"name": name, "in": "path", "required": true, "description": description, "schema": schema});
    let word = json!({"type": "string", "pattern": "^[a-z0-9]{1,20}$"});
    let versioned = r"^[a-z0-9]{1,20}(@(0|[1-9][0-9]{0,4})\.(0|[1-9][0-9]{0,4})\.(0|[1-9][0-9]{0,4}))?$";
    vec![
        part(
            "scheme",
            "The first part of the connector's name.",
            json!({"type": "string", "enum": ["github", "gitlab", "hub", "local"]}),
        ),
        part("owner", "The second part.", word),
        part(
            "repository",
            "The third part, with `@` and a version, or without it for the active version.",
            json!({"type": "string", "pattern": versioned}),
        ),
    ]
}

/// Returns the parameters of a difference.
fn difference_parameters() -> Vec<Value> {
    let mut parameters = name_parameters();
    parameters.push(query::difference_parameter());
    parameters
}

/// Returns the parameters of a call of an operation.
fn operation_parameters() -> Vec<Value> {
    let mut parameters = name_parameters();
    parameters.push(json!({
        "name": "op", "in": "path", "required": true, "description": "The operation.",
        "schema": {"type": "string", "pattern": "^[a-z][a-z0-9_]{0,99}$"}
    }));
    parameters.push(key_parameter());
    parameters
}

/// Returns the schema of the statistics. The name of the groups says what they are by.
fn stats_schema(generator: &mut SchemaGenerator) -> Value {
    let mut schema = Schema::to_value(StatsReport::json_schema(generator));
    let groups = reference::<Vec<NamedCalls>>(generator);
    for by in StatsGrouping::ALL {
        set(&mut schema, "/properties", &format!("by_{}", by.name()), groups.clone());
    }
    schema
}

/// Returns the paths of jobs.
fn job_paths(generator: &mut SchemaGenerator, error: &Value) -> Map<String, Value> {
    let job = reference::<JobView>(generator);
    let request = reference::<JobRequest>(generator);
    let id = json!({
        "name": "id", "in": "path", "required": true, "description": "The job's id.",
        "schema": {"type": "string", "pattern": "^job-[0-9a-f]{32}$"}
    });
    let responses = |mut responses: Map<String, Value>, statuses: &[(u16, &str)]| {
        for (status, text) in statuses.iter().chain(&REFUSED) {
            add_status(&mut responses, *status, text, error);
        }
        responses
    };
    let one = |description: &str| Map::from_iter([("200".to_owned(), answer(description, job.clone()))]);
    let mut accepted = one("A job with this key was submitted before: this is it.");
    accepted.insert("202".into(), answer("The job is on the queue, durably.", job.clone()));
    let submitted = responses(
        accepted,
        &[
            (400, "`validation`; also of a job that is larger than a message of the queue may be."),
            (404, "`connector_not_found`, `action_not_found`."),
            (409, "`idempotency_conflict`: the key is that of another job."),
            (415, "The body is not said to be JSON."),
            (
                503,
                "`busy`: the queue is full, and nothing was accepted. `queue_unavailable`: it may have been; the same key submits it once.",
            ),
            (500, "`internal`, `configuration`."),
        ],
    );
    let found = [(404, "`job_not_found`."), (503, "`queue_unavailable`."), (500, "`internal`.")];
    let shown = responses(one("The job."), &found);
    let cancelled = responses(
        one("The job, as it is now: one that runs is cancelled by its worker, within seconds."),
        &[&found[..], &[(409, "`conflict`: it is over.")]].concat(),
    );
    let submit = json!({
        "operationId": "submit_job", "summary": "Puts a call or an action on the queue.",
        "requestBody": {"required": true, "content": {"application/json": {"schema": request}}},
        "responses": submitted, "parameters": [key_parameter()]
    });
    let show = json!({
        "operationId": "job", "summary": "The state of a job, and its outcome.", "parameters": [id.clone()],
        "responses": shown
    });
    let cancel = json!({
        "operationId": "cancel_job", "summary": "Cancels a job.", "parameters": [id], "responses": cancelled
    });
    Map::from_iter([
        (JOBS.to_owned(), json!({"post": submit})),
        (format!("{JOBS}/{{id}}"), json!({"get": show})),
        (format!("{JOBS}/{{id}}/cancel"), json!({"post": cancel})),
    ])
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
            | Kind::JobNotFound
            | Kind::QueueUnavailable
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
        let partial = header(
            "The steps whose values are partial, each as `step=3`: so many of its items failed, or of its requests \
             were aborted when the connector returned.",
        );
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
