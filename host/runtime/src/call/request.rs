//! A call as it is requested: the connector, the operation, the arguments and the limits.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_audit::{CallTarget, KEY_BYTES};
use cofferdam_core::clock::millis;
use cofferdam_core::digest::Digest;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::{
    AuditId, DeadlineScope, Failure, FailureContext, LimitHit, LimitKind, sanitize_line,
};
use cofferdam_core::limits::LimitRequest;
use cofferdam_core::privileged::MakeFailure as _;
use cofferdam_core::trace::TraceCollector;
use cofferdam_egress::resilience::RetryProfile;
use cofferdam_model::action::ActionScope;
use cofferdam_model::manifest::ConnectorName;
use cofferdam_sandbox::AttemptTime;
use semver::Version;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::fallback::Fallback;
use super::redact::FieldRedactor;

/// A connector by its exact identity: name, version and, if it is pinned, the SHA-256 of its package. There are no
/// ranges and there is no "latest".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectorRef {
    name: ConnectorName,
    version: Version,
    hash: Option<Digest>,
    /// The reference as `name@version`, formatted once.
    text: Arc<str>,
}

impl ConnectorRef {
    /// Creates a reference to this version.
    #[must_use]
    pub fn new(name: ConnectorName, version: Version) -> Self {
        let text = format!("{name}@{version}").into();
        Self { name, version, hash: None, text }
    }

    /// Pins the package: a call fails with `hash_mismatch` if another package is installed.
    #[must_use]
    pub fn pinned(mut self, hash: Digest) -> Self {
        self.hash = Some(hash);
        self
    }

    /// Parses `github://acme/slack@1.2.0`, optionally followed by `#sha256:<64 digits>`.
    ///
    /// # Errors
    /// `validation`, naming the part that is not acceptable.
    pub fn parse(text: &str) -> Result<Self, HostError> {
        let shown = sanitize_line(text, 200);
        let wrong = |part: &str| {
            HostError::new(HostErrorKind::Validation, format!("`{shown}` does not name a connector: {part}."))
                .with_hint("Write it as <scheme>://<owner>/<repo>@<version>, like github://acme/slack@1.2.0.")
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

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &ConnectorName {
        &self.name
    }

    /// Returns the version.
    #[must_use]
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// Returns the pinned hash.
    #[must_use]
    pub fn hash(&self) -> Option<&Digest> {
        self.hash.as_ref()
    }

    /// Returns `name@version`, without the pin.
    pub(crate) fn text(&self) -> &Arc<str> {
        &self.text
    }
}

impl fmt::Display for ConnectorRef {
    /// Writes `name@version`, without the pin.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The arguments in their original form.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum CallArgs {
    Value(Value),
    /// The arguments as JSON text.
    Text(String),
}

/// One complete call. No call is without limits: every limit that is not set has a default.
#[derive(Debug, Clone)]
pub struct Call {
    pub(super) connector: ConnectorRef,
    pub(super) op: String,
    pub(super) args: CallArgs,
    pub(super) limits: LimitRequest,
    pub(super) idempotency_key: Option<String>,
    pub(super) allow_unsigned: bool,
    pub(super) scope: Option<Arc<ActionScope>>,
    pub(super) identities: BTreeMap<String, String>,
    /// True if the call must not be repeated, whatever the manifest says.
    pub(super) non_idempotent: bool,
    pub(super) retry: Option<Arc<RetryProfile>>,
    pub(super) attempt_timeout: Option<Duration>,
    /// True if a failed attempt is not followed by another one of the same candidate.
    pub(super) single_attempt: bool,
    pub(super) fallbacks: Vec<Fallback>,
    pub(super) rotate_on_permanent: bool,
    pub(super) cancellation: Option<Cancellation>,
    pub(super) if_running: OnKeyConflict,
    pub(super) actor: Option<Arc<str>>,
    /// True if an agent makes the call.
    pub(super) is_by_agent: bool,
    /// True if a person approved the action that it is a step of.
    pub(super) is_approved: bool,
    /// The action that it is a part of, and its step.
    pub(super) step: Option<(Arc<str>, Option<Arc<str>>)>,
    /// The key that its attempts carry if the caller gave none: the key of the call that it resumes.
    pub(super) attempt_key: Option<Arc<str>>,
    /// The interrupted call that it resumes, and the actor of that.
    pub(super) resumes: Option<(AuditId, Arc<str>)>,
    /// Its own id, if its caller has to know it beforehand.
    pub(super) audit_id: Option<AuditId>,
    /// The action that runs it.
    pub(super) action_context: Option<ActionContext>,
    /// The collector of its attempts' traces.
    pub(super) trace: Option<TraceCollector>,
}

/// The behavior of a call whose idempotency key belongs to a call that is still running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnKeyConflict {
    /// The call waits for the outcome of the other one, as long as its own wall time allows.
    #[default]
    Wait,
    /// The call is refused with `in_progress`.
    Refuse,
}

impl Call {
    /// Calls `op` with `args`, an object with one field per parameter.
    #[must_use]
    pub fn new(connector: ConnectorRef, op: impl Into<String>, args: Value) -> Self {
        Self::from_args(connector, op.into(), CallArgs::Value(args))
    }

