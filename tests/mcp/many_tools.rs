//! Ten thousand tools: listed by pages over both transports, and followed when one of them changes.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::time::Instant;

use cofferdam_test_support::Home;
use serde_json::{Value, json};

use super::client::{Client, home};
use super::http_client::Server;

const TOOLS: usize = 10_000;

fn write(home: &Home, hash: &str, at: usize, description: &str) {
    let text = format!(
        "+++\nname = \"greet-{at:05}\"\nversion = \"1.0.0\"\n\n\
         [[requires.connectors]]\nname = \"github://cofferdam/hello\"\nversion = \"0.1.0\"\nhash = \"sha256:{hash}\"\n\
         capabilities = {{ operations = [\"greet\"] }}\n\n\
         [[inputs]]\nname = \"whom\"\ntype = \"string\"\ndescription = \"Whom to greet.\"\n\n\
         [[execute]]\nid = \"greeting\"\nconnector = \"github://cofferdam/hello\"\nop = \"greet\"\ninputs = {{ name = \"${{args.whom}}\" }}\n+++\n\
         {description}\n"
    );
    let (dir, file) = (home.path().join("actions"), format!("greet-{at:05}.md"));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).unwrap();
    // As an editor writes it: completely, to a temporary file, which is then renamed.
    let draft = home.path().join("draft");
    let mut options = fs::OpenOptions::new();
    let mut out = options.write(true).create(true).truncate(true).mode(0o600).open(&draft).unwrap();
    std::io::Write::write_all(&mut out, text.as_bytes()).unwrap();
    fs::rename(draft, dir.join(file)).unwrap();
}

/// Every page, by its cursor; returns the tools in the order of arrival, and the cursors.
fn pages(mut list: impl FnMut(&Value) -> Value) -> (Vec<Value>, Vec<String>) {
    let (mut tools, mut cursors) = (Vec::new(), Vec::new());
    let mut params = json!({});
    loop {
        let answer = list(&params);
        let page =
            answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("no page: {answer}")).clone();
        assert!(!page.is_empty() && page.len() <= 1_000, "{}", page.len());
        assert!(answer.to_string().len() < (1 << 20) + 4_096, "{}", answer.to_string().len());
        tools.extend(page);
        match answer["result"].get("nextCursor") {
            None => return (tools, cursors),
            Some(cursor) => cursors.push(cursor.as_str().unwrap().to_owned()),
        }
        params = json!({"cursor": cursors.last()});
    }
}

#[track_caller]
fn complete(tools: &[Value]) {
    let names = tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned());
    let expected = (0..TOOLS).map(|at| format!("greet_{at:05}"));
    assert!(names.eq(expected), "each once, in order");
}

#[test]
fn ten_thousand_tools_are_paged_and_updated() {
    let home = home(&["hello"]);
    let hash = home.host().list().unwrap().first().unwrap().digest.to_string();
    for at in 0..TOOLS {
        write(&home, &hash, at, "Greets somebody.");
    }
    let from = Instant::now();
    let mut client = Client::greeted(&home, &[]);
    let first = client.ask("tools/list", &json!({}));
    let to_first = from.elapsed();
    assert!(first["result"]["nextCursor"].is_string());
    let (tools, cursors) = pages(|params| client.ask("tools/list", params));
    let (all, peak) = (from.elapsed(), client.peak_bytes());
    complete(&tools);
    let refused = |answer: Value| assert_eq!(answer["error"]["code"], -32602, "{}", answer.to_string().len());
    let foreign = ["", "0", "1000", "greet_00999", "../../etc/passwd", "\u{0}\u{1b}[2J", &cursors[0][1..]];
    for foreign in foreign.iter().copied().chain([cursors[0].repeat(1_000).as_str()]) {
        refused(client.ask("tools/list", &json!({"cursor": foreign})));
    }
    refused(client.ask("tools/list", &json!({"cursor": 1})));
    // One file changes: all other tools are unchanged, and an earlier cursor continues where it was.
    write(&home, &hash, 5, "Greets one.");
    let from = Instant::now();
    client.told_of_a_change();
    let told = from.elapsed();
    let (changed, _) = pages(|params| client.ask("tools/list", params));
    complete(&changed);
    let different: Vec<usize> = (0..TOOLS).filter(|at| tools[*at] != changed[*at]).collect();
    assert_eq!(different, [5]);
    let rest = client.ask("tools/list", &json!({"cursor": cursors.last()}));
    assert_eq!(
        rest["result"]["tools"].as_array().unwrap().last(),
        changed.last(),
        "{}",
        rest["result"]["nextCursor"]
    );
    let result = client.call("greet_09999", &json!({"whom": "Ada"}));
    assert_eq!(result["isError"], false, "{result}");
    // The tool that a cursor names is removed.
    let last_of_first = client.ask("tools/list", &json!({}))["result"]["tools"].as_array().unwrap().len() - 1;
    fs::remove_file(home.path().join(format!("actions/greet-{last_of_first:05}.md"))).unwrap();
    client.told_of_a_change();
    let next = client.ask("tools/list", &json!({"cursor": cursors[0]}));
    assert_eq!(next["result"]["tools"][0]["name"], format!("greet_{:05}", last_of_first + 1));
    assert_eq!(client.end(), "");
    write(&home, &hash, last_of_first, "Greets somebody.");
    let server = Server::start(&home, &[]);
    let (over_http, http_cursors) = pages(|params| server.ask("tools/list", params));
    complete(&over_http);
    assert!(over_http == changed && http_cursors == cursors, "the same over both");
    for foreign in foreign {
        refused(server.ask("tools/list", &json!({"cursor": foreign})));
    }
    server.lives();
    eprintln!(
        "first page {to_first:?}, all {all:?}, told {told:?}; {} MiB, {} over HTTP",
        peak >> 20,
        server.peak_bytes() >> 20
    );
    server.end();
}
