//! The command line with a collector, with profiles that take no time.

use std::process::Command;

use cofferdam_test_support::upstream::ScriptedReply;
use cofferdam_test_support::{Cli, CommandResult, Upstream};

use crate::COFFERDAM;
use crate::shared_host::shared_host;

/// A collector's path for traces.
pub(super) const TRACES: &str = "/v1/traces";

/// A profile that attempts three times at once.
const BRISK: &str = "retryable = true\nmax_attempts = 3\nbackoff = { kind = \"fixed\", base = \"5ms\" }\n\
                     jitter = { kind = \"none\" }\nclassifier = { retry_on = [\"unavailable\"] }\n";

/// A collector that takes everything.
pub(super) fn collector() -> Upstream {
    let collector = Upstream::start();
    collector.script(TRACES, [ScriptedReply::status(200)]);
    collector
}

/// A command of the shared home, whose environment names this address of a collector, and more.
pub(super) fn command(args: &[&str], endpoint: &str, more: &[(&str, &str)]) -> Command {
    let world = shared_host();
    let mut command = Cli::new(COFFERDAM, world.home.path()).command(args);
    let private = format!("{},localhost:{}", world.upstream.host_port(), world.closed_port);
    command.env("COFFERDAM_ALLOW_PRIVATE", private);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint).envs(more.iter().copied());
    command
}

/// Runs it to its end.
pub(super) fn ran(args: &[&str], endpoint: &str, more: &[(&str, &str)]) -> CommandResult {
    let output = command(args, endpoint, more).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    CommandResult {
        line: args.join(" "),
        code: output.status.code(),
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
    }
}

/// The arguments of a call that fetches a path of the upstream server, under the brisk profile.
pub(super) fn fetch(path: &str) -> Vec<String> {
    let profile = tempfile_of_profile();
    let url = format!("url={}", shared_host().upstream.url(path));
    ["call", "github://cofferdam/probe", "fetch", "--arg", &url, "--retry", &profile]
        .map(str::to_owned)
        .into()
}

/// `@FILE` with the profile.
fn tempfile_of_profile() -> String {
    let path = shared_host().home.path().join("brisk-for-telemetry.toml");
    if !path.exists() {
        std::fs::write(&path, BRISK).unwrap();
    }
    format!("@{}", path.display())
}

/// The same as slices.
pub(super) fn words(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}
