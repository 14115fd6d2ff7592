//! The forms in which a secret travels: verbatim, and in the output of common encoders.
//!
//! Honest services echo their input: in JSON, in a page of HTML, in a URL, in base64 next to other text.
//! These are the forms of such echoes. Encodings that are never applied by accident (two at once, UTF-16,
//! compression, any cipher) are not covered: their number is unlimited, and a service that wants to leak a
//! secret has it anyway.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use zeroize::Zeroizing;

/// The minimum length in bytes of a secret that does not occur by coincidence. A shorter one is found only if
/// it is a whole header value or a whole query parameter.
pub const MIN_SCANNED_BYTES: usize = 8;

/// The number of bytes of a longer secret, from its beginning, that are scanned for: they do not occur by
/// coincidence either.
const MAX_SCANNED_BYTES: usize = 512;

/// Returns every form of `secret` without duplicates; none if it is too short.
pub(super) fn encoded_forms(secret: &str) -> Vec<Zeroizing<Vec<u8>>> {
    if secret.len() < MIN_SCANNED_BYTES {
        return Vec::new();
    }
    let end = secret.floor_char_boundary(MAX_SCANNED_BYTES);
    let text = secret.get(..end).unwrap_or(secret);
    let mut forms = BTreeSet::from([text.to_owned(), text.to_ascii_lowercase(), text.to_ascii_uppercase()]);
    forms.insert(hex(text, LOWER));
    forms.insert(hex(text, UPPER));
    forms.extend(base64(text));
    forms.extend(percent(text));
    forms.extend(json(text));
    forms.extend(html(text));
    forms.retain(|form| form.len() >= MIN_SCANNED_BYTES);
    forms.into_iter().map(|form| Zeroizing::new(form.into_bytes())).collect()
}

const LOWER: &[u8] = b"0123456789abcdef";
const UPPER: &[u8] = b"0123456789ABCDEF";

fn hex(text: &str, digits: &[u8]) -> String {
    text.bytes().flat_map(|byte| two_digits(byte, digits)).collect()
}

fn two_digits(byte: u8, digits: &[u8]) -> [char; 2] {
    [byte >> 4, byte & 15].map(|digit| digits.get(usize::from(digit)).copied().map_or('0', char::from))
}

/// Returns both alphabets at the three offsets that preceding text can cause: only the characters that the
/// secret alone decides, so that padding and neighbours do not matter.
fn base64(text: &str) -> Vec<String> {
    let mut forms = Vec::new();
    for before in 0..3_usize {
        let bytes = Zeroizing::new([vec![0; before], text.as_bytes().to_vec()].concat());
        let (first, end) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
        for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
            let encoded = Zeroizing::new(engine.encode(&*bytes));
            forms.extend(encoded.get(first..end).map(str::to_owned));
        }
    }
    forms
}

/// The characters that each encoder leaves unchanged in addition to letters and digits: all of RFC 3986's
/// unreserved, JavaScript's `encodeURIComponent` and `encodeURI`, forms, paths, queries; and one that leaves
/// nothing.
const KEPT: [&str; 6] =
    ["-._~", "-_.!~*'()", ";,/?:@&=+$-_.!~*'()#", "*-._", "-._~!$&'()*+,;=:@", "-._~!$&'()*+,;=:@/?"];

fn percent(text: &str) -> Vec<String> {
    let mut forms = Vec::new();
    for digits in [LOWER, UPPER] {
        let escape = |byte: u8| ['%'].into_iter().chain(two_digits(byte, digits)).collect::<String>();
        for kept in KEPT {
            for space in ["%20", "+"] {
                let keeps = |byte: u8| byte.is_ascii_alphanumeric() || kept.as_bytes().contains(&byte);
                let form = text.bytes().map(|byte| match byte {
                    b' ' => space.to_owned(),
                    byte if keeps(byte) => char::from(byte).to_string(),
                    byte => escape(byte),
                });
                forms.push(form.collect());
            }
        }
        forms.push(text.bytes().map(escape).collect());
    }
    forms
}

