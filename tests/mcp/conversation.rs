//! The agent's view: the tools, values, failures, progress and log lines, to the letter.

use cofferdam_test_support::golden::assert_committed;
use serde_json::{Value, json};

use super::client::{Client, cli, home};

fn golden(name: &str, value: &Value) {
    let mut text = serde_json::to_string_pretty(value).unwrap() + "\n";
    // Ids are new each time, and a guest's hash is its compiler's.
    for (before, digits, instead) in [("audit-", 36, "audit-ID"), ("sha256:", 64, "sha256:HASH")] {
        let mut parts = text.split(before);
        let mut same = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            same.push_str(instead);
            same.push_str(&part[digits..]);
        }
        text = same;
    }
    assert_committed(&format!("tests/mcp/golden/{name}.json"), &text);
}

#[test]
fn the_agents_view_matches_the_golden_files() {
    let home = home(&["hello", "probe"]);
    let mut client = Client::greeted(&home, &["--operations", "hello,probe.panic,wait=probe.sleep"]);
    let tools = client.ask("tools/list", &json!({}))["result"].clone();
    golden("tools", &tools);
    for (name, tool, args) in [
        ("value", "hello__greet", json!({"name": "Ada", "tone": "warm"})),
        ("value_no_object", "hello__divide", json!({"dividend": 7, "divisor": 2})),
        ("value_none", "hello__nothing", json!({})),
        ("failure_of_connector", "hello__fail", json!({"kind": "upstream"})),
        ("failure_panic", "probe__panic", json!({"message": "a secret of the guest"})),
        ("wrong_arguments", "hello__greet", json!({"nam": "Ada"})),
    ] {
        golden(name, &client.call(tool, &args));
    }
    let unknown = client.ask("tools/call", &json!({"name": "hello__grant\u{1b}[31m", "arguments": {}}));
    golden("unknown_tool", &unknown["error"]);
    // Every value and every failure fits its tool's schema.
    for (tool, args) in [
        ("hello__greet", json!({"name": "Ada"})),
        ("hello__divide", json!({"dividend": 7, "divisor": 2})),
        ("hello__areas", json!({"shapes": ["empty", {"circle": 1.5}, {"rectangle": [2, 3]}]})),
        ("hello__common_rights", json!({"one": ["read", "write"], "other": ["write"]})),
        (
            "hello__by_age",
            json!({"people": [{"full_name": "A", "nick_names": []}, {"full_name": "B", "age": 3, "address": {"some": null}, "nick_names": ["b"]}]}),
        ),
        ("hello__parse_all", json!({"texts": ["1", "x"]})),
        ("hello__reverse", json!({"bytes": "AAEC"})),
        (
            "hello__echo_scalars",
            json!({"value": {"truth": true, "small": 1, "short": -1, "big": 1, "low": -1, "fraction": "NaN", "letter": "ä", "text": ""}}),
        ),
        ("hello__nothing", json!({})),
        ("hello__fail", json!({"kind": "network"})),
    ] {
        let listed = tools["tools"].as_array().unwrap().iter().find(|one| one["name"] == tool).unwrap();
        let result = client.call(tool, &args);
        let valid = |schema: &Value, value: &Value| {
            let schema = jsonschema::validator_for(schema).unwrap();
            let errors: Vec<_> = schema.iter_errors(value).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "{tool}: {value}: {errors:?}");
        };
        valid(&listed["outputSchema"], &result["structuredContent"]);
        // Arguments that only the host rejects, not the schema.
        if tool != "hello__echo_scalars" {
            valid(&listed["inputSchema"], &args);
        }
        assert_eq!(result["isError"], json!(tool == "hello__fail"), "{result}");
    }
    assert_eq!(client.end(), "", "nothing is on standard error where nothing is wrong");
}

