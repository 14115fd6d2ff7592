//! The calls of the tour, in order: what works, what fails outside, what misbehaves, what was tampered with.

use std::fs;

use cofferdam::{Call, Error, Failure, FailureBoundary, FailureClass, LimitRequest};
use cofferdam_test_support::{InstallAccepted as _, Signer, package};
use serde_json::{Value, json};

use crate::show::{Promise, Scene, Show};
use crate::stage::{Stage, example};

type Outcome = Result<Value, Error>;

/// Nothing more to look at.
fn nothing_else(_: &Outcome) -> Result<Option<String>, String> {
    Ok(None)
}

/// Something that has to be so besides, as a sentence.
fn holds(so: bool, what: impl Into<String>) -> Result<Option<String>, String> {
    if so { Ok(Some(what.into())) } else { Err(format!("it is not so that {}", what.into())) }
}

fn failure(outcome: &Outcome) -> Option<&Failure> {
    outcome.as_ref().err().and_then(Error::failure)
}

/// Plays all of it.
pub(crate) async fn play(stage: &Stage, show: &mut Show) {
    show.chapter("What connectors are for");
    works(stage, show).await;
    show.chapter("When the world outside fails");
    fails_outside(stage, show).await;
    show.chapter("When a connector wants what it was not granted");
    is_denied(stage, show).await;
    show.chapter("When a connector does not behave");
    misbehaves(stage, show).await;
    show.chapter("When somebody tampers");
    is_tampered_with(stage, show).await;
    show.chapter("And after all that");
    still_works(stage, show).await;
}

async fn works(stage: &Stage, show: &mut Show) {
    let scene = Scene {
        what: "a value",
        why: "JSON arguments are checked against the component's own types before it starts; a fresh sandbox \
              runs the call, and nothing of it remains.",
        call: r#"hello greet {"name": "Ada", "tone": "warm"}"#,
        promise: Promise::Value,
        held: "types, in and out",
    };
    let hello = example("hello");
    let call = stage.host.call(&hello, "greet", json!({"name": "Ada", "tone": "warm"}));
    show.scene(scene, call, nothing_else).await;

    let repository = json!({"owner": "acme", "name": "issues-250", "base_url": stage.upstream.url("")});
    let scene = Scene {
        what: "an API with pages",
        why: "The connector follows the API's Link headers from page to page. Its manifest grants it this one \
              host and port.",
        call: r#"github-issues list_issues {"repository": {"name": "issues-250", ..}, "limit": 1000}"#,
        promise: Promise::Value,
        held: "every page, once",
    };
    let github = example("github-issues");
    let call = stage.host.call(&github, "list_issues", json!({"repository": repository, "limit": 1000}));
    show.scene(scene, call, |outcome| {
        let count = outcome.as_ref().ok().and_then(|value| value.get("issues")?.as_array().map(Vec::len));
        let requests = stage.upstream.seen("/repos/acme/issues-250").len();
        holds(count == Some(250), format!("{} issues came in {requests} requests", count.unwrap_or_default()))
    })
    .await;
}

