//! `top`: the state of the host in a terminal, live.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use cofferdam_audit::DurationPercentiles;
use cofferdam_core::amounts::span;
use cofferdam_core::limits::parse_time;
use cofferdam_server::http_api::{
    ConnectorCircuit, ConnectorRateLimit, HealthReport, HistoryReport, HistoryStepView, HttpApi, LogUsage,
    VerificationResult,
};
use cofferdam_server::server::Shutdown;
use serde::Serialize;

use super::time_format::format_duration;
use crate::layout::{Page, TextStyle, bytes};
use crate::report::CommandError;
use crate::runtime;
use crate::session::Session;

const EXAMPLES: &str = "\
Calls are those of all processes of the home. Rates and percentiles are of the hour that has begun, beside those of the \
last 24; `now` is what ended since the line before. Rate limits are as configured: each process counts its \
requests against them itself. With --format json each reading is a line. `cofferdam serve --console` has the same as \
a page, with charts and with the use of the rate limits by its process.

Examples:
  cofferdam top
  cofferdam top --interval 10s
  cofferdam top --once --format json";

/// Moves the cursor to the upper left corner, and clears what follows.
const REDRAW: &[u8] = b"\x1b[H\x1b[J";

/// The most failures, circuits and rate limits that are listed.
const LISTED: usize = 10;

/// Shows the state of the host until it is stopped: calls, failures, circuits, and what waits for an operator.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The time between two readings, from 1s to 1h.
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "2s")]
    interval: Duration,

    /// Reads once, and ends.
    #[arg(long)]
    once: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    let range = Duration::from_secs(1)..=Duration::from_secs(3_600);
    parse_time(text)
        .filter(|time| range.contains(time))
        .ok_or_else(|| "write it like 2s, from 1s to 1h".to_owned())
}

/// One reading.
#[derive(Debug, Serialize)]
struct Reading {
    /// The calls that ended since the last reading, for each second; none in the first one.
    calls_per_second: Option<f64>,
    /// The number of calls that wait for the approval of a person.
    waiting_approvals: usize,
    /// The hours, the newest last.
    history: HistoryReport,
    health: HealthReport,
}

impl Reading {
    async fn take(api: &HttpApi) -> Result<Self, CommandError> {
        let pairs = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect::<Vec<_>>()
        };
        Ok(Self {
            calls_per_second: None,
            waiting_approvals: api.approvals(pairs(&[("limit", "1")])).await?.waiting,
            history: api.history(pairs(&[("step", "hour"), ("steps", "24")])).await?,
            health: api.health().await?,
        })
    }

    /// Returns the number of calls since the beginning of an hour, as far as the history goes.
    fn ended_since(&self, hour: &str) -> u64 {
        let steps = self.history.steps.iter().filter(|step| *step.at >= *hour);
        steps.map(|step| step.calls).sum()
    }

    /// Sets the rate since an earlier reading. Both are counted from the same hour.
    fn compare(&mut self, before: &Self, time: Duration) {
        let Some(hour) = before.history.steps.last() else { return };
        let ended = self.ended_since(&hour.at).saturating_sub(hour.calls);
        self.calls_per_second = Some(ended as f64 / time.as_secs_f64());
    }

    fn show(&self, page: &mut Page) {
        let steps = &self.history.steps;
        page.field("at", &self.health.at);
        let now = self.calls_per_second.map(|rate| format!("{rate:.1} a second now, ")).unwrap_or_default();
        let day: u64 = steps.iter().map(|step| step.calls).sum();
        let hour = steps.last().map_or(0, |step| step.calls);
        page.field("calls", &format!("{now}{hour} in this hour, {day} in 24 hours"));
        let failed: u64 = steps.iter().map(|step| step.failed).sum();
        let tone = if failed == 0 { TextStyle::Good } else { TextStyle::Doubtful };
        let failed_now = steps.last().map_or(0, |step| step.failed);
        page.styled_field("failed", tone, &format!("{failed_now} in this hour, {failed} in 24 hours"));
        if let Some(step) = steps.last().filter(|step| step.calls > 0) {
            page.field("durations", &durations(&step.durations));
        }
        self.waiting(page);
        self.log(page);
        let failures = failures(steps);
        if !failures.is_empty() {
            page.heading("FAILURES OF 24 HOURS");
            page.table(["STATUS", "CLASS", "LAYER", "CALLS"], failures);
        }
        let circuits = self.health.circuits.as_deref().unwrap_or_default();
        if !circuits.is_empty() {
            page.heading("CIRCUITS");
            let rows = circuits.iter().take(LISTED).map(circuit).collect();
            page.table(["CONNECTOR", "HOST", "STATE", "FAILURES", "CAUSE"], rows);
        }
        if !self.health.rate_limits.is_empty() {
            page.heading("RATE LIMITS AT EACH HOST");
            let rows = self.health.rate_limits.iter().take(LISTED).map(rate_limit).collect();
            page.table(["CONNECTOR", "REQUESTS", "IN", "AT ONCE"], rows);
        }
    }

    /// Shows what an operator has to decide.
    fn waiting(&self, page: &mut Page) {
        let waits = [
            ("interrupted", self.health.interrupted.count, "cofferdam recover list"),
            ("undecided", self.health.undecided_keys.count, "cofferdam recover list"),
            ("approvals", self.waiting_approvals as u64, "cofferdam approvals list"),
        ];
        for (name, count, command) in waits {
            match count {
                0 => page.field(name, "0"),
                count => page.styled_field(name, TextStyle::Doubtful, &format!("{count}: {command}")),
            };
        }
    }

    fn log(&self, page: &mut Page) {
        if let Some(log) = &self.health.log {
            let oldest = log.oldest.as_deref().map(|at| format!(", since {at}")).unwrap_or_default();
            page.field("audit log", &format!("{}{oldest}", bytes(log.bytes)));
            page.field("retention", &retention(log));
        }
        match &self.health.verification {
            Some(VerificationResult { at, holds: true, .. }) => page.field("verified", at),
            Some(VerificationResult { at, findings, .. }) => {
                page.styled_field("verified", TextStyle::Bad, &format!("{at}: {findings} findings"))
            }
            None => page.field("verified", "never: cofferdam audit verify"),
        };
    }
}

