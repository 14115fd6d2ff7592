//! `report`: pages of the console as files.

use std::path::{Path, PathBuf};

use cofferdam_console::{Period, connector_report, period_report};
use cofferdam_core::clock::{Clock as _, SystemClock};
use cofferdam_server::http_api::HttpApi;
use cofferdam_server::server::Shutdown;
use serde::Serialize;

use super::audit::PeriodArgs;
use crate::report::CommandError;
use crate::session::{Session, resolve};
use crate::{files, runtime};

const EXAMPLES: &str = "\
With a connector: its grants, its operations, and its limits with what calls used of them. Without one: how the calls of \
a period ended, by connector, operation and host, their requests as a map, and the newest that failed. A report is one \
HTML file, which needs no server and loads nothing. It has no arguments, no results and no secrets. `cofferdam console` \
shows the same, live.

Examples:
  cofferdam report github://acme/slack --out slack.html
  cofferdam report --since 7d --out reports";

/// Writes what the console shows of a connector, or of a period, into a file.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// An installed connector: NAME@VERSION, or NAME for its active version. Without one, the report is of all calls.
    #[arg(value_name = "CONNECTOR", conflicts_with_all = ["since", "until"])]
    connector: Option<String>,

    /// The file, with the ending .html, or a directory, which is made if it is not there and gets a file with a name of
    /// its own. An older file of the name is replaced.
    #[arg(long, value_name = "DIR|FILE.html")]
    out: PathBuf,

    #[command(flatten)]
    period: PeriodArgs,
}

/// The written file.
#[derive(Serialize)]
struct Written<'a> {
    file: &'a Path,
    bytes: usize,
}

/// Writes the report.
pub(crate) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    args.period.check()?;
    let host = session.host()?;
    let now = SystemClock.timestamp();
    let made = format!("Made at {now:.0} by cofferdam {}.", env!("CARGO_PKG_VERSION"));
    let connector = args.connector.map(|name| resolve(&host, &name)).transpose()?;
    let name = match &connector {
        Some(connector) => connector.to_string(),
        None => format!("calls-{now:.0}"),
    };
    let api = HttpApi::new(host, Shutdown::new());
    let time = |time: Option<jiff::Timestamp>| time.map(|time| time.to_string());
    let period = Period { since: time(args.period.since), until: time(args.period.until) };
    let html = runtime::block_on(async {
        Ok(match &connector {
            Some(_) => connector_report(&api, &name, &made).await?,
            None => period_report(&api, &period, &made).await?,
        })
    })?;
    let is_file = !args.out.is_dir() && args.out.extension().is_some_and(|extension| extension == "html");
    let file = match is_file {
        true => args.out,
        false => {
            std::fs::create_dir_all(&args.out).map_err(|error| files::unwritable(&args.out, error))?;
            args.out.join(file_name(&name))
        }
    };
    files::write_whole(&file, html.as_bytes())?;
    session.ui.result(&Written { file: &file, bytes: html.len() }, |page| {
        page.field("written", &files::shown(&file));
    })
}

/// Returns the name of the file of a report: `github-acme-slack-1.2.0.html`.
fn file_name(name: &str) -> String {
    let parts = name.split(|c: char| !c.is_ascii_alphanumeric() && c != '.' && c != '-');
    let parts: Vec<_> = parts.filter(|part| !part.is_empty()).collect();
    format!("{}.html", parts.join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_named_after_its_subject() {
        assert_eq!(file_name("github://acme/slack@1.2.0"), "github-acme-slack-1.2.0.html");
        assert_eq!(file_name("calls-2026-11-26T18:31:25Z"), "calls-2026-11-26T18-31-25Z.html");
    }
}
