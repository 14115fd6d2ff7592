//! The rows of calls, from which calls are found and counted: filled from the entries, and made again from them at any time.

use std::collections::HashMap;
use std::time::SystemTime;

use cofferdam_audit::store::{AttemptUsage, EndFacts, JournalLine, LineFacts, LineRequest, decision};
use cofferdam_audit::{CallStatus, LogPosition, unhex};
use futures_util::future::try_join_all;
use jiff::Timestamp;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Transaction};
use uuid::Uuid;

use super::batch::{id_in, signed, stored_id, unsigned};
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

/// Declares the rows of the table of calls by their columns.
macro_rules! call_row {
    ($($(#[$meta:meta])* $column:ident: $type:ty,)+) => {
        /// A call as it is in the table.
        #[derive(Default)]
        struct Call {
            $($(#[$meta])* $column: $type,)+
        }

        impl Call {
            const COLUMNS: [&str; [$(stringify!($column)),+].len()] = [$(stringify!($column)),+];

            fn read(row: &Row) -> Result<Self, DatabaseError> {
                Ok(Self { $($column: row.try_get(stringify!($column))?,)+ })
            }

            /// Returns the values of the columns.
            fn values(&self) -> [&(dyn ToSql + Sync); Self::COLUMNS.len()] {
                [$(&self.$column),+]
            }
        }
    };
}

/// The number of columns that stay as they are once a call is in the table: the first ones.
const FIXED_COLUMNS: usize = 10;

call_row! {
    id: Uuid,
    writer: Uuid,
    /// When its first entry was written.
    opened: Option<SystemTime>,
    first_n: i64,
    at: i64,
    connector: String,
    op: String,
    action: String,
    step: String,
    actor: String,
    last_at: Option<SystemTime>,
    places: Vec<i64>,
    is_idempotent: bool,
    status: i16,
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
    /// The connectors that sent requests, alike ones together; empty for the call's own.
    request_connectors: Vec<String>,
    request_hosts: Vec<String>,
    request_kinds: Vec<i64>,
    request_counts: Vec<i64>,
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

/// Returns the entry of each journal that a query selects.
pub(super) async fn position(client: &Client, select: &str) -> Result<LogPosition, DatabaseError> {
    let mut position = LogPosition::default();
    for row in client.query(select, &[]).await? {
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
            ids.extend(named.into_iter().filter_map(id_in));
        }
        let columns = Call::COLUMNS.join(", ");
        let select = format!("SELECT {columns} FROM cofferdam.calls WHERE id = ANY($1) AND writer = $2");
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
            self.transaction.execute(insert, &[&stored_id(&decided)]).await?;
        }
        if let Some(log) = line.log.as_ref().filter(|log| log.is_operator_change()) {
            let insert = "INSERT INTO cofferdam.operator_events (writer, n, at, event) VALUES ($1, $2, $3, $4) \
                          ON CONFLICT DO NOTHING";
            let at = log.at().map_or(0, Timestamp::as_microsecond);
            self.transaction.execute(insert, &[&self.writer, &n, &at, &log.payload.get()]).await?;
        }
        let id = id_in(line.audit_id.as_deref());
        if let (Some(id), Some(facts)) = (id, line.events_text().and_then(LineFacts::read)) {
            self.call_line(id, &line, &facts, (at, n));
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
        if let Some(call) = id_in(line.resumes.as_deref()).and_then(|id| self.calls.get_mut(&id)) {
            call.end(&EndFacts::of_resolution(CallStatus::Resumed), 0, n);
        }
        if let (None, Some((received, received_at))) = (self.calls.get(&id), &facts.received) {
            let [connector, op, action, step] = received.target().map(str::to_owned);
            let (writer, opened, first_n, at, actor) =
                (self.writer, Some(at), n, *received_at, received.actor.to_string());
            let call = Call {
                id,
                writer,
                opened,
                first_n,
                at,
                connector,
                op,
                action,
                step,
                actor,
                ..Call::default()
            };
            self.calls.insert(id, call);
        }
        // Otherwise its beginning was pruned, or is damaged.
        let Some(call) = self.calls.get_mut(&id) else { return };
        call.places.push(n);
        call.last_at = call.last_at.max(Some(at));
        call.opened = call.opened.min(Some(at));
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
            call.add_request(request);
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
    let count = Call::COLUMNS.len();
    let row = |row: usize| {
        let parameters =
            (1..=count).map(|column| format!("${}", row.saturating_mul(count).saturating_add(column)));
        format!("({})", parameters.collect::<Vec<_>>().join(", "))
    };
    let changes =
        Call::COLUMNS.iter().skip(FIXED_COLUMNS).map(|column| format!("{column} = excluded.{column}"));
    let upsert = format!(
        "INSERT INTO cofferdam.calls ({}) VALUES {} ON CONFLICT (id) DO UPDATE SET {} \
         WHERE calls.writer = excluded.writer",
        Call::COLUMNS.join(", "),
        (0..rows).map(row).collect::<Vec<_>>().join(", "),
        changes.collect::<Vec<_>>().join(", ")
    );
    let upsert = &transaction.prepare(&upsert).await?;
    let write = |calls: &'c [Call]| async move {
        let parameters: Vec<_> = calls.iter().flat_map(Call::values).collect();
        transaction.execute(upsert, &parameters).await
    };
    try_join_all(calls.map(write)).await?;
    Ok(())
}

impl Call {
    /// Counts a request.
    fn add_request(&mut self, request: &LineRequest<'_>) {
        let sender = if request.connector == self.connector { "" } else { &*request.connector };
        let kind = request.kind.number();
        let known = self.request_connectors.iter().zip(&self.request_hosts).zip(&self.request_kinds);
        let mut known = known.map(|((connector, host), kind)| (connector.as_str(), host.as_str(), *kind));
        match known.position(|known| known == (sender, &*request.host, kind)) {
            Some(at) => {
                let count = self.request_counts.get_mut(at);
                count.into_iter().for_each(|count| *count = count.saturating_add(1));
            }
            None => {
                self.request_connectors.push(sender.to_owned());
                self.request_hosts.push(request.host.to_string());
                self.request_kinds.push(kind);
                self.request_counts.push(1);
            }
        }
    }

    fn end(&mut self, end: &EndFacts<'_>, ended_at: i64, n: i64) {
        if self.status != i16::from(CallStatus::Running.number()) {
            return;
        }
        self.status = end.status.number().into();
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
        let mut call = Call { connector: "own@1.0.0".to_owned(), ..Call::default() };
        for (connector, host, kind) in
            [("own@1.0.0", "a:443", read), ("other@1.0.0", "a:443", read), ("own@1.0.0", "a:443", write)]
        {
            for _ in 0..2 {
                let request = LineRequest { connector: connector.into(), host: host.into(), kind };
                call.add_request(&request);
            }
        }
        assert_eq!(
            (call.request_connectors, call.request_hosts.len()),
            (vec![String::new(), "other@1.0.0".to_owned(), String::new()], 3)
        );
        let kinds = vec![read.number(), read.number(), write.number()];
        assert_eq!((call.request_kinds, call.request_counts), (kinds, vec![2, 2, 2]));
    }
}
