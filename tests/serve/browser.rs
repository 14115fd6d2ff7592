//! The console in a real browser: every page, in both colour schemes and on a phone, with a log of 100,000 calls.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cofferdam_test_support::services::Tools;
use cofferdam_test_support::{Signer, package, traffic};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::console::{POSTS_ASK, asked};
use super::fixture::{Stage, TOKEN, probe};
use crate::shared_host::run;

/// The calls on record.
const CALLS: usize = 100_000;

/// A text that would end an attribute and an element, and make others.
const HOSTILE: &str = "x\"'></td></script><script>alert(1)</script><i data-hostile onclick=alert(1)>\u{202e}";

/// Chromium, and the directories of the libraries that came with it.
fn chromium(tools: &Tools) -> (PathBuf, String) {
    let own = tools.dir().join("chromium/usr/lib");
    let libraries = own.join("x86_64-linux-gnu");
    let libraries = format!("{0}:{0}/pulseaudio", libraries.display());
    match own.join("chromium/chromium") {
        path if path.exists() => (path, libraries),
        _ => ("/usr/lib/chromium/chromium".into(), libraries),
    }
}

/// Runs the script with a task, and returns what it reports.
fn drive(tools: &Tools, task: &Value) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/serve/browser.mjs");
    let (chromium, libraries) = chromium(tools);
    let home = tempfile::tempdir().unwrap();
    let mut child = Command::new(tools.python("node"))
        .args([&script, tools.dir(), &chromium])
        .env("LD_LIBRARY_PATH", libraries)
        .env("HOME", home.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(task.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn every_page_holds_in_a_browser() {
    let Some(tools) = crate::tools("the console in a browser") else { return };
    let more = ["--token-file", "token", "--console", "--approvals"];
    let stage = Stage::prepared(&more, POSTS_ASK, |home| {
        let (signer, manifest) = (Signer::new(), package::guest_manifest("probe"));
        let manifest = manifest.replace("version = \"0.1.0\"", "version = \"0.2.0\"");
        home.trust(&signer.public(), "github://cofferdam/*");
        run(home.install(&package::pack(&package::guest("probe"), &manifest), &signer)).unwrap();
        traffic::fill(home.path(), CALLS, 7, Timestamp::now());
        traffic::fill_with_text(home.path(), HOSTILE, Timestamp::now());
    });
    for path in ["/text/browser", "/status/503/browser"] {
        stage.post(&probe("fetch", &json!({"url": stage.upstream.url(path)})));
    }
    let posted = "/text/browser-approved";
    let call = probe("post", &json!({"url": stage.upstream.url(posted), "body": "b"}));
    let approval = format!("/console/approvals/{}", asked(&stage, &call));
    let blessed = std::env::var_os("COFFERDAM_BLESS")
        .map(|_| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images").canonicalize().unwrap());
    let live = probe("fetch", &json!({"url": stage.upstream.url("/text/browser-live")}));
    let task = json!({
        "call": {"token": TOKEN, "body": live.to_string()},
        "open": stage.ready["open"], "approve": stage.ready["approve"], "approval": approval, "rare": "rare",
        "hostile": "<i data-hostile",
        "shots": blessed,
        "shown": [
            {"name": "connector", "path": "/console/connectors/github/cofferdam/probe@0.1.0", "heading": "Limits"},
            {"name": "calls", "path": "/console/calls"},
            {"name": "health", "path": "/console/health"}
        ]
    });
    let seen = drive(&tools, &task);
    assert_eq!(seen["wrong"], json!([]), "{seen:#}");
    let kinds = seen["kinds"].as_array().unwrap();
    for kind in [
        "?",
        "/connectors/*?",
        "/connectors/*?from",
        "/calls?",
        "/calls/*?",
        "/calls?before",
        "/approvals?",
        "/approvals/*?",
        "/approvals?all",
        "/health?",
        "/health?range",
        "/network?",
        "/trust?",
    ] {
        assert!(kinds.contains(&json!(format!("/console{kind}"))), "{kind}: {kinds:?}");
    }
    assert!(seen["hostile"].as_u64().unwrap() > 2, "the hostile texts are not shown: {seen}");
    assert!(seen["rules"].as_u64().unwrap() > 100, "axe did not run: {seen}");
    assert_eq!((stage.post(&call).status, stage.upstream.seen(posted).len()), (200, 1), "it was approved");
}
