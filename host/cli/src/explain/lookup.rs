//! Looks up a word of the host or of another document.

use cofferdam_core::suggest;
use serde::Serialize;

use super::code_info::{CodeInfo, code_infos};
use super::external_term::{ExternalTerm, external_terms as rows};

/// The explanation of a word.
#[derive(Debug, Clone, Serialize)]
pub struct Explanation {
    /// The word, as the tables have it.
    pub word: &'static str,
    /// Its meanings here; a code may belong to two classes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ours: Vec<&'static CodeInfo>,
    /// The terms of other documents with this name, or in a group of this name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub foreign: Vec<&'static ExternalTerm>,
    /// The terms of other documents with the same meaning.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub elsewhere: Vec<&'static ExternalTerm>,
}

/// Explains a word, if it is known. An exact match is preferred to one that ignores case.
#[must_use]
pub fn explain(word: &str) -> Option<Explanation> {
    lookup(|known| known == word).or_else(|| lookup(|known| known.eq_ignore_ascii_case(word)))
}

fn lookup(is_it: impl Fn(&str) -> bool) -> Option<Explanation> {
    let ours: Vec<_> = code_infos().iter().filter(|ours| is_it(&ours.word)).collect();
    let mut foreign: Vec<_> = rows().filter(|row| is_it(&row.word)).collect();
    let word = ours.first().map(|info| &info.word).or_else(|| foreign.first().map(|row| &row.word));
    let word = match word {
        Some(word) => word,
        // The name of a list, then.
        None => {
            foreign = rows().filter(|row| is_it(&row.group)).collect();
            &foreign.first()?.group
        }
    };
    let means_it = |row: &&ExternalTerm| {
        !ours.is_empty() && row.word != *word && row.becomes.words().any(|own| own == word)
    };
    let elsewhere = rows().filter(means_it).collect();
    Some(Explanation { word, ours, foreign, elsewhere })
}

/// Returns every word that can be explained, sorted and without duplicates.
#[must_use]
pub fn words() -> Vec<&'static str> {
    let foreign = rows().flat_map(|row| [row.word.as_str(), row.group.as_str()]);
    let mut words: Vec<_> = code_infos().iter().map(|ours| ours.word.as_str()).chain(foreign).collect();
    words.sort_unstable();
    words.dedup();
    words
}

/// Returns the known word that is the most similar.
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
    fn a_word_is_found_by_name_and_group() {
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
    fn equivalents_are_words_of_the_host() {
        for row in rows() {
            for word in row.becomes.words() {
                assert!(explain(word).is_some_and(|found| !found.ours.is_empty()), "{}: {word}", row.word);
            }
            if let TermMapping::Failure { class, codes } = &row.becomes {
                let of_class = |ours: &&CodeInfo| ours.class.is_some_and(|it| it.name() == class);
                for code in codes {
                    let known = code_infos().iter().filter(of_class).any(|ours| ours.word == *code);
                    assert!(known, "{}: {class} has no code {code}", row.word);
                }
            }
        }
    }
}
