//! Tests: every text that a page shows is text, whatever is in it.

use std::collections::BTreeMap;

use cofferdam_audit::approvals::{Approval, ApprovalState, ShownArguments};
use cofferdam_audit::{
    CallStatus, DurationPercentiles, Histogram, Stats, StatsGroup, StatsGrouping, StatsReport, UsageStats,
};
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::AuditId;
use cofferdam_server::http_api::{
    AcceptanceView, ApprovalList, AttemptPhases, AttemptReport, AttemptUsage, CallPage, CallRow, ChangePage,
    ChangeView, ChangedFact, CircuitState, ComparedVersion, ConnectorCircuit, ConnectorDifference,
    ConnectorGrants, ConnectorList, ConnectorRateLimit, ConnectorSummary, ConnectorView, CredentialGrantView,
    FailureCount, GrantLineView, GrantRequestView, HealthReport, HistoryReport, HistoryStepView, ImportGrant,
    LimitDescription, LogUsage, LoggedCallView, LoggedEntryView, LoggedEventView, NetworkReport,
    NetworkRoute, OperationDescription, RateLimitAtHost, RequestReport, SignatureVerdict, UnusedHost,
    VerificationResult, VersionChange, WaitingCalls, error_message,
};
use jiff::Timestamp;

use crate::explanation::FailureExplanation;
use crate::frame::Page;
use crate::health_page::Range;
use crate::{approval_pages, call_pages, connector_pages, health_page, network_page, trust_page};

/// A text that would end a text, an attribute and an element, begin a script, and hide the rest.
const HOSTILE: &str =
    "x\"'></td></script><script>alert(1)</script><img src=x onerror=alert(1)>&lt;\u{202e}\u{0}\n";

fn hostile() -> String {
    HOSTILE.to_owned()
}

/// The page as a browser gets it, after checking that the hostile texts are in it as texts.
fn check(page: Page, texts: usize) {
    let markup = page.body.into_string();
    for forbidden in ["<script", "<img", "onerror=alert(1)>", "</script>", "\u{202e}", "\u{0}", "x\"'"] {
        assert!(!markup.contains(forbidden), "{forbidden}: {markup}");
    }
    let found = markup.matches("&lt;script&gt;").count();
    assert!(found >= texts, "{found} texts of {texts}: {markup}");
    // Elements and attributes are those of the templates.
    let elements = markup.matches('<').count();
    assert_eq!(elements, markup.matches('>').count(), "{markup}");
}

fn summary() -> ConnectorSummary {
    ConnectorSummary {
        name: hostile(),
        version: hostile(),
        active: true,
        hash: hostile(),
        accepted: Some(AcceptanceView {
            at: hostile(),
            by: hostile(),
            no_wider_than: Some(hostile()),
            signers: vec![hostile()],
        }),
        calls: Some(2),
        failed: Some(1),
        last_call: Some(hostile()),
        circuits: vec![CircuitState { host: hostile(), state: hostile(), failures: 1 }],
    }
}

/// Returns statistics of calls that used nothing, and of those that used more than all limits.
fn stats() -> StatsReport {
    let mut usage = UsageStats::default();
    for amount in [0, u64::MAX] {
        usage.used.iter_mut().for_each(|used| used.record(amount));
    }
    let group = StatsGroup {
        name: hostile(),
        status: CallStatus::Failure,
        class: Some(hostile()),
        calls: 2,
        durations: Histogram::default(),
        usage: Some(usage),
    };
    let stats = Stats { groups: vec![group], ..Stats::default() };
    StatsReport::new(&stats, &stats, StatsGrouping::Connector, Vec::new())
}

#[test]
fn texts_of_connectors_are_escaped() {
    check(connector_pages::list(&ConnectorList { connectors: vec![summary()] }), 8);
    let limit =
        || LimitDescription { effective: 1, manifest: Some(1), default: 1, ceiling: 1, unit: hostile() };
    let limits = ["fuel", "memory", "wall_time", HOSTILE].map(|name| (name.to_owned(), limit()));
    let view = ConnectorView {
        summary: summary(),
        versions: vec![hostile()],
        description: Some(hostile()),
        publisher: Some(hostile()),
        size: 1,
        intact: false,
        signature: SignatureVerdict { status: hostile(), signers: vec![hostile()], threshold: Some(1) },
        grants: ConnectorGrants {
            hosts: vec![hostile()],
            methods: vec![hostile()],
            credentials: vec![CredentialGrantView {
                name: hostile(),
                place: hostile(),
                hosts: vec![hostile()],
                optional: true,
                bound: Some(true),
                bindings: vec![hostile()],
            }],
            imports: vec![ImportGrant { name: hostile(), standing: hostile() }],
        },
        limits: BTreeMap::from(limits),
        operations: vec![OperationDescription {
            name: hostile(),
            signature: hostile(),
            docs: Some(hostile()),
            effect: Some(hostile()),
            idempotency: hostile(),
            repeat: hostile(),
            partial: true,
            path: hostile(),
            input: serde_json::Map::new(),
            output: serde_json::Map::new(),
        }],
        notes: vec![hostile()],
    };
    check(connector_pages::show(&view, None, None, None), 25);
    check(connector_pages::show(&view, Some(&stats()), None, None), 25);
    let version = || ComparedVersion { name: hostile(), version: hostile(), hash: hostile() };
    let change = |severity: &str| VersionChange {
        severity: severity.to_owned(),
        part: hostile(),
        subject: hostile(),
        what: hostile(),
        before: Some(hostile()),
        after: Some(hostile()),
    };
    let difference = ConnectorDifference {
        before: version(),
        after: version(),
        wider: true,
        changes: vec![change("wider"), change(HOSTILE)],
    };
    check(connector_pages::show(&view, None, None, Some(&Ok(difference))), 38);
    let error = HostError::new(HostErrorKind::ConnectorNotFound, HOSTILE).with_hint(HOSTILE);
    check(connector_pages::show(&view, None, None, Some(&Err(error.into()))), 27);
    let report = connector_pages::show(&view, None, None, None).standalone(HOSTILE);
    assert!(!report.contains("<a ") && !report.contains("<script") && !report.contains("href="), "{report}");
}

