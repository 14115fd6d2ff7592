//! The nearest known word, for every "did you mean".

/// The longest word that is compared, in bytes; a longer one is not a typing mistake.
const LONGEST: usize = 250;

/// Returns the word of `among` that is nearest to `word`, if one is near: a third of its letters differ,
/// three at most, or it is truncated. Upper case and hyphens do not count as mistakes.
pub fn nearest<'w>(word: &str, among: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    if word.is_empty() || word.len() > LONGEST {
        return None;
    }
    let fold = |text: &str| text.to_ascii_lowercase().replace('-', "_");
    let folded = fold(word);
    let scored = among.into_iter().filter(|known| known.len() <= LONGEST).filter_map(|known| {
        let other = fold(known);
        let wrong = strsim::damerau_levenshtein(&folded, &other);
        let near = wrong <= (other.chars().count() / 3).clamp(1, 3);
        let cut_short = folded.len() >= 3 && other.starts_with(&folded);
        (near || cut_short).then_some((wrong, known))
    });
    scored.min().map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn only_near_words_are_suggested() {
        let words = ["post_message", "list_issues", "get", "city", "github://cofferdam/hello"];
        for (word, meant) in [
            ("post-mesage", Some("post_message")),
            ("PostMessage", Some("post_message")),
            ("list", Some("list_issues")),
            ("list_isues", Some("list_issues")),
            ("gte", Some("get")),
            ("ctiy", Some("city")),
            ("github://cofferdam/helo", Some("github://cofferdam/hello")),
            ("github://cofferdam/probe", None),
            ("remove", None),
            ("li", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, words), meant, "{word}");
        }
        assert_eq!(nearest(&"x".repeat(1_000_000), words), None, "and it costs nothing");
    }
}
