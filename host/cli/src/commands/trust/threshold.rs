//! `trust threshold`: the number of different keys that must sign a connector.

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_model::trust::{SignatureThreshold, SigningScope};
use serde::Serialize;

use super::{refusal, scope, warn_of_thresholds};
use crate::layout::TextStyle;
use crate::report::CommandError;
use crate::session::Session;

const EXAMPLES: &str = "\
With a threshold, one stolen key is not enough to release a package. Each signer adds a signature to the same file \
with `cofferdam sign`. A key and its successor count once. Of two thresholds that cover a connector, the higher one \
holds; it holds at install and at every call, and --allow-unsigned does not go below it.

Examples:
  cofferdam trust threshold github://acme/slack 2
  cofferdam trust threshold 'github://acme/*' 2
  cofferdam trust threshold github://acme/slack --remove
  cofferdam trust threshold";

/// Sets how many different keys must sign a connector, or all of one owner's; without arguments, lists the thresholds.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A connector's name, or all of one owner's.
    #[arg(value_name = "SCOPE", value_parser = scope)]
    scope: Option<SigningScope>,

    /// The number of keys, from 2 to 16.
    #[arg(value_name = "NUMBER", requires = "scope", value_parser = number)]
    number: Option<SignatureThreshold>,

    /// Takes the threshold away: one signature suffices again.
    #[arg(long, requires = "scope", conflicts_with = "number")]
    remove: bool,
}

/// A threshold, as it is now.
#[derive(Debug, Serialize)]
struct Threshold {
    scope: String,
    signatures: Option<usize>,
}

/// The change.
#[derive(Debug, Serialize)]
struct ThresholdChange {
    change: &'static str,
    threshold: Threshold,
    previous: Option<usize>,
}

fn number(text: &str) -> Result<SignatureThreshold, String> {
    let number = text.parse().map_err(|_| "write a number, like 2".to_owned())?;
    SignatureThreshold::new(number).map_err(|refused| format!("{refused} (--remove)"))
}

/// Lists, sets or removes.
pub(super) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let Args { scope, number, remove } = args;
    let Some(scope) = scope else { return list(session) };
    if number.is_none() && !remove {
        let error = HostError::new(HostErrorKind::Validation, "Neither a number nor --remove was given.");
        return Err(error.with_hint(format!("Write `cofferdam trust threshold '{scope}' NUMBER`.")).into());
    }
    let previous = session.change_keyring(|keyring| match number {
        Some(number) => keyring
            .set_threshold(&scope, number)
            .map_err(|refused| refusal(&refused, HostErrorKind::Validation)),
        None => Ok(keyring.remove_threshold(&scope)),
    })?;
    let change = match (previous, number) {
        (None, None) => "unchanged",
        (Some(_), None) => "removed",
        (None, Some(_)) => "set",
        (Some(old), Some(new)) if new < old => "lowered",
        (Some(old), Some(new)) if new > old => "raised",
        (Some(_), Some(_)) => "unchanged",
    };
    let threshold = Threshold { scope: scope.to_string(), signatures: number.map(SignatureThreshold::get) };
    let changed = ThresholdChange { change, threshold, previous: previous.map(SignatureThreshold::get) };
    let text = |number: Option<usize>| number.map_or_else(|| "none".to_owned(), |number| number.to_string());
    session.ui.result(&changed, |page| {
        page.styled_field(changed.change, TextStyle::Good, &changed.threshold.scope);
        page.field("threshold", &text(changed.threshold.signatures));
        if changed.previous.is_some() {
            page.field("before", &text(changed.previous));
        }
    })?;
    warn_of_thresholds(session)
}

fn list(session: &Session<'_>) -> Result<(), CommandError> {
    let keyring = session.keyring()?.load()?;
    let threshold = |(scope, number): (&SigningScope, SignatureThreshold)| Threshold {
        scope: scope.to_string(),
        signatures: Some(number.get()),
    };
    let thresholds: Vec<_> = keyring.thresholds().map(threshold).collect();
    session.ui.result(&thresholds, |page| {
        let row = |it: &Threshold| {
            [it.scope.clone(), it.signatures.map(|number| number.to_string()).unwrap_or_default()]
        };
        if !thresholds.is_empty() {
            page.table(["SCOPE", "THRESHOLD"], thresholds.iter().map(row).collect());
        }
    })?;
    if thresholds.is_empty() {
        session.ui.note("There is no threshold. `cofferdam trust threshold SCOPE NUMBER` sets one.");
    }
    warn_of_thresholds(session)
}
