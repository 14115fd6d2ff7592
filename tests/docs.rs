//! The pages in docs/ and the README: links resolve, commands parse, documents are accepted, code compiles, and the
//! getting-started page works as it is written.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use cofferdam_model::manifest::Manifest;
use cofferdam_test_support::package::repository;

use crate::cli::{Desk, desk, with_toolchain};
use crate::compile_fail::compile;

/// A fenced block of code.
struct Block {
    /// The page's path in the repository, and the block's first line.
    at: String,
    language: String,
    /// The last line of text above the block.
    caption: String,
    code: String,
}

fn pages() -> Vec<PathBuf> {
    let mut pages =
        vec![PathBuf::from("README.md"), "examples/README.md".into(), "host/ARCHITECTURE.md".into()];
    for folder in fs::read_dir(repository().join("docs")).unwrap().flatten() {
        if folder.path().is_file() {
            pages.push(Path::new("docs").join(folder.file_name()));
            continue;
        }
        for file in fs::read_dir(folder.path()).unwrap().flatten() {
            pages.push(Path::new("docs").join(folder.file_name()).join(file.file_name()));
        }
    }
    pages.retain(|page| page.extension().is_some_and(|it| it == "md"));
    pages.sort();
    pages
}

fn read(page: &Path) -> String {
    fs::read_to_string(repository().join(page)).unwrap_or_else(|error| panic!("{}: {error}", page.display()))
}

fn blocks() -> Vec<Block> {
    pages().iter().flat_map(|page| blocks_of(page)).collect()
}

fn blocks_of(page: &Path) -> Vec<Block> {
    let (mut blocks, mut open, mut caption) = (Vec::new(), None::<Block>, String::new());
    for (n, line) in read(page).lines().enumerate() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(language), None) => {
                let language = language.split(',').next().unwrap_or_default().to_owned();
                let at = format!("{}:{}", page.display(), n + 1);
                open = Some(Block { at, language, caption: caption.clone(), code: String::new() });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some(block)) => block.code.extend([line, "\n"]),
            (None, None) if !line.trim().is_empty() => caption = line.to_owned(),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{}: an open block", page.display());
    blocks
}

/// The anchors that GitHub and mdBook give the headings of a page.
fn anchors(page: &Path) -> BTreeSet<String> {
    let (mut anchors, mut in_code) = (BTreeSet::new(), false);
    for line in read(page).lines() {
        in_code ^= line.starts_with("```");
        if let (false, Some(heading)) = (in_code, line.strip_prefix('#')) {
            let heading = heading.trim_start_matches('#').trim().to_lowercase();
            let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            anchors.insert(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
        }
    }
    anchors
}

/// The targets of the inline links of a page, without those in code.
fn links(page: &Path) -> Vec<String> {
    let mut in_code = false;
    let text: String = read(page)
        .lines()
        .filter(|line| {
            in_code ^= line.starts_with("```");
            !in_code
        })
        .flat_map(|line| line.split('`').step_by(2).chain(["\n"]))
        .collect();
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target.to_owned()).collect()
}

/// Removes `.` and `..` from a path.
fn normalised(path: &Path) -> PathBuf {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts
}

