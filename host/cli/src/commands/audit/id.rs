//! The id of a call, as people give it: whole, or its beginning as long as that is one call's alone.

use cofferdam_audit::AuditReader;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::{AuditId, sanitize_line};

use crate::report::CommandError;

/// Fewest digits of a beginning.
const DIGITS: usize = 6;

/// A whole id; `audit-` may be left out.
pub(super) fn parse_full(text: &str) -> Option<AuditId> {
    range(text).and_then(|(from, to)| (from == to).then_some(from))
}

/// The call that `text` means.
pub(super) fn find(reader: Option<&mut dyn AuditReader>, text: &str) -> Result<AuditId, CommandError> {
    let (from, to) = range(text).ok_or_else(|| malformed(text))?;
    let found = match reader {
        Some(reader) => reader.between(&from, &to, 4)?,
        None => Vec::new(),
    };
    match found.as_slice() {
        [one] => Ok(one.clone()),
        [] => {
            let message = format!("The audit log has no call `{}`.", sanitize_line(text, 100));
            let hint = "`cofferdam audit list` shows those it has; `cofferdam audit changes` shows installs \
                        and other changes.";
            Err(HostError::new(HostErrorKind::AuditNotFound, message).with_hint(hint).into())
        }
        several => {
            let message = format!("Several calls begin with `{}`.", sanitize_line(text, 100));
            let ids: Vec<_> = several.iter().take(3).map(AuditId::as_str).collect();
            let more = if several.len() > 3 { " or another" } else { "" };
            let hint = format!("Give more of it: {}{more}.", ids.join(", "));
            Err(HostError::new(HostErrorKind::Validation, message).with_hint(hint).into())
        }
    }
}

/// The first and the last id that begin so.
fn range(text: &str) -> Option<(AuditId, AuditId)> {
    let text = text.strip_prefix("audit-").unwrap_or(text);
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let fits = (DIGITS..=32).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let filled = |with: char| {
        let mut id = String::from("audit-");
        let all = digits.chars().chain(std::iter::repeat(with)).take(32);
        for (at, c) in all.enumerate() {
            if matches!(at, 8 | 12 | 16 | 20) {
                id.push('-');
            }
            id.push(c.to_ascii_lowercase());
        }
        AuditId::parse(&id)
    };
    if fits { filled('0').zip(filled('f')) } else { None }
}

fn malformed(text: &str) -> CommandError {
    let message = format!("`{}` is not the id of a call.", sanitize_line(text, 100));
    let hint = "It is written like audit-0193b5c8-7d3e-7c4a-9f21-3e5d8a1b6c70; six digits may do. `cofferdam audit \
                list` shows those there are.";
    HostError::new(HostErrorKind::AuditNotFound, message).with_hint(hint).into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn ids_are_complete_or_prefixes() {
        let id = AuditId::mint();
        assert_eq!(range(id.as_str()).unwrap(), (id.clone(), id.clone()));
        assert_eq!(range(&id.as_str()[6..].to_uppercase()).unwrap().0, id);
        let (from, to) = range("audit-0193b5c8-7").unwrap();
        assert_eq!(from.as_str(), "audit-0193b5c8-7000-0000-0000-000000000000");
        assert_eq!(to.as_str(), "audit-0193b5c8-7fff-ffff-ffff-ffffffffffff");
        for text in ["", "audit-", "01", "audit-0193b5cx", &"0".repeat(33), "0193b5c8é"] {
            assert!(range(text).is_none(), "{text}");
        }
    }
}
