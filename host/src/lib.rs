#![doc = include_str!("../ARCHITECTURE.md")]

pub mod failure;
pub mod error;
pub mod clock;
pub mod digest;
mod document;
pub mod limits;
pub mod manifest;
pub mod package;
pub mod trust;
pub mod egress;
pub mod registry;
pub mod sandbox;
pub mod call;
pub mod host;
#[doc(hidden)]
pub mod cli;

pub use call::{Call, ConnectorRef};
pub use error::{Error, HostError, HostErrorKind};
pub use failure::{AuditId, Boundary, Failure, FailureClass};
pub use host::{Host, HostBuilder, InstallOptions, Installed};
pub use limits::LimitRequest;
pub use sandbox::{COMPILE_WORKER_ARG, Compiler, compile_worker};
