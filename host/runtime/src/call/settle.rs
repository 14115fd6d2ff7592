//! What a candidate's circuits say and hear of its attempts.

use std::sync::Arc;

use cofferdam_core::clock::Clock;
use cofferdam_core::event::Step;
use cofferdam_egress::resilience::Visit;

use super::record::Record;

/// Whether the circuits forbid another attempt now.
pub(super) fn forbidden(visit: Option<&Arc<Visit>>, clock: &dyn Clock) -> bool {
    visit.is_some_and(|visit| visit.forbids_retry(clock.timestamp()))
}

/// Counts what the candidate's attempts saw, and tells what that changed.
pub(super) fn settle(visit: Option<&Arc<Visit>>, clock: &dyn Clock, connector: &str, record: &mut Record) {
    if let Some(visit) = visit {
        visit.settle(clock.timestamp());
        tell_changes(visit, connector, record);
    }
}

/// Tells what changed.
pub(super) fn tell_changes(visit: &Visit, connector: &str, record: &mut Record) {
    for change in visit.take_changes() {
        let (host, from, to) = (change.host.as_str(), change.from, change.to);
        record.step(Step::CircuitChanged { connector, host, from, to, cause: change.cause });
    }
}
