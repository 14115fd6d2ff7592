//! The host's own errors: the open error type, for operators and callers.
//!
//! It is never mixed with [`Failure`]: a call that ran has an outcome, and its failures are the closed nine;
//! a request that could not be started (unknown operation, unreadable manifest, full disk) is one of these.
//! Its serial form is the second of the two envelopes, `{"error": {code, message, details, request_id}}`.

mod sealed;

use std::error::Error as StdError;
use std::fmt;

use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};
use serde_json::{Map, Value};

use crate::failure::{AuditId, Failure, RecoveryPrompt};
pub use sealed::HostErrorSnapshot;

macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal;)+) => {
        /// The kind of an error, which decides the code on the wire.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum HostErrorKind {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl HostErrorKind {
            /// Every kind.
            pub const ALL: &'static [HostErrorKind] = &[$(HostErrorKind::$variant),+];

            /// Returns the stable `code`.
            #[must_use]
            pub const fn code(self) -> &'static str {
                match self { $(HostErrorKind::$variant => $name,)+ }
            }

            /// Returns the meaning of the kind in one sentence.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self { $(HostErrorKind::$variant => concat!($($doc),+).trim_ascii_start(),)+ }
            }

            /// Returns whether such an error of a call is about the request, so that its message is for the
            /// caller. Others are for the operator, and may name paths of the machine.
            #[must_use]
            pub const fn is_about_the_request(self) -> bool {
                matches!(
                    self,
                    Self::Validation
                        | Self::ConnectorNotFound
                        | Self::ActionNotFound
                        | Self::OpNotFound
                        | Self::Conflict
                        | Self::Busy
                        | Self::AuditUnavailable
                        | Self::OutcomeUnknown
                        | Self::AuditNotFound
                        | Self::JobNotFound
                        | Self::QueueUnavailable
                        | Self::NotReplayable
                        | Self::IdempotencyConflict
                        | Self::InProgress
                        | Self::ApprovalRequired
                        | Self::ApprovalDenied
                        | Self::Cancelled
                )
            }
        }
    };
}

kinds! {
    /// A document, a component or an argument is not acceptable as it is.
    Validation = "validation";
    /// The component was made for another version of the connector contract.
    ContractVersion = "contract_version";
    /// No such connector is installed.
    ConnectorNotFound = "connector_not_found";
    /// There is no such action.
    ActionNotFound = "action_not_found";
    /// The connector has no such operation.
    OpNotFound = "op_not_found";
    /// A named file does not exist or cannot be read.
    InputUnreadable = "input_unreadable";
    /// Something else already has this name.
    Conflict = "conflict";
    /// A version older than one that was installed before, without leave to go back.
    Downgrade = "downgrade";
    /// The access that a package asks for was not accepted by an operator.
    ConsentRequired = "consent_required";
    /// The component asks for more compile time or memory than the host gives.
    CompileRefused = "compile_refused";
    /// The keyring cannot be read or is not safe to trust.
    KeyringInvalid = "keyring_invalid";
    /// Nothing is bound under this name.
    BindingNotFound = "binding_not_found";
    /// The vault is locked, and what would open it is missing or wrong.
    VaultLocked = "vault_locked";
    /// The vault cannot be read or written, is damaged, or is not safe to use.
    VaultUnusable = "vault_unusable";
    /// The package directory or its index cannot be read or written.
    RegistryUnavailable = "registry_unavailable";
    /// The state of circuits cannot be read or written.
    CircuitsUnavailable = "circuits_unavailable";
    /// The queue of jobs cannot be reached, or does not answer. A job that was being submitted may be on it: the same key
    /// submits it once.
    QueueUnavailable = "queue_unavailable";
    /// There is no such job.
    JobNotFound = "job_not_found";
    /// A package's source (a registry or web server) cannot be reached, refuses, or does not have the package.
    SourceUnavailable = "source_unavailable";
    /// A package's source sent, or led to, something that is not acceptable. Nothing of it was kept.
    SourceRefused = "source_refused";
    /// The audit log cannot be written or read. No unrecorded call runs.
    AuditUnavailable = "audit_unavailable";
    /// A call was run and what came of it is not known here: its end could not be recorded, it never had one, or its
    /// outcome is not kept.
    OutcomeUnknown = "outcome_unknown";
    /// The audit log has no such call.
    AuditNotFound = "audit_not_found";
    /// The call has no outcome, or no request, that is kept: it cannot be given, or done, again.
    NotReplayable = "not_replayable";
    /// The idempotency key was given before, with another call.
    IdempotencyConflict = "idempotency_conflict";
    /// The call with this idempotency key is still running.
    InProgress = "in_progress";
    /// A person has to approve the call, and was asked. It was not run.
    ApprovalRequired = "approval_required";
    /// A person denied the call. It was not run.
    ApprovalDenied = "approval_denied";
    /// The audit log was changed: it does not verify.
    AuditTampered = "audit_tampered";
    /// A file that the command was to make cannot be written.
    OutputUnwritable = "output_unwritable";
    /// More is asked at once than the host takes; try again.
    Busy = "busy";
    /// The call was cancelled by its caller before it had an outcome.
    Cancelled = "cancelled";
    /// A tool that the command needs is missing, or failed.
    Tool = "tool";
    /// The host is configured in a way that cannot work.
    Configuration = "configuration";
    /// A fault of the host.
    Internal = "internal";
}

