//! `review`: one page about a package, for the person who decides whether it is installed.

mod html;

use std::path::PathBuf;

use cofferdam_runtime::host::{
    ChangeSeverity, Consent, Host, LimitView, OperationView, PackageDifference, PackageInspection,
    PackageReview,
};
use serde::Serialize;

use super::inspect::LimitUsage;
use super::{diff, inspect};
use crate::layout::{self, Page, TextStyle};
use crate::package_source::{self, SourceOptions, SourcePackage};
use crate::report::CommandError;
use crate::session::{Session, is_installed_name, resolve};
use crate::{files, runtime};

const EXAMPLES: &str = "\
`cofferdam install` shows the same page. Nothing of the package is run or compiled. `cofferdam inspect` has every \
detail of a package, and `cofferdam diff` every difference.

Examples:
  cofferdam review slack-1.3.0.wasm
  cofferdam review slack-1.3.0.wasm --against slack-1.1.0.wasm
  cofferdam review github://acme/slack --html review.html";

/// Shows what a package may do, what is new about it, and whether it has to be accepted.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A package (a file, oci://HOST/REPOSITORY:TAG or https://HOST/PATH), or an installed connector: NAME@VERSION, or NAME
    /// for its active version.
    #[arg(value_name = "PACKAGE|CONNECTOR")]
    package: String,

    /// The package to compare with [default: the active version].
    #[arg(long, value_name = "PACKAGE|CONNECTOR")]
    against: Option<String>,

    /// Writes the page as an HTML file that needs no other files.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    #[command(flatten)]
    source: SourceOptions,
}

/// A review with the resources that earlier calls of the connector used.
#[derive(Debug, Serialize)]
pub(super) struct ReviewPage {
    #[serde(flatten)]
    review: PackageReview,
    usage: Option<LimitUsage>,
}

/// Shows the page, and writes it as HTML.
pub(crate) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let host = session.host()?;
    let mut review = match is_installed_name(&args.package) {
        true => {
            let stored = host.stored_package(&resolve(&host, &args.package)?)?;
            runtime::block_on(async { Ok(host.review(stored.bytes, stored.signature.as_deref()).await?) })?
        }
        false => {
            let package = package_source::parse(&args.package)?;
            let SourcePackage { bytes, signature, .. } = args.source.load(session, &package, None)?;
            runtime::block_on(async { Ok(host.review(bytes, signature.as_deref()).await?) })?
        }
    };
    if let Some(against) = &args.against {
        let before = diff::compared(session, &host, against, &args.source)?;
        review.difference = Some(PackageDifference::between(&before, &review.package));
    }
    let page = ReviewPage::new(&host, review);
    if let Some(path) = args.html {
        files::write_whole(&path, html::document(&page).as_bytes())?;
        session.ui.note(&format!("written to {}", files::shown(&path)));
    }
    session.ui.result(&page, |it| page.show(it))
}

impl ReviewPage {
    /// Adds the use of earlier calls, if the audit log can be read.
    pub(super) fn new(host: &Host, mut review: PackageReview) -> Self {
        let usage = LimitUsage::of(host, &review.package.name);
        let idle: Vec<_> = usage.iter().flat_map(|usage| usage.idle_limits(&review.package)).collect();
        review.package.risks.extend(idle);
        Self { review, usage }
    }

    /// Returns the review.
    pub(super) fn review(&self) -> &PackageReview {
        &self.review
    }

    /// Prints the page.
    pub(super) fn show(&self, page: &mut Page) {
        for section in self.sections() {
            if !section.title.is_empty() {
                page.heading(&section.title);
            }
            for (tone, line) in &section.lines {
                match tone {
                    Some(tone) => page.styled(*tone, line),
                    None => page.line(line),
                };
            }
        }
    }

    /// Returns the page, in the order of its importance.
    fn sections(&self) -> Vec<Section> {
        let PackageReview { package, grants, difference, consent } = &self.review;
        let mut sections = vec![identity(package)];
        if let Some(difference) = difference.as_ref().filter(|it| it.before.hash != it.after.hash) {
            sections.push(changes(difference));
        }
        let look_at: Vec<_> =
            package.risks.iter().map(|risk| (Some(TextStyle::Doubtful), risk.clone())).collect();
        sections.extend((!look_at.is_empty()).then(|| Section::new("LOOK AT", look_at)));
        sections.push(access(grants, &package.operations));
        let limits = package.limits.iter().map(|(name, limit)| (None, self.limit(name, limit)));
        sections.push(Section::new("LIMITS OF A CALL", limits.collect()));
        sections.push(consent_section(consent));
        sections
    }

