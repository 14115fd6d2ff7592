//! The circuits in the database: observations are applied under the row's lock, with the database's clock.

use std::time::{Duration, Instant};

use cofferdam_egress::resilience::{
    Circuit, CircuitReplica, CircuitUpdate, SharedCircuit, SharedCircuitChange,
};
use cofferdam_model::manifest::ConnectorName;
use jiff::Timestamp;
use tokio_postgres::{Client, Statement};
use uuid::Uuid;

/// The microseconds since 1970 on the database's clock.
const NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// The time for which one host may probe a circuit, unless it says that it still does.
const PROBE_LEASE: &str = "interval '5 seconds'";

/// The statements about circuits.
pub(super) struct CircuitSession {
    insert: Statement,
    select: Statement,
    update: Statement,
    delete: Statement,
    remove: Statement,
    all: Statement,
    claim: Statement,
    read_at: Option<Instant>,
}

impl CircuitSession {
    pub(super) async fn prepare(client: &Client) -> Result<Self, tokio_postgres::Error> {
        let at = "connector = $1 AND host = $2";
        Ok(Self {
            insert: client
                .prepare("INSERT INTO circuits (connector, host, state) VALUES ($1, $2, '') ON CONFLICT DO NOTHING")
                .await?,
            select: client
                .prepare(&format!("SELECT state, {NOW} FROM circuits WHERE {at} FOR UPDATE"))
                .await?,
            update: client
                .prepare(&format!(
                    "UPDATE circuits SET state = $3, probe_by = CASE WHEN $4 THEN NULL ELSE probe_by END WHERE {at}"
                ))
                .await?,
            delete: client.prepare(&format!("DELETE FROM circuits WHERE {at}")).await?,
            remove: client
                .prepare(
                    "DELETE FROM circuits WHERE ($1::text IS NULL OR connector = $1) AND ($2::text IS NULL OR host = $2)",
                )
                .await?,
            all: client
                .prepare(&format!(
                    "SELECT connector, host, state, {NOW}, \
                     coalesce(probe_by = $1 AND probe_until > clock_timestamp(), false) FROM circuits WHERE state <> ''"
                ))
                .await?,
            claim: client
                .prepare(&format!(
                    "UPDATE circuits SET probe_by = $3, probe_until = clock_timestamp() + {PROBE_LEASE} WHERE {at} \
                     AND (probe_by IS NULL OR probe_by = $3 OR probe_until < clock_timestamp())"
                ))
                .await?,
            read_at: None,
        })
    }

    /// Returns whether the copy was last read so long ago.
    pub(super) fn is_due(&self, interval: Duration) -> bool {
        // A little early rather than a whole interval late.
        self.read_at.is_none_or(|at| at.elapsed() >= interval.mul_f32(0.9))
    }

    /// Writes changes, in their order for each circuit.
    pub(super) async fn write(
        &mut self,
        client: &mut Client,
        changes: &[SharedCircuitChange],
    ) -> Result<(), tokio_postgres::Error> {
        let mut left = changes;
        while let Some((first, rest)) = left.split_first() {
            match first {
                SharedCircuitChange::Remove { connector, host } => {
                    client.execute(&self.remove, &[connector, host]).await?;
                    left = rest;
                }
                SharedCircuitChange::Observe(update) => {
                    let same = left.iter().take_while(|change| is_of_same_circuit(change, update)).count();
                    let (these, others) = left.split_at(same.max(1));
                    self.apply(client, update, these).await?;
                    left = others;
                }
            }
        }
        Ok(())
    }

    /// Applies observations of one circuit in one transaction.
    async fn apply(
        &mut self,
        client: &mut Client,
        of: &CircuitUpdate,
        changes: &[SharedCircuitChange],
    ) -> Result<(), tokio_postgres::Error> {
        let (connector, host) = (of.connector().as_str(), of.host());
        let transaction = client.transaction().await?;
        transaction.execute(&self.insert, &[&connector, &host]).await?;
        // Another host may have removed it in between.
        let Some(row) = transaction.query_opt(&self.select, &[&connector, &host]).await? else {
            return transaction.commit().await;
        };
        let (state, now): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
        let mut circuit = Circuit::parse_stored(&state).unwrap_or_default();
        let mut is_probed = false;
        for change in changes {
            if let (SharedCircuitChange::Observe(update), Ok(now)) =
                (change, Timestamp::from_microsecond(now))
            {
                update.apply(&mut circuit, now);
                is_probed |= update.is_probe();
            }
        }
        match serde_json::to_string(&circuit) {
            Ok(state) if !circuit.is_pristine() => {
                transaction.execute(&self.update, &[&connector, &host, &state, &is_probed]).await?;
            }
            _ => {
                transaction.execute(&self.delete, &[&connector, &host]).await?;
            }
        }
        transaction.commit().await
    }

    /// Replaces the copy by what the database has, and asks to probe what this host wants to probe.
    pub(super) async fn read(
        &mut self,
        client: &Client,
        replica: &CircuitReplica,
        id: Uuid,
    ) -> Result<(), tokio_postgres::Error> {
        for (connector, host) in replica.wanted_probes(Timestamp::now()) {
            client.execute(&self.claim, &[&connector.as_str(), &host, &id]).await?;
        }
        for (connector, host, is_out) in replica.held_probes() {
            if is_out {
                client.execute(&self.claim, &[&connector.as_str(), &host, &id]).await?;
            }
        }
        let asked = Instant::now();
        let rows = client.query(&self.all, &[&id]).await?;
        let waited = asked.elapsed();
        let mut circuits = Vec::new();
        let mut held = Vec::new();
        let mut database_now = None;
        for row in rows {
            let (connector, host, state): (String, String, String) =
                (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            let (now, is_held): (i64, bool) = (row.try_get(3)?, row.try_get(4)?);
            let (Ok(connector), Some(circuit)) =
                (ConnectorName::parse(&connector), Circuit::parse_stored(&state))
            else {
                continue;
            };
            database_now = database_now.or_else(|| Timestamp::from_microsecond(now).ok());
            held.push((connector.clone(), host.clone(), is_held));
            circuits.push(SharedCircuit { connector, host, circuit });
        }
        // The server read its clock between the question and the answer.
        let here = Timestamp::now().checked_sub(waited / 2).unwrap_or_else(|_| Timestamp::now());
        let ahead = database_now.map(|now| now.duration_since(here)).unwrap_or_default();
        replica.replace(circuits, ahead);
        for (connector, host, is_held) in held {
            replica.set_probe(&connector, &host, is_held);
        }
        self.read_at = Some(Instant::now());
        Ok(())
    }
}

fn is_of_same_circuit(change: &SharedCircuitChange, update: &CircuitUpdate) -> bool {
    match change {
        SharedCircuitChange::Observe(other) => {
            (other.connector(), other.host()) == (update.connector(), update.host())
        }
        SharedCircuitChange::Remove { .. } => false,
    }
}
