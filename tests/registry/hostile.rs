//! Registries that lie, hang, or lead elsewhere: nothing of it is kept, and no credential leaves.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cofferdam_model::trust::ENVELOPE_BYTES;
use cofferdam_test_support::services::Authority;
use cofferdam_test_support::{Signer, process};
use serde_json::{Value, json};

use super::liar::{Answer, Body, INDEX, Liar, MANIFEST, Shelf, blob_path, package_manifest};
use super::{Desk, NAME, digest, release};
use crate::disk::with_mount;

const TAG: &str = "/v2/acme/quiet/manifests/1.0.0";

/// A desk, its package, and a registry with it and its signature.
fn scene() -> (Desk, Vec<u8>, Liar) {
    let desk = Desk::new();
    let package = desk.package("1.0.0");
    let liar = Liar::start(Shelf::with_package(&package, &[desk.signer.sign(&package)]));
    desk.dir("out");
    (desk, package, liar)
}

/// `pull` ends with `code` and says `words`, and nothing is written.
#[track_caller]
fn refused(desk: &Desk, liar: &Liar, options: &str, code: u8, words: &str) {
    let line = format!("pull {} -o out{options}", liar.reference());
    desk.run(&line).fails(code).said(words);
    desk.assert_empty("out");
}

#[test]
fn a_moving_tag_is_resolved_once() {
    let (desk, package, liar) = scene();
    let other = release("1.0.1");
    liar.change(|shelf| {
        let manifest = shelf.put_package(&other, &[desk.signer.sign(&other)]);
        shelf.then(TAG, Answer::ok(MANIFEST, manifest));
    });
    let installed = desk.installs(&format!("{} --format json", liar.reference())).json();
    assert_eq!((&installed["version"], &installed["hash"]), (&json!("1.0.0"), &json!(digest(&package))));
    let asked = liar.take_asked();
    assert_eq!(asked.iter().filter(|asked| asked.path == TAG).count(), 1, "{asked:?}");
    // The next look sees the other package; the pinned reference the first.
    let reference = liar.reference();
    assert_eq!(desk.run(&format!("inspect {reference} --format json")).json()["version"], "1.0.1");
    let manifest = package_manifest(&package, &json!({})).to_string();
    let pinned = format!("{reference}@{}", digest(manifest.as_bytes()));
    let looked = desk.run(&format!("inspect {pinned} --format json")).json();
    assert_eq!((&looked["version"], &looked["hash"]), (&json!("1.0.0"), &json!(digest(&package))));
}

#[test]
fn a_manifest_other_than_its_digest_is_refused() {
    let (desk, package, liar) = scene();
    let manifest = package_manifest(&package, &json!({})).to_string();
    let other = package_manifest(&package, &json!({"annotations": {"a": "b"}})).to_string();
    let path = format!("/v2/acme/quiet/manifests/{}", digest(manifest.as_bytes()));
    liar.change(|shelf| shelf.put(&path, Answer::ok(MANIFEST, other)));
    let pinned = format!("{}@{}", liar.reference(), digest(manifest.as_bytes()));
    desk.run(&format!("pull {pinned} -o out")).fails(91).said("other bytes");
    desk.assert_empty("out");
}

#[test]
fn other_artifacts_are_refused() {
    let (desk, package, liar) = scene();
    let layer = |media_type: &str| json!({"mediaType": media_type, "digest": digest(&package), "size": package.len()});
    let wasm = layer("application/wasm");
    let config = |media_type: &str| json!({"mediaType": media_type, "digest": digest(b"{}"), "size": 2});
    let cases: [(Value, &str, &str); 9] = [
        (json!({"layers": [wasm, wasm]}), MANIFEST, "2 layers"),
        (json!({"layers": []}), MANIFEST, "0 layers"),
        (json!({"layers": [layer("application/vnd.oci.image.layer.v1.tar+gzip")]}), MANIFEST, "tar+gzip"),
        (
            json!({"layers": [layer("application/vnd.wasm.content.layer.v1+wasm")]}),
            MANIFEST,
            "content.layer.v1",
        ),
        (json!({"config": config("application/vnd.oci.image.config.v1+json")}), MANIFEST, "its config"),
        (json!({"mediaType": INDEX, "manifests": []}), INDEX, "a list of manifests"),
        (
            json!({"mediaType": "application/vnd.docker.distribution.manifest.list.v2+json", "manifests": []}),
            INDEX,
            "a list of manifests",
        ),
        (
            json!({"mediaType": "application/vnd.docker.distribution.manifest.v2+json"}),
            MANIFEST,
            "it is of the type",
        ),
        (json!({"schemaVersion": 1}), MANIFEST, "it is of the type"),
    ];
    for (change, content_type, words) in cases {
        let manifest = package_manifest(&package, &change).to_string();
        liar.change(|shelf| shelf.put(TAG, Answer::ok(content_type, manifest)));
        refused(&desk, &liar, "", 91, words);
    }
    for (body, words) in
        [("", "cannot be read"), ("[]", "cannot be read"), ("{\"schemaVersion\":2}", "cannot be read")]
    {
        liar.change(|shelf| shelf.put(TAG, Answer::ok(MANIFEST, body)));
        refused(&desk, &liar, "", 91, words);
    }
}

