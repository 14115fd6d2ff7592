//! The names that labels may have, and no more of them than a monitor can bear.
//!
//! What a caller asks for may be anything, and every new text would be a new series for ever. So a name becomes a
//! label once it has run, which only what is installed and exists does; and past a bound all that is new is `other`.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};

use super::labels::Operation;

/// Operations of all connectors that have labels of their own.
const OPERATIONS: usize = 1_000;

/// Hosts that have labels of their own.
const HOSTS: usize = 500;

/// What is told under this name is about none that has a label of its own.
const OTHER: &str = "other";

/// The names in use.
pub(super) struct Names {
    /// Of each connector its operations.
    operations: RwLock<HashMap<Arc<str>, HashSet<Arc<str>>>>,
    hosts: RwLock<HashSet<Arc<str>>>,
    other: Arc<str>,
}

impl Default for Names {
    fn default() -> Self {
        Self { operations: RwLock::default(), hosts: RwLock::default(), other: OTHER.into() }
    }
}

impl Names {
    /// The labels of what may never have run. `connector` is a name, or `name@version`.
    pub(super) fn of(&self, connector: &str, op: &str) -> Operation {
        let operations = self.operations.read().unwrap_or_else(PoisonError::into_inner);
        let Some((connector, ops)) = operations.get_key_value(name(connector)) else {
            return Operation { connector: Arc::clone(&self.other), op: Arc::clone(&self.other) };
        };
        let op = ops.get(op).unwrap_or(&self.other);
        Operation { connector: Arc::clone(connector), op: Arc::clone(op) }
    }

    /// The labels of what runs now.
    pub(super) fn running(&self, connector: &str, op: &str) -> Operation {
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

    /// The label of a connector that may never have run.
    pub(super) fn connector(&self, connector: &str) -> Arc<str> {
        self.of(connector, OTHER).connector
    }

    /// The label of a host that was reached for.
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

/// The name of a connector without its version, so that an update continues its series.
fn name(connector: &str) -> &str {
    connector.split('@').next().unwrap_or(connector)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::{HOSTS, Names, OPERATIONS};

    fn shown(names: &Names, connector: &str, op: &str) -> String {
        let of = names.of(connector, op);
        format!("{} {}", of.connector, of.op)
    }

    #[test]
    fn what_never_ran_is_other_however_often_it_is_asked_for() {
        let names = Names::default();
        assert_eq!(shown(&names, "github://acme/a@1.0.0", "get"), "other other");
        names.running("github://acme/a@1.0.0", "get");
        assert_eq!(shown(&names, "github://acme/a@2.0.0", "get"), "github://acme/a get");
        assert_eq!(shown(&names, "github://acme/a@1.0.0", "'; drop"), "github://acme/a other");
        assert_eq!(shown(&names, "github://acme/b@1.0.0", "get"), "other other");
        assert_eq!(&*names.connector("github://acme/a"), "github://acme/a");
    }

    #[test]
    fn past_the_bound_all_that_is_new_is_other_and_the_known_stay() {
        let names = Names::default();
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
