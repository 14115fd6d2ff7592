//! The names in labels, whose number is limited for the sake of the monitoring system.
//!
//! A caller may request any text as a name, and every new text would be a new permanent series. So a name becomes a
//! label only once it has run, which requires that it is installed and exists. Beyond a limit every new name is
//! `other`.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};

use super::labels::OperationLabels;

/// The most operations, over all connectors, that have labels of their own.
const OPERATIONS: usize = 1_000;

/// The most hosts that have labels of their own.
const HOSTS: usize = 500;

/// The label for all names that have none of their own.
const OTHER: &str = "other";

/// The names in use.
pub(super) struct LabelNames {
    /// The operations of each connector.
    operations: RwLock<HashMap<Arc<str>, HashSet<Arc<str>>>>,
    hosts: RwLock<HashSet<Arc<str>>>,
    other: Arc<str>,
}

impl Default for LabelNames {
    fn default() -> Self {
        Self { operations: RwLock::default(), hosts: RwLock::default(), other: OTHER.into() }
    }
}

impl LabelNames {
    /// Returns the labels of an operation that may never have run. `connector` is a name, or `name@version`.
    pub(super) fn of(&self, connector: &str, op: &str) -> OperationLabels {
        let operations = self.operations.read().unwrap_or_else(PoisonError::into_inner);
        let Some((connector, ops)) = operations.get_key_value(name(connector)) else {
            return OperationLabels { connector: Arc::clone(&self.other), op: Arc::clone(&self.other) };
        };
        let op = ops.get(op).unwrap_or(&self.other);
        OperationLabels { connector: Arc::clone(connector), op: Arc::clone(op) }
    }

    /// Returns the labels of an operation that runs now.
    pub(super) fn running(&self, connector: &str, op: &str) -> OperationLabels {
        let known = self.of(connector, op);
        if *known.op != *OTHER {
            return known;
        }
        let mut operations = self.operations.write().unwrap_or_else(PoisonError::into_inner);
        if operations.values().map(HashSet::len).sum::<usize>() < OPERATIONS {
            operations.entry(name(connector).into()).or_default().insert(op.into());
        }
        drop(operations);
        self.of(connector, op)
    }

    /// Returns the label of a connector that may never have run.
    pub(super) fn connector(&self, connector: &str) -> Arc<str> {
        self.of(connector, OTHER).connector
    }

    /// Returns the label of a host that a request was sent to.
    pub(super) fn host(&self, host: &str) -> Arc<str> {
        if let Some(host) = self.hosts.read().unwrap_or_else(PoisonError::into_inner).get(host) {
            return Arc::clone(host);
        }
        let mut hosts = self.hosts.write().unwrap_or_else(PoisonError::into_inner);
        if hosts.len() >= HOSTS {
            return Arc::clone(&self.other);
        }
        let host: Arc<str> = host.into();
        hosts.insert(Arc::clone(&host));
        host
    }
}

/// Returns the name of a connector without its version, so that an update continues its series.
fn name(connector: &str) -> &str {
    connector.split('@').next().unwrap_or(connector)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::{HOSTS, LabelNames, OPERATIONS};

    fn shown(names: &LabelNames, connector: &str, op: &str) -> String {
        let of = names.of(connector, op);
        format!("{} {}", of.connector, of.op)
    }

    #[test]
    fn what_never_ran_is_other_however_often_it_is_asked_for() {
        let names = LabelNames::default();
        assert_eq!(shown(&names, "github://acme/a@1.0.0", "get"), "other other");
        names.running("github://acme/a@1.0.0", "get");
        assert_eq!(shown(&names, "github://acme/a@2.0.0", "get"), "github://acme/a get");
        assert_eq!(shown(&names, "github://acme/a@1.0.0", "'; drop"), "github://acme/a other");
        assert_eq!(shown(&names, "github://acme/b@1.0.0", "get"), "other other");
        assert_eq!(&*names.connector("github://acme/a"), "github://acme/a");
    }

    #[test]
    fn past_the_bound_all_that_is_new_is_other_and_the_known_stay() {
        let names = LabelNames::default();
        for number in 0..OPERATIONS * 2 {
            names.running(&format!("github://acme/c{}@1.0.0", number / 10), &format!("op{}", number % 10));
        }
        assert_eq!(shown(&names, "github://acme/c0@1.0.0", "op9"), "github://acme/c0 op9");
        let last = format!("github://acme/c{}@1.0.0", OPERATIONS / 10 - 1);
        assert_eq!(shown(&names, &last, "op9"), format!("{} op9", last.trim_end_matches("@1.0.0")));
        assert_eq!(shown(&names, &format!("github://acme/c{}@1.0.0", OPERATIONS / 10), "op0"), "other other");
        let hosts: Vec<_> = (0..HOSTS + 1).map(|number| names.host(&format!("h{number}:443"))).collect();
        assert_eq!(&**hosts.last().unwrap(), "other");
        assert_eq!(&*names.host("h7:443"), "h7:443");
    }
}