#[test]
fn a_key_set_is_imported_from_a_registry() {
    const KEY_SET: &str = "application/vnd.cofferdam.key-set.v1+json";
    let (desk, _, liar) = scene();
    let key = desk.run("key generate --out firm.key --format json").json();
    desk.run("key export firm.key --publisher github://firm/*").ok();
    let set = fs::read(desk.path("keys.json")).unwrap();
    let import = format!("trust import {} --fingerprint {}", liar.reference(), digest(&set));
    let before = fs::read(desk.path("keyring.toml")).unwrap();
    let serve = |media_type: &str, size: usize, blob: &[u8]| {
        let layer = json!({"mediaType": media_type, "digest": digest(&set), "size": size});
        let config =
            json!({"mediaType": "application/vnd.oci.empty.v1+json", "digest": digest(b"{}"), "size": 2});
        let change = json!({"config": config, "layers": [layer]});
        let manifest = package_manifest(&set, &change).to_string();
        liar.change(|shelf| {
            shelf.put(TAG, Answer::ok(MANIFEST, manifest));
            shelf.put(&blob_path(&set), Answer::ok("application/octet-stream", blob));
        });
    };
    desk.run(&import).fails(91).said("is not a key set");
    serve("application/wasm", set.len(), &set);
    desk.run(&import).fails(91).said(KEY_SET);
    serve(KEY_SET, 65_537, &set);
    desk.run(&import).fails(91).said("at most 65536");
    serve(KEY_SET, set.len(), &vec![b' '; set.len()]);
    desk.run(&import).fails(91).said("other bytes");
    serve(KEY_SET, set.len(), &set);
    desk.run(&format!("trust import {}", liar.reference())).fails(65).said("--fingerprint");
    desk.run(&import.replace(&digest(&set), &digest(b""))).fails(65).said("another document");
    desk.run("trust import oci://localhost").fails(65).said("no repository");
    desk.run("trust import keys.json --plain-http localhost:1").fails(65).said("no effect");
    assert_eq!(fs::read(desk.path("keyring.toml")).unwrap(), before);
    let imported = desk.run(&format!("{import} --format json")).json();
    assert_eq!((&imported["source"], &imported["keys"][0]["id"]), (&json!(liar.reference()), &key["key_id"]));
    assert!(fs::read_to_string(desk.path("keyring.toml")).unwrap().contains(&liar.reference()));
}

#[test]
fn a_layer_of_another_digest_is_refused() {
    let (desk, package, liar) = scene();
    let mut flipped = package.clone();
    *flipped.last_mut().unwrap() ^= 1;
    let longer = [&*package, b"x"].concat();
    let shorter = &package[..package.len() - 1];
    let cases = [
        (&*flipped, "other bytes"),
        (&longer[..], "more bytes"),
        (shorter, "other bytes"),
        (&[][..], "other bytes"),
    ];
    for (bytes, words) in cases {
        liar.change(|shelf| shelf.put(&blob_path(&package), Answer::ok("application/wasm", bytes)));
        refused(&desk, &liar, "", 91, words);
    }
    // A header with the digest changes nothing.
    let claims = vec![("docker-content-digest", digest(&flipped))];
    liar.change(|shelf| shelf.put(&blob_path(&package), Answer::new(200, claims, flipped)));
    refused(&desk, &liar, "", 91, "other bytes");
}

