//! Reads the audit log: calls are found in the table that is derived from the entries, and their entries are checked.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use cofferdam_audit::store::{AttemptUsage, StoredKeyState, indexed_line};
use cofferdam_audit::{
    AuditError, AuditErrorKind, AuditReader, CallRow, CallStatus, Filter, LogPosition, LogStorage,
    OperatorChange, OperatorEventFilter, RequestKind, RequestSum, Sealed, SealedUsage, Stats, StatsGroup,
    StatsGrouping, StatsQuery, StoredEntry, UsageStats,
};
use cofferdam_core::failure::{AuditId, FailureClass};
use jiff::Timestamp;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row};
use uuid::Uuid;

use super::batch::{audit_id, signed, stored_id, unsigned};
use super::engine::Holdings;
use super::process::{self, Lives};
use super::{LogShared, Running, calls, checkpoint};
use crate::database::DatabaseError;

const ROW: &str = "SELECT c.id, c.at, c.connector, c.op, c.action, c.step, c.actor, c.is_idempotent, c.status, c.class, \
                   c.code, c.duration, c.attempts, c.writer, w.holder FROM cofferdam.calls c \
                   LEFT JOIN cofferdam.writers w ON w.name = c.writer";

/// A reader of the log of this process.
pub(super) struct PostgresReader {
    running: Arc<Running>,
}

impl PostgresReader {
    /// Creates a reader.
    ///
    /// # Errors
    /// `Absent`: nothing was recorded yet; the database cannot be read.
    pub(super) fn open(running: Arc<Running>) -> Result<Self, AuditError> {
        let own = Self { running };
        match own.query(async |client, _| checkpoint::is_empty(client).await)? {
            true => Err(AuditError::new(AuditErrorKind::Absent, "nothing was recorded yet")),
            false => Ok(own),
        }
    }

    /// Runs a query on the calls as the entries are now.
    fn query<T>(
        &self,
        query: impl AsyncFnOnce(&mut Client, &LogShared) -> Result<T, DatabaseError>,
    ) -> Result<T, AuditError> {
        self.running.in_session(async |client, shared| {
            calls::fill(client, &mut |_| ()).await?;
            query(client, shared).await
        })
    }

    /// Returns the rows of a query of calls, with their states.
    fn rows(&self, text: String, parameters: Parameters) -> Result<Vec<CallRow>, AuditError> {
        // In this order: a call that has ended since is no incomplete one.
        let own = self.holdings()?;
        let (rows, gone) = self.query(async |client, shared| {
            let gone = process::gone(client, &shared.home).await?;
            Ok((client.query(&text, &parameters.as_sql()).await?, gone))
        })?;
        let lives = Lives { own, gone };
        let rows = rows.iter().map(|row| call_row(row, &lives));
        rows.collect::<Result<_, _>>().map_err(AuditError::from)
    }

    fn holdings(&self) -> Result<Holdings, AuditError> {
        match self.running.has_commands() {
            true => cofferdam_audit::wait(self.running.holdings()),
            false => Ok(Holdings::default()),
        }
    }

    /// Reads the lines of a call, with the places of their sealed parts, and checks that each one is what the next line
    /// of the journal says.
    fn lines_of(&self, audit_id: &AuditId) -> Result<Vec<(StoredEntry, Option<i64>)>, AuditError> {
        let id = stored_id(audit_id);
        let found = self.query(async |client, _| {
            let select = "SELECT writer, places FROM cofferdam.calls WHERE id = $1";
            let Some(row) = client.query_opt(select, &[&id]).await? else { return Ok(None) };
            let (writer, places): (Uuid, Vec<i64>) = (row.try_get(0)?, row.try_get(1)?);
            let with_next: Vec<_> = places.iter().flat_map(|n| [*n, n.saturating_add(1)]).collect();
            let select = "SELECT n, line FROM cofferdam.entries WHERE writer = $1 AND n = ANY($2)";
            let mut lines = HashMap::new();
            for row in client.query(select, &[&writer, &with_next]).await? {
                lines.insert(row.try_get::<_, i64>(0)?, row.try_get::<_, String>(1)?);
            }
            Ok(Some((writer.to_string(), places, lines)))
        })?;
        let Some((writer, places, lines)) = found else { return Ok(Vec::new()) };
        let mut read = Vec::new();
        for n in places {
            let Some(text) = lines.get(&n) else {
                let what = format_args!("entry {n} of the journal {writer} is missing");
                return Err(AuditError::new(AuditErrorKind::Tampered, what));
            };
            let next = lines.get(&n.saturating_add(1)).map(String::as_bytes);
            let line = indexed_line(text.as_bytes(), next, &writer, unsigned(n), audit_id)?;
            let place = line.sealed.as_ref().map(|sealed| signed(sealed.offset));
            let entry = StoredEntry { writer: writer.clone(), n: line.n, text: text.clone() };
            read.push((entry, place));
        }
        Ok(read)
    }
}