fn durations(durations: &DurationPercentiles) -> String {
    let named = durations.named().map(|(name, micros)| format!("{name} {}", format_duration(micros)));
    named.collect::<Vec<_>>().join(", ")
}

/// Returns for how long calls are kept, and when the oldest may be removed.
fn retention(log: &LogUsage) -> String {
    let Some(seconds) = log.retention_seconds else { return "until an operator removes calls".to_owned() };
    let part = |title: &str, at: &Option<String>| at.as_ref().map(|at| format!("{title} {at}"));
    let parts = [
        Some(span(seconds)),
        part("old calls were last looked for", &log.retained),
        part("the oldest may be removed from", &log.oldest_expires),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Returns the rows of the failures, the most frequent first.
fn failures(steps: &[HistoryStepView]) -> Vec<[String; 4]> {
    let mut counts = BTreeMap::<_, u64>::new();
    for failure in steps.iter().flat_map(|step| &step.failures) {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let key = [failure.status.clone(), text(&failure.class), text(&failure.boundary)];
        *counts.entry(key).or_default() += failure.calls;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, calls)| std::cmp::Reverse(*calls));
    let row = |([status, class, layer], calls): ([String; 3], u64)| [status, class, layer, calls.to_string()];
    counts.into_iter().take(LISTED).map(row).collect()
}

fn circuit(circuit: &ConnectorCircuit) -> [String; 5] {
    [
        circuit.connector.clone(),
        circuit.host.clone(),
        circuit.state.clone(),
        circuit.failures.to_string(),
        circuit.cause.clone().unwrap_or_default(),
    ]
}

/// Returns the row of a rate limit, without its use: this process sends no requests.
fn rate_limit(limit: &ConnectorRateLimit) -> [String; 4] {
    [limit.connector.clone(), limit.requests.to_string(), span(limit.seconds), limit.burst.to_string()]
}

/// Shows readings until it is stopped.
pub(crate) fn run(args: &Args, session: &Session<'_>) -> Result<(), CommandError> {
    let api = HttpApi::new(session.host()?, Shutdown::new());
    let redraws = !args.once && !session.ui.json() && std::io::stdout().is_terminal();
    let readings = async {
        let mut before: Option<(Instant, Reading)> = None;
        loop {
            let mut reading = Reading::take(&api).await?;
            let at = Instant::now();
            if let Some((earlier, before)) = &before {
                reading.compare(before, at.saturating_duration_since(*earlier));
            }
            if redraws {
                session.ui.raw(REDRAW)?;
            }
            session.ui.result(&reading, |page| reading.show(page))?;
            if args.once {
                return Ok(());
            }
            before = Some((at, reading));
            tokio::time::sleep(args.interval).await;
        }
    };
    match runtime::block_on(readings) {
        // That is how it is meant to end.
        Err(CommandError::Interrupted) if !args.once => Ok(()),
        outcome => outcome,
    }
}
