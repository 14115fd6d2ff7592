//! Operations without a declaration of repeatability: the methods that they sent decide.

use std::sync::LazyLock;

use cofferdam::{Call, Cancellation, ConnectorRef, Fallback, HostErrorKind};
use cofferdam_core::failure::UnkeyedRequest;
use cofferdam_egress::resilience::RetryProfile;
use cofferdam_runtime::call::CallResult;
use cofferdam_test_support::{Cli, Home, ScriptedReply, Signer, Upstream, connector, package};
use serde_json::json;

use crate::COFFERDAM;
use crate::documents::fixture::{CallRecord, SeparateHome};
use crate::shared_host::{begin, refused, run};

/// `post_bytes` posts without a key, `post` with it, `fetch` gets.
const SILENT: &str = "";
const DECLARED: &str = "[connector.idempotency.operations]\npost_bytes = \"idempotent\"\n";
const DEFAULT: &str = "[connector.idempotency]\ndefault = \"idempotent\"\n";

/// The manifest of the probe under another name, with this instead of its declarations of operations.
fn manifest(of_probe: &str, name: &str, table: &str) -> String {
    let (head, rest) = of_probe.split_once("[connector.idempotency.operations]").unwrap();
    let (_, tail) = rest.split_once("[capabilities.network]").unwrap();
    format!("{head}{table}[capabilities.network]{tail}")
        .replace("cofferdam/probe", &format!("cofferdam/{name}"))
}

static SHARED: LazyLock<SeparateHome> = LazyLock::new(|| {
    let own = SeparateHome::new(|builder, _| builder.allow_private(format!("localhost:{}", *NOBODY)));
    let hosts = [own.upstream.grant(), format!("http://localhost:{}", *NOBODY)];
    let probe = package::with_hosts(&package::guest_manifest("probe"), &hosts);
    for (name, table) in [("silent", SILENT), ("declared", DECLARED), ("default", DEFAULT)] {
        own.install(&manifest(&probe, name, table));
    }
    own
});

/// A port at which no server listens.
static NOBODY: LazyLock<u16> = LazyLock::new(|| {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.local_addr().unwrap().port()
});

fn named(name: &str) -> ConnectorRef {
    connector(&format!("github://cofferdam/{name}@0.1.0"))
}

/// A call that sends one request there: `post_bytes` and `post` one POST, `fetch` one GET.
fn asks(name: &str, op: &str, path: &str) -> Call {
    let url = SHARED.upstream.url(path);
    let args = match op {
        "post_bytes" => json!({"url": url, "bytes": 6}),
        "post" => json!({"url": url, "body": "ticket"}),
        _ => json!({"url": url}),
    };
    Call::new(named(name), op, args)
}

fn count(path: &str) -> usize {
    SHARED.upstream.seen(path).len()
}

/// The message for a POST without a key.
#[track_caller]
fn is_told(told: &CallRecord, name: &str) {
    let failure = told.failure();
    assert_eq!((failure.code(), failure.retriable()), ("unavailable", false));
    let details = failure.details();
    assert_eq!(
        (&details["retry_stopped"], &details["retried"]),
        (&json!("not_declared_idempotent"), &json!(0))
    );
    assert_eq!(details["unkeyed"], json!({"method": "POST", "host": SHARED.upstream.host_port()}), "{name}");
    let line = json!({"file": "connector.toml", "table": "[connector.idempotency.operations]",
        "line": "post_bytes = \"idempotent\""});
    assert_eq!(details["allow"], line);
    assert!(!details.contains_key("retry_after_ms"), "nothing says when to try again: {details:?}");
    for part in [
        "It is not retried: it had sent POST to",
        "`post_bytes = \"idempotent\"` under",
        "then build, sign and install",
    ] {
        assert!(failure.message().contains(part), "{part}: {failure}");
    }
}

