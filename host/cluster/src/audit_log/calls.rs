//! The rows of calls, from which calls are found and counted: filled from the entries, and made again from them at any time.

use std::collections::HashMap;
use std::time::SystemTime;

use cofferdam_audit::store::{AttemptUsage, EndFacts, JournalLine, LineFacts, LineRequest, decision};
use cofferdam_audit::{CallStatus, LogPosition, unhex};
use cofferdam_core::failure::AuditId;
use futures_util::future::try_join_all;
use jiff::Timestamp;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Transaction};
use uuid::Uuid;

use super::batch::{signed, unsigned};
use super::session::answered;
use crate::database::DatabaseError;

/// The entries that one transaction reads.
const LINES_AT_ONCE: i64 = 2_000;

/// The calls that one statement writes, as long as there are so many.
const CALLS_AT_ONCE: usize = 32;

const SELECT_BEHIND: &str = "SELECT w.name, w.n FROM cofferdam.writers w \
                             LEFT JOIN cofferdam.indexed i ON i.writer = w.name \
                             WHERE w.n > coalesce(i.n, 0) ORDER BY w.name";

const SELECT_LINES: &str = "SELECT at, n, line FROM cofferdam.entries WHERE writer = $1 AND n > $2 AND n <= $3 \
                            ORDER BY n LIMIT $4";

const COLUMNS: &str = "id, writer, opened, last_at, places, first_n, at, connector, op, action, step, actor, \
                       is_idempotent, status, class, code, duration, attempts, key, sealed, parts, is_undetermined, \
                       ended_n, usage, hosts, largest_responses, request_connectors, request_hosts, \
                       request_kinds, request_counts";

/// A call as it is in the table.
struct Call {
    id: Uuid,
    writer: Uuid,
    opened: SystemTime,
    last_at: SystemTime,
    places: Vec<i64>,
    at: i64,
    target: [String; 4],
    actor: String,
    is_idempotent: bool,
    status: CallStatus,
    class: String,
    code: String,
    duration: Option<i64>,
    attempts: Option<i32>,
    key: Option<Vec<u8>>,
    sealed: i64,
    parts: Vec<i64>,
    is_undetermined: bool,
    ended_n: Option<i64>,
    /// The amounts that each attempt used, without its largest response, and its limits.
    usage: Vec<i64>,
    hosts: Vec<String>,
    largest_responses: Vec<i64>,
    requests: RequestTallies,
}

/// The requests of a call, alike ones together. Each list has one element for each kind.
#[derive(Default)]
struct RequestTallies {
    /// The connectors that sent them; empty for the call's own.
    connectors: Vec<String>,
    hosts: Vec<String>,
    kinds: Vec<i64>,
    counts: Vec<i64>,
}

impl RequestTallies {
    /// Counts a request in a call of `connector`.
    fn add(&mut self, request: &LineRequest<'_>, connector: &str) {
        let sender = if request.connector == connector { "" } else { &*request.connector };
        let kind = request.kind.number();
        let known = self.connectors.iter().zip(&self.hosts).zip(&self.kinds);
        let mut known = known.map(|((connector, host), kind)| (connector.as_str(), host.as_str(), *kind));
        match known.position(|known| known == (sender, &*request.host, kind)) {
            Some(at) => {
                self.counts.iter_mut().skip(at).take(1).for_each(|count| *count = count.saturating_add(1))
            }
            None => {
                self.connectors.push(sender.to_owned());
                self.hosts.push(request.host.to_string());
                self.kinds.push(kind);
                self.counts.push(1);
            }
        }
    }
}

