//! Looks for a secret in all output, in more forms than the host itself looks for.

use std::path::Path;

use aho_corasick::AhoCorasick;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// Every form of `secret`, by name. Implemented independently of the host's code, so that a form missing there
/// is found here.
pub(super) fn forms(secret: &str) -> Vec<(String, Vec<u8>)> {
    let mut forms = vec![
        ("raw".to_owned(), secret.to_owned()),
        ("reversed".to_owned(), secret.chars().rev().collect()),
        ("lower".to_owned(), secret.to_lowercase()),
        ("upper".to_owned(), secret.to_uppercase()),
        ("hex".to_owned(), secret.bytes().map(|byte| format!("{byte:02x}")).collect()),
        ("HEX".to_owned(), secret.bytes().map(|byte| format!("{byte:02X}")).collect()),
        ("percent".to_owned(), url::form_urlencoded::byte_serialize(secret.as_bytes()).collect()),
        ("JSON".to_owned(), serde_json::to_string(secret).unwrap().trim_matches('"').to_owned()),
        ("JSON, /".to_owned(), secret.replace('/', "\\/")),
        ("debug".to_owned(), format!("{secret:?}").trim_matches('"').to_owned()),
        ("bytes".to_owned(), format!("{:?}", secret.as_bytes()).trim_matches(['[', ']']).to_owned()),
        ("unicode".to_owned(), secret.chars().map(|c| format!("\\u{:04x}", u32::from(c))).collect()),
    ];
    forms.push(("percent, lower".to_owned(), forms[6].1.to_lowercase()));
    for before in 0..3 {
        for (name, engine) in [("base64", STANDARD_NO_PAD), ("base64url", URL_SAFE_NO_PAD)] {
            let text = engine.encode(["x".repeat(before).as_bytes(), secret.as_bytes()].concat());
            // The first characters depend on the preceding bytes, the last on the following ones.
            forms.push((format!("{name}, {before} before"), text[before + 1..text.len() - 1].to_owned()));
        }
    }
    forms.into_iter().map(|(name, text)| (name, text.into_bytes())).collect()
}

/// All forms of all `secrets`, to be looked for at once: by the number of the secret and the name of the form.
pub(super) struct Net {
    forms: Vec<(usize, String)>,
    search: AhoCorasick,
}

impl Net {
    pub(super) fn of(secrets: &[&str]) -> Self {
        let all = secrets.iter().enumerate();
        let all = all.flat_map(|(number, secret)| forms(secret).into_iter().map(move |form| (number, form)));
        let (forms, bytes): (Vec<_>, Vec<_>) =
            all.map(|(number, (name, bytes))| ((number, name), bytes)).unzip();
        Self { forms, search: AhoCorasick::new(bytes).unwrap() }
    }

    /// The matches in `bytes`.
    pub(super) fn caught(&self, bytes: &[u8]) -> Vec<&(usize, String)> {
        self.search.find_overlapping_iter(bytes).map(|found| &self.forms[found.pattern()]).collect()
    }
}

/// Every file below `dir`, with what is in it.
pub(super) fn files(dir: &Path, each: &mut impl FnMut(&Path, &[u8])) {
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => files(&path, each),
            kind if kind.is_file() => each(&path, &std::fs::read(&path).unwrap()),
            _ => {}
        }
    }
}
