//! `diff`: the differences between two packages, for a person who reviews an upgrade.

use cofferdam_runtime::host::{ChangeSeverity, PackageChange, PackageDifference};

use crate::commands::inspect;
use crate::layout::{Page, TextStyle, printable_line};
use crate::report::CommandError;
use crate::session::Session;

const EXAMPLES: &str = "\
What is wider comes first: the connector may do more, or another key vouches for it. Nothing of the packages is run \
or compiled.

Examples:
  cofferdam diff github://acme/slack slack-1.3.0.wasm
  cofferdam diff github://acme/slack@1.2.0 github://acme/slack@1.3.0
  cofferdam diff slack-1.2.0.wasm slack-1.3.0.wasm --markdown";

/// The longest text of a change, in characters; the JSON has all of it.
const SHOWN_CHARS: usize = 200;

/// Shows what changes from one package to another, the heaviest changes first.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The package to compare with: a file, or an installed connector as NAME@VERSION or NAME.
    #[arg(value_name = "BEFORE")]
    before: String,

    /// The package to review.
    #[arg(value_name = "AFTER")]
    after: String,

    /// Prints Markdown, for a pull request.
    #[arg(long)]
    markdown: bool,
}

/// Compares.
pub(crate) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let host = session.host()?;
    let before = inspect::inspected(&host, &args.before, None)?;
    let after = inspect::inspected(&host, &args.after, None)?;
    let difference = PackageDifference::between(&before, &after);
    session.ui.result(&difference, |it| match args.markdown {
        true => markdown(&difference, it),
        false => page(&difference, it),
    })
}

/// Prints the changes, for people.
pub(super) fn page(difference: &PackageDifference, page: &mut Page) {
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
        let cell = |text: &str| printable_line(text, SHOWN_CHARS).replace('|', "\\|").replace('`', "'");
        let state = |state: &Option<String>| {
            let text = state.as_deref().map(cell).filter(|text| !text.is_empty());
            text.map_or_else(String::new, |text| format!("`{text}`"))
        };
        page.line(&format!(
            "| {} | {} | `{}` | {} | {} | {} |",
            change.severity.name(),
            change.part,
            cell(&change.subject),
            cell(&change.what),
            state(&change.before),
            state(&change.after)
        ));
    }
}

fn tone(severity: ChangeSeverity) -> TextStyle {
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

/// Returns both states of a change, if it has both.
fn states(change: &PackageChange) -> Option<String> {
    let (before, after) = (change.before.as_ref()?, change.after.as_ref()?);
    let shown = |text: &str| printable_line(text, SHOWN_CHARS);
    Some(format!("{} -> {}", shown(before), shown(after)))
}