/// Adds what the journals have now and the table of calls has not. `progress` gets the number of entries that were
/// added.
pub(super) async fn fill(
    client: &mut Client,
    progress: &mut (dyn FnMut(u64) + Send),
) -> Result<(), DatabaseError> {
    let mut added = 0_u64;
    for row in client.query(SELECT_BEHIND, &[]).await? {
        let (writer, end): (Uuid, i64) = (row.try_get(0)?, row.try_get(1)?);
        // Not until nothing is left: hosts go on writing.
        loop {
            let transaction = client.transaction().await?;
            let (lines, n) = fill_some(&transaction, writer).await?;
            answered(transaction.commit()).await?;
            added = added.saturating_add(lines);
            progress(added);
            if lines == 0 || n >= end {
                break;
            }
        }
    }
    Ok(())
}

/// Adds what a journal has and the table of calls has not, in this transaction.
pub(super) async fn fill_writer(transaction: &Transaction<'_>, writer: Uuid) -> Result<(), DatabaseError> {
    while fill_some(transaction, writer).await?.0 > 0 {}
    Ok(())
}

/// Adds what all journals have and the table of calls has not, in this transaction.
pub(super) async fn fill_all(transaction: &Transaction<'_>) -> Result<(), DatabaseError> {
    for row in transaction.query(SELECT_BEHIND, &[]).await? {
        fill_writer(transaction, row.try_get(0)?).await?;
    }
    Ok(())
}

/// Returns the last entry of each journal.
pub(super) async fn end(client: &Client) -> Result<LogPosition, DatabaseError> {
    let mut position = LogPosition::default();
    for row in client.query("SELECT name, n FROM cofferdam.writers", &[]).await? {
        position.0.insert(row.try_get::<_, Uuid>(0)?.to_string(), unsigned(row.try_get(1)?));
    }
    Ok(position)
}

/// Empties the tables that are derived from the entries.
pub(super) async fn forget(client: &Client) -> Result<(), DatabaseError> {
    let forget = "TRUNCATE cofferdam.calls, cofferdam.indexed, cofferdam.operator_events, cofferdam.decided";
    client.batch_execute(forget).await?;
    Ok(())
}

/// Adds some of what a journal has. Returns the number of entries, and of the last one that is added.
async fn fill_some(transaction: &Transaction<'_>, writer: Uuid) -> Result<(u64, i64), DatabaseError> {
    let begin = "INSERT INTO cofferdam.indexed (writer, n) VALUES ($1, 0) ON CONFLICT DO NOTHING";
    transaction.execute(begin, &[&writer]).await?;
    // In this order: the lock first, so that each entry is added once.
    let select = "SELECT n FROM cofferdam.indexed WHERE writer = $1 FOR UPDATE";
    let from: i64 = transaction.query_one(select, &[&writer]).await?.try_get(0)?;
    let select = "SELECT n FROM cofferdam.writers WHERE name = $1";
    let to: i64 = match transaction.query_opt(select, &[&writer]).await? {
        Some(row) => row.try_get(0)?,
        None => return Ok((0, from)),
    };
    if from >= to {
        return Ok((0, from));
    }
    let rows = transaction.query(SELECT_LINES, &[&writer, &from, &to, &LINES_AT_ONCE]).await?;
    let mut batch = CallBatch { transaction, writer, calls: HashMap::new() };
    batch.load(&rows).await?;
    let mut last = from;
    for row in &rows {
        let (at, n): (SystemTime, i64) = (row.try_get(0)?, row.try_get(1)?);
        batch.line(at, n, row.try_get(2)?).await?;
        last = n;
    }
    batch.write().await?;
    // Entries that are missing are found by verification.
    let n = if signed(rows.len() as u64) < LINES_AT_ONCE { to } else { last };
    transaction.execute("UPDATE cofferdam.indexed SET n = $2 WHERE writer = $1", &[&writer, &n]).await?;
    Ok(((rows.len() as u64).max(1), n))
}

/// Calls of one journal that are being added.
struct CallBatch<'t> {
    transaction: &'t Transaction<'t>,
    writer: Uuid,
    calls: HashMap<Uuid, Call>,
}

