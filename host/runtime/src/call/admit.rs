//! Admits an attempt: a permit, the verified load, and every check that needs no guest.

use std::sync::Arc;

use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::failure::{AuditId, Failure, FailureContext, LimitHit, LimitKind, RepeatRule};
use cofferdam_core::limits::{self, LimitRequest, Limits, ProfileTimes};
use cofferdam_core::privileged::MakeFailure as _;
use cofferdam_core::suggest;
use cofferdam_egress::credentials::{CallCredentials, CredentialError, IdentitySelection};
use cofferdam_egress::resilience::RetryPlan;
use cofferdam_sandbox::{EncodedArguments, ExportedOperation, PoolPermit};
use tokio::sync::SemaphorePermit;

use super::call_progress::CallProgress;
use super::fallback::{CallCandidate, ResolvedCandidate, reject_duplicates};
use super::loader::LoadedPackage;
use super::pipeline::{CallPipeline, CallState};
use super::request::{Call, CallArgs};
use super::verify;

/// An attempt that may be made now.
pub(super) struct AdmittedCall<'p> {
    pub(super) loaded: Arc<LoadedPackage>,
    pub(super) operation: Arc<ExportedOperation>,
    pub(super) context: FailureContext,
    pub(super) limits: Limits,
    pub(super) args: EncodedArguments,
    pub(super) credentials: Option<CallCredentials>,
    _room: PoolPermit<'p>,
    _permit: SemaphorePermit<'p>,
}

/// A call that has its place, before its arguments and bindings are checked.
struct PermittedCall<'p> {
    loaded: Arc<LoadedPackage>,
    operation: Arc<ExportedOperation>,
    permit: SemaphorePermit<'p>,
    room: PoolPermit<'p>,
}

/// A call that fits its connector and its limits.
pub(super) struct CheckedRequest {
    context: FailureContext,
    limits: Limits,
    args: EncodedArguments,
}