#[test]
fn every_link_resolves() {
    let mut broken = Vec::new();
    for page in pages() {
        for link in links(&page).into_iter().filter(|link| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match file {
                "" => page.clone(),
                file => normalised(&page.parent().unwrap().join(file)),
            };
            let leaves_the_book = page.starts_with("docs") && !target.starts_with("docs");
            let found = repository().join(&target).exists()
                && (anchor.is_empty() || anchors(&target).contains(anchor));
            if leaves_the_book || !found {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn the_summary_has_every_page() {
    let listed: BTreeSet<_> = links(Path::new("docs/SUMMARY.md")).into_iter().map(PathBuf::from).collect();
    let pages = pages().into_iter().filter_map(|page| page.strip_prefix("docs").ok().map(Path::to_owned));
    let there: BTreeSet<_> = pages.filter(|page| page != Path::new("SUMMARY.md")).collect();
    assert_eq!(listed, there);
}

/// The commands of a console block: lines that begin with `$`, with their continuation lines and without comments.
fn commands(block: &Block) -> Vec<String> {
    let joined = block.code.replace("\\\n", " ");
    let lines = joined.lines().filter_map(|line| match block.language.as_str() {
        "console" => line.strip_prefix("$ "),
        _ => Some(line),
    });
    lines.map(|line| line.split("  #").next().unwrap_or_default().trim().to_owned()).collect()
}

/// The words of a command line: quotes are understood, and nothing else of a shell.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    for c in line.chars() {
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            (None, ' ') => words.push(std::mem::take(&mut word)),
            (_, c) => word.push(c),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn every_command_line_is_understood() {
    let desk = desk();
    let mut checked = 0;
    for block in blocks().iter().filter(|it| matches!(it.language.as_str(), "console" | "sh")) {
        for line in commands(block) {
            let line = line.rsplit("| ").next().unwrap().split(" > ").next().unwrap().to_owned();
            let Some(args) = line.strip_prefix("cofferdam ") else { continue };
            let mut args = words(&args.replace("OWNER", "acme"));
            let end = args.iter().position(|arg| arg == "--");
            args.truncate(end.unwrap_or(args.len()));
            // The shell would run a command in its place.
            args.retain(|arg| !arg.starts_with("$("));
            args.retain(|arg| arg != "--key" || !line.contains("$("));
            // Help stops before anything is done; an option that does not exist stops it before.
            args.push("--help".to_owned());
            let ran = desk.cli().run(&args);
            assert_eq!(ran.code, Some(0), "{}: {line}\n{}", block.at, ran.stderr);
            checked += 1;
        }
    }
    assert!(checked > 50, "{checked} commands");
}

#[test]
fn every_toml_document_is_accepted() {
    let desk = desk();
    for block in blocks().iter().filter(|it| it.language == "toml") {
        let table: toml::Table = block.code.parse().unwrap_or_else(|error| panic!("{}: {error}", block.at));
        let has = |key: &str| table.contains_key(key);
        let ok = if has("scenario") {
            // Parsed beside the format, where a connector is that it fits: `host/dev/src/scenario/reference_tests.rs`.
            Ok(())
        } else if table.get("connector").is_some_and(toml::Value::is_array) {
            // A set that is accepted lacks its lock file.
            fs::write(desk.path("connectors.toml"), &block.code).unwrap();
            let ran = desk.run("sync --locked");
            if ran.stderr.contains("There is no ") { Ok(()) } else { Err(ran.stderr) }
        } else if has("binding") {
            // Their secrets are not there, which makes the bindings unavailable and is no error.
            fs::write(desk.path("bindings.toml"), &block.code).unwrap();
            let vault = "[vault]\nkind = \"directory\"\ndirectory = \"/nonexistent/secrets\"\n";
            fs::write(desk.path("config.toml"), vault).unwrap();
            let ran = desk.run("binding list");
            if ran.code == Some(0) { Ok(()) } else { Err(ran.stderr) }
        } else if has("package") || has("dependencies") || has("candidate") || has("by_hand") {
            // The first is built by `the_first_connector_page_works`; fallbacks need their connectors.
            Ok(())
        } else if has("connector") || has("capabilities") {
            let identity = "name = \"github://acme/slack\"\nversion = \"1.0.0\"\n";
            let text = match block.code.contains("name = \"github://") {
                true => block.code.clone(),
                false => format!(
                    "connector.name = \"github://acme/slack\"\nconnector.version = \"1.0.0\"\n{}",
                    block.code
                )
                .replace("[connector]\n", &format!("[connector]\n{identity}")),
            };
            Manifest::parse("connector.toml", &text).map(drop).map_err(|error| error.to_string())
        } else {
            // The files with certificates and passwords that the pages name are not there.
            let absent = ["extra_roots", "password_file", "nats_password_file"];
            let is_there = |line: &&str| !absent.iter().any(|key| line.trim_start().starts_with(key));
            let text: String = block.code.lines().filter(is_there).flat_map(|line| [line, "\n"]).collect();
            fs::write(desk.path("config.toml"), text).unwrap();
            let ran = desk.run("list");
            // A configuration that is accepted lacks its database.
            if ran.code == Some(0) || ran.stderr.contains("cannot be reached: ") {
                Ok(())
            } else {
                Err(ran.stderr)
            }
        };
        assert_eq!(ok, Ok(()), "{}", block.at);
    }
}

#[test]
fn every_json_document_parses() {
    for block in blocks().iter().filter(|it| it.language == "json" && !it.code.contains('…')) {
        let lines = serde_json::Deserializer::from_str(&block.code).into_iter::<serde_json::Value>();
        for value in lines {
            value.unwrap_or_else(|error| panic!("{}: {error}", block.at));
        }
    }
}

/// The names that the blocks of embedders' pages take from the text around them.
const AROUND: &str = "use std::sync::Arc;
use std::time::Duration;
use cofferdam::*;
use serde_json::{Value, json};
type Any = Box<dyn std::error::Error>;
";

#[test]
fn every_block_for_embedders_compiles() {
    let mut checked = 0;
    for block in blocks().iter().filter(|it| it.language == "rust") {
        let uses_other_crates = ["cofferdam_guest", "tracing_subscriber", "Metrics"];
        if uses_other_crates.iter().any(|name| block.code.contains(name)) {
            continue;
        }
        let code: Vec<_> = block.code.lines().filter(|line| !line.starts_with("use ")).collect();
        let text = format!(
            "{AROUND}#[allow(unused, path_statements)]
pub async fn block(dir: &std::path::Path, cofferdam: &std::path::Path, host: &Host, slack: ConnectorRef,
    llm: ConnectorRef, other_llm: ConnectorRef, args: Value, smaller: serde_json::Map<String, Value>) -> Result<(), Any> {{
{}
Ok(())
}}",
            code.join("\n")
        );
        assert_eq!(compile("block", &text), Vec::<String>::new(), "{}\n{text}", block.at);
        checked += 1;
    }
    assert!(checked >= 5, "{checked} blocks");
}

/// Writes the files of a page: blocks below a caption that begins or ends with the file's name in backquotes.
fn write_files(page: &str, directory: &Path) {
    for block in blocks_of(Path::new(page)).into_iter().filter(|it| it.language != "console") {
        let name = block.caption.trim_end_matches(':').split('`').rev().nth(1).unwrap_or_default();
        let path = directory.join(name);
        // A project has the files already.
        assert!(path.is_file(), "{}: `{name}` is no file of the project", block.at);
        fs::write(path, block.code).unwrap();
    }
}

/// Runs the page's commands: those before the project's own in `desk`, and the others in `directory`, after the page's
/// files were written. Compares each output that the page shows.
fn run_page(page: &str, desk: &Desk, directory: &Path) {
    let mut public_key = String::new();
    let commands = blocks_of(Path::new(page)).into_iter().filter(|it| it.language == "console");
    let text: String = commands.map(|block| block.code).collect();
    for step in text.split("$ ").filter_map(|step| step.strip_prefix("cofferdam ")) {
        let (line, shown) = step.split_once('\n').unwrap();
        let line = line.split("  #").next().unwrap().trim().replace("$(cofferdam key public)", &public_key);
        let makes = line.starts_with("new ");
        let directory_of_new = desk.path("");
        let at = if makes { &directory_of_new } else { directory };
        let cli = desk.cli().clone().in_dir(at);
        let mut command = match line.strip_prefix("install ") {
            // A person at a terminal is asked.
            Some(package) => cli.command(&cli.install_args(&words(package))),
            None => cli.command(&words(&line)),
        };
        with_toolchain(&mut command).env_remove("CARGO_TARGET_DIR");
        command.env("XDG_CONFIG_HOME", desk.path("config")).env("XDG_CACHE_HOME", crate::new::cache());
        let output = command.output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{line}\n{}", String::from_utf8_lossy(&output.stderr));
        if let Some(key) = stdout.split_whitespace().find(|word| word.starts_with("ed25519:")) {
            public_key = key.to_owned();
        }
        if !shown.trim().is_empty() {
            assert_eq!(stdout.trim(), shown.trim(), "{line}");
        }
        if makes && !directory.join("target").exists() {
            write_files(page, directory);
        }
    }
}

#[test]
fn the_first_connector_page_works() {
    let page = "docs/getting-started/first-connector.md";
    let desk = desk();
    run_page(page, &desk, &desk.path("weather"));
}

#[test]
fn the_readme_shows_the_page_s_connector() {
    let code = |page: &str| -> BTreeSet<String> {
        let blocks = blocks_of(Path::new(page)).into_iter();
        let shown =
            blocks.filter(|it| it.code.contains("weather") && matches!(it.language.as_str(), "wit" | "rust"));
        let body =
            |code: String| code.lines().filter(|it| !it.starts_with("// ")).collect::<Vec<_>>().join("\n");
        shown.map(|block| body(block.code).trim().to_owned()).filter(|it| !it.contains("Host::")).collect()
    };
    assert_eq!(code("README.md"), code("docs/getting-started/first-connector.md"));
}
