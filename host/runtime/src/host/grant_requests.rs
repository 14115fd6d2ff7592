//! The requests for grants: the access that calls were denied, and the bindings that they missed.
//!
//! They are read from the audit log each time and nothing else is stored. So they are shared by the hosts that share a
//! log, and a connector adds no more than the entries of its calls. Each is then decided again with the code of
//! [`Host::why`].

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;

use cofferdam_audit::{AuditError, AuditErrorKind, AuditReader, CallRow, CallStatus, Filter};
use cofferdam_core::error::HostError;
use cofferdam_core::failure::{AuditId, BindingCode, Denial, DenialCode, FailureClass, GrantLine};
use cofferdam_egress::vault::{BindingName, DEFAULT_IDENTITY};
use cofferdam_model::package::Package;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::{Map, Value};

use super::Host;
use super::access_query::{AccessDecision, AccessQuery};
use crate::call::ConnectorRef;
use crate::log_errors::unreadable;

/// The age in days up to which calls are looked at.
const DAYS: i64 = 7;

/// The most calls that are looked at. Each is read from the log.
const CALLS: usize = 200;

/// The most requests that are returned, and the most of them of one connector: one that asks for many hosts does not hide
/// the others.
const REQUESTS: usize = 100;
const REQUESTS_OF_ONE: usize = 20;

/// The failures that an operator can fix with a grant or a binding: their codes by class.
const GRANTABLE: [(FailureClass, &[&str]); 3] = [
    (
        FailureClass::CapabilityDenied,
        &[
            DenialCode::HostNotGranted.name(),
            DenialCode::InsecureUrl.name(),
            DenialCode::PrivateAddress.name(),
            DenialCode::MethodNotGranted.name(),
            DenialCode::CredentialNotGranted.name(),
        ],
    ),
    (FailureClass::BindingRequired, &[BindingCode::Unbound.name(), BindingCode::NotAllowed.name()]),
    (FailureClass::BindingFailed, &[BindingCode::Unsendable.name()]),
];

/// An access that calls were denied, or a binding that they missed, and that a call would still be denied or miss now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GrantRequest {
    /// The connector, as `name@version`.
    pub connector: String,
    /// The kind of the access: `host`, `method` or `credential`.
    pub kind: &'static str,
    /// The access as [`AccessQuery::parse`] takes it: `api.example.com:443`, `method:PROPFIND`, `api_key/slack`.
    pub subject: String,
    /// The binding that the calls missed: `api_key/slack/work`. None if they were denied the access.
    pub binding: Option<String>,
    /// The number of calls that ended with it, of those that were looked at.
    pub calls: usize,
    /// The time at which the first of them was received, as RFC 3339.
    pub first: String,
    /// The time at which the last of them was received.
    pub last: String,
    /// The audit id of the last of them.
    pub last_call: String,
    /// The caller of the last of them. An agent chooses its name.
    pub actor: String,
    /// The code of the failure that a call would end with now.
    pub code: &'static str,
    /// The reason, as [`Host::why`] gives it now.
    pub reason: String,
    /// The line that would allow it, if there is one.
    pub allow: Option<GrantLine>,
    /// The command that would fix it, if a binding is missing.
    pub suggestion: Option<String>,
}

