//! The time that the log goes by, which does not jump.
//!
//! Idempotency keys expire and old calls are removed by it. It follows the clock as long as entries follow each other
//! within a day. A clock that is further ahead may be wrong, and what it would end stays until the operator accepts it;
//! one that is further behind would give new outcomes less time than their callers count on, so that no call runs under a
//! key until it is set.

use std::path::Path;

use cofferdam_core::event::operator::{OperatorAction, OperatorEvent};
use cofferdam_core::event::recorded::RecordedEvent;
use cofferdam_core::warnings::WarningLog;
use jiff::Timestamp;

use super::keys::{KeyChange, KeyTable};
use super::line::JournalLine;
use super::log::LogWriter;
use super::segment::{SegmentReader, last_line, segments};
use super::writer_dir;
use crate::command::LogTime;
use crate::error::{AuditError, AuditErrorKind};

/// The longest step of the clock that is believed, in microseconds: a day.
const LONGEST_STEP: i64 = 24 * 60 * 60 * 1_000_000;

/// The state of the clock, compared with the time that the log goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockState {
    /// The log goes by it.
    Believed,
    /// It is more than a day ahead.
    Ahead,
    /// It is more than a day behind.
    Behind,
}

/// Compares the time that the log goes by with that of the clock, both in microseconds since 1970.
pub fn clock_state(seen: Option<i64>, now: i64) -> ClockState {
    match seen.map(|seen| now.saturating_sub(seen)) {
        None => ClockState::Believed,
        Some(step) if step > LONGEST_STEP => ClockState::Ahead,
        Some(step) if step < -LONGEST_STEP => ClockState::Behind,
        Some(_) => ClockState::Believed,
    }
}

/// Returns true if the time of the log follows the clock, which is at `now`, in microseconds since 1970.
pub(super) fn is_believed(seen: Option<i64>, now: i64) -> bool {
    seen.is_some() && clock_state(seen, now) == ClockState::Believed
}

/// Returns the time that the log goes by when the clock has `now`, both in microseconds since 1970.
pub fn believed_time(seen: Option<i64>, now: i64) -> i64 {
    match clock_state(seen, now) {
        ClockState::Believed => now,
        ClockState::Ahead | ClockState::Behind => seen.unwrap_or(now),
    }
}

/// Returns an error if the clock is so far behind that outcomes would not stand as long as they should, and warns if
/// it is ahead. Both times are in microseconds since 1970; `clock` is what the warning calls it.
///
/// # Errors
/// `ClockBehind`.
pub fn check_clock(
    seen: Option<i64>,
    now: i64,
    warnings: &WarningLog,
    clock: &str,
) -> Result<(), AuditError> {
    let newest = seen.and_then(|seen| Timestamp::from_microsecond(seen).ok()).unwrap_or_default();
    match clock_state(seen, now) {
        ClockState::Believed => drop(warnings.resolve("clock")),
        ClockState::Ahead => {
            if warnings.is_new("clock", "ahead") {
                tracing::warn!(target: "cofferdam::audit", newest_entry = %newest, "{clock} is more than a day after the newest entry: no idempotency key expires until `cofferdam audit clock --accept`");
            }
        }
        ClockState::Behind => {
            let what = format_args!("the newest entry is of {newest:.0}");
            return Err(AuditError::new(AuditErrorKind::ClockBehind, what));
        }
    }
    Ok(())
}

/// Returns the time of a log whose newest entry is of `seen`, in microseconds since 1970, when the clock has `clock`.
pub fn log_time_at(seen: Option<i64>, clock: Timestamp) -> LogTime {
    let now = clock.as_microsecond();
    let time = Timestamp::from_microsecond(believed_time(seen, now)).unwrap_or(clock);
    LogTime { time, clock, is_believed: clock_state(seen, now) == ClockState::Believed }
}

/// Goes on to `now`, if that is believed, and returns the time that the log goes by.
pub(super) fn advance(keys: &mut KeyChange<'_>, now: i64) -> i64 {
    let (seen, time) = (keys.seen(), believed_time(keys.seen(), now));
    if seen.is_none_or(|seen| seen < time) {
        keys.see(time);
    }
    time
}

