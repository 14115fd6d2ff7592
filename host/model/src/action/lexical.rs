//! The lexical rules of an action's file: names, times and lines of text.

use std::time::Duration;

use cofferdam_core::document::{DocumentTable, InvalidValue, quoted};
use cofferdam_core::failure::sanitize_line;
use cofferdam_core::limits::parse_time;

/// Longest name of an action, in bytes.
pub(super) const NAME_BYTES: usize = 100;

/// Longest name of an input or a step, in bytes.
const WORD_BYTES: usize = 64;

/// An action's name, which is also its file's.
pub fn action_name(name: &str) -> Result<(), InvalidValue> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let first = name.bytes().next().is_some_and(plain);
    if first && name.len() <= NAME_BYTES && name.bytes().all(|b| plain(b) || b"._-".contains(&b)) {
        return Ok(());
    }
    let message = format!("{} is not an action's name", quoted(name));
    let fix = "write 1 to 100 of a-z, 0-9, `.`, `_` and `-`, beginning with a letter or digit, like \"ship-update\"";
    Err(InvalidValue::new(message, fix))
}

/// The name of an input or a step.
pub(super) fn word(what: &str, name: &str) -> Result<String, InvalidValue> {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    let first = name.bytes().next().is_some_and(|b| b.is_ascii_lowercase());
    if first && name.len() <= WORD_BYTES && name.bytes().all(inner) {
        return Ok(name.to_owned());
    }
    let message = format!("{} is not {what}", quoted(name));
    Err(InvalidValue::new(
        message,
        "write up to 64 of a-z, 0-9 and `_`, beginning with a letter, like \"find_pr\"",
    ))
}

/// A time above zero, up to `most`.
pub(super) fn time(text: &str, most: Duration, shown: &str) -> Result<Duration, InvalidValue> {
    match parse_time(text) {
        Some(time) if time > most => {
            Err(InvalidValue::new(format!("{} is more than {shown}", quoted(text)), "write that or less"))
        }
        Some(time) => Ok(time),
        None => {
            let message = format!("{} is not a time above zero", quoted(text));
            Err(InvalidValue::new(message, "write it like \"500ms\", \"10s\" or \"2m\""))
        }
    }
}

/// One line of readable text of at most `max` characters, if it is there.
pub(super) fn line(table: &DocumentTable<'_>, key: &str, max: usize) -> Option<String> {
    table.text(key)?.parse(|text| {
        if !text.is_empty() && sanitize_line(text, max) == **text {
            return Ok((*text).to_owned());
        }
        let message = "this is not one line of readable text";
        Err(InvalidValue::new(message, format!("write 1 to {max} characters without control characters")))
    })
}

/// Readable text of at most `max` characters; it may have several lines.
pub(super) fn prose(text: &str, max: usize) -> Result<String, InvalidValue> {
    let hidden = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
    let text = text.trim();
    if text.is_empty() || text.chars().count() > max || text.chars().any(hidden) {
        let message = "this is not a description";
        return Err(InvalidValue::new(
            message,
            format!("write 1 to {max} characters without control characters"),
        ));
    }
    Ok(text.to_owned())
}

/// Returns the first `most` of the tables; one more is reported.
pub(super) fn bounded<'a, 't>(tables: &'a [DocumentTable<'t>], most: usize) -> &'a [DocumentTable<'t>] {
    if let Some(beyond) = tables.get(most) {
        let message = format!("there are {} of these, more than {most}", tables.len());
        beyond.location().refuse(InvalidValue::new(message, "leave some out, or make two actions of it"));
    }
    tables.get(..most).unwrap_or(tables)
}

/// Refuses a name that was used above.
pub(super) fn check_unique<'n>(table: &DocumentTable<'_>, key: &str, name: &'n str, seen: &mut Vec<&'n str>) {
    if seen.contains(&name)
        && let Some(text) = table.text(key)
    {
        let message = format!("{} stands above already", quoted(name));
        text.refuse(InvalidValue::new(message, "give each a name of its own"));
    }
    seen.push(name);
}
