//! `why`: says whether a connector may reach a host, import an interface or have a credential, and which line decides it.

use std::path::Path;

use cofferdam_core::failure::{Boundary, Denial, FailureClass, GrantLine, Permit};
use cofferdam_runtime::host::Access;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::files;
use crate::page::{Page, Tone};
use crate::private::AllowPrivate;
use crate::report::Stop;
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
    /// A package file, or an installed connector: NAME@VERSION, or NAME where one version is installed.
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
pub(crate) fn run(args: Args, session: &Session<'_>) -> Result<(), Stop> {
    let access = Access::parse(&args.access)?;
    let host = session.host_with(|builder| args.private.of(builder))?;
    let decision = if is_installed_name(&args.what) {
        host.why(&resolve(&host, &args.what)?, &access, None)?
    } else {
        host.why_package(files::read_package(Path::new(&args.what))?, &access, None)?
    };
    match decision {
        Ok(permit) => {
            session.ui.result(&Answer::Allowed { allowed: true, permit: &permit }, || allowed(&permit))?;
            match permit.missing_binding() {
                None => Ok(()),
                Some(missing) => Err(Stop::Shown(missing.class().exit_code())),
            }
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
    if let Some(missing) = permit.missing_binding() {
        page.toned_field(
            "NOT BOUND",
            Tone::Bad,
            &format!("a call would end with {}", missing.class().name()),
        );
        page.field("to mend it", missing.suggestion());
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
