//! The response of a token endpoint: tokens, a rejection, or an unusable answer.

use std::time::Duration;

use cofferdam_core::privileged::ExposeSecret as _;
use cofferdam_core::secret::Secret;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

/// The upper bound of a token's lifetime. A longer one is considered a mistake of the issuer.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// Tokens as they were issued.
pub(super) struct TokenResponse {
    pub(super) access_token: Secret,
    /// The expiry; `None` if the issuer did not state one.
    pub(super) expires: Option<Timestamp>,
    /// The replacement of the refresh token, if the issuer rotates it.
    pub(super) refresh_token: Option<Secret>,
}

/// A response without a usable token.
pub(super) struct TokenError {
    pub(super) why: TokenErrorKind,
    /// The replacement of the refresh token, if there is one: the token that was sent is spent even though no
    /// access token came.
    pub(super) refresh_token: Option<Secret>,
}

/// The reason why there is no token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TokenErrorKind {
    /// The issuer rejected the request; retrying does not help.
    Refused(String),
    /// A transient failure: the issuer has a problem, or something else answered in its place.
    Passing(String),
    /// The issuer returned a token that cannot be sent as a bearer token.
    Unsendable(&'static str),
}

/// The fields that matter (RFC 6749, 5.1 and 5.2); others are ignored.
#[derive(Deserialize)]
struct TokenResponseFields {
    access_token: Option<String>,
    token_type: Option<String>,
    expires_in: Option<Value>,
    refresh_token: Option<String>,
    error: Option<Value>,
}

/// Reads a response that arrived at `now`.
pub(super) fn read(status: u16, body: &[u8], now: Timestamp) -> Result<TokenResponse, TokenError> {
    let fields = serde_json::from_slice::<TokenResponseFields>(body).ok();
    let error = fields.as_ref().and_then(|fields| fields.error.as_ref()).and_then(error_code);
    let why = match (status, fields) {
        (408 | 429 | 500.., _) => TokenErrorKind::Passing(answered(status, error.as_deref())),
        // Some issuers report an error with status 200.
        (200..=299, Some(TokenResponseFields { access_token: None, .. })) if error.is_some() => {
            TokenErrorKind::Refused(answered(status, error.as_deref()))
        }
        (200..=299, Some(fields)) => return token_response(fields, now),
        (200..=299, None) => {
            TokenErrorKind::Passing(format!("it answered with status {status} and no tokens"))
        }
        (300..=399, _) => {
            TokenErrorKind::Refused(format!("it answered with a redirect ({status}), which is not followed"))
        }
        _ => TokenErrorKind::Refused(answered(status, error.as_deref())),
    };
    Err(TokenError { why, refresh_token: None })
}

fn answered(status: u16, error: Option<&str>) -> String {
    match error {
        Some(code) => format!("it answered with status {status} ({code})"),
        None => format!("it answered with status {status}"),
    }
}

/// Returns the issuer's error code if it is a plain word. Other text is dropped: it may contain anything.
fn error_code(error: &Value) -> Option<String> {
    let code = error.as_str()?;
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-.".contains(&b);
    ((1..=64).contains(&code.len()) && code.bytes().all(plain)).then(|| code.to_owned())
}

fn token_response(fields: TokenResponseFields, now: Timestamp) -> Result<TokenResponse, TokenError> {
    let refresh_token = fields.refresh_token.filter(|token| !token.is_empty()).map(Secret::new);
    match bearer(fields.access_token, fields.token_type) {
        Ok(access_token) => Ok(TokenResponse {
            access_token,
            expires: expires(fields.expires_in.as_ref(), now),
            refresh_token,
        }),
        Err(why) => Err(TokenError { why, refresh_token }),
    }
}

/// Returns the access token, if it can be sent as a bearer token.
fn bearer(token: Option<String>, kind: Option<String>) -> Result<Secret, TokenErrorKind> {
    let Some(token) = token.filter(|token| !token.is_empty()) else {
        return Err(TokenErrorKind::Passing("its answer has no access token".into()));
    };
    let access_token = Secret::new(token);
    if kind.is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
        return Err(TokenErrorKind::Unsendable("its issuer gives tokens of another type than bearer"));
    }
    if !access_token.expose().bytes().all(|b| b.is_ascii_graphic()) {
        return Err(TokenErrorKind::Unsendable(
            "its issuer gave a token with characters that no header can carry",
        ));
    }
    Ok(access_token)
}

