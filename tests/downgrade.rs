//! Downgrades: an older version needs permission, is reported, and is never below the minimum in the keyring.

use cofferdam::{Call, Error, HostErrorKind, InstallOptions};
use cofferdam_test_support::{Cli, Home, InstallAccepted as _, Signer, connector, log_capture, package};
use serde_json::{Value, json};

use crate::COFFERDAM;
use crate::envelope::{check, check_host_error, signature};
use crate::shared_host::{failed, run};

const NAME: &str = "github://acme/quiet";

fn quiet(version: &str) -> Vec<u8> {
    package::pack(&package::quiet(), &package::manifest(NAME, version))
}

/// A home that trusts the signer, and the command line over it, with the packages of some versions in it.
fn setup(versions: &[&str]) -> (Home, Signer, Cli) {
    let home = Home::new(COFFERDAM);
    let signer = Signer::new();
    home.trust(&signer.public(), "github://acme/*");
    let cli = Cli::new(COFFERDAM, home.path());
    for version in versions {
        signer.write(home.path().join(format!("{version}.wasm")), &quiet(version));
    }
    (home, signer, cli)
}

#[test]
fn downgrades_need_explicit_permission() {
    log_capture::catch();
    let (home, signer, cli) = setup(&["1.2.0", "1.10.0"]);
    let first = cli.install(&["1.10.0.wasm", "--format", "json"]).json();
    assert_eq!((&first["previous"], &first["downgrade"]), (&Value::Null, &json!(false)));
    for when in ["installed", "removed"] {
        let before = home.snapshot();
        let refused = cli.install(&["1.2.0.wasm"]).fails(67);
        assert!(refused.stderr.contains("--allow-downgrade") && refused.stderr.contains("1.10.0"), "{when}");
        let error = run(home.host().install_accepted(
            quiet("1.2.0"),
            Some(signer.sign(&quiet("1.2.0"))),
            Default::default(),
        ));
        let Err(Error::Host(error)) = error else { panic!("{when}: {error:?}") };
        check_host_error(&error);
        assert_eq!(error.kind(), HostErrorKind::Downgrade, "{when}");
        assert_eq!(home.snapshot(), before, "{when}");
        if when == "installed" {
            cli.run(&["remove", &format!("{NAME}@1.10.0")]).ok();
        }
    }
    let allowed = cli.install(&["1.2.0.wasm", "--allow-downgrade"]);
    assert!(allowed.stderr.contains("it is a downgrade, from 1.10.0 to 1.2.0"), "{}", allowed.stderr);
    assert!(allowed.ok().contains("1.10.0 -> 1.2.0"));
    cli.run(&["call", &format!("{NAME}@1.2.0"), "run"]).ok();
    // It is logged, by the library as well.
    let again = quiet("1.3.0");
    let options = InstallOptions::default().allow_downgrade();
    let installed =
        run(home.host().install_accepted(again.clone(), Some(signer.sign(&again)), options)).unwrap();
    assert!(installed.downgrade, "{installed:?}");
    let id = installed.audit_id.as_str();
    let record = log_capture::records(|record| record.get("audit_id") == Some(id)).pop().unwrap();
    assert_eq!((record.get("previous"), record.get("downgrade")), (Some("1.10.0"), Some("true")));
}

#[test]
fn a_large_version_jump_is_shown() {
    let (_home, _, cli) = setup(&["1.2.0", "999999.0.0"]);
    cli.install(&["1.2.0.wasm"]).ok();
    assert!(cli.install(&["999999.0.0.wasm"]).ok().contains("1.2.0 -> 999999.0.0"));
    let again = cli.install(&["999999.0.0.wasm", "--format", "json"]).json();
    assert_eq!((&again["already_installed"], &again["downgrade"]), (&json!(true), &json!(false)));
}

#[test]
fn versions_below_the_minimum_are_refused() {
    let (home, signer, cli) = setup(&["1.2.0", "1.4.0"]);
    cli.install(&["1.2.0.wasm"]).ok();
    let warm = home.host();
    let reference = connector(&format!("{NAME}@1.2.0"));
    run(warm.call(&reference, "run", json!({}))).unwrap();

    let set = cli.run(&["trust", "floor", NAME, "1.3.0", "--format", "json"]).json();
    assert_eq!((&set["change"], &set["floor"]["version"]), (&json!("set"), &json!("1.3.0")));
    for host in [&warm, &home.host()] {
        let failure = failed(run(host.call(&reference, "run", json!({}))));
        check(&failure, signature("below_floor"));
        assert!(failure.message().contains("1.3.0"), "{failure}");
        let unsigned = Call::new(reference.clone(), "run", json!({})).allow_unsigned();
        check(&failed(run(host.run(unsigned)).outcome), signature("below_floor"));
    }
    cli.run(&["remove", &format!("{NAME}@1.2.0")]).ok();
    let before = home.snapshot();
    for options in [InstallOptions::default().allow_downgrade(), InstallOptions::default().allow_unsigned()] {
        for signed in [Some(signer.sign(&quiet("1.2.0"))), None] {
            let error = run(home.host().install_accepted(quiet("1.2.0"), signed.clone(), options.clone()))
                .unwrap_err();
            let code = error.failure().unwrap().code().to_owned();
            assert!(code == "below_floor" || (signed.is_none() && code == "unsigned"), "{code}");
        }
    }
    assert_eq!(home.snapshot(), before);
    cli.install(&["1.4.0.wasm"]).ok();
    cli.run(&["call", &format!("{NAME}@1.4.0"), "run"]).ok();

    assert!(cli.run(&["trust", "floor"]).ok().contains("1.3.0"));
    assert!(cli.run(&["trust", "floor", NAME, "1.1.0"]).ok().contains("lowered"));
    assert!(cli.run(&["trust", "floor", NAME, "--remove"]).ok().contains("removed"));
    cli.run(&["trust", "floor", NAME]).fails(65).said("trust floor");
    cli.run(&["trust", "floor", NAME, "1.x"]).fails(2).said("exact version");
    cli.run(&["trust", "floor", "github://acme/*", "1.0.0"]).fails(2).said("connector name");
    cli.run(&["trust", "floor"]).said("No connector has a floor");
    assert!(home.keyring().load().unwrap().entries().len() == 1, "the keys are still there");
}