/// Returns the time that the operator accepts in an entry, or false with the time if that failed.
pub(super) fn accepted_time(line: &JournalLine<'_>) -> Option<(i64, bool)> {
    let RecordedEvent::Operator(event) = line.log.as_ref()?.event() else { return None };
    Some((time_in(&event)?, !event.failed))
}

/// Adds what follows in a journal to the times that operators accepted in it.
pub(super) fn add_accepted(times: &mut Vec<i64>, following: Vec<(i64, bool)>) {
    for (time, is_accepted) in following {
        match is_accepted {
            true => times.push(time),
            false => times.retain(|accepted| *accepted != time),
        }
    }
}

/// Returns the time that the operator accepts with this recorded change, in microseconds since 1970.
pub fn accepted_time_in(event: &OperatorEvent<'_>) -> Option<i64> {
    time_in(event).filter(|_| !event.failed)
}

fn time_in(event: &OperatorEvent<'_>) -> Option<i64> {
    let state = event.after.as_ref().filter(|_| event.action == OperatorAction::Clock)?;
    state.time.as_deref()?.parse::<Timestamp>().ok().map(Timestamp::as_microsecond)
}

impl LogWriter {
    /// Brings the time that the log goes by up to the entries of the journals, as far as the clock is ahead of it.
    ///
    /// # Errors
    /// `ClockBehind`: nothing may run under a key.
    pub(super) fn follow_clock(&self, table: &KeyTable, now: Timestamp) -> Result<(), AuditError> {
        let now = now.as_microsecond();
        let mut seen = table.seen()?;
        if seen.is_none() || clock_state(seen, now) == ClockState::Ahead {
            // Calls without a key do not change the table.
            let reached = reached(self.root(), seen)?;
            seen = table.change(|keys| {
                if let Some(reached) =
                    reached.filter(|reached| keys.seen().is_none_or(|seen| seen < *reached))
                {
                    keys.see(reached);
                }
                Ok(keys.seen())
            })?;
        }
        check_clock(seen, now, &self.maintenance.warnings, "the clock")
    }

    /// Returns the time that the log goes by, and whether the clock is believed.
    pub(super) fn log_time(&self) -> Result<LogTime, AuditError> {
        let (keys, clock) = (self.keys()?, self.clock.timestamp());
        match self.follow_clock(&keys.table, clock) {
            Err(error) if error.kind() != AuditErrorKind::ClockBehind => return Err(error),
            _ => {}
        }
        Ok(log_time_at(keys.table.seen()?, clock))
    }

    /// Takes over the time that the operator accepts with a recorded change.
    pub(super) fn accept_time(&self, time: i64) -> Result<(), AuditError> {
        self.keys()?.table.change(|keys| {
            keys.see(time);
            Ok(())
        })
    }
}

/// Returns the newest time that entries lead to from `seen`, or from the oldest entry, without a gap of more than a day.
fn reached(root: &Path, seen: Option<i64>) -> Result<Option<i64>, AuditError> {
    let mut spans = Vec::new();
    for writer in writer_dir::names(root)? {
        let dir = root.join(writer);
        for first in segments(&dir)? {
            spans.extend(span(&dir, first)?);
        }
    }
    spans.sort_unstable();
    let start = seen.or_else(|| spans.first().map(|(begin, _)| *begin));
    Ok(start.map(|start| {
        spans.iter().fold(start, |reached, (begin, end)| match begin.saturating_sub(reached) > LONGEST_STEP {
            true => reached,
            false => reached.max(*end),
        })
    }))
}

/// Returns when a segment was begun, and the time of its last entry: at most a day later, since the next segment is begun
/// then.
fn span(dir: &Path, first: u64) -> Result<Option<(i64, i64)>, AuditError> {
    let time =
        |line: &[u8]| JournalLine::read(line).ok().and_then(|line| line.at()).map(Timestamp::as_microsecond);
    let Some(mut reader) = SegmentReader::open_regular(dir, first)? else { return Ok(None) };
    let Some(begin) = reader.next()?.and_then(|line| time(line.bytes)) else { return Ok(None) };
    let end = last_line(dir, first)?.and_then(|line| time(&line)).unwrap_or(begin);
    Ok(Some((begin, end.clamp(begin, begin.saturating_add(LONGEST_STEP)))))
}
