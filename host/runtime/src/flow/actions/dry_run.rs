//! What an action would do: each step's call with what is known of it beforehand. Nothing runs, nothing is recorded,
//! and nothing leaves.

use std::time::Duration;

use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::failure::RepeatRule;
use cofferdam_model::action::{Part, Root, Target, Template, Values};
use cofferdam_model::package::Operation;
use serde::Serialize;
use serde_json::{Map, Value};

use super::ask::Run;
use super::run::{allowed, keys_fit};
use super::runnable::{Once, ReadyTarget, Runnable};
use super::step::{self, OneStep};
use crate::call::{ConnectorRef, Foreseen, Pipeline, check_key};
use cofferdam_sandbox;

/// What an action would do.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct DryRun {
    /// The action, as `name@version`.
    pub action: String,
    /// How long all of it may take, in milliseconds.
    pub wall_ms: u64,
    /// The arguments, with the defaults of those that were not given.
    pub arguments: Map<String, Value>,
    /// Its steps, in order.
    pub steps: Vec<DryStep>,
}

/// What a step would do.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct DryStep {
    /// Its id.
    pub id: String,
    /// Whether it may be repeated, as far as manifest and file say.
    pub idempotent: bool,
    /// The rule for that: whatever it sends, unless it sends an unkeyed request, or never.
    pub repeat: RepeatRule,
    /// Who says that it must not be; none where nobody does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub once: Option<Once>,
    /// The idempotency key that it would carry; none where one is minted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// What it calls.
    pub call: DryCall,
    /// Who is asked where that could not help, in order; of their inputs those that differ.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fallback: Vec<DryCall>,
    /// Why it would not be begun, as far as that is known: the envelope.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<Value>,
    /// The exit code of that.
    #[serde(skip)]
    pub exit_code: Option<u8>,
}

/// What would be called.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct DryCall {
    /// The connector, as `name@version`.
    pub connector: String,
    /// The operation.
    pub op: String,
    /// What it is given. What an earlier step returns stands as it is written in the action: `${steps.id.field}`.
    pub inputs: Map<String, Value>,
    /// The inputs with such references in them: what they become is not known before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<String>,
    /// What else is known of it; none where that cannot be found out.
    #[serde(flatten)]
    pub found: Option<Foretold>,
    /// Of who is asked instead: why that could not be, as far as it is known: the envelope. The step may have a value
    /// all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<Value>,
}

/// What is known of a call from its package and from the operator's settings.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Foretold {
    /// The SHA-256 of the package.
    pub hash: String,
    /// The id of the key that signed it.
    pub signer: Option<String>,
    /// The retry profile.
    pub profile: String,
    /// The most attempts that it makes: 1 of what must not be repeated, whatever the profile says. Of what is not
    /// declared idempotent the attempt is the last that sends an unkeyed request.
    pub attempts: u32,
    /// The longest that the call may take, in milliseconds; never longer than what is left of the action's time.
    pub wall_ms: u64,
    /// The most fuel of an attempt.
    pub fuel: u64,
    /// The most memory of an attempt, in bytes.
    pub memory_bytes: u64,
    /// The bindings that it would use.
    pub bindings: Vec<String>,
    /// The hosts within its reach whose circuit is open now: a request to one fails at once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub open_circuits: Vec<String>,
}

/// Says what it would do.
///
/// # Errors
/// Its arguments, its key or its time are not acceptable.
pub(crate) async fn dry_run(
    pipeline: &Pipeline,
    runnable: &Runnable,
    run: &Run,
) -> Result<DryRun, HostError> {
    let action = runnable.action();
    keys_fit(action, run)?;
    step::identities_fit(runnable, run)?;
    let arguments = action.arguments(&run.args)?;
    let wall = allowed(pipeline, runnable, run)?;
    run.key.as_deref().map_or(Ok(()), check_key)?;
    let mut steps = Vec::with_capacity(action.steps.len());
    for one in step::all(runnable) {
        steps.push(dry_step(pipeline, one, &arguments, run).await);
    }
    Ok(DryRun { action: action.reference.to_string(), wall_ms: millis(wall), arguments, steps })
}

