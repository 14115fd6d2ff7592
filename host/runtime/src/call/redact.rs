//! Redacts and shortens the texts that go to the audit log.

use std::fmt;
use std::sync::Arc;

use cofferdam_core::digest::Digest;
use cofferdam_core::event::recorded::{RecordedLogLine, RecordedPayload, RecordedRequest};
use cofferdam_core::secret::{Scanner, redact_likely_secrets};
use cofferdam_sandbox::RecordedLog;
use serde_json::{Map, Value};

/// The secrets that a call could carry, to be searched for.
#[derive(Clone, Default)]
pub(super) struct ScannerSet(Vec<Arc<Scanner>>);

impl fmt::Debug for ScannerSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Known").finish_non_exhaustive()
    }
}

/// Removes secrets from texts for the audit log. Secrets that the call could carry are replaced by their binding's
/// name. Texts that look like a secret are removed.
#[derive(Default)]
pub(super) struct FieldRedactor {
    scanners: ScannerSet,
    /// The longest text, in bytes.
    most: usize,
}

impl FieldRedactor {
    /// Creates a redactor that keeps up to `most` bytes of each text. With 0 it keeps no payloads.
    pub(super) fn new(most: usize) -> Self {
        Self { scanners: ScannerSet::default(), most }
    }

    /// Adds these secrets.
    pub(super) fn add_scanner(&mut self, scanner: Arc<Scanner>) {
        let known = self.scanners.0.iter().any(|other| Arc::ptr_eq(other, &scanner));
        if !known && !scanner.is_empty() {
            self.scanners.0.push(scanner);
        }
    }

    /// Returns all secrets that it knows.
    pub(super) fn known(&self) -> ScannerSet {
        self.scanners.clone()
    }

    /// Adds these secrets, too.
    pub(super) fn add_scanners(&mut self, secrets: &ScannerSet) {
        secrets.0.iter().for_each(|scanner| self.add_scanner(Arc::clone(scanner)));
    }

    /// Returns a payload in readable form. None if payloads are not kept.
    pub(super) fn payload(&self, bytes: &[u8]) -> Option<String> {
        (self.most > 0).then(|| self.capped(bytes, self.most))
    }

    /// Returns what the audit log has of a payload.
    pub(super) fn recorded(&self, payload: &[u8]) -> RecordedPayload {
        RecordedPayload { text: self.payload(payload), ..measured(payload) }
    }

    /// Redacts a text.
    pub(super) fn text(&self, text: &str) -> String {
        // An operator needs the text of a failure, so it is kept even if payloads are not.
        self.capped(text.as_bytes(), self.most.max(SHORTEST_CAP))
    }

    /// Redacts a value with every text in it.
    pub(super) fn value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.text(text).into(),
            Value::Array(items) => items.iter().map(|item| self.value(item)).collect(),
            Value::Object(fields) => self.fields(fields).into(),
            other => other.clone(),
        }
    }

    /// Redacts an object's fields.
    pub(super) fn fields(&self, fields: &Map<String, Value>) -> Map<String, Value> {
        fields.iter().map(|(name, value)| (name.clone(), self.value(value))).collect()
    }

    /// Redacts the texts of a request that the guest chose. A path may have the same content as payloads, so that none is
    /// kept if no payloads are.
    pub(super) fn request(&self, request: &RecordedRequest<'static>) -> RecordedRequest<'static> {
        RecordedRequest {
            host: self.text(&request.host).into(),
            method: self.text(&request.method).into(),
            path: if self.most == 0 { "".into() } else { self.text(&request.path).into() },
            ..request.clone()
        }
    }

    /// Returns what the audit log has of a guest's log lines, and the number of omitted ones. They may have the same
    /// content as payloads, so that no line is kept if no payloads are.
    pub(super) fn log(&self, log: &RecordedLog) -> (Vec<RecordedLogLine<'static>>, u64) {
        if self.most == 0 {
            return (Vec::new(), log.omitted.saturating_add(log.lines.len() as u64));
        }
        let line = |line: &RecordedLogLine<'static>| RecordedLogLine {
            at: line.at.clone(),
            level: line.level.clone(),
            text: self.capped(line.text.as_bytes(), self.most),
        };
        (log.lines.iter().map(line).collect(), log.omitted)
    }

    fn capped(&self, bytes: &[u8], most: usize) -> String {
        let cut = bytes.len() > most;
        let kept = bytes.get(..most).unwrap_or(bytes);
        let kept = match std::str::from_utf8(kept) {
            Ok(text) => text,
            Err(error) => {
                let whole = kept.get(..error.valid_up_to()).unwrap_or_default();
                std::str::from_utf8(whole).unwrap_or_default()
            }
        };
        let mut clean = redact_likely_secrets(kept, cut).into_owned();
        for scanner in &self.scanners.0 {
            let named = scanner.redact_as(&clean, cut, |binding| format!("<ref:{binding}>"));
            clean = named.into_owned();
        }
        if cut {
            clean.push_str(&format!("…[truncated, {} bytes]", bytes.len()));
        }
        clean
    }
}