#[test]
fn a_compressed_layer_is_refused() {
    let (desk, package, liar) = scene();
    // A client that unpacked it would find the package.
    let gzip = Command::new("gzip").arg("-c").arg(desk.path("quiet-1.0.0.wasm")).output().unwrap();
    assert!(gzip.status.success());
    let gzip = gzip.stdout;
    let headers = vec![("content-encoding", "gzip".to_owned())];
    liar.change(|shelf| shelf.put(&blob_path(&package), Answer::new(200, headers, gzip)));
    refused(&desk, &liar, "", 91, "other bytes");
}

#[test]
fn endless_answers_are_cut() {
    let (desk, package, liar) = scene();
    let endless = Answer::ok("application/wasm", "").with_body(Body::Endless);
    let referrers = |package: &[u8]| {
        let manifest = package_manifest(package, &json!({})).to_string();
        format!("/v2/acme/quiet/referrers/{}", digest(manifest.as_bytes()))
    };
    for path in [blob_path(&package), referrers(&package), TAG.to_owned(), "/v2/".to_owned()] {
        liar.change(|shelf| {
            let challenge =
                vec![("www-authenticate", format!("Bearer realm=\"http://{}/token\"", liar.registry()))];
            match &*path {
                "/v2/" => {
                    shelf.put("/v2/", Answer::new(401, challenge, ""));
                    shelf.put("/token", endless.clone());
                }
                path => shelf.put(path, endless.clone()),
            }
        });
        let line = format!("pull {} -o out", liar.reference());
        let mut child = desk.cli.command(&line.split(' ').collect::<Vec<_>>());
        let child = child.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let id = child.id();
        let watch = std::thread::spawn(move || {
            let (mut peak, begun) = (0, Instant::now());
            while let now @ 1.. = process::peak_resident_bytes_of(id) {
                peak = peak.max(now);
                std::thread::sleep(Duration::from_millis(5));
                assert!(begun.elapsed() < Duration::from_secs(60));
            }
            peak
        });
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(91), "{path}: {said}");
        assert!(said.contains("more bytes than were asked for"), "{path}: {said}");
        let peak = watch.join().unwrap();
        assert!(peak < 200 << 20, "{path}: {peak} bytes");
        desk.assert_empty("out");
    }
}