impl CallBatch<'_> {
    /// Reads the calls of these entries that are in the table already.
    async fn load(&mut self, rows: &[Row]) -> Result<(), DatabaseError> {
        let mut ids = Vec::new();
        for row in rows {
            let Ok(line) = JournalLine::read(row.try_get::<_, &str>(2)?.as_bytes()) else { continue };
            let named = [line.audit_id.as_deref(), line.resumes.as_deref()];
            ids.extend(
                named.into_iter().flatten().filter_map(AuditId::parse).map(|id| Uuid::from_bytes(id.bytes())),
            );
        }
        let select = format!("SELECT {COLUMNS} FROM cofferdam.calls WHERE id = ANY($1) AND writer = $2");
        for row in self.transaction.query(&select, &[&ids, &self.writer]).await? {
            let call = Call::read(&row)?;
            self.calls.insert(call.id, call);
        }
        Ok(())
    }

    /// Adds an entry. One that cannot be understood is skipped: verification reports it.
    async fn line(&mut self, at: SystemTime, n: i64, text: &str) -> Result<(), DatabaseError> {
        let Ok(line) = JournalLine::read(text.as_bytes()) else { return Ok(()) };
        if signed(line.n) != n {
            return Ok(());
        }
        if let Some((decided, _)) = decision(&line) {
            let insert = "INSERT INTO cofferdam.decided (call) VALUES ($1) ON CONFLICT DO NOTHING";
            self.transaction.execute(insert, &[&Uuid::from_bytes(decided.bytes())]).await?;
        }
        if let Some(log) = line.log.as_ref().filter(|log| log.is_operator_change()) {
            let insert = "INSERT INTO cofferdam.operator_events (writer, n, at, event) VALUES ($1, $2, $3, $4) \
                          ON CONFLICT DO NOTHING";
            let at = log.at().map_or(0, Timestamp::as_microsecond);
            self.transaction.execute(insert, &[&self.writer, &n, &at, &log.payload.get()]).await?;
        }
        let id = line.audit_id.as_deref().and_then(AuditId::parse);
        if let (Some(id), Some(facts)) = (id, line.events_text().and_then(LineFacts::read)) {
            self.call_line(Uuid::from_bytes(id.bytes()), &line, &facts, (at, n));
        }
        Ok(())
    }

    fn call_line(
        &mut self,
        id: Uuid,
        line: &JournalLine<'_>,
        facts: &LineFacts<'_>,
        (at, n): (SystemTime, i64),
    ) {
        let resumed = line.resumes.as_deref().and_then(AuditId::parse);
        if let Some(call) = resumed.and_then(|id| self.calls.get_mut(&Uuid::from_bytes(id.bytes()))) {
            call.end(&EndFacts::of_resolution(CallStatus::Resumed), 0, n);
        }
        if let (None, Some((received, received_at))) = (self.calls.get(&id), &facts.received) {
            let target = received.target().map(str::to_owned);
            let call = Call::new(id, self.writer, at, *received_at, target, received.actor.to_string());
            self.calls.insert(id, call);
        }
        // Otherwise its beginning was pruned, or is damaged.
        let Some(call) = self.calls.get_mut(&id) else { return };
        call.places.push(n);
        call.last_at = call.last_at.max(at);
        call.opened = call.opened.min(at);
        call.is_idempotent = facts.idempotent.unwrap_or(call.is_idempotent);
        call.key = facts.key.as_deref().and_then(unhex).map(Vec::from).or(call.key.take());
        if let Some(sealed) = &line.sealed {
            call.sealed = call.sealed.saturating_add(signed(sealed.bytes));
            call.parts.push(signed(sealed.offset));
        }
        for AttemptUsage { used, limits } in &facts.attempts {
            let [used @ .., largest_response] = used;
            call.usage.extend(used.iter().chain(limits).map(|amount| signed(*amount)));
            call.largest_responses.push(signed(*largest_response));
        }
        for request in &facts.requests {
            call.requests.add(request, &call.target[0]);
            if !call.hosts.iter().any(|known| *known == request.host) {
                call.hosts.push(request.host.to_string());
            }
        }
        if let Some(end) = &facts.end {
            call.end(end, facts.last_at, n);
        }
    }

    /// Writes the calls, all statements at once.
    async fn write(self) -> Result<(), DatabaseError> {
        let calls: Vec<_> = self.calls.into_values().collect();
        let (chunks, rest) = calls.as_chunks::<CALLS_AT_ONCE>();
        upsert(self.transaction, CALLS_AT_ONCE, chunks.iter().map(<[Call; _]>::as_slice)).await?;
        upsert(self.transaction, 1, rest.chunks(1)).await
    }
}

