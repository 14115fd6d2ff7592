//! The changes of operators over HTTP and in the console: what they were about, and what they allow.

use cofferdam_test_support::Signer;
use serde_json::{Value, json};

use super::console::{Browser, POSTS_ASK, asked};
use super::fixture::{Stage, probe};
use super::openapi::Described;
use crate::bindings::{fed, slack};

#[test]
fn changes_are_listed_with_what_they_allow() {
    let stage = Stage::with(&["--token-file", "token", "--console"]);
    let described = Described::of(&stage.get("/openapi.json"));
    let page = |query: &str| {
        let answer = stage.get(&format!("/v1/changes{query}"));
        described.fits("/v1/changes", "get", &answer);
        assert_eq!(answer.status, 200, "{query}: {answer:?}");
        assert!(!answer.body.contains("a hidden note"), "{answer:?}");
        answer.json()
    };
    let (cli, signer, name) = (stage.cli().in_dir(stage.home.path()), Signer::new(), "github://acme/slack");
    cli.run(&["trust", "add", &signer.public().to_string(), "--for", name, "--comment", "a hidden note"])
        .ok();
    for (version, host) in [("1.0.0", "slack.com:443"), ("1.2.0", "files.slack.com:443")] {
        let file = format!("{version}.wasm");
        signer.write(stage.home.path().join(&file), &slack(name, version, host));
        cli.install(&[&file]).ok();
    }
    cli.run(&["trust", "floor", name, "1.0.0"]).ok();
    cli.run(&["trust", "floor", name, "--remove"]).ok();
    fed(
        &cli,
        &["binding", "set", "bearer/slack", "--stdin", "--connector", name, "--host", "slack.com:443"],
        "xoxb-0123456789-abcdefghij",
    )
    .ok();
    cli.run(&["binding", "allow", "bearer/slack", "--host", "b.example:443", "--yes"]).ok();
    let all = page("?limit=1000");
    let changes = all["changes"].as_array().unwrap();
    let kinds: Vec<_> = changes.iter().rev().map(|change| change["kind"].as_str().unwrap()).collect();
    let expected =
        ["trust", "first_grants", "install", "wider_grants", "upgrade", "activate", "floor", "floor"];
    assert_eq!(kinds, [&expected[..], &["bind", "allow"]].concat(), "{all}");
    let wider = changes.iter().find(|change| change["kind"] == "wider_grants").unwrap();
    assert!(wider["is_wider"] == true && wider.to_string().contains("files.slack.com:443"), "{wider}");
    let [allowed, bound, removed, floor] = &changes[..4] else { panic!("{all}") };
    assert_eq!([&allowed["is_wider"], &removed["is_wider"]], [true, true]);
    assert_eq!([&bound["is_wider"], &floor["is_wider"]], [false, false]);
    let hosts = allowed["facts"].as_array().unwrap().iter().find(|fact| fact["name"] == "hosts").unwrap();
    assert!(hosts["after"].as_array().unwrap().contains(&json!("b.example:443")), "{allowed}");
    assert_eq!((&all["next"], &allowed["area"]), (&Value::Null, &json!("bindings")));
    let count = |page: &Value| page["changes"].as_array().unwrap().len();
    for (query, number) in [("?area=bindings", 2), ("?area=grants", 2), ("?since=2999-01-01T00:00:00Z", 0)] {
        assert_eq!(count(&page(query)), number, "{query}");
    }
    let newest = page("?limit=1");
    assert_eq!(count(&newest), 1);
    let before = page(&format!("?limit=1&before={}", newest["next"].as_str().unwrap()));
    assert_eq!(before["changes"][0], *bound);
    for query in ["?area=all", "?limit=0", "?since=yesterday", "?by=user"] {
        let answer = stage.get(&format!("/v1/changes{query}"));
        described.fits("/v1/changes", "get", &answer);
        assert_eq!(answer.status, 400, "{query}: {answer:?}");
    }

    let browser = Browser::open(&stage);
    let shown = browser.page("/console/trust");
    for text in [
        "wider grants accepted",
        "upgrade",
        "minimum version",
        "added <code>b.example:443</code>",
        "aria-label=\"Bindings: 2 changes, 1 allow more than before.",
    ] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    let keys = browser.page("/console/trust?area=keys&since=&until=");
    assert!(keys.contains("<option value=\"keys\" selected>") && !keys.contains("b.example"), "{keys}");
    assert_eq!(browser.get("/console/trust?area=%22%3E%3Cscript%3E").status, 400);
}

#[test]
fn approvals_hide_no_other_changes() {
    let stage = Stage::configured(&["--token-file", "token", "--console"], POSTS_ASK);
    let described = Described::of(&stage.get("/openapi.json"));
    stage.cli().run(&["trust", "floor", "github://cofferdam/probe", "0.1.0"]).ok();
    for path in ["/text/changes-a", "/text/changes-b"] {
        let call = probe("post", &json!({"url": stage.upstream.url(path), "body": "b"}));
        stage.cli().run(&["approvals", "deny", &asked(&stage, &call)]).ok();
    }
    for (query, expected) in [
        ("?limit=1", json!(["floor"])),
        ("?area=keys", json!(["floor"])),
        ("?area=approvals", json!(["deny", "deny"])),
        ("?area=other", json!([])),
    ] {
        let answer = stage.get(&format!("/v1/changes{query}"));
        described.fits("/v1/changes", "get", &answer);
        let page = answer.json();
        let kinds: Vec<_> = page["changes"].as_array().unwrap().iter().map(|it| it["kind"].clone()).collect();
        assert_eq!((json!(kinds), &page["next"]), (expected, &Value::Null), "{query}: {page}");
    }
    let browser = Browser::open(&stage);
    let shown = browser.page("/console/trust");
    assert!(shown.contains("minimum version") && !shown.contains("<th scope=\"row\">deny"), "{shown}");
    let approvals = browser.page("/console/trust?area=approvals");
    assert!(approvals.contains("aria-label=\"Approvals: 2 changes, 0 allow more"), "{approvals}");
}

#[test]
fn an_empty_log_has_no_changes() {
    let stage = Stage::with(&["--token-file", "token", "--console"]);
    let none = Browser::open(&stage).page("/console/trust?since=2999-01-01T00:00:00Z");
    assert!(none.contains("No change on record fits."), "{none}");
}
