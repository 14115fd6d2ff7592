//! Exchanges the results of a candidate's attempts with its circuits.

use std::sync::Arc;

use cofferdam_core::clock::Clock;
use cofferdam_core::event::EventKind;
use cofferdam_egress::resilience::BreakerScope;

use super::record::Record;

/// True if the circuits forbid another attempt now.
pub(super) fn forbidden(visit: Option<&Arc<BreakerScope>>, clock: &dyn Clock) -> bool {
    visit.is_some_and(|visit| visit.forbids_retry(clock.timestamp()))
}

/// Counts the results of the candidate's attempts, and reports the circuit changes that follow.
pub(super) fn settle(
    visit: Option<&Arc<BreakerScope>>,
    clock: &dyn Clock,
    connector: &str,
    record: &mut Record,
) {
    if let Some(visit) = visit {
        visit.settle(clock.timestamp());
        tell_changes(visit, connector, record);
    }
}

/// Reports the circuit changes.
pub(super) fn tell_changes(visit: &BreakerScope, connector: &str, record: &mut Record) {
    for change in visit.take_changes() {
        let (host, from, to) = (change.host.as_str(), change.from, change.to);
        record.step(EventKind::CircuitChanged { connector, host, from, to, cause: change.cause });
    }
}
