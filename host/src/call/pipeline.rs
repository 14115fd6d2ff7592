//! The pipeline of one call, top to bottom.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::loader::{Loaded, Loader};
use super::record::Record;
use super::request::{Args, Call};
use super::verify;
use crate::credentials::{Broker, Choice, Refused};
use crate::error::{Error, HostError, HostErrorKind};
use crate::failure::{AuditId, Context, Failure, LimitHit, LimitKind};
use crate::limits::{self, LimitRequest};
use crate::sandbox::{self, Answer, Arguments, Attempt, Exported, Room, Usage};
use crate::spelling;

/// Runs calls, as many at once as there are permits.
pub(crate) struct Pipeline {
    pub(crate) loader: Loader,
    pub(crate) broker: Arc<Broker>,
    permits: Semaphore,
    waiting: Semaphore,
}

/// Calls that may wait for a permit, for each permit there is; one more is refused as busy.
const WAITING_PER_PERMIT: usize = 64;

impl Pipeline {
    pub(crate) fn new(loader: Loader, broker: Arc<Broker>, concurrency: u32) -> Self {
        let permits = concurrency as usize;
        let waiting = permits.saturating_mul(WAITING_PER_PERMIT.saturating_add(1));
        Self { loader, broker, permits: Semaphore::new(permits), waiting: Semaphore::new(waiting) }
    }

    /// One call: its value, its failure, or why it was not taken up. Dropping the future cancels it.
    /// Beside it what its last attempt used, if one was made.
    pub(crate) async fn run<A: Answer>(&self, call: Call) -> (Result<A, Error>, Option<Usage>) {
        let audit_id = AuditId::mint();
        let connector = Arc::clone(call.connector.text());
        let op: Arc<str> = call.op.as_str().into();
        let mut record = Record::open(audit_id.clone(), Arc::clone(&connector), op);
        let outcome = self.admit_and_attempt(&audit_id, &connector, call, &mut record).await;
        let outcome = outcome.map_err(|error| match error {
            Error::Host(error) => Error::Host(error.of_request(&audit_id)),
            failure @ Error::Failure(_) => failure,
        });
        let usage = record.usage();
        (record.close(outcome), usage)
    }

    async fn admit_and_attempt<A: Answer>(
        &self,
        audit_id: &AuditId,
        connector: &Arc<str>,
        call: Call,
        record: &mut Record,
    ) -> Result<A, Error> {
        // First the turn, then the checks: a key that is revoked while a call waits must not let it run, and
        // arguments that wait in line are kept as they came.
        let _waiting = self.waiting.try_acquire().map_err(|_| busy())?;
        let _permit = self.permits.acquire().await.map_err(|_| busy())?;
        let context = Context::new(audit_id.clone()).with_connector(Arc::clone(connector), None);
        let (loaded, _room) = self.loaded_with_room(&context, &call, connector).await?;
        let package = &loaded.checked.package;
        record.identified(Arc::clone(&loaded.hash), loaded.signer.clone());

        let operation = known_operation(&loaded, connector, &call.op)?;
        let context = Context::new(audit_id.clone())
            .with_connector(Arc::clone(connector), Some(Arc::clone(&loaded.hash)))
            .with_op(call.op.as_str(), package.manifest().idempotent(&call.op));
        verify::check_scope(&context, package, call.scope.as_deref(), &call.op)?;
        let action = call.scope.as_deref().map_or_else(LimitRequest::default, |scope| *scope.limits());
        let limits =
            verify::check_limits(&self.loader.ceilings, package.manifest().limits(), &action, &call.limits)?;
        let idempotency_key = idempotency_key(call.idempotency_key, audit_id)?;
        let args = fitting_args(&context, operation, &call.args)?;

        let choice = Choice::of(&call.identities, call.scope.as_deref());
        let credentials = self.broker.for_call(package.manifest(), &loaded.hash, choice).await;
        let credentials = credentials.map_err(|refused| match refused {
            Refused::Binding(problem) => Error::from(Failure::binding(&context, &problem)),
            Refused::Host(error) => error.into(),
        })?;

        let clock = Arc::clone(&self.loader.clock);
        let deadline = clock.now() + limits.wall_time();
        let attempt = Attempt {
            context: &context,
            limits: &limits,
            deadline,
            idempotency_key,
            number: 1,
            clock,
            scope: call.scope,
            credentials: credentials.map(|credentials| credentials.attempt()),
        };
        record.attempt_started();
        let (outcome, usage) = sandbox::run(&loaded.connector, operation, &args, attempt).await;
        record.attempt_ended(usage);
        outcome
    }
}

impl Pipeline {
    /// The connector, and room for an instance of it. Who had to wait for room looks again whether the load
    /// still stands: nothing that was withdrawn meanwhile runs.
    async fn loaded_with_room(
        &self,
        context: &Context,
        call: &Call,
        connector: &str,
    ) -> Result<(Arc<Loaded>, Room<'_>), Error> {
        let mut waited: Option<Room<'_>> = None;
        loop {
            let loaded = self.loader.load(context, &call.connector, connector, call.allow_unsigned).await?;
            let needs = known_operation(&loaded, connector, &call.op)?.needs();
            let room = waited.take().filter(|room| room.covers(needs));
            match room.or_else(|| self.loader.sandbox.try_room(needs)) {
                Some(room) => return Ok((loaded, room)),
                None => waited = Some(self.loader.sandbox.room(needs).await.ok_or_else(busy)?),
            }
        }
    }
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
    let op = crate::failure::safe_line(op, 100);
    Err(HostError::new(HostErrorKind::OpNotFound, format!("{connector} has no operation `{op}`.")).hint(hint))
}

fn fitting_args(context: &Context, operation: &Exported, args: &Args) -> Result<Arguments, Error> {
    let limit = limits::PAYLOAD_BYTES as u64;
    let over = match args {
        Args::Value(value) => sandbox::json_size_over(value, limit),
        Args::Text(text) => Some(text.len() as u64).filter(|size| *size > limit),
    };
    if let Some(used) = over {
        let hit = LimitHit { limit: LimitKind::Payload, configured: limit, used };
        return Err(Failure::resource_limit_exceeded(context, hit).into());
    }
    let fitting = match args {
        Args::Value(value) => operation.arguments(value),
        Args::Text(text) => operation.arguments_from_text(text),
    };
    fitting.map_err(|error| {
        HostError::new(HostErrorKind::Validation, format!("The arguments do not fit: {error}."))
            .hint(format!("The operation is {}", operation.operation()))
            .into()
    })
}

fn idempotency_key(given: Option<String>, audit_id: &AuditId) -> Result<String, HostError> {
    match given {
        None => Ok(audit_id.as_str().to_owned()),
        Some(key) if (1..=200).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_graphic()) => Ok(key),
        Some(_) => Err(HostError::new(HostErrorKind::Validation, "The idempotency key is not acceptable.")
            .hint("Use 1 to 200 printable ASCII characters without spaces.")),
    }
}

fn busy() -> HostError {
    HostError::new(HostErrorKind::Busy, "The host has as many calls waiting as it takes.")
        .hint("Try again later.")
}