impl Host {
    /// Returns the requests for grants, those with the newest calls first: at most 100, and at most 20 of one connector,
    /// from the newest 200 calls of the last 7 days that ended with such a failure. It blocks: not for an executor's
    /// threads.
    ///
    /// A request is left out if a call of the connector, or of its active version, would get the access now, or if no
    /// grant would allow it; and if the version is not installed any more, its package cannot be read, or its signature
    /// lets no call run. An access that an action did not declare is decided without the action.
    ///
    /// # Errors
    /// `audit_unavailable`: the audit log cannot be read.
    pub fn grant_requests(&self) -> Result<Vec<GrantRequest>, HostError> {
        let Some(mut reader) = self.audit.existing()? else { return Ok(Vec::new()) };
        let since = self.timestamp().checked_sub(SignedDuration::from_hours(DAYS * 24)).ok();
        let mut requests = Vec::new();
        for (connector, denied) in denied_calls(&mut *reader, since).map_err(unreadable)? {
            let Ok(connector) = ConnectorRef::parse(&connector) else { continue };
            let Some(package) = self.callable(&connector) else { continue };
            let active = self.resolve(connector.name().as_str()).ok().filter(|active| *active != connector);
            let active = active.and_then(|active| self.callable(&active));
            let missing = |package: &Package, access: &DeniedAccess| {
                MissingGrant::new(access, self.why_opened(package, &access.query, None))
            };
            for denied in newest_of_one(denied) {
                let DeniedCalls { access, calls, first, last, last_call, actor } = denied;
                let Some(missing_now) = missing(&package, &access) else { continue };
                // An upgrade granted it; calls of the version before are denied it still.
                if active.as_ref().is_some_and(|active| missing(active, &access).is_none()) {
                    continue;
                }
                requests.push(GrantRequest {
                    connector: connector.to_string(),
                    kind: access.kind,
                    subject: access.subject,
                    binding: access.binding.map(|binding| binding.to_string()),
                    calls,
                    first: format!("{first:.6}"),
                    last: format!("{last:.6}"),
                    last_call: last_call.to_string(),
                    actor,
                    code: missing_now.code,
                    reason: missing_now.reason,
                    allow: missing_now.allow,
                    suggestion: missing_now.suggestion,
                });
            }
        }
        Ok(listed(requests))
    }

    /// Returns the package of an installed version; none if it cannot be read, or if its signature lets no call run.
    fn callable(&self, connector: &ConnectorRef) -> Option<Package> {
        let (package, signature) = self.open_installed(connector).ok()?;
        let signature = self.signature_view(&package, signature.as_deref()).ok()?;
        // The operator chose to install it unsigned, and can allow it for a call.
        (signature.reason.is_none() || signature.status == "unsigned").then_some(package)
    }
}

/// Returns the denied calls of one connector, those with the newest first.
fn newest_of_one(denied: BTreeMap<(String, Option<BindingName>), DeniedCalls>) -> Vec<DeniedCalls> {
    let mut denied: Vec<_> = denied.into_values().collect();
    denied.sort_by_key(|denied| Reverse(denied.last));
    denied.truncate(REQUESTS_OF_ONE);
    denied
}

/// The access that a failure is about.
#[derive(Debug, PartialEq, Eq)]
struct DeniedAccess {
    kind: &'static str,
    subject: String,
    /// The binding that the call missed, if that was the failure.
    binding: Option<BindingName>,
    query: AccessQuery,
}

impl DeniedAccess {
    /// Reads the access from a failure as the audit log has it. None if no grant could fix the failure, or if its
    /// access cannot be written in a manifest.
    fn read(failure: &Map<String, Value>) -> Option<Self> {
        let details = failure.get("details")?.as_object()?;
        let detail = |name: &str| details.get(name).and_then(Value::as_str);
        let (class, code) = (failure.get("class")?.as_str()?, detail("code")?);
        if !GRANTABLE.iter().any(|(known, codes)| known.name() == class && codes.contains(&code)) {
            return None;
        }
        if let Some(binding) = detail("binding") {
            // The failure of an identity that no binding can have names no whole binding.
            let binding = BindingName::parse(binding).ok().filter(|name| name.to_string() == binding)?;
            let subject = format!("{}/{}", binding.kind().name(), binding.service());
            let query = AccessQuery::parse(&subject).ok()?;
            let query = match binding.identity() {
                DEFAULT_IDENTITY => query,
                chosen => query.with_identity(chosen),
            };
            return Some(Self { kind: "credential", subject, binding: Some(binding), query });
        }
        let requested = detail("requested")?;
        let (kind, subject) = match requested.split_once(':')? {
            ("network", target) => ("host", target),
            ("method", _) => ("method", requested),
            ("credential", label) if BindingName::parse(label).is_ok() => ("credential", label),
            _ => return None,
        };
        // A guest chose it, and an operator copies it into a shell.
        if !subject.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:/".contains(&byte)) {
            return None;
        }
        let query = AccessQuery::parse(subject).ok()?;
        let query = match detail("ip").and_then(|address| address.parse::<IpAddr>().ok()) {
            Some(address) => query.with_address(address),
            None => query,
        };
        Some(Self { kind, subject: subject.to_owned(), binding: None, query })
    }
}