/// Returns the length and the hash of a payload.
pub(super) fn measured(payload: &[u8]) -> RecordedPayload {
    RecordedPayload { bytes: payload.len() as u64, sha256: Digest::sha256(payload).to_string(), text: None }
}

/// The smallest limit for a failure's text, in bytes.
const SHORTEST_CAP: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_core::secret::Secret;

    #[test]
    fn secrets_are_named_and_long_texts_truncated() {
        let secret = Secret::new("s3cr3t-s3cr3t".to_owned());
        let mut redactor = FieldRedactor::new(40);
        redactor.add_scanner(Arc::new(Scanner::for_bindings([("api_key/a/default", &secret)])));
        let text = "{\"key\":\"s3cr3t-s3cr3t\"}";
        assert_eq!(
            redactor.payload(text.as_bytes()).as_deref(),
            Some("{\"key\":\"<ref:api_key/a/default>\"}")
        );
        let long = "é".repeat(100);
        let kept = redactor.payload(long.as_bytes()).unwrap_or_default();
        assert_eq!(kept, format!("{}…[truncated, 200 bytes]", "é".repeat(20)));
        let odd = format!("x{long}");
        let kept = redactor.payload(odd.as_bytes()).unwrap_or_default();
        assert_eq!(kept, format!("x{}…[truncated, 201 bytes]", "é".repeat(19)));
        let at_the_end = format!("{}s3cr3t-s3cr3t", "x".repeat(33));
        let kept = redactor.payload(at_the_end.as_bytes()).unwrap_or_default();
        assert!(!kept.contains("s3cr3t"), "{kept}");
        assert_eq!(FieldRedactor::new(0).payload(b"{}"), None);
    }
    #[test]
    fn texts_of_attempts_are_redacted() {
        let secret = Secret::new("s3cr3t-s3cr3t".to_owned());
        let text = "a s3cr3t-s3cr3t".to_owned();
        let line = RecordedLogLine { text: text.clone(), ..RecordedLogLine::default() };
        let log = RecordedLog { lines: vec![line.clone(), line], omitted: 3 };
        let request = RecordedRequest { path: text.into(), status: Some(200), ..RecordedRequest::default() };
        let mut redactor = FieldRedactor::new(40);
        redactor.add_scanner(Arc::new(Scanner::for_bindings([("api_key/a/default", &secret)])));
        let (lines, omitted) = redactor.log(&log);
        assert_eq!((lines.len(), omitted), (2, 3));
        assert!(lines.iter().all(|line| line.text == "a <ref:api_key/a/default>"), "{lines:?}");
        let recorded = redactor.request(&request);
        assert_eq!((&*recorded.path, recorded.status), ("a <ref:api_key/a/default>", Some(200)));
        assert_eq!(FieldRedactor::new(0).log(&log), (Vec::new(), 5), "payloads are not kept");
    }
}
