//! Tests of what a manifest asks for: its methods, its credentials' headers, and lists that are too long.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use super::Manifest;
use super::tests::GOOD;

#[test]
fn extra_methods_are_named_exactly() {
    let with = |methods: &str| {
        let text =
            GOOD.replace("[\"slack.com:443\"]\n\n", &format!("[\"slack.com:443\"]\nmethods = {methods}\n\n"));
        Manifest::parse("connector.toml", &text)
    };
    assert_eq!(Manifest::parse("connector.toml", GOOD).unwrap().methods(), [] as [http::Method; 0]);
    let manifest = with("[\"PROPFIND\", \"VERSION-CONTROL\"]").unwrap();
    let named: Vec<_> = manifest.methods().iter().map(http::Method::as_str).collect();
    assert_eq!(named, ["PROPFIND", "VERSION-CONTROL"]);
    for (methods, says) in [
        ("[\"TRACE\"]", "no connector may send; remove it"),
        ("[\"trace\"]", "no connector may send; remove it"),
        ("[\"CONNECT\"]", "no connector may send; remove it"),
        ("[\"TRACK\"]", "no connector may send; remove it"),
        ("[\"GET\"]", "every connector may send GET; remove it"),
        ("[\"get\"]", "remove it: every connector may send GET"),
        ("[\"propfind\"]", "write it as \"PROPFIND\""),
        ("[\"\"]", "upper-case letters"),
        ("[\"*\"]", "upper-case letters"),
        ("[\"A B\"]", "upper-case letters"),
        ("[\"A\", \"A\"]", "stands in the list twice"),
        ("\"PROPFIND\"", "an array of strings"),
    ] {
        let error = with(methods).expect_err(methods).to_string();
        assert!(error.starts_with("connector.toml:14:") && error.contains(says), "{methods}: {error}");
    }
    let long = format!("[\"{}\"]", "A".repeat(33));
    assert!(with(&long).unwrap_err().to_string().contains("upper-case letters"));
}

#[test]
fn overlong_lists_are_refused_with_a_message() {
    let quoted = |entry: &dyn Fn(usize) -> String, n: usize| {
        let entries: Vec<_> = (0..n).map(|at| format!("\"{}\"", entry(at))).collect();
        format!("[{}]", entries.join(", "))
    };
    let letters = |at: usize| {
        format!("M{}", "ABCDEFGHIJKLMNOPQRSTUVWXYZ".chars().nth(at % 26).unwrap()).repeat(at / 26 + 1)
    };
    let manifest = |hosts: usize, methods: usize, imports: usize, credentials: usize| {
        let hosts = quoted(&|at| format!("h{at}.example:443"), hosts);
        let methods = quoted(&letters, methods);
        let imports = quoted(&|at| format!("a:p{at}/i"), imports);
        let credentials: String = (0..credentials)
            .map(|at| {
                format!(
                    "[[capabilities.credential]]\nkind = \"api_key\"\nservice = \"s{at}\"\n\
                     hosts = [\"h0.example:443\"]\nheader = \"x-{at}\"\n"
                )
            })
            .collect();
        let text = format!(
            "[connector]\nname = \"github://acme/x\"\nversion = \"1.0.0\"\n[capabilities.network]\nhosts = {hosts}\n\
             methods = {methods}\n{credentials}[capabilities.runtime]\nimports = {imports}\n"
        );
        Manifest::parse("connector.toml", &text).map(|manifest| manifest.credentials().len())
    };
    assert_eq!(manifest(256, 100, 256, 256).map_err(|error| error.to_string()), Ok(256));
    for (hosts, imports, credentials, says) in [
        (257, 1, 1, "capabilities.network.hosts[256]: the list has 257 entries, more than 256"),
        (1, 257, 1, "capabilities.runtime.imports[256]: the list has 257 entries, more than 256"),
        (
            1,
            1,
            257,
            "capabilities.credential[256]: [[capabilities.credential]] has 257 entries, more than 256",
        ),
    ] {
        let error = manifest(hosts, 1, imports, credentials).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn a_credential_header_is_not_another_field() {
    let with = |header: &str| {
        let text = GOOD.replace("header = \"Authorization\"", &format!("header = \"{header}\""));
        Manifest::parse("connector.toml", &text)
    };
    for header in ["X_Forwarded_For", "transfer_encoding", "If-Range", "proxy_authorization", "x_real-ip"] {
        let error = with(header).expect_err(header).to_string();
        assert!(error.contains("no credential may use"), "{header}: {error}");
    }
    assert!(with("X_Api_Key").is_ok());
    let second = "[[capabilities.credential]]\nkind = \"api_key\"\nservice = \"b\"\nhosts = [\"slack.com:443\"]\n\
                  header = \"x_api_key\"\n[capabilities.runtime]";
    let twice = GOOD.replace("header = \"Authorization\"", "header = \"X-Api-Key\"");
    let error = Manifest::parse("connector.toml", &twice.replace("[capabilities.runtime]", second))
        .unwrap_err()
        .to_string();
    assert!(error.contains("above writes the header"), "{error}");
}