async fn dry_step(pipeline: &Pipeline, one: OneStep<'_>, args: &Map<String, Value>, run: &Run) -> DryStep {
    let OneStep { step, ready, .. } = one;
    let fallback = step.fallback.iter().zip(ready.alternates());
    let mut dry = DryStep {
        id: step.id.to_string(),
        idempotent: ready.idempotent(),
        repeat: ready.repeat_rule(),
        once: ready.once(),
        idempotency_key: run.key.as_ref().map(|key| step::key_of(key, &step.id)),
        call: dry_call(ready.connector(), &step.target, args),
        fallback: fallback
            .map(|(target, found): (_, &ReadyTarget)| dry_call(found.connector(), target, args))
            .collect(),
        problem: None,
        exit_code: None,
    };
    let is_known = dry.call.unknown.is_empty() && dry.fallback.iter().all(|call| call.unknown.is_empty());
    let call = match is_known {
        true => one.call(&Values { args, steps: &[] }, run),
        false => one.without_arguments(run),
    };
    let foreseen = match call {
        Ok(call) => pipeline.foresee(&call, is_known).await,
        Err(error) => Err(error.into()),
    };
    match foreseen {
        Ok(foreseen) => {
            let calls = std::iter::once(&mut dry.call).chain(&mut dry.fallback);
            let mut missing = Vec::new();
            for (call, foreseen) in calls.zip(foreseen) {
                let (found, problem) = foretold(foreseen, dry.idempotent);
                call.found = Some(found);
                missing.push(problem);
            }
            // Who is asked instead is asked only where the first could not help: it keeps nothing from beginning.
            for (call, problem) in dry.fallback.iter_mut().zip(missing.iter().skip(1)) {
                call.problem = problem.as_ref().and_then(envelope);
            }
            dry.fails_with(missing.first().and_then(Option::as_ref));
        }
        Err(error) => dry.fails_with(Some(&error)),
    }
    if !is_known {
        // What is known has to fit all the same: a step that is refused half way leaves those before it done.
        if dry.problem.is_none()
            && let Err(error) = known_fit(&dry.call, ready.operation())
        {
            dry.fails_with(Some(&error.into()));
        }
        for (call, target) in dry.fallback.iter_mut().zip(ready.alternates()) {
            if call.problem.is_none() {
                call.problem =
                    known_fit(call, target.operation()).err().and_then(|error| envelope(&error.into()));
            }
        }
    }
    dry
}

/// Whether the inputs that are known are of the types of the operation's parameters, as the call would decide it.
fn known_fit(call: &DryCall, operation: &Operation) -> Result<(), HostError> {
    for param in operation.params() {
        let name = param.name.json();
        let known = call.inputs.get(name).filter(|_| !call.unknown.iter().any(|unknown| unknown == name));
        let Some(value) = known else { continue };
        if let Err((path, expected)) = cofferdam_sandbox::literal_fits(&param.shape, value) {
            let message = format!("The arguments do not fit: {name}{}: {expected}.", path.concat());
            return Err(HostError::new(HostErrorKind::Validation, message)
                .hint(format!("The operation is {operation}")));
        }
    }
    Ok(())
}

/// What is asked of whom, with what of it is known.
fn dry_call(connector: &ConnectorRef, target: &Target, args: &Map<String, Value>) -> DryCall {
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
    fn fails_with(&mut self, error: Option<&Error>) {
        self.problem = error.and_then(envelope);
        self.exit_code = error.map(Error::exit_code);
    }
}

fn envelope(error: &Error) -> Option<Value> {
    serde_json::to_value(error).ok()
}

fn foretold(foreseen: Foreseen, idempotent: bool) -> (Foretold, Option<Error>) {
    let Foreseen { hash, signer, limits, profile, bindings, open_circuits } = foreseen;
    let (bindings, missing) = match bindings {
        Ok(bindings) => (bindings, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let found = Foretold {
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

/// What a template becomes, as far as that is known; none where it is an argument that was not given. What is not known
/// is pushed to `unknown`.
fn shown(template: &Template, args: &Map<String, Value>, unknown: &mut Vec<String>) -> Option<Value> {
    let alone = Values { args, steps: &[] };
    match template {
        Template::List(items) => Some(items.iter().filter_map(|item| shown(item, args, unknown)).collect()),
        Template::Table(fields) => {
            let shown =
                |(name, field): &(String, Template)| Some((name.clone(), shown(field, args, unknown)?));
            Some(Value::Object(fields.iter().filter_map(shown).collect()))
        }
        Template::Whole(reference) if matches!(reference.root, Root::Step(_)) => {
            unknown.push(reference.text.clone());
            Some(format!("${{{}}}", reference.text).into())
        }
        Template::Text(parts) => {
            let part = |part: &Part| match part {
                Part::Literal(text) => text.clone(),
                Part::Reference(reference) if matches!(reference.root, Root::Step(_)) => {
                    unknown.push(reference.text.clone());
                    format!("${{{}}}", reference.text)
                }
                reference => text(&Template::Text(vec![reference.clone()]), &alone),
            };
            Some(parts.iter().map(part).collect::<String>().into())
        }
        template => template.alone(&alone).ok().flatten(),
    }
}

/// A text whose references are arguments alone.
fn text(template: &Template, values: &Values<'_>) -> String {
    match template.alone(values) {
        Ok(Some(Value::String(text))) => text,
        _ => String::new(),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
