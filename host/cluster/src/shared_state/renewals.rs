//! The renewal of a token by one host at a time: an advisory lock on a session of its own, which the server releases when
//! the host is gone, however it ended.

use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::digest::Digest;
use cofferdam_egress::credentials::{RenewalError, RenewalFuture, RenewalRight, RenewalStore, StoredRenewal};
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::{Work, WorkerHandle};
use crate::database::{Database, DatabaseError};

/// The longest time for one exchange with the database.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(5);

/// The number of times that an issued token is written, and the pause in between: the issuer does not issue it again.
const STORE_ATTEMPTS: u32 = 8;
const STORE_PAUSE: Duration = Duration::from_secs(1);

const SELECT: &str = "SELECT sealed, \
     (extract(epoch FROM expires - clock_timestamp()) * 1000000)::bigint, \
     (extract(epoch FROM changed) * 1000000)::bigint FROM token_renewals WHERE binding = $1";

/// Writes only over what was read before.
const STORE: &str = "INSERT INTO token_renewals AS t (binding, sealed, expires, changed) \
     VALUES ($1, $2, clock_timestamp() + $3::bigint * interval '1 microsecond', clock_timestamp()) \
     ON CONFLICT (binding) DO UPDATE SET sealed = excluded.sealed, expires = excluded.expires, changed = excluded.changed \
     WHERE (extract(epoch FROM t.changed) * 1000000)::bigint = $4";

/// A request for the right to renew a token.
pub(super) struct RenewalRequest {
    binding: String,
    patience: Duration,
    reply: oneshot::Sender<Result<mpsc::UnboundedSender<Exchange>, RenewalError>>,
}

/// An exchange under the right to renew.
enum Exchange {
    Load(oneshot::Sender<Result<Option<StoredRenewal>, RenewalError>>),
    Store(StoredRenewal, oneshot::Sender<Result<(), RenewalError>>),
}

/// The renewals in the database.
#[derive(Debug)]
pub(super) struct DatabaseRenewals {
    worker: Arc<WorkerHandle>,
}

impl DatabaseRenewals {
    pub(super) fn new(worker: Arc<WorkerHandle>) -> Self {
        Self { worker }
    }

    /// Creates renewals with a thread of their own.
    #[cfg(test)]
    pub(super) fn over(database: Database) -> Self {
        Self::new(
            super::start_worker(database)
                .map(|(_, worker)| worker)
                .unwrap_or_else(|error| unreachable!("{error}")),
        )
    }
}

impl RenewalStore for DatabaseRenewals {
    fn lock<'a>(&'a self, binding: &'a str, patience: Duration) -> RenewalFuture<'a, Box<dyn RenewalRight>> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            let request = RenewalRequest { binding: binding.to_owned(), patience, reply };
            if !self.worker.send(Work::Renewal(request)) {
                return Err(RenewalError::Away);
            }
            let exchanges = answer.await.unwrap_or(Err(RenewalError::Away))?;
            Ok(Box::new(HeldRight { exchanges }) as Box<dyn RenewalRight>)
        })
    }
}

/// The right to renew, which is held until it is dropped.
struct HeldRight {
    exchanges: mpsc::UnboundedSender<Exchange>,
}

impl RenewalRight for HeldRight {
    fn load(&mut self) -> RenewalFuture<'_, Option<StoredRenewal>> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            drop(self.exchanges.send(Exchange::Load(reply)));
            answer.await.unwrap_or(Err(RenewalError::Away))
        })
    }

    fn store(&mut self, renewal: StoredRenewal) -> RenewalFuture<'_, ()> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            drop(self.exchanges.send(Exchange::Store(renewal, reply)));
            answer.await.unwrap_or(Err(RenewalError::Away))
        })
    }
}