impl CallPipeline {
    /// Makes every check, again for each attempt: a package or key that was revoked while the call waited must not
    /// run. The wait for a permit ends with the call's time.
    pub(super) async fn admit<'p>(
        &'p self,
        call: &Call,
        candidate: &CallCandidate<'_>,
        plan: &RetryPlan,
        state: &mut CallState<'p>,
        progress: &mut CallProgress,
    ) -> Result<AdmittedCall<'p>, Error> {
        let Some(time) = state.time else {
            return self.check(call, candidate, plan, state, progress).await;
        };
        tokio::select! {
            biased;
            admitted = self.check(call, candidate, plan, state, progress) => admitted,
            () = self.loader.clock.sleep_until(time.deadline) => Err(busy().into()),
        }
    }

    async fn check<'p>(
        &'p self,
        call: &Call,
        candidate: &CallCandidate<'_>,
        plan: &RetryPlan,
        state: &mut CallState<'p>,
        progress: &mut CallProgress,
    ) -> Result<AdmittedCall<'p>, Error> {
        // Wait first and check afterwards: a key that is revoked while a call waits must not let it run.
        let connector = candidate.connector.text();
        let context = FailureContext::new(state.audit_id.clone()).with_connector(Arc::clone(connector), None);
        let PermittedCall { loaded, operation, permit, room } =
            self.permitted(&context, call, candidate, plan, state).await?;
        let package = &loaded.checked.package;
        progress.set_package(Arc::clone(&loaded.hash), loaded.signer.clone());

        let CheckedRequest { context, limits, args } =
            self.check_request(call, candidate, plan, &state.audit_id, &loaded, &operation)?;
        let identities = candidate.identities(call, package.manifest());
        let choice = IdentitySelection::new(&identities, candidate.scope.map(|scope| &**scope));
        let credentials = self.broker.for_call(package.manifest(), &loaded.hash, choice).await;
        let credentials = credentials.map_err(|refused| match refused {
            CredentialError::Binding(problem) => Error::from(Failure::binding(&context, &problem)),
            CredentialError::Host(error) => error.into(),
        })?;
        Ok(AdmittedCall {
            loaded,
            operation,
            context,
            limits,
            args,
            credentials,
            _room: room,
            _permit: permit,
        })
    }

    /// Acquires a permit to run. The wait is no longer than the call may run: by then the caller has given up and
    /// would send the call again.
    async fn acquire_permit(
        &self,
        call: &Call,
        context: &FailureContext,
    ) -> Result<SemaphorePermit<'_>, Error> {
        let clock = &*self.loader.clock;
        tokio::select! {
            biased;
            permit = self.permits.acquire() => Ok(permit.map_err(|_| busy())?),
            () = clock.sleep_until(self.permit_deadline(call)) => {
                let now = clock.now();
                match call.action_context.as_ref().filter(|action| now >= action.deadline()) {
                    Some(action) => Err(action.out_of_time(context, now).into()),
                    None => Err(HostError::new(HostErrorKind::Busy, "Its turn did not come in time. Nothing was run.")
                        .with_hint("Try again later.")
                        .into()),
                }
            }
        }
    }

    /// Checks everything about a candidate except its bindings.
    pub(super) fn check_request(
        &self,
        call: &Call,
        candidate: &CallCandidate<'_>,
        plan: &RetryPlan,
        audit_id: &AuditId,
        loaded: &LoadedPackage,
        operation: &ExportedOperation,
    ) -> Result<CheckedRequest, Error> {
        let (context, limits) = self.check_limits(call, candidate, plan, audit_id, loaded, operation)?;
        let args = fitting_args(&context, operation, call, candidate)?;
        Ok(CheckedRequest { context, limits, args })
    }

    /// Checks everything about a candidate except its bindings and its arguments.
    pub(super) fn check_limits(
        &self,
        call: &Call,
        candidate: &CallCandidate<'_>,
        plan: &RetryPlan,
        audit_id: &AuditId,
        loaded: &LoadedPackage,
        operation: &ExportedOperation,
    ) -> Result<(FailureContext, Limits), Error> {
        let (package, connector) = (&loaded.checked.package, candidate.connector.text());
        let repeat = match call.non_idempotent {
            true => RepeatRule::Never,
            false => package.manifest().repeat_rule(candidate.op),
        };
        if repeat == RepeatRule::Never && !call.fallbacks.is_empty() {
            return Err(not_repeatable(call, candidate).into());
        }
        let context = FailureContext::new(audit_id.clone())
            .with_connector(Arc::clone(connector), Some(Arc::clone(&loaded.hash)))
            .with_op(Arc::clone(operation.name()), repeat);
        let scope = candidate.scope.map(|scope| &**scope);
        verify::check_scope(&context, package, scope, candidate.op)?;
        let action = scope.map_or_else(LimitRequest::default, |scope| *scope.limits());
        let times = ProfileTimes {
            attempt_timeout: call.attempt_timeout.or(plan.profile.times().attempt_timeout),
            ..*plan.profile.times()
        };
        let manifest = package.manifest().limits();
        let limits = verify::check_limits(&self.loader.ceilings, manifest, &action, &call.limits, &times)?;
        Ok((context, limits))
    }

    /// Returns the connector and its operation, a permit to run, and room for an instance. A load can take as long as a compile, so
    /// it comes first and holds neither of the others. After a wait for them the load is checked again: a connector
    /// that was revoked meanwhile must not run.
    async fn permitted<'p>(
        &'p self,
        context: &FailureContext,
        call: &Call,
        candidate: &CallCandidate<'_>,
        plan: &RetryPlan,
        state: &mut CallState<'p>,
    ) -> Result<PermittedCall<'p>, Error> {
        let (connector, sandbox) = (candidate.connector.text(), &self.loader.sandbox);
        let mut loaded = self.loaded(context, call, candidate, state).await?;
        loop {
            let operation = Arc::clone(known_operation(&loaded, connector, candidate.op)?);
            let needs = operation.needs();
            let free = self.permits.try_acquire().ok();
            let mut waited = free.is_none();
            let permit = match free {
                Some(permit) => permit,
                None => {
                    // Arguments that do not fit take no place in the queue. The values built from them are dropped:
                    // while the call waits, the arguments stay in their original form.
                    self.check_request(call, candidate, plan, context.audit_id(), &loaded, &operation)
                        .map(drop)?;
                    self.acquire_permit(call, context).await?
                }
            };
            let room = match sandbox.try_pool_permit(needs) {
                Some(room) => room,
                None => {
                    waited = true;
                    sandbox.pool_permit(needs).await.ok_or_else(busy)?
                }
            };
            if !waited {
                return Ok(PermittedCall { loaded, operation, permit, room });
            }
            let current =
                self.loader.current(context, candidate.connector, connector, call.allow_unsigned)?;
            loaded = match current {
                Some(current) if Arc::ptr_eq(&current, &loaded) => {
                    return Ok(PermittedCall { loaded, operation, permit, room });
                }
                Some(current) => current,
                None => {
                    drop((permit, room));
                    self.loaded(context, call, candidate, state).await?
                }
            };
        }
    }

    /// Returns the connector and loads it if needed. A call that waits for a load gives its queue slot back.
    async fn loaded<'p>(
        &'p self,
        context: &FailureContext,
        call: &Call,
        candidate: &CallCandidate<'_>,
        state: &mut CallState<'p>,
    ) -> Result<Arc<LoadedPackage>, Error> {
        let (wanted, connector) = (candidate.connector, candidate.connector.text());
        if let Some(current) = self.loader.current(context, wanted, connector, call.allow_unsigned)? {
            return Ok(current);
        }
        state.release_queue_permit();
        let loaded = self.loader.load(context, wanted, connector, call.allow_unsigned).await?;
        state.acquire_queue_permit(self)?;
        Ok(loaded)
    }
}