fn row() -> CallRow {
    CallRow {
        audit_id: AuditId::mint(),
        at: Timestamp::UNIX_EPOCH,
        connector: hostile(),
        op: hostile(),
        action: Some(hostile()),
        step: Some(hostile()),
        actor: hostile(),
        idempotent: true,
        status: CallStatus::Incomplete,
        class: Some(hostile()),
        code: Some(hostile()),
        duration_us: Some(1),
        attempts: Some(1),
    }
}

#[test]
fn texts_of_calls_are_escaped() {
    let page = CallPage { calls: vec![row()], next: Some(hostile()) };
    let query = ["connector", "op", "status", "class", "before", HOSTILE];
    let query = query.map(|name| (name.to_owned(), hostile()));
    check(call_pages::list(&BTreeMap::from(query), &page, &["network_error"]), 6);
    let attempt = AttemptReport {
        attempt: 1,
        connector: hostile(),
        ended: hostile(),
        status: hostile(),
        class: Some(hostile()),
        code: Some(hostile()),
        phases: AttemptPhases { admit_us: 1, record_us: 1, instantiate_us: 1, guest_us: u64::MAX / 8 },
        usage: AttemptUsage {
            fuel: u64::MAX,
            fuel_limit: 0,
            memory_bytes: 1,
            memory_limit_bytes: 1,
            wall_us: 1,
            wall_limit_ms: u64::MAX,
            requests: 1,
            bytes_in: 1,
            bytes_out: 1,
        },
        requests: vec![RequestReport {
            at: hostile(),
            method: hostile(),
            host: hostile(),
            status: Some(503),
            code: Some(hostile()),
            phase: Some(hostile()),
            ms: 1,
            bytes_sent: 1,
            bytes_received: 1,
            keyed: true,
            aborted: true,
            bindings: vec![hostile()],
        }],
    };
    let facts = serde_json::Map::from_iter([(hostile(), hostile().into())]);
    let call = LoggedCallView {
        call: row(),
        hash: Some(hostile()),
        signer: Some(hostile()),
        profile: Some(hostile()),
        key: Some(hostile()),
        key_undecided: true,
        error: Some(serde_json::Map::from_iter([("boundary".to_owned(), hostile().into())])),
        ended_attempts: vec![attempt],
        events: vec![LoggedEventView { seq: 1, at: hostile(), name: hostile(), facts }],
        entries: vec![LoggedEntryView { writer: hostile(), n: u64::MAX }],
    };
    let explanation =
        FailureExplanation { meaning: hostile(), advice: hostile(), fixed_by: hostile(), fix: hostile() };
    let page = call_pages::show(&call, Some(&explanation));
    let titled = page.title.clone();
    check(page, 24);
    assert!(!titled.contains('\u{202e}'), "{titled}");
}

#[test]
fn texts_of_approvals_are_escaped() {
    let at = Timestamp::UNIX_EPOCH;
    let approval = |state| Approval {
        state,
        agent: true,
        candidate: 1,
        operations: vec![hostile()],
        action: Some(hostile()),
        step: Some(hostile()),
        effect: Some(hostile()),
        hash: hostile(),
        idempotency_key: Some(hostile()),
        arguments: ShownArguments { bytes: 1, sha256: hostile(), text: Some(hostile()), cut: true },
        call: hostile(),
        answered_at: Some(at),
        answered_by: Some(hostile()),
        reason: Some(hostile()),
        usable_until: Some(at),
        same_arguments: true,
        used_by: Some(hostile()),
        ..Approval::new(HOSTILE, HOSTILE, HOSTILE, &AuditId::mint())
    };
    let list = ApprovalList { approvals: vec![approval(ApprovalState::Waiting)], waiting: 1, more: 1 };
    check(approval_pages::list(&list, Ok(&[]), true), 5);
    for state in [ApprovalState::Waiting, ApprovalState::Approved] {
        check(approval_pages::show(&approval(state), Some("token")), 12);
        check(approval_pages::show(&approval(state), None), 12);
    }
}