/// Takes the lock of one token, and carries out exchanges until the right is given up.
pub(super) async fn serve(database: Database, request: RenewalRequest) {
    let RenewalRequest { binding, patience, reply } = request;
    let client = match lock(&database, &binding, patience).await {
        Ok(client) => client,
        Err(error) => {
            drop(reply.send(Err(error)));
            return;
        }
    };
    let (sender, mut exchanges) = mpsc::unbounded_channel();
    if reply.send(Ok(sender)).is_err() {
        return;
    }
    let mut session = LockedSession { database, binding, client: Some(client), changed: None };
    while let Some(exchange) = exchanges.recv().await {
        match exchange {
            Exchange::Load(reply) => drop(reply.send(session.load().await)),
            Exchange::Store(renewal, reply) => drop(reply.send(session.store(&renewal).await)),
        }
    }
}

/// Opens a session and takes the lock in it. The lock ends with the session.
async fn lock(database: &Database, binding: &str, patience: Duration) -> Result<Client, RenewalError> {
    let away = |error: DatabaseError| {
        tracing::warn!(target: "cofferdam::cluster", %error, "a token cannot be renewed together with the other hosts");
        RenewalError::Away
    };
    let opened = tokio::time::timeout(EXCHANGE_TIMEOUT, database.connect()).await;
    let client = opened.map_err(|_| RenewalError::Away)?.map_err(away)?;
    let setting = format!("SET lock_timeout = '{}ms'", patience.as_millis().max(1));
    client.batch_execute(&setting).await.map_err(|error| away(DatabaseError::from_sql(&error)))?;
    match client.execute("SELECT pg_advisory_lock($1)", &[&lock_number(binding)]).await {
        Ok(_) => Ok(client),
        Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => Err(RenewalError::Busy),
        Err(error) => Err(away(DatabaseError::from_sql(&error))),
    }
}

/// Returns the number of the advisory lock of a token.
fn lock_number(binding: &str) -> i64 {
    let digest = Digest::sha256(format!("cofferdam token renewal\0{binding}").as_bytes()).to_string();
    let first = digest.get(..16).and_then(|digits| u64::from_str_radix(digits, 16).ok());
    first.unwrap_or_default().cast_signed()
}

/// The session that has the lock.
struct LockedSession {
    database: Database,
    binding: String,
    client: Option<Client>,
    /// The time of the row that was read, on the database's clock: nobody else may have written since.
    changed: Option<i64>,
}

impl LockedSession {
    async fn load(&mut self) -> Result<Option<StoredRenewal>, RenewalError> {
        let Some(client) = &self.client else { return Err(RenewalError::Away) };
        let row = tokio::time::timeout(EXCHANGE_TIMEOUT, client.query_opt(SELECT, &[&self.binding])).await;
        let read = row.map_err(|_| RenewalError::Away)?.and_then(|row| {
            let Some(row) = row else { return Ok(None) };
            let (sealed, left, changed): (Vec<u8>, Option<i64>, i64) =
                (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            let expires_in = left.map(|left| Duration::from_micros(u64::try_from(left).unwrap_or_default()));
            Ok(Some((StoredRenewal { sealed, expires_in }, changed)))
        });
        let read = read.map_err(|_| RenewalError::Away)?;
        self.changed = read.as_ref().map(|(_, changed)| *changed);
        Ok(read.map(|(renewal, _)| renewal))
    }

    /// Writes what an issuer gave. If the session is lost, the lock is taken again, for as long as that helps.
    async fn store(&mut self, renewal: &StoredRenewal) -> Result<(), RenewalError> {
        for attempt in 0..STORE_ATTEMPTS {
            if attempt > 0 {
                tokio::time::sleep(STORE_PAUSE).await;
                self.client = lock(&self.database, &self.binding, EXCHANGE_TIMEOUT).await.ok();
            }
            let Some(client) = &self.client else { continue };
            let left = renewal.expires_in.map(|left| i64::try_from(left.as_micros()).unwrap_or(i64::MAX / 4));
            let values: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
                [&self.binding, &renewal.sealed, &left, &self.changed];
            match tokio::time::timeout(EXCHANGE_TIMEOUT, client.execute(STORE, &values)).await {
                Ok(Ok(0)) => {
                    tracing::warn!(
                        target: "cofferdam::cluster", binding = self.binding,
                        "another host renewed this token meanwhile; this host's is not shared"
                    );
                    return Err(RenewalError::Busy);
                }
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(_)) | Err(_) => self.client = None,
            }
        }
        Err(RenewalError::Away)
    }
}
