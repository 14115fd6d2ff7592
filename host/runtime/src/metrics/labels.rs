//! The label sets: what a series is told apart by.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;

/// An operation of a connector, of whatever version.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Operation {
    pub(super) connector: Arc<str>,
    pub(super) op: Arc<str>,
}

/// How something ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Ended {
    #[prometheus(flatten)]
    pub(super) of: Operation,
    pub outcome: &'static str,
    /// The failure's class; `none` where there is none.
    pub(super) class: &'static str,
}

/// Why something was done about a failure.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Because {
    #[prometheus(flatten)]
    pub(super) of: Operation,
    pub(super) class: &'static str,
}

/// A circuit, and the state that it changed to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Changed {
    pub(super) connector: Arc<str>,
    pub(super) host: Arc<str>,
    pub(super) to: &'static str,
}

/// A `host:port`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct At {
    pub(super) host: Arc<str>,
}

/// Who says something.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct By {
    pub(super) by: &'static str,
}
