//! Sets of connectors whose sources are repositories: the tags of a real registry are the versions.

use std::fs;

use cofferdam_test_support::Home;
use serde_json::{Value, json};

use super::server::{Access, Registry, tools};
use super::{Desk, NAME, digest, release};
use crate::COFFERDAM;

/// Publishes a release.
fn publish(desk: &Desk, registry: &Registry, version: &str) {
    desk.package(version);
    desk.run(&format!("publish quiet-{version}.wasm {}", registry.reference(&format!(":{version}")))).ok();
}

fn wants(desk: &Desk, registry: &Registry, version: &str) {
    let source = registry.reference("");
    let set = format!("[[connector]]\nname = \"{NAME}\"\nversion = \"{version}\"\nsource = \"{source}\"\n");
    fs::write(desk.path("connectors.toml"), set).unwrap();
}

#[test]
fn a_set_takes_the_newest_tag_that_fits() {
    let Some(tools) = tools() else { return };
    let registry = Registry::start(&tools, Access::Open, None);
    let desk = Desk::new();
    for version in ["1.0.0", "1.9.0", "1.10.0", "2.0.0", "3.0.0-rc.1"] {
        publish(&desk, &registry, version);
    }
    wants(&desk, &registry, "1");
    let synced = desk.run(&format!("sync --format json --accept {}", digest(&release("1.10.0")))).json();
    assert_eq!((&synced[0]["version"], &synced[0]["effect"]), (&json!("1.10.0"), &json!("installed")));
    let lock = fs::read_to_string(desk.path("connectors.lock")).unwrap();
    assert!(lock.contains(&registry.reference(":1.10.0@sha256:")), "{lock}");
    publish(&desk, &registry, "1.11.0");
    let outdated = desk.run("outdated --format json").json();
    let expected = json!([{"name": NAME, "locked": "1.10.0", "allowed": "1.11.0", "newest": "2.0.0"}]);
    assert_eq!(outdated, expected, "a pre-release is not offered");

    // Another machine gets the locked bytes, although the tag moved.
    let move_tag = format!("publish quiet-1.11.0.wasm {} --move-tag", registry.reference(":1.10.0"));
    desk.run(&move_tag).ok();
    let other = Desk { home: Home::new(COFFERDAM), ..Desk::new() };
    let cli = cofferdam_test_support::Cli::new(COFFERDAM, other.home.path()).in_dir(desk.home.path());
    other.home.trust(&desk.signer.public(), "github://acme/*");
    let synced: Value = cli.run(&["sync", "--locked", "--format", "json"]).json();
    assert_eq!(synced[0]["hash"], digest(&release("1.10.0")));

    let updated = desk.run("update --format json").json();
    assert_eq!(updated[0]["version"], "1.11.0", "it asks for no more");
    wants(&desk, &registry, "9");
    desk.run("sync").fails(66).said("its newest versions are 3.0.0-rc.1, 2.0.0, 1.11.0");
}
