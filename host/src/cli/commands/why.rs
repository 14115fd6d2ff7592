//! `why`: says whether a connector may reach a host, import an interface or have a credential, and which line decides it.

use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::cli::files;
use crate::cli::page::{Page, Tone};
use crate::cli::private::AllowPrivate;
use crate::cli::report::Stop;
use crate::cli::session::{Session, is_installed_name, resolve};
use crate::failure::{Boundary, Denial, FailureClass, GrantLine, Permit};
use crate::host::Access;

const EXAMPLES: &str = "\
The answer is the one that the gate gives while the connector runs, and an install to a component's imports: \
the same code decides it. Nothing runs and no name is looked up. The exit code is 0 if it is allowed, and \
that of capability_denied if not.

Examples:
  cofferdam why github://acme/slack@1.2.0 slack.com:443
  cofferdam why github://acme/slack http://localhost:8080
  cofferdam why github://acme/slack api_key/slack
  cofferdam why slack-1.2.0.wasm wasi:http/outgoing-handler --format json";

/// Says whether a connector may reach a host, import an interface or have a credential, and which line allows
/// it or would.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// A package file, or an installed connector: NAME@VERSION, or NAME where one version is installed.
    #[arg(value_name = "FILE|CONNECTOR")]
    what: String,

    /// A host:port (over TLS), a URL (http:// for one without), an import like wasi:http/outgoing-handler, or a
    /// credential like api_key/slack.
    #[arg(value_name = "HOST:PORT|URL|IMPORT|CREDENTIAL")]
    access: String,

    #[command(flatten)]
    private: AllowPrivate,
}

/// The answer, for programs.
#[derive(Serialize)]
#[serde(untagged)]
enum Answer<'a> {
    Allowed {
        allowed: bool,
        #[serde(flatten)]
        permit: &'a Permit,
    },
    Denied {
        allowed: bool,
        class: FailureClass,
        boundary: Boundary,
        message: String,
        details: Map<String, Value>,
    },
}

/// Asks, and shows the answer.
pub(in crate::cli) fn run(args: Args, session: &Session<'_>) -> Result<(), Stop> {
    let access = Access::parse(&args.access)?;
    let host = session.host_with(|builder| args.private.of(builder))?;
    let decision = if is_installed_name(&args.what) {
        host.why(&resolve(&host, &args.what)?, &access, None)?
    } else {
        host.why_package(files::read_package(Path::new(&args.what))?, &access, None)?
    };
    match decision {
        Ok(permit) => {
            session.ui.result(&Answer::Allowed { allowed: true, permit: &permit }, || allowed(&permit))
        }
        Err(denial) => {
            let class = FailureClass::CapabilityDenied;
            let answer = Answer::Denied {
                allowed: false,
                class,
                boundary: denial.boundary().into(),
                message: denial.message(),
                details: denial.details(),
            };
            session.ui.result(&answer, || denied(&denial))?;
            Err(Stop::Shown(class.exit_code()))
        }
    }
}

fn allowed(permit: &Permit) -> Page {
    let mut page = Page::default();
    page.toned_field("allowed", Tone::Good, permit.requested());
    for line in permit.granted_by() {
        written(&mut page, "granted by", line);
    }
    for note in permit.notes() {
        page.field("note", note);
    }
    page
}

fn denied(denial: &Denial) -> Page {
    let mut page = Page::default();
    page.toned_field("DENIED", Tone::Bad, denial.requested());
    page.field("why", &denial.message());
    page.field("code", denial.code().name());
    page.field("boundary", Boundary::from(denial.boundary()).name());
    if let Some(line) = denial.line() {
        written(&mut page, "to allow it", line);
    }
    page
}

/// The line with its place, to be copied.
fn written(page: &mut Page, label: &str, line: &GrantLine) {
    page.field(label, line.file());
    page.block(4, line.table()).block(4, line.line());
}