#[test]
fn an_unkeyed_post_is_sent_once_unless_declared() {
    for (name, times) in [("silent", 1), ("default", 1), ("declared", 4)] {
        let path = format!("/status/500/ticket-{name}");
        let told = SHARED.call(asks(name, "post_bytes", &path));
        assert_eq!((count(&path), told.attempts()), (times, times), "{name}");
        match times {
            1 => is_told(&told, name),
            _ => assert_eq!(told.failure().details()["retry_stopped"], "max_attempts"),
        }
    }
}

#[test]
fn a_profile_that_retries_nothing_is_not_stopped() {
    let call = asks("silent", "post_bytes", "/status/500/ticket-none");
    let told = SHARED.call(call.retry(RetryProfile::named("none").unwrap()));
    let failure = told.failure();
    let details = failure.details();
    assert_eq!((failure.retriable(), details.get("retry_stopped")), (false, None), "{failure}");
    assert_eq!(details["allow"]["line"], "post_bytes = \"idempotent\"");
    assert!(failure.message().contains("It is not retried: it had sent POST to"), "{failure}");
}

#[test]
fn observed_safe_requests_are_retried() {
    for (op, path) in [("fetch", "/flaky/2/get"), ("post", "/flaky/2/keyed")] {
        let told = SHARED.call(asks("silent", op, path));
        assert_eq!(told.outcome.unwrap()["body"], "at last", "{op}");
        assert_eq!(count(path), 3);
    }
    let keys: Vec<_> = SHARED
        .upstream
        .seen("/flaky/2/keyed")
        .iter()
        .map(|seen| seen.header("idempotency-key").map(str::to_owned))
        .collect();
    assert!(keys[0].is_some() && keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    // A request of which nothing left changed nothing; one that was not answered may have.
    let refused = format!("http://localhost:{}/", *NOBODY);
    let dropped = SHARED.upstream.script("/dropped/post", [ScriptedReply::hang_up()]);
    for (url, attempts) in [(refused, 4), (dropped, 1)] {
        let told = SHARED.call(Call::new(named("silent"), "post_bytes", json!({"url": url, "bytes": 6})));
        assert_eq!((told.failure().class().name(), told.attempts()), ("network_error", attempts), "{url}");
    }
}

#[test]
fn no_fallback_is_tried_after_an_unkeyed_post() {
    for (op, status) in [("post_bytes", 500), ("post_bytes", 404), ("fetch", 500)] {
        let (first, second) = (format!("/status/{status}/first-{op}"), format!("/text/second-{op}-{status}"));
        let mut other = json!({"url": SHARED.upstream.url(&second)});
        if op == "post_bytes" {
            other["bytes"] = json!(7);
        }
        let call = asks("silent", op, &first)
            .retry(RetryProfile::named("none").unwrap())
            .or_else(Fallback::new(named("default"), op).with_args(other.as_object().unwrap().clone()));
        let told = SHARED.call(call);
        let asked = usize::from(op == "fetch");
        assert_eq!((count(&first), count(&second)), (1, asked), "{op} {status}");
        if asked == 0 {
            let details = told.failure().details();
            assert_eq!(details["retry_stopped"], "not_declared_idempotent", "{details:?}");
            assert_eq!(details["allow"]["line"], "post_bytes = \"idempotent\"");
        }
    }
}

#[test]
fn a_key_replays_an_unkeyed_posts_outcome() {
    let path = "/status/500/one-key";
    let call = || asks("silent", "post_bytes", path).idempotency_key("ticket-1");
    let first = SHARED.call(call());
    is_told(&first, "with a key of its caller's");
    let again = SHARED.call(call());
    assert_eq!(again.report.replayed.as_ref(), Some(&first.report.audit_id));
    assert_eq!((again.failure().details(), count(path)), (first.failure().details(), 1));
    // The outcome of a safe operation is not replayed if it is transient.
    let path = "/flaky/4/one-key";
    let call = || asks("silent", "fetch", path).idempotency_key("ticket-2");
    assert!(SHARED.call(call()).outcome.is_err());
    assert_eq!(SHARED.call(call()).outcome.unwrap()["body"], "at last");
}

#[test]
fn a_cancelled_call_frees_its_key_unless_it_posted() {
    for (op, unknown) in [("post_bytes", true), ("fetch", false)] {
        let path = format!("/hang/cancelled-{op}");
        let call = asks("silent", op, &path).idempotency_key(format!("cancelled-{op}"));
        // Not ended by its wall time: the waits of other tests are skipped on the same clock.
        let cancelled_after = |requests: usize| {
            let cancellation = Cancellation::new();
            let (host, own) = (SHARED.host().clone(), call.clone().cancelled_by(&cancellation));
            let running = begin(async move { host.run(own).await });
            while count(&path) < requests {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            cancellation.cancel();
            run(running).unwrap()
        };
        let CallResult { outcome, report } = cancelled_after(1);
        assert_eq!(refused(outcome).kind(), HostErrorKind::Cancelled);
        let unkeyed =
            report.attempts[0].unkeyed.as_ref().map(|UnkeyedRequest { method, .. }| method.as_str());
        assert_eq!(unkeyed, unknown.then_some("POST"));
        if unknown {
            let again = run(SHARED.host().run(call.clone())).outcome;
            assert_eq!((refused(again).kind(), count(&path)), (HostErrorKind::OutcomeUnknown, 1));
        } else {
            assert_eq!(refused(cancelled_after(2).outcome).kind(), HostErrorKind::Cancelled);
        }
    }
}

/// A home with a server, for commands.
struct Desk {
    home: Home,
    upstream: Upstream,
}

impl Desk {
    fn new(table: &str) -> Self {
        let (home, signer, upstream) = (Home::new(COFFERDAM), Signer::new(), Upstream::start());
        home.trust(&signer.public(), "github://cofferdam/*");
        let granted = package::with_hosts(&package::guest_manifest("probe"), &[upstream.grant()]);
        let bytes = package::pack(&package::guest("probe"), &manifest(&granted, "tickets", table));
        run(home.install(&bytes, &signer)).unwrap();
        let config = format!(
            "[network]\nallow_private = [\"{}\"]\n[retry]\nprofile = \"brisk\"\n[retry.profiles.brisk]\n\
             retryable = true\nmax_attempts = 3\nbackoff = {{ kind = \"fixed\", base = \"1ms\" }}\n\
             classifier = {{ retry_on = [\"unavailable\"] }}\n",
            upstream.host_port()
        );
        std::fs::write(home.path().join("config.toml"), config).unwrap();
        Self { home, upstream }
    }

    fn cli(&self) -> Cli {
        Cli::new(COFFERDAM, self.home.path())
    }

    /// The command line that creates a ticket there.
    fn create(&self, path: &str, more: &[&str]) -> Vec<String> {
        let args = json!({"url": self.upstream.url(path), "bytes": 6}).to_string();
        let call = ["call", "github://cofferdam/tickets", "post_bytes", &args, "--format", "json"];
        call.iter().chain(more).map(|arg| (*arg).to_owned()).collect()
    }
}

#[test]
fn one_call_creates_one_ticket() {
    let desk = Desk::new(SILENT);
    let ran = desk.cli().run(&desk.create("/status/500/tickets", &[])).fails(76);
    assert_eq!(desk.upstream.seen("/status/500/tickets").len(), 1, "tickets");
    let envelope = ran.envelope();
    let error = &envelope["error"];
    assert_eq!((&error["class"], &error["retriable"]), (&json!("external_api_error"), &json!(false)));
    assert_eq!(error["details"]["retry_stopped"], "not_declared_idempotent");
    assert_eq!(error["details"]["allow"]["line"], "post_bytes = \"idempotent\"");
    let told = desk.cli().run(&["explain", "not_declared_idempotent"]).ok();
    assert!(told.contains("idempotency key"), "{told}");
}

#[test]
fn a_minted_key_repeats_a_command() {
    let desk = Desk::new(SILENT);
    let path = "/flaky/3/minted";
    let args = json!({"url": desk.upstream.url(path), "body": "ticket"}).to_string();
    let call = ["call", "github://cofferdam/tickets", "post", &args];
    let failed = desk.cli().run(&[&call[..], &["--format", "json"]].concat()).fails(76).envelope();
    let error = &failed["error"];
    assert_eq!(
        (&error["retriable"], &error["details"]["retry_stopped"]),
        (&json!(false), &json!("max_attempts"))
    );
    let key = error["details"]["repeat_with_key"].as_str().unwrap();
    assert_eq!(error["audit_id"], key);
    let shown = desk.cli().run(&["audit", "show", key, "--format", "json"]).json();
    let logged = &shown["error"];
    let named = &logged["details"]["repeat_with_key"];
    assert_eq!((&logged["retriable"], named), (&json!(false), &json!(key)), "{shown}");
    desk.cli().run(&[&call[..], &["--idempotency-key", key]].concat()).ok();
    let seen = desk.upstream.seen(path);
    let keys: Vec<_> = seen.iter().map(|seen| seen.header("idempotency-key").unwrap()).collect();
    assert_eq!(keys, vec![format!("{key}:post"); 4]);
    let args = json!({"url": desk.upstream.url("/status/503/minted"), "body": "ticket"}).to_string();
    let call = ["call", "github://cofferdam/tickets", "post", &args];
    let told = desk.cli().run(&[&call[..], &["--as-tool-result"]].concat()).fails(76).stdout;
    assert!(told.contains("under the idempotency key audit-") && !told.contains("Try again"), "{told}");
    let fix = "fix: Look at the service before it is called again, or make the same call under the idempotency key ";
    desk.cli().run(&call).fails(76).said(fix);
    desk.cli().run(&["audit", "verify"]).ok();
}

#[test]
fn a_killed_attempt_of_unknown_effect_is_not_resumed() {
    let desk = Desk::new(SILENT);
    let args = desk.create("/text/cut", &["--idempotency-key", "cut"]);
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let killed =
        desk.cli().command(&args).env("COFFERDAM_FAILPOINTS", "request.answered=kill").output().unwrap();
    assert!(!killed.status.success() && desk.upstream.seen("/text/cut").len() == 1);
    let listed = desk.cli().run(&["recover", "list", "--format", "json"]).json();
    let call = &listed[0];
    assert_eq!((&call["resumable"], &call["not_resumable"]), (&json!(false), &json!("undeclared")), "{call}");
    let id = call["audit_id"].as_str().unwrap();
    let refused = desk.cli().run(&["recover", "resume", id]).fails(85);
    assert!(refused.stdout.contains("is not declared idempotent"), "{}", refused.stdout);
    let again = desk.cli().run(&args).fails(85).envelope();
    assert_eq!(again["error"]["code"], "outcome_unknown", "{again}");
    assert_eq!(desk.upstream.seen("/text/cut").len(), 1, "it was not done again");
    desk.cli().run(&["recover", "skip", id, "--free-key", "--reason", "it is missing"]).ok();
    desk.cli().run(&args).ok();
    assert_eq!(desk.upstream.seen("/text/cut").len(), 2);
    desk.cli().run(&["audit", "verify"]).ok();
}

#[test]
fn a_wait_between_attempts_is_resumed_under_its_key() {
    let desk = Desk::new(SILENT);
    let (path, count) = ("/flaky/2/waits", || desk.upstream.seen("/flaky/2/waits").len());
    let url = json!({"url": desk.upstream.url(path)}).to_string();
    let args = ["call", "github://cofferdam/tickets", "fetch", &url, "--idempotency-key", "waits"];
    // Its first attempt has ended, and had sent nothing that may take effect twice.
    let killed = desk.cli().command(&args).env("COFFERDAM_FAILPOINTS", "admitted:2=kill").output().unwrap();
    assert!(!killed.status.success() && count() == 1);
    let again =
        desk.cli().run(&[args.as_slice(), ["--format", "json"].as_slice()].concat()).fails(85).envelope();
    assert_eq!(again["error"]["code"], "outcome_unknown", "the host does not repeat it by itself: {again}");
    let listed = desk.cli().run(&["recover", "list", "--format", "json"]).json();
    assert_eq!(
        (&listed[0]["resumable"], &listed[0]["idempotent"]),
        (&json!(true), &json!(false)),
        "{listed}"
    );
    desk.cli().run(&["recover", "resume", listed[0]["audit_id"].as_str().unwrap()]).ok();
    desk.cli().run(&args).ok();
    assert_eq!(count(), 3, "the outcome of the key is that of the resuming call");
    assert_eq!(desk.cli().run(&["recover", "list", "--format", "json"]).json(), json!([]));
    desk.cli().run(&["audit", "verify"]).ok();
}

#[test]
fn inspect_shows_each_operations_declaration() {
    let table = "[connector.idempotency.operations]\nfetch = \"idempotent\"\npost = \"not_idempotent\"\n\
                 [connector.effects.operations]\nfetch_many = \"read_only\"\n";
    let desk = Desk::new(table);
    let inspected =
        desk.cli().run(&["inspect", "github://cofferdam/tickets@0.1.0", "--format", "json"]).json();
    let operations = inspected["operations"].as_array().unwrap();
    for (name, idempotency, repeat) in [
        ("fetch", "declared", "always"),
        ("post", "not_idempotent", "never"),
        ("post_bytes", "undeclared", "unless_unkeyed"),
        ("fetch_many", "undeclared", "always"),
    ] {
        let operation = operations.iter().find(|operation| operation["name"] == name).unwrap();
        assert_eq!(
            (&operation["idempotency"], &operation["repeat"]),
            (&json!(idempotency), &json!(repeat)),
            "{name}"
        );
    }
    let page = desk.cli().run(&["inspect", "github://cofferdam/tickets@0.1.0", "-v"]).ok();
    for line in [
        "Declared idempotent:",
        "Not idempotent:",
        "Idempotency undeclared: not repeated",
        "since it only reads",
    ] {
        assert!(page.contains(line), "{line}: {page}");
    }
}

#[test]
fn pack_warns_once_of_undeclared_operations() {
    let desk = Desk::new(SILENT);
    let (component, toml) = (desk.home.path().join("probe.wasm"), desk.home.path().join("connector.toml"));
    std::fs::write(&component, package::guest("probe")).unwrap();
    let warned = |table: &str| {
        std::fs::write(&toml, manifest(&package::guest_manifest("probe"), "tickets", table)).unwrap();
        let (output, path) =
            (desk.home.path().join("out.wasm"), |path: &std::path::Path| path.display().to_string());
        let args = ["pack", &path(&component), "--manifest", &path(&toml), "-o", &path(&output)];
        let ran = desk.cli().run(&args);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let lines = ran.stderr.lines().filter(|line| line.contains("may it be repeated?"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let table = "[connector.idempotency.operations]\nfetch = \"idempotent\"\npost = \"not_idempotent\"\n\
                 [connector.effects.operations]\nfetch_many = \"read_only\"\n";
    let [line] = &*warned(table) else { panic!("one warning for all") };
    for name in ["post_bytes", "ask", "[connector.idempotency.operations]"] {
        assert!(line.contains(name), "{name}: {line}");
    }
    for name in [" fetch,", " post,", "fetch_many"] {
        assert!(!line.contains(name), "{name}: {line}");
    }
    assert!(warned("[connector.effects]\ndefault = \"read_only\"\n").is_empty());
}
