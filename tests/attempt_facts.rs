//! The requests and the log lines of an attempt, as the audit log has them and `audit show` prints them.

use cofferdam::{AuditId, Call, Host};
use cofferdam_egress::resilience::RetryProfile;
use cofferdam_egress::vault::SecretMaterial;
use cofferdam_runtime::call::CallResult;
use cofferdam_test_support::vault::{binding, secret};
use cofferdam_test_support::{Cli, Home, InstallAccepted as _, MemoryVault, Signer, Upstream, package};
use serde_json::{Value, json};

use crate::COFFERDAM;
use crate::shared_host::{example, run};

const TOKEN: &str = "tok-7hQ2mZx9Lw/Kc1Vn";

/// A host with the probe, which has a credential for one of the servers that it may reach.
struct Stage {
    upstream: Upstream,
    /// A server without the credential.
    other: Upstream,
    closed_port: u16,
    host: Host,
    cli: Cli,
    _home: Home,
}

fn stage() -> Stage {
    let (home, signer) = (Home::new(COFFERDAM), Signer::new());
    home.trust(&signer.public(), "github://cofferdam/*");
    let (upstream, other) = (Upstream::start(), Upstream::start());
    let closed_port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let hosts = [upstream.grant(), other.grant(), format!("http://localhost:{closed_port}")];
    let manifest = package::with_hosts(&package::guest_manifest("probe"), &hosts);
    let credential = format!(
        "[[capabilities.credential]]\nkind = \"bearer\"\nservice = \"shop\"\nhosts = [\"{}\"]\n",
        hosts[0]
    );
    let bytes = package::pack(&package::guest("probe"), &format!("{manifest}\n{credential}"));
    let bearer = SecretMaterial::Bearer { token: secret(TOKEN) };
    let bound = binding("bearer/shop", bearer, &["github://cofferdam/probe"], &hosts[..1]);
    let builder = home.builder().vault(MemoryVault::with([bound]));
    let builder = builder.allow_private(upstream.host_port()).allow_private(other.host_port());
    let host = builder.allow_private(format!("localhost:{closed_port}")).build().unwrap();
    run(host.install_accepted(bytes.clone(), Some(signer.sign(&bytes)), Default::default())).unwrap();
    let cli = Cli::new(COFFERDAM, home.path());
    Stage { upstream, other, closed_port, host, cli, _home: home }
}

impl Stage {
    /// Makes a call of one attempt.
    fn call(&self, op: &str, args: Value) -> AuditId {
        let none = RetryProfile::named("none").unwrap();
        let CallResult { report, .. } = run(self.host.run(Call::new(example("probe"), op, args).retry(none)));
        assert_eq!(report.attempts.len(), 1, "{op}");
        report.audit_id
    }

    /// Returns the end of the call's attempt.
    fn attempt(&self, call: &AuditId) -> Value {
        let shown = self.cli.run(&["audit", "show", call.as_str(), "--format", "json"]).json();
        let events = shown["events"].as_array().unwrap();
        events.iter().find(|event| event["type"] == "attempt_ended").unwrap()["payload"].clone()
    }

    /// Returns the requests of a call, without their times, which have to be plausible.
    fn requests(&self, op: &str, args: Value) -> Vec<Value> {
        let mut requests = self.attempt(&self.call(op, args))["requests"].take();
        for request in requests.as_array_mut().unwrap() {
            let request = request.as_object_mut().unwrap();
            let at: jiff::Timestamp = request.remove("at").unwrap().as_str().unwrap().parse().unwrap();
            assert!(at.duration_until(jiff::Timestamp::now()).as_secs() < 60, "{at}");
            assert!(request.remove("ms").unwrap().as_u64().unwrap() < 60_000);
        }
        requests.as_array().unwrap().clone()
    }

    fn closed(&self) -> String {
        format!("localhost:{}", self.closed_port)
    }
}

/// The bytes of a request's first line.
fn line(method: &str, path: &str) -> usize {
    format!("{method} {path} HTTP/1.1\r\n").len()
}

#[test]
fn requests_are_recorded_with_their_results() {
    let stage = stage();
    let (host, other, closed) = (stage.upstream.host_port(), stage.other.host_port(), stage.closed());
    let urls = [
        stage.upstream.url("/text/hello?q=1"),
        stage.upstream.url("/status/503/b"),
        format!("http://{closed}/c"),
        stage.other.url("/text/d"),
        stage.other.url("/early-close"),
    ];
    let requests = stage.requests("fetch_all", json!({"urls": urls}));
    let unavailable = requests[1]["bytes_received"].clone();
    let expected = json!([
        {"bindings": ["bearer/shop/default"], "bytes_received": 5, "bytes_sent": line("GET", "/text/hello?q=1"),
            "host": host, "keyed": false, "method": "GET", "path": "/text/hello", "status": 200},
        {"bindings": ["bearer/shop/default"], "bytes_received": unavailable,
            "bytes_sent": line("GET", "/status/503/b"), "host": host, "keyed": false, "method": "GET",
            "path": "/status/503/b", "status": 503},
        {"bytes_received": 0, "bytes_sent": 0, "code": "refused", "host": closed, "keyed": false, "method": "GET",
            "path": "/c", "phase": "connect"},
        {"bytes_received": 1, "bytes_sent": line("GET", "/text/d"), "host": other, "keyed": false, "method": "GET",
            "path": "/text/d", "status": 200},
        {"bytes_received": 10, "bytes_sent": line("GET", "/early-close"), "code": "closed", "host": other,
            "keyed": false, "method": "GET", "path": "/early-close", "phase": "response", "status": 200},
    ]);
    assert_eq!(json!(requests), expected);
}

