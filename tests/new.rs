//! `cofferdam new` and `cofferdam build`: new projects build as they are, share their dependencies, and refuse what they
//! would overwrite.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use cofferdam_test_support::golden::assert_committed;
use cofferdam_test_support::{Cli, Home};
use serde_json::Value;

use crate::COFFERDAM;
use crate::cli::with_toolchain;

/// An author's machine: a home, and the directories of a user.
pub(crate) struct Author {
    home: Home,
}

impl Author {
    pub(crate) fn new() -> Self {
        let home = Home::new(COFFERDAM);
        fs::create_dir_all(home.path().join("work")).unwrap();
        Self { home }
    }

    pub(crate) fn work(&self, name: &str) -> PathBuf {
        self.home.path().join("work").join(name)
    }

    /// The command, with the directories of this author and the toolchain of the machine, which must not use a network.
    pub(crate) fn command(&self, dir: &Path, args: &[&str]) -> Command {
        let mut command = Cli::new(COFFERDAM, self.home.path()).in_dir(dir).command(args);
        with_toolchain(&mut command);
        command.env_remove("CARGO_TARGET_DIR").env("CARGO_NET_OFFLINE", "true");
        self.own_directories(&mut command);
        command
    }

    fn own_directories(&self, command: &mut Command) {
        command.env("XDG_CONFIG_HOME", self.home.path().join("config"));
        command.env("XDG_CACHE_HOME", cache());
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command(&self.work(""), args).output().unwrap()
    }

    pub(crate) fn new_project(&self, args: &[&str]) -> Value {
        ok(&self.run(&[&["new", "--format", "json", "--owner", "acme"], args].concat()))
    }
}

/// The shared build directory of these tests, which is kept between runs.
pub(crate) fn cache() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("new")
}

#[track_caller]
pub(crate) fn ok(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[track_caller]
pub(crate) fn refused(output: &Output, code: i32) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{said}");
    said
}

/// The crates that cargo compiled, by what it said.
fn compiled(output: &Output) -> Vec<String> {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines = said.lines().filter_map(|line| line.trim().strip_prefix("Compiling "));
    lines.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

#[test]
fn a_second_connector_compiles_no_dependency_again() {
    let author = Author::new();
    author.new_project(&["weather"]);
    author.new_project(&["issues", "--dir", "a path with spaces/issues"]);
    let build = |dir: &Path| author.command(dir, &["build", "--", "--locked"]).output().unwrap();
    let first = build(&author.work("weather"));
    assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
    assert!(author.work("weather/target/cofferdam/weather-0.1.0.wasm").is_file());
    let second = build(&author.work("a path with spaces/issues"));
    assert!(second.status.success(), "{}", String::from_utf8_lossy(&second.stderr));
    assert_eq!(compiled(&second), ["issues"]);
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!said.contains("warning"), "a new connector has nothing to be warned of: {said}");
    // Here and not in a test of its own, since the two would reuse each other's SDK at random.
    builds_with_a_vendored_sdk(&author);
}

