//! The crate for embedders of cofferdam: its items are the public API, its front page is the map of the whole.
//!
//! | for | items |
//! |---|---|
//! | a host | [`Host`], [`HostBuilder`], [`Compiler`], [`CompileLimits`], [`compile_worker`], [`COMPILE_WORKER_ARG`] |
//! | packages | [`InstallOptions`], [`Installed`], [`ConnectorName`], [`ConnectorRef`], [`Digest`] |
//! | calls | [`Call`], [`Alternate`], [`Cancellation`], [`IfRunning`], [`LimitRequest`], [`Report`] |
//! | actions | [`Run`], [`ActionValue`], [`ActionReport`], [`ActionScope`] |
//! | errors | [`Error`], [`HostError`], [`HostErrorKind`], [`Failure`], [`FailureClass`], [`Boundary`], [`AuditId`] |
//! | events | [`Listener`], [`Event`], [`Step`], [`Usage`] |
//! | credentials | [`Vault`], [`VaultFile`], [`PassphraseSource`], [`BindingName`], [`Material`], [`NewBinding`], [`Secret`] |
//! | settings | [`Settings`], [`Durability`], [`SealedQuota`], [`Roots`] |
//! | dependencies to replace | [`Clock`], [`Chance`], [`Resolve`], [`AuditLog`] |
//!
//! The crates below (`cofferdam-core`, `-model`, `-egress`, `-audit`, `-sandbox`, `-runtime`) are the engine. Their
//! items may change with any version.

#![doc = include_str!("../ARCHITECTURE.md")]

pub use cofferdam_audit::{AuditLog, Durability, SealedQuota};
pub use cofferdam_core::chance::Chance;
pub use cofferdam_core::clock::Clock;
pub use cofferdam_core::digest::Digest;
pub use cofferdam_core::error::{Error, HostError, HostErrorKind};
pub use cofferdam_core::event::{Event, Listener, Step};
pub use cofferdam_core::failure::{AuditId, Boundary, Failure, FailureClass};
pub use cofferdam_core::limits::{LimitRequest, Usage};
pub use cofferdam_core::secret::Secret;
pub use cofferdam_egress::egress::{Resolve, Roots};
pub use cofferdam_egress::resilience::Settings;
pub use cofferdam_egress::vault::{BindingName, Material, PassphraseSource, Vault, VaultFile};
pub use cofferdam_model::action::ActionScope;
pub use cofferdam_model::manifest::ConnectorName;
pub use cofferdam_runtime::call::{Alternate, Call, Cancellation, ConnectorRef, IfRunning, Report};
pub use cofferdam_runtime::flow::{ActionReport, ActionValue, Run};
pub use cofferdam_runtime::host::{Host, HostBuilder, InstallOptions, Installed, NewBinding};
#[cfg(feature = "prometheus")]
pub use cofferdam_runtime::metrics::Metrics;
pub use cofferdam_sandbox::{COMPILE_WORKER_ARG, CompileLimits, Compiler, compile_worker};