/// The parameters of a query, in their order.
#[derive(Default)]
struct Parameters(Vec<Box<dyn ToSql + Sync>>);

impl Parameters {
    /// Adds a parameter, and returns its name.
    fn add(&mut self, value: impl ToSql + Sync + 'static) -> String {
        self.0.push(Box::new(value));
        format!("${}", self.0.len())
    }

    fn as_sql(&self) -> Vec<&(dyn ToSql + Sync)> {
        self.0.iter().map(|value| &**value as &(dyn ToSql + Sync)).collect()
    }
}

/// Returns the conditions of a filter, without those on the state of processes, the key and the page.
fn conditions(filter: &Filter, parameters: &mut Parameters) -> Vec<String> {
    let Filter { failed, class, code, connector, op, action, actor, since, until, .. } = filter;
    let mut all = Vec::new();
    if *failed {
        all.push("c.status > 1".to_owned());
    }
    if let Some(status) = filter.stored_status() {
        all.push(format!("c.status = {}", status.number()));
    }
    for (column, word) in [("class", class), ("code", code), ("op", op), ("actor", actor)] {
        if let Some(word) = word {
            all.push(format!("c.{column} = {}", parameters.add(word.clone())));
        }
    }
    for (column, name) in [("connector", connector), ("action", action)] {
        if let Some(name) = name {
            let name = parameters.add(name.clone());
            // With its version, or without.
            all.push(format!("(c.{column} = {name} OR regexp_replace(c.{column}, '@[^@]*$', '') = {name})"));
        }
    }
    if let Some(since) = since {
        all.push(format!("c.at >= {}", parameters.add(since.as_microsecond())));
    }
    if let Some(until) = until {
        all.push(format!("c.at < {}", parameters.add(until.as_microsecond())));
    }
    all
}

fn where_all(conditions: &[String]) -> String {
    if conditions.is_empty() { String::new() } else { format!(" WHERE {}", conditions.join(" AND ")) }
}

/// Returns the expression for the boundary of a failure: that of its class, if the class has only one. The table of calls
/// has no others.
fn boundary_column() -> String {
    let only = |class: &FailureClass| match class.boundaries() {
        [boundary] => Some(format!("WHEN '{}' THEN '{}' ", class.name(), boundary.name())),
        _ => None,
    };
    let cases: String = FailureClass::ALL.iter().filter_map(only).collect();
    format!("CASE c.class {cases}ELSE '' END")
}

/// Returns the calls in these rows.
fn ids(rows: &[Row]) -> Result<Vec<AuditId>, DatabaseError> {
    rows.iter().map(|row| Ok(audit_id(row.try_get(0)?))).collect()
}

fn call_row(row: &Row, lives: &Lives) -> Result<CallRow, DatabaseError> {
    let text =
        |at: usize| row.try_get::<_, String>(at).map(|text| Some(text).filter(|text| !text.is_empty()));
    let status = CallStatus::from_number(row.try_get::<_, i16>(8)?);
    let audit_id = audit_id(row.try_get(0)?);
    let is_incomplete = !status.has_end() && lives.is_incomplete(&audit_id, row.try_get(14)?);
    Ok(CallRow {
        audit_id,
        at: Timestamp::from_microsecond(row.try_get(1)?).unwrap_or_default(),
        connector: row.try_get(2)?,
        op: row.try_get(3)?,
        action: text(4)?,
        step: text(5)?,
        actor: row.try_get(6)?,
        idempotent: row.try_get(7)?,
        status: if is_incomplete { CallStatus::Incomplete } else { status },
        class: text(9)?,
        code: text(10)?,
        duration_us: row.try_get::<_, Option<i64>>(11)?.map(unsigned),
        attempts: row.try_get::<_, Option<i32>>(12)?.map(|attempts| u32::try_from(attempts).unwrap_or(0)),
    })
}

