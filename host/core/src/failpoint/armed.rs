//! The armed failpoints, parsed from a text like `open.committed:3=kill,settle=pause`.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// All failpoints, in the order in which a call passes them; then those of the writer and of the end of the
/// process.
pub const NAMES: [&str; 37] = [
    "received",
    "admitted",
    "approval.used",
    "submitted",
    "open.durable",
    "open.unheard",
    "attempt.begins",
    "request.answered",
    "attempt.ended",
    "append.durable",
    "close.durable",
    "step.begins",
    "step.ended",
    "outcome.told",
    "settle",
    "before.commit",
    "after.commit",
    "open.committed",
    "close.committed",
    "checkpoint.before",
    "checkpoint.after",
    "checkpoint.written",
    "state.before",
    "state.written",
    "vault.written",
    "accept.committed",
    "prune.signed",
    "pull.signed",
    "skip.open",
    "skip.close",
    "close.early",
    "early.told",
    "key.unchecked",
    "job.stored",
    "job.begins",
    "job.ended",
    "job.acknowledges",
];

/// The length of a pause.
const PAUSE: Duration = Duration::from_secs(3600);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FailpointAction {
    Kill,
    Pause,
    Skip,
    Panic,
}

#[derive(Debug)]
struct ArmedFailpoint {
    name: &'static str,
    /// The number of passes before it acts.
    left: AtomicU32,
    action: FailpointAction,
}

static ARMED: OnceLock<Vec<ArmedFailpoint>> = OnceLock::new();

/// Arms the failpoints in `text`, once a process: `NAME[:N]=ACTION`, separated by commas. The action (`kill`,
/// `pause`, `panic` or `skip`) is executed when the failpoint is passed for the N-th time (by default the
/// first); `skip` also every time after that.
///
/// # Errors
/// The part of the text that is not understood.
pub fn arm(text: &str) -> Result<(), String> {
    let armed = text.split(',').filter(|part| !part.is_empty()).map(parse).collect::<Result<Vec<_>, _>>()?;
    ARMED.set(armed).map_err(|_| "they are armed already".to_owned())
}

fn parse(part: &str) -> Result<ArmedFailpoint, String> {
    let wrong = |what: &str| format!("`{part}`: {what}; write it like open.committed:3=kill");
    let (place, action) = part.split_once('=').ok_or_else(|| wrong("no action"))?;
    let (name, count) = place.split_once(':').unwrap_or((place, "1"));
    let name = NAMES.into_iter().find(|known| *known == name).ok_or_else(|| wrong("no such place"))?;
    let count: u32 = count.parse().ok().filter(|count| *count > 0).ok_or_else(|| wrong("no such count"))?;
    let action = match action {
        "kill" => FailpointAction::Kill,
        "pause" => FailpointAction::Pause,
        "skip" => FailpointAction::Skip,
        "panic" => FailpointAction::Panic,
        _ => return Err(wrong("no such action")),
    };
    Ok(ArmedFailpoint { name, left: AtomicU32::new(count), action })
}

/// Passes a failpoint; returns whether the code behind it is to be skipped.
pub(super) fn pass(name: &'static str) -> bool {
    let Some(armed) = ARMED.get() else { return false };
    let mut skipped = false;
    for place in armed.iter().filter(|place| place.name == name) {
        let before = place.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        match (place.action, before) {
            (FailpointAction::Kill, Ok(1)) => kill(),
            (FailpointAction::Pause, Ok(1)) => std::thread::sleep(PAUSE),
            (FailpointAction::Panic, Ok(1)) => std::panic::resume_unwind(Box::new("a fail point")),
            (FailpointAction::Skip, Ok(1) | Err(_)) => skipped = true,
            _ => {}
        }
    }
    skipped
}

/// Acts like an operator's `kill -9`: nothing of the process runs after it.
fn kill() {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    // The signal is on its way; this thread must not continue meanwhile.
    loop {
        std::thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn a_failpoint_is_armed_with_count_and_action() {
        for (text, name, left, action) in [
            ("open.committed:3=kill", "open.committed", 3, FailpointAction::Kill),
            ("settle=pause", "settle", 1, FailpointAction::Pause),
            ("skip.open=skip", "skip.open", 1, FailpointAction::Skip),
        ] {
            let armed = parse(text).unwrap();
            let found = (armed.name, armed.left.load(Ordering::SeqCst), armed.action);
            assert_eq!(found, (name, left, action), "{text}");
        }
        for wrong in ["settle", "settled=kill", "settle:0=kill", "settle:x=kill", "settle=maim", "=kill"] {
            assert!(parse(wrong).unwrap_err().contains("write it like"), "{wrong}");
        }
    }

    #[test]
    fn an_unarmed_failpoint_does_nothing() {
        assert!(!pass("received"));
    }
}
