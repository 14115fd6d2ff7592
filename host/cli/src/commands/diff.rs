//! `diff`: the differences between two packages, for a person who reviews an upgrade.

use cofferdam_runtime::host::{ChangeSeverity, Host, PackageChange, PackageDifference, PackageInspection};

use crate::commands::inspect;
use crate::layout::{Page, TextStyle, printable_line};
use crate::package_source::SourceOptions;
use crate::report::CommandError;
use crate::session::{Session, is_installed_name, resolve};

const EXAMPLES: &str = "\
The changes that let the connector do more come first, with those of its signer. Neither package is run or compiled.

Examples:
  cofferdam diff github://acme/slack slack-1.3.0.wasm
  cofferdam diff github://acme/slack@1.2.0 github://acme/slack@1.3.0
  cofferdam diff github://acme/slack oci://ghcr.io/acme/slack:1.3.0
  cofferdam diff slack-1.2.0.wasm slack-1.3.0.wasm --markdown";

/// The longest text of a change, in characters; the JSON has all of it.
const SHOWN_CHARS: usize = 200;

/// Shows the differences between two packages, those that let the connector do more first.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The package to compare with: a file, oci://HOST/REPOSITORY:TAG, https://HOST/PATH, or an installed connector as
    /// NAME@VERSION or NAME.
    #[arg(value_name = "BEFORE")]
    before: String,

    /// The package to review.
    #[arg(value_name = "AFTER")]
    after: String,

    /// Prints Markdown, for a pull request.
    #[arg(long)]
    markdown: bool,

    #[command(flatten)]
    source: SourceOptions,
}

/// Compares the packages.
pub(crate) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let host = session.host()?;
    let compared = |what: &str| compared(session, &host, what, &args.source);
    let (before, after) = (compared(&args.before)?, compared(&args.after)?);
    let difference = PackageDifference::between(&before, &after);
    session.ui.result(&difference, |it| match args.markdown {
        true => markdown(&difference, it),
        false => page(&difference, it),
    })
}

pub(super) fn compared(
    session: &Session<'_>,
    host: &Host,
    what: &str,
    source: &SourceOptions,
) -> Result<PackageInspection, CommandError> {
    match is_installed_name(what) {
        true => Ok(host.inspect_unchanged(&resolve(host, what)?)?),
        false => inspect::inspect_package(session, host, what, None, source),
    }
}

/// Prints the changes, for people.
fn page(difference: &PackageDifference, page: &mut Page) {
    let PackageDifference { before, after, changes } = difference;
    page.heading(&format!("{}@{} -> {}@{}", before.name, before.version, after.name, after.version));
    if changes.is_empty() {
        page.styled(TextStyle::Good, "no difference");
    }
    for severity in ChangeSeverity::ALL {
        let of_it: Vec<_> = changes.iter().filter(|change| change.severity == severity).collect();
        if of_it.is_empty() {
            continue;
        }
        page.heading(&severity.name().to_uppercase());
        for change in of_it {
            page.styled(tone(severity), &sentence(change));
            if let Some(states) = states(change) {
                page.block(4, &states);
            }
        }
    }
}

fn markdown(difference: &PackageDifference, page: &mut Page) {
    let PackageDifference { before, after, changes } = difference;
    page.line(&format!("### {} {} -> {}", after.name, before.version, after.version));
    page.line("");
    page.line(&format!("`{}` -> `{}`", before.hash, after.hash));
    page.line("");
    if changes.is_empty() {
        page.line("No difference.");
        return;
    }
    page.line("| severity | part | subject | change | before | after |");
    page.line("|---|---|---|---|---|---|");
    for change in changes {
        // A bar ends a cell, also after a backslash.
        let cell = |text: &str| printable_line(text, SHOWN_CHARS).replace('|', "\u{a6}").replace('`', "'");
        let state = |state: &str| {
            let text = cell(state);
            if text.is_empty() { text } else { format!("`{text}`") }
        };
        let (before, after) = change.excerpts(SHOWN_CHARS);
        page.line(&format!(
            "| {} | {} | `{}` | {} | {} | {} |",
            change.severity.name(),
            change.part,
            cell(&change.subject),
            cell(&change.what),
            state(before),
            state(after)
        ));
    }
}

/// Returns the look of a change.
pub(super) fn tone(severity: ChangeSeverity) -> TextStyle {
    match severity {
        ChangeSeverity::Wider => TextStyle::Bad,
        ChangeSeverity::Changed => TextStyle::Doubtful,
        ChangeSeverity::Narrower | ChangeSeverity::Note => TextStyle::Good,
    }
}

/// Returns a change as a sentence.
pub(super) fn sentence(change: &PackageChange) -> String {
    format!("{}: {}: {}", change.part, printable_line(&change.subject, SHOWN_CHARS), change.what)
}

/// Returns the states before and after a change, if it has both.
fn states(change: &PackageChange) -> Option<String> {
    if change.before.is_none() || change.after.is_none() {
        return None;
    }
    let (before, after) = change.excerpts(SHOWN_CHARS);
    let shown = |text: &str| printable_line(text, SHOWN_CHARS);
    Some(format!("{} -> {}", shown(before), shown(after)))
}