impl AuditReader for PostgresReader {
    fn list(&mut self, filter: &Filter) -> Result<Vec<CallRow>, AuditError> {
        let mut parameters = Parameters::default();
        let mut conditions = conditions(filter, &mut parameters);
        if let Some(key) = filter.key {
            conditions.push(format!("c.key = {}", parameters.add(key.to_vec())));
        }
        if let Some(before) = &filter.before {
            let id = parameters.add(stored_id(before));
            // For a call that is not there, it is the time in the id.
            let [a, b, c, d, e, f, ..] = before.bytes();
            let millis = signed(u64::from_be_bytes([0, 0, a, b, c, d, e, f]));
            let time = parameters
                .add(std::time::SystemTime::from(Timestamp::from_millisecond(millis).unwrap_or_default()));
            conditions.push(format!(
                "(c.opened, c.first_n, c.id) < (SELECT coalesce(max(b.opened), {time}::timestamptz), \
                 coalesce(max(b.first_n), 0), {id}::uuid FROM cofferdam.calls b WHERE b.id = {id}::uuid)"
            ));
        }
        // Those that run and those that do not are told apart below.
        let of_process = filter.status.filter(|status| !status.has_end());
        let limit = match filter.limit {
            limit if limit > 0 && of_process.is_none() => format!(" LIMIT {limit}"),
            _ => String::new(),
        };
        let order = " ORDER BY c.opened DESC, c.first_n DESC, c.id DESC";
        let mut rows = self.rows(format!("{ROW}{}{order}{limit}", where_all(&conditions)), parameters)?;
        rows.retain(|row| of_process.is_none_or(|status| row.status == status));
        if filter.limit > 0 {
            rows.truncate(filter.limit);
        }
        Ok(rows)
    }

    fn call(&mut self, audit_id: &AuditId) -> Result<Option<CallRow>, AuditError> {
        let mut parameters = Parameters::default();
        let id = parameters.add(stored_id(audit_id));
        Ok(self.rows(format!("{ROW} WHERE c.id = {id}"), parameters)?.pop())
    }

    fn between(&mut self, from: &AuditId, to: &AuditId, most: usize) -> Result<Vec<AuditId>, AuditError> {
        let (from, to) = (stored_id(from), stored_id(to));
        let most = signed(most as u64);
        self.query(async |client, _| {
            let select = "SELECT id FROM cofferdam.calls WHERE id >= $1 AND id <= $2 ORDER BY id LIMIT $3";
            ids(&client.query(select, &[&from, &to, &most]).await?)
        })
    }

    fn requests(&mut self, filter: &Filter) -> Result<Vec<RequestSum>, AuditError> {
        let (since, until) = filter.whole_hours();
        // A fallback may be another connector than that of the call.
        let connector = filter.connector.clone();
        let calls = Filter { connector: None, since, until, ..filter.clone() };
        let mut parameters = Parameters::default();
        let mut conditions = conditions(&calls, &mut parameters);
        conditions.push("c.status > 0".to_owned());
        let select = format!(
            "SELECT CASE r.sender WHEN '' THEN c.connector ELSE r.sender END, \
             CASE r.sender WHEN '' THEN c.op ELSE '' END, r.host, r.kind, sum(r.number)::bigint FROM cofferdam.calls c \
             CROSS JOIN LATERAL unnest(c.request_connectors, c.request_hosts, c.request_kinds, c.request_counts) \
             AS r (sender, host, kind, number){} GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4",
            where_all(&conditions)
        );
        let sums = self.query(async |client, _| {
            let mut sums = Vec::new();
            for row in client.query(&select, &parameters.as_sql()).await? {
                // A kind that this version does not know is not counted.
                let Some(kind) = RequestKind::from_number(row.try_get(3)?) else { continue };
                let (connector, op, host) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
                let requests = unsigned(row.try_get(4)?);
                sums.push(RequestSum { connector, op, host, kind, requests });
            }
            Ok(sums)
        })?;
        let is_asked = |sum: &RequestSum| {
            let own = sum.connector.as_str();
            let name = own.rsplit_once('@').map_or(own, |(name, _)| name);
            connector.as_deref().is_none_or(|asked| asked == own || asked == name)
        };
        Ok(sums.into_iter().filter(is_asked).collect())
    }