    /// Calls `op` with arguments as JSON text, an object with one field per parameter. The text is converted to the
    /// connector's values without a [`Value`] between, which is much cheaper for large arguments. A duplicate field
    /// is refused.
    #[must_use]
    pub fn from_text(connector: ConnectorRef, op: impl Into<String>, args: impl Into<String>) -> Self {
        Self::from_args(connector, op.into(), CallArgs::Text(args.into()))
    }

    fn from_args(connector: ConnectorRef, op: String, args: CallArgs) -> Self {
        Self {
            connector,
            op,
            args,
            limits: LimitRequest::default(),
            idempotency_key: None,
            allow_unsigned: false,
            scope: None,
            identities: BTreeMap::new(),
            non_idempotent: false,
            retry: None,
            attempt_timeout: None,
            single_attempt: false,
            fallbacks: Vec::new(),
            rotate_on_permanent: false,
            cancellation: None,
            if_running: OnKeyConflict::Wait,
            actor: None,
            is_by_agent: false,
            is_approved: false,
            step: None,
            attempt_key: None,
            resumes: None,
            audit_id: None,
            action_context: None,
            trace: None,
        }
    }

    /// Replaces the arguments with these, as JSON text.
    pub fn with_args(mut self, args: String) -> Self {
        self.args = CallArgs::Text(args);
        self
    }

    /// Makes the call resume `before` on behalf of `actor`, with the package of that call.
    pub(crate) fn resuming(mut self, before: AuditId, package: Option<Digest>, actor: Arc<str>) -> Self {
        if let Some(package) = package {
            self.connector = self.connector.pinned(package);
        }
        self.resumes = Some((before, actor));
        self
    }

    /// Returns the connector that is called.
    #[must_use]
    pub fn connector(&self) -> &ConnectorRef {
        &self.connector
    }

    /// Returns the operation that is called.
    #[must_use]
    pub fn op(&self) -> &str {
        &self.op
    }

    /// Requests these limits instead of the manifest's.
    #[must_use]
    pub fn limits(mut self, limits: LimitRequest) -> Self {
        self.limits = limits;
        self
    }

    /// Runs the call within an action, which may use no more of the connector than `scope`. Without a scope the
    /// call has everything that the manifest grants.
    #[must_use]
    pub fn within(mut self, scope: impl Into<Arc<ActionScope>>) -> Self {
        self.scope = Some(scope.into());
        self
    }

    /// Uses the credential that is bound as `<kind>/<service>/<identity>`. This takes precedence over the action's
    /// choice. The default is the identity `default`; no identity is ever guessed.
    #[must_use]
    pub fn identity(mut self, service: impl Into<String>, identity: impl Into<String>) -> Self {
        self.identities.insert(service.into(), identity.into());
        self
    }

    /// Returns the idempotency key that its caller gave.
    pub(crate) fn key_given(&self) -> Option<&str> {
        self.idempotency_key.as_deref()
    }

    /// Returns the call's target as the audit log has it.
    pub(super) fn route(&self) -> CallTarget {
        let (action, step) = self.action_and_step();
        CallTarget {
            connector: Arc::clone(self.connector.text()),
            op: on_route(&self.op),
            action: action.map(on_route),
            step: step.map(on_route),
        }
    }

    /// Sets the idempotency key instead of a generated one: 1 to 200 printable ASCII characters without spaces, `:`
    /// and `~`. The last two separate the suffixes for fallbacks and single requests. It must not begin with `audit-`,
    /// unless the same call has failed and its failure names this key (`repeat_with_key`).
    ///
    /// An action under one key is done once. The same call with the same key gets the recorded outcome, and nothing
    /// runs. Another call with that key is refused (`docs/guides/recovery.md`).
    #[must_use]
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.idempotency_key = Some(key.into());
        self
    }

    /// Sets the behavior if a call with the same idempotency key is still running. Default: this call waits.
    #[must_use]
    pub fn if_running(mut self, then: OnKeyConflict) -> Self {
        self.if_running = then;
        self
    }

    /// Sets the actor for the audit log: up to 200 characters of a name that means something to the operator. The
    /// actor is also a part of the idempotency key's identity: the same key of another actor belongs to another
    /// call. Default: the host's actor.
    #[must_use]
    pub fn actor(mut self, actor: &str) -> Self {
        self.actor = Some(actor_name(actor));
        self
    }

