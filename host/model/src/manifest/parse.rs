//! The parser of the manifest's document: its keys, their values, and the defaults.

use std::collections::BTreeMap;

use cofferdam_core::document::{DocumentTable, InvalidValue, SpannedItem, quoted};
use cofferdam_core::failure::sanitize_line;
use cofferdam_core::limits::{LimitError, LimitRequest};

use super::credential::credential;
use super::effect::DeclaredEffects;
use super::grant::extra_method;
use super::{ConnectorName, HostGrant, Manifest};

/// Most entries of one list.
const MAX_ENTRIES: usize = 256;

/// Reads the whole document.
pub(super) fn manifest(root: &DocumentTable<'_>, text: &str) -> Option<Manifest> {
    root.reject_unknown_keys(&["connector", "capabilities", "limits"]);
    if !root.has("connector") {
        root.missing("connector", "[connector] with name and version");
    }
    let connector = root.table("connector");
    let capabilities = root.table("capabilities");
    let limits = root.table("limits").map_or(Some(LimitRequest::default()), |table| limits(&table));
    let capabilities = capabilities.map(|table| CapabilityTable::read(&table)).unwrap_or_default();

    let connector = connector?;
    connector.reject_unknown_keys(&["name", "version", "description", "publisher", "idempotency", "effects"]);
    let name = connector.required_text("name", "name = \"github://acme/slack\"");
    let name = name.and_then(|text| text.parse(|text| ConnectorName::parse(text)));
    let version = connector.required_text("version", "version = \"1.2.0\"");
    let version = version.and_then(|text| text.parse(|text| exact_version(text)));
    let description = line(&connector, "description", 500);
    let publisher = line(&connector, "publisher", 100);
    let (default, idempotent) =
        connector.table("idempotency").map_or_else(Default::default, |table| idempotency(&table));
    let idempotent_by_default = default.unwrap_or(true);
    let effects = connector.table("effects");
    let effects = effects.map(|table| DeclaredEffects::read(&table, idempotent_by_default, &idempotent));
    Some(Manifest {
        name: name?,
        version: version?,
        description,
        publisher,
        idempotent_by_default,
        idempotent,
        effects: effects.unwrap_or_default(),
        hosts: capabilities.hosts,
        methods: capabilities.methods,
        credentials: capabilities.credentials,
        imports: capabilities.imports,
        limits: limits?,
        text: text.to_owned(),
    })
}

#[derive(Default)]
struct CapabilityTable {
    hosts: Vec<HostGrant>,
    methods: Vec<http::Method>,
    credentials: Vec<super::CredentialGrant>,
    imports: Vec<String>,
}

impl CapabilityTable {
    fn read(table: &DocumentTable<'_>) -> Self {
        table.reject_unknown_keys(&["network", "credential", "runtime"]);
        let mut read = Self::default();
        if let Some(network) = table.table("network") {
            network.reject_unknown_keys(&["hosts", "methods"]);
            for text in bounded(network.texts("hosts")) {
                read.hosts.extend(exact_host(&text, &read.hosts));
            }
            for text in bounded(network.texts("methods")) {
                read.methods.extend(extra_method(&text, &read.methods));
            }
        }
        let tables = table.tables("credential");
        if let Some(first_beyond) = tables.get(MAX_ENTRIES) {
            first_beyond.location().refuse(too_many(tables.len(), "[[capabilities.credential]]"));
        }
        for table in tables.iter().take(MAX_ENTRIES) {
            let Some(new) = credential(table, &read.hosts) else { continue };
            let twin =
                |old: &super::CredentialGrant| (old.kind(), old.service()) == (new.kind(), new.service());
            if read.credentials.iter().any(twin) {
                let message =
                    format!("a credential {}/{} stands above already", new.kind().name(), new.service());
                table.location().refuse(InvalidValue::new(message, "keep one of the two"));
            } else if let Some(clash) = read.credentials.iter().find_map(|old| new.clash(old)) {
                let fix = "give the two different places (header or query), or different hosts";
                table.location().refuse(InvalidValue::new(clash, fix));
            } else {
                read.credentials.push(new);
            }
        }
        if let Some(runtime) = table.table("runtime") {
            runtime.reject_unknown_keys(&["imports"]);
            for text in bounded(runtime.texts("imports")) {
                let Some(import) = text.parse(|text| interface(text)) else { continue };
                if read.imports.contains(&import) {
                    text.refuse(twice(&import));
                } else {
                    read.imports.push(import);
                }
            }
        }
        read
    }
}

/// The host in `text`, reported where it is none or one of `before`.
pub(super) fn exact_host(text: &SpannedItem<'_, &str>, before: &[HostGrant]) -> Option<HostGrant> {
    let host = text.parse(|text| HostGrant::parse(text))?;
    if before.contains(&host) {
        text.refuse(twice(&host.to_string()));
        return None;
    }
    Some(host)
}

fn twice(entry: &str) -> InvalidValue {
    InvalidValue::new(format!("\"{entry}\" stands in the list twice"), "remove one of the two")
}

fn too_many(entries: usize, what: &str) -> InvalidValue {
    InvalidValue::new(format!("{what} has {entries} entries, more than {MAX_ENTRIES}"), "shorten it")
}

fn bounded<'a>(texts: Vec<SpannedItem<'a, &'a str>>) -> Vec<SpannedItem<'a, &'a str>> {
    if let Some(first_beyond) = texts.get(MAX_ENTRIES) {
        first_beyond.refuse(too_many(texts.len(), "the list"));
    }
    texts.into_iter().take(MAX_ENTRIES).collect()
}

