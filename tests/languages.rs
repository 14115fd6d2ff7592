//! Connectors in other languages, built by their own tools: whole interpreters pass every check and limit.
//!
//! componentize-py is `$COFFERDAM_COMPONENTIZE_PY`, or on the path. Where it is neither, the test says so and
//! checks nothing.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use cofferdam::InstallOptions;
use cofferdam_test_support::{Home, Signer, Upstream, package};
use serde_json::{Value, json};

use crate::COFFERDAM;
use crate::envelope;
use crate::world::{example, failed, run};

/// The component that componentize-py makes of the example `text`; none without the tool.
fn python_component() -> Option<Vec<u8>> {
    let given = std::env::var_os("COFFERDAM_COMPONENTIZE_PY").map(PathBuf::from);
    let tool = given.clone().unwrap_or_else(|| "componentize-py".into());
    let asked = Command::new(&tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !asked.is_ok_and(|status| status.success()) {
        assert!(given.is_none(), "COFFERDAM_COMPONENTIZE_PY is not componentize-py");
        crate::skipped("componentize-py is not installed; no connector in Python is tried");
        return None;
    }
    let (repository, build) = (package::repository(), tempfile::tempdir().unwrap());
    let (sources, component) = (repository.join("examples/text"), build.path().join("text.wasm"));
    let output = Command::new(&tool)
        .args(["--quiet", "--world", "cofferdam:text/text-connector"])
        .arg("--wit-path")
        .arg(repository.join("wit"))
        .arg("--wit-path")
        .arg(sources.join("wit"))
        .args(["componentize", "app", "--python-path"])
        .arg(&sources)
        .arg("--output")
        .arg(&component)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(std::fs::read(component).unwrap())
}

#[test]
fn a_connector_in_python_is_installed_called_and_held() {
    let Some(component) = python_component() else { return };
    assert!(component.len() > 10_000_000, "an interpreter is inside: {} bytes", component.len());
    let (upstream, signer, home) = (Upstream::start(), Signer::new(), Home::new(COFFERDAM));
    let bytes = package::example_package(&component, "text", &[upstream.grant()]);
    home.trust(&signer.public(), "github://cofferdam/*");
    let host = home.builder().allow_private(upstream.host_port()).build().unwrap();
    run(host.install(bytes.clone(), Some(signer.sign(&bytes)), InstallOptions::default())).unwrap();
    let verdicts = cofferdam::package::Package::open(bytes).unwrap().import_verdicts();
    let shut = verdicts.iter().filter(|it| it.standing().name() == "shut");
    assert!(shut.clone().count() > 0 && shut.clone().all(|it| it.name().starts_with("wasi:sockets/")));
    let call = |op: &str, args: Value| run(host.call(&example("text"), op, args));

    let count = call("count_text", json!({"text": "zwölf Boxkämpfer\njagen"})).unwrap();
    assert_eq!(count, json!({"characters": 22, "words": 3, "lines": 2}));
    let changed = call("substitute", json!({"pattern": "(\\w)o", "replacement": "\\g<1>0", "text": "fo go"}));
    assert_eq!(changed.unwrap(), "f0 g0");
    let failure = failed(call("substitute", json!({"pattern": "(", "replacement": "", "text": ""})));
    assert_eq!(failure.code(), "input_invalid");
    let page = call("count_page", json!({"url": upstream.url("/text/hello")})).unwrap();
    assert_eq!(page["characters"], 5);
    let failure = failed(call("count_page", json!({"url": upstream.url("/status/503")})));
    assert_eq!(failure.details()["status"], 503);
    let failure = failed(call("count_page", json!({"url": "https://elsewhere.example/"})));
    envelope::check(&failure, envelope::denied("host_not_granted"));
    let failure = failed(call("open_socket", json!({})));
    envelope::check(&failure, envelope::denied("capability_unavailable"));
    assert!(failure.details()["requested"].as_str().unwrap().starts_with("import:wasi:sockets/"));
}
