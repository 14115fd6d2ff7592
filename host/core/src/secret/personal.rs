//! Names of header fields and parameters whose values identify a person or authorize requests.

/// Header fields, and parts of their names, whose values are personal.
const FIELDS: [&str; 17] = [
    "auth",
    "cookie",
    "token",
    "secret",
    "session",
    "signature",
    "password",
    "credential",
    "api-key",
    "apikey",
    "csrf",
    "xsrf",
    "client-ip",
    "real-ip",
    "forwarded",
    "date",
    "content-sha256",
];

/// Such names that have a meaning of their own.
const WHOLE: [&str; 7] =
    ["from", "via", "x-request-id", "traceparent", "tracestate", "baggage", "user-agent"];

/// Returns whether the value of a header field is personal, whatever it is.
pub fn is_personal_field(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('_', "-");
    // Its value is about the resource, not about a person.
    name != "last-modified"
        && (WHOLE.contains(&name.as_str()) || FIELDS.iter().any(|part| name.contains(part)))
}

/// Returns whether the value of a query parameter, a form field or a JSON member is personal, whatever it is.
pub fn is_personal_parameter(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('_', "-");
    let parts = [
        "token",
        "secret",
        "passw",
        "api-key",
        "apikey",
        "signature",
        "credential",
        "session",
        "authorization",
        "private-key",
        "assertion",
        "verifier",
    ];
    let whole = ["key", "pass", "pwd", "otp", "pin", "jwt", "sig", "auth"];
    whole.contains(&name.as_str()) || parts.iter().any(|part| name.contains(part)) && !name.contains("page")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn personal_fields_are_known_by_their_names() {
        for name in
            ["Authorization", "Cookie", "Set-Cookie", "X-Api-Key", "X_Auth_Token", "X-Amz-Date", "From"]
        {
            assert!(is_personal_field(name), "{name}");
        }
        for name in ["accept", "content-type", "location", "link", "etag", "retry-after", "idempotency-key"] {
            assert!(!is_personal_field(name), "{name}");
        }
        assert!(is_personal_parameter("access_token") && is_personal_parameter("X-Amz-Signature"));
        assert!(is_personal_parameter("passwd") && is_personal_parameter("sig"));
        assert!(!is_personal_parameter("state") && !is_personal_parameter("next_page_token"));
    }
}
