//! Previews an action: each step's call, as far as it is known beforehand. Nothing runs, is recorded or is sent.

use std::sync::Arc;

use cofferdam_core::clock::millis;
use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::failure::RepeatRule;
use cofferdam_model::action::{ReferenceRoot, StepTarget, Template, TemplatePart, TemplateValues};
use cofferdam_model::package::OperationSignature;
use serde::Serialize;
use serde_json::{Map, Value};

use super::checked_action::{CheckedAction, NonIdempotentReason, ReadyTarget};
use super::run::RunRequest;
use super::run::{self, OneStep};
use super::run::{allowed, keys_fit};
use crate::call::{CallPipeline, CallPreview, ConnectorRef, check_key};
use cofferdam_sandbox;

/// The preview of an action.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct DryRun {
    /// The action, as `name@version`.
    pub action: String,
    /// The longest time of the whole action, in milliseconds.
    pub wall_ms: u64,
    /// The arguments, with the defaults of those that were not given.
    pub arguments: Map<String, Value>,
    /// Its steps, in order.
    pub steps: Vec<DryStep>,
}

/// The preview of a step.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct DryStep {
    /// Its id.
    pub id: String,
    /// True if it may be repeated, as far as manifest and file say.
    pub idempotent: bool,
    /// The repeat rule: always, unless it sends an unkeyed request, or never.
    pub repeat: RepeatRule,
    /// The source of the rule that it must not be repeated. None if it may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub once: Option<NonIdempotentReason>,
    /// The idempotency key that it would carry. None if one would be generated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Its call.
    pub call: DryCall,
    /// Its fallbacks, in order, each with the inputs that differ.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fallback: Vec<DryCall>,
    /// The envelope of the error that would keep it from starting, as far as that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<Value>,
    /// That error itself.
    #[serde(skip)]
    pub error: Option<Arc<Error>>,
}

/// The preview of a call.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct DryCall {
    /// The connector, as `name@version`.
    pub connector: String,
    /// The operation.
    pub op: String,
    /// Its inputs. A reference to an earlier step's value is shown as written in the action: `${steps.id.field}`.
    pub inputs: Map<String, Value>,
    /// The names of the inputs with such references. Their values are not known beforehand.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<String>,
    /// Further facts about the call. None if they cannot be determined.
    #[serde(flatten)]
    pub found: Option<ActionPreview>,
    /// For a fallback: the envelope of the error that would keep it from starting, as far as that is known. The
    /// step may have a value nevertheless.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<Value>,
}

/// The facts about a call from its package and from the operator's settings.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct ActionPreview {
    /// The SHA-256 of the package.
    pub hash: String,
    /// The id of the key that signed it.
    pub signer: Option<String>,
    /// The retry profile.
    pub profile: String,
    /// The most attempts that it makes. This is 1 if it must not be repeated, whatever the profile says. An
    /// operation that is not declared idempotent is not retried after an attempt that sends an unkeyed request.
    pub attempts: u32,
    /// The longest time of the call, in milliseconds. It is never longer than the remaining time of the action.
    pub wall_ms: u64,
    /// The most fuel of an attempt.
    pub fuel: u64,
    /// The most memory of an attempt, in bytes.
    pub memory_bytes: u64,
    /// The bindings that it would use.
    pub bindings: Vec<String>,
    /// The hosts within its reach whose circuit is open now: a request to one of them fails at once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub open_circuits: Vec<String>,
}

/// Previews the action.
///
/// # Errors
/// Its arguments, its key or its time are not acceptable.
pub(crate) async fn dry_run(
    pipeline: &CallPipeline,
    runnable: &CheckedAction,
    run: &RunRequest,
) -> Result<DryRun, HostError> {
    let action = runnable.action();
    keys_fit(action, run)?;
    run::identities_fit(runnable, run)?;
    let arguments = action.arguments(&run.args)?;
    let wall = allowed(pipeline, runnable, run)?;
    run.key.as_deref().map_or(Ok(()), check_key)?;
    let mut steps = Vec::with_capacity(action.steps.len());
    for one in run::all(runnable) {
        steps.push(dry_step(pipeline, one, &arguments, run).await);
    }
    Ok(DryRun { action: action.reference.to_string(), wall_ms: millis(wall), arguments, steps })
}

