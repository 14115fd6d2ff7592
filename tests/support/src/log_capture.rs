//! The operator's log, captured as it is written, so that tests can compare it with the envelope.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};

/// One event: its target, its message and its fields as text.
#[derive(Debug, Clone, Default)]
pub struct Record {
    /// The target.
    pub target: String,
    /// The fields, `message` among them.
    pub fields: BTreeMap<String, String>,
}

impl Record {
    /// A field, if it is there.
    #[must_use]
    pub fn get(&self, field: &str) -> Option<&str> {
        self.fields.get(field).map(String::as_str)
    }
}

static CAUGHT: Mutex<Vec<Record>> = Mutex::new(Vec::new());

/// Starts to catch what this process traces from the crate, and warnings of others; again does nothing.
pub fn catch() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        // If another subscriber is set there is nothing to capture, and the tests that read it fail.
        drop(tracing::subscriber::set_global_default(tracing_subscriber::registry().with(Catch)));
    });
}

/// The log events that `wanted` accepts, in the order of writing.
pub fn records(wanted: impl Fn(&Record) -> bool) -> Vec<Record> {
    let caught = CAUGHT.lock().unwrap_or_else(PoisonError::into_inner);
    caught.iter().filter(|record| wanted(record)).cloned().collect()
}

/// The log event of the call `audit_id`.
///
/// # Panics
/// There is not exactly one.
#[must_use]
pub fn record_of(audit_id: &str) -> Record {
    let is_it =
        |record: &Record| record.target == "cofferdam::record" && record.get("audit_id") == Some(audit_id);
    let mut found = records(|record| is_it(record) && record.get("outcome").is_some());
    assert_eq!(found.len(), 1, "{audit_id} has {} records", found.len());
    found.remove(0)
}

struct Catch;

impl<S: Subscriber> Layer<S> for Catch {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let target = event.metadata().target();
        // Of libraries what an operator sees by default.
        if !target.starts_with("cofferdam") && *event.metadata().level() > tracing::Level::WARN {
            return;
        }
        let mut record = Record { target: target.to_owned(), fields: BTreeMap::new() };
        event.record(&mut Fields(&mut record.fields));
        CAUGHT.lock().unwrap_or_else(PoisonError::into_inner).push(record);
    }
}

struct Fields<'a>(&'a mut BTreeMap<String, String>);

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}
