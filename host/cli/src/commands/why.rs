//! `why`: says whether a connector may reach a host, import an interface or have a credential, and which line decides it.

use std::path::Path;

use cofferdam_core::failure::{Allowed, Denial, FailureBoundary, FailureClass, GrantLine};
use cofferdam_runtime::host::{AccessDecision, AccessQuery};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::allow_private::AllowPrivate;
use crate::exit_codes::class_exit_code;
use crate::files;
use crate::layout::{Page, TextStyle};
use crate::report::{CommandError, exit_after};
use crate::session::{Session, is_installed_name, resolve};

const EXAMPLES: &str = "\
The answer is the one that the gate gives while the connector runs, and an install to a component's imports: \
the same code decides it. Nothing runs and no name is looked up. The exit code is 0 if it is allowed, that of \
capability_denied if not, and that of binding_required (or binding_failed) if it is allowed and a call \
would still fail, because a required credential is not bound for it.

Examples:
  cofferdam why github://acme/slack@1.2.0 slack.com:443
  cofferdam why github://acme/slack http://localhost:8080
  cofferdam why github://acme/slack api_key/slack
  cofferdam why github://acme/slack method:PROPFIND
  cofferdam why slack-1.2.0.wasm wasi:http/outgoing-handler --format json";

/// Says whether a connector may reach a host, send a method, import an interface or have a credential, and which
/// line allows it or would.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A package file, or an installed connector: NAME@VERSION, or NAME for its active version.
    #[arg(value_name = "FILE|CONNECTOR")]
    what: String,

    /// A host:port (over TLS), a URL (http:// for one without), a method like method:PROPFIND, an import like
    /// wasi:http/outgoing-handler, or a credential like api_key/slack.
    #[arg(value_name = "HOST:PORT|URL|METHOD|IMPORT|CREDENTIAL")]
    access: String,

    #[command(flatten)]
    private: AllowPrivate,
}

/// The answer, for programs.
#[derive(Serialize)]
#[serde(untagged)]
enum AccessAnswer<'a> {
    Allowed {
        allowed: bool,
        #[serde(flatten)]
        permit: &'a Allowed,
    },
    Denied {
        allowed: bool,
        class: FailureClass,
        boundary: FailureBoundary,
        message: String,
        details: Map<String, Value>,
    },
}

/// Asks, and shows the answer.
pub(crate) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let access = AccessQuery::parse(&args.access)?;
    let host = session.host_with(|builder| args.private.apply_to(builder))?;
    let decision = if is_installed_name(&args.what) {
        host.why(&resolve(&host, &args.what)?, &access, None)?
    } else {
        host.why_package(files::read_package(Path::new(&args.what))?, &access, None)?
    };
    match decision {
        AccessDecision::Allowed(permit) => {
            let answer = AccessAnswer::Allowed { allowed: true, permit: &permit };
            let printed = session.ui.result(&answer, |it| allowed(&permit, it));
            exit_after(printed, permit.missing_binding().map(|missing| class_exit_code(missing.class())))
        }
        AccessDecision::Denied(denial) => {
            let class = FailureClass::CapabilityDenied;
            let answer = AccessAnswer::Denied {
                allowed: false,
                class,
                boundary: denial.boundary().into(),
                message: denial.message(),
                details: denial.details(),
            };
            exit_after(session.ui.result(&answer, |it| denied(&denial, it)), Some(class_exit_code(class)))
        }
    }
}

fn allowed(permit: &Allowed, page: &mut Page) {
    page.styled_field("allowed", TextStyle::Good, permit.requested());
    for line in permit.granted_by() {
        written(page, "granted by", line);
    }
    for note in permit.notes() {
        page.field("note", note);
    }
    if let Some(missing) = permit.missing_binding() {
        page.styled_field(
            "NOT BOUND",
            TextStyle::Bad,
            &format!("a call would end with {}", missing.class().name()),
        );
        page.field("to fix it", missing.suggestion());
    }
}

fn denied(denial: &Denial, page: &mut Page) {
    page.styled_field("DENIED", TextStyle::Bad, denial.requested());
    page.field("why", &denial.message());
    page.field("code", denial.code().name());
    page.field("boundary", FailureBoundary::from(denial.boundary()).name());
    if let Some(line) = denial.line() {
        written(page, "to allow it", line);
    }
}

/// The line with its place, to be copied.
fn written(page: &mut Page, label: &str, line: &GrantLine) {
    page.field(label, line.file());
    page.block(4, line.table()).block(4, line.line());
}