#[test]
fn texts_of_requests_for_grants_are_escaped() {
    let request = GrantRequestView {
        connector: hostile(),
        kind: hostile(),
        subject: hostile(),
        binding: Some(hostile()),
        calls: usize::MAX,
        first: hostile(),
        last: hostile(),
        last_call: hostile(),
        actor: hostile(),
        code: hostile(),
        reason: hostile(),
        allow: Some(GrantLineView { file: hostile(), table: hostile(), line: hostile() }),
        suggestion: Some(hostile()),
    };
    let list = ApprovalList { approvals: Vec::new(), waiting: 0, more: 0 };
    check(approval_pages::list(&list, Ok(&[request]), false), 12);
    let error = HostError::new(HostErrorKind::ConnectorNotFound, HOSTILE).with_hint(HOSTILE);
    check(approval_pages::list(&list, Err(error_message(&error.into())), false), 2);
}

#[test]
fn texts_of_health_are_escaped() {
    let failure =
        FailureCount { status: hostile(), class: Some(hostile()), boundary: Some(hostile()), calls: 7 };
    let step = HistoryStepView {
        at: hostile(),
        seconds: 0,
        calls: u64::MAX,
        failed: 7,
        durations: DurationPercentiles {
            p50_us: Some(0),
            p90_us: Some(1),
            p99_us: Some(u64::MAX),
            max_us: Some(u64::MAX),
        },
        failures: vec![failure],
    };
    let history = HistoryReport {
        since: hostile(),
        until: hostile(),
        step: hostile(),
        steps: vec![step.clone(), step],
    };
    let waiting = || WaitingCalls { count: 2, calls: vec![row()] };
    let health = HealthReport {
        at: hostile(),
        circuits: Some(vec![ConnectorCircuit {
            connector: hostile(),
            host: hostile(),
            state: hostile(),
            failures: 1,
            retry_after_ms: Some(u64::MAX),
            cause: Some(hostile()),
            refused_bindings: vec![hostile()],
        }]),
        rate_limits: vec![ConnectorRateLimit {
            connector: hostile(),
            requests: 1,
            seconds: 0,
            burst: 1,
            used: Some(vec![RateLimitAtHost { host: hostile(), requests: u64::MAX, wait_ms: u64::MAX }]),
        }],
        interrupted: waiting(),
        undecided_keys: waiting(),
        log: Some(LogUsage {
            bytes: u64::MAX,
            entries_bytes: 1,
            sealed_bytes: 1,
            index_bytes: 1,
            other_bytes: 1,
            oldest: Some(hostile()),
            retention_seconds: Some(1),
            retained: Some(hostile()),
            oldest_expires: Some(hostile()),
        }),
        verification: Some(VerificationResult { at: hostile(), holds: false, entries: 1, findings: 1 }),
    };
    check(health_page::show(Range::Day, &health, &history), 45);
}

#[test]
fn texts_of_changes_are_escaped() {
    let fact = |before: usize, after: usize| ChangedFact {
        name: hostile(),
        before: (0..before).map(|number| format!("{HOSTILE}{number}")).collect(),
        after: (5..5 + after).map(|number| format!("{HOSTILE}{number}")).collect(),
    };
    let change = |area: &str| ChangeView {
        at: hostile(),
        user: hostile(),
        action: hostile(),
        area: area.to_owned(),
        kind: hostile(),
        subject: hostile(),
        failed: true,
        is_wider: true,
        facts: vec![fact(1, 1), fact(0, 2), fact(2, 0)],
    };
    let page = ChangePage { changes: vec![change("keys"), change(HOSTILE)], next: Some(HOSTILE.to_owned()) };
    let query = ["area", "since", "until", HOSTILE].map(|name| (name.to_owned(), hostile()));
    check(trust_page::show(&BTreeMap::from(query), &page), 26);
}

#[test]
fn texts_of_the_network_are_escaped() {
    let route = |op: String, host: String| NetworkRoute {
        connector: hostile(),
        op,
        host,
        requests: u64::MAX,
        answered: 1,
        client_errors: u64::MAX,
        server_errors: u64::MAX,
        unanswered: 1,
        refused: 1,
        writes: 1,
        repeated_writes: 2,
        keyed_repeated_writes: 1,
    };
    let unused = UnusedHost { connector: hostile(), host: format!("{HOSTILE}://{HOSTILE}") };
    // Short enough for the map.
    let short = "<script>x</script>".to_owned();
    let network = NetworkReport {
        routes: vec![route(hostile(), hostile()), route(short.clone(), short)],
        unused: vec![unused],
        unreadable: vec![hostile()],
    };
    let query = ["connector", "since", "until", HOSTILE].map(|name| (name.to_owned(), hostile()));
    check(network_page::show(&BTreeMap::from(query), &network), 14);
}
