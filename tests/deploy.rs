//! The examples of deployments: each file parses, and every command line, configuration key and variable in it exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cofferdam_test_support::package::repository;
use saphyr_parser::{Event, Parser, ScalarStyle, StrInput};
use serde_json::{Map, Value};

use crate::cli::desk;

/// The files below `examples/deploy` with this extension.
fn files(extension: &str) -> Vec<PathBuf> {
    fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
            if entry.path().is_dir() { walk(&entry.path(), found) } else { found.push(entry.path()) }
        }
    }
    let mut found = Vec::new();
    walk(&repository().join("examples/deploy"), &mut found);
    found.retain(|path| path.extension().is_some_and(|it| it == extension));
    found.sort();
    assert!(!found.is_empty(), "there are no files with .{extension}");
    found
}

/// The documents of a YAML file, with its anchors and merge keys resolved.
fn documents(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    let mut reader = YamlReader { parser: Parser::new_from_str(&text), anchors: Vec::new() };
    let mut documents = Vec::new();
    loop {
        match reader.event(path) {
            Event::StreamEnd => return documents,
            Event::DocumentStart(_) => {
                let first = reader.event(path);
                documents.push(reader.value(first, path));
            }
            _ => {}
        }
    }
}

struct YamlReader<'t> {
    parser: Parser<'t, StrInput<'t>>,
    anchors: Vec<(usize, Value)>,
}

impl YamlReader<'_> {
    fn event(&mut self, path: &Path) -> Event<'static> {
        let event = self.parser.next_event().unwrap();
        let (event, _) = event.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        match event {
            Event::Scalar(text, style, anchor, _) => {
                Event::Scalar(text.into_owned().into(), style, anchor, None)
            }
            Event::SequenceStart(anchor, _) => Event::SequenceStart(anchor, None),
            Event::MappingStart(anchor, _) => Event::MappingStart(anchor, None),
            Event::SequenceEnd => Event::SequenceEnd,
            Event::MappingEnd => Event::MappingEnd,
            Event::Alias(anchor) => Event::Alias(anchor),
            Event::DocumentStart(explicit) => Event::DocumentStart(explicit),
            Event::DocumentEnd => Event::DocumentEnd,
            Event::StreamStart => Event::StreamStart,
            Event::StreamEnd => Event::StreamEnd,
            Event::Nothing => Event::Nothing,
        }
    }

    fn value(&mut self, event: Event<'static>, path: &Path) -> Value {
        match event {
            Event::Alias(anchor) => {
                let known = self.anchors.iter().find(|(known, _)| *known == anchor);
                known.unwrap_or_else(|| panic!("{}: an unknown anchor", path.display())).1.clone()
            }
            Event::Scalar(text, style, anchor, _) => {
                let plain = style == ScalarStyle::Plain;
                let value = match &*text {
                    "true" | "false" if plain => Value::from(text == "true"),
                    number if plain && number.parse::<i64>().is_ok() => {
                        Value::from(number.parse::<i64>().unwrap())
                    }
                    text => Value::from(text),
                };
                self.anchors.push((anchor, value.clone()));
                value
            }
            Event::SequenceStart(anchor, _) => {
                let mut items = Vec::new();
                loop {
                    match self.event(path) {
                        Event::SequenceEnd => break,
                        event => items.push(self.value(event, path)),
                    }
                }
                self.anchors.push((anchor, items.clone().into()));
                items.into()
            }
            Event::MappingStart(anchor, _) => {
                let mut fields = Map::new();
                loop {
                    match self.event(path) {
                        Event::MappingEnd => break,
                        event => {
                            let key = self.value(event, path).as_str().unwrap().to_owned();
                            let next = self.event(path);
                            let value = self.value(next, path);
                            match (key.as_str(), value) {
                                ("<<", Value::Object(merged)) => {
                                    merged.into_iter().for_each(|(key, value)| {
                                        fields.entry(key).or_insert(value);
                                    });
                                }
                                (_, value) => {
                                    let twice = fields.insert(key.clone(), value);
                                    assert!(twice.is_none(), "{}: `{key}` stands twice", path.display());
                                }
                            }
                        }
                    }
                }
                self.anchors.push((anchor, fields.clone().into()));
                fields.into()
            }
            other => panic!("{}: {other:?}", path.display()),
        }
    }
}

