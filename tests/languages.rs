//! Connectors in other languages, built by their own tools: whole interpreters pass every check and limit, and the
//! HTTP helpers of `guest-sdk` do what they say.
//!
//! `tests/languages/tools/install.sh` installs the tools into the build directory. If it cannot, the tests say why
//! and check nothing; with `$COFFERDAM_REQUIRE_SERVICES`, as in CI, that is a failure. Components are built again when
//! their sources or their tools change, and the compiled code is kept between runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use cofferdam::{Host, InstallOptions};
use cofferdam_core::digest::Digest;
use cofferdam_test_support::services::Tools;
use cofferdam_test_support::{Home, InstallAccepted as _, Signer, Upstream, package};
use serde_json::{Value, json};

use crate::COFFERDAM;
use crate::envelope;
use crate::shared_host::{example, failed, run};

/// A language that `examples/text` is written in.
struct Language {
    name: &'static str,
    source: &'static str,
    /// The file of `guest-sdk` that is copied next to the source.
    helper: &'static str,
    /// The fixed address of its upstream, so that the package is the same in every run.
    port: u16,
    build: fn(&Path, &Path, &Path) -> Command,
}

const PYTHON: Language = Language {
    name: "python",
    source: "app.py",
    helper: "python/cofferdam.py",
    port: 28_417,
    build: componentize_py,
};
const JAVASCRIPT: Language = Language {
    name: "javascript",
    source: "app.js",
    helper: "javascript/cofferdam.js",
    port: 28_418,
    build: componentize_js,
};

impl Language {
    /// Returns the files of a connector's directory: its source, and the helper.
    fn files(&self) -> [PathBuf; 2] {
        let repository = package::repository();
        [repository.join("examples/text").join(self.source), repository.join("guest-sdk").join(self.helper)]
    }
}

/// The directory that is kept between runs.
fn kept() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("languages")
}

/// The directory of the tools, installed on first use; otherwise the reason why there are none.
fn tools() -> Result<&'static Path, &'static str> {
    static TOOLS: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let install = || {
        let dir = kept().join("tools");
        let script = package::repository().join("tests/languages/tools/install.sh");
        let output =
            Command::new("bash").arg(script).arg(&dir).output().map_err(|error| error.to_string())?;
        done(output).map(|()| dir)
    };
    TOOLS.get_or_init(install).as_deref().map_err(String::as_str)
}

fn done(output: Output) -> Result<(), String> {
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rev().take(12).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>();
    if output.status.success() { Ok(()) } else { Err(last.join("\n")) }
}

