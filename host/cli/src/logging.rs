//! Log lines on standard error: warnings unless more is asked for.

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::sanitize_line;
use cofferdam_runtime::call::SPANS;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::{FilterExt as _, filter_fn};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

use super::args::{GlobalArgs, LogFormat};
use super::report::CommandError;
use super::telemetry::{Telemetry, TelemetryStart};

/// The crates whose lines may be finer than `info`. Other libraries log requests before encryption, or what is signed,
/// and so would put credentials into a debug log.
const FINE: [&str; 2] = ["cofferdam", "rustls"];

/// Returns the filter of log lines without `RUST_LOG`. NATS's client logs errors that this program reports itself, or
/// recovers from.
fn filter_by_flags(is_quiet: bool, verbosity: u8) -> &'static str {
    match (is_quiet, verbosity) {
        (true, _) => "error,async_nats=off",
        (false, 0) => "warn,async_nats=off",
        (false, 1) => "warn,cofferdam=info,async_nats=off",
        (false, 2) => "info,cofferdam=debug,async_nats=off",
        (false, _) => "info,cofferdam=trace,async_nats=off",
    }
}

/// Returns whether lines of `target` at `level` may be written at all, whatever the filter says. Spans are for traces
/// only: lines name their call themselves.
fn may_write(target: &str, level: LevelFilter) -> bool {
    let crate_name = target.split("::").next().unwrap_or_default();
    // The SDK's lines have what clients send, and are written when clients want it, those of errors, too.
    let quoting = crate_name == "rmcp";
    target != SPANS && !quoting && (level <= LevelFilter::INFO || FINE.contains(&crate_name))
}

/// Starts logging as `RUST_LOG` says, else as `-v` and `-q` say. The events of calls are at `info`. Spans also go to
/// the collector that the environment names, if any.
pub(super) fn start(globals: &GlobalArgs) -> Result<Telemetry, CommandError> {
    let asked = std::env::var("RUST_LOG").ok().filter(|text| !text.trim().is_empty());
    let text = asked.as_deref().unwrap_or_else(|| filter_by_flags(globals.quiet, globals.verbose));
    let filter = EnvFilter::builder().parse(text).map_err(|error| {
        let message =
            format!("RUST_LOG is `{}`, which is not a filter of log lines.", sanitize_line(text, 100));
        HostError::new(HostErrorKind::Configuration, message)
            .with_hint("Write it like RUST_LOG=cofferdam=debug, or unset it.")
            .with_source(error)
    })?;
    let color = anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never;
    // One filter with a hint of its level: a line that is not written then costs nothing at its call site.
    let safe = filter_fn(|line| may_write(line.target(), (*line.level()).into()));
    let filter = safe.with_max_level_hint(LevelFilter::TRACE).and(filter);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = match globals.log_format {
        LogFormat::Text => lines.with_ansi(color).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let TelemetryStart { telemetry, spans, warning } = Telemetry::from_environment();
    let subscriber = tracing_subscriber::registry().with(spans);
    // Only a program that has its own subscriber already could make this fail, and it may keep it.
    drop(subscriber.with(lines.with_filter(filter)).try_init());
    if let Some(warning) = warning {
        tracing::warn!(target: "cofferdam::telemetry", "no spans are sent: {warning}");
    }
    Ok(telemetry)
}

#[cfg(test)]
mod tests {
    use super::{EnvFilter, LevelFilter, filter_by_flags, may_write};

    #[test]
    fn errors_of_the_nats_client_are_not_logged_unasked() {
        for (is_quiet, verbosity) in [(true, 0), (false, 0), (false, 1), (false, 2), (false, 3)] {
            let filter = EnvFilter::builder().parse(filter_by_flags(is_quiet, verbosity));
            assert!(filter.is_ok_and(|filter| filter.to_string().contains("async_nats=off")), "{verbosity}");
        }
    }

    #[test]
    fn clear_text_targets_log_at_most_info() {
        for target in [
            "hyper::proto::h1::io",
            "h2::codec",
            "hyper_util::client",
            "aws_sigv4::http_request",
            "cofferdam_x",
        ] {
            assert!(
                !may_write(target, LevelFilter::DEBUG) && !may_write(target, LevelFilter::TRACE),
                "{target}"
            );
            assert!(
                !may_write("rmcp::service", LevelFilter::ERROR) && !may_write("rmcp", LevelFilter::ERROR)
            );
            assert!(
                may_write(target, LevelFilter::INFO) && may_write(target, LevelFilter::ERROR),
                "{target}"
            );
        }
        for target in ["cofferdam::record", "cofferdam", "rustls::client::hs"] {
            assert!(may_write(target, LevelFilter::TRACE), "{target}");
        }
    }
}
