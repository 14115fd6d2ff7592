//! The command line from outside: the way from source to a call, exit codes, both formats, Ctrl-C.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cofferdam_test_support::process::write_program;
use cofferdam_test_support::{Cli, CommandResult, Home, Signer, guests, package};
use serde_json::{Value, json};

use crate::COFFERDAM;
use crate::envelope;
use crate::shared_host::shared_host;

/// A home with a separate working directory, like an author's.
pub(crate) struct Desk {
    home: Home,
    cli: Cli,
}

pub(crate) fn desk() -> Desk {
    let home = Home::new(COFFERDAM);
    let cli = Cli::new(COFFERDAM, home.path());
    Desk { home, cli }
}

impl Desk {
    pub(crate) fn run(&self, line: &str) -> CommandResult {
        self.cli.run(&line.split(' ').collect::<Vec<_>>())
    }

    /// Runs `install` with these arguments, and accepts what the package asks for.
    pub(crate) fn install(&self, line: &str) -> CommandResult {
        self.cli.install(&line.split(' ').collect::<Vec<_>>())
    }

    pub(crate) fn cli(&self) -> &Cli {
        &self.cli
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// A package of one quiet operation, as a file in the working directory.
    pub(crate) fn quiet(&self) {
        let bytes = package::pack(&package::quiet(), &package::manifest("github://acme/quiet", "1.0.0"));
        fs::write(self.path("quiet.wasm"), bytes).unwrap();
    }
}

/// A command over the home in which the example guests are installed.
pub(crate) fn example_cli() -> Cli {
    Cli::new(COFFERDAM, shared_host().home.path())
}

/// The environment by which cargo and rustc are found, and the compiler that has the target.
pub(crate) fn with_toolchain(command: &mut Command) -> &mut Command {
    let component = guests::component("hello").unwrap_or_else(|error| panic!("{error}"));
    // Not the directory of the tests' own guests: `cofferdam build` has other arguments for rustc, and would replace them
    // while tests read them.
    let toolchain = component.ancestors().nth(3).and_then(Path::file_name).unwrap();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("connectors").join(toolchain);
    command.env("CARGO_TARGET_DIR", target);
    for name in ["HOME", "CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "XDG_CACHE_HOME"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    let script = package::repository().join("tests/support/wasm-target.sh");
    let output = Command::new("bash").arg(script).arg("rustc").output().unwrap();
    let rustc = String::from_utf8(output.stdout).unwrap();
    if !rustc.trim().is_empty() {
        command.env("RUSTC", rustc.trim());
    }
    command
}

#[test]
fn a_connector_is_built_installed_called_and_removed() {
    let desk = desk();
    let hello = package::repository().join("examples/hello");
    let package = desk.path("hello.wasm");
    let mut build = desk.cli.command(&["build", "--format", "json"]);
    build.arg(&hello).arg("-o").arg(&package).args(["--", "--locked"]);
    let output = with_toolchain(&mut build).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let built: Value = serde_json::from_slice(&output.stdout).unwrap();
    let sum = Command::new("sha256sum").arg(&package).output().unwrap();
    let sum = String::from_utf8(sum.stdout).unwrap();
    assert_eq!(built["hash"], format!("sha256:{}", sum.split(' ').next().unwrap()));
    let operations = built["operations"].as_array().unwrap();
    assert!(
        operations.iter().any(|operation| operation["name"] == "greet" && operation["documented"] == true)
    );

    let key = desk.run("key generate --format json --out my.key").json();
    let public = key["public_key"].as_str().unwrap();
    let signed = desk.run("sign hello.wasm --key my.key --format json").json();
    assert_eq!((&signed["hash"], &signed["key_id"]), (&built["hash"], &key["key_id"]));
    let untrusted = desk.install("hello.wasm --format json").fails(81);
    envelope::check_unlogged_json(&untrusted.envelope());
    desk.run(&format!("trust add {public} --for github://cofferdam/hello")).ok();
    let installed = desk.install("hello.wasm --format json").json();
    assert_eq!((&installed["hash"], &installed["signer"]), (&built["hash"], &key["key_id"]));
    assert_eq!(desk.install("hello.wasm --format json").json()["already_installed"], true);

    let listed = desk.run("list --format json").json();
    assert_eq!(
        listed,
        json!([{"name": "github://cofferdam/hello", "version": "0.1.0", "hash": built["hash"], "active": true,
                "last_call": null}])
    );
    let inspected = desk.run("inspect github://cofferdam/hello --format json").json();
    assert_eq!((&inspected["hash"], &inspected["hash_matches"]), (&built["hash"], &json!(true)));
    assert_eq!(inspected["signature"]["status"], "trusted");
    let operation = |inspected: &Value, name: &str| {
        let operations = inspected["operations"].as_array().unwrap().clone();
        operations.into_iter().find(|operation| operation["name"] == name).unwrap()
    };
    assert_eq!(
        operation(&inspected, "greet")["docs"].as_str().unwrap().lines().next(),
        Some("Greets a person.")
    );
    let file = desk.run("inspect hello.wasm --format json").json();
    assert_eq!(file["operations"], inspected["operations"], "a file is inspected as what is installed is");

    let greeting = desk.run("call github://cofferdam/hello greet --arg name=Ada --arg tone=warm").json();
    assert_eq!(greeting["text"], "Hello, dear Ada!");
    let verified = desk.run("verify --format json").json();
    assert_eq!(verified["connectors"][0]["ok"], true);
    assert_eq!(
        desk.run("remove github://cofferdam/hello@0.1.0 --format json").json()["removed"],
        "github://cofferdam/hello@0.1.0"
    );
    assert_eq!(desk.run("list --format json").json(), json!([]));
    desk.run("call github://cofferdam/hello greet --arg name=Ada").fails(66).said("cofferdam install");
}

#[test]
fn a_component_of_another_toolchain_is_packed() {
    let desk = desk();
    fs::write(desk.path("c.wasm"), package::quiet()).unwrap();
    fs::write(desk.path("connector.toml"), package::manifest("github://acme/quiet", "1.0.0")).unwrap();
    let packed = desk.run("pack c.wasm --manifest connector.toml -o packed.wasm --format json").json();
    assert_eq!(packed["operations"][0]["name"], "run");
    desk.install("packed.wasm --allow-unsigned").ok();
    desk.run("call github://acme/quiet run").fails(81).said("unsigned");
    assert_eq!(desk.run("call github://acme/quiet run --allow-unsigned").json(), Value::Null);
}

#[test]
fn a_missing_compile_target_names_the_fix() {
    let desk = desk();
    let rustc = desk.path("rustc");
    write_program(&rustc, "#!/bin/sh\necho /nowhere/lib/rustlib/wasm32-wasip2/lib\n");
    let mut build = desk.cli.command(&["build"]);
    build.arg(package::repository().join("examples/hello"));
    let output = with_toolchain(&mut build).env("RUSTC", rustc).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(71), "{stderr}");
    assert!(stderr.contains("rustup target add wasm32-wasip2") || stderr.contains("rustup.rs"), "{stderr}");
}

#[test]
fn the_secret_key_is_private_and_never_shown() {
    let desk = desk();
    desk.quiet();
    let generated = desk.run("key generate --out my.key");
    let file = desk.path("my.key");
    let text = fs::read_to_string(&file).unwrap();
    let line = text.lines().find(|line| line.starts_with("cofferdam-secret-key:")).unwrap();
    let secret = line.rsplit(':').next().unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let again = desk.run("key generate --out my.key").fails(67);
    assert_eq!(fs::read_to_string(&file).unwrap(), text, "a key is never overwritten");
    let as_argument = desk.cli.run(&["trust", "add", line, "--for", "github://acme/*"]).fails(2);
    let shown = [
        generated,
        again,
        as_argument,
        desk.run("key public my.key"),
        desk.run("sign quiet.wasm --key my.key -v"),
        desk.run("sign my.key --key quiet.wasm"),
        desk.run("sign quiet.wasm --key my.key --format json -vvv"),
    ];
    for ran in shown {
        let all = format!("{}{}", ran.stdout, ran.stderr);
        assert!(!all.contains(secret), "`{}` shows the secret key", ran.line);
    }
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let open = desk.run("sign quiet.wasm --key my.key --replace");
    assert_ne!(open.code, Some(0));
    assert!(open.stderr.contains("chmod"), "{}", open.stderr);
}

#[test]
fn keys_are_trusted_listed_revoked_and_removed() {
    let desk = desk();
    let key = Signer::new().public().to_string();
    desk.run(&format!("trust add {key} --for github://acme/*")).ok();
    let listed = desk.run("trust list --format json").json();
    assert_eq!(listed[0]["scopes"], json!(["github://acme/*"]), "{listed}");
    assert_eq!(listed[0]["status"], "trusted");
    let id = listed[0]["id"].as_str().unwrap().to_owned();
    desk.run(&format!("trust revoke {}", &id[..12])).ok();
    assert_eq!(desk.run("trust list --format json").json()[0]["status"], "revoked");
    let again = desk.run(&format!("trust add {key} --for github://acme/*"));
    assert_ne!(again.code, Some(0), "a revoked key is not trusted again by accident");
    desk.run(&format!("trust remove {id}")).ok();
    assert_eq!(desk.run("trust list --format json").json(), json!([]));
    let everything = desk.run(&format!("trust add {key} --for *"));
    assert_eq!(everything.code, Some(2), "{}", everything.stderr);
}

#[test]
fn outcome_goes_to_stdout_and_class_to_the_exit_code() {
    let cli = example_cli();
    let value = cli.run(&["call", "github://cofferdam/hello", "divide", r#"{"dividend": 7, "divisor": 2}"#]);
    assert_eq!(value.stderr, "", "a call that works says nothing else");
    assert_eq!(value.json(), json!([3, 1]));
    let upstream = shared_host().upstream.host_port();
    let url = |path: &str| format!("url={}", shared_host().upstream.url(path));
    let elsewhere = format!("url={}", shared_host().elsewhere.url("/text/x"));
    let closed = format!("url=http://localhost:{}/", shared_host().closed_port);
    let closed_host = format!("localhost:{}", shared_host().closed_port);
    // A command waits between attempts in earnest: here what fails in passing is not repeated.
    let cases: [(&str, &[&str], u8); 7] = [
        ("fetch", &["--arg", &elsewhere], 77),
        ("post", &["--arg", &url("/status/503"), "--arg", "body=once", "--allow-private", &upstream], 76),
        ("post", &["--arg", &closed, "--arg", "body=once", "--allow-private", &closed_host], 69),
        ("fetch", &["--arg", &url("/text/x")], 77),
        ("spin", &["--fuel", "1000000"], 73),
        ("sleep", &["--arg", "ms=60000", "--timeout", "100ms"], 73),
        ("panic", &["--arg", "message=the blue parrot"], 70),
    ];
    for (op, args, code) in cases {
        let base = ["call", "github://cofferdam/probe", op];
        let human = cli.run(&[&base[..], args].concat()).fails(code);
        assert_eq!(human.stdout, "", "{op} {args:?}");
        assert!(human.stderr.contains("audit-"), "{}", human.stderr);
        let json = cli.run(&[&base[..], args, &["--format", "json"]].concat()).fails(code);
        let envelope: Value = serde_json::from_str(&json.stdout).unwrap();
        envelope::check_json(&envelope);
        assert_eq!(json.stdout.lines().count(), 1);
        // A panic's message is shown to the operator as the connector's own words, and is in no envelope.
        let mut by_the_host = human.stderr.lines().filter(|line| !line.starts_with("connector: "));
        assert!(!json.stdout.contains("parrot") && !by_the_host.any(|line| line.contains("parrot")));
    }
    let verbose =
        cli.run(&["call", "github://cofferdam/probe", "panic", "--arg", "message=the blue parrot", "-v"]);
    assert!(verbose.stderr.contains("the blue parrot"), "the operator can see it: {}", verbose.stderr);
}

#[test]
fn user_errors_have_a_fix_and_an_exit_code() {
    let cli = example_cli();
    let cases: [(&[&str], u8, &str); 10] = [
        (&["call", "github://cofferdam/hello", "greeet"], 66, "greet"),
        (&["call", "github://cofferdam/helo", "greet"], 66, "github://cofferdam/hello"),
        (&["call", "github://cofferdam/hello", "greet", "{name: 1}"], 65, "JSON"),
        (&["call", "github://cofferdam/hello", "greet", "{}"], 65, "name"),
        (&["call", "github://cofferdam/hello", "greet", "@/nowhere/args.json"], 66, "/nowhere/args.json"),
        (&["call", "hello", "greet"], 66, "github://cofferdam/hello"),
        (&["install", "/nowhere/x.wasm"], 66, "/nowhere/x.wasm"),
        (&["inspect", "/etc/hostname"], 65, "not a WebAssembly component"),
        (&["call", "github://cofferdam/hello", "greet", "--timeout", "forever"], 2, "500ms"),
        (&["cal"], 2, "call"),
    ];
    for (args, code, says) in cases {
        let ran = cli.run(args).fails(code);
        assert!(ran.stderr.contains(says), "{args:?}: expected `{says}` in: {}", ran.stderr);
        if code != 2 {
            assert!(ran.stderr.contains("fix:"), "{args:?}: {}", ran.stderr);
            let json = cli.run(&[args, &["--format", "json"]].concat()).fails(code);
            envelope::check_host_json(&json.envelope());
        }
    }
}

#[test]
fn arguments_are_read_from_a_file_or_a_pipe() {
    let desk = desk();
    let cli = example_cli();
    fs::write(desk.path("args.json"), r#"{"name": "Ada"}"#).unwrap();
    let from_file = format!("@{}", desk.path("args.json").display());
    let value = cli.run(&["call", "github://cofferdam/hello", "greet", &from_file]).json();
    assert_eq!(value["text"], "Good day, Ada.");
    let mut piped = cli.command(&["call", "github://cofferdam/hello", "greet", "-"]);
    piped.stdin(fs::File::open(desk.path("args.json")).unwrap());
    let output = piped.output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("Good day, Ada."));
}

#[test]
fn the_configuration_can_allow_a_private_host() {
    let desk = desk();
    let (name, bytes) = shared_host().packages.iter().find(|(name, _)| *name == "probe").unwrap();
    assert_eq!(*name, "probe");
    let signer = Signer::new();
    desk.home.trust(&signer.public(), "github://cofferdam/*");
    signer.write(desk.path("probe.wasm"), bytes);
    desk.install("probe.wasm").ok();
    let url = format!("url={}", shared_host().upstream.url("/text/configured"));
    let call = ["call", "github://cofferdam/probe", "fetch", "--arg", &url];
    desk.cli.run(&call).fails(77).said("allow");
    let allowed = format!("[network]\nallow_private = [\"{}\"]\n", shared_host().upstream.host_port());
    fs::write(desk.path("config.toml"), allowed).unwrap();
    assert_eq!(desk.cli.run(&call).json()["body"], "configured");
    fs::write(desk.path("config.toml"), "[network]\nallow_privat = []\n").unwrap();
    let ran = desk.cli.run(&call);
    assert_ne!(ran.code, Some(0));
    assert!(ran.stderr.contains("config.toml:2") || ran.stderr.contains("allow_private"), "{}", ran.stderr);
}

#[test]
fn command_line_limits_apply_and_usage_is_reported() {
    let cli = example_cli();
    let hello = ["call", "github://cofferdam/hello", "greet", "--arg", "name=Ada"];
    let with = |options: &[&str]| cli.run(&[&hello[..], options].concat());
    for (options, words) in [
        (["--fuel", "0"], "--fuel"),
        (["--fuel", "-1"], "--fuel"),
        (["--fuel", "99999999999999999999"], "--fuel"),
        (["--wall-time", "0s"], "--wall-time"),
        (["--wall-time", "-1s"], "--wall-time"),
        (["--memory", "-64MiB"], "--memory"),
        (["--wall-time", "18446744073709551615m"], "--wall-time"),
        (["--memory", "0MiB"], "--memory"),
        (["--memory", "17179869184GiB"], "--memory"),
    ] {
        with(&options).fails(2).said(words);
    }
    for (options, words) in [
        (["--fuel", "300000000001"], "fuel"),
        (["--wall-time", "6m"], "wall_time"),
        (["--memory", "2GiB"], "memory"),
    ] {
        let ran = with(&options).fails(65);
        assert!(ran.stderr.contains(words) && ran.stderr.contains("the caller"), "{}", ran.stderr);
    }
    let ran = with(&["--usage", "--wall-time", "9s", "--fuel", "1000000000", "--memory", "32MiB"]);
    assert!(ran.stderr.contains("of 9000 ms") && ran.stderr.contains("of 1000000000 fuel"), "{}", ran.stderr);
    assert!(ran.stderr.contains("of 32768 KiB of memory (grown 0 times, "), "{}", ran.stderr);
    let answer = with(&["--usage", "--format", "json", "--timeout", "9s"]).json();
    assert_eq!(answer["usage"]["wall_limit_ms"], 9_000);
    assert!(answer["value"].is_object() && answer["usage"]["fuel"].as_u64() > Some(0), "{answer}");
    let plain = with(&["--format", "json"]).json();
    assert_eq!(plain, answer["value"], "only if asked");
    let spin =
        ["call", "github://cofferdam/probe", "spin", "--fuel", "1000000", "--usage", "--format", "json"];
    let ran = cli.run(&spin).fails(73);
    let answer: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(answer["error"]["details"]["limit"], "fuel");
    assert_eq!(
        (&answer["usage"]["fuel"], &answer["usage"]["fuel_limit"]),
        (&json!(1_000_000), &json!(1_000_000))
    );
}

/// A call that is ended by `signal` once the server has seen its request.
fn ended_by(signal: &str, path: &str, op: &str, more: &[&str]) -> std::process::Output {
    let url = format!("url={}", shared_host().upstream.url(path));
    let allowed = shared_host().upstream.host_port();
    let args = ["call", "github://cofferdam/probe", op, "--arg", &url, "--allow-private", &allowed];
    let args = [&args[..], more].concat();
    let mut child =
        example_cli().command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while shared_host().upstream.seen(path).is_empty() {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    if path.starts_with("/status/") {
        // Until it waits: the answer is there, and the next attempt a second away.
        std::thread::sleep(std::time::Duration::from_millis(300));
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    child.wait_with_output().unwrap()
}

#[test]
fn ctrl_c_ends_the_call_and_its_request() {
    let output = ended_by("-INT", "/hang/ctrl-c", "fetch", &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(output.stdout.is_empty());
    assert!(said.contains("cancelled") && said.contains("effects") && !said.contains("error"), "{said}");
    crate::cancellation::abandoned(&shared_host().upstream, "/hang/ctrl-c");
}

/// The exit code does not depend on a reader of the output.
#[test]
fn a_failed_call_that_nobody_reads_fails() {
    let args = ["call", "github://cofferdam/probe", "nothing", "--format", "json"];
    let code = example_cli().command(&args).output().unwrap().status.code();
    assert_ne!(code, Some(0));
    let mut unread =
        example_cli().command(&args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    drop(unread.stdout.take());
    assert_eq!(unread.wait().unwrap().code(), code);
}

#[test]
fn ctrl_c_names_the_key_to_repeat_with() {
    let more = ["--arg", "body=b", "--arg", "labels=[\"only\"]"];
    let output = ended_by("-INT", "/hang/int-with-key", "order", &more);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    let seen = shared_host().upstream.seen("/hang/int-with-key");
    let key = seen[0].header("idempotency-key").unwrap().strip_suffix(":only").unwrap();
    let fix = format!("make the same call under the idempotency key {key} alone.");
    assert!(said.contains("fix: Look at the service") && said.contains(&fix), "{key}: {said}");
}

/// One line on standard output in any case: the second envelope, never a class.
#[test]
fn a_signal_is_reported_as_json_between_attempts() {
    for (signal, name, code, path) in [
        ("-INT", "SIGINT", 130, "/hang/json-int"),
        ("-TERM", "SIGTERM", 143, "/hang/json-term"),
        // The response asks for a wait that would fit, so the call is in backoff when the signal arrives.
        ("-INT", "SIGINT", 130, "/status/503?retry_after=20&wait=int"),
        ("-TERM", "SIGTERM", 143, "/status/503?retry_after=20&wait=term"),
    ] {
        let output = ended_by(signal, path, "fetch", &["--format", "json"]);
        assert_eq!(output.status.code(), Some(code), "{path}: {}", String::from_utf8_lossy(&output.stderr));
        let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
        envelope::check_host_json(&envelope);
        assert_eq!(envelope["error"]["code"], "cancelled", "{path}");
        let details = &envelope["error"]["details"];
        assert_eq!((&details["signal"], &details["attempts"]), (&json!(name), &json!(1)), "{path}");
        assert_eq!(shared_host().upstream.seen(path).len(), 1, "{path}: no further attempt");
    }
}

#[test]
fn a_closed_output_pipe_is_not_an_error() {
    let mut child = example_cli()
        .command(&["inspect", "github://cofferdam/probe"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn colour_is_only_for_terminals() {
    let plain = example_cli().run(&["inspect", "github://cofferdam/hello"]).ok();
    assert!(!plain.contains('\u{1b}'));
    let coloured = example_cli().run(&["inspect", "github://cofferdam/hello", "--color", "always"]).ok();
    assert!(coloured.contains('\u{1b}'));
}

#[test]
fn inspect_shows_risks_to_the_reviewer() {
    let page = example_cli().run(&["inspect", "github://cofferdam/probe", "--verbose"]).ok();
    for shown in [
        "github://cofferdam/probe@0.1.0",
        "sha256:",
        "wasi:http/outgoing-handler",
        &shared_host().upstream.host_port(),
        "64 MiB",
        "fuel",
        "swallow_denial",
        "Gets a URL and makes light of any error",
    ] {
        assert!(page.contains(shown), "`{shown}` is not on the page:\n{page}");
    }
    let tampered = tampered_copy();
    let page = Cli::new(COFFERDAM, tampered.path()).run(&["inspect", "github://acme/quiet"]);
    assert!(format!("{}{}", page.stdout, page.stderr).contains("CHANGED"), "{page:?}");
}

/// A home whose only package was changed after its installation, in its docs section.
fn tampered_copy() -> Home {
    let home = Home::new(COFFERDAM);
    let signer = Signer::new();
    home.trust(&signer.public(), "github://acme/*");
    let docs = r#"{"operations":{"run":{"docs":"Harmless."}}}"#;
    let manifest = package::manifest("github://acme/quiet", "1.0.0");
    let docs = cofferdam_model::package::ConnectorDocs::parse(docs.as_bytes()).unwrap();
    let bytes = cofferdam_model::package::embed(&package::quiet(), &manifest, &docs).unwrap();
    crate::shared_host::run(home.install(&bytes, &signer)).unwrap();
    let at = bytes.windows(9).position(|window| window == b"Harmless.").unwrap();
    let mut changed = bytes.clone();
    changed[at] = b'h';
    fs::write(home.installed_file(&bytes), changed).unwrap();
    home
}

#[test]
fn help_has_examples() {
    let cli = example_cli();
    let top = cli.run(&["--help"]).ok();
    let commands = [
        "build", "pack", "key", "sign", "trust", "install", "list", "inspect", "why", "verify", "remove",
        "call",
    ];
    for command in commands {
        assert!(top.contains(command), "{command} is not in the help");
        let help = cli.run(&[command, "--help"]).ok();
        assert!(help.contains("--format"), "{command} has no --format");
        assert!(help.contains("xamples") || help.contains("Commands"), "{command} shows no example");
    }
    assert!(cli.run(&["--version"]).ok().contains(env!("CARGO_PKG_VERSION")));
}

#[test]
fn read_commands_write_no_files() {
    let desk = desk();
    let before = desk.home.snapshot();
    for line in ["list", "trust list", "--help", "inspect github://acme/none", "call github://acme/none run"]
    {
        drop(desk.run(line));
    }
    assert_eq!(desk.home.snapshot(), before);
    assert!(!Path::new("cofferdam.key").exists());
}