/// Returns the error for a chain with an operation that must not be repeated.
fn not_repeatable(call: &Call, candidate: &CallCandidate<'_>) -> HostError {
    let (op, connector) = (cofferdam_core::failure::sanitize_line(candidate.op, 100), candidate.connector);
    let (why, hint) = match call.non_idempotent {
        true => (
            format!("`{op}` of {connector} is not to be repeated, says the call itself"),
            "Call it without fallbacks, or without saying so.".to_owned(),
        ),
        false => (
            format!("`{op}` of {connector} is not idempotent, says its manifest"),
            "Call it without fallbacks: a fallback might repeat an effect of the first candidate.".to_owned(),
        ),
    };
    candidate.refuses(HostErrorKind::Validation, &why).with_hint(hint)
}

pub(super) fn known_operation<'l>(
    loaded: &'l LoadedPackage,
    connector: &str,
    op: &str,
) -> Result<&'l Arc<ExportedOperation>, HostError> {
    if let Some(operation) = loaded.connector.operation(op) {
        return Ok(operation);
    }
    let mut names: Vec<&str> = loaded.connector.operation_names().collect();
    names.sort_unstable();
    let hint = match suggest::nearest(op, names.iter().copied()) {
        Some(near) => format!("Did you mean `{near}`? It has: {}", names.join(", ")),
        None => format!("It has: {}", names.join(", ")),
    };
    let op = cofferdam_core::failure::sanitize_line(op, 100);
    Err(HostError::new(HostErrorKind::OpNotFound, format!("{connector} has no operation `{op}`."))
        .with_hint(hint))
}

