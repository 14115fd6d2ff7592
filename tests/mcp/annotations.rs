//! The declared effects of manifests as hints for clients, of operations and of actions.

use cofferdam::Host;
use cofferdam_test_support::{Home, Signer, package};
use serde_json::{Value, json};

use super::client::{cli, home};
use crate::shared_host::{example, run};

/// The hints of each tool that is listed with these arguments, by the tool's name.
fn hints(home: &Home, args: &[&str]) -> serde_json::Map<String, Value> {
    let args: Vec<_> = ["mcp", "--list-tools", "--format", "json"].iter().chain(args).copied().collect();
    let listing = cli(home).run(&args).json();
    let tools = listing["tools"].as_array().unwrap().iter();
    tools
        .map(|tool| (tool["name"].as_str().unwrap().to_owned(), tool["tool"]["annotations"].clone()))
        .collect()
}

/// `readOnlyHint` and `destructiveHint`.
fn told(hints: &Value) -> (&Value, &Value) {
    (&hints["readOnlyHint"], &hints["destructiveHint"])
}

const READS: (&Value, &Value) = (&Value::Bool(true), &Value::Bool(false));
const ADDS: (&Value, &Value) = (&Value::Bool(false), &Value::Bool(false));
const DESTROYS: (&Value, &Value) = (&Value::Bool(false), &Value::Bool(true));
const UNKNOWN: (&Value, &Value) = (&Value::Null, &Value::Null);

#[test]
fn operations_have_the_hints_of_their_manifest() {
    let home = home(&["hello", "github-issues", "probe", "s3", "slack", "stripe"]);
    let all = hints(&home, &["--all-operations"]);
    for (tool, expected, idempotent) in [
        ("github_issues__list_issues", READS, true),
        ("github_issues__find_pr_by_branch", READS, true),
        ("github_issues__create_issue", ADDS, false),
        ("slack__post_message", ADDS, false),
        ("slack__add_reaction", ADDS, false),
        ("slack__list_channels", READS, true),
        ("stripe__create_payment_intent", ADDS, false),
        ("stripe__get_payment_intent", READS, true),
        ("s3__put_object", DESTROYS, true),
        ("s3__get_object", READS, true),
        ("hello__greet", READS, true),
        ("probe__fetch", UNKNOWN, false),
        ("probe__post", UNKNOWN, false),
    ] {
        assert_eq!(told(&all[tool]), expected, "{tool}");
        assert_eq!(all[tool]["idempotentHint"], idempotent, "{tool}");
    }
    let safe = hints(&home, &["--all-operations", "--read-only"]);
    let expected: Vec<_> = all.iter().filter(|(_, hints)| hints["readOnlyHint"] == true).collect();
    assert_eq!(safe.iter().collect::<Vec<_>>(), expected);
    assert!(safe.contains_key("s3__list_objects") && !safe.contains_key("s3__put_object"));
}

/// One connector as an action needs it, and the hosts that the action lets it reach.
fn requires(host: &Host, guest: &str, operations: &[&str], hosts: &[&str]) -> String {
    let list = host.list().unwrap();
    let name = format!("github://cofferdam/{guest}");
    let hash = &list.iter().find(|entry| entry.name.to_string() == name).unwrap().digest;
    format!(
        "[[requires.connectors]]\nname = \"{name}\"\nversion = \"0.1.0\"\nhash = \"sha256:{hash}\"\n\
         capabilities = {{ operations = {operations:?}, hosts = {hosts:?} }}\n"
    )
}

fn step(id: &str, guest: &str, op: &str, inputs: &str) -> String {
    format!(
        "[[execute]]\nid = \"{id}\"\nconnector = \"github://cofferdam/{guest}\"\nop = \"{op}\"\ninputs = {{ {inputs} }}\n"
    )
}

