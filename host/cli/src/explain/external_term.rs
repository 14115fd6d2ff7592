//! The words of other documents about failures, from `external_terms.toml`: the equivalent of each here, or the reason
//! that there is none.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize, Serializer};

/// A document about failures by other authors, with its words.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceDocument {
    /// Its short name.
    pub name: String,
    /// The retry profile that follows it, as Markdown.
    pub profile: String,
    /// Its words.
    pub terms: Vec<ExternalTerm>,
}

/// A document's own statement on retrying a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExternalRetry {
    /// It may be retried.
    Yes,
    /// It must not be retried.
    No,
    /// It depends.
    Maybe,
    /// The document does not say.
    Silent,
}

/// The equivalent of an external word.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TermMapping {
    /// A failure of this class, with one of these codes.
    Failure {
        /// The name of the class.
        class: String,
        /// The codes; empty: any.
        #[serde(default)]
        codes: Vec<String>,
    },
    /// The host's own error with this code.
    Host(String),
    /// The third outcome: neither a value nor a failure.
    Cancelled,
    /// The failure of the last candidate that was called, with `details.chain`.
    AsLast,
    /// A reserved name that nothing produces.
    Reserved,
    /// Nothing yet, and the plan.
    Later(String),
    /// Nothing, and the reason.
    Never(String),
}

impl TermMapping {
    /// Returns the equivalent in a few words.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Failure { class, codes } if codes.is_empty() => class.clone(),
            Self::Failure { class, codes } => format!("{class}, code {}", codes.join(" or ")),
            Self::Host(code) => format!("the host's own error {code}"),
            Self::Cancelled => "the outcome cancelled, which is no failure".to_owned(),
            Self::AsLast => "the failure of the last candidate, with details.chain".to_owned(),
            Self::Reserved => "a reserved name that nothing produces".to_owned(),
            Self::Later(what) => format!("not yet there: {what}"),
            Self::Never(why) => format!("nothing of the kind: {why}"),
        }
    }

    /// Returns the words of the host for it.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        let (first, codes): (Option<&str>, &[String]) = match self {
            Self::Failure { class, codes } => (Some(class), codes),
            Self::Host(code) => (Some(code), &[]),
            Self::Cancelled => (Some("cancelled"), &[]),
            Self::AsLast | Self::Reserved | Self::Later(_) | Self::Never(_) => (None, &[]),
        };
        first.into_iter().chain(codes.iter().map(String::as_str))
    }
}

/// One external word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalTerm {
    /// The name of its document.
    #[serde(skip_deserializing)]
    pub document: String,
    /// The word, as it is written there.
    pub word: String,
    /// Its class, category or list there.
    pub group: String,
    /// The document's own statement on retrying it.
    pub theirs: ExternalRetry,
    /// Its equivalent here.
    #[serde(serialize_with = "as_text")]
    pub becomes: TermMapping,
    /// The differences; empty if there are none.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub note: String,
}

fn as_text<S: Serializer>(becomes: &TermMapping, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&becomes.text())
}

fn parse() -> Result<Vec<SourceDocument>, toml::de::Error> {
    #[derive(Deserialize)]
    struct TermFile {
        document: Vec<SourceDocument>,
    }
    let mut file: TermFile = toml::from_str(include_str!("external_terms.toml"))?;
    for document in &mut file.document {
        for term in &mut document.terms {
            term.document.clone_from(&document.name);
        }
    }
    Ok(file.document)
}

/// Returns the documents with their words.
pub fn documents() -> &'static [SourceDocument] {
    // A test holds that the file parses.
    static ALL: LazyLock<Vec<SourceDocument>> = LazyLock::new(|| parse().unwrap_or_default());
    &ALL
}

/// Returns every external word, document by document.
pub fn external_terms() -> impl Iterator<Item = &'static ExternalTerm> {
    documents().iter().flat_map(|document| &document.terms)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, reason = "a test")]
    use super::*;

    #[test]
    fn the_file_parses_and_no_term_stands_twice() {
        let documents = parse().unwrap_or_else(|error| panic!("external_terms.toml: {error}"));
        let all: Vec<_> = documents.iter().flat_map(|document| &document.terms).collect();
        for (at, term) in all.iter().enumerate() {
            assert!(all.iter().skip(at + 1).all(|other| other != term), "{}", term.word);
        }
    }
}
