//! Packages at web addresses.

use std::fs;

use cofferdam_test_support::services::Authority;

use super::liar::{Answer, Body, Liar, Shelf};
use super::{Desk, digest};

#[test]
fn a_package_is_installed_from_a_web_address() {
    let desk = Desk::new();
    let package = desk.package("1.0.0");
    let (authority, stranger) = (Authority::new(), Authority::new());
    fs::write(desk.path("ca.pem"), authority.pem()).unwrap();
    fs::write(desk.path("other.pem"), stranger.pem()).unwrap();
    desk.dir("out");
    let mut shelf = Shelf::default();
    shelf.put("/quiet.wasm", Answer::ok("application/wasm", &*package));
    let liar = Liar::start_tls(shelf, &authority);
    let reference = format!("https://{}/quiet.wasm", liar.registry());
    let install = format!("install {reference} --ca-file ca.pem");
    desk.run(&install).fails(81).said("no signature");
    liar.change(|shelf| {
        shelf.put("/quiet.wasm.dsse.json", Answer::ok("application/json", desk.signer.sign(&package)));
    });
    desk.run(&format!("install {reference} --ca-file other.pem")).fails(90).said("--ca-file");
    let installed = desk.installs(&format!("{reference} --ca-file ca.pem --format json")).json();
    assert_eq!(installed["hash"], digest(&package));
    let pulled = desk.run(&format!("pull {reference} --ca-file ca.pem -o out --format json")).json();
    assert_eq!(pulled["reference"], reference);
    let inspected = desk.run(&format!("inspect {reference} --ca-file ca.pem --format json")).json();
    assert_eq!(inspected["signature"]["status"], "trusted");
    assert!(liar.take_asked().iter().all(|asked| asked.authorization.is_none()));

    for (answer, code, words) in [
        (Answer::new(404, Vec::new(), ""), 90, "does not have"),
        (Answer::new(500, Vec::new(), ""), 90, "status 500"),
        (Answer::redirect("https://10.1.2.3/x"), 91, "private network"),
        (Answer::redirect("http://localhost:1/x"), 90, "failed"),
        (Answer::ok("application/wasm", "").with_body(Body::Endless), 91, "more than"),
    ] {
        liar.change(|shelf| shelf.put("/quiet.wasm", answer));
        desk.run(&install).fails(code).said(words);
    }
    desk.run("install http://localhost/quiet.wasm").fails(2).said("https://");
    desk.run("install github://acme/quiet").fails(2).said("a connector's name");
}
