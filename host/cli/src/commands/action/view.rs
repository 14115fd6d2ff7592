//! The view of an action: its requirements, its inputs, and the inputs of each step.

use cofferdam_core::clock::millis;
use cofferdam_core::failure::RepeatRule;
use cofferdam_model::action::{
    Action, ActionInput, ActionStep, ConnectorRequirement, StepRetry, StepTarget, Template,
};
use cofferdam_runtime::call::ConnectorRef;
use cofferdam_runtime::flow::NonIdempotentReason;
use cofferdam_runtime::host::Host;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::layout::Page;

/// An action, for people and programs.
#[derive(Debug, Serialize)]
pub(super) struct ActionView {
    name: String,
    version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    description: String,
    /// The SHA-256 of the file.
    hash: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
    requires: Vec<RequirementView>,
    input_schema: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_schema: Option<Value>,
    steps: Vec<StepView>,
    /// For people.
    #[serde(skip)]
    inputs: Vec<[String; 4]>,
}

#[derive(Debug, Serialize)]
struct RequirementView {
    connector: String,
    hash: String,
    operations: Vec<String>,
    hosts: Vec<String>,
    identity: Map<String, Value>,
}

#[derive(Debug, Serialize)]
struct StepView {
    id: String,
    #[serde(flatten)]
    target: TargetView,
    /// True if it must not be repeated; null if the file does not say so and the connector is not installed.
    not_idempotent: Option<bool>,
    /// The rule for repeating it; null if the connector is not installed.
    repeat: Option<RepeatRule>,
    /// The source of the rule that it must not be repeated.
    #[serde(skip_serializing_if = "Option::is_none")]
    once: Option<NonIdempotentReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry: Option<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    fallback: Vec<TargetView>,
}

#[derive(Debug, Serialize)]
struct TargetView {
    connector: String,
    op: String,
    inputs: Map<String, Value>,
}

impl ActionView {
    pub(super) fn new(action: &Action, host: &Host) -> Self {
        Self {
            name: action.name().to_owned(),
            version: action.version().to_string(),
            title: action.title().map(ToOwned::to_owned),
            description: action.description().to_owned(),
            hash: format!("sha256:{}", action.hash()),
            source: action.source().map(ToOwned::to_owned),
            timeout_ms: action.timeout().map(millis),
            requires: action.requires().iter().map(requirement).collect(),
            input_schema: action.input_schema(),
            output_schema: action.output().map(|output| output.schema().clone()),
            steps: action.steps().iter().map(|step| self::step(action, step, host)).collect(),
            inputs: action.inputs().iter().map(input).collect(),
        }
    }

    pub(super) fn page(&self, page: &mut Page) {
        page.heading(&format!("{}@{}", self.name, self.version));
        if let Some(title) = &self.title {
            page.field("title", title);
        }
        page.field("does", &self.description).field("hash", &self.hash);
        if let Some(source) = &self.source {
            page.field("source", source);
        }
        if let Some(ms) = self.timeout_ms {
            page.field("timeout", &format!("{ms} ms"));
        }
        page.heading("needs");
        for required in &self.requires {
            page.field("connector", &required.connector).field("", &required.hash);
            page.field("operations", &required.operations.join(", "));
            let hosts = if required.hosts.is_empty() { "none".to_owned() } else { required.hosts.join(", ") };
            page.field("hosts", &hosts);
            for (service, identity) in &required.identity {
                page.field("identity", &format!("{service} = {identity}"));
            }
        }
        if !self.inputs.is_empty() {
            page.heading("takes");
            page.table(["INPUT", "TYPE", "", "IS"], self.inputs.clone());
        }
        page.heading("does, in this order");
        for (step, number) in self.steps.iter().zip(1..) {
            page.line(&format!("{number}. {}: {}", step.id, step.target.call()));
            for (name, value) in &step.target.inputs {
                page.block(5, &format!("{name} = {value}"));
            }
            for fact in step.facts() {
                page.block(5, &fact);
            }
        }
    }
}

impl TargetView {
    fn new(action: &Action, target: &StepTarget) -> Self {
        let connector = action.requires().get(target.requirement()).map(|it| it.connector().to_string());
        let written = |(name, value): &(String, Template)| (name.clone(), value.to_source());
        Self {
            connector: connector.unwrap_or_default(),
            op: target.op().to_owned(),
            inputs: target.inputs().iter().map(written).collect(),
        }
    }

    fn call(&self) -> String {
        format!("`{}` of {}", self.op, self.connector)
    }
}

impl StepView {
    fn facts(&self) -> Vec<String> {
        let mut facts = Vec::new();
        facts.extend(self.once.map(|once| format!("must not be repeated, {}", once.description())));
        if self.repeat == Some(RepeatRule::UnlessUnkeyed) {
            facts.push(
                "not declared idempotent: repeated until it sends a request that may take effect twice"
                    .into(),
            );
        }
        facts.extend(self.timeout_ms.map(|ms| format!("{ms} ms at most")));
        facts.extend(self.retry.as_ref().map(|retry| format!("retry {retry}")));
        facts.extend(self.fallback.iter().map(|other| format!("else {}", other.call())));
        facts
    }
}

fn requirement(required: &ConnectorRequirement) -> RequirementView {
    let scope = required.scope();
    RequirementView {
        connector: format!("{}@{}", required.connector(), required.version()),
        hash: format!("sha256:{}", required.hash()),
        operations: scope.operations().to_vec(),
        hosts: scope.hosts().iter().map(ToString::to_string).collect(),
        identity: scope
            .identities()
            .iter()
            .map(|(service, it)| (service.clone(), it.clone().into()))
            .collect(),
    }
}

fn input(input: &ActionInput) -> [String; 4] {
    let standing = match (input.required(), input.default()) {
        (true, _) => "required".to_owned(),
        (false, None) => "optional".to_owned(),
        (false, Some(default)) => format!("default {default}"),
    };
    [input.name().to_owned(), input.kind().name().to_owned(), standing, input.description().to_owned()]
}

/// Returns the manifest's rule for repeating the operation of a step; none unless the package with the named hash is
/// installed.
fn repeat_rule(action: &Action, target: &StepTarget, host: &Host) -> Option<RepeatRule> {
    let required = action.requires().get(target.requirement())?;
    let connector = ConnectorRef::new(required.connector().clone(), required.version().clone());
    let package = host.package(&connector).ok().filter(|package| package.digest() == required.hash())?;
    Some(package.manifest().repeat_rule(target.op()))
}

fn step(action: &Action, step: &ActionStep, host: &Host) -> StepView {
    let rule = repeat_rule(action, step.target(), host);
    let once = match (rule, step.non_idempotent) {
        (Some(RepeatRule::Never), _) => Some(NonIdempotentReason::Manifest),
        (_, true) => Some(NonIdempotentReason::File),
        _ => None,
    };
    let retry = step.retry().map(|retry| match retry {
        StepRetry::Profile(name) => name.as_str().into(),
        StepRetry::Own { max, initial, max_delay, jitter } => serde_json::json!({
            "max": max, "initial_ms": millis(*initial), "max_delay_ms": millis(*max_delay), "jitter": jitter,
        }),
    });
    StepView {
        id: step.id().to_string(),
        target: TargetView::new(action, step.target()),
        not_idempotent: once.map(|_| true).or(rule.map(|_| false)),
        repeat: if once.is_some() { Some(RepeatRule::Never) } else { rule },
        once,
        timeout_ms: step.timeout().map(millis),
        retry,
        fallback: step.fallback().iter().map(|target| TargetView::new(action, target)).collect(),
    }
}