#[test]
fn progress_notifications_follow_a_call() {
    let home = home(&["hello"]);
    let mut client = Client::greeted(&home, &["--operations", "hello"]);
    let level = client.ask("logging/setLevel", &json!({"level": "debug"}));
    assert_eq!(level["result"], json!({}), "{level}");
    let params =
        json!({"name": "hello__greet", "arguments": {"name": "Ada"}, "_meta": {"progressToken": "p"}});
    let result = client.ask("tools/call", &params);
    assert_eq!(result["result"]["isError"], false);
    let of = |method: &str| {
        client.notes.iter().filter(|note| note["method"] == method).cloned().collect::<Vec<_>>()
    };
    let progress: Vec<_> = of("notifications/progress")
        .iter()
        .map(|note| note["params"]["progress"].as_f64().unwrap())
        .collect();
    assert_eq!(progress, [1.0, 2.0, 3.0]);
    let messages = of("notifications/message");
    assert_eq!(messages.len(), 3);
    assert!(messages.iter().all(|note| !note.to_string().contains("Ada")), "{messages:?}");
    client.notes.clear();
    client.ask("logging/setLevel", &json!({"level": "error"}));
    client.call("hello__greet", &json!({"name": "Ada"}));
    assert!(client.notes.is_empty(), "{:?}", client.notes);
}

