//! `verify`: does to installed connectors what a call does before it runs them.

use cofferdam_core::error::Error;
use cofferdam_model::trust::KeyId;
use cofferdam_runtime::call::ConnectorRef;
use serde::Serialize;
use serde_json::Value;

use crate::exit_codes::exit_code;
use crate::layout::{Page, TextStyle};
use crate::report::{CommandError, exit_after, without_audit_id};
use crate::session::{Session, resolve};
use crate::{progress, runtime};

const EXAMPLES: &str = "\
The bytes are hashed, the signature and the keyring consulted, the manifest, imports and limits checked, and \
the code compiled if none is kept. The exit code is that of the first connector that does not pass.

Examples:
  cofferdam verify
  cofferdam verify github://acme/slack@1.2.0
  cofferdam verify --rebuild-index";

/// Verifies installed connectors as a call would, without calling them.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The connectors: NAME@VERSION, or NAME for its active version [default: all].
    #[arg(value_name = "CONNECTOR")]
    connectors: Vec<String>,

    /// First rebuilds the index of installed connectors from the packages on disk.
    #[arg(long)]
    rebuild_index: bool,
}

/// The findings.
#[derive(Debug, Default, Serialize)]
struct VerifyReport {
    connectors: Vec<CheckedConnector>,
    /// The directories that are not a package, or a duplicate; only with `--rebuild-index`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    skipped: Vec<SkippedDirectory>,
}

/// A directory that the new index leaves out.
#[derive(Debug, Serialize)]
struct SkippedDirectory {
    directory: String,
    reason: String,
}

/// One connector's result.
#[derive(Debug, Serialize)]
struct CheckedConnector {
    connector: String,
    ok: bool,
    /// The ids of the keys whose signatures were accepted.
    signers: Vec<String>,
    /// The content of `error` in the envelope.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
    #[serde(skip)]
    message: String,
}

/// Verifies one after the other.
pub(crate) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let host = session.host()?;
    let mut report = VerifyReport::default();
    if args.rebuild_index {
        let rebuilt = host.rebuild_index()?;
        session.ui.note(&format!("the index was rebuilt; packages in it: {}", rebuilt.entries.len()));
        let skipped = rebuilt.skipped.into_iter();
        report.skipped =
            skipped.map(|it| SkippedDirectory { directory: it.directory, reason: it.reason }).collect();
    }
    let connectors: Vec<ConnectorRef> = if args.connectors.is_empty() {
        host.list()?.into_iter().map(|entry| ConnectorRef::new(entry.name, entry.version)).collect()
    } else {
        args.connectors.iter().map(|text| resolve(&host, text)).collect::<Result<_, _>>()?
    };
    let mut first_failure = None;
    report.connectors = runtime::block_on(async {
        let mut checked = Vec::new();
        for connector in &connectors {
            let what = format!("verifying {connector}");
            let outcome = progress::during(session.ui, &what, host.verify(connector)).await;
            if let Err(error) = &outcome {
                first_failure.get_or_insert(exit_code(error));
            }
            checked.push(CheckedConnector::new(connector, &outcome));
        }
        Ok(checked)
    })?;
    let printed = session.ui.result(&report, |it| page(&report, it));
    if report.connectors.is_empty() {
        session.ui.note("No connector is installed.");
    }
    exit_after(printed, first_failure)
}

impl CheckedConnector {
    fn new(connector: &ConnectorRef, outcome: &Result<Vec<KeyId>, Error>) -> Self {
        let error = outcome.as_ref().err();
        Self {
            connector: connector.to_string(),
            ok: error.is_none(),
            signers: outcome.iter().flatten().map(ToString::to_string).collect(),
            error: error.map(without_audit_id),
            message: error.map(ToString::to_string).unwrap_or_default(),
        }
    }
}

fn page(report: &VerifyReport, page: &mut Page) {
    for SkippedDirectory { directory, reason } in &report.skipped {
        page.styled_field("skipped", TextStyle::Doubtful, directory).field("", reason);
    }
    for CheckedConnector { connector, ok, signers, message, .. } in &report.connectors {
        match ok {
            true if signers.len() > 1 => {
                page.styled_field("ok", TextStyle::Good, connector);
                page.field("", &format!("signed by {} keys: {}", signers.len(), signers.join(", ")))
            }
            true => page.styled_field("ok", TextStyle::Good, connector),
            false => page.styled_field("NOT OK", TextStyle::Bad, connector).field("", message),
        };
    }
}
