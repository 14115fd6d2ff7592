//! `cofferdam dev` and `call --dev`: a connector under development runs as it ships, against local services.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

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
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.path("token.txt");
        fs::write(&path, "ghp-development-token\n").unwrap();
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
    assert_eq!(session.hear("call")["value"], "warm");

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