#[test]
fn requests_say_whether_they_carried_the_key() {
    let stage = stage();
    let url = stage.other.url("/text/x");
    for (op, args, keyed, body) in [
        ("order", json!({"url": url, "body": "ticket", "labels": ["a"]}), true, 6),
        ("post_bytes", json!({"url": url, "bytes": 50_000}), false, 50_000),
    ] {
        let requests = stage.requests(op, args);
        let expected = json!([{"bytes_received": 1, "bytes_sent": line("POST", "/text/x") + body,
            "host": stage.other.host_port(), "keyed": keyed, "method": "POST", "path": "/text/x", "status": 200}]);
        assert_eq!(json!(requests), expected, "{op}");
    }
}

#[test]
fn refused_and_aborted_requests_are_recorded() {
    let stage = stage();
    let denied = |url: &str| {
        let requests = stage.requests("swallow_denial", json!({"url": url}));
        assert_eq!(requests.len(), 1, "{requests:?}");
        requests[0].clone()
    };
    let base = json!({"bytes_received": 0, "bytes_sent": 0, "keyed": false, "method": "GET"});
    let with = |fields: Value| {
        let mut request = base.clone();
        request.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        request
    };
    let request = denied("https://elsewhere.example/a/b?c=d");
    let expected = json!({"code": "host_not_granted", "host": "elsewhere.example:443", "path": "/a/b"});
    assert_eq!(request, with(expected));
    // Nothing is kept of a URL with a secret, however it is encoded there.
    let hidden: String = TOKEN.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let request = denied(&stage.other.url(&format!("/{hidden}")));
    assert_eq!(request, with(json!({"code": "secret_in_request"})));
    let args = json!({
        "methods": ["POST"], "url": stage.other.url("/hang"), "awaited": stage.other.url("/slow/300"), "give_up": false,
    });
    let requests = stage.requests("leave_behind", args);
    let expected = json!({"aborted": true, "bytes_sent": line("POST", "/hang"), "host": stage.other.host_port(),
        "method": "POST", "path": "/hang"});
    assert_eq!(requests[0], with(expected));
    assert_eq!((&requests[1]["path"], &requests[1]["status"]), (&json!("/slow/300"), &json!(200)));
}

#[test]
fn log_lines_are_recorded_without_secrets() {
    let stage = stage();
    let lines = ["one", &format!("token={TOKEN}."), "a\u{1b}[2Jb\nc"];
    let call = stage.call("log_lines", json!({"lines": lines}));
    let attempt = stage.attempt(&call);
    let log = attempt["log"].as_array().unwrap();
    let texts: Vec<_> = log.iter().map(|line| line["text"].as_str().unwrap()).collect();
    assert_eq!(texts, ["one", "token=[redacted].", "a [2Jb c"]);
    assert!(log.iter().all(|line| line["level"] == "warn"), "{log:?}");
    assert!(attempt.get("log_omitted").is_none() && attempt.get("requests").is_none(), "{attempt}");
    let silent = stage.attempt(&stage.call("call_info", json!({})));
    assert!(silent.get("log").is_none(), "{silent}");
}

#[test]
fn recorded_log_lines_are_limited_and_counted() {
    let stage = stage();
    // By the number of lines, and by their size.
    for (lines, length) in [(1_500, 3), (40, 100_000)] {
        let attempt = stage.attempt(&stage.call("log_flood", json!({"lines": lines, "length": length})));
        let log = attempt["log"].as_array().unwrap();
        let bytes: usize = log.iter().map(|line| line["text"].as_str().unwrap().len()).sum();
        assert!(bytes <= 64 * 1024 && !log.is_empty(), "{bytes}");
        let omitted = attempt["log_omitted"].as_u64().unwrap();
        assert_eq!(log.len() as u64 + omitted, lines);
        assert_eq!(omitted, if length == 3 { 500 } else { 25 });
    }
}

#[test]
fn audit_show_prints_requests_and_log_lines() {
    let stage = stage();
    let urls = [stage.upstream.url("/status/503/b"), format!("http://{}/c", stage.closed())];
    let page =
        stage.cli.run(&["audit", "show", stage.call("fetch_all", json!({"urls": urls})).as_str()]).ok();
    let row = |begins: &str| {
        let rows = page.lines().find(|line| line.contains(begins));
        rows.unwrap_or_else(|| panic!("{begins}: {page}")).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(row("METHOD"), "AT METHOD HOST PATH RESULT TOOK SENT RECEIVED KEY CREDENTIALS");
    let answered = row(" /status/503/b ");
    assert!(
        answered.contains(&format!("GET {} /status/503/b 503", stage.upstream.host_port())),
        "{answered}"
    );
    assert!(answered.ends_with("no bearer/shop/default"), "{answered}");
    assert!(row(" /c ").contains("/c refused (connect)"), "{page}");
    assert!(!page.contains("bytes_received"), "{page}");
    let call = stage.call("log_lines", json!({"lines": ["first", "second"]}));
    let page = stage.cli.run(&["audit", "show", call.as_str()]).ok();
    assert!(page.contains("warn   first\n") && page.contains("warn   second\n"), "{page}");
}