    fn stats(&mut self, filter: &Filter, query: StatsQuery) -> Result<Stats, AuditError> {
        let (since, until) = filter.whole_hours();
        let rounded = Filter { since, until, before: None, limit: 0, ..filter.clone() };
        let mut stats = Stats { since, until, ..Stats::default() };
        let open = Filter { status: Some(CallStatus::Running), ..rounded.clone() };
        let has_open = !rounded.failed
            && rounded.class.is_none()
            && rounded.code.is_none()
            && rounded.status.is_none_or(|status| !status.has_end());
        if has_open {
            let mut parameters = Parameters::default();
            let conditions = conditions(&open, &mut parameters);
            for row in self.rows(format!("{ROW}{}", where_all(&conditions)), parameters)? {
                let is_incomplete = row.status == CallStatus::Incomplete;
                *if is_incomplete { &mut stats.incomplete } else { &mut stats.running } += 1;
            }
        }
        let mut parameters = Parameters::default();
        let mut conditions = conditions(&rounded, &mut parameters);
        conditions.push("c.status > 0".to_owned());
        let name = match query.by {
            StatsGrouping::Connector => "c.connector".to_owned(),
            StatsGrouping::Operation => "c.connector || ' ' || c.op".to_owned(),
            StatsGrouping::Host => "h.host".to_owned(),
            StatsGrouping::Code => "c.code".to_owned(),
            StatsGrouping::Actor => "c.actor".to_owned(),
            StatsGrouping::Boundary => boundary_column(),
        };
        let hosts = match query.by {
            StatsGrouping::Host => " CROSS JOIN LATERAL unnest(c.hosts) AS h (host)",
            _ => "",
        };
        let usage = match query.usage {
            true => "c.usage, c.largest_responses",
            false => "'{}'::bigint[], '{}'::bigint[]",
        };
        let select = format!(
            "SELECT {name}, c.status, c.class, c.duration, {usage} FROM cofferdam.calls c{hosts}{}",
            where_all(&conditions)
        );
        let groups = self.query(async |client, _| {
            let mut groups = BTreeMap::<(String, i16, String), StatsGroup>::new();
            for row in client.query(&select, &parameters.as_sql()).await? {
                count(&row, query.usage, &mut groups)?;
            }
            Ok(groups)
        })?;
        stats.groups = groups.into_values().collect();
        stats.groups.sort_by(|a, b| {
            let key = |group: &StatsGroup| (group.name.clone(), group.status.number(), group.class.clone());
            b.calls.cmp(&a.calls).then_with(|| key(a).cmp(&key(b)))
        });
        Ok(stats)
    }

    fn storage(&mut self) -> Result<LogStorage, AuditError> {
        self.query(async |client, _| {
            // Of partitioned tables, the parts have the bytes.
            let select = "SELECT c.relname, pg_total_relation_size(c.oid) FROM pg_class c \
                          JOIN pg_namespace n ON n.oid = c.relnamespace \
                          WHERE n.nspname = 'cofferdam' AND c.relkind = 'r'";
            let mut storage = LogStorage::default();
            for row in client.query(select, &[]).await? {
                let name: String = row.try_get(0)?;
                let part = match name.split('_').next().unwrap_or_default() {
                    "entries" => &mut storage.entries_bytes,
                    "sealed" => &mut storage.sealed_bytes,
                    "calls" => &mut storage.index_bytes,
                    _ => &mut storage.other_bytes,
                };
                *part = part.saturating_add(unsigned(row.try_get(1)?));
            }
            let select = "SELECT (SELECT at FROM cofferdam.calls ORDER BY opened, first_n, id LIMIT 1), \
                          (SELECT retained FROM cofferdam.log_time)";
            let row = client.query_one(select, &[]).await?;
            storage.oldest =
                row.try_get::<_, Option<i64>>(0)?.and_then(|at| Timestamp::from_microsecond(at).ok());
            let retained = row.try_get::<_, Option<std::time::SystemTime>>(1)?;
            storage.retained = retained.and_then(|at| Timestamp::try_from(at).ok());
            Ok(storage)
        })
    }