/// The calls of one connector that were denied the same.
#[derive(Debug)]
struct DeniedCalls {
    /// The access of the last call: an earlier one may have found another address.
    access: DeniedAccess,
    calls: usize,
    first: Timestamp,
    last: Timestamp,
    last_call: AuditId,
    actor: String,
}

/// The denied calls by connector, and by what they were denied.
type DeniedByConnector = BTreeMap<String, BTreeMap<(String, Option<BindingName>), DeniedCalls>>;

/// Reads the newest calls since this time that were denied something.
fn denied_calls(
    reader: &mut dyn AuditReader,
    since: Option<Timestamp>,
) -> Result<DeniedByConnector, AuditError> {
    let mut rows = Vec::new();
    for (class, code) in GRANTABLE.iter().flat_map(|(class, codes)| codes.iter().map(|code| (*class, *code)))
    {
        let (class, code) = (Some(class.name().to_owned()), Some(code.to_owned()));
        let status = Some(CallStatus::Failure);
        let listed =
            reader.list(&Filter { status, class, code, since, limit: CALLS, ..Filter::default() })?;
        // An action ends with the failure of its step, whose call has a row of its own.
        rows.extend(listed.into_iter().filter(|row| ConnectorRef::parse(&row.connector).is_ok()));
    }
    let mut denied = DeniedByConnector::new();
    for row in newest(rows) {
        let events = match reader.events_of(&row.audit_id) {
            Ok((_, events)) => events,
            // `audit verify` reports it.
            Err(error) if error.kind() == AuditErrorKind::Tampered => continue,
            Err(error) => return Err(error),
        };
        if let Some(failure) = events.iter().rev().find_map(|event| event.failure(&row))
            && let Some(access) = DeniedAccess::read(&failure)
        {
            add(&mut denied, &failure, access, &row);
        }
    }
    Ok(denied)
}

/// Returns the newest of the rows, the newest first.
fn newest(mut rows: Vec<CallRow>) -> Vec<CallRow> {
    rows.sort_by_key(|row| Reverse(row.at));
    rows.truncate(CALLS);
    rows
}

/// Returns the requests with the newest calls, the newest first.
fn listed(mut requests: Vec<GrantRequest>) -> Vec<GrantRequest> {
    requests.sort_by(|one, other| other.last.cmp(&one.last));
    requests.truncate(REQUESTS);
    requests
}

/// Adds a call with this failure. The newest call is added first.
fn add(denied: &mut DeniedByConnector, failure: &Map<String, Value>, access: DeniedAccess, row: &CallRow) {
    // A fallback may be another connector than that of the call.
    let connector = failure.get("details").and_then(|details| details.get("connector")?.as_str());
    let same_connector = denied.entry(connector.unwrap_or(&row.connector).to_owned()).or_default();
    let key = (access.subject.clone(), access.binding.clone());
    let same = same_connector.entry(key).or_insert_with(|| DeniedCalls {
        access,
        calls: 0,
        first: row.at,
        last: row.at,
        last_call: row.audit_id.clone(),
        actor: row.actor.clone(),
    });
    same.calls = same.calls.saturating_add(1);
    same.first = same.first.min(row.at);
}

/// The grant or binding that is missing now.
#[derive(Debug, PartialEq, Eq)]
struct MissingGrant {
    code: &'static str,
    reason: String,
    allow: Option<GrantLine>,
    suggestion: Option<String>,
}

impl MissingGrant {
    /// Returns what is missing according to this decision about the access. None if nothing is, or if no grant would
    /// help.
    fn new(access: &DeniedAccess, decision: Result<AccessDecision, HostError>) -> Option<Self> {
        match decision {
            // A binding that a call misses is a request of its own.
            Ok(AccessDecision::Allowed(_)) if access.kind != "credential" => None,
            Ok(AccessDecision::Allowed(permit)) => permit.missing_binding().map(|missing| Self {
                code: missing.code(),
                reason: permit.notes().join(" "),
                allow: None,
                suggestion: Some(missing.suggestion().to_owned()),
            }),
            // A package that was installed since does not ask for the credential.
            Ok(AccessDecision::Denied(_)) if access.binding.is_some() => None,
            Ok(AccessDecision::Denied(denial)) => is_grantable(&denial).then(|| Self {
                code: denial.code().name(),
                reason: denial.message(),
                allow: denial.line().cloned(),
                suggestion: None,
            }),
            // The message of the error may name paths of the machine.
            Err(error) => Some(Self {
                code: error.kind().code(),
                reason: "It is not known whether a credential is bound now: the vault cannot be used."
                    .to_owned(),
                allow: None,
                suggestion: None,
            }),
        }
    }
}