#[test]
fn connectors_of_one_name_are_not_confused() {
    let author = Author::new();
    for owner in ["one", "two"] {
        let dir = format!("{owner}/twin");
        ok(&author.run(&["new", "twin", "--owner", owner, "--dir", &dir, "--format", "json"]));
        let source = author.work(&dir).join("src/lib.rs");
        let text = fs::read_to_string(&source).unwrap().replace("Hello, ", &format!("From {owner}, "));
        fs::write(source, text).unwrap();
    }
    for owner in ["one", "two", "one"] {
        let dir = author.work(&format!("{owner}/twin"));
        let output = author.command(&dir, &["build"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let package = fs::read(dir.join("target/cofferdam/twin-0.1.0.wasm")).unwrap();
        let has = |text: &str| package.windows(text.len()).any(|part| part == text.as_bytes());
        assert!(has(&format!("From {owner}, ")), "{owner}");
    }
}

/// A project with the SDK inside and a service to call.
#[track_caller]
fn builds_with_a_vendored_sdk(author: &Author) {
    let args = ["tickets", "--vendor-sdk", "--http", "api.tickets.example", "--credential", "bearer"];
    assert_eq!(author.new_project(&args)["sdk"], "vendor/cofferdam/guest-sdk");
    let dir = author.work("tickets");
    let repository = cofferdam_test_support::package::repository();
    let manifest = fs::read_to_string(dir.join("Cargo.toml")).unwrap();
    assert!(!manifest.contains(repository.to_str().unwrap()), "{manifest}");
    let built = ok(&author.command(&dir, &["build", "--format", "json", "--", "--locked"]).output().unwrap());
    let names: Vec<_> = built["operations"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["get_item", "create_item"]);
    assert_eq!(built["unused_imports"].as_array().unwrap().len(), 0);
    let package = built["path"].as_str().unwrap();
    let inspected = ok(&author.command(&dir, &["inspect", package, "--format", "json"]).output().unwrap());
    assert_eq!(inspected["network"][0], "api.tickets.example:443");
    assert_eq!(inspected["credentials"][0]["kind"], "bearer");
}

/// The versions in the template are those that cargo finds. With `COFFERDAM_BLESS=1` it is written again.
#[test]
fn the_lock_file_of_new_projects_is_up_to_date() {
    let author = Author::new();
    author.new_project(&["weather"]);
    let lock = author.work("weather/Cargo.lock");
    let mut cargo = author.command(&author.work("weather"), &[]);
    let environment: Vec<_> =
        cargo.get_envs().map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned))).collect();
    cargo = Command::new("cargo");
    for (name, value) in environment {
        match value {
            Some(value) => cargo.env(name, value),
            None => cargo.env_remove(name),
        };
    }
    let output = cargo
        .args(["metadata", "--format-version", "1", "--offline"])
        .current_dir(author.work("weather"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(lock).unwrap();
    let own = text.split("\n[[package]]\n").find(|package| package.contains("name = \"weather\"")).unwrap();
    let template = text.replace(&format!("\n[[package]]\n{own}"), "");
    assert_committed("host/cli/templates/rust/Cargo.lock", &template);
}

#[test]
fn the_author_key_is_outside_the_project_and_signs() {
    let author = Author::new();
    let made = author.new_project(&["weather"]);
    let key = PathBuf::from(made["author_key"].as_str().unwrap());
    assert_eq!(key, author.home.path().join("config/cofferdam/author.key"));
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    let second = author.new_project(&["issues"]);
    assert_eq!(made["public_key"], second["public_key"]);
    let public = ok(&author.run(&["key", "public", "--format", "json"]));
    assert_eq!(public["public_key"], made["public_key"]);
    let bytes = cofferdam_test_support::package::pack(
        &cofferdam_test_support::package::quiet(),
        &cofferdam_test_support::package::manifest("github://acme/quiet", "1.0.0"),
    );
    fs::write(author.work("quiet.wasm"), bytes).unwrap();
    let signed = ok(&author.run(&["sign", "quiet.wasm", "--format", "json"]));
    assert_eq!(signed["key_id"], public["key_id"]);
    fs::remove_file(key).unwrap();
    let said = refused(&author.run(&["sign", "quiet.wasm"]), 66);
    assert!(said.contains("cofferdam new"), "{said}");
}

#[test]
fn a_new_project_overwrites_nothing() {
    let author = Author::new();
    fs::write(author.work("file"), "kept").unwrap();
    fs::create_dir(author.work("full")).unwrap();
    fs::write(author.work("full/notes"), "kept").unwrap();
    for name in ["file", "full"] {
        let said = refused(&author.run(&["new", name, "--owner", "acme"]), 67);
        assert!(said.contains("nothing was changed") && said.contains("--dir"), "{said}");
    }
    assert_eq!(fs::read_to_string(author.work("file")).unwrap(), "kept");
    assert_eq!(fs::read_dir(author.work("full")).unwrap().count(), 1);
    assert!(!author.home.path().join("config").exists(), "no key was made for nothing");
    fs::create_dir(author.work("empty")).unwrap();
    author.new_project(&["weather", "--dir", "empty"]);
    assert!(author.work("empty/connector.toml").is_file());
}

#[test]
fn bad_names_are_refused_with_a_suggestion() {
    let author = Author::new();
    for (name, suggestion) in
        [("My Weather", "cofferdam new my-weather"), ("type", "cofferdam new type-service")]
    {
        let said = refused(&author.run(&["new", name, "--owner", "acme"]), 65);
        assert!(said.contains(suggestion), "{said}");
    }
    let said = refused(&author.run(&["new", "github://acme/weather", "--owner", "other"]), 65);
    assert!(said.contains("Leave out one"), "{said}");
    refused(&author.run(&["new", "weather", "--credential", "bearer"]), 2);
    refused(&author.run(&["new", "weather", "--http", "*.example.com"]), 2);
    assert_eq!(fs::read_dir(author.work("")).unwrap().count(), 0);
}

#[test]
fn a_read_only_directory_is_named() {
    if rustix::process::geteuid().is_root() {
        crate::skipped("no read-only directory is tried: root may write everywhere");
        return;
    }
    let author = Author::new();
    fs::create_dir(author.work("fixed")).unwrap();
    fs::set_permissions(author.work("fixed"), Permissions::from_mode(0o555)).unwrap();
    let said = refused(&author.run(&["new", "weather", "--owner", "acme", "--dir", "fixed/weather"]), 74);
    assert!(said.contains("permission denied"), "{said}");
}

/// The source is of its language, as far as this machine can say.
#[track_caller]
fn parses(source: &Path) {
    let mut check = match source.extension().unwrap().to_str().unwrap() {
        "py" => Command::new("python3"),
        "js" => Command::new("node"),
        _ => Command::new("rustfmt"),
    };
    match check.get_program().to_str().unwrap() {
        "python3" => check.args(["-c", "import ast, sys; ast.parse(open(sys.argv[1]).read())"]),
        "node" => check.args(["--input-type=module", "--check", "-"]).stdin(fs::File::open(source).unwrap()),
        _ => check.args(["--check", "--edition", "2024"]),
    };
    if check.get_program() != "node" {
        check.arg(source);
    }
    match check.output() {
        Ok(output) => assert!(output.status.success(), "{}: {output:?}", source.display()),
        Err(error) => crate::skipped(&format!("{} is not parsed: {error}", source.display())),
    }
}

/// The languages' files, without their tools.
#[test]
fn projects_of_every_language_are_complete() {
    let author = Author::new();
    for (lang, source) in [("rust", "src/lib.rs"), ("python", "app.py"), ("js", "app.js")] {
        for kind in [None, Some("bearer"), Some("api_key"), Some("session_token")] {
            let name = format!("x-{lang}-{}", kind.unwrap_or("plain").replace('_', "-"));
            let mut args = vec![name.as_str(), "--lang", lang];
            if let Some(kind) = kind {
                args.extend(["--http", "http://localhost:8080", "--credential", kind]);
            }
            let made = author.new_project(&args);
            let files: Vec<_> =
                made["files"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
            let wit = format!("wit/{name}.wit");
            for file in
                [source, "connector.toml", &wit, "README.md", ".gitignore", ".github/workflows/ci.yml"]
            {
                assert!(files.contains(&file), "{name} has no {file}");
            }
            for file in files {
                let text = fs::read_to_string(author.work(&name).join(file)).unwrap();
                let marks = text.split('@').skip(1).step_by(2);
                let is_mark = |word: &str| {
                    !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_')
                };
                assert!(!marks.clone().any(is_mark), "{name}/{file} has a placeholder");
                if file.ends_with(".toml") {
                    text.parse::<toml::Table>().unwrap_or_else(|error| panic!("{name}/{file}: {error}"));
                }
                if file.ends_with(".json") {
                    serde_json::from_str::<Value>(&text)
                        .unwrap_or_else(|error| panic!("{name}/{file}: {error}"));
                }
            }
            parses(&author.work(&name).join(source));
            let manifest = fs::read_to_string(author.work(&name).join("connector.toml")).unwrap();
            cofferdam_model::manifest::Manifest::parse("connector.toml", &manifest).unwrap();
        }
    }
}

#[test]
fn a_missing_tool_is_named_with_its_fix() {
    let author = Author::new();
    author.new_project(&["weather"]);
    author.new_project(&["snake", "--lang", "python"]);
    author.new_project(&["script", "--lang", "js"]);
    let empty = tempfile::tempdir().unwrap();
    for (dir, tool, fix) in [
        ("weather", "cargo was not found", "rustup.rs"),
        ("snake", "python3 was not found", "Install Python"),
        ("script", "Node.js was not found", "nodejs.org"),
    ] {
        let mut command = author.command(&author.work(dir), &["build"]);
        command.env("PATH", empty.path()).env_remove("CARGO");
        let said = refused(&command.output().unwrap(), 71);
        assert!(said.contains(tool) && said.contains(fix), "{said}");
    }
}

#[test]
fn a_missing_lib_section_is_explained() {
    let author = Author::new();
    author.new_project(&["weather"]);
    let manifest = author.work("weather/Cargo.toml");
    let text = fs::read_to_string(&manifest).unwrap().replace("[lib]\ncrate-type = [\"cdylib\"]\n", "");
    fs::write(manifest, text).unwrap();
    let said = refused(&author.command(&author.work("weather"), &["build"]).output().unwrap(), 65);
    assert!(said.contains("crate-type = [\"cdylib\"]"), "{said}");
}

#[test]
fn a_mistake_in_the_wit_is_shown_with_its_place() {
    let author = Author::new();
    author.new_project(&["weather"]);
    let wit = author.work("weather/wit/weather.wit");
    let text = fs::read_to_string(&wit).unwrap();
    fs::write(&wit, text.replace("name: string", "name: strng")).unwrap();
    let build = || author.command(&author.work("weather"), &["build"]).output().unwrap();
    let said = refused(&build(), 65);
    assert!(said.contains("name `strng` does not exist, at ./wit/weather.wit:"), "{said}");
    assert!(said.contains("\n") && said.contains("^----"), "{said}");
    fs::write(&wit, text.replace("types@0.1.0", "types@0.2.0")).unwrap();
    let said = refused(&build(), 65);
    assert!(said.contains("this host speaks") && said.contains("types@0.1.0.{failure}"), "{said}");
}

#[test]
fn a_missing_method_is_named_by_the_compiler() {
    let author = Author::new();
    author.new_project(&["methods"]);
    let wit = author.work("methods/wit/methods.wit");
    let text = fs::read_to_string(&wit).unwrap();
    let (interface, _) = text.rsplit_once('}').unwrap();
    fs::write(&wit, format!("{interface}    part: func() -> result<string, failure>;\n}}\n")).unwrap();
    for command in ["build", "dev"] {
        let said = refused(&author.command(&author.work("methods"), &[command]).output().unwrap(), 71);
        assert!(said.contains("missing: `part`") && said.contains("fix: Correct what cargo says"), "{said}");
        assert!(!said.contains("network"), "{said}");
    }
}

#[test]
fn crates_that_cannot_be_fetched_need_the_network() {
    let author = Author::new();
    author.new_project(&["offline"]);
    let mut build = author.command(&author.work("offline"), &["build"]);
    build.env("CARGO_HOME", author.work("no-crates"));
    let said = refused(&build.output().unwrap(), 71);
    assert!(said.contains("need the network once"), "{said}");
}

#[test]
fn a_read_only_project_is_named() {
    if rustix::process::geteuid().is_root() {
        crate::skipped("no read-only project is tried: root may write everywhere");
        return;
    }
    let author = Author::new();
    for (name, lang, part) in [("weather", "rust", "target"), ("snake", "python", ".cofferdam")] {
        author.new_project(&[name, "--lang", lang]);
        let dir = author.work(name);
        fs::set_permissions(&dir, Permissions::from_mode(0o555)).unwrap();
        let said = refused(&author.command(&dir, &["dev"]).output().unwrap(), 74);
        fs::set_permissions(&dir, Permissions::from_mode(0o755)).unwrap();
        assert!(said.contains(part) && said.contains("copy of the project"), "{said}");
    }
}

#[test]
fn doctor_says_what_is_missing_and_changes_nothing() {
    let author = Author::new();
    author.new_project(&["snake", "--lang", "python"]);
    let empty = tempfile::tempdir().unwrap();
    let examine = |dir: &Path, home: &Path| {
        let mut command =
            author.command(dir, &["doctor", "--format", "json", "--home", home.to_str().unwrap()]);
        command.env("PATH", empty.path()).env_remove("RUSTC").output().unwrap()
    };
    let home = author.home.path().join("absent");
    let status = |output: &Output, name: &str| {
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        let check =
            found["checks"].as_array().unwrap().iter().find(|check| check["name"] == name).unwrap().clone();
        check["status"].as_str().unwrap().to_owned()
    };
    let elsewhere = examine(&author.work(""), &home);
    assert_eq!(elsewhere.status.code(), Some(0), "{}", String::from_utf8_lossy(&elsewhere.stdout));
    assert_eq!(
        ["cargo", "python3", "home", "ports", "author's key"].map(|name| status(&elsewhere, name)),
        ["doubtful", "doubtful", "good", "good", "good"]
    );
    let project = examine(&author.work("snake"), &home);
    assert_eq!(project.status.code(), Some(64));
    assert_eq!(["cargo", "python3"].map(|name| status(&project, name)), ["doubtful", "bad"]);
    assert!(!home.exists());
    fs::create_dir(&home).unwrap();
    fs::set_permissions(&home, Permissions::from_mode(0o777)).unwrap();
    let open = examine(&author.work(""), &home);
    assert_eq!((open.status.code(), status(&open, "home").as_str()), (Some(64), "bad"));
    let key = author.home.path().join("config/cofferdam/author.key");
    fs::set_permissions(key, Permissions::from_mode(0o644)).unwrap();
    assert_eq!(status(&examine(&author.work(""), &home), "author's key"), "bad");
}
