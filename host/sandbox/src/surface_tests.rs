//! The host functions that a guest can reach, found by trying, and compared with `tests/surface.txt`.
//!
//! The linker does not list its contents. So every function that the runtime's crates know, and every one of
//! our contract, is imported by a component of its own, and the ones that link are the surface. The functions
//! are read from the crates' own WIT, so that a new version of the crates cannot add one that the test does
//! not try.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use cofferdam_model::package::{ConnectorDocs, ImportDeclaration, ImportStatus, embed, verdicts};
use wasmtime::component::Component;
use wit_parser::{InterfaceId, Resolve};

#[path = "../../model/src/package/fixture_tests.rs"]
#[allow(dead_code, reason = "the package's own tests use the rest")]
mod fixture;

use super::engine;

const COMMITTED: &str = "../../tests/surface.txt";

const HEAD: &str = "\
# The host functions that a guest can reach, as `interface function`; after them, whether every component may
# import the interface (plumbing) or its manifest has to name it (declared). Found by trying them all:
# `COFFERDAM_BLESS=1 cargo test -p cofferdam-sandbox surface` writes this file anew. A line more is a wider attack surface.
";

/// A function of an interface, and whether a component that imports it links.
struct Probed {
    interface: String,
    function: String,
    links: Result<(), String>,
}

#[test]
fn the_guest_surface_matches_the_committed_list() {
    let probed = probe_everything();
    let reachable: BTreeSet<String> = probed
        .iter()
        .filter(|it| it.links.is_ok())
        .map(|Probed { interface, function, .. }| {
            format!("{} {function}  {}", unversioned(interface), standing(interface).name())
        })
        .collect();
    let text = HEAD.to_owned() + &reachable.into_iter().collect::<Vec<_>>().join("\n") + "\n";
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(COMMITTED);
    if std::env::var_os("COFFERDAM_BLESS").is_some() {
        std::fs::write(&file, &text).unwrap();
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    let lines = |text: &str| text.lines().map(ToOwned::to_owned).collect::<BTreeSet<_>>();
    let (now, before) = (lines(&text), lines(&committed));
    let more: Vec<_> = now.difference(&before).collect();
    let fewer: Vec<_> = before.difference(&now).collect();
    assert!(more.is_empty() && fewer.is_empty(), "reachable and not committed: {more:#?}; gone: {fewer:#?}");
}

#[test]
fn forbidden_interfaces_neither_link_nor_import() {
    let probed = probe_everything();
    let of = |start: &str| probed.iter().filter(|it| it.interface.starts_with(start)).collect::<Vec<_>>();
    for never in [
        "wasi:sockets/tcp@",
        "wasi:sockets/tcp-create-socket@",
        "wasi:sockets/udp@",
        "wasi:sockets/udp-create-socket@",
        "wasi:sockets/ip-name-lookup@",
        "wasi:sockets/instance-network@",
        "wasi:http/incoming-handler@",
        "wasi:cli/run@",
    ] {
        let functions = of(never);
        assert!(!functions.is_empty(), "{never} is not asked about");
        for Probed { interface, function, links } in functions {
            assert!(links.is_err(), "{interface} {function} links");
        }
    }
    for Probed { interface, function, links } in &probed {
        // Every permitted import links, and every import that links is permitted: neither check suffices
        // alone.
        let refused = standing(interface) == ImportStatus::Unavailable;
        if links.is_ok() {
            assert!(!refused, "{interface} {function} links, and no package may import it");
        }
        if let Err(error) = links {
            // Only because it is missing, and for no other reason.
            let absent = error.contains("was not found in the linker");
            assert!(absent, "{interface} {function}: {error}");
        }
    }
    assert!(probed.iter().filter(|it| it.links.is_ok()).count() > 100, "the probes are not what they were");
}

fn unversioned(interface: &str) -> &str {
    interface.split('@').next().unwrap_or(interface)
}

/// Returns the status of the interface under a manifest that names everything that can be named.
fn standing(interface: &str) -> ImportStatus {
    let all = ["wasi:http/outgoing-handler".to_owned(), unversioned(interface).to_owned()];
    verdicts(&[ImportDeclaration::from_query(interface)], &all).remove(0).status()
}

fn probe_everything() -> Vec<Probed> {
    let (engine, _) = engine::new(4, engine::GuestDebugging::Off).unwrap();
    let linker = engine::linker(&engine).unwrap();
    let mut probed = Vec::new();
    for wit in [runtime_wit(), Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit")] {
        let mut resolve = Resolve { all_features: true, ..Resolve::default() };
        resolve.push_dir(&wit).unwrap();
        let interfaces: Vec<InterfaceId> = resolve.interfaces.iter().map(|(id, _)| id).collect();
        for id in interfaces {
            let Some(interface) = resolve.id_of(id) else { continue };
            let functions: Vec<String> = resolve.interfaces[id].functions.keys().cloned().collect();
            for function in functions {
                let bytes = importing(resolve.clone(), id, &interface, &function);
                let links = Component::from_binary(&engine, &bytes)
                    .and_then(|component| linker.instantiate_pre(&component))
                    .map(drop)
                    .map_err(|error| format!("{error:?}"));
                probed.push(Probed { interface: interface.clone(), function, links });
            }
        }
    }
    probed
}

/// Returns a component that imports this one function and the types it needs.
fn importing(mut resolve: Resolve, interface: InterfaceId, name: &str, function: &str) -> Vec<u8> {
    let wit = format!("package probing:surface; world it {{ import {name}; }}");
    let package = resolve.push_str("surface.wit", &wit).unwrap();
    let world = resolve.select_world(&[package], Some("it")).unwrap();
    for (id, other) in resolve.interfaces.iter_mut() {
        other.functions.retain(|name, _| id == interface && name == function);
    }
    fixture::component_of(&resolve, world)
}

/// The WIT of everything that wasmtime-wasi and wasmtime-wasi-http can define, where cargo keeps their sources.
fn runtime_wit() -> PathBuf {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--offline",
            "--locked",
            "--filter-platform",
            "host-tuple",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let http = packages.iter().find(|package| package["name"] == "wasmtime-wasi-http").unwrap();
    Path::new(http["manifest_path"].as_str().unwrap()).with_file_name("wit")
}
