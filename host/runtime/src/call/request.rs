//! A call as it is asked for: which connector, which operation, with what, within what.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_audit::Route;
use cofferdam_core::digest::Digest;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::{AuditId, safe_line};
use cofferdam_core::limits::LimitRequest;
use cofferdam_egress::resilience::Profile;
use cofferdam_model::action::ActionScope;
use cofferdam_model::manifest::ConnectorName;
use semver::Version;
use serde_json::Value;

use super::cancellation::Cancellation;
use super::chain::Alternate;
use super::part::PartOf;
use super::redact::Redactor;

/// A connector by its exact identity: name, version and, where it is pinned, the SHA-256 of its package.
/// There are no ranges and there is no "latest".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectorRef {
    name: ConnectorName,
    version: Version,
    hash: Option<Digest>,
    /// `name@version`, written once.
    text: Arc<str>,
}

impl ConnectorRef {
    /// A reference to this version.
    #[must_use]
    pub fn new(name: ConnectorName, version: Version) -> Self {
        let text = format!("{name}@{version}").into();
        Self { name, version, hash: None, text }
    }

    /// Pins the package: a call fails with `hash_mismatch` if what is installed is not it.
    #[must_use]
    pub fn pinned(mut self, hash: Digest) -> Self {
        self.hash = Some(hash);
        self
    }

    /// Reads `github://acme/slack@1.2.0`, optionally followed by `#sha256:<64 digits>`.
    ///
    /// # Errors
    /// `validation`, naming the part that is not acceptable.
    pub fn parse(text: &str) -> Result<Self, HostError> {
        let shown = safe_line(text, 200);
        let wrong = |part: &str| {
            HostError::new(HostErrorKind::Validation, format!("`{shown}` does not name a connector: {part}."))
                .hint("Write it as <scheme>://<owner>/<repo>@<version>, like github://acme/slack@1.2.0.")
        };
        let (text, hash) = match text.split_once('#') {
            Some((text, hash)) => {
                (text, Some(Digest::parse(hash).ok_or_else(|| wrong("after # comes sha256: and 64 digits"))?))
            }
            None => (text, None),
        };
        let (name, version) = text.rsplit_once('@').ok_or_else(|| wrong("the version is missing"))?;
        let name = ConnectorName::parse(name).map_err(|error| wrong(&error.to_string()))?;
        let version = Version::parse(version).map_err(|error| wrong(&format!("the version, {error}")))?;
        Ok(Self { hash, ..Self::new(name, version) })
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &ConnectorName {
        &self.name
    }

    /// The version.
    #[must_use]
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// The pinned hash.
    #[must_use]
    pub fn hash(&self) -> Option<&Digest> {
        self.hash.as_ref()
    }

    /// `name@version`, without the pin.
    pub(crate) fn text(&self) -> &Arc<str> {
        &self.text
    }
}

impl fmt::Display for ConnectorRef {
    /// `name@version`, without the pin.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The arguments as they were given.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Args {
    Value(Value),
    /// JSON text.
    Text(String),
}

/// One call, complete: there is none without limits, since what is not asked for has a default.
#[derive(Debug, Clone)]
pub struct Call {
    pub(super) connector: ConnectorRef,
    pub(super) op: String,
    pub(super) args: Args,
    pub(super) limits: LimitRequest,
    pub(super) idempotency_key: Option<String>,
    pub(super) allow_unsigned: bool,
    pub(super) scope: Option<Arc<ActionScope>>,
    pub(super) identities: BTreeMap<String, String>,
    /// Whether it must not be repeated, whatever the manifest says.
    pub(super) once: bool,
    pub(super) retry: Option<Arc<Profile>>,
    pub(super) attempt_timeout: Option<Duration>,
    pub(super) alternates: Vec<Alternate>,
    pub(super) rotate_on_permanent: bool,
    pub(super) cancellation: Option<Cancellation>,
    pub(super) if_running: IfRunning,
    pub(super) actor: Option<Arc<str>>,
    /// The action that it is a part of, and which step of that.
    pub(super) step: Option<(Arc<str>, Option<Arc<str>>)>,
    /// The key that its attempts carry where nobody gave one: that of the call that it does again.
    pub(super) carries: Option<Arc<str>>,
    /// The call that it does again, which was cut short, and who says so.
    pub(super) resumes: Option<(AuditId, Arc<str>)>,
    /// Its own id, where whoever asks for it has to know that beforehand.
    pub(super) audit_id: Option<AuditId>,
    /// The action that runs it.
    pub(super) part_of: Option<PartOf>,
}

/// What becomes of a call whose idempotency key belongs to one that is still running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IfRunning {
    /// It waits for the outcome of the other, as long as its own wall time allows.
    #[default]
    Wait,
    /// It is refused with `in_progress`.
    Refuse,
}