/// An error of the host itself.
#[derive(Debug)]
pub struct HostError {
    inner: Box<HostErrorInner>,
}

#[derive(Debug)]
struct HostErrorInner {
    kind: HostErrorKind,
    message: String,
    hint: Option<String>,
    details: Map<String, Value>,
    request_id: AuditId,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl HostError {
    /// Creates an error of `kind`; the message is one full sentence without secrets.
    pub fn new(kind: HostErrorKind, message: impl Into<String>) -> Self {
        let inner = HostErrorInner {
            kind,
            message: message.into(),
            hint: None,
            details: Map::new(),
            request_id: AuditId::mint(),
            source: None,
        };
        Self { inner: Box::new(inner) }
    }

    /// Adds the suggested fix.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.inner.hint = Some(hint.into());
        self
    }

    /// Adds a machine-readable fact.
    #[must_use]
    pub fn detail(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.inner.details.insert(key.to_owned(), value.into());
        self
    }

    /// Stores the cause for the operator; it is not part of the envelope.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.inner.source = Some(source.into());
        self
    }

    /// Sets the audit id of the request that ended with the error.
    #[must_use]
    pub fn with_request_id(mut self, id: &AuditId) -> Self {
        self.inner.request_id = id.clone();
        self
    }

    /// Returns the same error with its message rewritten, for the caller of a larger operation that it ended.
    #[must_use]
    pub fn map_message(mut self, words: impl FnOnce(&str) -> String) -> Self {
        self.inner.message = words(&self.inner.message);
        self
    }

    /// Returns the kind, on which callers branch.
    #[must_use]
    pub fn kind(&self) -> HostErrorKind {
        self.inner.kind
    }

    /// Returns the message.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.inner.message
    }

    /// Returns the suggested fix, if there is one.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.inner.hint.as_deref()
    }

    /// Returns the id of this request in the operator's log.
    #[must_use]
    pub fn request_id(&self) -> &AuditId {
        &self.inner.request_id
    }

    /// Returns the machine-readable facts.
    #[must_use]
    pub fn details(&self) -> &Map<String, Value> {
        &self.inner.details
    }
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.inner.message)
    }
}

impl StdError for HostError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.inner.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

impl Serialize for HostError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct HostErrorBody<'a>(&'a HostErrorInner);
        impl Serialize for HostErrorBody<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut details = self.0.details.clone();
                if let Some(hint) = &self.0.hint {
                    details.insert("suggestion".into(), hint.as_str().into());
                }
                let mut body = serializer.serialize_struct("HostError", 4)?;
                body.serialize_field("code", self.0.kind.code())?;
                body.serialize_field("message", &self.0.message)?;
                body.serialize_field("details", &details)?;
                body.serialize_field("request_id", &self.0.request_id)?;
                body.end()
            }
        }
        let mut envelope = serializer.serialize_struct("Envelope", 1)?;
        envelope.serialize_field("error", &HostErrorBody(&self.inner))?;
        envelope.end()
    }
}

/// The error of a call: the outcome of a call that failed, or the host's own error. The two keep their types
/// and their envelopes; this type only distinguishes them.
#[derive(Debug)]
pub enum Error {
    /// The call has an outcome, which is a failure of the closed taxonomy.
    Failure(Failure),
    /// The request could not be started.
    Host(HostError),
}

impl Error {
    /// Returns the failure, if it is one.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Error::Failure(failure) => Some(failure),
            Error::Host(_) => None,
        }
    }

    /// Returns the prompt for a person; `None` if no answer would help.
    #[must_use]
    pub fn prompt(&self) -> Option<RecoveryPrompt> {
        match self {
            Error::Failure(failure) => failure.prompt(),
            Error::Host(error) => match error.kind() {
                HostErrorKind::Validation => Some(RecoveryPrompt::Ask),
                HostErrorKind::OutcomeUnknown
                | HostErrorKind::InProgress
                | HostErrorKind::ApprovalRequired
                | HostErrorKind::Busy => Some(RecoveryPrompt::Approve),
                _ => None,
            },
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Error::Failure(failure)
    }
}

impl From<HostError> for Error {
    fn from(error: HostError) -> Self {
        Error::Host(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Failure(failure) => failure.fmt(f),
            Error::Host(error) => error.fmt(f),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Error::Failure(_) => None,
            Error::Host(error) => error.source(),
        }
    }
}

impl Serialize for Error {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Error::Failure(failure) => failure.serialize(serializer),
            Error::Host(error) => error.serialize(serializer),
        }
    }
}
