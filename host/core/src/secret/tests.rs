//! The search against its definition: it finds exactly the secrets that are there, in one piece or in many.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use proptest::prelude::*;
use serde_json::json;

use super::{REDACTED, Scanner, Secret, encodings};

const KEY: &str = "sk_live_4eC39/HqLy+jW=Dar&jtT";

fn scanner(secret: &str) -> Scanner {
    Scanner::for_bindings([("bearer/shop/default", &Secret::new(secret.to_owned()))])
}

#[test]
fn encoded_secrets_are_found() {
    let scanner = scanner(KEY);
    let percent: String = url::form_urlencoded::byte_serialize(KEY.as_bytes()).collect();
    for text in [
        format!("before {KEY} after"),
        KEY.to_uppercase(),
        STANDARD.encode(format!("user:{KEY}")),
        STANDARD.encode(format!("{KEY}\n")),
        URL_SAFE_NO_PAD.encode(format!("{{\"key\":\"{KEY}\"}}")),
        STANDARD.encode(format!("ab{KEY}cd")),
        KEY.bytes().map(|byte| format!("{byte:02x}")).collect(),
        KEY.bytes().map(|byte| format!("{byte:02X}")).collect(),
        format!("?key={percent}&x=1"),
        url::Url::parse("http://a/").map(|mut url| (url.set_query(Some(KEY)), url.to_string()).1).unwrap(),
        KEY.bytes().map(|byte| format!("%{byte:02x}")).collect(),
        json!({ "key": KEY }).to_string(),
        json!(KEY).to_string().replace('/', "\\/"),
        json!(KEY).to_string().replace('&', "\\u0026"),
        KEY.chars().map(|c| format!("\\u{:04x}", u32::from(c))).collect(),
        KEY.replace('&', "&amp;"),
    ] {
        assert_eq!(&*scanner.find(text.as_bytes()).unwrap().binding, "bearer/shop/default", "{text}");
        assert!(!scanner.redact(&text, false).contains(KEY), "{text}");
    }
    for text in ["", "before after", &KEY[1..], &KEY[..KEY.len() - 1], &"sk_live_".repeat(50)] {
        assert!(!scanner.finds(text.as_bytes()), "{text}");
        assert_eq!(scanner.redact(text, false), Cow::Borrowed(text));
    }
}

/// The limits of the search in `docs/guides/credentials.md` are real, so that readers do not rely on more.
#[test]
fn documented_limits_of_the_search_are_real() {
    let scanner = scanner(KEY);
    let twice = STANDARD.encode(STANDARD.encode(KEY));
    let utf16: Vec<u8> = KEY.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let reversed: String = KEY.chars().rev().collect();
    let parted = format!("{} {}", &KEY[..10], &KEY[10..]);
    for bytes in [twice.as_bytes(), &utf16, reversed.as_bytes(), parted.as_bytes()] {
        assert!(!scanner.finds(bytes));
    }
}

#[test]
fn a_short_secret_is_found_as_a_whole_value() {
    let scanner = scanner("hunter2");
    assert!(!scanner.is_empty());
    for value in ["hunter2", "Bearer hunter2"] {
        assert!(scanner.find_in_value(value.as_bytes()).is_some(), "{value}");
    }
    for value in ["hunter22", "the hunter2 is away", ""] {
        assert!(scanner.find_in_value(value.as_bytes()).is_none(), "{value}");
    }
    assert!(!scanner.finds(b"Bearer hunter2"), "not in the middle of anything");
    let empty = Scanner::for_bindings([("x", &Secret::new(String::new()))]);
    assert!(empty.is_empty() && empty.find_in_value(b"").is_none());
    assert!(Scanner::default().is_empty());
}

#[test]
fn a_match_names_its_binding() {
    let (one, two) = (Secret::new("the-first-secret".into()), Secret::new("the-second-secret".into()));
    let scanner = Scanner::for_bindings([("one", &one), ("two", &two)]);
    for (text, name) in [("a the-first-secret", "one"), ("a the-second-secret", "two")] {
        assert_eq!(&*scanner.find(text.as_bytes()).unwrap().binding, name);
        assert_eq!(&*scanner.find_in_json(&json!({"a": [text]})).unwrap().binding, name);
        assert_eq!(&*scanner.find_in_json(&json!({text: 1})).unwrap().binding, name);
    }
    assert_eq!(scanner.find_in_json(&json!({"a": ["the-first", "-secret"]})), None);
}

#[test]
fn redaction_covers_a_truncated_secret() {
    let scanner = scanner("the-secret");
    assert_eq!(
        scanner.redact("a the-secret b the-secretthe-secret", true),
        format!("a {REDACTED} b {REDACTED}{REDACTED}")
    );
    assert_eq!(scanner.redact("é the-secré", false), "é the-secré");
    assert_eq!(scanner.redact("é the-secre", false), "é the-secre");
    assert_eq!(scanner.redact("é the-secre", true), format!("é {REDACTED}"));
    assert_eq!(scanner.redact("é the-secret", true), format!("é {REDACTED}"));
}

/// Generates texts that are likely to contain parts of a secret.
fn text_of(parts: &[(u8, u8)], secret: &str) -> Vec<u8> {
    let forms = encodings::encoded_forms(secret);
    let mut text = Vec::new();
    for (kind, number) in parts {
        let form = &forms[usize::from(*number) % forms.len()];
        let part = usize::from(*number) % form.len();
        match kind % 6 {
            0 => text.extend(&**form),
            1 | 2 => text.extend(&form[..part]),
            3 => text.extend(&form[part..]),
            4 => text.extend(std::iter::repeat_n(b'x', usize::from(*number) * 40)),
            _ => text.push(*number),
        }
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// A search in one piece, in pieces, and by naive comparison has the same result. Every byte of a secret
    /// that is found was reported as pending before.
    #[test]
    fn a_chunked_search_leaks_no_byte_of_a_secret(
        secret in "[ -~é]{8,24}",
        repeat in 1..3_usize,
        parts in prop::collection::vec((any::<u8>(), any::<u8>()), 0..12),
        cuts in prop::collection::vec(1..70_usize, 1..40),
    ) {
        let secret = secret.repeat(repeat);
        let scanner = scanner(&secret);
        let text = text_of(&parts, &secret);
        let forms = encodings::encoded_forms(&secret);
        // The first match to end, and the longest of those that end there.
        let ends = forms.iter().filter_map(|form| {
            let at = text.windows(form.len()).position(|window| window == &***form)?;
            Some((at + form.len(), std::cmp::Reverse(form.len())))
        });
        let expected = ends.min().map(|(end, length)| end - length.0);
        prop_assert_eq!(scanner.finds(&text), expected.is_some());

        let mut reading = scanner.scan_stream().unwrap();
        let (mut at, mut out, mut found) = (0, 0, false);
        for cut in cuts.iter().cycle() {
            if at == text.len() {
                break;
            }
            let end = (at + cut).min(text.len());
            match reading.read(&text[at..end]) {
                Ok(pending) => {
                    prop_assert!(end - pending >= out, "what went out is pending again");
                    out = end - pending;
                }
                Err(_) => {
                    found = true;
                    break;
                }
            }
            at = end;
        }
        prop_assert_eq!(found, expected.is_some());
        if let Some(begin) = expected {
            prop_assert!(out <= begin, "{} bytes went out, and the secret begins at {}", out, begin);
        }
    }
}
