//! `cofferdam dev` and `call --dev`: a connector under development runs as it ships, against local services.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use cofferdam_test_support::{Cli, Upstream, package};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::COFFERDAM;
use crate::cli::with_toolchain;

const GITHUB: &str = "api.github.com:443";

/// A directory of the test's own with a copy of an example's sources.
pub(crate) struct Workplace {
    dir: TempDir,
    pub(crate) cli: Cli,
}

impl Workplace {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let cli = Cli::new(COFFERDAM, dir.path());
        Self { dir, cli }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn token(&self) -> String {
        self.secret("token.txt", "ghp-development-token\n")
    }

    /// A file that its owner alone can read.
    fn secret(&self, name: &str, text: &str) -> String {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path.display().to_string()
    }

    /// A project with one operation, `feels`, that says `warm`.
    pub(crate) fn weather(&self) -> PathBuf {
        let dir = self.path("my weather");
        fs::create_dir_all(dir.join("src")).unwrap();
        fs::create_dir_all(dir.join("wit")).unwrap();
        let sdk = package::repository().join("guest-sdk");
        let files = [
            (
                "Cargo.toml",
                format!(
                    "[package]\nname = \"weather\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[lib]\ncrate-type = [\"cdylib\"]\n\
                 [dependencies]\ncofferdam-guest = {{ path = \"{}\" }}\n[workspace]\n",
                    sdk.display()
                ),
            ),
            (
                "connector.toml",
                "[connector]\nname = \"github://acme/weather\"\nversion = \"0.1.0\"\n".to_owned(),
            ),
            (
                "wit/weather.wit",
                "package acme:weather@0.1.0;\n/// The weather.\ninterface weather {\n    \
              use cofferdam:connector/types@0.1.0.{failure};\n    /// Describes a temperature.\n    \
              feels: func(celsius: f64) -> result<string, failure>;\n}\n"
                    .to_owned(),
            ),
            ("src/lib.rs", SOURCE.to_owned()),
        ];
        for (name, text) in files {
            fs::write(dir.join(name), text).unwrap();
        }
        // The SDK's versions are those of the examples, which a machine without a network has.
        fs::copy(package::repository().join("examples/Cargo.lock"), dir.join("Cargo.lock")).unwrap();
        dir
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.cli.command(args);
        with_toolchain(&mut command).env("XDG_CACHE_HOME", self.path("cache"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a command with `input` to its end; its exit code, lines of JSON and standard error.
    pub(crate) fn piped(&self, args: &[&str], input: &str) -> (Option<i32>, Vec<Value>, String) {
        let mut child = self.command(args).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let lines = String::from_utf8_lossy(&output.stdout).lines().map(json_line).collect();
        (output.status.code(), lines, String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

const SOURCE: &str = "\
use cofferdam_guest::{Failure, connector};
connector!(\"wit/weather.wit\", Weather);
struct Weather;
impl Guest for Weather {
    fn feels(celsius: f64) -> Result<String, Failure> {
        assert!(celsius > -273.15, \"colder than possible\");
        println!(\"thermometer read\");
        Ok(\"warm\".into())
    }
}
";

fn json_line(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"))
}

/// A `dev` that is fed line by line.
struct Session {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Session {
    fn start(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    fn say(&mut self, line: &str) {
        self.input.write_all(line.as_bytes()).and_then(|()| self.input.write_all(b"\n")).unwrap();
    }

    /// The next line about `event`.
    fn hear(&mut self, event: &str) -> Value {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "it ended before `{event}`");
            let line = json_line(&line);
            if line["event"] == event {
                return line;
            }
        }
    }

    fn end(mut self) -> Option<i32> {
        drop(self.input);
        self.child.wait().unwrap().code()
    }
}

pub(crate) fn replace(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(from));
    fs::write(path, text.replace(from, to)).unwrap();
}

#[test]
fn a_save_is_built_and_swapped_in() {
    let place = Workplace::new();
    let dir = place.weather();
    let mut session = Session::start(place.command(&["dev", dir.to_str().unwrap(), "--format", "json"]));
    let first = session.hear("built");
    assert_eq!(
        (&first["connector"], &first["operations"]),
        (&json!("github://acme/weather@0.1.0"), &json!(["feels"]))
    );
    session.say("feels celsius=21");
    let call = session.hear("call");
    assert_eq!((&call["value"], &call["stdout"]), (&json!("warm"), &json!("thermometer read")), "{call}");

    replace(&dir.join("src/lib.rs"), "\"warm\"", "\"hot\"");
    assert_ne!(session.hear("built")["hash"], first["hash"]);
    session.say("feels {\"celsius\": 21}");
    let call = session.hear("call");
    assert_eq!((&call["value"], &call["operation"]), (&json!("hot"), &json!("feels")));
    assert!(call["attempts"][0]["usage"]["fuel"].as_u64().unwrap() > 0, "{call}");

    // A mistake leaves the build before in place.
    replace(&dir.join("src/lib.rs"), "Ok(", "Oh(");
    assert_eq!(session.hear("not_built")["error"]["code"], "tool");
    session.say("feels celsius=1");
    assert_eq!(session.hear("call")["value"], "hot");

    // Only the manifest: nothing is compiled by cargo.
    replace(&dir.join("src/lib.rs"), "Oh(", "Ok(");
    session.hear("built");
    replace(&dir.join("connector.toml"), "0.1.0", "0.2.0");
    assert_eq!(session.hear("built")["connector"], "github://acme/weather@0.2.0");

    // A panic, with its line, for the author.
    session.say("feels celsius=-300");
    let panicked = session.hear("call");
    assert_eq!(panicked["error"]["class"], "connector_runtime_error");
    let failure = &panicked["attempts"][0]["failure"];
    assert!(failure["stderr"].to_string().contains("src/lib.rs:6:"), "{panicked}");
    let innermost = failure["frames"][0].as_str().unwrap();
    assert!(innermost.contains("feels at ") && innermost.ends_with("src/lib.rs:6"), "{failure}");
    assert_eq!(session.end(), Some(70), "the exit code of the last failure");
}

#[test]
fn a_mapped_service_is_called_as_the_real_one() {
    let (place, service) = (Workplace::new(), Upstream::start());
    let project = package::repository().join("examples/github-issues");
    let mapping = format!("{GITHUB}=http://{}", service.host_port());
    let bind = format!("bearer/github=@{}", place.token());
    let args =
        ["dev", project.to_str().unwrap(), "--format", "json", "--upstream", &mapping, "--bind", &bind];
    let line = "list-issues {\"repository\": {\"owner\": \"acme\", \"name\": \"issues-2\"}}\n";
    let (code, lines, stderr) = place.piped(&args, line);
    assert_eq!(code, Some(0), "{lines:?} {stderr}");
    let call = lines.iter().find(|line| line["event"] == "call").unwrap();
    let request = &call["attempts"][0]["requests"][0];
    assert_eq!((&request["host"], &request["status"]), (&json!(GITHUB), &json!(200)), "{call}");
    assert_eq!(request["bindings"], json!(["bearer/github/default"]));
    let seen = service.seen("/repos/acme/issues-2/issues");
    assert_eq!(seen[0].header("authorization"), Some("Bearer ghp-development-token"));
    assert_eq!(seen[0].header("host"), Some("api.github.com"));
    // Neither secrets nor calls outlive the command.
    let homes = place.path("cache/cofferdam/dev");
    let home = fs::read_dir(homes).unwrap().next().unwrap().unwrap().path();
    let kept: Vec<_> = fs::read_dir(home).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(
        kept.iter().all(|name| ["cache", "host.key", "dev.lock"].iter().any(|it| name == it)),
        "{kept:?}"
    );
}

#[test]
fn one_package_is_called_without_an_install() {
    let (place, service) = (Workplace::new(), Upstream::start());
    let package = place.path("issues.wasm");
    fs::write(&package, package::guest_package("github-issues", &[])).unwrap();
    let mapping = format!("{GITHUB}=http://{}", service.host_port());
    let call = [
        "call",
        package.to_str().unwrap(),
        "list_issues",
        "{\"repository\": {\"owner\": \"acme\", \"name\": \"issues-2\"}}",
    ];
    let with = |more: &[&str]| place.piped(&[&call, more].concat(), "");
    let (code, _, stderr) = with(&["--dev", "--upstream", &mapping, "--format", "json"]);
    assert_eq!((code, service.seen("/repos/acme/issues-2/issues").len()), (Some(0), 1), "{stderr}");
    let (code, _, stderr) = with(&["--upstream", &mapping]);
    assert!(code == Some(65) && stderr.contains("--dev"), "{stderr}");
    assert!(!place.path("packages").exists(), "nothing is installed in the user's home");
}

#[test]
fn credentials_of_several_parts_are_bound_from_a_document() {
    let (place, service) = (Workplace::new(), Upstream::start());
    let local = format!("=http://{}", service.host_port());
    let s3 = place.path("s3.wasm");
    fs::write(&s3, package::guest_package("s3", &[])).unwrap();
    let get =
        ["call", s3.to_str().unwrap(), "get_object", "{\"bucket\": {\"name\": \"photos\"}, \"key\": \"k\"}"];
    let upstream = format!("s3.us-east-1.amazonaws.com:443{local}");
    let bound = |text: &str| {
        let bind = format!("aws_sigv4/s3=@{}", place.secret("aws.json", text));
        place.piped(&[&get[..], &["--dev", "--upstream", &upstream, "--bind", &bind]].concat(), "").2
    };
    let keys =
        r#"{"access_key_id": "AKIDEXAMPLE", "secret_access_key": "canary-of-forty-characters-0123456789ab"}"#;
    let said = bound(keys);
    let seen = service.seen("/photos/k");
    let signed =
        seen.first().and_then(|seen| seen.header("authorization")).unwrap_or_else(|| panic!("{said}"));
    assert!(signed.contains("Credential=AKIDEXAMPLE/") && signed.contains("/us-east-1/s3/"), "{signed}");
    for (text, part) in [
        (r#"{"secret_access_key": "canary-0123456789"}"#, "aws.json: The access_key_id is missing"),
        (r#"{"access_key_id": "A"}"#, "aws.json: The secret access key is missing"),
        (
            r#"{"access_key_id": "A", "secret_acess_key": "canary-0123456789"}"#,
            "`secret_access_key`, `session_token`",
        ),
        (r#"{"client_id": "A"}"#, "`client_id`, which this kind has not"),
    ] {
        let said = bound(text);
        assert!(said.contains(part) && !said.contains("canary"), "{text}: {said}");
    }

    let bind = format!("bearer/other=@{}", place.token());
    let (code, _, said) = place.piped(&[&get[..], &["--dev", "--bind", &bind]].concat(), "");
    assert!(code == Some(65) && said.contains("asks for no credential bearer/other"), "{said}");

    let issues = place.path("issues.wasm");
    let manifest = package::guest_manifest("github-issues").replace("\"bearer\"", "\"oauth2\"");
    fs::write(&issues, package::pack(&package::guest("github-issues"), &manifest)).unwrap();
    let parts = r#"{"token_url": "https://id.example/token", "client_id": "me", "client_secret": "canary-0123456789",
        "grant": "client_credentials", "scopes": ["read", "write"]}"#;
    let bind = format!("oauth2/github=@{}", place.secret("oauth.json", parts));
    let [github, issuer] = [GITHUB, "id.example:443"].map(|host| format!("{host}{local}"));
    let list = "{\"repository\": {\"owner\": \"acme\", \"name\": \"issues-2\"}}";
    let call = ["call", issues.to_str().unwrap(), "list_issues", list, "--dev", "--bind", &bind];
    let (_, _, said) =
        place.piped(&[&call[..], &["--upstream", &github, "--upstream", &issuer]].concat(), "");
    let asked = service.seen("/token");
    let form = String::from_utf8_lossy(&asked.first().unwrap_or_else(|| panic!("{said}")).body).into_owned();
    assert!(form.contains("grant_type=client_credentials") && form.contains("scope=read+write"), "{form}");
}

/// The number of processes with an argument that begins with `text`.
fn processes_with(text: &str) -> usize {
    let has_it = |entry: &fs::DirEntry| {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|argument| argument.starts_with(text.as_bytes()))
    };
    fs::read_dir("/proc").unwrap().flatten().filter(has_it).count()
}

#[track_caller]
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_build_that_is_ended_leaves_no_process() {
    let place = Workplace::new();
    let dir = place.weather();
    // No other process has this number of seconds.
    let seconds = format!("{}", 100_000_000 + u64::from(std::process::id()));
    let script = "fn main() { std::process::Command::new(\"sleep\").arg(\"SECONDS\").status().unwrap(); }";
    fs::write(dir.join("build.rs"), script.replace("SECONDS", &seconds)).unwrap();
    let args = ["dev", dir.to_str().unwrap(), "--format", "json"];
    let session = Session::start(place.command(&args));
    wait_until("the build script runs", || processes_with(&seconds) == 1);
    // A save begins another build in the place of this one.
    replace(&dir.join("build.rs"), &seconds, &format!("{seconds}.0"));
    wait_until("the next build script runs", || processes_with(&format!("{seconds}.0")) == 1);
    wait_until("the build before is ended", || processes_with(&seconds) == 1);
    let id = rustix::process::Pid::from_child(&session.child);
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    assert_eq!(session.end(), Some(130));
    wait_until("nothing is left", || processes_with(&seconds) == 0);
}

#[test]
fn a_build_that_fails_decides_the_exit_code() {
    let place = Workplace::new();
    let dir = place.weather();
    replace(&dir.join("src/lib.rs"), "Ok(", "Oh(");
    for input in ["", "feels celsius=1\n"] {
        let (code, _, stderr) = place.piped(&["dev", dir.to_str().unwrap()], input);
        assert!(code == Some(71) && stderr.contains("src/lib.rs"), "{input}: {stderr}");
    }
}

#[test]
fn a_project_is_developed_by_one_process() {
    let place = Workplace::new();
    let dir = place.weather();
    let args = ["dev", dir.to_str().unwrap(), "--format", "json"];
    let mut session = Session::start(place.command(&args));
    session.hear("built");
    let (code, _, stderr) = place.piped(&args, "");
    assert!(code == Some(75) && stderr.contains("Another process"), "{stderr}");
    assert_eq!(session.end(), Some(0));
    let (code, _, stderr) = place.piped(&["dev", place.path("nothing").to_str().unwrap()], "");
    assert!(code == Some(66), "{stderr}");
}
