//! Every component in `tests/hostile` ends as declared on its second line, and leaves the host unchanged.
//!
//! The files need no SDK and no WebAssembly toolchain. Their head is the whole script:
//! `;; expects: <class> <code> [<trap>]`, and `;; words: <text>` where wasmtime has no type for it.

use cofferdam::{Call, FailureBoundary, FailureClass};
use cofferdam_test_support::{Home, InstallAccepted as _, Signer, connector, log_capture, package};
use serde_json::json;

use crate::COFFERDAM;
use crate::envelope::{self, Expected};
use crate::shared_host::{failed, run};

const CLASSES: [FailureClass; 2] = [FailureClass::ResourceLimitExceeded, FailureClass::ConnectorRuntimeError];

/// Enough time to burn any fuel that is given, and enough fuel to outlast the time, by what is expected.
fn limits(code: &str) -> (Option<u64>, Option<&'static str>) {
    if code == "wall_time" { (Some(200_000_000_000), Some("300ms")) } else { (Some(50_000_000), Some("60s")) }
}

#[test]
fn every_hostile_component_ends_as_it_says() {
    log_capture::catch();
    let home = Home::new(COFFERDAM);
    let signer = Signer::new();
    home.trust(&signer.public(), "local://hostile/*");
    let host = home.host();
    let good = signed(&host, &signer, "quiet", &package::quiet()).unwrap();
    let mut wrong = Vec::new();
    for name in package::hostile_names() {
        let text = package::hostile_text(&name);
        let expects: Vec<&str> = match text.lines().nth(1).and_then(|line| line.strip_prefix(";; expects: "))
        {
            Some(expects) => expects.split(' ').collect(),
            None => panic!("{name}.wat does not say on its second line how it ends"),
        };
        let class = CLASSES.into_iter().find(|class| class.name() == expects[0]);
        let class = class.unwrap_or_else(|| panic!("{name}.wat names no class that a guest can end with"));
        let code: &'static str = Box::leak(expects[1].to_owned().into_boxed_str());
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let reference = signed(&host, &signer, &name, &package::component(&text)).unwrap();
            let (fuel, wall_time) = limits(code);
            let limits = cofferdam_core::limits::LimitRequest::parse(fuel, wall_time, None).unwrap();
            let args =
                if text.contains(r#"(param "text" string)"#) { json!({"text": "x"}) } else { json!({}) };
            let failure = failed(run(host.run(Call::new(reference, "run", args).limits(limits))).outcome);
            envelope::check(
                &failure,
                Expected { class, boundary: FailureBoundary::Sandbox, retriable: false, code },
            );
            if let Some(trap) = expects.get(2) {
                assert_eq!(failure.details()["trap"], *trap);
            }
            // Wasmtime's own message, if the host knows no more than that.
            let words = text.lines().nth(2).and_then(|line| line.strip_prefix(";; words: "));
            let notes = failure.operator_notes().join("; ");
            if let Some(words) = words {
                assert!(notes.contains(&format!("cause: {words}")), "{notes}");
            }
            if class == FailureClass::ResourceLimitExceeded {
                let (configured, used) = (&failure.details()["configured"], &failure.details()["used"]);
                assert!(used.as_u64() >= configured.as_u64(), "{used} of {configured}");
            }
            let record = log_capture::record_of(failure.audit_id().as_str());
            assert_eq!(record.get("code"), Some(code));
            for text in record.fields.values() {
                envelope::printable(&json!(text));
            }
            assert_eq!(
                run(host.call(&good, "run", json!({}))).unwrap(),
                json!(null),
                "the host is as it was"
            );
        }));
        if outcome.is_err() {
            wrong.push(name);
        }
    }
    assert!(wrong.is_empty(), "these did not end as they say: {wrong:?}");
}

/// Installs `tests/hostile/<name>.wat` as `local://hostile/<name>@1.0.0`.
pub(crate) fn installed(
    host: &cofferdam::Host,
    signer: &Signer,
    name: &str,
) -> Result<cofferdam::ConnectorRef, cofferdam::Error> {
    signed(host, signer, name, &package::component(&package::hostile_text(name)))
}

fn signed(
    host: &cofferdam::Host,
    signer: &Signer,
    name: &str,
    component: &[u8],
) -> Result<cofferdam::ConnectorRef, cofferdam::Error> {
    let full = format!("local://hostile/{name}");
    let mut manifest = package::manifest(&full, "1.0.0");
    let http = b"wasi:http/types";
    if component.windows(http.len()).any(|bytes| bytes == http) {
        manifest.push_str("[capabilities.runtime]\nimports = [\"wasi:http/types\"]\n");
    }
    let bytes = package::pack(component, &manifest);
    let signature = signer.sign(&bytes);
    run(host.install_accepted(bytes, Some(signature), Default::default()))?;
    Ok(connector(&format!("{full}@1.0.0")))
}
