//! Combines several listeners into one. A panic of one does not keep the others from being notified.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use super::{Event, Listener};

/// Combines `listeners`, which are notified in their order; `None` if there are none.
pub fn fanout(mut listeners: Vec<Arc<dyn Listener>>) -> Option<Arc<dyn Listener>> {
    match listeners.len() {
        0 | 1 => listeners.pop(),
        _ => Some(Arc::new(ListenerFanout(listeners))),
    }
}

struct ListenerFanout(Vec<Arc<dyn Listener>>);

impl Listener for ListenerFanout {
    fn event(&self, event: &Event<'_>) {
        let mut panicked = None;
        for listener in &self.0 {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| listener.event(event))) {
                panicked = Some(panic);
            }
        }
        // The panic continues after all listeners were notified.
        if let Some(panic) = panicked {
            resume_unwind(panic);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]
    use std::sync::Mutex;

    use super::*;
    use crate::event::EventKind;
    use crate::failure::AuditId;

    struct RecordingListener(&'static str, Arc<Mutex<Vec<&'static str>>>);

    impl Listener for RecordingListener {
        fn event(&self, _: &Event<'_>) {
            self.1.lock().unwrap().push(self.0);
            assert_ne!(self.0, "panics");
        }
    }

    #[test]
    fn a_panicking_listener_stops_no_other() {
        let heard = Arc::default();
        let hears = |name| Arc::new(RecordingListener(name, Arc::clone(&heard))) as Arc<dyn Listener>;
        let all = fanout(["first", "panics", "last"].map(hears).into()).unwrap();
        let (id, step) = (AuditId::mint(), EventKind::Received { connector: "c", op: "o" });
        let told = catch_unwind(AssertUnwindSafe(|| all.event(&Event::new(&id, 1, step))));
        assert!(told.is_err());
        assert_eq!(*heard.lock().unwrap(), ["first", "panics", "last"]);
        assert!(fanout(Vec::new()).is_none());
    }
}
