//! The three boundaries: their refusals, that a denial is final, and that `why` agrees.

use cofferdam::{ActionScope, Call, Error, Failure, FailureBoundary, Host};
use cofferdam_runtime::host::AccessQuery;
use cofferdam_test_support::{Cli, Home, InstallAccepted as _, Signer, package};
use serde_json::{Value, json};

use crate::COFFERDAM;
use crate::envelope::{Expected, check, denied};
use crate::shared_host::{example, failed, run, shared_host};

/// A home with the probe as it is granted `hosts`, and nothing that its operator allows.
struct Granted {
    home: Home,
    host: Host,
    file: std::path::PathBuf,
}

fn granted(hosts: &[String]) -> Granted {
    let home = Home::new(COFFERDAM);
    let signer = Signer::new();
    home.trust(&signer.public(), "github://cofferdam/*");
    let bytes = package::guest_package("probe", hosts);
    run(home.install(&bytes, &signer)).unwrap();
    let file = home.path().join("probe.wasm");
    std::fs::write(&file, bytes).unwrap();
    Granted { host: home.host(), home, file }
}

impl Granted {
    /// Returns the gate's decision when the guest requests `url`.
    fn met(&self, url: &str) -> Failure {
        failed(run(self.host.call(&example("probe"), "fetch", json!({"url": url}))))
    }

