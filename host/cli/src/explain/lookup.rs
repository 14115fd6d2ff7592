//! Looks a word up, whoever's it is.

use cofferdam_core::suggest;
use serde::Serialize;

use super::code_info::{CodeInfo, code_infos};
use super::documents::external_terms as rows;
use super::external_term::ExternalTerm;

/// All that is known of a word.
#[derive(Debug, Clone, Serialize)]
pub struct Explanation {
    /// The word, as the tables have it.
    pub word: &'static str,
    /// What it means here; a code may stand under two classes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ours: Vec<&'static CodeInfo>,
    /// What other documents call so, or the words in their list of this name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub foreign: Vec<&'static ExternalTerm>,
    /// What other documents call what it means here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub elsewhere: Vec<&'static ExternalTerm>,
}

/// What the word means; none where nobody says it. Upper and lower case are told apart only where that matters.
#[must_use]
pub fn explain(word: &str) -> Option<Explanation> {
    found(|known| known == word).or_else(|| found(|known| known.eq_ignore_ascii_case(word)))
}

fn found(is_it: impl Fn(&str) -> bool) -> Option<Explanation> {
    let ours: Vec<_> = code_infos().iter().filter(|ours| is_it(ours.word)).collect();
    let mut foreign: Vec<_> = rows().filter(|row| is_it(row.word)).collect();
    let word = ours.first().map(|info| info.word).or_else(|| foreign.first().map(|row| row.word));
    let word = match word {
        Some(word) => word,
        // The name of a list, then.
        None => {
            foreign = rows().filter(|row| is_it(row.group)).collect();
            foreign.first()?.group
        }
    };
    let means_it = |row: &&ExternalTerm| {
        !ours.is_empty() && row.word != word && row.becomes.words().any(|own| own == word)
    };
    let elsewhere = rows().filter(means_it).collect();
    Some(Explanation { word, ours, foreign, elsewhere })
}

/// Every word that can be looked up, in order, each once.
#[must_use]
pub fn words() -> Vec<&'static str> {
    let foreign = rows().flat_map(|row| [row.word, row.group]);
    let mut words: Vec<_> = code_infos().iter().map(|ours| ours.word).chain(foreign).collect();
    words.sort_unstable();
    words.dedup();
    words
}

/// The word that was probably meant.
#[must_use]
pub fn nearest(word: &str) -> Option<&'static str> {
    suggest::nearest(word, words())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]
    use super::*;
    use crate::explain::{TermKind, TermMapping};

    #[test]
    fn a_word_is_found_whoever_says_it() {
        let network = explain("network_error").unwrap();
        assert_eq!((network.ours[0].kind, network.ours.len()), (TermKind::Class, 1));
        assert!(network.elsewhere.iter().any(|row| row.word == "TRANSPORT_ERROR"));
        assert_eq!(explain("agent_timeout").unwrap().word, "AGENT_TIMEOUT", "case does not matter");
        assert_eq!(explain("timeout").unwrap().ours.len(), 2, "of two classes");
        assert_eq!(explain("ProviderTransient").unwrap().foreign.len(), 3, "a list of theirs");
        assert!(explain("no_such_word").is_none());
        assert_eq!(nearest("netwrok_error"), Some("network_error"));
    }

    #[test]
    fn what_a_foreign_word_becomes_is_a_word_of_ours() {
        for row in rows() {
            for word in row.becomes.words() {
                assert!(explain(word).is_some_and(|found| !found.ours.is_empty()), "{}: {word}", row.word);
            }
            if let TermMapping::Failure(class, codes) = row.becomes {
                for code in codes {
                    let known =
                        code_infos().iter().any(|ours| ours.word == *code && ours.class == Some(class));
                    assert!(known, "{}: {} has no code {code}", row.word, class.name());
                }
            }
        }
    }

    #[test]
    fn no_row_stands_twice() {
        let mut seen = std::collections::HashSet::new();
        for ours in code_infos() {
            assert!(seen.insert((ours.word, ours.kind, ours.class)), "{ours:?}");
        }
        for (at, row) in rows().enumerate() {
            let same = |other: &&ExternalTerm| {
                (other.document, other.word, other.group, other.becomes)
                    == (row.document, row.word, row.group, row.becomes)
            };
            assert_eq!(rows().filter(same).count(), 1, "row {at}: {}", row.word);
        }
    }
}
