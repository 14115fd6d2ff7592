//! The time that the log goes by: that of the database, and never that of a host. It does not jump: see
//! [`clock_state`].

use cofferdam_audit::store::{ClockState, believed_time, check_clock, clock_state, log_time_at};
use cofferdam_audit::{AuditError, LogTime};
use cofferdam_core::warnings::WarningLog;
use jiff::Timestamp;
use std::time::SystemTime;
use tokio_postgres::GenericClient;

use super::session::answered;
use crate::database::DatabaseError;

/// The longest time by which the stored time is behind the entries.
const COARSE: i64 = 60_000_000;

/// The time of the log, and that of the clock, in microseconds since 1970.
#[derive(Debug, Clone, Copy)]
pub(super) struct SeenTime {
    seen: Option<i64>,
    /// The time of the database's clock.
    pub(super) clock: i64,
}

impl SeenTime {
    /// Reads both. `given` takes the place of the database's clock.
    pub(super) async fn read(
        client: &impl GenericClient,
        given: Option<SystemTime>,
    ) -> Result<Self, DatabaseError> {
        let select = "SELECT seen, (extract(epoch FROM coalesce($1, clock_timestamp())) * 1000000)::bigint \
                      FROM cofferdam.log_time";
        let row = client.query_one(select, &[&given]).await?;
        Ok(Self { seen: row.try_get(0)?, clock: row.try_get(1)? })
    }

    /// Returns the time that the log goes by.
    pub(super) fn now(self) -> i64 {
        believed_time(self.seen, self.clock)
    }

    /// Returns an error if the clock is so far behind that outcomes would not stand as long as they should.
    pub(super) fn check(self, warnings: &WarningLog) -> Result<(), AuditError> {
        let fix = "Set the clock of the database's machine, and call again. If it is right, `cofferdam audit \
                   clock --accept` has the audit log go by it.";
        let checked = check_clock(self.seen, self.clock, warnings, "the clock of the database");
        checked.map_err(|error| error.with_fix(fix))
    }

    /// Returns the time for callers.
    pub(super) fn log_time(self) -> LogTime {
        log_time_at(self.seen, Timestamp::from_microsecond(self.clock).unwrap_or_default())
    }

    /// Returns true if entries at the clock's time move the stored time.
    pub(super) fn is_to_move(self) -> bool {
        clock_state(self.seen, self.clock) == ClockState::Believed
            && self.seen.is_none_or(|seen| self.clock.saturating_sub(seen) > COARSE)
    }
}

/// Has the log go by the time of entries that were just written, as far as that is believed.
pub(super) async fn advance(client: &impl GenericClient, seen: SeenTime) -> Result<(), DatabaseError> {
    let advance = "UPDATE cofferdam.log_time SET seen = $1 WHERE seen IS NULL OR seen < $1";
    answered(client.execute(advance, &[&seen.clock])).await.map(drop)
}

/// Has the log go by the clock after entries, as far as that is believed: also after those of calls without keys.
pub(super) async fn follow(
    client: &impl GenericClient,
    given: Option<SystemTime>,
) -> Result<(), DatabaseError> {
    let seen = SeenTime::read(client, given).await?;
    if seen.is_to_move() { advance(client, seen).await } else { Ok(()) }
}

/// Has the log go by the time that the operator accepts.
pub(super) async fn accept(client: &impl GenericClient, time: i64) -> Result<(), DatabaseError> {
    client.execute("UPDATE cofferdam.log_time SET seen = $1", &[&time]).await?;
    Ok(())
}
