//! Log lines on standard error: warnings unless more is asked for.

use tracing_subscriber::EnvFilter;

use super::args::{Globals, LogFormat};
use super::report::Stop;
use crate::error::{HostError, HostErrorKind};
use crate::failure::safe_line;

/// Starts logging: what `RUST_LOG` says, else what `-v` and `-q` say. The record of calls is at `info`.
pub(super) fn start(globals: &Globals) -> Result<(), Stop> {
    let asked = std::env::var("RUST_LOG").ok().filter(|text| !text.trim().is_empty());
    let by_flags = match (globals.quiet, globals.verbose) {
        (true, _) => "error",
        (false, 0) => "warn",
        (false, 1) => "warn,cofferdam=info",
        (false, 2) => "info,cofferdam=debug",
        (false, _) => "info,cofferdam=trace",
    };
    let text = asked.as_deref().unwrap_or(by_flags);
    let filter = EnvFilter::builder().parse(text).map_err(|error| {
        let message = format!("RUST_LOG is `{}`, which is not a filter of log lines.", safe_line(text, 100));
        HostError::new(HostErrorKind::Configuration, message)
            .hint("Write it like RUST_LOG=cofferdam=debug, or unset it.")
            .because(error)
    })?;
    let color = anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match globals.log_format {
        LogFormat::Text => lines.with_ansi(color).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    // Only a program that has its own subscriber already could make this fail, and it may keep it.
    drop(started);
    Ok(())
}
