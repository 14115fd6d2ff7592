//! `action edit`: opens an editor on a copy, which replaces the action only if it is valid.

use std::fs;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Command;

use cofferdam_core::document::{Diagnostics, DocumentError, InvalidValue, PathSegment};
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::sanitize_line;
use cofferdam_model::action::Action;
use cofferdam_runtime::flow::CheckedAction;
use cofferdam_runtime::host::Host;

use super::add::SavedAction;
use crate::report::CommandError;
use crate::session::Session;
use crate::{files, progress, runtime};

const EXAMPLES: &str = "\
The editor is $VISUAL, or $EDITOR, or vi. It gets a copy. If what comes back does not fit, the action stays as it \
was, and the copy is kept for another try.

Examples:
  cofferdam action edit ship-update
  EDITOR='code --wait' cofferdam action edit ship-update";

/// Edits an action, and keeps the change if everything in it fits.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The action's name.
    #[arg(value_name = "NAME")]
    name: String,
}

pub(super) fn run(args: &Args, session: &Session<'_>) -> Result<(), CommandError> {
    let host = session.host()?;
    let before = host.action_file(&args.name)?;
    let dir = tempfile::Builder::new().prefix("cofferdam-edit-").tempdir();
    let dir = dir.map_err(|error| files::unwritable(&std::env::temp_dir(), error))?;
    let copy = dir.path().join(format!("{}.md", args.name));
    write(&copy, &before)?;
    edited(&copy)?;
    let after = files::bounded("The edited copy", &copy, 1024 * 1024)?;
    if after == before {
        session.ui.note("Nothing was changed.");
        return Ok(());
    }
    let kept = runtime::block_on(async {
        let what = format!("checking {}.md", args.name);
        Ok(progress::during(session.ui, &what, put_back(&host, &args.name, &before, &after)).await)
    })?;
    match kept {
        Ok(runnable) => {
            let kept = SavedAction::new(&runnable);
            session.ui.result(&kept, |it| kept.page("changed", it))
        }
        Err(error) => {
            drop(dir.keep());
            session
                .ui
                .warn(&format!("the action is not changed; what you wrote is in {}", files::shown(&copy)));
            // Replacing the file would lose the change of the other user.
            if error.kind() != HostErrorKind::Conflict {
                session.ui.note(&format!(
                    "Correct it there, then: cofferdam action add --replace {}",
                    files::shown(&copy)
                ));
            }
            Err(error.into())
        }
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), HostError> {
    let wrong = |error| files::unwritable(path, error);
    let mut file =
        fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(wrong)?;
    std::io::Write::write_all(&mut file, bytes).map_err(wrong)
}

/// Lets the user edit the file.
fn edited(path: &Path) -> Result<(), HostError> {
    let named = |name| std::env::var(name).ok().filter(|editor| !editor.trim().is_empty());
    let editor = named("VISUAL").or_else(|| named("EDITOR")).unwrap_or_else(|| "vi".to_owned());
    // Like git and crontab: the variable is part of a command line, and the path is not.
    let ended =
        Command::new("/bin/sh").arg("-c").arg(format!("{editor} \"$1\"")).arg("sh").arg(path).status();
    let failed = |why: String| {
        HostError::new(HostErrorKind::Tool, format!("The editor {why}; the action is as it was."))
            .with_hint("Set VISUAL or EDITOR to an editor that ends once you have closed the file.")
    };
    match ended {
        Ok(status) if status.success() => Ok(()),
        // The exit codes of a shell for a program that is missing or not executable.
        Ok(status) if matches!(status.code(), Some(126 | 127)) => {
            let message =
                format!("There is no editor `{}`; the action is as it was.", sanitize_line(&editor, 200));
            Err(HostError::new(HostErrorKind::Tool, message)
                .with_hint("Set VISUAL or EDITOR to an editor that is installed."))
        }
        Ok(status) => Err(failed(format!("ended with {status}"))),
        Err(error) => Err(failed(format!("could not be started: {}", files::reason(&error)))),
    }
}

/// Stores the change, unless the file was changed meanwhile.
async fn put_back(host: &Host, name: &str, before: &[u8], after: &[u8]) -> Result<CheckedAction, HostError> {
    let label = format!("{name}.md");
    let action = Action::parse(&label, after).map_err(DocumentError::into_host_error)?;
    if action.name() != name {
        let toml = action.text.toml();
        let mut findings = Diagnostics::new(&label, action.text(), &toml);
        let fix = "write the name that it had; `cofferdam action add` adds one under another name";
        findings.refuse(&[PathSegment::Name("name")], &InvalidValue::new("an action keeps its name", fix));
        findings.finish().map_err(DocumentError::into_host_error)?;
    }
    if host.action_file(name)? != before {
        let message = format!("The action {name} was changed by another user meanwhile.");
        let hint = "Edit it again, starting from its new content, and copy your changes into it.";
        return Err(HostError::new(HostErrorKind::Conflict, message).with_hint(hint));
    }
    host.add_action(&label, after, true).await
}