impl Call {
    /// Calls `op` with `args`, an object with one field per parameter.
    #[must_use]
    pub fn new(connector: ConnectorRef, op: impl Into<String>, args: Value) -> Self {
        Self::with_args(connector, op.into(), Args::Value(args))
    }

    /// Calls `op` with arguments that are JSON text, an object with one field per parameter. They go to the
    /// connector's values without a [`Value`] between, which is much cheaper for large ones; a field that is
    /// given twice is refused.
    #[must_use]
    pub fn from_text(connector: ConnectorRef, op: impl Into<String>, args: impl Into<String>) -> Self {
        Self::with_args(connector, op.into(), Args::Text(args.into()))
    }

    fn with_args(connector: ConnectorRef, op: String, args: Args) -> Self {
        Self {
            connector,
            op,
            args,
            limits: LimitRequest::default(),
            idempotency_key: None,
            allow_unsigned: false,
            scope: None,
            identities: BTreeMap::new(),
            once: false,
            retry: None,
            attempt_timeout: None,
            alternates: Vec::new(),
            rotate_on_permanent: false,
            cancellation: None,
            if_running: IfRunning::Wait,
            actor: None,
            step: None,
            carries: None,
            resumes: None,
            audit_id: None,
            part_of: None,
        }
    }

    /// The same call with these arguments, as JSON text.
    pub fn asking(mut self, args: String) -> Self {
        self.args = Args::Text(args);
        self
    }

    /// The same call as one that does `before` again, with the package that it had, because `actor` says so.
    pub(crate) fn resuming(mut self, before: AuditId, package: Option<Digest>, actor: Arc<str>) -> Self {
        if let Some(package) = package {
            self.connector = self.connector.pinned(package);
        }
        self.resumes = Some((before, actor));
        self
    }

    /// The connector that is called.
    #[must_use]
    pub fn connector(&self) -> &ConnectorRef {
        &self.connector
    }

    /// The operation that is called.
    #[must_use]
    pub fn op(&self) -> &str {
        &self.op
    }

    /// Asks for these limits instead of the manifest's.
    #[must_use]
    pub fn limits(mut self, limits: LimitRequest) -> Self {
        self.limits = limits;
        self
    }

    /// Calls within an action, which may use no more of the connector than `scope`; without one the call
    /// has all that the manifest grants.
    #[must_use]
    pub fn within(mut self, scope: impl Into<Arc<ActionScope>>) -> Self {
        self.scope = Some(scope.into());
        self
    }

    /// Uses the credential that is bound as `<kind>/<service>/<identity>`; outranks what the action says. Without
    /// a choice it is the identity `default`: none is ever guessed.
    #[must_use]
    pub fn identity(mut self, service: impl Into<String>, identity: impl Into<String>) -> Self {
        self.identities.insert(service.into(), identity.into());
        self
    }

    /// The idempotency key that its caller gave.
    pub(crate) fn key_given(&self) -> Option<&str> {
        self.idempotency_key.as_deref()
    }

    /// What is called, as the record has it.
    pub(super) fn route(&self) -> Route {
        let (action, step) = self.action_and_step();
        Route {
            connector: Arc::clone(self.connector.text()),
            op: on_route(&self.op),
            action: action.map(on_route),
            step: step.map(on_route),
        }
    }