/// Computes the expiry from a number of seconds, which some issuers write as text. A meaningless value counts
/// as missing.
fn expires(seconds: Option<&Value>, now: Timestamp) -> Option<Timestamp> {
    let seconds = match seconds? {
        Value::Number(number) => number.as_f64()?,
        Value::String(text) => text.trim().parse::<f64>().ok()?,
        _ => return None,
    };
    if !seconds.is_finite() {
        return None;
    }
    let lifetime = Duration::from_secs_f64(seconds.clamp(0.0, LONGEST.as_secs_f64()));
    now.checked_add(lifetime).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn refused(status: u16, body: &str) -> TokenErrorKind {
        read(status, body.as_bytes(), now()).err().unwrap().why
    }

    #[test]
    fn tokens_are_parsed_with_any_expiry_form() {
        for (expires_in, end) in [
            ("3600", Some("2026-01-01T01:00:00Z")),
            ("\"3600\"", Some("2026-01-01T01:00:00Z")),
            ("3600.0", Some("2026-01-01T01:00:00Z")),
            ("0", Some("2026-01-01T00:00:00Z")),
            ("-5", Some("2026-01-01T00:00:00Z")),
            ("1e300", Some("2027-01-02T00:00:00Z")),
            ("99999999999999999999999", Some("2027-01-02T00:00:00Z")),
            ("null", None),
            ("\"soon\"", None),
            ("[]", None),
        ] {
            let body =
                format!(r#"{{"access_token":"t0k","token_type":"Bearer","expires_in":{expires_in},"x":1}}"#);
            let given = read(200, body.as_bytes(), now()).ok().unwrap();
            assert_eq!(given.expires.map(|end| end.to_string()).as_deref(), end, "{expires_in}");
            assert!(given.refresh_token.is_none());
        }
        let given = read(200, br#"{"access_token":"a","refresh_token":"r"}"#, now()).ok().unwrap();
        assert_eq!((given.access_token.expose(), given.refresh_token.unwrap().expose()), ("a", "r"));
        assert_eq!(given.expires, None);
    }

    #[test]
    fn token_errors_are_classified() {
        let says = |status, body, word: &str| {
            let TokenErrorKind::Refused(why) = refused(status, body) else { unreachable!("{status} {body}") };
            assert!(why.contains(word), "{why}");
        };
        says(400, r#"{"error":"invalid_grant","error_description":"revoked"}"#, "400 (invalid_grant)");
        says(401, r#"{"error":"invalid_client"}"#, "401 (invalid_client)");
        says(200, r#"{"ok":false,"error":"invalid_refresh_token"}"#, "200 (invalid_refresh_token)");
        says(403, "<html>", "status 403");
        says(404, "", "status 404");
        says(302, "", "redirect");
        says(400, "{\"error\":\"line\\nend\"}", "status 400");
        for (status, body) in [
            (500, ""),
            (503, r#"{"error":"temporarily_unavailable"}"#),
            (429, ""),
            (408, ""),
            (200, "<html>welcome to our network</html>"),
            (200, ""),
            (200, "{}"),
            (200, r#"{"access_token":""}"#),
            (200, r#"{"access_token":7}"#),
            (200, r#"["access_token"]"#),
        ] {
            assert!(matches!(refused(status, body), TokenErrorKind::Passing(_)), "{status} {body}");
        }
        for body in [
            r#"{"access_token":"a\r\nX-Evil: 1","token_type":"bearer"}"#,
            r#"{"access_token":"\u00e9","token_type":"bearer"}"#,
            r#"{"access_token":"a b"}"#,
            r#"{"access_token":"a","token_type":"mac"}"#,
        ] {
            assert!(matches!(refused(200, body), TokenErrorKind::Unsendable(_)), "{body}");
        }
    }
}
