//! What stands before an attempt: a turn, the verified load, and every check that needs no guest.

use std::sync::Arc;

use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::failure::{AuditId, Context, Failure, LimitHit, LimitKind, RepeatRule};
use cofferdam_core::limits::{self, LimitRequest, Limits, ProfileTimes};
use cofferdam_core::privileged::MakeFailure as _;
use cofferdam_core::spelling;
use cofferdam_egress::credentials::{CallCredentials, Choice, Refused};
use cofferdam_egress::resilience::Plan;
use cofferdam_sandbox::{Arguments, Exported, Room};
use tokio::sync::SemaphorePermit;

use super::chain::Candidate;
use super::loader::Loaded;
use super::pipeline::{Course, Pipeline};
use super::record::Record;
use super::request::{Args, Call};
use super::verify;

/// An attempt that may be made now.
pub(super) struct Admitted<'p> {
    pub(super) loaded: Arc<Loaded>,
    pub(super) context: Context,
    pub(super) limits: Limits,
    pub(super) args: Arguments,
    pub(super) credentials: Option<CallCredentials>,
    _room: Room<'p>,
    _permit: SemaphorePermit<'p>,
}

/// A call that its connector and its limits can take.
pub(super) struct Fitting {
    context: Context,
    limits: Limits,
    args: Arguments,
}

impl Admitted<'_> {
    /// The operation that is called.
    pub(super) fn operation(&self, candidate: &Candidate<'_>) -> Result<&Exported, HostError> {
        known_operation(&self.loaded, candidate.connector.text(), candidate.op)
    }
}

impl Pipeline {
    /// Every check, made for each attempt anew: what was withdrawn while a call waited does not run. The wait for
    /// a turn ends with the call.
    pub(super) async fn admit<'p>(
        &'p self,
        call: &Call,
        candidate: &Candidate<'_>,
        plan: &Plan,
        course: &mut Course<'p>,
        record: &mut Record,
    ) -> Result<Admitted<'p>, Error> {
        let Some(time) = course.time else {
            return self.check(call, candidate, plan, course, record).await;
        };
        tokio::select! {
            biased;
            admitted = self.check(call, candidate, plan, course, record) => admitted,
            () = self.loader.clock.sleep_until(time.deadline) => Err(busy().into()),
        }
    }

    async fn check<'p>(
        &'p self,
        call: &Call,
        candidate: &Candidate<'_>,
        plan: &Plan,
        course: &mut Course<'p>,
        record: &mut Record,
    ) -> Result<Admitted<'p>, Error> {
        // First the turn, then the checks: a key that is revoked while a call waits must not let it run.
        let connector = candidate.connector.text();
        let context = Context::new(course.audit_id.clone()).with_connector(Arc::clone(connector), None);
        let (loaded, permit, room) = self.permitted(&context, call, candidate, plan, course).await?;
        let package = &loaded.checked.package;
        record.identified(Arc::clone(&loaded.hash), loaded.signer.clone());

        let Fitting { context, limits, args } =
            self.fitting(call, candidate, plan, &course.audit_id, &loaded)?;
        let identities = candidate.identities(call, package.manifest());
        let choice = Choice::of(&identities, candidate.scope.map(|scope| &**scope));
        let credentials = self.broker.for_call(package.manifest(), &loaded.hash, choice).await;
        let credentials = credentials.map_err(|refused| match refused {
            Refused::Binding(problem) => Error::from(Failure::binding(&context, &problem)),
            Refused::Host(error) => error.into(),
        })?;
        Ok(Admitted { loaded, context, limits, args, credentials, _room: room, _permit: permit })
    }

    /// A permit to run. It is waited for no longer than the call would run: whoever asked has given up by then, and
    /// would ask anew.
    async fn turn(&self, call: &Call, context: &Context) -> Result<SemaphorePermit<'_>, Error> {
        let clock = &*self.loader.clock;
        tokio::select! {
            biased;
            permit = self.permits.acquire() => Ok(permit.map_err(|_| busy())?),
            () = clock.sleep_until(self.turn_until(call)) => {
                let now = clock.now();
                match call.part_of.as_ref().filter(|action| now >= action.deadline()) {
                    Some(action) => Err(action.out_of_time(context, now).into()),
                    None => Err(HostError::new(HostErrorKind::Busy, "Its turn did not come in time. Nothing was run.")
                        .hint("Try again later.")
                        .into()),
                }
            }
        }
    }

    /// What is asked of a candidate beside its bindings.
    pub(super) fn fitting(
        &self,
        call: &Call,
        candidate: &Candidate<'_>,
        plan: &Plan,
        audit_id: &AuditId,
        loaded: &Loaded,
    ) -> Result<Fitting, Error> {
        let (context, limits) = self.suited(call, candidate, plan, audit_id, loaded)?;
        let operation = known_operation(loaded, candidate.connector.text(), candidate.op)?;
        let args = fitting_args(&context, operation, call, candidate)?;
        Ok(Fitting { context, limits, args })
    }

    /// The same, but for its arguments.
    pub(super) fn suited(
        &self,
        call: &Call,
        candidate: &Candidate<'_>,
        plan: &Plan,
        audit_id: &AuditId,
        loaded: &Loaded,
    ) -> Result<(Context, Limits), Error> {
        let (package, connector) = (&loaded.checked.package, candidate.connector.text());
        let operation = known_operation(loaded, connector, candidate.op)?;
        let repeat = match call.once {
            true => RepeatRule::Never,
            false => package.manifest().repeat_rule(candidate.op),
        };
        if repeat == RepeatRule::Never && !call.alternates.is_empty() {
            return Err(not_repeatable(call, candidate).into());
        }
        let context = Context::new(audit_id.clone())
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

    /// The connector, a permit to run, and room for an instance. A load can take as long as a compile, so it comes
    /// first and holds neither of the others. After a wait for those the load is looked at again: nothing that was
    /// withdrawn meanwhile runs.
    async fn permitted<'p>(
        &'p self,
        context: &Context,
        call: &Call,
        candidate: &Candidate<'_>,
        plan: &Plan,
        course: &mut Course<'p>,
    ) -> Result<(Arc<Loaded>, SemaphorePermit<'p>, Room<'p>), Error> {
        let (connector, sandbox) = (candidate.connector.text(), &self.loader.sandbox);
        let mut loaded = self.loaded(context, call, candidate, course).await?;
        loop {
            let needs = known_operation(&loaded, connector, candidate.op)?.needs();
            let free = self.permits.try_acquire().ok();
            let mut waited = free.is_none();
            let permit = match free {
                Some(permit) => permit,
                None => {
                    // Arguments that do not fit take no place in the queue. The values built of them are dropped: while
                    // the call waits they stay as they came.
                    self.fitting(call, candidate, plan, context.audit_id(), &loaded).map(drop)?;
                    self.turn(call, context).await?
                }
            };
            let room = match sandbox.try_room(needs) {
                Some(room) => room,
                None => {
                    waited = true;
                    sandbox.room(needs).await.ok_or_else(busy)?
                }
            };
            if !waited {
                return Ok((loaded, permit, room));
            }
            let current =
                self.loader.current(context, candidate.connector, connector, call.allow_unsigned)?;
            loaded = match current {
                Some(current) if Arc::ptr_eq(&current, &loaded) => return Ok((loaded, permit, room)),
                Some(current) => current,
                None => {
                    drop((permit, room));
                    self.loaded(context, call, candidate, course).await?
                }
            };
        }
    }

    /// The connector, loaded if need be. A call that waits for a load gives its place in the line of those that
    /// could run back.
    async fn loaded<'p>(
        &'p self,
        context: &Context,
        call: &Call,
        candidate: &Candidate<'_>,
        course: &mut Course<'p>,
    ) -> Result<Arc<Loaded>, Error> {
        let (wanted, connector) = (candidate.connector, candidate.connector.text());
        if let Some(current) = self.loader.current(context, wanted, connector, call.allow_unsigned)? {
            return Ok(current);
        }
        course.leave_line();
        let loaded = self.loader.load(context, wanted, connector, call.allow_unsigned).await?;
        course.enter_line(self)?;
        Ok(loaded)
    }
}