    fn codes(&mut self) -> Result<Vec<String>, AuditError> {
        self.query(async |client, _| {
            let select =
                "SELECT DISTINCT code COLLATE \"C\" FROM cofferdam.calls WHERE code <> '' ORDER BY 1";
            let rows = client.query(select, &[]).await?;
            rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
        })
    }

    fn end(&mut self) -> Result<LogPosition, AuditError> {
        self.query(async |client, _| calls::position(client, "SELECT writer, n FROM cofferdam.indexed").await)
    }

    fn ended_after(&mut self, position: &mut LogPosition, most: usize) -> Result<Vec<CallRow>, AuditError> {
        let mut rows = Vec::new();
        for (writer, to) in self.end()?.0 {
            let from = position.0.get(&writer).copied().unwrap_or(0);
            let Ok(name) = Uuid::try_parse(&writer) else { continue };
            if from >= to || rows.len() >= most {
                continue;
            }
            let mut parameters = Parameters::default();
            let (name, from_n, to_n) =
                (parameters.add(name), parameters.add(signed(from)), parameters.add(signed(to)));
            let limit = most.saturating_sub(rows.len());
            let select = format!(
                "{ROW} WHERE c.writer = {name} AND c.ended_n > {from_n} AND c.ended_n <= {to_n} ORDER BY c.ended_n LIMIT \
                 {limit}"
            );
            let found = self.rows(select, parameters)?;
            let last = match found.last().filter(|_| found.len() >= limit) {
                Some(last) => self.ended_n(&last.audit_id)?.unwrap_or(to),
                None => to,
            };
            position.0.insert(writer, last);
            rows.extend(found);
        }
        Ok(rows)
    }

    fn entries_of(&mut self, audit_id: &AuditId) -> Result<Vec<StoredEntry>, AuditError> {
        Ok(self.lines_of(audit_id)?.into_iter().map(|(entry, _)| entry).collect())
    }

    fn sealed_usage(&mut self) -> Result<Vec<SealedUsage>, AuditError> {
        self.query(async |client, _| sealed_usage(client).await)
    }