#[test]
fn list_tools_shows_offered_and_withheld_tools() {
    let home = home(&["hello", "probe", "slack"]);
    let list = |args: &[&str]| {
        let args: Vec<_> = ["mcp", "--list-tools", "--format", "json"].iter().chain(args).copied().collect();
        let listing = cli(&home).run(&args).json();
        let names = |key: &str| {
            let all = listing[key].as_array().unwrap().iter();
            all.map(|one| one["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        (names("tools"), names("withheld"))
    };
    assert_eq!(list(&[]), (vec![], vec![]), "nothing is offered that nobody named");
    let (named, withheld) = list(&["--operations", "say=hello"]);
    assert_eq!((named, withheld), (vec![], vec!["hello".to_owned()]), "one name is not that of ten tools");
    assert_eq!(list(&["--operations", "hello.greet"]), (vec!["hello__greet".to_owned()], vec![]));
    let (_, withheld) = list(&["--operations", "hello.gret,teams"]);
    assert_eq!(withheld, ["hello.gret", "teams"]);
    let (all, _) = list(&["--all-operations"]);
    assert!(all.iter().any(|name| name == "slack__post_message") && all.len() > 20, "{all:?}");
    let (safe, left_out) = list(&["--all-operations", "--read-only"]);
    assert!(left_out.contains(&"slack__post_message".to_owned()), "{left_out:?}");
    let (none, left_out) = list(&["--all-operations", "--only", "teams"]);
    assert!(none.is_empty() && left_out.len() == 3 && left_out[0].starts_with("github://"), "{left_out:?}");
    let args = ["mcp", "--list-tools", "--all-operations", "--only", "teams"];
    let shown = cli(&home).run(&args).ok();
    assert!(shown.contains("Not offered") && shown.contains("left out by --only"), "{shown}");
    assert!(!safe.iter().any(|name| name.starts_with("probe")) && safe.len() > 5, "{safe:?}");
    let of_slack: Vec<_> = safe.iter().filter(|name| name.starts_with("slack")).collect();
    assert_eq!(of_slack, ["slack__list_channels"]);
    let (only, _) = list(&["--all-operations", "--only", "hello"]);
    assert!(only.iter().all(|name| name.starts_with("hello__")) && only.len() == 10, "{only:?}");
    for bad in
        [&["--token-file", "x"][..], &["--list-tools", "--pin"], &["--operations", "a", "--all-operations"]]
    {
        let args: Vec<_> = ["mcp"].iter().chain(bad).copied().collect();
        assert_ne!(cli(&home).run(&args).code, Some(0), "{bad:?}");
    }
}

#[test]
fn unreadable_pins_stop_serving_but_not_listing() {
    let home = home(&["hello"]);
    std::fs::write(home.path().join("mcp-pins.json"), "{").unwrap();
    let args = ["mcp", "--operations", "hello.greet", "--list-tools"];
    let ran = cli(&home).run(&args);
    assert!(ran.stdout.contains("hello__greet"), "{ran:?}");
    ran.fails(0).said("is not a file of pins");
    cli(&home).run(&args[..3]).fails(64).said("--list-tools");
    // A server that cannot listen prompts for nothing.
    let ran = cli(&home).run(&["mcp", "--operations", "hello.greet", "--pin"]);
    assert!(ran.fails(0).stdout.contains("hello__greet"));
    let ran = cli(&home).run(&["mcp", "--http", "0.0.0.0:0"]).fails(64);
    assert!(!ran.stderr.contains("every user of this machine"), "{ran:?}");
}

#[test]
fn the_client_configuration_starts_the_server() {
    let home = home(&[]);
    let dir = home.path();
    let run = |args: &[&str]| {
        let args: Vec<_> = ["mcp", "config", "--client"].iter().chain(args).copied().collect();
        cli(&home).run(&args)
    };
    let printed = run(&["claude-code", "--", "--operations", "hello"]).json();
    let entry = &printed["mcpServers"]["cofferdam"];
    assert_eq!(entry["args"], json!(["mcp", "--operations", "hello"]));
    assert_eq!(entry["env"]["COFFERDAM_HOME"], json!(dir.to_str().unwrap()));
    std::fs::write(dir.join(".mcp.json"), "{\"mcpServers\": {\"other\": {}}}").unwrap();
    drop(run(&["claude-code", "--write"]).ok());
    let written: Value = serde_json::from_slice(&std::fs::read(dir.join(".mcp.json")).unwrap()).unwrap();
    assert!(written["mcpServers"]["other"].is_object() && written["mcpServers"]["cofferdam"].is_object());
    drop(run(&["codex", "--write"]).ok());
    assert!(
        std::fs::read_to_string(dir.join(".codex/config.toml")).unwrap().contains("[mcp_servers.cofferdam]")
    );
    run(&["codex", "--write"]).fails(0).said("has it already; nothing was written");
    run(&["codex", "--write", "--", "--read-only"]).fails(65).said("--replace");
    run(&["codex", "--write", "--replace", "--", "--read-only"]).fails(0).said("replaced");
    run(&["claude-code", "--write", "--", "--read-only"])
        .fails(65)
        .said("has another server of this name already");
    // A link stays one, and what it leads to is what is written.
    std::fs::create_dir(dir.join("dotfiles")).unwrap();
    std::fs::rename(dir.join(".mcp.json"), dir.join("dotfiles/mcp.json")).unwrap();
    std::os::unix::fs::symlink("dotfiles/mcp.json", dir.join(".mcp.json")).unwrap();
    let written =
        run(&["claude-code", "--write", "--replace", "--format", "json", "--", "--read-only"]).json();
    assert_eq!(written["done"], "replaced");
    assert!(dir.join(".mcp.json").is_symlink());
    assert!(std::fs::read_to_string(dir.join("dotfiles/mcp.json")).unwrap().contains("--read-only"));
    // The vault and private host options of this command are passed on to the client's server.
    let args = ["mcp", "config", "--client", "cursor", "--passphrase-file", "pass"];
    let ran = cli(&home).command(&args).env("COFFERDAM_ALLOW_PRIVATE", "localhost:8080").output().unwrap();
    let told: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let env = &told["mcpServers"]["cofferdam"]["env"];
    assert_eq!(env["COFFERDAM_ALLOW_PRIVATE"], "localhost:8080");
    assert!(env["COFFERDAM_VAULT_PASSPHRASE_FILE"].as_str().unwrap().ends_with("/pass"), "{env}");
    assert!(env["COFFERDAM_VAULT_PASSPHRASE_FILE"].as_str().unwrap().starts_with('/'), "{env}");
    run(&["cursor", "--url", "ftp://x"]).fails(2).said("http://127.0.0.1:4101/mcp");
    run(&["zed", "--url", "http://127.0.0.1:4101/mcp"]).fails(0).said("in the place of TOKEN");
    run(&["cursor", "--", "--operation", "hello"]).fails(65).said("cannot be started so");
}
