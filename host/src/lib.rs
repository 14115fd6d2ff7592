//! The crate for embedders of cofferdam: its items are the public API, its front page is the map of the whole.
//!
//! | for | items |
//! |---|---|
//! | a host | [`Host`], [`HostBuilder`], [`Compiler`], [`CompileLimits`], [`compile_worker`], [`COMPILE_WORKER_ARG`] |
//! | packages | [`InstallOptions`], [`Installed`], [`Consent`], [`ConnectorName`], [`ConnectorRef`], [`Digest`] |
//! | calls | [`Call`], [`Fallback`], [`Cancellation`], [`OnKeyConflict`], [`LimitRequest`], [`CallResult`], [`Report`] |
//! | actions | [`RunRequest`], [`ActionValue`], [`ActionResult`], [`ActionReport`], [`ActionScope`] |
//! | errors | [`Error`], [`HostError`], [`HostErrorKind`], [`Failure`], [`FailureClass`], [`FailureBoundary`], [`AuditId`] |
//! | events | [`Listener`], [`Event`], [`EventKind`], [`Usage`] |
//! | traces | [`TraceCollector`], [`AttemptTrace`] |
//! | credentials | [`Vault`], [`VaultFile`], [`PassphraseSource`], [`BindingName`], [`SecretMaterial`], [`NewBinding`], [`Secret`] |
//! | settings | [`ResilienceSettings`], [`RateLimitUse`], [`Durability`], [`SealedQuota`], [`RootCertificates`] |
//! | approvals | [`ApprovalPolicy`], [`Approval`], [`ApprovalState`], [`ApprovalAnswer`], [`ApprovalDecision`], [`GrantRequest`] |
//! | dependencies to replace | [`Clock`], [`RandomSource`], [`Resolve`], [`AuditLog`], [`ApprovalStore`] |
//!
//! The crates below (`cofferdam-core`, `-model`, `-egress`, `-audit`, `-sandbox`, `-runtime`) are the engine. Their
//! items may change with any version.

#![doc = include_str!("../ARCHITECTURE.md")]

pub use cofferdam_audit::approvals::{Approval, ApprovalState, ApprovalStore};
pub use cofferdam_audit::{AuditLog, Durability, SealedQuota};
pub use cofferdam_core::clock::Clock;
pub use cofferdam_core::digest::Digest;
pub use cofferdam_core::error::{Error, HostError, HostErrorKind};
pub use cofferdam_core::event::{Event, EventKind, Listener};
pub use cofferdam_core::failure::{AuditId, Failure, FailureBoundary, FailureClass};
pub use cofferdam_core::limits::{LimitRequest, Usage};
pub use cofferdam_core::rng::RandomSource;
pub use cofferdam_core::secret::Secret;
pub use cofferdam_core::trace::{AttemptTrace, TraceCollector};
pub use cofferdam_egress::egress::{Resolve, RootCertificates};
pub use cofferdam_egress::resilience::{RateLimitUse, ResilienceSettings};
pub use cofferdam_egress::vault::{BindingName, PassphraseSource, SecretMaterial, Vault, VaultFile};
pub use cofferdam_model::action::ActionScope;
pub use cofferdam_model::manifest::ConnectorName;
pub use cofferdam_runtime::approvals::ApprovalPolicy;
pub use cofferdam_runtime::call::{
    Call, CallResult, Cancellation, ConnectorRef, Fallback, OnKeyConflict, Report,
};
pub use cofferdam_runtime::flow::{ActionReport, ActionResult, ActionValue, RunRequest};
pub use cofferdam_runtime::host::{ApprovalAnswer, ApprovalDecision};
pub use cofferdam_runtime::host::{
    Consent, GrantRequest, Host, HostBuilder, InstallOptions, Installed, NewBinding,
};
#[cfg(feature = "prometheus")]
pub use cofferdam_runtime::metrics::Metrics;
pub use cofferdam_sandbox::{COMPILE_WORKER_ARG, CompileLimits, Compiler, compile_worker};