    fn operator_events(&mut self, filter: &OperatorEventFilter) -> Result<Vec<OperatorChange>, AuditError> {
        let since = filter.since.map_or(i64::MIN, Timestamp::as_microsecond);
        let [until, before] =
            [filter.until, filter.before].map(|time| time.map_or(i64::MAX, Timestamp::as_microsecond));
        let limit = if filter.limit == 0 { i64::MAX } else { signed(filter.limit as u64) };
        let (names, is_only) = filter.actions.names();
        self.query(async |client, _| {
            // In the order of each journal: the clock may have gone back between two changes. The action is the first
            // field of canonical JSON. PostgreSQL does not read the fields of texts with `\u0000` as JSON.
            let select = "SELECT at, place, event FROM (SELECT at, event, n, max(at - nth) OVER journal + nth AS place \
                          FROM (SELECT *, row_number() OVER (PARTITION BY writer ORDER BY n) AS nth \
                          FROM cofferdam.operator_events) AS counted \
                          WINDOW journal AS (PARTITION BY writer ORDER BY n)) AS placed \
                          WHERE at >= $1 AND at < $2 AND place < $6 AND (split_part(event, '\"', 4) = ANY($3)) = $4 \
                          ORDER BY place DESC, n DESC LIMIT $5";
            let mut changes = Vec::new();
            for row in client.query(select, &[&since, &until, &names, &is_only, &limit, &before]).await? {
                changes.extend(OperatorChange::read(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
            }
            Ok(changes)
        })
    }

    fn undecided_keys(&mut self, of: Option<&AuditId>) -> Result<Vec<AuditId>, AuditError> {
        let of = of.map(stored_id);
        self.query(async |client, _| {
            let select = "SELECT DISTINCT call FROM cofferdam.keys WHERE state = $1 AND ($2::uuid IS NULL OR call = $2) \
                          ORDER BY call";
            ids(&client.query(select, &[&StoredKeyState::Undetermined.number(), &of]).await?)
        })
    }

    fn sealed(&mut self, audit_id: &AuditId) -> Result<(Option<Sealed>, Option<Sealed>), AuditError> {
        let (mut request, mut outcome) = (None, None);
        for (position, (entry, place)) in self.lines_of(audit_id)?.into_iter().enumerate() {
            let (Some(place), Ok(writer)) = (place, Uuid::try_parse(&entry.writer)) else { continue };
            let part = self.query(async |client, _| sealed_part(client, writer, place).await)?;
            *if position == 0 { &mut request } else { &mut outcome } = part.map(Sealed::from_bytes);
        }
        Ok((request, outcome))
    }
}

impl PostgresReader {
    fn ended_n(&self, audit_id: &AuditId) -> Result<Option<u64>, AuditError> {
        let id = stored_id(audit_id);
        self.query(async |client, _| {
            let row = client.query_opt("SELECT ended_n FROM cofferdam.calls WHERE id = $1", &[&id]).await?;
            Ok(row.map(|row| row.try_get::<_, Option<i64>>(0)).transpose()?.flatten().map(unsigned))
        })
    }
}

/// Returns the sealed bytes of each client that has any, the most first.
pub(super) async fn sealed_usage(client: &Client) -> Result<Vec<SealedUsage>, DatabaseError> {
    let select = "SELECT actor, sum(sealed)::bigint FROM cofferdam.calls WHERE sealed > 0 GROUP BY actor \
                  ORDER BY 2 DESC, actor COLLATE \"C\"";
    let rows = client.query(select, &[]).await?;
    let usage = |row: &Row| Ok(SealedUsage { client: row.try_get(0)?, bytes: unsigned(row.try_get(1)?) });
    rows.iter().map(usage).collect()
}

/// Returns a sealed part; none if it was dropped.
pub(super) async fn sealed_part(
    client: &Client,
    writer: Uuid,
    place: i64,
) -> Result<Option<Vec<u8>>, DatabaseError> {
    let select = "SELECT part FROM cofferdam.sealed WHERE writer = $1 AND place = $2";
    let row = client.query_opt(select, &[&writer, &place]).await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?)
}

/// Counts a call in its group.
fn count(
    row: &Row,
    has_usage: bool,
    groups: &mut BTreeMap<(String, i16, String), StatsGroup>,
) -> Result<(), DatabaseError> {
    let key: (String, i16, String) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let group = groups.entry(key.clone()).or_insert_with(|| StatsGroup {
        name: key.0,
        status: CallStatus::from_number(key.1),
        class: Some(key.2).filter(|class| !class.is_empty()),
        calls: 0,
        durations: cofferdam_audit::Histogram::default(),
        usage: has_usage.then(UsageStats::default),
    });
    group.calls = group.calls.saturating_add(1);
    if let Some(duration) = row.try_get::<_, Option<i64>>(3)? {
        group.durations.record(unsigned(duration));
    }
    let (amounts, largest_responses): (Vec<i64>, Vec<i64>) = (row.try_get(4)?, row.try_get(5)?);
    if let Some(usage) = &mut group.usage {
        let attempts = amounts.as_chunks::<8>().0.iter().zip(largest_responses);
        for (attempt, largest) in attempts {
            let [fuel, memory, wall, requests, bytes, limits @ ..] = attempt.map(unsigned);
            let used = [fuel, memory, wall, requests, bytes, unsigned(largest)];
            usage.record(&AttemptUsage { used, limits });
        }
    }
    Ok(())
}
