//! The work of a job: a call or an action, as clients send it and as the queue carries it.
//!
//! It is the body of `POST /v1/jobs`, and one reader is for clients and workers alike: a job is run exactly as the same
//! call would be over HTTP.

use std::collections::BTreeMap;

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::strict_json;
use cofferdam_runtime::call::{Call, OnKeyConflict};
use cofferdam_runtime::flow::RunRequest;
use cofferdam_runtime::host::Host;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::request::{CallRequest, args_text, read, time};

/// The work of one job: `{"call": ..}` or `{"action": ..}`.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobRequest {
    /// A call, as `POST /v1/calls` takes it. `if_running` has no meaning here: a job always gets the outcome of a call
    /// with its key.
    Call(CallWork),
    /// An action.
    Action(ActionWork),
}

/// One call.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct CallWork(CallRequest);

/// One run of an action.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ActionWork {
    /// The action's name.
    #[schemars(regex(pattern = "^[a-z0-9][a-z0-9-]{0,40}$"))]
    name: String,
    /// Its arguments: one field for each of its inputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Map<String, Value>")]
    args: Option<Box<RawValue>>,
    /// The identity for each service in every step; it selects the credential.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    identities: BTreeMap<String, String>,
    /// The longest that one run of the whole action may take, like `30s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[1-9][0-9]{0,3}(ms|s)$"))]
    wall_time: Option<String>,
}

/// The work of a job, ready to be run.
#[derive(Debug, Clone)]
pub enum JobWork {
    /// A call.
    Call(Box<Call>),
    /// The action of this name, and its run.
    Action(String, Box<RunRequest>),
}

/// The target of a job, for people.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobTarget {
    /// A call.
    Call {
        /// The connector.
        connector: String,
        /// The operation.
        op: String,
    },
    /// An action.
    Action {
        /// Its name.
        name: String,
    },
}

impl JobRequest {
    /// Reads a body.
    ///
    /// # Errors
    /// `validation`: it is not JSON, a name is repeated in an object, or a field is missing, unknown or of another type.
    pub fn read(body: &[u8]) -> Result<Self, HostError> {
        let example = r#"{"call": {"connector": "github://acme/slack@1.2.0", "op": "post", "args": {}}} or {"action": {"name": "ship", "args": {}}}"#;
        let request: Self = read(body, "a job", example)?;
        match &request {
            Self::Call(CallWork(call)) if call.is_refused_if_running() => Err(HostError::new(
                HostErrorKind::Validation,
                "call.if_running: a job always gets the outcome of a call with its key.",
            )
            .with_hint("Leave it out.")),
            _ => Ok(request),
        }
    }

    /// Names the connector completely, with its version, so that every worker runs the same one. It reads files: not for
    /// an executor's threads.
    ///
    /// # Errors
    /// `connector_not_found`, `action_not_found`, `validation`: it cannot be run on this host.
    pub fn resolve(mut self, host: &Host) -> Result<Self, HostError> {
        if let Self::Call(CallWork(call)) = &mut self {
            call.resolve(host)?;
        }
        // The rest of the request is checked as a worker will read it.
        match self.work(host)? {
            JobWork::Call(_) => {}
            JobWork::Action(name, _) => drop(host.action(&name)?),
        }
        Ok(self)
    }

    /// Returns the target.
    #[must_use]
    pub fn target(&self) -> JobTarget {
        match self {
            Self::Call(CallWork(call)) => {
                let (connector, op) = call.target();
                JobTarget::Call { connector: connector.to_owned(), op: op.to_owned() }
            }
            Self::Action(action) => JobTarget::Action { name: action.name.clone() },
        }
    }

    /// Returns the name of the retry profile that a call chose.
    #[must_use]
    pub fn retry_name(&self) -> Option<&str> {
        match self {
            Self::Call(CallWork(call)) => call.retry_name(),
            Self::Action(_) => None,
        }
    }

    /// Returns the work, without key and actor. It reads files: not for an executor's threads.
    ///
    /// # Errors
    /// `validation` for a value that is not acceptable, `connector_not_found`.
    pub fn work(&self, host: &Host) -> Result<JobWork, HostError> {
        match self {
            Self::Call(CallWork(call)) => {
                let call = call.clone().call(host)?.if_running(OnKeyConflict::Refuse);
                Ok(JobWork::Call(Box::new(call)))
            }
            Self::Action(action) => {
                let wall_time = time("action.wall_time", action.wall_time.as_deref())?;
                let args =
                    strict_json::parse(args_text(action.args.clone())?.as_bytes()).map_err(|error| {
                        HostError::new(HostErrorKind::Validation, format!("action.args: {error}."))
                    })?;
                let run = RunRequest::new(args).if_running(OnKeyConflict::Refuse);
                let run = action
                    .identities
                    .iter()
                    .fold(run, |run, (service, identity)| run.identity(service, identity));
                let run = match wall_time {
                    Some(longest) => run.wall_time(longest),
                    None => run,
                };
                Ok(JobWork::Action(action.name.clone(), Box::new(run)))
            }
        }
    }
}

impl std::fmt::Display for JobTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Call { connector, op } => write!(f, "{connector} {op}"),
            Self::Action { name } => write!(f, "action {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn a_job_is_one_call_or_one_action() {
        let read = |body: &str| JobRequest::read(body.as_bytes()).map_err(|error| error.message().to_owned());
        let call = r#"{"call":{"connector":"github://acme/a@1.0.0","op":"run","args":{"n":1.10}}}"#;
        let request = read(call).unwrap();
        assert_eq!(serde_json::to_string(&request).unwrap(), call, "the arguments keep their bytes");
        assert_eq!(request.target().to_string(), "github://acme/a@1.0.0 run");
        let action = r#"{"action":{"name":"ship","args":{"a":1}}}"#;
        assert_eq!(serde_json::to_string(&read(action).unwrap()).unwrap(), action);
        for (body, said) in [
            ("{}", "expected value"),
            (r#"{"call": {"connector": "c", "op": "o"}, "action": {"name": "a"}}"#, "expected"),
            (r#"{"calls": {}}"#, "`calls`"),
            (r#"{"action": {"nam": "a"}}"#, "`nam`"),
            (r#"{"call": {"connector": "c", "op": "o", "if_running": "refuse"}}"#, "if_running"),
            (r#"{"call": {"connector": "c", "op": "o", "args": {"a": 1, "a": 2}}}"#, "`a` stands twice"),
        ] {
            let error = read(body).unwrap_err();
            assert!(error.contains(said), "{body}: {error}");
        }
    }
}