async fn dry_step(
    pipeline: &CallPipeline,
    one: OneStep<'_>,
    args: &Map<String, Value>,
    run: &RunRequest,
) -> DryStep {
    let OneStep { step, ready, .. } = one;
    let fallback = step.fallback.iter().zip(ready.fallbacks());
    let mut dry = DryStep {
        id: step.id.to_string(),
        idempotent: ready.idempotent(),
        repeat: ready.repeat_rule(),
        once: ready.non_idempotent_reason(),
        idempotency_key: run.key.as_ref().map(|key| run::key_of(key, &step.id)),
        call: dry_call(ready.connector(), &step.target, args),
        fallback: fallback
            .map(|(target, found): (_, &ReadyTarget)| dry_call(found.connector(), target, args))
            .collect(),
        problem: None,
        error: None,
    };
    let is_known = dry.call.unknown.is_empty() && dry.fallback.iter().all(|call| call.unknown.is_empty());
    let call = match is_known {
        true => one.call(&TemplateValues { args, steps: &[] }, run),
        false => one.without_arguments(run),
    };
    let foreseen = match call {
        Ok(call) => pipeline.preview(&call, is_known).await,
        Err(error) => Err(error.into()),
    };
    match foreseen {
        Ok(foreseen) => {
            let calls = std::iter::once(&mut dry.call).chain(&mut dry.fallback);
            let mut missing = Vec::new();
            for (call, foreseen) in calls.zip(foreseen) {
                let (found, problem) = action_preview(foreseen, dry.idempotent);
                call.found = Some(found);
                missing.push(problem);
            }
            // A fallback is tried only if the first candidate fails. So its problem keeps nothing from starting.
            for (call, problem) in dry.fallback.iter_mut().zip(missing.iter().skip(1)) {
                call.problem = problem.as_ref().and_then(envelope);
            }
            dry.fails_with(missing.into_iter().next().flatten());
        }
        Err(error) => dry.fails_with(Some(error)),
    }
    if !is_known {
        // Check the known inputs nevertheless: if a later step is refused, the steps before it are done already.
        if dry.problem.is_none()
            && let Err(error) = known_fit(&dry.call, ready.operation())
        {
            dry.fails_with(Some(error.into()));
        }
        for (call, target) in dry.fallback.iter_mut().zip(ready.fallbacks()) {
            if call.problem.is_none() {
                call.problem =
                    known_fit(call, target.operation()).err().and_then(|error| envelope(&error.into()));
            }
        }
    }
    dry
}

/// Checks the known inputs against the types of the operation's parameters, as the call would.
fn known_fit(call: &DryCall, operation: &OperationSignature) -> Result<(), HostError> {
    for param in operation.params() {
        let name = param.name.json();
        let known = call.inputs.get(name).filter(|_| !call.unknown.iter().any(|unknown| unknown == name));
        let Some(value) = known else { continue };
        if let Err((path, expected)) = cofferdam_sandbox::literal_fits(&param.shape, value) {
            let message = format!("The arguments do not fit: {name}{}: {expected}.", path.concat());
            return Err(HostError::new(HostErrorKind::Validation, message)
                .with_hint(format!("The operation is {operation}")));
        }
    }
    Ok(())
}

/// Returns the call of this operation, with its inputs as far as they are known.
fn dry_call(connector: &ConnectorRef, target: &StepTarget, args: &Map<String, Value>) -> DryCall {
    let (mut inputs, mut unknown) = (Map::new(), Vec::new());
    for (name, template) in &target.inputs {
        let mut references = Vec::new();
        if let Some(value) = shown(template, args, &mut references) {
            inputs.insert(name.clone(), value);
        }
        if !references.is_empty() {
            unknown.push(name.clone());
        }
    }
    DryCall {
        connector: connector.to_string(),
        op: target.op.clone(),
        inputs,
        unknown,
        found: None,
        problem: None,
    }
}

impl DryStep {
    fn fails_with(&mut self, error: Option<Error>) {
        self.problem = error.as_ref().and_then(envelope);
        self.error = error.map(Arc::new);
    }
}

fn envelope(error: &Error) -> Option<Value> {
    serde_json::to_value(error).ok()
}

fn action_preview(foreseen: CallPreview, idempotent: bool) -> (ActionPreview, Option<Error>) {
    let CallPreview { hash, signer, limits, profile, bindings, open_circuits, .. } = foreseen;
    let (bindings, missing) = match bindings {
        Ok(bindings) => (bindings, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let found = ActionPreview {
        hash: hash.to_string(),
        signer: signer.map(|signer| signer.to_string()),
        profile: profile.name().to_string(),
        attempts: if idempotent { profile.max_attempts() } else { 1 },
        wall_ms: millis(limits.wall_time()),
        fuel: limits.fuel(),
        memory_bytes: limits.memory(),
        bindings,
        open_circuits,
    };
    (found, missing)
}

/// Renders a template as far as its value is known. None if it is an argument that was not given. Unknown
/// references are added to `unknown`.
fn shown(template: &Template, args: &Map<String, Value>, unknown: &mut Vec<String>) -> Option<Value> {
    let alone = TemplateValues { args, steps: &[] };
    match template {
        Template::List(items) => Some(items.iter().filter_map(|item| shown(item, args, unknown)).collect()),
        Template::Table(fields) => {
            let shown =
                |(name, field): &(String, Template)| Some((name.clone(), shown(field, args, unknown)?));
            Some(Value::Object(fields.iter().filter_map(shown).collect()))
        }
        Template::Reference(reference) if matches!(reference.root, ReferenceRoot::Step(_)) => {
            unknown.push(reference.text.clone());
            Some(format!("${{{}}}", reference.text).into())
        }
        Template::Text(parts) => {
            let part = |part: &TemplatePart| match part {
                TemplatePart::Literal(text) => text.clone(),
                TemplatePart::Reference(reference) if matches!(reference.root, ReferenceRoot::Step(_)) => {
                    unknown.push(reference.text.clone());
                    format!("${{{}}}", reference.text)
                }
                reference => text(&Template::Text(vec![reference.clone()]), &alone),
            };
            Some(parts.iter().map(part).collect::<String>().into())
        }
        template => template.render_value(&alone).ok().flatten(),
    }
}

/// Renders a text whose references are all to arguments.
fn text(template: &Template, values: &TemplateValues<'_>) -> String {
    match template.render_value(values) {
        Ok(Some(Value::String(text))) => text,
        _ => String::new(),
    }
}
