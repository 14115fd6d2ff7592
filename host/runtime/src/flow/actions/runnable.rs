//! An action that was found to fit what is installed: the only thing that runs.

use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::failure::RepeatRule;
use cofferdam_egress::resilience::Profile;
use cofferdam_model::action::Action;
use cofferdam_model::manifest::Effect;
use cofferdam_model::package::Operation;
use serde::Serialize;

use crate::call::ConnectorRef;

/// An action whose every step was checked against the connectors that are installed; only the check makes one.
///
/// It says that the file was right when it was checked. What was withdrawn since then each call finds for itself: it
/// is pinned to the package, and verified anew.
#[derive(Debug, Clone)]
pub struct Runnable {
    pub(super) action: Arc<Action>,
    pub(super) timeout: Duration,
    pub(super) steps: Vec<ReadyStep>,
}

/// A step, with what was found for it.
#[derive(Debug, Clone)]
pub struct ReadyStep {
    pub(super) target: ReadyTarget,
    pub(super) once: Option<Once>,
    pub(super) retry: Option<Arc<Profile>>,
    pub(super) alternates: Vec<ReadyTarget>,
}

/// Who says that a step must not be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Once {
    /// The manifest of its connector: no file can say otherwise.
    Manifest,
    /// The action's file: `idempotent = false`.
    File,
}

impl Once {
    /// Who says so, as the end of a sentence.
    #[must_use]
    pub const fn says(self) -> &'static str {
        match self {
            Self::Manifest => "says its connector's manifest",
            Self::File => "says `idempotent = false` in the action's file",
        }
    }
}

/// A connector's operation, found.
#[derive(Debug, Clone)]
pub struct ReadyTarget {
    pub(super) connector: ConnectorRef,
    pub(super) operation: Operation,
    pub(super) effect: Option<Effect>,
    pub(super) repeat: RepeatRule,
    /// The services that the connector asks for credentials of.
    pub(super) services: Arc<[String]>,
}

impl Runnable {
    /// The action.
    #[must_use]
    pub fn action(&self) -> &Arc<Action> {
        &self.action
    }

    /// How long it may take as a whole.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// What was found for each of the action's steps, in their order.
    #[must_use]
    pub fn steps(&self) -> &[ReadyStep] {
        &self.steps
    }

    /// What it does to services, as far as it is known of every operation that it may run, those that are asked
    /// instead of others included: destructive where one is, read-only where all are.
    #[must_use]
    pub fn effect(&self) -> Option<Effect> {
        let targets =
            self.steps.iter().flat_map(|step| std::iter::once(&step.target).chain(&step.alternates));
        Effect::together(targets.map(ReadyTarget::effect))
    }
}

impl ReadyStep {
    /// The connector that is called, pinned to its package.
    #[must_use]
    pub fn connector(&self) -> &ConnectorRef {
        &self.target.connector
    }

    /// The operation that is called.
    #[must_use]
    pub fn operation(&self) -> &Operation {
        &self.target.operation
    }

    /// Whether it may be repeated: neither the manifest nor the file says that it must not be.
    #[must_use]
    pub fn idempotent(&self) -> bool {
        self.once.is_none()
    }

    /// Whether the step may be repeated: the strictest rule of the operations that it may call.
    #[must_use]
    pub fn repeat_rule(&self) -> RepeatRule {
        match self.once {
            Some(_) => RepeatRule::Never,
            None => {
                self.alternates.iter().map(|other| other.repeat).fold(self.target.repeat, RepeatRule::max)
            }
        }
    }

    /// Who says that it must not be repeated, if anybody does.
    #[must_use]
    pub fn once(&self) -> Option<Once> {
        self.once
    }

    /// The retry profile, where the file says which.
    #[must_use]
    pub fn retry(&self) -> Option<&Arc<Profile>> {
        self.retry.as_ref()
    }

    /// Who is asked instead, in order.
    #[must_use]
    pub fn alternates(&self) -> &[ReadyTarget] {
        &self.alternates
    }
}

impl ReadyTarget {
    /// The connector, pinned to its package.
    #[must_use]
    pub fn connector(&self) -> &ConnectorRef {
        &self.connector
    }

    /// The operation.
    #[must_use]
    pub fn operation(&self) -> &Operation {
        &self.operation
    }

    /// What it does to its service, as far as it is known: what the manifest says or, where it says nothing and the
    /// action lets the connector reach no host, that it changes nothing.
    #[must_use]
    pub fn effect(&self) -> Option<Effect> {
        self.effect
    }

    /// The services that the connector asks for credentials of.
    #[must_use]
    pub fn services(&self) -> &[String] {
        &self.services
    }
}
