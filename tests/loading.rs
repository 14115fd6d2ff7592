//! Loading a connector: checks before a byte is parsed, and the effects of a slow load on others.

use std::fs;
use std::path::{Path, PathBuf};

use cofferdam::{Compiler, Error, HostErrorKind, InstallOptions};
use cofferdam_test_support::process::write_program;
use cofferdam_test_support::{Home, InstallAccepted as _, Signer, connector, package};
use serde_json::json;

use crate::COFFERDAM;
use crate::bombs::generators;
use crate::cli::desk;
use crate::shared_host::{begin, run};

/// A compile worker that waits while there is a file `hold`, and writes a file `started` when it begins to.
fn worker_that_waits(dir: &Path) -> PathBuf {
    let script = dir.join("worker");
    let text = format!(
        "#!/bin/sh\ncd {dir}\nif [ -e hold ]; then : >started; while [ -e hold ]; do /bin/sleep 0.02; done; fi\n\
         exec {COFFERDAM} \"$@\"\n",
        dir = dir.display()
    );
    write_program(&script, &text);
    script
}

fn install(home: &Home, name: &str) {
    let bytes = package::pack(&package::quiet(), &package::manifest(name, "1.0.0"));
    run(home.host().install_accepted(bytes, None, InstallOptions::default().allow_unsigned())).unwrap();
}

#[test]
fn a_slow_load_holds_no_permit_and_no_queue_slot() {
    let (home, dir) = (Home::new(COFFERDAM), tempfile::tempdir().unwrap());
    let (warm, slow) = ("github://acme/warm", "github://acme/slow");
    install(&home, warm);
    install(&home, slow);
    let compiler = Compiler::child(worker_that_waits(dir.path()));
    // One call at once, and 64 that wait.
    let host = home.builder().compiler(compiler).without_code_cache().concurrency(1).build().unwrap();
    let call = |name: &str| {
        let call = cofferdam::Call::new(connector(&format!("{name}@1.0.0")), "run", json!({}));
        let (host, call) = (host.clone(), call.allow_unsigned());
        async move { host.run(call).await.outcome }
    };
    run(call(warm)).unwrap();
    fs::write(dir.path().join("hold"), "").unwrap();
    let waiting: Vec<_> = (0..80).map(|_| begin(call(slow))).collect();
    while !dir.path().join("started").exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    run(call(warm)).unwrap();
    fs::remove_file(dir.path().join("hold")).unwrap();
    let outcomes: Vec<_> = waiting.into_iter().map(|task| run(task).unwrap()).collect();
    let busy = |outcome: &Result<_, Error>| matches!(outcome, Err(Error::Host(error)) if error.kind() == HostErrorKind::Busy);
    let (refused, done) =
        (outcomes.iter().filter(|it| busy(it)).count(), outcomes.iter().filter(|it| it.is_ok()));
    assert_eq!(refused + done.count(), 80, "{outcomes:?}");
    assert!((1..=16).contains(&refused), "65 of 80 wait for the load: {refused} refused");
}

#[test]
fn a_known_key_s_signature_is_checked_before_parsing() {
    let (home, signer) = (Home::new(COFFERDAM), Signer::new());
    home.trust(&signer.public(), "github://acme/*");
    let manifest = package::manifest("github://acme/quiet", "1.0.0");
    let signature = signer.sign(&package::pack(&package::quiet(), &manifest));
    let other = package::pack_unchecked(&generators::nested_types(100), &manifest);
    // Anything it had to parse would end as a configuration error.
    let nothing = Compiler::child("/bin/false");
    let host = home.builder().compiler(nothing).build().unwrap();
    let outcome = run(host.install_accepted(other.clone(), Some(signature), InstallOptions::default()));
    let Err(Error::Failure(failure)) = outcome else { panic!("{outcome:?}") };
    assert_eq!((failure.class().name(), failure.code()), ("signature_failure", "identity_mismatch"));
    let outcome = run(host.install_accepted(other, None, InstallOptions::default()));
    let Err(Error::Host(error)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(error.kind(), HostErrorKind::Configuration, "unsigned bytes go to the worker: {error}");
}

#[test]
fn every_command_parses_untrusted_bytes_in_the_worker() {
    let desk = desk();
    let manifest = package::manifest("github://acme/bomb", "1.0.0");
    let bomb = generators::many_comparisons(470);
    fs::write(desk.path("bare.wasm"), &bomb).unwrap();
    fs::write(desk.path("bomb.wasm"), package::pack_unchecked(&bomb, &manifest)).unwrap();
    fs::write(desk.path("connector.toml"), &manifest).unwrap();
    desk.run("key generate --out my.key").ok();
    for line in [
        "install bomb.wasm --allow-unsigned",
        "inspect bomb.wasm",
        "why bomb.wasm slack.com:443",
        "sign bomb.wasm --key my.key",
        "pack bare.wasm --manifest connector.toml",
        "pack bomb.wasm --manifest connector.toml --replace",
    ] {
        let refused = desk.run(&format!("{line} --format json")).fails(68).envelope();
        let details = &refused["error"]["details"];
        assert!(details["bound"].is_string(), "`{line}` was not ended by the worker's limits: {refused}");
        assert!(
            refused["error"]["message"].as_str().unwrap().starts_with("Checking this component"),
            "{refused}"
        );
    }
}
