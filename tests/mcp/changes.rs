//! Installing, trusting and pinning while agents are connected.

use std::time::{Duration, Instant};

use cofferdam_test_support::{Signer, package};
use serde_json::json;

use super::client::{Client, cli, home};
use crate::COFFERDAM;
use crate::shared_host::run;

impl Client {
    /// Waits for the notification that the tools changed.
    #[track_caller]
    pub(crate) fn told_of_a_change(&mut self) {
        let from = Instant::now();
        while from.elapsed() < Duration::from_secs(60) {
            self.ask("ping", &json!({}));
            let told = |note: &serde_json::Value| note["method"] == "notifications/tools/list_changed";
            if self.notes.iter().any(told) {
                self.notes.clear();
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("nothing was told");
    }
}

#[test]
fn clients_are_notified_when_tools_change() {
    let home = cofferdam_test_support::Home::new(COFFERDAM);
    let signer = Signer::new();
    home.trust(&signer.public(), "github://cofferdam/*");
    let mut client = Client::greeted(&home, &["--all-operations"]);
    assert_eq!(client.tools(), Vec::<String>::new());
    run(home.install(&package::guest_package("conformance", &[]), &signer)).unwrap();
    client.told_of_a_change();
    assert_eq!(client.tools().len(), 10);
    assert_eq!(client.call("conformance__test_simple_text", &json!({}))["isError"], false);
    // Its signer is no longer trusted: none of its tools is offered, and the operator gets the reason.
    home.revoke(&signer.public());
    client.told_of_a_change();
    assert_eq!(client.tools(), Vec::<String>::new());
    let gone = client.ask("tools/call", &json!({"name": "conformance__test_simple_text"}));
    assert_eq!(gone["error"]["code"], -32602, "{gone}");
    let stderr = client.end();
    assert!(
        stderr.contains("not offered") && stderr.contains("github://cofferdam/conformance@0.1.0"),
        "{stderr}"
    );
}

#[test]
fn changed_pinned_tools_are_withheld_until_repinned() {
    let home = home(&["hello"]);
    let pin = |operations: &str| drop(cli(&home).run(&["mcp", "--operations", operations, "--pin"]).ok());
    pin("hello.greet,hello.nothing");
    let mut client = Client::greeted(&home, &["--operations", "hello.greet,hello.nothing,hello.fail"]);
    assert_eq!(client.tools(), ["hello__greet", "hello__nothing"], "hello.fail is not pinned");
    let file = home.path().join("mcp-pins.json");
    let text = std::fs::read_to_string(&file).unwrap();
    let at = text.find("hello__greet\": \"sha256:").unwrap() + 23;
    let other = if &text[at..=at] == "0" { "1" } else { "0" };
    std::fs::write(&file, format!("{}{other}{}", &text[..at], &text[at + 1..])).unwrap();
    client.told_of_a_change();
    assert_eq!(client.tools(), ["hello__nothing"]);
    std::fs::write(&file, "{}").unwrap();
    std::thread::sleep(Duration::from_millis(2_500));
    assert_eq!(client.tools(), ["hello__nothing"], "pins that cannot be read change nothing");
    pin("hello.greet");
    client.told_of_a_change();
    assert_eq!(client.tools(), ["hello__greet"]);
    let stderr = client.end();
    for words in ["hello__fail", "is not pinned", "is not what was pinned", "the tools stay as they were"] {
        assert!(stderr.contains(words), "{words}: {stderr}");
    }
    std::fs::write(&file, "{}").unwrap();
    cli(&home).run(&["mcp", "--operations", "hello"]).fails(64).said("mcp-pins.json");
    let listing = cli(&home).run(&["mcp", "--operations", "hello", "--list-tools"]);
    listing.fails(0).said("pin the tools anew");
}