#[test]
fn an_action_has_the_hints_of_all_its_operations() {
    let home = home(&["hello", "s3", "slack", "probe"]);
    let host = home.host();
    let greet = step("greet", "hello", "greet", "name = \"Ada\"");
    let channels = step("channels", "slack", "list_channels", "");
    let post = step("post", "slack", "post_message", "channel = \"c\", text = \"t\"");
    let get = step("get", "s3", "get_object", "bucket = { name = \"b\" }, key = \"k\"");
    let put = step("put", "s3", "put_object", "bucket = { name = \"b\" }, key = \"k\", content = \"aGk=\"");
    let fetch = step("fetch", "probe", "fetch", "url = \"http://localhost:8080/\"");
    let instead = "[[execute.fallback]]\nconnector = \"github://cofferdam/s3\"\nop = \"put_object\"\n\
                   inputs = { content = \"aGk=\" }\n";
    let hello = requires(&host, "hello", &["greet"], &[]);
    let slack = requires(&host, "slack", &["list_channels", "post_message"], &["slack.com:443"]);
    let s3 = requires(&host, "s3", &["get_object", "put_object"], &["s3.us-east-1.amazonaws.com:443"]);
    let probe = requires(&host, "probe", &["fetch"], &["http://localhost:8080"]);
    let caged = requires(&host, "probe", &["fetch"], &[]);
    let cases = [
        ("reads", [&*hello, &*slack, &*greet, &*channels].concat(), READS),
        ("adds", [&*slack, &*channels, &*post].concat(), ADDS),
        ("destroys", [&*slack, &*s3, &*post, &*put].concat(), DESTROYS),
        ("unknown", [&*slack, &*probe, &*post, &*fetch].concat(), UNKNOWN),
        ("destroys-at-least", [&*s3, &*probe, &*fetch, &*put].concat(), DESTROYS),
        ("reads-or-else", [&*s3, &*get, instead].concat(), DESTROYS),
        ("converges", [&*s3, &*put].concat(), DESTROYS),
        // An operation that reaches nothing within the action can only compute.
        ("caged", [&*caged, &*fetch].concat(), READS),
    ];
    for (name, rest, _) in &cases {
        let text = format!("+++\nname = \"{name}\"\nversion = \"1.0.0\"\n{rest}+++\nA test.\n");
        run(host.add_action(&format!("{name}.md"), text.as_bytes(), true))
            .unwrap_or_else(|error| panic!("{name}: {}", serde_json::to_string_pretty(&error).unwrap()));
    }
    let all = hints(&home, &[]);
    for (name, _, expected) in &cases {
        let hints = &all[&name.replace('-', "_")];
        assert_eq!(told(hints), *expected, "{name}");
        let again = ["reads", "caged", "converges"].contains(name);
        assert_eq!(hints["idempotentHint"], again, "{name}: the same arguments again");
    }
    let safe: Vec<_> = hints(&home, &["--read-only"]).into_iter().map(|(name, _)| name).collect();
    assert_eq!(safe, ["caged", "reads"]);
}

#[test]
fn declared_effects_apply_offline_and_are_pinned() {
    let home = Home::new(crate::COFFERDAM);
    let signer = Signer::new();
    home.trust(&signer.public(), "github://cofferdam/*");
    let install = |default: &str| {
        let manifest = package::guest_manifest("hello").replace("read_only", default);
        assert!(manifest.contains(&format!("default = \"{default}\"")));
        drop(home.host().remove(&example("hello")));
        run(home.install(&package::pack(&package::guest("hello"), &manifest), &signer)).unwrap();
    };
    let greet = ["--operations", "hello.greet"];
    install("additive");
    assert_eq!(told(&hints(&home, &greet)["hello__greet"]), ADDS);
    assert_eq!(hints(&home, &["--operations", "hello.greet", "--read-only"]), serde_json::Map::new());
    drop(cli(&home).run(&["mcp", "--operations", "hello.greet", "--pin"]).ok());
    assert_eq!(hints(&home, &greet).len(), 1);
    // The same words, the same schemas, another hint.
    install("destructive");
    assert_eq!(hints(&home, &greet), json!({}).as_object().unwrap().clone(), "it is not what was pinned");
    drop(cli(&home).run(&["mcp", "--operations", "hello.greet", "--pin"]).ok());
    assert_eq!(told(&hints(&home, &greet)["hello__greet"]), DESTROYS);
}