/// Calls `seen` with every object of a document.
fn walk<'v>(value: &'v Value, seen: &mut impl FnMut(&'v Map<String, Value>)) {
    match value {
        Value::Object(fields) => {
            seen(fields);
            fields.values().for_each(|value| walk(value, seen));
        }
        Value::Array(items) => items.iter().for_each(|value| walk(value, seen)),
        _ => {}
    }
}

/// The texts of a list; none if it is not one of texts.
fn texts(value: Option<&Value>) -> Option<Vec<String>> {
    value?.as_array()?.iter().map(|item| item.as_str().map(str::to_owned)).collect()
}

/// The containers that run the command: its arguments.
fn command_lines() -> Vec<(PathBuf, Vec<String>)> {
    let mut lines = Vec::new();
    for path in files("yaml") {
        for document in &documents(&path) {
            walk(document, &mut |fields| {
                let image = fields.get("image").and_then(Value::as_str).unwrap_or_default();
                let is_own = image == "cofferdam" || image.contains("/cofferdam:");
                if is_own && let Some(args) = texts(fields.get("args").or_else(|| fields.get("command"))) {
                    lines.push((path.clone(), args));
                }
            });
        }
    }
    for path in files("service") {
        let text = fs::read_to_string(&path).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
        let (_, args) = line.split_once("/usr/bin/cofferdam ").unwrap();
        let args = args.trim_end_matches('\'').split(' ').map(str::to_owned).collect();
        lines.push((path, args));
    }
    lines
}

#[test]
fn every_command_line_of_a_deployment_exists() {
    let desk = desk();
    let lines = command_lines();
    for (path, args) in &lines {
        // Help stops before anything is done; an option that does not exist stops it before.
        let args = [&args[..], &["--help".to_owned()]].concat();
        let ran = desk.cli().run(&args);
        assert_eq!(ran.code, Some(0), "{}: {args:?}\n{}", path.display(), ran.stderr);
    }
    let commands: BTreeSet<_> = lines.iter().map(|(_, args)| args[0].as_str()).collect();
    assert_eq!(commands, BTreeSet::from(["serve", "worker"]));
    assert!(lines.len() >= 8, "{lines:?}");
}

#[test]
fn every_configuration_of_a_deployment_is_accepted() {
    let desk = desk();
    let mut texts: Vec<_> = files("toml").iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    for path in files("yaml") {
        for document in documents(&path) {
            let config = document.pointer("/data/config.toml").and_then(Value::as_str);
            texts.extend(config.map(str::to_owned));
        }
    }
    assert_eq!(texts.len(), 3);
    for text in texts {
        fs::write(desk.path("config.toml"), &text).unwrap();
        desk.run("list").ok();
    }
}

