//! The position in a list of tools: after a name, encoded so that no other text is accepted by accident.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use cofferdam_core::digest::Digest;

/// The longest accepted cursor, in bytes; a name has 64.
const LONGEST: usize = 256;

/// The number of digits that distinguish a cursor from any other text.
const MARK: usize = 16;

/// Returns the cursor to the tools after this name.
pub(super) fn after(name: &str) -> String {
    format!("{}.{}", URL_SAFE_NO_PAD.encode(name), mark(name))
}

/// Returns the name in the cursor; none if it is no cursor of this list. The tool need not exist any more:
/// the list is sorted, and continues after its position.
pub(super) fn read(cursor: &str) -> Option<String> {
    if cursor.len() > LONGEST {
        return None;
    }
    let (name, own) = cursor.split_once('.')?;
    let name = String::from_utf8(URL_SAFE_NO_PAD.decode(name).ok()?).ok()?;
    (mark(&name) == own).then_some(name)
}

/// Returns the mark. It is no secret: a forged cursor only reads a part of a list that the client may read
/// completely.
fn mark(name: &str) -> String {
    Digest::sha256(format!("tools after {name}").as_bytes()).to_string().chars().take(MARK).collect()
}

#[cfg(test)]
mod tests {
    use super::{after, read};

    #[test]
    fn only_what_was_made_here_is_read() {
        let cursor = after("slack__post_message");
        assert_eq!(read(&cursor).as_deref(), Some("slack__post_message"));
        let other = after("slack__post_messagf");
        let mixed =
            format!("{}.{}", cursor.split('.').next().unwrap_or_default(), &other[other.len() - 16..]);
        for foreign in [
            "",
            ".",
            "1000",
            "slack__post_message",
            "c2xhY2s",
            "c2xhY2s.",
            "\u{0}\u{1b}[31m.x",
            &cursor[1..],
            &cursor[..cursor.len() - 1],
            &format!("{cursor}0"),
            &cursor.to_uppercase(),
            &mixed,
            &"x".repeat(1 << 20),
        ] {
            assert_eq!(read(foreign), None, "{}", &foreign[..foreign.len().min(100)]);
        }
    }
}