/// The characters that JSON encoders write as `\u....` without need: nothing, Go and Rails, Gson, .NET.
const UNICODE_ESCAPED: [&str; 4] = ["", "<>&", "<>&='", "<>&+'\"`"];

fn json(text: &str) -> Vec<String> {
    let mut forms = Vec::new();
    for upper in [false, true] {
        let unit = |unit: u16| if upper { format!("\\u{unit:04X}") } else { format!("\\u{unit:04x}") };
        let unicode = |c: char| c.encode_utf16(&mut [0; 2]).iter().map(|it| unit(*it)).collect::<String>();
        forms.push(text.chars().map(unicode).collect());
        for escaped in UNICODE_ESCAPED {
            for (slash, ascii) in [(false, false), (false, true), (true, false), (true, true)] {
                let form = text.chars().map(|c| match c {
                    c if escaped.contains(c) => unicode(c),
                    '"' | '\\' => format!("\\{c}"),
                    '/' if slash => "\\/".to_owned(),
                    '\n' => "\\n".to_owned(),
                    '\r' => "\\r".to_owned(),
                    '\t' => "\\t".to_owned(),
                    c if c.is_control() || (ascii && !c.is_ascii()) => unicode(c),
                    c => c.to_string(),
                });
                forms.push(form.collect());
            }
        }
    }
    forms
}

fn html(text: &str) -> Vec<String> {
    let forms = [["'", "\""], ["&#39;", "&quot;"], ["&#39;", "&#34;"], ["&#x27;", "&quot;"], ["'", "&quot;"]];
    let escaped = |[apostrophe, quote]: [&str; 2]| {
        let form = text.chars().map(|c| match c {
            '&' => "&amp;".to_owned(),
            '<' => "&lt;".to_owned(),
            '>' => "&gt;".to_owned(),
            '"' => quote.to_owned(),
            '\'' => apostrophe.to_owned(),
            c => c.to_string(),
        });
        form.collect()
    };
    forms.into_iter().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    fn texts(secret: &str) -> Vec<String> {
        encoded_forms(secret).iter().map(|form| String::from_utf8(form.to_vec()).unwrap()).collect()
    }

    #[test]
    fn secrets_have_the_forms_of_every_encoder() {
        let plain = texts("xoxb-12345-AbCdEf");
        assert!(plain.len() <= 20, "{plain:#?}");
        let odd = texts("a/b+c=d&e<f>g\"h'i j");
        for form in [
            "a/b+c=d&e<f>g\"h'i j",
            "a/b+c=d&e<f>g\\\"h'i j",
            "a\\/b+c=d&e<f>g\\\"h'i j",
            "a/b+c=d\\u0026e\\u003cf\\u003eg\\\"h'i j",
            "a/b+c\\u003dd\\u0026e\\u003cf\\u003eg\\\"h\\u0027i j",
            "a/b\\u002Bc=d\\u0026e\\u003Cf\\u003Eg\\u0022h\\u0027i j",
            "a%2Fb%2Bc%3Dd%26e%3Cf%3Eg%22h'i%20j",
            "a%2fb%2bc%3dd%26e%3cf%3eg%22h%27i+j",
            "a/b+c=d&amp;e&lt;f&gt;g&quot;h&#39;i j",
        ] {
            assert!(odd.iter().any(|it| it == form), "{form} is not in {odd:#?}");
        }
        assert!(odd.len() <= 60, "{}", odd.len());
    }

    #[test]
    fn short_secrets_have_no_forms_and_long_are_cut() {
        assert_eq!(texts("1234567"), Vec::<String>::new());
        let long = "k".repeat(5000);
        assert!(texts(&long).contains(&"k".repeat(MAX_SCANNED_BYTES)));
        assert!(texts(&long).iter().all(|form| form.len() <= 6 * MAX_SCANNED_BYTES));
    }
}