async fn fails_outside(stage: &Stage, show: &mut Show) {
    let repository =
        json!({"owner": "acme", "name": "status-503-after-12", "base_url": stage.upstream.url("")});
    let scene = Scene {
        what: "an upstream error",
        why: "The server answers 503 and asks to be left alone for 12 seconds. The host saw that itself, so it \
              is a fact and not the connector's claim.",
        call: r#"github-issues get_issue {"repository": {"name": "status-503-after-12", ..}, "number": 1}"#,
        promise: Promise::Failure(FailureClass::ExternalApiError, FailureBoundary::External, "unavailable"),
        held: "status and Retry-After arrive",
    };
    let github = example("github-issues");
    let call = stage.host.call(&github, "get_issue", json!({"repository": repository, "number": 1}));
    show.scene(scene, call, |outcome| {
        let wait = failure(outcome).and_then(|failure| failure.details().get("retry_after_ms")?.as_u64());
        holds(wait == Some(12_000), "retry_after_ms is 12000")
    })
    .await;

    let scene = Scene {
        what: "a server that is down",
        why: "Nobody listens on this port. The phase says how far the request came: not a byte of it was sent, \
              so that trying again is safe.",
        call: &format!(r#"probe fetch {{"url": "http://localhost:{}/"}}"#, stage.closed_port),
        promise: Promise::Failure(FailureClass::NetworkError, FailureBoundary::External, "refused"),
        held: "phase, and whether anything was sent",
    };
    let url = format!("http://localhost:{}/", stage.closed_port);
    let probe = example("probe");
    show.scene(scene, stage.host.call(&probe, "fetch", json!({"url": url})), |outcome| {
        let sent = failure(outcome).and_then(|failure| failure.details().get("request_sent")?.as_bool());
        holds(sent == Some(false), "request_sent is false")
    })
    .await;
}

async fn is_denied(stage: &Stage, show: &mut Show) {
    let probe = example("probe");
    let url = stage.elsewhere.url("/text/secret");
    let untouched =
        |_: &Outcome| holds(stage.elsewhere.connections() == 0, "the other server saw no connection");
    let denied =
        Promise::Failure(FailureClass::CapabilityDenied, FailureBoundary::Sandbox, "host_not_granted");
    let scene = Scene {
        what: "a denied host",
        why: "Another server, whose port the manifest does not name. The refusal says which line would allow it; \
              only whoever signs the package can write that line.",
        call: &format!(r#"probe fetch {{"url": "{url}"}}"#),
        promise: denied,
        held: "nothing left the machine",
    };
    show.scene(scene, stage.host.call(&probe, "fetch", json!({"url": url})), untouched).await;

    let scene = Scene {
        what: "a denial that it hides",
        why: "The same, but the connector ignores the error and returns ok. A call that was denied something \
              has failed, whatever the connector says.",
        call: &format!(r#"probe swallow_denial {{"url": "{url}"}}"#),
        promise: denied,
        held: "no silent failure",
    };
    show.scene(scene, stage.host.call(&probe, "swallow_denial", json!({"url": url})), untouched).await;
}

/// A call of `probe` within limits.
fn within(op: &str, args: Value, fuel: Option<u64>, wall_time: Option<&str>) -> Call {
    let limits = LimitRequest::parse(fuel, wall_time, None).expect("limits that are acceptable");
    Call::new(example("probe"), op, args).limits(limits)
}

async fn misbehaves(stage: &Stage, show: &mut Show) {
    let limit = |code| Promise::Failure(FailureClass::ResourceLimitExceeded, FailureBoundary::Sandbox, code);
    let scene = Scene {
        what: "a guest that never ends",
        why: "An endless loop. Fuel counts instructions, so that the same call ends at the same instruction on \
              every machine.",
        call: "probe spin   (with 500 million units of fuel)",
        promise: limit("fuel"),
        held: "fuel",
    };
    let call = stage.host.run(within("spin", json!({}), Some(500_000_000), None));
    show.scene(scene, async { call.await.outcome }, nothing_else).await;

    let scene = Scene {
        what: "a guest that only waits",
        why: "Sleeping burns no fuel. The clock runs all the same.",
        call: r#"probe sleep {"ms": 60000}   (with 300 ms of wall time)"#,
        promise: limit("wall_time"),
        held: "wall time",
    };
    let call = stage.host.run(within("sleep", json!({"ms": 60_000}), None, Some("300ms")));
    show.scene(scene, async { call.await.outcome }, nothing_else).await;

    let probe = example("probe");
    let scene = Scene {
        what: "a guest that eats memory",
        why: "It allocates until it is refused, and then crashes. The host remembers the refusal, and names the \
              limit and not the crash.",
        call: "probe eat_memory",
        promise: limit("memory"),
        held: "64 MiB",
    };
    show.scene(scene, stage.host.call(&probe, "eat_memory", json!({})), nothing_else).await;

    let scene = Scene {
        what: "a guest that panics",
        why: "Its last words are for the operator's record. The caller, who may be an agent, gets none of a \
              stranger's text.",
        call: r#"probe panic {"message": "token=hunter2"}"#,
        promise: Promise::Failure(FailureClass::ConnectorRuntimeError, FailureBoundary::Sandbox, "trap"),
        held: "the message stays with the operator",
    };
    show.scene(scene, stage.host.call(&probe, "panic", json!({"message": "token=hunter2"})), |outcome| {
        let envelope =
            outcome.as_ref().err().and_then(|error| serde_json::to_string(error).ok()).unwrap_or_default();
        let notes = failure(outcome).map(|failure| failure.operator_notes().join(" ")).unwrap_or_default();
        let so = !envelope.contains("hunter2") && notes.contains("hunter2");
        holds(so, "the envelope does not have the message, and the operator's record does")
    })
    .await;
}

async fn is_tampered_with(stage: &Stage, show: &mut Show) {
    let file = stage.home.installed_file(&stage.hello);
    let flipped = (|| {
        let mut bytes = fs::read(&file)?;
        let middle = bytes.len() / 2;
        bytes.get_mut(middle).into_iter().for_each(|byte| *byte ^= 1);
        fs::write(&file, bytes)
    })();
    let hello = example("hello");
    let scene = Scene {
        what: "a flipped byte",
        why: "One bit of the installed file of hello is turned over, while the host has it loaded. The next call \
              notices, hashes the file, and does not run it.",
        call: r#"hello greet {"name": "Ada"}"#,
        promise: Promise::Failure(FailureClass::HashMismatch, FailureBoundary::Runtime, "hash"),
        held: "only verified bytes run",
    };
    show.scene(scene, stage.host.call(&hello, "greet", json!({"name": "Ada"})), |_| {
        let restored = fs::write(&file, &stage.hello);
        holds(flipped.is_ok() && restored.is_ok(), "the byte is put back as it was")
    })
    .await;

    let manifest = package::guest_manifest("hello").replace("0.1.0", "6.6.6");
    let bytes = package::pack(&package::guest("hello"), &manifest);
    let signature = Signer::new().sign(&bytes);
    let before = stage.home.snapshot();
    let scene = Scene {
        what: "an untrusted signer",
        why: "hello 6.6.6 is well made and well signed, by a key that nobody here trusts for that name.",
        call: "install hello-6.6.6.wasm",
        promise: Promise::Failure(FailureClass::SignatureFailure, FailureBoundary::Runtime, "unknown_key"),
        held: "nothing was installed",
    };
    let install = async {
        let installed = stage.host.install_accepted(bytes, Some(signature), Default::default()).await;
        installed.map(|installed| json!({"installed": installed.name}))
    };
    show.scene(scene, install, |_| {
        holds(stage.home.snapshot() == before, "the home is byte for byte as it was")
    })
    .await;
}

async fn still_works(stage: &Stage, show: &mut Show) {
    let scene = Scene {
        what: "the same host, unharmed",
        why: "The process that ran all of this takes the next call as if nothing had been.",
        call: r#"hello greet {"name": "Grace"}"#,
        promise: Promise::Value,
        held: "one process, no scars",
    };
    let hello = example("hello");
    show.scene(scene, stage.host.call(&hello, "greet", json!({"name": "Grace"})), nothing_else).await;
}