    fn limit(&self, name: &str, limit: &LimitView) -> String {
        let mut line = format!("{name:<12} {}", inspect::shown(limit.effective, limit));
        if let Some(usage) = &self.usage {
            let used = inspect::shown(usage.most(name), limit);
            line += &format!(", of which {} attempts used at most {used}", usage.attempts());
        }
        line
    }
}

/// A part of the page: a title, and lines with their tone.
struct Section {
    title: String,
    lines: Vec<(Option<TextStyle>, String)>,
}

impl Section {
    fn new(title: impl Into<String>, lines: Vec<(Option<TextStyle>, String)>) -> Self {
        Self { title: title.into(), lines }
    }
}

fn identity(package: &PackageInspection) -> Section {
    let signature = &package.signature;
    let signer = match &signature.signer {
        Some(_) => (Some(TextStyle::Good), format!("signer       {}", inspect::signed_by(signature))),
        None => {
            let reason = signature.reason.as_deref().unwrap_or("it has no signature");
            (Some(TextStyle::Bad), format!("signer       NOT TRUSTED ({}): {reason}", signature.status))
        }
    };
    let mut lines = vec![
        (None, format!("hash         {}", package.hash)),
        (None, format!("size         {}", layout::bytes(package.size))),
        signer,
    ];
    lines.extend(package.description.iter().map(|text| (None, format!("description  {text}"))));
    Section::new(format!("{}@{}", package.name, package.version), lines)
}

fn changes(difference: &PackageDifference) -> Section {
    let shown = difference.changes.iter().filter(|change| change.severity != ChangeSeverity::Note);
    let mut lines: Vec<_> = shown
        .map(|change| {
            let line = format!("{:<12} {}", change.severity.name(), diff::sentence(change));
            (Some(diff::tone(change.severity)), line)
        })
        .collect();
    if lines.is_empty() {
        lines.push((Some(TextStyle::Good), "none that callers or grants notice".to_owned()));
    }
    let before = &difference.before;
    let of = if before.name == difference.after.name { String::new() } else { format!("{}@", before.name) };
    Section::new(format!("CHANGES SINCE {of}{}", before.version), lines)
}

/// The most writing operations that are named.
const NAMED_OPERATIONS: usize = 60;

/// The number of names on a line.
const NAMES_A_LINE: usize = 6;

/// Returns the access in few lines: operations are named only if they may write.
fn access(grants: &[String], operations: &[OperationView]) -> Section {
    let folded = |line: &&String| !line.starts_with("operation ") && !line.starts_with("limit ");
    let mut lines: Vec<_> =
        grants.iter().filter(folded).map(|line| (Some(TextStyle::Doubtful), line.clone())).collect();
    if !lines.iter().any(|(_, line)| line.starts_with("host ")) {
        lines.push((Some(TextStyle::Good), "no host: it cannot reach the network".to_owned()));
    }
    let (read, write): (Vec<_>, Vec<_>) = operations.iter().partition(|operation| operation.only_reads());
    let named: Vec<_> =
        write.iter().take(NAMED_OPERATIONS).map(|operation| operation.name.as_str()).collect();
    lines.extend(
        named
            .chunks(NAMES_A_LINE)
            .map(|names| (Some(TextStyle::Doubtful), format!("may write: {}", names.join(", ")))),
    );
    if let Some(more @ 1..) = write.len().checked_sub(NAMED_OPERATIONS) {
        let line = format!("{more} more operations may write: `cofferdam inspect` lists them");
        lines.push((Some(TextStyle::Bad), line));
    }
    if !read.is_empty() {
        lines.push((Some(TextStyle::Good), format!("{} operations only read", read.len())));
    }
    Section::new("ACCESS", lines)
}

fn consent_section(consent: &Consent) -> Section {
    let lines = match consent {
        Consent::Accepted { by, at } => vec![(Some(TextStyle::Good), format!("accepted by {by} at {at}"))],
        Consent::NoWider { than } => vec![(
            Some(TextStyle::Good),
            format!("not needed: it asks for no more than {than}, and has the same signer"),
        )],
        Consent::Required { reasons } => {
            reasons.iter().map(|reason| (Some(TextStyle::Bad), format!("needed: {reason}"))).collect()
        }
    };
    Section::new("CONSENT", lines)
}
