//! Documents from packages, and the checks of what is generated from them.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

pub(crate) mod hostile;

use std::path::{Path, PathBuf};

use cofferdam_model::manifest::{ConnectorName, Manifest};
use cofferdam_openapi::{Document, DocumentLoader, Location, OpenApiError, Project, ProjectOptions};
use wit_parser::{Resolve, SourceMap};

/// The documents, each with the file that `tests/services/tools/install.sh` makes.
pub(crate) const DOCUMENTS: [(&str, &str); 5] = [
    ("GitHub", "github.json"),
    ("Stripe", "stripe.json"),
    ("Slack", "slack.json"),
    ("Figma", "figma.yaml"),
    ("Vercel", "vercel.json"),
];

/// Returns the directory of the documents; none, with a message, on a machine without them.
pub(crate) fn descriptions() -> Option<PathBuf> {
    let dir = std::env::var_os("COFFERDAM_SERVICES").map(|dir| PathBuf::from(dir).join("descriptions"));
    let dir = dir.filter(|dir| DOCUMENTS.iter().all(|(_, file)| dir.join(file).is_file()));
    if dir.is_none() {
        let required = std::env::var_os("COFFERDAM_REQUIRE_SERVICES").is_some();
        assert!(!required, "COFFERDAM_REQUIRE_SERVICES is set, and COFFERDAM_SERVICES has no descriptions");
        println!("skipped: COFFERDAM_SERVICES names no directory with the descriptions of install.sh");
    }
    dir
}

/// Files of a directory.
pub(crate) struct Files;

impl DocumentLoader for Files {
    fn load(&mut self, location: &Location) -> Result<Vec<u8>, String> {
        match location {
            Location::File(path) => std::fs::read(path).map_err(|error| error.to_string()),
            Location::Web(url) => Err(format!("{url} is not read here")),
        }
    }
}

/// Files in memory: name and text.
pub(crate) struct Texts<'t>(pub(crate) &'t [(&'t str, &'t str)]);

impl DocumentLoader for Texts<'_> {
    fn load(&mut self, location: &Location) -> Result<Vec<u8>, String> {
        let found = self.0.iter().find(|(name, _)| *name == location.shown());
        found.map(|(_, text)| text.as_bytes().to_vec()).ok_or_else(|| "it does not exist".to_owned())
    }
}

pub(crate) fn read(path: &Path) -> Result<Document, OpenApiError> {
    Document::read(Location::File(path.to_str().unwrap().to_owned()), &mut Files, false)
}

pub(crate) fn read_text(text: &str) -> Result<Document, OpenApiError> {
    Document::read(Location::File("api.yaml".to_owned()), &mut Texts(&[("api.yaml", text)]), false)
}

pub(crate) fn options(operations: &[&str]) -> ProjectOptions {
    ProjectOptions {
        connector: ConnectorName::parse("github://acme/service").unwrap(),
        name: "service".to_owned(),
        package: "acme:service@0.1.0".to_owned(),
        operations: operations.iter().map(|it| (*it).to_owned()).collect(),
        idempotency_header: None,
        server: None,
        credential: None,
        by_hand: Vec::new(),
    }
}

pub(crate) fn file<'p>(project: &'p Project, path: &str) -> &'p str {
    &project.files.iter().find(|file| file.path == path).unwrap_or_else(|| panic!("no {path}")).text
}

/// Resolves an interface against the contract.
pub(crate) fn resolve(wit: &str) -> Result<Resolve, String> {
    let mut resolve = Resolve::default();
    let mut contract = SourceMap::new();
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let types = std::fs::read_to_string(repository.join("wit/types.wit")).unwrap();
    contract.push_str("types.wit", types);
    let group = contract.parse().map_err(|(map, error)| error.render(&map))?;
    resolve.push_group(group).map_err(|error| error.render(&resolve.source_map))?;
    let mut sources = SourceMap::new();
    sources.push_str("service.wit", wit);
    let group = sources.parse().map_err(|(map, error)| error.render(&map))?;
    resolve.push_group(group).map_err(|error| error.render(&resolve.source_map))?;
    Ok(resolve)
}

/// Parses everything that was generated. A file that is the same in every project is parsed once.
#[track_caller]
pub(crate) fn assert_valid(project: &Project, what: &str) {
    static PARSED: std::sync::Mutex<Vec<String>> = std::sync::Mutex::new(Vec::new());
    const SAME: [&str; 6] = ["exchange.rs", "read.rs", "style.rs", "target.rs", "write.rs", "multipart.rs"];
    for file in &project.files {
        if SAME.iter().any(|name| file.path.ends_with(name)) {
            let mut parsed = PARSED.lock().unwrap();
            if parsed.contains(&file.path) {
                continue;
            }
            parsed.push(file.path.clone());
        }
        let text = &file.text;
        let result: Result<(), String> = if file.path.ends_with(".wit") {
            resolve(text).map(drop)
        } else if file.path.ends_with(".rs") {
            syn3::parse_file(text).map(drop).map_err(|error| error.to_string())
        } else if file.path == "connector.toml" {
            Manifest::parse("connector.toml", text).map(drop).map_err(|error| error.to_string())
        } else {
            toml::from_str::<toml::Table>(text).map(drop).map_err(|error| error.to_string())
        };
        if let Err(why) = result {
            panic!("{what}: {}: {why}\n{text}", file.path);
        }
    }
}

/// Compares a line of the guide's table. With `COFFERDAM_BLESS=1` it is written again.
#[track_caller]
pub(crate) fn assert_documented(name: &str, line: &str) {
    static FILE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _lock = FILE.lock();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides/openapi.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let begin = format!("| {name} |");
    if std::env::var_os("COFFERDAM_BLESS").is_some() {
        let written = |old: &str| if old.starts_with(&begin) { line.to_owned() } else { format!("{old}\n") };
        std::fs::write(&path, text.lines().map(written).collect::<String>()).unwrap();
        return;
    }
    let documented = text.lines().find(|it| it.starts_with(&begin)).unwrap_or_default();
    assert_eq!(documented, line.trim_end(), "docs/guides/openapi.md; COFFERDAM_BLESS=1 writes it");
}
