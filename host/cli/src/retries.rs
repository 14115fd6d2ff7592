//! Retries on the command line: which profile is asked for, and a line for each wait.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::{PossibleValue, TypedValueParser};
use cofferdam_core::error::HostError;
use cofferdam_core::event::{DelaySource, Event, EventKind, Listener, shown_wait};
use cofferdam_egress::resilience::{PROFILES, RetryProfile};
use cofferdam_runtime::host::Host;

use super::files;
use super::progress;
use super::ui::Ui;

/// Reads the name of a profile, or `@FILE`. Which names there are only the host knows, since the operator may have
/// more; shells complete the built-in ones.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProfileName;

impl TypedValueParser for ProfileName {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<String, clap::Error> {
        clap::builder::NonEmptyStringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(PROFILES.into_iter().map(PossibleValue::new)))
    }
}

/// The profile of this name, or in the file after the `@`.
pub(super) fn profile(host: &Host, text: &str) -> Result<Arc<RetryProfile>, HostError> {
    let Some(path) = text.strip_prefix('@') else { return host.profile(text) };
    let path = Path::new(path);
    let text = files::read_text("The retry profile", path)?;
    RetryProfile::parse(&files::shown(path), &text).map_err(files::document_error)
}

/// The shortest wait for a rate limit that is reported.
const NOTICED: Duration = Duration::from_millis(500);

/// Says on standard error that a call waits, when it does.
pub(super) struct WaitReporter(pub(super) Ui);

impl Listener for WaitReporter {
    fn event(&self, event: &Event<'_>) {
        // With -v the log says it.
        if self.0.verbose() {
            return;
        }
        let line = match event.kind {
            EventKind::RetryScheduled { failure, retry, of, delay, wait, .. } => {
                let why = match wait {
                    DelaySource::Backoff => "",
                    DelaySource::RetryAfter => ", as the service asks",
                };
                format!("{failure} Retry {retry}/{of} in {}{why}", shown_wait(delay))
            }
            EventKind::RateDelayed { host, delay } if delay >= NOTICED => {
                format!(
                    "A request to {host} has its turn in {}: the rate limit in config.toml",
                    shown_wait(delay)
                )
            }
            _ => return,
        };
        progress::without_spinner(|| self.0.note(&line));
    }
}
