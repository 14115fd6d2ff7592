//! The forms in which a secret travels: as it is, and as common encoders write it.
//!
//! Honest services echo what they were sent: in JSON, in a page of HTML, in a URL, in base64 beside other text.
//! These are the forms of such echoes. Encodings that nobody applies by accident (two at once, UTF-16,
//! compression, any cipher) are not here: there is no end to them, and a service that wants to hand a secret
//! out was given it.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use zeroize::Zeroizing;

/// The fewest bytes of a secret that can be told from chance. A shorter one is looked for only where it is a
/// whole header value or a whole parameter of a query.
pub const SHORTEST_SOUGHT: usize = 8;

/// Of a longer secret the beginning is looked for, this many bytes: nobody has these by chance either.
const LONGEST_SOUGHT: usize = 512;

/// Every form of `secret`, each once; none where it is too short.
pub(super) fn of(secret: &str) -> Vec<Zeroizing<Vec<u8>>> {
    if secret.len() < SHORTEST_SOUGHT {
        return Vec::new();
    }
    let end = secret.floor_char_boundary(LONGEST_SOUGHT);
    let text = secret.get(..end).unwrap_or(secret);
    let mut forms = BTreeSet::from([text.to_owned(), text.to_ascii_lowercase(), text.to_ascii_uppercase()]);
    forms.insert(hex(text, LOWER));
    forms.insert(hex(text, UPPER));
    forms.extend(base64(text));
    forms.extend(percent(text));
    forms.extend(json(text));
    forms.extend(html(text));
    forms.retain(|form| form.len() >= SHORTEST_SOUGHT);
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

/// Both alphabets, at the three places that text before it can push it to: of each the characters that only the
/// secret decides, so that padding and neighbours do not matter.
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

/// What each encoder leaves as it is, beside letters and digits: all of RFC 3986's unreserved, JavaScript's
/// `encodeURIComponent` and `encodeURI`, forms, paths, queries; and one that leaves nothing.
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

/// What encoders of JSON write as `\u....` beyond what they must: nothing, Go and Rails, Gson, .NET.
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
        of(secret).iter().map(|form| String::from_utf8(form.to_vec()).unwrap()).collect()
    }

    #[test]
    fn a_plain_key_has_few_forms_and_an_odd_one_those_of_every_encoder() {
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
    fn a_short_secret_has_no_form_and_a_long_one_is_cut() {
        assert_eq!(texts("1234567"), Vec::<String>::new());
        let long = "k".repeat(5000);
        assert!(texts(&long).contains(&"k".repeat(LONGEST_SOUGHT)));
        assert!(texts(&long).iter().all(|form| form.len() <= 6 * LONGEST_SOUGHT));
    }
}
