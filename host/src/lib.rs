//! The crate of the host: its front page is the map, its modules are in reading order.

#![doc = include_str!("../ARCHITECTURE.md")]

pub mod action;
pub mod agent;
pub mod audit;
pub mod call;
pub mod chance;
#[doc(hidden)]
pub mod cli;
pub mod clock;
mod confine;
mod credentials;
pub mod digest;
mod document;
pub mod egress;
pub mod error;
pub mod event;
pub mod explain;
mod failpoint;
pub mod failure;
pub mod flow;
mod home_state;
pub mod host;
mod host_key;
#[cfg(feature = "server")]
pub mod http_api;
pub mod limits;
pub mod manifest;
#[cfg(feature = "server")]
pub mod mcp;
#[cfg(feature = "prometheus")]
pub mod metrics;
pub mod package;
mod private_file;
pub mod registry;
pub mod resilience;
pub mod sandbox;
pub mod secret;
#[cfg(feature = "server")]
pub mod server;
mod spelling;
mod stamp;
mod strict_json;
pub mod trust;
pub mod vault;
mod warnings;

pub use action::ActionScope;
pub use call::{Alternate, Call, Cancellation, ConnectorRef, Report};
pub use error::{Error, HostError, HostErrorKind};
pub use failure::{AuditId, Boundary, Failure, FailureClass};
pub use host::{Host, HostBuilder, InstallOptions, Installed};
pub use limits::{LimitRequest, Usage};
pub use sandbox::{COMPILE_WORKER_ARG, CompileLimits, Compiler, compile_worker};
