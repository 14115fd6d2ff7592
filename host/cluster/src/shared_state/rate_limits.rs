//! Rate limits of all hosts: one row for each connector and host, with the time at which the next request is due (GCRA).
//!
//! All requests of a host that wait for the same limit are answered with one exchange. While a limit is not used up, a host
//! also leases some requests of the burst for the next moment, so that most requests wait for no exchange at all. A
//! lease is counted as if its requests were sent at its end, and must be allowed at its beginning: whenever they are sent
//! in between, no period has more requests than the limit allows.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_egress::resilience::{
    RateLimit, RateRefused, RateReservation, SharedRateLimits, SharedStateAway,
};
use futures_util::future::try_join_all;
use tokio::sync::oneshot;
use tokio_postgres::{Client, Statement};

use super::{Work, WorkerHandle};

/// The time for which a host may use what it leased.
const LEASE: Duration = Duration::from_millis(100);

/// The longest wait of a request for the database. Then the host's own limit counts.
const PATIENCE: Duration = Duration::from_millis(300);

/// The number of leases that are remembered; idle ones are dropped above that.
const MAX_LEASES: usize = 1024;

/// Takes `$3` send times, and `$4` more for a lease if the burst allows them all; otherwise as many as begin within `$7`
/// microseconds. All times are in microseconds.
const TAKE: &str = "\
    WITH here AS ( \
        SELECT tat, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now \
        FROM rate_limits WHERE connector = $1 AND host = $2 FOR UPDATE \
    ), counted AS ( \
        SELECT now, greatest(tat, now) AS base, \
            $4::bigint > 0 AND greatest(tat, now + $8::bigint) + ($3::bigint + $4::bigint) * $5::bigint \
                <= now + $6::bigint * $5::bigint AS is_lease, \
            greatest(tat, now + $8::bigint) + ($3::bigint + $4::bigint) * $5::bigint AS leased, \
            least($3::bigint, greatest(0, \
                ($7::bigint + ($6::bigint - 1) * $5::bigint + now - greatest(tat, now) + $5::bigint - 1) / $5::bigint \
            )) AS taken \
        FROM here \
    ) \
    UPDATE rate_limits r SET tat = CASE WHEN is_lease THEN leased ELSE base + taken * $5::bigint END \
    FROM counted WHERE r.connector = $1 AND r.host = $2 \
    RETURNING is_lease, base - now, taken";

/// A request for a send time.
pub(super) struct RateRequest {
    connector: String,
    host: String,
    limit: RateLimit,
    patience: Duration,
    /// The number of requests that the host wants to lease.
    extra: u32,
    reply: oneshot::Sender<RateReply>,
}

/// The answer to it.
struct RateReply {
    outcome: Result<Option<Duration>, RateRefused>,
    /// The number of requests that were leased with it.
    leased: u32,
}

/// The limits, with what this host has leased of them.
#[derive(Debug)]
pub(super) struct LeasedLimits {
    worker: Arc<WorkerHandle>,
    leases: Mutex<HashMap<(String, String), RateLease>>,
}

/// Requests that this host may send without asking.
#[derive(Debug, Clone, Copy)]
struct RateLease {
    limit: RateLimit,
    left: u32,
    until: Instant,
    /// The number that the host wants to lease the next time.
    wanted: u32,
}

impl LeasedLimits {
    pub(super) fn new(worker: Arc<WorkerHandle>) -> Self {
        Self { worker, leases: Mutex::default() }
    }

    /// Takes a leased request. If there is none, returns the number to lease.
    fn take(&self, key: &(String, String), limit: RateLimit) -> Result<(), u32> {
        let most = limit.burst() / 4;
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let Some(lease) = leases.get_mut(key).filter(|lease| lease.limit == limit) else {
            return Err(most.min(1));
        };
        if lease.left > 0 && now < lease.until {
            lease.left -= 1;
            return Ok(());
        }
        // A lease that was used up is doubled, and one that was not is halved.
        let wanted = match lease.left {
            0 => lease.wanted.saturating_mul(2),
            _ => lease.wanted / 2,
        };
        Err(wanted.max(1).min(most))
    }

    fn keep(&self, key: (String, String), limit: RateLimit, asked: Instant, wanted: u32, leased: u32) {
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        if leases.len() >= MAX_LEASES && !leases.contains_key(&key) {
            leases.retain(|_, lease| lease.until > asked);
        }
        // From the moment of the question, which was before that of the answer.
        leases.insert(key, RateLease { limit, left: leased, until: asked + LEASE, wanted });
    }
}

