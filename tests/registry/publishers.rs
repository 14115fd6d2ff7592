//! Two publishers at the same time, each on the other's tag or list.

use serde_json::{Value, json};

use super::liar::{Answer, Body, INDEX, Liar, MANIFEST, SIGNATURE, Shelf, package_manifest};
use super::{Desk, digest, release};

const TAG: &str = "/v2/acme/quiet/manifests/1.0.0";

/// A registry without the package that takes uploads.
fn scene() -> (Desk, Vec<u8>, Liar) {
    let desk = Desk::new();
    let package = desk.package("1.0.0");
    let liar = Liar::start(Shelf::default());
    let registry = liar.registry();
    liar.change(|shelf| {
        shelf.put("/v2/", Answer::ok("application/json", "{}"));
        shelf.take_uploads(&registry);
    });
    (desk, package, liar)
}

#[test]
fn a_tag_taken_during_the_upload_is_not_replaced() {
    let (desk, _, liar) = scene();
    let other = release("1.0.1");
    std::fs::remove_file(desk.path("quiet-1.0.0.wasm.dsse.json")).unwrap();
    let publish = format!("publish quiet-1.0.0.wasm {} --allow-unsigned", liar.reference());
    for options in ["", " --move-tag"] {
        liar.change(|shelf| {
            shelf.put(TAG, Answer::new(404, Vec::new(), ""));
            shelf.then(TAG, Answer::ok(MANIFEST, package_manifest(&other, &json!({})).to_string()));
        });
        desk.run(&format!("{publish}{options}")).fails(67).said("moved meanwhile");
        let asked = liar.take_asked();
        assert!(asked.iter().any(|asked| asked.method == "PUT"), "the package was pushed: {asked:?}");
        assert!(!asked.iter().any(|asked| asked.method == "PUT" && asked.path == TAG), "{asked:?}");
    }
}

#[test]
fn a_replaced_list_of_referrers_is_put_again() {
    let (desk, package, liar) = scene();
    let manifest = package_manifest(&package, &json!({})).to_string();
    let list = format!("/v2/acme/quiet/manifests/{}", digest(manifest.as_bytes()).replace(':', "-"));
    let entry = |name: &str| {
        let digest = digest(name.as_bytes());
        json!({"mediaType": MANIFEST, "artifactType": SIGNATURE, "digest": digest, "size": 1})
    };
    let index = |entries: &[Value]| {
        Answer::ok(INDEX, json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).to_string())
    };
    liar.change(|shelf| {
        shelf.put(TAG, Answer::ok(MANIFEST, &*manifest));
        // The list is looked at before and after the upload, and read. Then another publisher replaces it.
        shelf.put(&list, index(&[entry("early")]));
        shelf.then(&list, index(&[entry("early")]));
        shelf.then(&list, index(&[entry("early")]));
        shelf.then(&list, index(&[entry("late")]));
        shelf.then(&list, Answer::ok(INDEX, "").with_body(Body::LastPut));
    });
    desk.run(&format!("publish quiet-1.0.0.wasm {}", liar.reference())).ok();
    let mut kept = Value::Null;
    liar.change(|shelf| kept = serde_json::from_slice(shelf.last_put(&list)).unwrap());
    let digests: Vec<_> =
        kept["manifests"].as_array().unwrap().iter().map(|entry| entry["digest"].as_str().unwrap()).collect();
    assert_eq!(digests.len(), 3, "{digests:?}");
    assert!(digests.contains(&&*digest(b"early")) && digests.contains(&&*digest(b"late")), "{digests:?}");
}