#[test]
fn a_slow_registry_ends_at_the_time_limit() {
    let (desk, package, liar) = scene();
    let slow = Answer::ok("application/wasm", "").with_body(Body::Slow(package.clone()));
    liar.change(|shelf| shelf.put(&blob_path(&package), slow));
    let begun = Instant::now();
    refused(&desk, &liar, " --time-limit 1s", 90, "--time-limit");
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_config_that_lies_is_not_believed() {
    let (desk, package, liar) = scene();
    let lie = json!({"architecture": "wasm", "os": "wasip2", "layerDigests": [digest(b"other")],
        "component": {"imports": [], "exports": ["none"]}, "author": "github://acme/other@9.9.9"});
    let lie = lie.to_string();
    let config = json!({"mediaType": "application/vnd.wasm.config.v0+json", "digest": digest(lie.as_bytes()),
        "size": lie.len()});
    let annotations = json!({"org.opencontainers.image.version": "9.9.9"});
    let change = json!({"config": config, "annotations": annotations});
    let manifest = package_manifest(&package, &change).to_string();
    let signature = desk.signer.sign(&package);
    liar.change(|shelf| {
        shelf.put(TAG, Answer::ok(MANIFEST, &*manifest));
        shelf.put_blob(lie.as_bytes());
        let entry = shelf.put_signature(&signature, manifest.as_bytes());
        shelf.put_referrers(manifest.as_bytes(), &[entry]);
    });
    let installed = desk.installs(&format!("{} --format json", liar.reference())).json();
    assert_eq!((&installed["version"], &installed["hash"]), (&json!("1.0.0"), &json!(digest(&package))));
}

#[test]
fn private_addresses_are_not_connected_to() {
    let (desk, package, liar) = scene();
    let other = Liar::start(Shelf::with_package(&package, &[]));
    for (target, words) in [
        ("https://10.1.2.3/blob".to_owned(), "private network address"),
        ("https://169.254.169.254/latest/meta-data".to_owned(), "cloud metadata address"),
        ("http://[::ffff:169.254.169.254]/x".to_owned(), "cloud metadata address"),
        (format!("http://127.0.0.1:{}/x", other.port()), "loopback address"),
        (format!("http://localhost:{}/x", other.port()), "loopback address"),
        ("http://2130706433/x".to_owned(), "loopback address"),
    ] {
        for path in [blob_path(&package), TAG.to_owned()] {
            let (shelf_path, target) = (path.clone(), target.clone());
            liar.change(|shelf| shelf.put(&shelf_path, Answer::redirect(&target)));
            refused(&desk, &liar, "", 91, words);
            liar.change(|shelf| *shelf = Shelf::with_package(&package, &[desk.signer.sign(&package)]));
        }
        // Token services obey the same rule.
        let challenge = vec![("www-authenticate", format!("Bearer realm=\"{target}\",service=\"x\""))];
        liar.change(|shelf| shelf.put("/v2/", Answer::new(401, challenge, "")));
        refused(&desk, &liar, "", 91, words);
        liar.change(|shelf| *shelf = Shelf::with_package(&package, &[desk.signer.sign(&package)]));
    }
    assert!(other.take_asked().is_empty());
    for (host, advice) in [
        ("10.1.2.3", "--allow-private 10.1.2.3:443`"),
        ("100.64.0.1", "--allow-private 100.64.0.1:443=100.64.0.1`"),
        ("169.254.169.254", "Do not use this source"),
    ] {
        let ran = desk.run(&format!("tags oci://{host}/acme/quiet")).fails(91);
        assert_eq!(
            ran.stderr.contains("--allow-private"),
            advice.contains("--allow-private"),
            "{}",
            ran.stderr
        );
        ran.said(advice);
    }
}

#[test]
fn a_redirect_to_another_host_gets_no_credentials() {
    let (desk, package, liar) = scene();
    let other = Liar::start(Shelf::with_package(&package, &[]));
    let place = format!("127.0.0.1:{}", other.port());
    liar.change(|shelf| {
        shelf.put("/v2/", Answer::new(401, vec![("www-authenticate", "Basic realm=\"x\"".to_owned())], ""));
        shelf.put(&blob_path(&package), Answer::redirect(&format!("http://{place}{}", blob_path(&package))));
    });
    desk.log_in(&liar.registry(), "ada:s3cret");
    refused(&desk, &liar, &format!(" --allow-private {place}=127.0.0.1"), 91, "without TLS");
    assert!(other.take_asked().is_empty());
    let options = format!("--allow-private {place}=127.0.0.1 --plain-http {place}");
    desk.run(&format!("pull {} -o out {options}", liar.reference())).ok();
    let asked = liar.take_asked();
    assert!(
        asked.iter().any(|asked| asked.authorization.is_some()),
        "the registry itself gets them: {asked:?}"
    );
    let elsewhere = other.take_asked();
    assert_eq!(elsewhere.len(), 1, "{elsewhere:?}");
    assert_eq!(elsewhere[0].authorization, None);
}

#[test]
fn no_redirect_leads_from_tls_to_plain_http() {
    let desk = Desk::new();
    let package = desk.package("1.0.0");
    let authority = Authority::new();
    fs::write(desk.path("ca.pem"), authority.pem()).unwrap();
    desk.dir("out");
    let plain = Liar::start(Shelf::with_package(&package, &[]));
    let liar = Liar::start_tls(Shelf::with_package(&package, &[desk.signer.sign(&package)]), &authority);
    desk.log_in(&liar.registry(), "ada:s3cret");
    let there = format!("http://localhost:{}{}", plain.port(), blob_path(&package));
    liar.change(|shelf| shelf.put(&blob_path(&package), Answer::redirect(&there)));
    let options = format!(" --ca-file ca.pem --allow-private localhost:{}", plain.port());
    refused(&desk, &liar, &options, 91, "without TLS");
    // Nor does a token service get the password over it.
    let challenge = vec![("www-authenticate", format!("Bearer realm=\"{there}\",service=\"x\""))];
    liar.change(|shelf| shelf.put("/v2/", Answer::new(401, challenge, "")));
    refused(&desk, &liar, &options, 91, "without TLS");
    assert!(plain.take_asked().is_empty());
    refused(&desk, &liar, "", 90, "failed");
}

#[test]
fn a_broken_token_is_an_error() {
    let (desk, _, liar) = scene();
    let challenge = vec![("www-authenticate", format!("Bearer realm=\"http://{}/token\"", liar.registry()))];
    liar.change(|shelf| shelf.put("/v2/", Answer::new(401, challenge, "")));
    for (token, code, words) in [
        (Answer::ok("application/json", "{\"token\": \"a\\nb\"}"), 91, "could not be processed"),
        (Answer::ok("application/json", "{}"), 91, "not acceptable"),
        (Answer::ok("text/html", "<p>"), 91, "not acceptable"),
        (Answer::new(403, Vec::new(), "{\"details\": \"no\"}"), 90, "refused a token"),
    ] {
        liar.change(|shelf| shelf.put("/token", token));
        let ran = desk.run(&format!("pull {} -o out", liar.reference())).fails(code);
        assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
        ran.said(words);
    }
}

#[test]
fn a_broken_upload_location_is_an_error() {
    let (desk, _, liar) = scene();
    for (location, code, words) in [
        ("uploads/x", 91, "could not be processed"),
        ("https://10.1.2.3/upload", 91, "private network address"),
        ("http://localhost:1/upload", 91, "loopback address"),
    ] {
        liar.change(|shelf| {
            *shelf = Shelf::default();
            shelf.put("/v2/", Answer::ok("application/json", "{}"));
            let headers = vec![("location", location.to_owned())];
            shelf.put("/v2/acme/quiet/blobs/uploads/", Answer::new(202, headers, ""));
        });
        let ran = desk.run(&format!("publish quiet-1.0.0.wasm {}", liar.reference())).fails(code);
        assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
        ran.said(words);
    }
}

#[test]
fn a_signature_by_an_untrusted_key_is_refused() {
    let (desk, package, liar) = scene();
    let stranger = Signer::new();
    liar.change(|shelf| drop(shelf.put_package(&package, &[stranger.sign(&package)])));
    let install = format!("install {}", liar.reference());
    desk.run(&install).fails(81).said("not in the keyring");
    refused(&desk, &liar, "", 81, "not in the keyring");
    liar.change(|shelf| drop(shelf.put_package(&package, &[])));
    desk.run(&install).fails(81).said("no signature");
    refused(&desk, &liar, "", 81, "no signature");
    assert_eq!(desk.run("list --format json").json(), json!([]));
    desk.run(&format!("pull {} -o out --allow-unsigned", liar.reference())).ok();
}

#[test]
fn the_trusted_signature_is_found_among_a_hundred() {
    let (desk, package, liar) = scene();
    let stranger = Signer::new();
    let mut signatures: Vec<_> = (0..50).map(|_| stranger.sign(&package)).collect();
    // Signatures of the trusted key about other packages, and no signatures at all.
    signatures.extend((0..25).map(|patch| desk.signer.sign(&release(&format!("2.0.{patch}")))));
    signatures.extend((0..24).map(|number| format!("no signature {number}").into_bytes()));
    let manifest = package_manifest(&package, &json!({})).to_string().into_bytes();
    liar.change(|shelf| {
        let mut entries: Vec<_> =
            signatures.iter().map(|envelope| shelf.put_signature(envelope, &manifest)).collect();
        entries.push(json!({"mediaType": MANIFEST, "digest": "sha512:0", "size": 1}));
        entries.push(shelf.put_signature(&desk.signer.sign(&package), b"another subject"));
        shelf.put_referrers(&manifest, &entries);
    });
    let install = format!("install {}", liar.reference());
    desk.run(&install).fails(81).said("not in the keyring");
    liar.change(|shelf| {
        let mut entries: Vec<_> =
            signatures.iter().map(|envelope| shelf.put_signature(envelope, &manifest)).collect();
        entries.push(shelf.put_signature(&desk.signer.sign(&package), &manifest));
        shelf.put_referrers(&manifest, &entries);
    });
    desk.installs(&liar.reference()).ok();
    desk.run(&format!("call {NAME} run")).ok();
}

#[test]
fn a_hash_pin_holds_for_references() {
    let (desk, package, liar) = scene();
    let other = digest(b"other");
    desk.run(&format!("install {} --hash {other}", liar.reference())).fails(80).said(&other);
    refused(&desk, &liar, &format!(" --hash {other}"), 80, "hash");
    desk.run(&format!("pull {} -o out --hash {}", liar.reference(), digest(&package))).ok();
}

#[test]
fn a_killed_pull_leaves_nothing() {
    let (desk, package, liar) = scene();
    let slow = Answer::ok("application/wasm", "").with_body(Body::Slow(package.clone()));
    liar.change(|shelf| shelf.put(&blob_path(&package), slow));
    let line = format!("pull {} -o out", liar.reference());
    let mut command = desk.cli.command(&line.split(' ').collect::<Vec<_>>());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    while !liar.take_asked().iter().any(|asked| asked.path == blob_path(&package)) {
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    desk.assert_empty("out");
}

#[test]
fn a_pull_killed_between_its_files_leaves_no_package() {
    let (desk, package, liar) = scene();
    let line = format!("pull {} -o out", liar.reference());
    let mut command = desk.cli.command(&line.split(' ').collect::<Vec<_>>());
    let killed = command.env("COFFERDAM_FAILPOINTS", "pull.signed=kill").output().unwrap();
    assert_eq!(killed.status.signal(), Some(9), "{killed:?}");
    let left: Vec<_> = fs::read_dir(desk.path("out")).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(left, ["quiet-1.0.0.wasm.dsse.json"]);
    desk.run(&line).ok();
    assert_eq!(fs::read(desk.path("out/quiet-1.0.0.wasm")).unwrap(), package);
}

#[test]
fn a_full_disk_leaves_no_package_without_signature() {
    let (desk, _, liar) = scene();
    let script = format!(
        r#"mkdir "$H/full"; mount -t tmpfs -o size=4k none "$H/full"
        "$C" pull {} -o "$H/full" --format json; echo "code $?"; ls "$H/full""#,
        liar.reference()
    );
    let Some(output) = with_mount(desk.home.path(), "64m", &script) else { return };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let left = said.split("code 74\n").nth(1).unwrap_or_else(|| panic!("{output:?}"));
    assert!(left.lines().all(|name| name.ends_with(".dsse.json")), "{said}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("output_unwritable"), "{output:?}");
}

#[test]
fn a_pulled_file_replaces_no_other() {
    let (desk, package, liar) = scene();
    let line = format!("pull {} -o out --format json", liar.reference());
    let pulled = desk.run(&line).json();
    assert_eq!(pulled["hash"], digest(&package));
    assert_eq!(fs::read(desk.path("out/quiet-1.0.0.wasm")).unwrap(), package);
    desk.installs("out/quiet-1.0.0.wasm").ok();
    desk.run(&line).ok();
    fs::write(desk.path("out/quiet-1.0.0.wasm"), "another").unwrap();
    desk.run(&format!("pull {} -o out", liar.reference())).fails(67).said("another package");
    assert_eq!(fs::read(desk.path("out/quiet-1.0.0.wasm")).unwrap(), b"another");
    fs::remove_file(desk.path("out/quiet-1.0.0.wasm")).unwrap();
    fs::write(desk.path("out/quiet-1.0.0.wasm.dsse.json"), "another").unwrap();
    desk.run(&format!("pull {} -o out", liar.reference())).fails(67).said("another signature");
    assert_eq!(fs::read(desk.path("out/quiet-1.0.0.wasm.dsse.json")).unwrap(), b"another");
    assert!(!desk.path("out/quiet-1.0.0.wasm").exists());
}

#[test]
fn the_longest_signature_is_fetched() {
    let (desk, package, liar) = scene();
    let padded = |length: usize| {
        let mut signature = desk.signer.sign(&package);
        signature.resize(length, b' ');
        signature
    };
    liar.change(|shelf| drop(shelf.put_package(&package, &[padded(ENVELOPE_BYTES + 1)])));
    refused(&desk, &liar, "", 91, "at most 262144");
    liar.change(|shelf| drop(shelf.put_package(&package, &[padded(ENVELOPE_BYTES)])));
    desk.run(&format!("pull {} -o out", liar.reference())).ok();
    fs::write(desk.path("long.json"), padded(ENVELOPE_BYTES + 1)).unwrap();
    let publish = format!("publish quiet-1.0.0.wasm {} --signature long.json", liar.reference());
    desk.run(&publish).fails(65).said("256 KiB");
}

#[test]
fn a_machine_without_authorities_is_an_error() {
    let (desk, _, liar) = scene();
    fs::write(desk.path("none.pem"), "").unwrap();
    fs::write(desk.path("ca.pem"), Authority::new().pem()).unwrap();
    for line in [
        format!("tags {}", liar.reference()),
        format!("tags {} --ca-file ca.pem", liar.reference()),
        "inspect https://localhost:1/quiet.wasm".to_owned(),
    ] {
        let mut command = desk.cli.command(&line.split(' ').collect::<Vec<_>>());
        command.env("SSL_CERT_FILE", desk.path("none.pem")).env("SSL_CERT_DIR", desk.path("none"));
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{line}: {said}");
        assert!(said.contains("ca-certificates") && !said.contains("panicked"), "{line}: {said}");
    }
}
