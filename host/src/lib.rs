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

// What embedders get of the crates below: named one by one, since the host's own rights are public there.

/// Action files.
pub mod action {
    pub use cofferdam_model::action::{
        Action, ActionError, ActionScope, DEFAULT_TIMEOUT, Input, InputKind, Output, OutputError, Part,
        Problem, Reference, RenderError, Requirement, Retry, Root, ScopeError, Segment, Step, Target,
        Template, Values,
    };
}

/// Randomness as a dependency.
pub mod chance {
    pub use cofferdam_core::chance::{Chance, SeededChance, SystemChance};
}

/// Time as a dependency.
pub mod clock {
    pub use cofferdam_core::clock::{Clock, Sleep, SystemClock};
}

/// SHA-256 as a value.
pub mod digest {
    pub use cofferdam_core::digest::Digest;
}

/// The host's own errors.
pub mod error {
    pub use cofferdam_core::error::{Error, HostError, HostErrorKind};
}

/// The steps of a call, for listeners.
pub mod event {
    pub use cofferdam_core::event::{Event, Listener, Speaker, Step, Wait};
}

/// The closed failure taxonomy.
pub mod failure {
    pub use cofferdam_core::failure::{
        AuditId, BindingCode, BindingProblem, Boundary, Cause, CircuitOpen, Context, Denial, DenialBoundary,
        DenialCode, Failure, FailureClass, GrantLine, LimitHit, LimitKind, LimitOwner, MissingBinding,
        NetworkFault, Permit, Phase, Prompt, RESERVED_CLASSES, RepeatRule, RetryStopped, RuntimeFault,
        SignatureCode, TimeOf, UnkeyedRequest, UpstreamFault, ascii_line, safe_line,
    };
}

/// The limits of a call.
pub mod limits {
    pub use cofferdam_core::limits::{
        AUTHORITY_BYTES, CONCURRENT_REQUESTS, Ceilings, HANDLES, HEADER_BYTES, HOST_TRANSFER_BYTES,
        INSTANCES, LOG_LINE_CHARS, LOG_LINES, LimitError, LimitRequest, LimitSource, Limits, MEMORIES,
        METHOD_BYTES, PAYLOAD_BYTES, ProfileTimes, RANDOM_BYTES, REQUEST_BODY_BYTES, REQUESTS,
        RESPONSE_BODY_BYTES, RESPONSE_FIELDS, RESULT_BYTES, RefusedLimit, STACK_BYTES, STDIO_BYTES, TABLES,
        Usage,
    };
}

/// Manifests of connectors.
pub mod manifest {
    pub use cofferdam_model::manifest::{
        ConnectorName, CredentialGrant, CredentialKind, EVERYONES_METHODS, Effect, GrantError, HostGrant,
        Idempotency, Manifest, ManifestError, NameError, Placement, Problem, Scheme,
    };
}

/// Packages.
pub mod package {
    pub use cofferdam_model::package::{
        CONTRACT_VERSION, Case, DOCS_SECTION, Docs, Field, FileKind, Import, ImportVerdict, MANIFEST_SECTION,
        MAX_BYTES, Name, Operation, OperationDocs, Package, PackageError, Sections, Shape, Standing, embed,
        extract, foretell, operations_of, strip, verdicts,
    };
}

/// The registry of installed packages.
pub mod registry {
    pub use cofferdam_model::registry::{
        Conflict, Downgrade, Entry, InstallOutcome, Rebuilt, Registry, RegistryError, Skipped, Stamp, Stored,
    };
}

/// Secrets, and the search for them.
pub mod secret {
    pub use cofferdam_core::secret::{Found, REDACTED, SHORTEST_SOUGHT, Scanner, Secret};
}

/// Keys, signatures and the keyring.
pub mod trust {
    pub use cofferdam_model::trust::{
        Envelope, EnvelopeError, KeyEntry, KeyError, KeyId, KeyStatus, Keyring, KeyringError, KeyringFile,
        PREDICATE_TYPE, PublicKey, STATEMENT_TYPE, Scope, SecretKey, Statement, TrustChange, TrustError,
        Verified, sign, verify,
    };
}

pub use action::ActionScope;
pub use error::{Error, HostError, HostErrorKind};
pub use failure::{AuditId, Boundary, Failure, FailureClass};
pub use host::{Host, HostBuilder, InstallOptions, Installed};
pub use limits::{LimitRequest, Usage};
pub use sandbox::{COMPILE_WORKER_ARG, CompileLimits, Compiler, compile_worker};
