//! The runs of actions according to journals, which tell the outcomes of steps that stand no more.

use std::collections::{HashMap, HashSet};

use super::keys::KeyChange;
use crate::error::AuditError;

/// A key by its SHA-256.
type Key = [u8; 32];

/// A call.
type Call = [u8; 16];

/// The runs of actions under keys, and their steps, in the entries that are applied to a key table.
#[derive(Default)]
pub(super) struct ActionRuns {
    /// By run, the key of its action, and when it was received, in microseconds since 1970.
    runs: HashMap<Call, (Key, i64)>,
    /// The runs whose value was kept.
    valued: HashSet<Call>,
    /// The keys of steps, each with the step's call, and the run.
    steps: Vec<(Key, Call, Call)>,
}

impl ActionRuns {
    /// Adds a run under this key.
    pub(super) fn begin(&mut self, run: Call, key: Key, at: i64) {
        self.runs.insert(run, (key, at));
    }

    /// Adds a step of a run, under a key of its own.
    pub(super) fn begin_step(&mut self, key: Key, call: Call, run: Call) {
        self.steps.push((key, call, run));
    }

    /// Notes that the value of a call was kept.
    pub(super) fn end_with_value(&mut self, call: Call) {
        if self.runs.contains_key(&call) {
            self.valued.insert(call);
        }
    }

    /// Removes the outcomes of steps that a claim made void: the value of their action had expired, and it began
    /// anew. No entry says so.
    pub(super) fn remove_void(&self, keys: &mut KeyChange<'_>) -> Result<(), AuditError> {
        let newest = newest_of(self.runs.values().copied());
        let valued = self.valued.iter().filter_map(|run| self.runs.get(run)).copied();
        // A run under the key of a value begins once that has expired.
        let valued = newest_of(valued.filter(|(key, at)| newest.get(key).is_some_and(|newest| at < newest)));
        for (key, call, run) in &self.steps {
            let Some((of, at)) = self.runs.get(run) else { continue };
            let (Some(valued), Some(anew)) = (valued.get(of), newest.get(of)) else { continue };
            let is_void = at <= valued
                && keys.get(key)?.is_some_and(|stored| stored.call == *call && stored.has_expired(*anew));
            if is_void {
                keys.remove(key)?;
            }
        }
        Ok(())
    }
}

/// Returns by key when the newest of these runs was received.
fn newest_of(runs: impl Iterator<Item = (Key, i64)>) -> HashMap<Key, i64> {
    let mut newest = HashMap::new();
    for (key, at) in runs {
        let known = newest.entry(key).or_insert(at);
        *known = at.max(*known);
    }
    newest
}