/// The tool for Python, with the world of the example.
fn python_tool(tools: &Path) -> Command {
    let mut command = Command::new(tools.join("python/bin/componentize-py"));
    command
        .args(["--quiet", "--world", "cofferdam:text/text-connector"])
        .arg("--wit-path")
        .arg(package::repository().join("wit"))
        .arg("--wit-path")
        .arg(package::repository().join("examples/text/wit"))
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

fn componentize_py(tools: &Path, build: &Path, component: &Path) -> Command {
    let mut command = python_tool(tools);
    command.current_dir(build).args(["componentize", "app", "--python-path", ".", "--output"]).arg(component);
    command
}

fn componentize_js(tools: &Path, build: &Path, component: &Path) -> Command {
    let repository = package::repository();
    let copy = |from: &Path, to: &Path| {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap().flatten().filter(|entry| entry.path().is_file()) {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    };
    copy(&repository.join("examples/text/wit"), &build.join("wit"));
    copy(&repository.join("wit"), &build.join("wit/deps/cofferdam"));
    copy(&repository.join("wit/deps"), &build.join("wit/deps"));
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(tools.join("node_modules/.bin/componentize-js"));
    command
        .current_dir(build)
        .args(["app.js", "-w", "wit", "-n", "text-connector", "-d", "fetch-event", "-o"])
        .arg(component)
        .env("PATH", format!("{}:{path}", tools.join("python/bin").display()));
    command
}

/// Everything that decides what a component of the language is.
fn sources_digest(language: &Language) -> Digest {
    let repository = package::repository();
    let mut files = language.files().to_vec();
    files.push(repository.join("tests/languages.rs"));
    let tools = ["tests/languages/tools", "host/cli/src/project/javascript"];
    for dir in ["examples/text/wit", "wit", "wit/deps"].iter().chain(&tools) {
        files.extend(fs::read_dir(repository.join(dir)).unwrap().map(|entry| entry.unwrap().path()));
    }
    files.sort();
    let read = |path: &PathBuf| fs::read(path).unwrap_or_default();
    Digest::sha256(&files.iter().flat_map(read).collect::<Vec<_>>())
}

/// The tools; none, visibly, where they cannot be installed.
fn tools_for(language: &Language) -> Option<&'static Path> {
    match tools() {
        Ok(tools) => Some(tools),
        Err(why) => {
            assert!(
                !Tools::required(),
                "COFFERDAM_REQUIRE_SERVICES is set, and the tools are not installed: {why}"
            );
            crate::skipped(&format!(
                "no connector in {} is tried; its tools cannot be installed: {why}",
                language.name
            ));
            None
        }
    }
}

/// The component of the language; none, visibly, where its tools cannot be installed.
fn component(language: &Language) -> Option<Vec<u8>> {
    let name = format!("{}-{}.wasm", language.name, sources_digest(language));
    let there = kept().join(&name);
    if let Ok(component) = fs::read(&there) {
        return Some(component);
    }
    let tools = tools_for(language)?;
    // The tools have to take such a path, too.
    let build = tempfile::Builder::new().prefix("a path with spaces ").tempdir().unwrap();
    for file in language.files() {
        fs::copy(&file, build.path().join(file.file_name().unwrap())).unwrap();
    }
    let made = build.path().join("text.wasm");
    let output = (language.build)(tools, build.path(), &made).output().unwrap();
    done(output).unwrap_or_else(|why| panic!("{}: {why}", language.name));
    let component = fs::read(made).unwrap();
    // A cached build of other sources is not used.
    let old = fs::read_dir(kept()).unwrap().flatten().filter(|entry| {
        let file = entry.file_name().to_string_lossy().into_owned();
        file.starts_with(language.name) && file.ends_with(".wasm")
    });
    old.for_each(|entry| drop(fs::remove_file(entry.path())));
    let new = tempfile::NamedTempFile::new_in(kept()).unwrap();
    fs::write(new.path(), &component).unwrap();
    new.persist(there).unwrap();
    Some(component)
}

/// Copies the compiled code of a home, and the key that it is bound to, where the other has none.
fn copy_code(from: &Path, to: &Path) {
    if !from.join("host.key").is_file() {
        return;
    }
    drop(fs::remove_dir_all(to.join("cache")));
    fs::create_dir_all(to).unwrap();
    fs::set_permissions(to, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    fs::copy(from.join("host.key"), to.join("host.key")).unwrap();
    let cache = to.join("cache");
    fs::create_dir_all(&cache).unwrap();
    for entry in fs::read_dir(from.join("cache")).into_iter().flatten().flatten() {
        fs::copy(entry.path(), cache.join(entry.file_name())).unwrap();
    }
}

/// The example in one language, installed.
struct Text {
    host: Host,
    upstream: Upstream,
    bytes: Vec<u8>,
    _home: Home,
}

impl Text {
    fn installed(language: &Language) -> Option<Self> {
        let component = component(language)?;
        assert!(component.len() > 10_000_000, "an interpreter is inside: {} bytes", component.len());
        let (signer, home) = (Signer::new(), Home::new(COFFERDAM));
        let upstream = Upstream::start_at(language.port);
        let code = kept().join("code").join(language.name);
        copy_code(&code, home.path());
        let bytes = package::example_package(&component, "text", &[upstream.grant()]);
        home.trust(&signer.public(), "github://cofferdam/*");
        let host = home.builder().allow_private(upstream.host_port()).build().unwrap();
        run(host.install_accepted(bytes.clone(), Some(signer.sign(&bytes)), InstallOptions::default()))
            .unwrap();
        copy_code(home.path(), &code);
        Some(Self { host, upstream, bytes, _home: home })
    }

    fn call(&self, op: &str, args: Value) -> Result<Value, cofferdam::Error> {
        run(self.host.call(&example("text"), op, args))
    }

    /// The operations that the example has in every language.
    fn does_its_operations(&self) {
        let upstream = &self.upstream;
        let text = "zwölf Boxkämpfer\njagen";
        let count = self.call("count_text", json!({"text": text})).unwrap();
        assert_eq!(count, json!({"characters": 22, "words": 3, "lines": 2}), "a record, and no list");
        let words = self.call("words", json!({"text": text})).unwrap();
        assert_eq!(words, json!(["zwölf", "Boxkämpfer", "jagen"]), "a list");
        assert_eq!(self.call("words", json!({"text": ""})).unwrap(), json!([]));

        let page = self.call("count_page", json!({"url": upstream.url("/text/hello")})).unwrap();
        assert_eq!(page["characters"], 5);
        let long = "word ".repeat(10_000);
        let args = json!({"url": upstream.url("/echo"), "text": long});
        let published = self.call("publish", args).unwrap();
        assert_eq!(published["status"], 200);
        let seen = upstream.seen("/echo").pop().unwrap();
        assert_eq!((seen.method.as_str(), seen.body.len()), ("POST", long.len()), "a POST with a body");
        assert!(seen.body == long.as_bytes());
        assert_eq!(seen.header("content-length"), Some("50000"));
        assert!(
            seen.header("idempotency-key").unwrap().ends_with(":publish"),
            "the key of the call, and a label"
        );

        let failure = failed(self.call("substitute", json!({"pattern": "(", "replacement": "", "text": ""})));
        assert_eq!(failure.code(), "input_invalid", "a failure");
        let failure = failed(self.call("count_page", json!({"url": upstream.url("/status/503")})));
        assert_eq!(failure.details()["status"], 503);
        let failure = failed(self.call("publish", json!({"url": upstream.url("/status/400"), "text": "x"})));
        assert_eq!(failure.details()["status"], 400);
        let failure = failed(self.call("count_page", json!({"url": "no url"})));
        assert_eq!(failure.details()["connector_code"], "invalid_request");
        let failure = failed(self.call("count_page", json!({"url": "https://elsewhere.example/"})));
        envelope::check(&failure, envelope::denied("host_not_granted"));
    }
}

#[test]
fn a_python_connector_runs_within_limits() {
    let Some(text) = Text::installed(&PYTHON) else { return };
    let verdicts = cofferdam_model::package::Package::open(text.bytes.clone()).unwrap().import_verdicts();
    let shut = verdicts.iter().filter(|it| it.status().name() == "shut");
    assert!(shut.clone().count() > 0 && shut.clone().all(|it| it.name().starts_with("wasi:sockets/")));
    text.does_its_operations();
    let args = json!({"pattern": "(\\w)o", "replacement": "\\g<1>0", "text": "fo go"});
    assert_eq!(text.call("substitute", args).unwrap(), "f0 g0");
    let failure = failed(text.call("open_socket", json!({})));
    envelope::check(&failure, envelope::denied("capability_unavailable"));
    assert!(failure.details()["requested"].as_str().unwrap().starts_with("import:wasi:sockets/"));
}

#[test]
fn a_javascript_connector_runs_within_limits() {
    let Some(text) = Text::installed(&JAVASCRIPT) else { return };
    text.does_its_operations();
    let args = json!({"pattern": "(\\w)o", "replacement": "$10", "text": "fo go"});
    assert_eq!(text.call("substitute", args).unwrap(), "f0 g0");
    let failure = failed(text.call("open_socket", json!({})));
    assert_eq!(failure.details()["connector_message"], "no sockets in JavaScript");
}

#[test]
fn the_python_helper_passes_its_own_tests() {
    let Some(tools) = tools_for(&PYTHON) else { return };
    let bindings = tempfile::tempdir().unwrap();
    done(python_tool(tools).arg("bindings").arg(bindings.path()).output().unwrap()).unwrap();
    let repository = package::repository();
    let helper = repository.join("guest-sdk/python");
    let path = [bindings.path(), helper.as_path()].map(|dir| dir.display().to_string());
    let mut python = Command::new(tools.join("python/bin/python"));
    python.arg(repository.join("tests/languages/cofferdam_test.py")).env("PYTHONPATH", path.join(":"));
    let output = python.env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_javascript_helper_passes_its_own_tests() {
    let Some(tools) = tools_for(&JAVASCRIPT) else { return };
    let mut node = Command::new(tools.join("python/bin/node"));
    node.arg("--test").arg(package::repository().join("tests/languages/cofferdam.test.mjs"));
    let output = node.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