fn fitting_args(
    context: &FailureContext,
    operation: &ExportedOperation,
    call: &Call,
    candidate: &CallCandidate<'_>,
) -> Result<EncodedArguments, Error> {
    let limit = limits::PAYLOAD_BYTES as u64;
    let within = |over: Option<u64>| match over {
        None => Ok(()),
        Some(used) => {
            let hit = LimitHit::new(LimitKind::Payload, limit, used);
            Err(Error::from(Failure::resource_limit_exceeded(context, hit)))
        }
    };
    // Checked before a copy is made. The overrides replace fields of the first candidate's arguments, which were
    // checked then.
    within(candidate.overrides().and_then(|fields| cofferdam_sandbox::json_fields_over(fields, limit)))?;
    let args = candidate.args(call)?;
    within(match &*args {
        CallArgs::Value(value) => cofferdam_sandbox::json_size_over(value, limit),
        CallArgs::Text(text) => Some(text.len() as u64).filter(|size| *size > limit),
    })?;
    let fitting = match &*args {
        CallArgs::Value(value) => operation.arguments(value),
        CallArgs::Text(text) => operation.arguments_from_text(text),
    };
    fitting.map_err(|error| {
        HostError::new(HostErrorKind::Validation, format!("The arguments do not fit: {error}."))
            .with_hint(format!("The operation is {}", operation.operation()))
            .into()
    })
}

pub(super) fn busy() -> HostError {
    HostError::new(HostErrorKind::Busy, "The host has as many calls waiting as it takes.")
        .with_hint("Try again later.")
}

impl CallPipeline {
    /// Loads the candidates of a chain, and makes the checks of an attempt except those for bindings: the candidate
    /// is installed, trusted, within its action and its limits, its arguments fit, it may be repeated, and it does
    /// not repeat an earlier candidate. Loading compiles what was not compiled yet, once. So the next candidate can
    /// answer quickly.
    ///
    /// Returns the strictest repeat rule of the candidates.
    pub(super) async fn preflight<'c>(
        &self,
        call: &'c Call,
        first: &CallCandidate<'c>,
        fallbacks: &[CallCandidate<'c>],
        audit_id: &AuditId,
    ) -> Result<RepeatRule, Error> {
        let mut strictest = RepeatRule::Always;
        if fallbacks.is_empty() {
            return Ok(strictest);
        }
        let mut asked = Vec::with_capacity(fallbacks.len().saturating_add(1));
        for candidate in std::iter::once(first).chain(fallbacks) {
            let checked = self.preflight_candidate(call, candidate, audit_id).await;
            let (one, repeat) = checked.map_err(|error| match error {
                Error::Host(error) if candidate.index > 0 => fallback_error(candidate, error).into(),
                error => error,
            })?;
            strictest = strictest.max(repeat);
            asked.push(one);
        }
        reject_duplicates(call, &asked)?;
        Ok(strictest)
    }

    async fn preflight_candidate<'a, 'c>(
        &self,
        call: &'c Call,
        candidate: &'a CallCandidate<'c>,
        audit_id: &AuditId,
    ) -> Result<(ResolvedCandidate<'a, 'c>, RepeatRule), Error> {
        let connector = candidate.connector.text();
        let context = FailureContext::new(audit_id.clone()).with_connector(Arc::clone(connector), None);
        let loaded = self.loader.load(&context, candidate.connector, connector, call.allow_unsigned).await?;
        let plan = self.settings.plan(candidate.connector.name(), call.retry.as_ref());
        // The arguments that are built here are dropped before the next wait, so that only one candidate's are in
        // memory.
        let operation = known_operation(&loaded, connector, candidate.op)?;
        self.check_request(call, candidate, &plan, audit_id, &loaded, operation)?;
        let manifest = loaded.checked.package.manifest();
        let choice = IdentitySelection::new(
            &candidate.identities(call, manifest),
            candidate.scope.map(|scope| &**scope),
        );
        let asked = ResolvedCandidate { candidate, identities: choice.used(manifest.credentials()) };
        Ok((asked, manifest.repeat_rule(candidate.op)))
    }
}

/// Adds the candidate to the error.
pub(super) fn fallback_error(candidate: &CallCandidate<'_>, error: HostError) -> HostError {
    if error.details().contains_key("candidate") {
        return error;
    }
    let refused = candidate.refuses(error.kind(), error.message().trim_end_matches('.'));
    match error.hint() {
        Some(hint) => refused.with_hint(hint),
        None => refused,
    }
}