/// Writes calls, so many with each statement.
async fn upsert<'c>(
    transaction: &Transaction<'_>,
    rows: usize,
    calls: impl ExactSizeIterator<Item = &'c [Call]>,
) -> Result<(), DatabaseError> {
    if calls.len() == 0 {
        return Ok(());
    }
    let columns = COLUMNS.split(',').count();
    let row = |row: usize| {
        let parameters =
            (1..=columns).map(|column| format!("${}", row.saturating_mul(columns).saturating_add(column)));
        format!("({})", parameters.collect::<Vec<_>>().join(", "))
    };
    let upsert = format!(
        "INSERT INTO cofferdam.calls ({COLUMNS}) VALUES {} ON CONFLICT (id) DO UPDATE SET \
         last_at = excluded.last_at, places = excluded.places, is_idempotent = excluded.is_idempotent, \
         status = excluded.status, class = excluded.class, code = excluded.code, duration = excluded.duration, \
         attempts = excluded.attempts, key = excluded.key, sealed = excluded.sealed, parts = excluded.parts, \
         is_undetermined = excluded.is_undetermined, ended_n = excluded.ended_n, usage = excluded.usage, \
         hosts = excluded.hosts, largest_responses = excluded.largest_responses, \
         request_connectors = excluded.request_connectors, request_hosts = excluded.request_hosts, \
         request_kinds = excluded.request_kinds, request_counts = excluded.request_counts \
         WHERE calls.writer = excluded.writer",
        (0..rows).map(row).collect::<Vec<_>>().join(", ")
    );
    let upsert = &transaction.prepare(&upsert).await?;
    let write = |calls: &'c [Call]| async move {
        let computed: Vec<_> = calls.iter().map(|call| (call.first_place(), call.status_number())).collect();
        let parameters: Vec<_> = calls
            .iter()
            .zip(&computed)
            .flat_map(|(call, (first, status))| call.values(first, status))
            .collect();
        transaction.execute(upsert, &parameters).await
    };
    try_join_all(calls.map(write)).await?;
    Ok(())
}

impl Call {
    fn new(id: Uuid, writer: Uuid, opened: SystemTime, at: i64, target: [String; 4], actor: String) -> Self {
        Self {
            id,
            writer,
            opened,
            last_at: opened,
            places: Vec::new(),
            at,
            target,
            actor,
            is_idempotent: false,
            status: CallStatus::Running,
            class: String::new(),
            code: String::new(),
            duration: None,
            attempts: None,
            key: None,
            sealed: 0,
            parts: Vec::new(),
            is_undetermined: false,
            ended_n: None,
            usage: Vec::new(),
            hosts: Vec::new(),
            largest_responses: Vec::new(),
            requests: RequestTallies::default(),
        }
    }

    fn first_place(&self) -> i64 {
        self.places.first().copied().unwrap_or(0)
    }

    fn status_number(&self) -> i16 {
        i16::from(self.status.number())
    }

