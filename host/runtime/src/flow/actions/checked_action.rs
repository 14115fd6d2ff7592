//! An action that fits the installed connectors. Nothing else can be run.

use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::failure::RepeatRule;
use cofferdam_egress::resilience::RetryProfile;
use cofferdam_model::action::Action;
use cofferdam_model::manifest::OperationEffect;
use cofferdam_model::package::OperationSignature;
use serde::Serialize;

use crate::call::ConnectorRef;

/// An action whose every step was checked against the installed connectors. Only the check creates one.
///
/// The check covers the state at its time. Each call finds a later revocation: it is pinned to the package and
/// verifies it again.
#[derive(Debug, Clone)]
pub struct CheckedAction {
    pub(super) action: Arc<Action>,
    pub(super) timeout: Duration,
    pub(super) steps: Vec<CheckedStep>,
}

/// A step, with its resolved operations.
#[derive(Debug, Clone)]
pub struct CheckedStep {
    pub(super) target: ReadyTarget,
    pub(super) non_idempotent_reason: Option<NonIdempotentReason>,
    pub(super) retry: Option<Arc<RetryProfile>>,
    pub(super) fallbacks: Vec<ReadyTarget>,
}

/// The source of the rule that a step must not be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NonIdempotentReason {
    /// The manifest of its connector. No file can override it.
    Manifest,
    /// The action's file: `idempotent = false`.
    File,
}

impl NonIdempotentReason {
    /// Returns the source as the end of a sentence.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::Manifest => "says its connector's manifest",
            Self::File => "says `idempotent = false` in the action's file",
        }
    }
}

/// A resolved operation of a connector.
#[derive(Debug, Clone)]
pub struct ReadyTarget {
    pub(super) connector: ConnectorRef,
    pub(super) operation: OperationSignature,
    pub(super) effect: Option<OperationEffect>,
    pub(super) repeat: RepeatRule,
    /// The services that the connector requests credentials for.
    pub(super) services: Arc<[String]>,
}

impl CheckedAction {
    /// Returns the action.
    #[must_use]
    pub fn action(&self) -> &Arc<Action> {
        &self.action
    }

    /// Returns the longest time of the whole action.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns the action's steps with their resolved operations, in order.
    #[must_use]
    pub fn steps(&self) -> &[CheckedStep] {
        &self.steps
    }

    /// Returns its effect on services, as far as it is known of every operation that it may run, including
    /// fallbacks: destructive if one of them is, read-only if all of them are.
    #[must_use]
    pub fn effect(&self) -> Option<OperationEffect> {
        let targets = self.steps.iter().flat_map(|step| std::iter::once(&step.target).chain(&step.fallbacks));
        OperationEffect::combine(targets.map(ReadyTarget::effect))
    }
}

impl CheckedStep {
    /// Returns the connector that is called, pinned to its package.
    #[must_use]
    pub fn connector(&self) -> &ConnectorRef {
        &self.target.connector
    }

    /// Returns the operation that is called.
    #[must_use]
    pub fn operation(&self) -> &OperationSignature {
        &self.target.operation
    }

    /// True if it may be repeated: neither the manifest nor the file forbids it.
    #[must_use]
    pub fn idempotent(&self) -> bool {
        self.non_idempotent_reason.is_none()
    }

    /// Returns the repeat rule of the step: the strictest one of the operations that it may call.
    #[must_use]
    pub fn repeat_rule(&self) -> RepeatRule {
        match self.non_idempotent_reason {
            Some(_) => RepeatRule::Never,
            None => self.fallbacks.iter().map(|other| other.repeat).fold(self.target.repeat, RepeatRule::max),
        }
    }

    /// Returns the source of the rule that it must not be repeated, if there is one.
    #[must_use]
    pub fn non_idempotent_reason(&self) -> Option<NonIdempotentReason> {
        self.non_idempotent_reason
    }

    /// Returns the retry profile, if the file names one.
    #[must_use]
    pub fn retry(&self) -> Option<&Arc<RetryProfile>> {
        self.retry.as_ref()
    }

    /// Returns its fallbacks, in order.
    #[must_use]
    pub fn fallbacks(&self) -> &[ReadyTarget] {
        &self.fallbacks
    }
}

impl ReadyTarget {
    /// Returns the connector, pinned to its package.
    #[must_use]
    pub fn connector(&self) -> &ConnectorRef {
        &self.connector
    }

    /// Returns the operation.
    #[must_use]
    pub fn operation(&self) -> &OperationSignature {
        &self.operation
    }

    /// Returns its effect on its service, as far as it is known. This is the effect in the manifest. If the
    /// manifest has none and the action lets the connector reach no host, it is read-only.
    #[must_use]
    pub fn effect(&self) -> Option<OperationEffect> {
        self.effect
    }

    /// Returns the services that the connector requests credentials for.
    #[must_use]
    pub fn services(&self) -> &[String] {
        &self.services
    }
}