impl SharedRateLimits for LeasedLimits {
    fn reserve<'a>(
        &'a self,
        connector: &'a str,
        host: &'a str,
        limit: RateLimit,
        patience: Duration,
    ) -> RateReservation<'a> {
        Box::pin(async move {
            let key = (connector.to_owned(), host.to_owned());
            let extra = match self.take(&key, limit) {
                Ok(()) => return Ok(Ok(None)),
                Err(extra) => extra,
            };
            if self.worker.is_away() {
                return Err(SharedStateAway);
            }
            let (reply, answer) = oneshot::channel();
            let asked = Instant::now();
            let request =
                RateRequest { connector: key.0.clone(), host: key.1.clone(), limit, patience, extra, reply };
            if !self.worker.send(Work::Rate(request)) {
                return Err(SharedStateAway);
            }
            let answer = tokio::time::timeout(PATIENCE, answer).await;
            let RateReply { outcome, leased } =
                answer.map_err(|_| SharedStateAway)?.map_err(|_| SharedStateAway)?;
            if extra > 0 {
                self.keep(key, limit, asked, extra, leased);
            }
            Ok(outcome)
        })
    }
}

/// The statements about rate limits.
pub(super) struct RateStatements {
    insert: Statement,
    take: Statement,
}

impl RateStatements {
    pub(super) async fn prepare(client: &Client) -> Result<Self, tokio_postgres::Error> {
        let insert =
            "INSERT INTO rate_limits (connector, host, tat) VALUES ($1, $2, 0) ON CONFLICT DO NOTHING";
        Ok(Self { insert: client.prepare(insert).await?, take: client.prepare(TAKE).await? })
    }

    /// Answers all requests, those of one limit with one statement.
    pub(super) async fn answer(
        &self,
        client: &Client,
        requests: Vec<RateRequest>,
    ) -> Result<(), tokio_postgres::Error> {
        let mut by_limit: HashMap<(String, String, u32, Duration, u32), Vec<RateRequest>> = HashMap::new();
        for request in requests {
            let limit = request.limit;
            let key = (
                request.connector.clone(),
                request.host.clone(),
                limit.requests(),
                limit.per(),
                limit.burst(),
            );
            by_limit.entry(key).or_default().push(request);
        }
        try_join_all(by_limit.into_values().map(|requests| self.answer_limit(client, requests))).await?;
        Ok(())
    }

    async fn answer_limit(
        &self,
        client: &Client,
        requests: Vec<RateRequest>,
    ) -> Result<(), tokio_postgres::Error> {
        let Some(first) = requests.first() else { return Ok(()) };
        let (limit, connector, host) = (first.limit, first.connector.clone(), first.host.clone());
        let count = i64::try_from(requests.len()).unwrap_or(i64::MAX);
        let extra = i64::from(requests.iter().map(|request| request.extra).max().unwrap_or_default());
        let interval = limit.interval().as_nanos().div_ceil(1_000).max(1);
        let interval = i64::try_from(interval).unwrap_or(i64::MAX);
        let burst = i64::from(limit.burst());
        let longest = requests.iter().map(|request| request.patience).max().unwrap_or_default();
        let (longest, lease) = (micros(longest).max(1), micros(LEASE));
        let row = loop {
            let values: [&(dyn tokio_postgres::types::ToSql + Sync); 8] =
                [&connector, &host, &count, &extra, &interval, &burst, &longest, &lease];
            match client.query_opt(&self.take, &values).await? {
                Some(row) => break row,
                None => client.execute(&self.insert, &[&connector, &host]).await?,
            };
        };
        let (is_lease, ahead, taken): (bool, i64, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        let tolerance = (burst - 1).saturating_mul(interval);
        // The send time of the request after so many, from now on.
        let slot = |number: i64| {
            let after = ahead.saturating_add(number.saturating_mul(interval)).saturating_sub(tolerance);
            Duration::from_micros(u64::try_from(after).unwrap_or_default())
        };
        let mut next = 0;
        for (position, request) in requests.into_iter().enumerate() {
            let wait = slot(next);
            let outcome = if is_lease {
                Ok(None)
            } else if next < taken && (wait.is_zero() || wait < request.patience) {
                next += 1;
                Ok((!wait.is_zero()).then_some(wait))
            } else {
                Err(RateRefused { retry_after: wait, configured: u64::from(limit.requests()) })
            };
            let leased = match is_lease && position == 0 {
                true => u32::try_from(extra).unwrap_or_default(),
                false => 0,
            };
            drop(request.reply.send(RateReply { outcome, leased }));
        }
        Ok(())
    }
}

fn micros(time: Duration) -> i64 {
    // Half of the range, because times are added to it.
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX).min(i64::MAX / 4)
}
