//! `explain`: the meaning, the advice and the remedy of a word about failures, and its names in other documents.

mod profile;

use std::ffi::OsStr;
use std::sync::Arc;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::{FailureClass, sanitize_line};
use cofferdam_egress::resilience::{PROFILES, RetryProfile};
use serde::Serialize;

use crate::explain::{self, CodeInfo, Explanation, ExternalRetry, TermKind};
use crate::layout::{Page, TextStyle};
use crate::report::CommandError;
use crate::session::Session;
use profile::ProfileView;

const EXAMPLES: &str = "\
A word is a class, a code (`details.code`), an error of the host, the name of a retry profile, or \
what another document about failures says; docs/reference/failures.md says which documents these are.

Examples:
  cofferdam explain network_error
  cofferdam explain rate_limited
  cofferdam explain AGENT_TIMEOUT
  cofferdam explain patient
  cofferdam explain --list --format json";

/// Explains a word about failures: its meaning, whether to try again, who can fix it, and its name elsewhere.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The class, code, error, profile, or word of another document.
    #[arg(value_name = "WORD", value_parser = WordParser, hide_possible_values = true, required_unless_present = "list")]
    word: Option<String>,

    /// Lists every word instead.
    #[arg(long, conflicts_with = "word")]
    list: bool,
}

/// The answer: the explanation of the word, and the retry profile of this name.
#[derive(Serialize)]
struct ExplainAnswer<'a> {
    #[serde(flatten)]
    explanation: Option<&'a Explanation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<&'a ProfileView>,
    /// The built-in profiles that repeat it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    repeated_by: Vec<&'static str>,
}

/// Explains.
pub(crate) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let Some(word) = args.word else { return list(session) };
    let explanation = explain::explain(&word);
    let profile = match &explanation {
        None => profile_named(&word, session),
        Some(_) => RetryProfile::named(&word),
    };
    let profile = profile.as_deref().map(ProfileView::new);
    if explanation.is_none() && profile.is_none() {
        return Err(unknown(&word).into());
    }
    let ours = explanation.iter().flat_map(|found| found.ours.iter());
    let repeats = |name: &&str| ours.clone().any(|ours| repeaters(ours).any(|repeater| repeater == *name));
    let repeated_by: Vec<_> = PROFILES.into_iter().filter(repeats).collect();
    let answer = ExplainAnswer { explanation: explanation.as_ref(), profile: profile.as_ref(), repeated_by };
    session.ui.result(&answer, |it| *it = page(&answer))
}

/// The profile of this name: a built-in one, or the operator's own where the home can be read.
fn profile_named(word: &str, session: &Session<'_>) -> Option<Arc<RetryProfile>> {
    RetryProfile::named(word).or_else(|| session.host().ok()?.profile(word).ok())
}

fn unknown(word: &str) -> HostError {
    let shown = sanitize_line(word, 100);
    let near = explain::nearest(word).or_else(|| cofferdam_core::suggest::nearest(word, PROFILES));
    let hint = match near {
        Some(near) => format!("The nearest word is `{near}`; `cofferdam explain --list` has all of them."),
        None => "`cofferdam explain --list` has all words.".to_owned(),
    };
    let message =
        format!("`{shown}` is no class, code, error, profile or word of a document that is followed here.");
    HostError::new(HostErrorKind::Validation, message).with_hint(hint)
}

/// The built-in profiles that repeat what this word means.
fn repeaters(ours: &CodeInfo) -> impl Iterator<Item = &'static str> {
    let cause = ours.cause;
    PROFILES.into_iter().filter(move |name| {
        cause.is_some_and(|cause| {
            RetryProfile::named(name).is_some_and(|profile| profile.schedule(cause).is_some())
        })
    })
}

