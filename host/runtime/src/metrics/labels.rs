//! The label sets of the series.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;

/// An operation of a connector, in any version.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OperationLabels {
    pub(super) connector: Arc<str>,
    pub(super) op: Arc<str>,
}

/// The outcome of a call or an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct EndLabels {
    #[prometheus(flatten)]
    pub(super) of: OperationLabels,
    pub outcome: &'static str,
    /// The failure's class, or `none`.
    pub(super) class: &'static str,
}

/// The reason for a reaction to a failure.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct CauseLabels {
    #[prometheus(flatten)]
    pub(super) of: OperationLabels,
    pub(super) class: &'static str,
}

/// A circuit, and the state that it changed to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ChangeLabels {
    pub(super) connector: Arc<str>,
    pub(super) host: Arc<str>,
    pub(super) to: &'static str,
}

/// A `host:port`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct HostLabels {
    pub(super) host: Arc<str>,
}

/// The source of a statement.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct LimitLabels {
    pub(super) by: &'static str,
}