    /// Gives the idempotency key instead of having one minted; 1 to 200 printable ASCII characters other than `:` and
    /// `~`, with which the keys of alternates and of single requests are made from it. It does not begin with `audit-`.
    ///
    /// Under one key something is done once: who gives it again with the same call gets the recorded outcome, and
    /// nothing runs; with another call it is refused (`docs/idempotency.md`).
    #[must_use]
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.idempotency_key = Some(key.into());
        self
    }

    /// What becomes of this call where one with its idempotency key is still running. Default: it waits.
    #[must_use]
    pub fn if_running(mut self, then: IfRunning) -> Self {
        self.if_running = then;
        self
    }

    /// Says who asks, for the record: up to 200 characters of a name that means something to the operator. Who gives
    /// an idempotency key is known by it, too: another actor's key is another call's. Default: the host's actor.
    #[must_use]
    pub fn actor(mut self, actor: &str) -> Self {
        self.actor = Some(actor_name(actor));
        self
    }

    /// Says that the call is this step of this action (`name` or `name@version`), for the record. Without it the
    /// action of its scope is named, if it has one.
    #[must_use]
    pub fn step_of(mut self, action: &str, step: &str) -> Self {
        self.step = Some((safe_line(action, NAME_CHARS).into(), Some(safe_line(step, NAME_CHARS).into())));
        self
    }

    /// The action that it is a part of, and which step of that.
    pub(super) fn action_and_step(&self) -> (Option<&str>, Option<&str>) {
        match (&self.step, &self.scope) {
            (Some((action, step)), _) => (Some(action), step.as_deref()),
            (None, Some(scope)) => (Some(scope.action()), None),
            (None, None) => (None, None),
        }
    }

    /// Retries as this profile says, whatever the operator set for the connector.
    #[must_use]
    pub fn retry(mut self, profile: Arc<Profile>) -> Self {
        self.retry = Some(profile);
        self
    }

    /// The longest that one attempt may take; the call's wall time stands above it.
    #[must_use]
    pub fn attempt_timeout(mut self, longest: Duration) -> Self {
        self.attempt_timeout = Some(longest);
        self
    }

    /// Treats the operation as one that must not be repeated, whatever its manifest says. The other way round is
    /// not possible: a caller cannot make it safe to repeat.
    #[must_use]
    pub fn not_idempotent(mut self) -> Self {
        self.once = true;
        self
    }

    /// Asks `alternate` where those before it could not help; may be given up to 16 times. All of them are loaded and
    /// checked before the first is asked, and all must be operations that may be repeated.
    #[must_use]
    pub fn or_else(mut self, alternate: Alternate) -> Self {
        self.alternates.push(alternate);
        self
    }

    /// Asks the next alternate also where a credential is refused or a bill is unpaid. Without it such a failure is
    /// the outcome: somebody has to see it.
    #[must_use]
    pub fn rotate_on_permanent(mut self) -> Self {
        self.rotate_on_permanent = true;
        self
    }

    /// Lets `cancellation` end the call.
    #[must_use]
    pub fn cancelled_by(mut self, cancellation: &Cancellation) -> Self {
        self.cancellation = Some(cancellation.clone());
        self
    }

    /// For local development: lets this call run a package that has no signature. A signature that is
    /// there and does not hold is refused all the same.
    #[must_use]
    pub fn allow_unsigned(mut self) -> Self {
        self.allow_unsigned = true;
        self
    }
}

/// The longest name of an actor, an operation, an action or a step on record, in characters.
const NAME_CHARS: usize = 200;

/// An actor's name, fit for the record.
pub(crate) fn actor_name(name: &str) -> Arc<str> {
    safe_line(name, NAME_CHARS).into()
}

/// A name as the record has it, whoever made it up: what no connector has is put on record, too.
fn on_route(name: &str) -> Arc<str> {
    Redactor::new(0).text(&safe_line(name, NAME_CHARS)).into()
}

/// The longest idempotency key, in bytes.
pub(crate) const KEY_BYTES: usize = 200;

/// What no caller's key has in it. All before the first `:` is a candidate's key, whatever the label after it; and all
/// before the first `~` of that is the call's, whatever candidate comes after it. So no two keys can meet.
const KEY_SEPARATORS: [char; 2] = [':', '~'];

/// How the keys begin that the host makes: they are ids of calls.
const MINTED: &str = "audit-";

/// Whether callers may give this key.
///
/// # Errors
/// `validation`, with what a key is.
pub(crate) fn check_key(key: &str) -> Result<(), HostError> {
    idempotency_key(Some(key), &Arc::from("")).map(drop)
}

/// The key that every attempt of a call carries: the caller's, or the minted one.
pub(super) fn idempotency_key(given: Option<&str>, minted: &Arc<str>) -> Result<Arc<str>, HostError> {
    match given {
        None => Ok(Arc::clone(minted)),
        Some(key) if key.contains(KEY_SEPARATORS) => {
            Err(HostError::new(HostErrorKind::Validation, "The idempotency key has a `:` or a `~` in it.").hint(
                "Write another character instead, like `-`: the host makes further keys of it with these two, and \
                 two that are meant to differ could become one.",
            ))
        }
        Some(key) if key.starts_with(MINTED) => {
            Err(HostError::new(HostErrorKind::Validation, "The idempotency key begins like one that the host makes.")
                .hint("Begin it with something else than `audit-`: two calls that are meant to differ could share a key."))
        }
        Some(key) if (1..=KEY_BYTES).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_graphic()) => {
            Ok(key.into())
        }
        Some(_) => Err(HostError::new(HostErrorKind::Validation, "The idempotency key is not acceptable.")
            .hint("Use 1 to 200 printable ASCII characters without spaces, `:` and `~`.")),
    }
}