    /// Marks the call as one that an agent makes: by default, a person has to approve its destructive operations.
    #[must_use]
    pub fn by_agent(mut self) -> Self {
        self.is_by_agent = true;
        self
    }

    /// Marks the call as one whose action a person approved, or that asks as its action's caller would.
    pub(crate) fn in_action_of(mut self, is_by_agent: bool, is_approved: bool) -> Self {
        (self.is_by_agent, self.is_approved) = (is_by_agent, is_approved);
        self
    }

    /// Records the call as this step of this action (`name` or `name@version`). The default is the action of its
    /// scope, if it has one.
    #[must_use]
    pub fn step_of(mut self, action: &str, step: &str) -> Self {
        self.step =
            Some((sanitize_line(action, NAME_CHARS).into(), Some(sanitize_line(step, NAME_CHARS).into())));
        self
    }

    /// Returns the action that it is a part of, and its step.
    pub(super) fn action_and_step(&self) -> (Option<&str>, Option<&str>) {
        match (&self.step, &self.scope) {
            (Some((action, step)), _) => (Some(action), step.as_deref()),
            (None, Some(scope)) => (Some(scope.action()), None),
            (None, None) => (None, None),
        }
    }

    /// Uses this retry profile, whatever the operator set for the connector.
    #[must_use]
    pub fn retry(mut self, profile: Arc<RetryProfile>) -> Self {
        self.retry = Some(profile);
        self
    }

    /// Limits the time of one attempt. The call's wall time remains the upper limit.
    #[must_use]
    pub fn attempt_timeout(mut self, longest: Duration) -> Self {
        self.attempt_timeout = Some(longest);
        self
    }

    /// Makes one attempt with each candidate, whatever the retry profile says. For callers that make the call again
    /// later under the same idempotency key, like a queue.
    #[must_use]
    pub fn single_attempt(mut self) -> Self {
        self.single_attempt = true;
        self
    }

    /// Treats the operation as one that must not be repeated, whatever its manifest says. The opposite is not
    /// possible: a caller cannot make an operation safe to repeat.
    #[must_use]
    pub fn not_idempotent(mut self) -> Self {
        self.non_idempotent = true;
        self
    }

    /// Adds a fallback for candidates that fail. There may be up to 16. All of them are loaded and checked before
    /// the first candidate is tried, and all must be operations that may be repeated.
    #[must_use]
    pub fn or_else(mut self, fallback: Fallback) -> Self {
        self.fallbacks.push(fallback);
        self
    }

    /// Tries the next fallback also if a credential is refused or a bill is unpaid. By default such a failure is
    /// the outcome, so that a person sees it.
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

    /// Collects a trace of each attempt, with the contents of its requests. A traced call is slower.
    #[must_use]
    pub fn traced_by(mut self, collector: &TraceCollector) -> Self {
        self.trace = Some(collector.clone());
        self
    }

    /// Lets this call run a package that has no signature, for local development. An invalid signature is refused
    /// nevertheless.
    #[must_use]
    pub fn allow_unsigned(mut self) -> Self {
        self.allow_unsigned = true;
        self
    }
}

/// The longest name of an actor, an operation, an action or a step in the audit log, in characters.
const NAME_CHARS: usize = 200;

/// Returns an actor's name in the form for the audit log.
pub(crate) fn actor_name(name: &str) -> Arc<str> {
    sanitize_line(name, NAME_CHARS).into()
}

/// Returns a name in the form for the audit log. It may come from anywhere: unknown names are recorded, too.
fn on_route(name: &str) -> Arc<str> {
    FieldRedactor::new(0).text(&sanitize_line(name, NAME_CHARS)).into()
}

/// The characters that no caller's key contains. The part before the first `:` is a candidate's key, followed by
/// any label. The part of that before the first `~` is the call's key, followed by the candidate. So no two keys
/// can collide.
const KEY_SEPARATORS: [char; 2] = [':', '~'];

/// The prefix of the keys that the host generates: they are ids of calls.
const MINTED: &str = "audit-";

/// Checks whether callers may give this key.
///
/// # Errors
/// `validation`, with the rules for keys.
pub(crate) fn check_key(key: &str) -> Result<(), HostError> {
    idempotency_key(Some(key), &Arc::from("")).map(drop)
}

