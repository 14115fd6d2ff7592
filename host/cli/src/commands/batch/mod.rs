//! `call --each`: one call for each line of a file, several at a time, each outcome a line of its own.

mod line;

use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;

use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::failpoint;
use cofferdam_runtime::call::{Call, CallResult, Cancellation, Report};
use cofferdam_runtime::host::Host;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::JoinSet;
use tokio::time::{Duration, MissedTickBehavior, interval};

use crate::exit_codes::exit_code;
use crate::report::{CommandError, is_logged};
use crate::session::Session;
use crate::ui::Ui;
use crate::{files, runtime};
use line::BatchLine;

/// The interval between two progress notes.
const NEWS: Duration = Duration::from_secs(5);

/// A line with its number, or why it is none.
type BatchJob = (u64, Result<BatchLine, HostError>);

/// The result of a line.
struct BatchResult {
    line: u64,
    outcome: Result<String, Error>,
    /// None where the line asked for no call.
    report: Option<Report>,
}

/// The counts of all lines so far.
#[derive(Default)]
struct BatchTally {
    values: u64,
    failed: u64,
    /// The first line that failed, and its exit code.
    first: Option<(u64, u8)>,
    /// Why nothing more can be printed.
    unprinted: Option<CommandError>,
}

/// Makes `call` with the arguments of each line in the file at `path` (`-`: standard input), at most `at_once` at a
/// time.
pub(super) fn run(
    path: &Path,
    at_once: u32,
    call: Call,
    host: &Host,
    session: &Session<'_>,
) -> Result<(), CommandError> {
    let (cancellation, jobs) = (Cancellation::new(), lines(path, at_once)?);
    let call = call.cancelled_by(&cancellation);
    let running = run_all(host, &call, jobs, at_once as usize, &cancellation, session.ui);
    let (tally, stop) = runtime::block_on_call(host, &cancellation, running)?;
    session.ui.note(&tally.summary());
    let stop = tally.unprinted.map(CommandError::with_work_left).or(stop);
    if stop.is_some() {
        session.ui.note(
            "Ended before all lines were done. Lines with keys can be run again: what is done is replayed.",
        );
    }
    match (stop, tally.first) {
        (Some(stop), _) => Err(stop),
        (None, Some((_, code))) => Err(CommandError::Shown(code)),
        (None, None) => Ok(()),
    }
}

/// Reads the lines on a thread of its own, no further ahead than they are called.
fn lines(path: &Path, at_once: u32) -> Result<Receiver<BatchJob>, HostError> {
    let (jobs, received) = channel(at_once as usize);
    let tell = move |number, line| jobs.blocking_send((number, line)).is_ok();
    let place = path.to_owned();
    let reading: Box<dyn FnOnce() + Send> = match path == Path::new("-") {
        true => Box::new(move || line::read(io::stdin().lock(), Path::new("standard input"), tell)),
        false => {
            let file =
                File::open(path).map_err(|error| files::unreadable("The file of calls", path, error))?;
            Box::new(move || line::read(BufReader::new(file), &place, tell))
        }
    };
    let thread = std::thread::Builder::new().name("cofferdam-lines".into()).spawn(reading);
    thread.map_err(|error| {
        HostError::new(HostErrorKind::Internal, "No thread can be started.").with_source(error)
    })?;
    Ok(received)
}

async fn run_all(
    host: &Host,
    call: &Call,
    mut jobs: Receiver<BatchJob>,
    at_once: usize,
    cancellation: &Cancellation,
    ui: &Ui,
) -> BatchTally {
    let (mut running, mut tally, mut more) = (JoinSet::new(), BatchTally::default(), true);
    let mut news = interval(NEWS);
    news.set_missed_tick_behavior(MissedTickBehavior::Delay);
    news.tick().await;
    loop {
        tokio::select! {
            biased;
            () = cancellation.cancelled(), if more => more = false,
            Some(done) = running.join_next(), if !running.is_empty() => {
                tally.record(ui, done.unwrap_or_else(lost_result));
                if tally.unprinted.is_some() && more {
                    // The output is closed: start no more calls, and cancel the running ones.
                    cancellation.cancel();
                }
            }
            job = jobs.recv(), if more && running.len() < at_once => match job {
                None => more = false,
                Some((line, Err(error))) => tally.record(ui, BatchResult { line, outcome: Err(error.into()), report: None }),
                Some((line, Ok(asked))) => {
                    let mut call = call.clone().with_args(asked.args);
                    if let Some(key) = asked.key {
                        call = call.idempotency_key(key);
                    }
                    let host = host.clone();
                    running.spawn(async move {
                        let CallResult { outcome, report } = host.run_text(call).await;
                        let has_id = outcome.is_ok() || is_logged(&host, &report.audit_id) != Some(false);
                        BatchResult { line, outcome, report: Some(report).filter(|_| has_id) }
                    });
                }
            },
            _ = news.tick(), if more || !running.is_empty() => ui.note(&tally.summary()),
            else => return tally,
        }
    }
}

/// A call whose task is gone: the host's fault.
fn lost_result(error: tokio::task::JoinError) -> BatchResult {
    let error = HostError::new(HostErrorKind::Internal, "A call was lost.").with_source(error);
    BatchResult { line: 0, outcome: Err(error.into()), report: None }
}

impl BatchTally {
    /// Counts what came of a line, and prints it.
    fn record(&mut self, ui: &Ui, done: BatchResult) {
        match &done.outcome {
            Ok(_) => self.values += 1,
            Err(error) => {
                self.failed += 1;
                let first = self.first.is_none_or(|(line, _)| done.line < line);
                self.first = if first { Some((done.line, exit_code(error))) } else { self.first };
            }
        }
        if self.unprinted.is_none() {
            self.unprinted = ui.text_of_json(&done.to_json()).err();
            failpoint::pass("outcome.told");
        }
    }

    fn summary(&self) -> String {
        let lines = |n: u64| if n == 1 { "1 line".to_owned() } else { format!("{n} lines") };
        match self.first {
            None => format!("{} done", lines(self.values)),
            Some((line, _)) => format!(
                "{} done, {} of them failed, the first in line {line}",
                lines(self.values + self.failed),
                self.failed
            ),
        }
    }
}

impl BatchResult {
    /// One line of JSON. A value is copied byte for byte from the outcome.
    fn to_json(&self) -> String {
        // A line that is no call has no id: the audit log has nothing of it.
        let id = self.report.as_ref().map(|report| format!(",\"audit_id\":\"{}\"", report.audit_id));
        let id = id.unwrap_or_default();
        let replayed = self.report.as_ref().and_then(|report| report.replayed.as_ref());
        let replayed = replayed.map(|of| format!(",\"replayed\":\"{of}\"")).unwrap_or_default();
        let head = format!("{{\"line\":{}{id}{replayed}", self.line);
        match &self.outcome {
            Ok(value) => format!("{head},\"value\":{value}}}"),
            Err(error) => {
                // `{"error": {..}}`: strings and numbers, in which nothing can fail.
                let envelope = serde_json::to_string(error).unwrap_or_default();
                format!("{head},{}", envelope.strip_prefix('{').unwrap_or_default())
            }
        }
    }
}