#[test]
fn every_variable_of_a_deployment_exists() {
    let variables = |dir: &str| {
        let mut grep = Command::new("grep");
        let found =
            grep.args(["-rhoE", "COFFERDAM_[A-Z_]+", dir]).current_dir(repository()).output().unwrap();
        let found = String::from_utf8(found.stdout).unwrap();
        found.lines().map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let known = &variables("host/cli/src") | &variables("host/cluster/src");
    let named = variables("examples/deploy");
    assert!(named.contains("COFFERDAM_NATS_URL"));
    // The address of the audit log in PostgreSQL.
    let unknown: Vec<_> = named.difference(&known).filter(|name| *name != "COFFERDAM_AUDIT_URL").collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn the_role_of_hosts_is_no_superuser() {
    let mut servers = 0;
    for path in files("yaml") {
        let at = path.display();
        let (mut roles, mut superusers) = (BTreeSet::new(), BTreeSet::new());
        for document in &documents(&path) {
            walk(document, &mut |fields| {
                if let Some(url) = fields.get("COFFERDAM_AUDIT_URL").and_then(Value::as_str) {
                    let role = url.strip_prefix("postgres://").and_then(|url| url.split([':', '@']).next());
                    roles.insert(role.unwrap().to_owned());
                }
                let image = fields.get("image").and_then(Value::as_str).unwrap_or_default();
                if image.starts_with("postgres:") {
                    let user = fields.get("environment").and_then(|it| it.get("POSTGRES_USER"));
                    superusers.insert(user.and_then(Value::as_str).unwrap_or("postgres").to_owned());
                }
            });
        }
        assert!(roles.is_disjoint(&superusers), "{at}: {roles:?} and {superusers:?}");
        if superusers.is_empty() {
            continue;
        }
        servers += 1;
        assert!(!roles.is_empty(), "{at}");
        let scripts: String = files("sh").iter().map(|path| fs::read_to_string(path).unwrap()).collect();
        for role in roles {
            assert!(scripts.contains(&format!("CREATE ROLE {role} LOGIN")), "{at}: {role}");
            assert!(scripts.contains(&format!("CREATE DATABASE {role} OWNER {role}")), "{at}: {role}");
        }
    }
    assert_eq!(servers, 1);
}

#[test]
fn compose_files_make_their_secrets() {
    for path in files("yaml").iter().filter(|path| path.ends_with("compose/compose.yaml")) {
        let text = fs::read_to_string(path).unwrap();
        assert!(!text.contains("${"), "{}: a variable that nothing sets", path.display());
        let document = documents(path).remove(0);
        let secrets = document["secrets"].as_object().unwrap();
        for (name, secret) in secrets {
            assert_eq!(secret["file"], format!("./secrets/{name}"));
            assert!(text.contains(&format!("#   openssl rand -hex 32 > secrets/{name}")), "{name}");
        }
        walk(&document, &mut |fields| {
            for name in texts(fields.get("secrets")).unwrap_or_default() {
                assert!(secrets.contains_key(&name), "{name}");
            }
        });
    }
}

#[test]
fn containers_are_limited_probed_and_read_only() {
    let mut pods = 0;
    for path in files("yaml").iter().filter(|path| path.to_string_lossy().contains("kubernetes")) {
        for document in &documents(path) {
            let at = path.display();
            assert!(document["apiVersion"].is_string() && document["metadata"]["name"].is_string(), "{at}");
            walk(document, &mut |fields| {
                let Some(containers) = fields.get("containers").and_then(Value::as_array) else { return };
                pods += 1;
                let pod = &fields["securityContext"];
                assert_eq!((&pod["runAsNonRoot"], &pod["runAsUser"]), (&true.into(), &65532.into()), "{at}");
                assert_eq!(fields["automountServiceAccountToken"], false, "{at}");
                let init = fields.get("initContainers").and_then(Value::as_array).into_iter().flatten();
                for container in containers.iter().chain(init) {
                    let security = &container["securityContext"];
                    assert_eq!(security["readOnlyRootFilesystem"], true, "{at}");
                    assert_eq!(security["allowPrivilegeEscalation"], false, "{at}");
                    assert_eq!(security["capabilities"]["drop"][0], "ALL", "{at}");
                    assert!(container["resources"]["limits"]["memory"].is_string(), "{at}");
                    if container["ports"].is_array() {
                        for (probe, to) in [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
                            assert_eq!(container[probe]["httpGet"]["path"], to, "{at}");
                        }
                    }
                }
            });
        }
    }
    assert_eq!(pods, 3);
}

#[test]
fn systemd_accepts_the_units() {
    let paths = files("service");
    let ran = Command::new("systemd-analyze").arg("verify").args(&paths).output();
    let Ok(output) = ran else {
        crate::skipped("there is no systemd-analyze; the units of examples/deploy are not verified");
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    // The program and its manual are not installed here.
    let expected = |line: &str| line.contains("is not executable") || line.contains("Command 'man ");
    let wrong: Vec<_> = said.lines().filter(|line| line.contains("cofferdam") && !expected(line)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    for path in &paths {
        let text = fs::read_to_string(path).unwrap();
        for line in
            ["User=cofferdam", "NoNewPrivileges=yes", "ProtectSystem=strict", "CapabilityBoundingSet="]
        {
            assert!(text.lines().any(|own| own == line), "{}: {line}", path.display());
        }
        assert!(text.contains("LoadCredentialEncrypted="));
    }
}
