//! The crate of the host: its front page is the map, its modules are in reading order.

#![doc = include_str!("../ARCHITECTURE.md")]

pub mod agent;
pub mod audit;
pub mod call;
#[doc(hidden)]
pub mod cli;
mod credentials;
pub mod egress;
pub mod explain;
pub mod flow;
pub mod host;
#[cfg(feature = "server")]
pub mod http_api;
#[cfg(feature = "server")]
pub mod mcp;
#[cfg(feature = "prometheus")]
pub mod metrics;
pub mod resilience;
pub mod sandbox;
#[cfg(feature = "server")]
pub mod server;
pub mod vault;

pub use call::{Alternate, Call, Cancellation, ConnectorRef, Report};
pub use cofferdam_core::{chance, clock, digest, error, event, failure, limits, secret};
pub use cofferdam_model::action::ActionScope;
pub use cofferdam_model::{action, manifest, package, registry, trust};
pub use error::{Error, HostError, HostErrorKind};
pub use failure::{AuditId, Boundary, Failure, FailureClass};
pub use host::{Host, HostBuilder, InstallOptions, Installed};
pub use limits::{LimitRequest, Usage};
pub use sandbox::{COMPILE_WORKER_ARG, CompileLimits, Compiler, compile_worker};