/// The error for a chain with an operation in it that is not to be done twice.
fn not_repeatable(call: &Call, candidate: &Candidate<'_>) -> HostError {
    let (op, connector) = (cofferdam_core::failure::safe_line(candidate.op, 100), candidate.connector);
    let (why, hint) = match call.once {
        true => (
            format!("`{op}` of {connector} is not to be repeated, says the call itself"),
            "Call it without alternates, or without saying so.".to_owned(),
        ),
        false => (
            format!("`{op}` of {connector} is not idempotent, says its manifest"),
            "Call it without alternates: whoever is asked instead might do again what was done.".to_owned(),
        ),
    };
    candidate.refuses(HostErrorKind::Validation, &why).hint(hint)
}

fn known_operation<'l>(loaded: &'l Loaded, connector: &str, op: &str) -> Result<&'l Exported, HostError> {
    if let Some(operation) = loaded.connector.operation(op) {
        return Ok(operation);
    }
    let mut names: Vec<&str> = loaded.connector.operation_names().collect();
    names.sort_unstable();
    let hint = match spelling::nearest(op, names.iter().copied()) {
        Some(near) => format!("Did you mean `{near}`? It has: {}", names.join(", ")),
        None => format!("It has: {}", names.join(", ")),
    };
    let op = cofferdam_core::failure::safe_line(op, 100);
    Err(HostError::new(HostErrorKind::OpNotFound, format!("{connector} has no operation `{op}`.")).hint(hint))
}

fn fitting_args(
    context: &Context,
    operation: &Exported,
    call: &Call,
    candidate: &Candidate<'_>,
) -> Result<Arguments, Error> {
    let limit = limits::PAYLOAD_BYTES as u64;
    let within = |over: Option<u64>| match over {
        None => Ok(()),
        Some(used) => {
            let hit = LimitHit::new(LimitKind::Payload, limit, used);
            Err(Error::from(Failure::resource_limit_exceeded(context, hit)))
        }
    };
    // Looked at before a copy is made of it. What it replaces fields of is the first's, which was looked at then.
    within(candidate.overrides().and_then(|fields| cofferdam_sandbox::json_fields_over(fields, limit)))?;
    let args = candidate.args(call)?;
    within(match &*args {
        Args::Value(value) => cofferdam_sandbox::json_size_over(value, limit),
        Args::Text(text) => Some(text.len() as u64).filter(|size| *size > limit),
    })?;
    let fitting = match &*args {
        Args::Value(value) => operation.arguments(value),
        Args::Text(text) => operation.arguments_from_text(text),
    };
    fitting.map_err(|error| {
        HostError::new(HostErrorKind::Validation, format!("The arguments do not fit: {error}."))
            .hint(format!("The operation is {}", operation.operation()))
            .into()
    })
}

pub(super) fn busy() -> HostError {
    HostError::new(HostErrorKind::Busy, "The host has as many calls waiting as it takes.")
        .hint("Try again later.")
}