/// Returns the key that every attempt of a call carries: the caller's, or the generated one.
pub(super) fn idempotency_key(given: Option<&str>, minted: &Arc<str>) -> Result<Arc<str>, HostError> {
    match given {
        None => Ok(Arc::clone(minted)),
        Some(key) if key.contains(KEY_SEPARATORS) => {
            Err(HostError::new(HostErrorKind::Validation, "The idempotency key has a `:` or a `~` in it.").with_hint(
                "Write another character instead, like `-`: the host makes further keys of it with these two, and \
                 two that are meant to differ could become one.",
            ))
        }
        Some(key) if key.starts_with(MINTED) => {
            let message = "The idempotency key begins like one that the host makes.";
            Err(HostError::new(HostErrorKind::Validation, message).with_hint(
                "Begin it with something else than `audit-`: two calls that are meant to differ could share a key. One \
                 that a failure names (`repeat_with_key`) is taken with the same call alone.",
            ))
        }
        Some(key) if (1..=KEY_BYTES).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_graphic()) => {
            Ok(key.into())
        }
        Some(_) => Err(HostError::new(HostErrorKind::Validation, "The idempotency key is not acceptable.")
            .with_hint("Use 1 to 200 printable ASCII characters without spaces, `:` and `~`.")),
    }
}

/// Cancels the calls that it was given to. Cheap to clone; all clones share one state.
///
/// A cancelled call ends at once in every state: in the queue, in its sandbox, between two attempts. Its outcome is
/// neither a value nor a failure but the error `cancelled`. Dropping a call's future ends it, too, but then no
/// outcome is returned.
#[derive(Debug, Clone, Default)]
pub struct Cancellation(CancellationToken);

impl Cancellation {
    /// Creates a handle that is not cancelled yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancels every call that it was given to, and also those that are made later.
    pub fn cancel(&self) {
        self.0.cancel();
    }

    /// True if it is cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Completes when it is cancelled.
    pub async fn cancelled(&self) {
        self.0.cancelled().await;
    }
}

/// Returns the error of a call that was cancelled after `attempts` attempts.
pub(crate) fn cancelled(attempts: u32) -> HostError {
    let message = match attempts {
        0 => "The call was cancelled before its first attempt; nothing was done.",
        _ => "The call was cancelled before it had an outcome. It may have had effects.",
    };
    HostError::new(HostErrorKind::Cancelled, message).detail("attempts", attempts)
}

/// The action that runs a call.
#[derive(Debug, Clone)]
pub(crate) struct ActionContext {
    /// The action's audit id.
    pub(crate) audit_id: AuditId,
    /// The time at which the action began.
    pub(crate) since: Instant,
    /// The longest time that the action may take.
    pub(crate) allowed: Duration,
}

impl ActionContext {
    /// Returns the time at which the action has to end.
    pub(crate) fn deadline(&self) -> Instant {
        self.since + self.allowed
    }

    /// Returns the failure of a call for which the action has no time left.
    pub(crate) fn out_of_time(&self, context: &FailureContext, now: Instant) -> Failure {
        let used = now.saturating_duration_since(self.since);
        let hit = LimitHit::new(LimitKind::WallTime, millis(self.allowed), millis(used))
            .with_scope(DeadlineScope::Action);
        Failure::resource_limit_exceeded(context, hit)
    }
}

impl Call {
    /// Records the call under this id, which no other call has. Its caller knows the id before the call begins.
    #[must_use]
    pub fn with_audit_id(mut self, audit_id: AuditId) -> Self {
        self.audit_id = Some(audit_id);
        self
    }

    /// Makes the call a part of an action. It ends within the action's time.
    #[must_use]
    pub(crate) fn with_action(mut self, action: ActionContext) -> Self {
        self.action_context = Some(action);
        self
    }
}

/// The time of a call, including all its attempts and waits.
#[derive(Clone, Copy)]
pub(super) struct CallTime {
    started: Instant,
    allowed: Duration,
    pub(super) deadline: Instant,
    of: DeadlineScope,
}

impl CallTime {
    /// Starts the time of a call that may take `allowed` from now on, but no longer than its action.
    pub(super) fn begin(part_of: Option<&ActionContext>, allowed: Duration, now: Instant) -> Self {
        match part_of {
            Some(action) if action.deadline() < now + allowed => Self {
                started: action.since,
                allowed: action.allowed,
                deadline: action.deadline(),
                of: DeadlineScope::Action,
            },
            _ => {
                let of = part_of.map_or(DeadlineScope::Call, |_| DeadlineScope::Step);
                Self { started: now, allowed, deadline: now + allowed, of }
            }
        }
    }

    /// Returns the time of an attempt that begins now and may take at most `longest`.
    pub(super) fn attempt(&self, longest: Duration, now: Instant) -> AttemptTime {
        match now + longest < self.deadline {
            true => AttemptTime {
                deadline: now + longest,
                allowed: longest,
                since: now,
                of: DeadlineScope::Attempt,
            },
            false => AttemptTime {
                deadline: self.deadline,
                allowed: self.allowed,
                since: self.started,
                of: self.of,
            },
        }
    }
}