fn page(answer: &ExplainAnswer<'_>) -> Page {
    let mut page = Page::default();
    if let Some(found) = answer.explanation {
        for ours in &found.ours {
            describe(&mut page, ours);
        }
        for row in &found.foreign {
            page.heading(&format!("{} - in the {}", row.word, row.document));
            page.field("there", &format!("{}; try again: {}", row.group, retry_text(row.theirs)));
            page.field("here", &row.becomes.text());
            if !row.note.is_empty() {
                page.field("", &row.note);
            }
            for own in row.becomes.words() {
                page.field("", &format!("see `cofferdam explain {own}`"));
            }
        }
        if !found.elsewhere.is_empty() {
            page.heading("CALLED ELSEWHERE");
            let row =
                |row: &&explain::ExternalTerm| [row.word.clone(), row.group.clone(), row.document.clone()];
            page.table(["WORD", "AMONG", "DOCUMENT"], found.elsewhere.iter().map(row).collect());
        }
    }
    if let Some(profile) = answer.profile {
        profile.describe(&mut page);
    }
    page
}

fn describe(page: &mut Page, ours: &CodeInfo) {
    let kind = match ours.class {
        Some(class) => format!("a code of {}", class.name()),
        None => ours.kind.text().to_owned(),
    };
    page.heading(&format!("{} - {kind}", ours.word));
    page.field("meaning", &ours.meaning);
    if !ours.boundary.is_empty() {
        let names: Vec<_> = ours.boundary.iter().map(|boundary| boundary.name()).collect();
        page.field("boundary", &names.join(", "));
    }
    let tone = if ours.again == explain::RetryAdvice::No { TextStyle::Bad } else { TextStyle::Good };
    page.styled_field("try again", tone, ours.again.advice());
    if ours.cause.is_some() {
        let repeated_by: Vec<_> = repeaters(ours).collect();
        let who = if repeated_by.is_empty() { "no profile".to_owned() } else { repeated_by.join(", ") };
        page.field("repeated by", &who);
    }
    page.field("fixed by", ours.fixed_by.text());
    page.field("what to do", &ours.remedy);
    if let Some(code) = ours.exit_code {
        page.field("exit code", &code.to_string());
    }
    if ours.kind == TermKind::Class {
        let codes: Vec<_> = explain::code_infos()
            .iter()
            .filter(|code| code.class.map(FailureClass::name) == Some(ours.word.as_str()))
            .map(|code| code.word.as_str())
            .collect();
        page.field("codes", &codes.join(", "));
    }
}

/// Every word of ours and of the others, and the profiles.
fn list(session: &Session<'_>) -> Result<(), CommandError> {
    #[derive(Serialize)]
    struct WordList {
        ours: &'static [CodeInfo],
        foreign: Vec<&'static explain::ExternalTerm>,
        profiles: Vec<ProfileView>,
    }
    let profiles = PROFILES
        .iter()
        .filter_map(|name| RetryProfile::named(name))
        .map(|profile| ProfileView::new(&profile));
    let all = WordList {
        ours: explain::code_infos(),
        foreign: explain::external_terms().collect(),
        profiles: profiles.collect(),
    };
    session.ui.result(&all, |page| {
        page.heading("OURS");
        let own = |ours: &CodeInfo| {
            let of = ours.class.map_or(ours.kind.text(), FailureClass::name);
            [ours.word.clone(), of.to_owned(), ours.again.word().to_owned(), ours.meaning.clone()]
        };
        page.table(["WORD", "OF", "AGAIN", "MEANING"], all.ours.iter().map(own).collect());
        page.heading("IN OTHER DOCUMENTS");
        let row = |row: &&explain::ExternalTerm| {
            [row.word.clone(), row.group.clone(), row.document.clone(), row.becomes.text()]
        };
        page.table(["WORD", "AMONG", "DOCUMENT", "HERE"], all.foreign.iter().map(row).collect());
        page.heading("RETRY PROFILES");
        page.table(["PROFILE", "REPEATS"], all.profiles.iter().map(ProfileView::row).collect());
    })
}

/// A parser that accepts any text, so that an unknown word gets a helpful error. Shells complete the known words.
#[derive(Debug, Clone)]
struct WordParser;

impl TypedValueParser for WordParser {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        // A shell would split a word with spaces.
        let words = explain::words().into_iter().filter(|word| !word.contains(' '));
        Some(Box::new(words.chain(PROFILES).map(PossibleValue::new)))
    }
}

/// Returns the document's statement for people.
fn retry_text(theirs: ExternalRetry) -> &'static str {
    match theirs {
        ExternalRetry::Yes => "yes",
        ExternalRetry::No => "no",
        ExternalRetry::Maybe => "maybe",
        ExternalRetry::Silent => "it does not say",
    }
}
