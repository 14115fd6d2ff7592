//! The candidates of one logical call: who is asked first, who instead, and when.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::request::{Args, Call, ConnectorRef};
use crate::action::ActionScope;
use crate::error::HostError;
use crate::failure::{Cause, Failure};

/// Who is asked where another could not help: the same call, elsewhere or with other arguments.
#[derive(Debug, Clone)]
pub struct Alternate {
    pub(super) connector: ConnectorRef,
    pub(super) op: String,
    pub(super) overrides: Map<String, Value>,
    pub(super) scope: Option<Arc<ActionScope>>,
}

impl Alternate {
    /// This operation of this connector, with the call's own arguments.
    #[must_use]
    pub fn new(connector: ConnectorRef, op: impl Into<String>) -> Self {
        Self { connector, op: op.into(), overrides: Map::new(), scope: None }
    }

    /// Replaces these fields of the call's arguments: a cheaper model, another region.
    #[must_use]
    pub fn with_args(mut self, overrides: Map<String, Value>) -> Self {
        self.overrides = overrides;
        self
    }

    /// What the action declares of this connector.
    #[must_use]
    pub fn within(mut self, scope: impl Into<Arc<ActionScope>>) -> Self {
        self.scope = Some(scope.into());
        self
    }
}

/// One candidate of a call.
#[derive(Debug, Clone)]
pub(super) struct Candidate<'c> {
    /// From 0.
    pub(super) index: u32,
    pub(super) connector: &'c ConnectorRef,
    pub(super) op: &'c str,
    pub(super) args: Cow<'c, Args>,
    pub(super) scope: Option<&'c Arc<ActionScope>>,
}

impl<'c> Candidate<'c> {
    /// The call as it was asked for.
    pub(super) fn first(call: &'c Call) -> Self {
        Self {
            index: 0,
            connector: &call.connector,
            op: &call.op,
            args: Cow::Borrowed(&call.args),
            scope: call.scope.as_ref(),
        }
    }

    /// Who is asked after this one has failed; none where nobody is, or nobody may be.
    pub(super) fn next(
        &self,
        _call: &'c Call,
        _failure: &Failure,
        _idempotent: bool,
    ) -> Result<Option<Self>, HostError> {
        Ok(None)
    }
}

/// Whether another candidate may help after this.
#[expect(dead_code, reason = "the chain comes with its own commit")]
fn helps(cause: Cause, rotate_on_permanent: bool) -> bool {
    match cause {
        Cause::Auth | Cause::PaymentRequired => rotate_on_permanent,
        Cause::NotFound | Cause::CircuitOpen => true,
        cause => cause.is_retriable() && cause != Cause::WallTime,
    }
}