/// Returns whether a grant would allow it. An address in the place of a name, or the method TRACE, has none.
fn is_grantable(denial: &Denial) -> bool {
    // These two have grants that are not a single line.
    let code = denial.code();
    denial.line().is_some() || matches!(code, DenialCode::CredentialNotGranted | DenialCode::PrivateAddress)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use cofferdam_audit::CallStatus;
    use cofferdam_core::error::HostErrorKind;
    use cofferdam_core::failure::{Allowed, BindingProblem, DenialBoundary, Failure, FailureContext};
    use cofferdam_egress::egress::EgressPolicy;
    use cofferdam_model::manifest::HostGrant;
    use http::{HeaderMap, Method};

    use super::*;

    fn policy() -> EgressPolicy {
        EgressPolicy::new(&[HostGrant::parse("slack.com:443").unwrap()], &[])
    }

    fn host_denial(url: &str) -> Denial {
        policy().decide(&url.parse().unwrap(), None).unwrap_err()
    }

    fn address_denial(address: &str) -> Denial {
        let target = policy().decide(&"https://slack.com".parse().unwrap(), None).unwrap();
        policy().admit_address(&target, address.parse().unwrap()).unwrap_err()
    }

    fn method_denial(method: &str) -> Denial {
        policy().check_method_access(&Method::from_bytes(method.as_bytes()).unwrap()).unwrap_err()
    }

    fn denial(code: DenialCode, requested: &str) -> Denial {
        Denial::new(DenialBoundary::Sandbox, code, requested, Vec::new())
    }

    fn recorded(class: FailureClass, details: Map<String, Value>) -> Map<String, Value> {
        Map::from_iter([("class".to_owned(), class.name().into()), ("details".to_owned(), details.into())])
    }

    fn read(denial: &Denial) -> Option<DeniedAccess> {
        DeniedAccess::read(&recorded(FailureClass::CapabilityDenied, denial.details()))
    }

    fn read_binding(binding: &str, code: BindingCode) -> Option<DeniedAccess> {
        let problem = BindingProblem::new(binding, code, "It is so.", "cofferdam binding set it");
        let failure = Failure::binding(&FailureContext::new(AuditId::mint()), &problem);
        DeniedAccess::read(&recorded(failure.class(), failure.details().clone()))
    }

    #[test]
    fn denials_name_the_subject_of_why() {
        for (denial, kind, subject) in [
            (host_denial("https://files.slack.com/x?y"), "host", "files.slack.com:443"),
            (host_denial("http://localhost:8080"), "host", "http://localhost:8080"),
            (host_denial("http://slack.com"), "host", "http://slack.com:80"),
            (address_denial("10.0.0.1"), "host", "slack.com:443"),
            (method_denial("PROPFIND"), "method", "method:PROPFIND"),
            (
                denial(DenialCode::CredentialNotGranted, "credential:session_token/slack"),
                "credential",
                "session_token/slack",
            ),
        ] {
            let access = read(&denial).unwrap();
            assert_eq!((access.kind, access.subject.as_str()), (kind, subject), "{denial}");
            let query = AccessQuery::parse(subject).unwrap();
            let query = denial.address().map_or(query.clone(), |address| query.with_address(address));
            assert_eq!((access.query, access.binding), (query, None), "{denial}");
        }
    }

    #[test]
    fn denials_without_a_grant_have_no_subject() {
        let mut fields = HeaderMap::new();
        fields.insert("x-http-method", "PROPFIND".parse().unwrap());
        for denial in [
            host_denial("https://[::1]:443"),
            host_denial("https://user@evil.example"),
            method_denial("`reboot`"),
            method_denial("X$HOME"),
            policy().admit_fields(&fields).unwrap_err(),
            denial(DenialCode::CredentialNotGranted, "credential:session_token/$(reboot)"),
            denial(DenialCode::CredentialNotGranted, "credential:session_token/slack/work"),
            denial(DenialCode::CredentialNotGranted, "credential:session_token/"),
            denial(DenialCode::CapabilityUnavailable, "import:wasi:sockets/tcp"),
            denial(DenialCode::OperationNotGranted, "operation:post"),
            Denial::for_secret(DenialCode::SecretInRequest, "request:slack.com:443", Vec::new()),
        ] {
            assert_eq!(read(&denial), None, "{denial}");
        }
        let of_a_limit =
            recorded(FailureClass::ResourceLimitExceeded, host_denial("https://a.example").details());
        assert_eq!(DeniedAccess::read(&of_a_limit), None);
        assert_eq!(DeniedAccess::read(&Map::new()), None);
    }

    #[test]
    fn binding_failures_name_their_credential() {
        for code in [BindingCode::Unbound, BindingCode::NotAllowed, BindingCode::Unsendable] {
            let access = read_binding("oauth2/slack/work", code).unwrap();
            assert_eq!((access.kind, access.subject.as_str()), ("credential", "oauth2/slack"));
            assert_eq!(access.binding.unwrap().to_string(), "oauth2/slack/work");
            assert_eq!(access.query, AccessQuery::parse("oauth2/slack").unwrap().with_identity("work"));
        }
        for code in
            [BindingCode::RefreshRefused, BindingCode::RefreshUnreachable, BindingCode::EndpointNotAllowed]
        {
            assert_eq!(read_binding("oauth2/slack/work", code), None, "{code:?}");
        }
        for other in ["oauth2/slack", "", "oauth2/$(reboot)/work"] {
            assert_eq!(read_binding(other, BindingCode::Unbound), None, "{other}");
        }
    }

    fn row(second: i64, actor: &str) -> CallRow {
        CallRow {
            audit_id: AuditId::mint(),
            at: Timestamp::from_second(second).unwrap(),
            connector: "github://acme/slack@1.0.0".to_owned(),
            op: "post".to_owned(),
            action: None,
            step: None,
            actor: actor.to_owned(),
            idempotent: false,
            status: CallStatus::Failure,
            class: None,
            code: None,
            duration_us: None,
            attempts: None,
        }
    }

    #[test]
    fn calls_that_were_denied_the_same_are_one() {
        let mut denied = DeniedByConnector::new();
        let mut add_denial = |second, actor, connector: Option<&str>, denial: &Denial| {
            let mut failure = recorded(FailureClass::CapabilityDenied, denial.details());
            if let Some(details) = failure.get_mut("details").and_then(Value::as_object_mut)
                && let Some(connector) = connector
            {
                details.insert("connector".to_owned(), connector.into());
            }
            let (access, row) = (DeniedAccess::read(&failure).unwrap(), row(second, actor));
            add(&mut denied, &failure, access, &row);
            row.audit_id
        };
        let newest = add_denial(9, "mcp:b", None, &address_denial("10.0.0.2"));
        add_denial(8, "mcp:a", None, &address_denial("10.0.0.1"));
        add_denial(7, "mcp:a", None, &host_denial("https://files.slack.com"));
        add_denial(6, "mcp:a", Some("github://acme/chat@2.0.0"), &address_denial("10.0.0.1"));
        let fallback = denied.remove("github://acme/chat@2.0.0").unwrap();
        assert_eq!((fallback.len(), denied.len()), (1, 1));
        let own = denied.remove("github://acme/slack@1.0.0").unwrap();
        assert_eq!(own.len(), 2);
        let same = own.get(&("slack.com:443".to_owned(), None)).unwrap();
        assert_eq!((same.calls, &same.last_call, same.actor.as_str()), (2, &newest, "mcp:b"));
        assert_eq!((same.first.as_second(), same.last.as_second()), (8, 9));
        let query = AccessQuery::parse("slack.com:443").unwrap();
        assert_eq!(same.access.query, query.with_address("10.0.0.2".parse().unwrap()));
    }

    #[test]
    fn calls_and_requests_are_bounded() {
        let rows = newest((0..300).map(|second| row(second, "http")).collect());
        let seconds: Vec<_> = rows.iter().map(|row| row.at.as_second()).collect();
        assert_eq!((seconds.len(), seconds.first(), seconds.last()), (200, Some(&299), Some(&100)));
        let mut denied = DeniedByConnector::new();
        for second in (0..30).rev() {
            let host = host_denial(&format!("https://host-{second}.example"));
            let failure = recorded(FailureClass::CapabilityDenied, host.details());
            add(&mut denied, &failure, DeniedAccess::read(&failure).unwrap(), &row(second, "http"));
        }
        let (_, of_one) = denied.pop_first().unwrap();
        let seconds: Vec<_> = newest_of_one(of_one).iter().map(|of| of.last.as_second()).collect();
        assert_eq!((seconds.len(), seconds.first(), seconds.last()), (20, Some(&29), Some(&10)));
        let request = |second: i64| GrantRequest {
            connector: "github://acme/slack@1.0.0".to_owned(),
            kind: "host",
            subject: format!("host-{second}.example:443"),
            binding: None,
            calls: 1,
            first: String::new(),
            last: format!("{:.6}", Timestamp::from_second(second).unwrap()),
            last_call: String::new(),
            actor: String::new(),
            code: "host_not_granted",
            reason: String::new(),
            allow: None,
            suggestion: None,
        };
        let requests = listed((0..120).map(request).collect());
        assert_eq!(
            (requests.len(), requests.first(), requests.last()),
            (100, Some(&request(119)), Some(&request(20)))
        );
    }

    #[test]
    fn only_what_a_grant_would_allow_is_missing() {
        let of_host = read(&host_denial("https://files.slack.com")).unwrap();
        let denied = |denial: Denial| MissingGrant::new(&of_host, Ok(AccessDecision::Denied(denial)));
        let missing = denied(host_denial("https://files.slack.com")).unwrap();
        assert_eq!(missing.code, "host_not_granted");
        assert!(missing.reason.contains("To allow it, write"), "{missing:?}");
        assert_eq!(missing.allow.as_ref().map(GrantLine::file), Some("connector.toml"));
        let missing = denied(address_denial("10.0.0.1")).unwrap();
        assert_eq!(missing.allow.as_ref().map(GrantLine::file), Some("config.toml"));
        let credential = denial(DenialCode::CredentialNotGranted, "credential:session_token/slack");
        // The metadata address has a grant that is no single line.
        for grantable in [address_denial("169.254.169.254"), credential] {
            assert_eq!(denied(grantable).unwrap().allow, None);
        }
        for hopeless in [host_denial("https://127.0.0.1"), method_denial("TRACE"), method_denial("get")] {
            assert_eq!(denied(hopeless), None);
        }
        let of_binding = read_binding("api_key/slack/work", BindingCode::Unbound).unwrap();
        let not_asked_for = denial(DenialCode::CredentialNotGranted, "credential:api_key/slack");
        assert_eq!(MissingGrant::new(&of_binding, Ok(AccessDecision::Denied(not_asked_for))), None);
    }

    #[test]
    fn a_missing_binding_has_its_command() {
        let access = read_binding("api_key/slack/default", BindingCode::Unbound).unwrap();
        let permit = Allowed::new("credential:api_key/slack").with_note("One.").with_note("Two.");
        let bound = AccessDecision::Allowed(permit.clone());
        assert_eq!(MissingGrant::new(&access, Ok(bound)), None);
        let command = "cofferdam binding set api_key/slack/default";
        let problem = BindingProblem::new("api_key/slack/default", BindingCode::Unbound, "", command);
        let unbound = AccessDecision::Allowed(permit.without_binding(Some(&problem)));
        let missing = MissingGrant::new(&access, Ok(unbound)).unwrap();
        assert_eq!((missing.code, missing.reason.as_str()), ("unbound", "One. Two."));
        assert_eq!(missing.suggestion.as_deref(), Some(command));
        let locked = HostError::new(HostErrorKind::VaultLocked, "/home/ada/vault is locked.");
        let missing = MissingGrant::new(&access, Err(locked)).unwrap();
        assert_eq!((missing.code, missing.suggestion), ("vault_locked", None));
        assert!(!missing.reason.contains("/home"), "{}", missing.reason);
    }
}