    /// Returns the command line's prediction for the installed connector and for the file.
    #[track_caller]
    fn foretold(&self, access: &str) -> Value {
        let cli = Cli::new(COFFERDAM, self.home.path());
        let ask = |what: &str| {
            let ran = cli.run(&["why", what, access, "--format", "json"]).fails(77);
            serde_json::from_str::<Value>(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
        };
        let answer = ask("github://cofferdam/probe");
        assert_eq!(
            ask(self.file.to_str().unwrap()),
            answer,
            "a file is answered for as what is installed is"
        );
        let human = cli.run(&["why", "github://cofferdam/probe", access]).fails(77);
        assert!(human.stdout.contains(answer["message"].as_str().unwrap()), "{human:?}");
        answer
    }
}

/// The CLI's answer is the failure, but for what only the call knows.
#[track_caller]
fn same(answer: &Value, failure: &Failure) {
    let envelope = serde_json::to_value(failure).unwrap();
    let error = &envelope["error"];
    assert_eq!(answer["allowed"], false);
    for key in ["class", "boundary", "message"] {
        assert_eq!(answer[key], error[key], "{key}: {answer:#}");
    }
    let of_the_call = ["connector", "connector_hash", "op", "ip", "request_sent"];
    let other = |details: &serde_json::Map<String, Value>| {
        let mut details = details.clone();
        details.retain(|key, _| !of_the_call.contains(&key.as_str()));
        details
    };
    assert_eq!(other(answer["details"].as_object().unwrap()), other(failure.details()));
}

/// The line that would allow it is in the message, is TOML, and is in `details` with its place.
#[track_caller]
fn names_the_line(failure: &Failure, file: &str, table: &str, line: &str) {
    let details = failure.details();
    assert_eq!(details["allow"], json!({"file": file, "table": table, "line": line}), "{details:#?}");
    for part in [line, table, file] {
        assert!(failure.message().contains(part), "{part} is not in: {}", failure.message());
    }
    let document = format!("{table}\n{line}\n");
    assert!(document.parse::<toml::Table>().is_ok(), "{document}");
}

#[test]
fn why_agrees_with_the_gate() {
    let port = shared_host().upstream.port();
    let granted = granted(&["api.example:443".to_owned(), format!("http://localhost:{port}")]);
    let network = "[capabilities.network]";
    let hosts =
        |more: &str| format!("hosts = [\"api.example:443\", \"http://localhost:{port}\", \"{more}\"]");
    let manifest = |more: &str| Some(("connector.toml", network, hosts(more)));
    let localhost = format!("localhost:{port}");
    let cases = [
        ("https://evil.example", "host_not_granted", manifest("evil.example:443")),
        ("https://api.example:8443", "host_not_granted", manifest("api.example:8443")),
        ("https://sub.api.example", "host_not_granted", manifest("sub.api.example:443")),
        ("http://api.example", "insecure_url", manifest("http://api.example:80")),
        ("https://127.0.0.1", "host_not_granted", None),
        ("https://127.1", "invalid_authority", None),
        (
            &format!("http://{localhost}"),
            "private_address",
            Some(("config.toml", "[network]", format!("allow_private = [\"{localhost}\"]"))),
        ),
    ];
    for (url, code, line) in cases {
        let failure = granted.met(&format!("{url}/text/x"));
        check(&failure, denied(code));
        match line {
            Some((file, table, line)) => names_the_line(&failure, file, table, &line),
            None => assert!(failure.details().get("allow").is_none(), "{url}: {failure}"),
        }
        same(&granted.foretold(url), &failure);
    }
    assert_eq!(granted.foretold("evil.example:443"), granted.foretold("https://evil.example/a/b?c"));
    // A guest without the SDK can write requests that the SDK would not.
    let url = "https://me:secret@api.example/";
    let args = json!({"first": url, "denied": url, "after": url, "times": 0});
    let failure = failed(run(granted.host.call(&example("probe"), "persist", args)));
    check(&failure, denied("invalid_authority"));
    assert!(!failure.to_string().contains("secret"), "{failure}");
    same(&granted.foretold(url), &failure);
}

#[test]
fn why_says_which_lines_allow_it() {
    let world = shared_host();
    let granted = granted(&[world.upstream.grant(), "api.example:443".to_owned()]);
    let cli = Cli::new(COFFERDAM, granted.home.path());
    let why = |access: &str, more: &[&str]| {
        let args = [&["why", "github://cofferdam/probe@0.1.0", access, "--format", "json"], more].concat();
        cli.run(&args).json()
    };
    let answer = why("api.example:443", &[]);
    assert_eq!((&answer["allowed"], &answer["requested"]), (&json!(true), &json!("network:api.example:443")));
    assert_eq!(answer["granted_by"][0]["table"], "[capabilities.network]");
    assert!(answer["notes"].to_string().contains("allow_private = [\\\"api.example:443\\\"]"), "{answer}");
    let answer = why(&world.upstream.url("/"), &["--allow-private", &world.upstream.host_port()]);
    assert_eq!(answer["granted_by"][1]["file"], "config.toml", "{answer}");
    let config = format!("[network]\nallow_private = [\"{}\"]\n", world.upstream.host_port());
    std::fs::write(granted.home.path().join("config.toml"), config).unwrap();
    assert_eq!(why(&world.upstream.url("/"), &[])["allowed"], true);
    let answer = why("wasi:http/outgoing-handler", &[]);
    assert!(answer["granted_by"][0]["line"].as_str().unwrap().starts_with("imports = ["), "{answer}");
    assert_eq!(why("wasi:clocks/wall-clock", &[])["granted_by"], json!([]));
    let human = cli.run(&["why", "github://cofferdam/probe", "api.example:443"]).ok();
    assert!(human.contains("allowed") && human.contains("[capabilities.network]"), "{human}");
    cli.run(&["why", "github://cofferdam/none", "api.example:443"]).fails(66).said("not installed");
    cli.run(&["why", "github://cofferdam/probe", "two words"]).fails(65).said("outgoing-handler");
}

#[test]
fn why_agrees_with_an_install() {
    let desk = Home::new(COFFERDAM);
    let cli = Cli::new(COFFERDAM, desk.path());
    let import = |name: &str| {
        let body = format!(
            r#"(import "{name}" (instance))
               (core module $m (memory (export "memory") 1) (func (export "run") (result i32) (i32.const 0)))"#
        );
        let manifest = package::manifest("local://acme/asks", "1.0.0");
        package::pack(&package::component(&body), &manifest)
    };
    for (name, line) in [
        ("wasi:http/outgoing-handler@0.2.4", Some("imports = [\"wasi:http/outgoing-handler\"]")),
        ("wasi:keyvalue/store@0.2.0", None),
        ("acme:secrets/read@1.0.0", None),
    ] {
        let bytes = import(name);
        let options = cofferdam::InstallOptions::default().allow_unsigned();
        let failure = match run(desk.host().install_accepted(bytes.clone(), None, options)) {
            Err(Error::Failure(failure)) => failure,
            other => panic!("{name}: {other:?}"),
        };
        let expected =
            Expected { boundary: FailureBoundary::ConnectorManifest, ..denied("capability_unavailable") };
        check(&failure, expected);
        assert_eq!(failure.details()["connector"], "local://acme/asks@1.0.0");
        if let Some(line) = line {
            names_the_line(&failure, "connector.toml", "[capabilities.runtime]", line);
        }
        std::fs::write(desk.path().join("asks.wasm"), bytes).unwrap();
        for access in [name, "api.example:443"] {
            let ran = cli.run(&["why", "asks.wasm", access, "--format", "json"]).fails(77);
            same(&serde_json::from_str(&ran.stdout).unwrap(), &failure);
        }
    }
}

/// The probe within an action that may use these operations, and these hosts.
fn within(operations: &[&str], hosts: &[String], op: &str, args: Value) -> Call {
    let scope = ActionScope::new("triage@1.0.0", operations, hosts).unwrap();
    Call::new(example("probe"), op, args).within(scope)
}

fn action(code: &'static str) -> Expected {
    Expected { boundary: FailureBoundary::Action, ..denied(code) }
}

#[test]
fn an_operation_outside_the_action_is_denied() {
    let world = shared_host();
    let url = world.upstream.url("/text/never");
    let call = within(&["fetch"], &[world.upstream.grant()], "post", json!({"url": url, "body": "x"}));
    let failure = failed(run(world.host.run(call)).outcome);
    check(&failure, action("operation_not_granted"));
    let details = failure.details();
    assert_eq!(details["action"], "triage@1.0.0");
    assert_eq!(details["connector"], "github://cofferdam/probe@0.1.0");
    assert_eq!(details["requested"], "operation:post");
    assert_eq!(details["declared_subset"], json!(["operation:fetch"]));
    assert!(details["granted"].to_string().contains("operation:post"), "the connector has it: {details:?}");
    let line = format!(
        "capabilities = {{ operations = [\"fetch\", \"post\"], hosts = [\"{}\"] }}",
        world.upstream.grant()
    );
    names_the_line(&failure, "triage.md", "[[requires.connectors]]", &line);
    let record = cofferdam_test_support::log_capture::record_of(failure.audit_id().as_str());
    assert_eq!(record.get("attempts"), Some("0"), "no guest was started: {record:?}");
    assert_eq!(record.get("notes"), Some("denied: operation:post"), "the operator can read what it was");
    assert!(world.upstream.seen("/text/never").is_empty());
}

#[test]
fn a_host_outside_the_action_is_denied() {
    let world = shared_host();
    let closed = format!("http://localhost:{}", world.closed_port);
    let url = world.upstream.url("/text/subset");
    let fetch =
        |hosts: &[String], op: &str| within(&["fetch", "swallow_denial"], hosts, op, json!({"url": url}));
    assert_eq!(
        run(world.host.run(fetch(&[world.upstream.grant()], "fetch"))).outcome.unwrap()["body"],
        "subset"
    );
    let seen = world.upstream.seen("/text/subset").len();
    for (hosts, op) in
        [(vec![], "fetch"), (vec![closed.clone()], "fetch"), (vec![closed.clone()], "swallow_denial")]
    {
        let failure = failed(run(world.host.run(fetch(&hosts, op))).outcome);
        check(&failure, action("host_not_granted"));
        let details = failure.details();
        assert_eq!(details["requested"], format!("network:{}", world.upstream.grant()));
        let subset: Vec<_> = hosts.iter().map(|host| format!("network:{host}")).collect();
        assert_eq!(
            (&details["action"], &details["declared_subset"]),
            (&json!("triage@1.0.0"), &json!(subset))
        );
        assert!(details["granted"].to_string().contains(&world.upstream.grant()), "{details:?}");
        let mut all = hosts.clone();
        all.push(world.upstream.grant());
        let line =
            format!("capabilities = {{ operations = [\"fetch\", \"swallow_denial\"], hosts = {all:?} }}");
        names_the_line(&failure, "triage.md", "[[requires.connectors]]", &line);
        // The host's prediction is the gate's denial, word for word.
        let scope = ActionScope::new("triage@1.0.0", ["fetch", "swallow_denial"], &hosts).unwrap();
        let foretold = world
            .host
            .why(&example("probe"), &AccessQuery::parse(&url).unwrap(), Some(&scope))
            .unwrap()
            .into_result();
        assert_eq!(foretold.unwrap_err().message(), failure.message());
    }
    assert_eq!(world.upstream.seen("/text/subset").len(), seen, "nothing more arrived");
    let outside = within(&["fetch"], &[], "fetch", json!({"url": world.elsewhere.url("/")}));
    check(&failed(run(world.host.run(outside)).outcome), denied("host_not_granted"));
}

#[test]
fn an_action_cannot_exceed_the_connectors_grants() {
    let world = shared_host();
    let refused = |operations: &[&str], hosts: &[String]| {
        let call = within(operations, hosts, "call_info", json!({}));
        failed(run(world.host.run(call)).outcome)
    };
    let manifest = |code| Expected { boundary: FailureBoundary::ConnectorManifest, ..denied(code) };
    let failure = refused(&["call_info"], &[world.upstream.grant(), "evil.example:443".to_owned()]);
    check(&failure, manifest("host_not_granted"));
    assert_eq!((&failure.details()["requested"]), "network:evil.example:443");
    assert_eq!(failure.details()["allow"]["file"], "connector.toml");
    let failure = refused(&["call_info", "call_inf"], &[]);
    check(&failure, manifest("operation_not_granted"));
    assert!(failure.message().contains("call_info"), "{failure}");
    // Over TLS is another grant than in the clear.
    let secure = format!("localhost:{}", world.upstream.port());
    check(&refused(&["call_info"], &[secure]), manifest("host_not_granted"));
    assert!(run(world.host.run(within(&["call_info"], &[], "call_info", json!({})))).outcome.is_ok());
}

#[test]
fn after_a_denial_nothing_more_reaches_any_server() {
    let world = shared_host();
    for turn in 0..40 {
        let [first, after] = ["first", "after"].map(|when| format!("/hang/{when}-{turn}"));
        let before = world.elsewhere.connections();
        let args = json!({
            "first": world.upstream.url(&first),
            "denied": world.elsewhere.url("/text/denied"),
            "after": world.upstream.url(&after),
            "times": 5,
        });
        let failure = failed(run(world.host.call(&example("probe"), "persist", args)));
        check(&failure, denied("host_not_granted"));
        assert_eq!(world.elsewhere.connections(), before, "turn {turn}");
        assert!(
            world.upstream.seen(&after).is_empty(),
            "turn {turn}: a request was admitted after the denial"
        );
    }
    // Requests in flight at the denial are abandoned, and the server receives nothing more of them.
    for turn in 0..40 {
        let path = format!("/hang/first-{turn}");
        if !world.upstream.seen(&path).is_empty() {
            crate::cancellation::abandoned(&world.upstream, &path);
        }
    }
    let args = json!({
        "first": world.upstream.url("/text/a"), "denied": world.upstream.url("/text/b"),
        "after": world.upstream.url("/text/c"), "times": 3,
    });
    assert_eq!(world.value("probe", "persist", args), 5, "the guest does as it says where nothing is denied");
}

#[test]
fn a_denial_within_an_action_is_final() {
    let world = shared_host();
    let closed = format!("http://localhost:{}", world.closed_port);
    let args = json!({
        "first": format!("{closed}/"), "denied": world.upstream.url("/text/inner"),
        "after": world.upstream.url("/text/inner-after"), "times": 3,
    });
    let failure = failed(run(world.host.run(within(&["persist"], &[closed], "persist", args))).outcome);
    check(&failure, action("host_not_granted"));
    for path in ["/text/inner", "/text/inner-after"] {
        assert!(world.upstream.seen(path).is_empty(), "{path}");
    }
}

#[test]
fn declared_but_unused_imports_are_noted() {
    let desk = Home::new(COFFERDAM);
    let cli = Cli::new(COFFERDAM, desk.path());
    let manifest = package::manifest("local://acme/asks", "1.0.0")
        + "[capabilities.runtime]\nimports = [\"wasi:http/outgoing-handler\"]\n";
    std::fs::write(desk.path().join("connector.toml"), manifest).unwrap();
    std::fs::write(desk.path().join("quiet.wasm"), package::quiet()).unwrap();
    let pack = ["pack", "quiet.wasm", "--manifest", "connector.toml", "-o", "asks.wasm"];
    let ran = cli.run(&pack);
    assert!(ran.stderr.contains("wasi:http/outgoing-handler"), "{ran:?}");
    assert!(ran.ok().contains("asks.wasm"));
    let packed = cli.run(&[&pack[..], &["--format", "json"]].concat()).json();
    assert_eq!(packed["unused_imports"], json!(["wasi:http/outgoing-handler"]));
    assert_eq!(
        cli.run(&["inspect", "asks.wasm", "--format", "json"]).json()["unused_imports"],
        packed["unused_imports"]
    );
    assert!(cli.run(&["inspect", "asks.wasm"]).ok().contains("more than it needs"));
    let why = cli.run(&["why", "asks.wasm", "wasi:http/outgoing-handler", "--format", "json"]).json();
    assert!(why["notes"].to_string().contains("does not import it"), "{why}");
}