    /// Returns the values of [`COLUMNS`].
    fn values<'c>(&'c self, first: &'c i64, status: &'c i16) -> [&'c (dyn ToSql + Sync); 30] {
        let [connector, op, action, step] = &self.target;
        [
            &self.id,
            &self.writer,
            &self.opened,
            &self.last_at,
            &self.places,
            first,
            &self.at,
            connector,
            op,
            action,
            step,
            &self.actor,
            &self.is_idempotent,
            status,
            &self.class,
            &self.code,
            &self.duration,
            &self.attempts,
            &self.key,
            &self.sealed,
            &self.parts,
            &self.is_undetermined,
            &self.ended_n,
            &self.usage,
            &self.hosts,
            &self.largest_responses,
            &self.requests.connectors,
            &self.requests.hosts,
            &self.requests.kinds,
            &self.requests.counts,
        ]
    }

    fn read(row: &Row) -> Result<Self, DatabaseError> {
        Ok(Self {
            id: row.try_get(0)?,
            writer: row.try_get(1)?,
            opened: row.try_get(2)?,
            last_at: row.try_get(3)?,
            places: row.try_get(4)?,
            at: row.try_get(6)?,
            target: [row.try_get(7)?, row.try_get(8)?, row.try_get(9)?, row.try_get(10)?],
            actor: row.try_get(11)?,
            is_idempotent: row.try_get(12)?,
            status: CallStatus::from_number(row.try_get::<_, i16>(13)?),
            class: row.try_get(14)?,
            code: row.try_get(15)?,
            duration: row.try_get(16)?,
            attempts: row.try_get(17)?,
            key: row.try_get(18)?,
            sealed: row.try_get(19)?,
            parts: row.try_get(20)?,
            is_undetermined: row.try_get(21)?,
            ended_n: row.try_get(22)?,
            usage: row.try_get(23)?,
            hosts: row.try_get(24)?,
            largest_responses: row.try_get(25)?,
            requests: RequestTallies {
                connectors: row.try_get(26)?,
                hosts: row.try_get(27)?,
                kinds: row.try_get(28)?,
                counts: row.try_get(29)?,
            },
        })
    }

    fn end(&mut self, end: &EndFacts<'_>, ended_at: i64, n: i64) {
        if self.status != CallStatus::Running {
            return;
        }
        self.status = end.status;
        (self.class, self.code) = (end.class.to_string(), end.code.to_string());
        let (duration, attempts) = end.measures(self.at, ended_at);
        self.duration = duration;
        self.attempts = attempts.map(|attempts| i32::try_from(attempts).unwrap_or(i32::MAX));
        self.is_undetermined = end.is_undetermined;
        self.ended_n = Some(n);
    }
}

/// Returns the number of entries of all journals.
pub(super) async fn entries(client: &Client) -> Result<u64, DatabaseError> {
    let row = client.query_one("SELECT coalesce(sum(n), 0)::bigint FROM cofferdam.writers", &[]).await?;
    Ok(unsigned(row.try_get(0)?))
}

#[cfg(test)]
mod tests {
    use cofferdam_audit::{RequestKind, RequestResult};

    use super::*;

    #[test]
    fn alike_requests_are_counted_together() {
        let kind = |is_write| RequestKind {
            result: RequestResult::Answered,
            is_write,
            is_repeated: false,
            is_keyed: false,
        };
        let (read, write) = (kind(false), kind(true));
        let mut tallies = RequestTallies::default();
        for (connector, host, kind) in
            [("own@1.0.0", "a:443", read), ("other@1.0.0", "a:443", read), ("own@1.0.0", "a:443", write)]
        {
            for _ in 0..2 {
                let request = LineRequest { connector: connector.into(), host: host.into(), kind };
                tallies.add(&request, "own@1.0.0");
            }
        }
        let RequestTallies { connectors, hosts, kinds, counts } = tallies;
        assert_eq!(
            (connectors, hosts.len()),
            (vec![String::new(), "other@1.0.0".to_owned(), String::new()], 3)
        );
        assert_eq!((kinds, counts), (vec![read.number(), read.number(), write.number()], vec![2, 2, 2]));
    }
}