/// Reads a version that is written in full.
pub fn exact_version(text: &str) -> Result<semver::Version, InvalidValue> {
    let refused = |reason: &str, fix: String| {
        InvalidValue::new(format!("{} is not an exact version{reason}", quoted(text)), fix)
    };
    let example = || "write it like \"1.2.0\"".to_owned();
    if text.len() > 64 {
        return Err(refused(" (longer than 64 characters)", example()));
    }
    let Ok(version) = text.parse::<semver::Version>() else {
        let filled = format!("{}.0.0", text.trim_start_matches(['^', '~', '=', 'v', ' ']));
        let filled = filled.split('.').take(3).collect::<Vec<_>>().join(".");
        let near = filled.parse::<semver::Version>().ok();
        return Err(refused("", near.map_or_else(example, |near| format!("write it like \"{near}\""))));
    };
    if !version.build.is_empty() {
        // Neither of the releases 1.0.0+a and 1.0.0+b would be newer.
        let bare = semver::Version { build: semver::BuildMetadata::EMPTY, ..version };
        return Err(refused(" (no build metadata)", format!("write it as \"{bare}\"")));
    }
    Ok(version)
}

/// One line of readable text of at most `max` characters.
fn line(table: &DocumentTable<'_>, key: &str, max: usize) -> Option<String> {
    let text = table.text(key)?;
    text.parse(|text| {
        if !text.is_empty() && sanitize_line(text, max) == **text {
            return Ok((*text).to_owned());
        }
        let message = "this is not one line of readable text";
        Err(InvalidValue::new(message, format!("write 1 to {max} characters without control characters")))
    })
}

/// The default, and what single operations say.
fn idempotency(table: &DocumentTable<'_>) -> (Option<bool>, BTreeMap<String, bool>) {
    table.reject_unknown_keys(&["default", "operations"]);
    let default = table.text("default").and_then(|text| text.parse(|text| idempotency_word(text)));
    let mut operations = BTreeMap::new();
    for (name, word) in table.table("operations").iter().flat_map(DocumentTable::each_text) {
        let name = name.parse(|name| operation_name(name));
        let word = word.parse(|word| idempotency_word(word));
        operations.extend(name.zip(word));
    }
    (default, operations)
}

fn idempotency_word(word: &str) -> Result<bool, InvalidValue> {
    match word {
        "idempotent" => Ok(true),
        "not_idempotent" => Ok(false),
        other => {
            let message = format!("{} says nothing about idempotency", quoted(other));
            Err(InvalidValue::new(message, "write \"idempotent\" or \"not_idempotent\""))
        }
    }
}

/// The name of an operation, as callers write it.
pub(super) fn operation_name(name: &str) -> Result<String, InvalidValue> {
    let valid = |name: &str| {
        name.bytes().next().is_some_and(|b| b.is_ascii_lowercase())
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    if valid(name) {
        return Ok(name.to_owned());
    }
    let snake = name.to_ascii_lowercase().replace('-', "_");
    let example = if valid(&snake) { snake.as_str() } else { "post_message" };
    Err(InvalidValue::new(
        format!("{} is not an operation's name", quoted(name)),
        format!("write it like {}", sanitize_line(example, 80)),
    ))
}

/// A WIT interface name, `namespace:package/interface` with or without `@version`.
fn interface(text: &str) -> Result<String, InvalidValue> {
    let (path, version) = text.split_once('@').map_or((text, None), |(path, version)| (path, Some(version)));
    let kebab = |word: &str| {
        word.split('-').all(|part| {
            !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        }) && word.bytes().next().is_some_and(|b| b.is_ascii_lowercase())
    };
    let parts = path.split_once(':').and_then(|(namespace, rest)| Some((namespace, rest.split_once('/')?)));
    let named = parts.is_some_and(|(namespace, (package, interface))| {
        kebab(namespace) && kebab(package) && kebab(interface)
    });
    // Major and minor alone denote a family of compatible versions.
    let versioned = version.is_none_or(|version| {
        version.parse::<semver::Version>().is_ok()
            || format!("{version}.0").parse::<semver::Version>().is_ok()
    });
    if named && versioned && text.len() <= 256 {
        return Ok(text.to_owned());
    }
    let message = format!("{} is not the name of a WIT interface", quoted(text));
    Err(InvalidValue::new(message, "write it like \"wasi:http/outgoing-handler\", with or without @version"))
}

fn limits(table: &DocumentTable<'_>) -> Option<LimitRequest> {
    table.reject_unknown_keys(&["memory", "wall_time", "fuel"]);
    let fuel = table.integer("fuel");
    let wall = table.text("wall_time");
    let memory = table.text("memory");
    let fuel_ok = fuel.as_ref().is_none_or(|fuel| {
        fuel.parse(|fuel| LimitRequest::parse(Some(*fuel), None, None).map_err(amount)).is_some()
    });
    let wall_ok = wall.as_ref().is_none_or(|wall| {
        wall.parse(|wall| LimitRequest::parse(None, Some(wall), None).map_err(amount)).is_some()
    });
    let memory_ok = memory.as_ref().is_none_or(|memory| {
        memory.parse(|memory| LimitRequest::parse(None, None, Some(memory)).map_err(amount)).is_some()
    });
    if !(fuel_ok && wall_ok && memory_ok) {
        return None;
    }
    LimitRequest::parse(fuel.map(|it| it.value), wall.map(|it| it.value), memory.map(|it| it.value)).ok()
}

fn amount(error: LimitError) -> InvalidValue {
    match error {
        LimitError::Malformed { text, form, .. } => {
            InvalidValue::new(format!("{} is not an amount", quoted(&text)), format!("write {form}"))
        }
        LimitError::AboveCeiling { asked, ceiling, .. } => {
            InvalidValue::new(format!("{asked} is above the ceiling of {ceiling}"), "ask for that or less")
        }
    }
}
