//! The `Link` header (RFC 8288), as far as paging needs it.

/// Returns the target of the first link whose relation is `rel`.
pub(crate) fn target<'a>(header: &'a str, rel: &str) -> Option<&'a str> {
    let mut rest = header;
    while let Some((_, after)) = rest.split_once('<') {
        let (target, after) = after.split_once('>')?;
        let params = &after[..end_of_link(after)];
        if relations(params).any(|relation| relation.eq_ignore_ascii_case(rel)) {
            return Some(target.trim());
        }
        rest = &after[params.len()..];
    }
    None
}

/// Returns the end of a link's parameters: the first comma outside quotes.
fn end_of_link(params: &str) -> usize {
    let mut quoted = false;
    let mut escaped = false;
    for (at, byte) in params.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b',' if !quoted => return at,
            _ => {}
        }
    }
    params.len()
}

/// Returns the relations that a link's parameters name: `rel="next last"` names two.
fn relations(params: &str) -> impl Iterator<Item = &str> {
    params
        .split(';')
        .filter_map(|param| param.split_once('='))
        .filter(|(name, _)| name.trim().eq_ignore_ascii_case("rel"))
        .flat_map(|(_, value)| value.trim().trim_matches('"').split_ascii_whitespace())
}

#[cfg(test)]
mod tests {
    use super::target;

    #[test]
    fn the_next_page_is_found() {
        let github =
            r#"<https://api.github.com/x?page=1>; rel="prev", <https://api.github.com/x?page=3>; rel="next""#;
        for (header, expected) in [
            (github, Some("https://api.github.com/x?page=3")),
            ("</x?page=2>; rel=next", Some("/x?page=2")),
            (r#"</x?a=1,2>; title="a, b; rel=\"next\""; rel="last", </y>; REL="Next""#, Some("/y")),
            (r#"</x>; rel="last next""#, Some("/x")),
            (r#"</x>; rel="last""#, None),
            ("</x", None),
            ("", None),
            ("<>", None),
        ] {
            assert_eq!(target(header, "next"), expected, "{header}");
        }
    }
}
