//! The files of a new project.

use std::path::Path;

use cofferdam_model::manifest::{ConnectorName, CredentialKind, HostGrant, UrlScheme};
use cofferdam_openapi::Project;

use super::name::{kebab, lower_camel, short, snake, upper_camel};
use crate::project::Language;
use crate::sdk_files;

macro_rules! template {
    ($name:literal) => {
        include_str!(concat!("../../../templates/", $name))
    };
}

/// The decisions about a new project.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) connector: ConnectorName,
    pub(super) language: Language,
    pub(super) service: Option<Service>,
    /// The path of the SDK for `Cargo.toml`.
    pub(super) sdk: String,
    /// True if the SDK is a part of the project.
    pub(super) is_vendored: bool,
    /// True if the operations are those of an OpenAPI document.
    pub(super) is_openapi: bool,
}

/// The service that a new connector calls.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) host: HostGrant,
    pub(super) credential: Option<CredentialKind>,
}

impl Service {
    /// Returns the start of its URLs.
    fn base(&self) -> String {
        let (scheme, host, port) = (self.host.scheme(), self.host.host(), self.host.port());
        let usual = match scheme {
            UrlScheme::Https => 443,
            UrlScheme::Http => 80,
        };
        let port = if port == usual { String::new() } else { format!(":{port}") };
        format!("{}://{host}{port}", scheme.name())
    }
}

impl Plan {
    /// Returns the files, each with its path in the project.
    pub(super) fn files(&self) -> Vec<(String, String)> {
        let name = short(&self.connector);
        let mut files = vec![
            ("connector.toml".to_owned(), self.manifest()),
            (
                format!("wit/{name}.wit"),
                self.choose(template!("common/plain.wit"), template!("common/http.wit")),
            ),
            (
                format!("tests/{name}.toml"),
                self.choose(template!("common/plain.toml"), template!("common/http.toml")),
            ),
            ("README.md".into(), self.fill(template!("common/README.md"))),
            (".gitignore".into(), template!("common/gitignore").into()),
            (".vscode/extensions.json".into(), self.fill(template!("common/extensions.json"))),
        ];
        let (settings, ci) = match self.language {
            Language::Rust => (template!("rust/settings.json"), template!("rust/ci.yml")),
            Language::Python => (template!("python/settings.json"), template!("common/ci.yml")),
            Language::JavaScript => (template!("javascript/settings.json"), template!("common/ci.yml")),
        };
        files.push((".vscode/settings.json".into(), settings.into()));
        files.push((".github/workflows/ci.yml".into(), self.fill(ci)));
        files.extend(self.sources());
        files
    }

    /// Returns the files of a project that is made of a document.
    pub(super) fn files_of_document(&self, settings: &str, project: &Project) -> Vec<(String, String)> {
        let title = if project.title.is_empty() { short(&self.connector) } else { &project.title };
        let source = template!("openapi/lib.rs").replace("@title_line@", &plain(title));
        let mut files: Vec<_> =
            project.files.iter().map(|file| (file.path.clone(), file.text.clone())).collect();
        files.extend([
            (self.source().to_owned(), self.fill(&source)),
            (super::openapi::SETTINGS.to_owned(), settings.to_owned()),
            ("README.md".into(), self.fill(template!("openapi/README.md"))),
            (".gitignore".into(), template!("common/gitignore").into()),
            (".vscode/extensions.json".into(), self.fill(template!("common/extensions.json"))),
            (".vscode/settings.json".into(), template!("rust/settings.json").into()),
            (".github/workflows/ci.yml".into(), self.fill(template!("rust/ci.yml"))),
            ("Cargo.toml".into(), self.cargo_toml()),
            ("Cargo.lock".into(), self.cargo_lock()),
        ]);
        files
    }

    /// Returns the source file that the author is to look at first.
    pub(super) fn source(&self) -> &'static str {
        match self.language {
            Language::Rust => "src/lib.rs",
            Language::Python => "app.py",
            Language::JavaScript => "app.js",
        }
    }

    fn sources(&self) -> Vec<(String, String)> {
        let source = match self.language {
            Language::Rust => self.choose(template!("rust/plain.rs"), template!("rust/http.rs")),
            Language::Python => self.choose(template!("python/plain.py"), template!("python/http.py")),
            Language::JavaScript => {
                self.choose(template!("javascript/plain.js"), template!("javascript/http.js"))
            }
        };
        let mut files = vec![(self.source().to_owned(), source)];
        match self.language {
            Language::Rust => {
                files.push(("Cargo.toml".into(), self.cargo_toml()));
                files.push(("Cargo.lock".into(), self.cargo_lock()));
            }
            // The SDK of these languages: HTTP, failures and log lines, in one file.
            Language::Python => files.extend(sdk_files::of_language("python")),
            Language::JavaScript => files.extend(sdk_files::of_language("javascript")),
        }
        files
    }

    fn choose(&self, plain: &str, http: &str) -> String {
        self.fill(if self.service.is_some() { http } else { plain })
    }

    /// Puts the plan's words into a template.
    fn fill(&self, template: &str) -> String {
        let name = short(&self.connector);
        let owner = kebab(self.connector.owner()).unwrap_or_else(|| "connectors".into());
        let host = self.service.as_ref().map(|service| service.host.host().to_owned());
        let base = self.service.as_ref().map(Service::base);
        let (import, session, headers) = self.session_token();
        let (extension, setup) = match self.language {
            Language::Rust => ("rust-lang.rust-analyzer", ""),
            Language::Python => ("ms-python.python", "actions/setup-python@v5"),
            Language::JavaScript => ("dbaeumer.vscode-eslint", "actions/setup-node@v4"),
        };
        let sdk_note = match self.is_vendored {
            true => "Builds and tests the connector.",
            false => "Needs the SDK in this repository, which `cofferdam new --vendor-sdk` puts there.",
        };
        let words = [
            ("@name@", name),
            ("@package@", &format!("{owner}:{name}@0.1.0")),
            ("@connector@", self.connector.as_str()),
            ("@Type@", &upper_camel(name)),
            ("@lowerName@", &lower_camel(name)),
            ("@snake_name@", &snake(name)),
            ("@source@", self.source()),
            ("@host@", &host.unwrap_or_default()),
            ("@base@", &base.unwrap_or_default()),
            ("@import@", import),
            ("@session@", &session),
            ("@headers@", headers),
            ("@extension@", extension),
            ("@setup@", setup),
            ("@sdk@", &toml::Value::from(self.sdk.as_str()).to_string()),
            ("@sdk_note@", sdk_note),
        ];
        words.iter().fold(template.to_owned(), |text, (mark, word)| text.replace(mark, word))
    }

    /// Returns the import, the code and the header fields with which a request gets its session token: the only kind
    /// of credential that a connector takes part in.
    fn session_token(&self) -> (&'static str, String, &'static str) {
        let wanted =
            self.service.as_ref().is_some_and(|it| it.credential == Some(CredentialKind::SessionToken));
        if !wanted {
            return ("", String::new(), "HEADERS");
        }
        let name = short(&self.connector);
        match self.language {
            Language::Rust => (
                ", credential",
                format!(
                    "    let token = credential::handle(\"{name}\").unwrap_or_default();\n\
                     \x20   let request = request.header(\"x-session-token\", token);\n"
                ),
                "",
            ),
            Language::Python => (
                "from wit_world.imports import credential\n",
                format!(
                    "\n\ndef headers() -> dict[str, str]:\n    \"\"\"Returns the header fields of one request: a handle is \
                     good for one.\"\"\"\n    return HEADERS | {{\"x-session-token\": credential.handle(\"{name}\") or \"\"}}\n"
                ),
                "headers()",
            ),
            Language::JavaScript => (
                "import { handle } from \"cofferdam:connector/credential@0.1.0\";\n",
                format!(
                    "\n/** Returns the header fields of one request: a handle is good for one. */\nconst headers = () => ({{ \
                     ...HEADERS, \"x-session-token\": handle(\"{name}\") ?? \"\" }});\n"
                ),
                "headers()",
            ),
        }
    }

    fn cargo_toml(&self) -> String {
        let mut text = self.fill(template!("rust/Cargo.toml"));
        if self.service.is_some() {
            text.push_str("serde = { version = \"1\", features = [\"derive\"] }\n");
        }
        if self.is_openapi {
            text.push_str(
                "serde_json = { version = \"1\", default-features = false, features = [\"std\"] }\n",
            );
        }
        let end = template!("rust/Cargo.end.toml");
        // Code for many types: the smallest is also the one that compiles soonest at the host.
        let small = "opt-level = \"z\"\ncodegen-units = 1";
        text.push_str(&if self.is_openapi {
            end.replace("opt-level = \"s\"", small)
        } else {
            end.to_owned()
        });
        if self.is_vendored {
            text.push_str("exclude = [\"vendor\"]\n");
        }
        text
    }

    /// Returns the versions that this program's SDK was tested with, so that every connector has the same at first.
    fn cargo_lock(&self) -> String {
        let (head, packages) = template!("rust/Cargo.lock").split_once("[[package]]\n").unwrap_or_default();
        let mut packages: Vec<_> = packages.split("\n[[package]]\n").map(ToOwned::to_owned).collect();
        let name = short(&self.connector);
        let mut uses = vec!["cofferdam-guest"];
        if self.service.is_some() {
            uses.push("serde");
            // The feature `derive`, which nothing else asks for.
            if let Some(serde) = packages.iter_mut().find(|it| package_name(it) == "serde") {
                *serde = serde.replace(" \"serde_core\",\n", " \"serde_core\",\n \"serde_derive\",\n");
            }
        }
        if self.is_openapi {
            uses.push("serde_json");
        }
        let uses: String = uses.iter().map(|name| format!(" \"{name}\",\n")).collect();
        let own = format!("name = \"{name}\"\nversion = \"0.1.0\"\ndependencies = [\n{uses}]\n");
        let at = packages.iter().position(|it| package_name(it) > name).unwrap_or(packages.len());
        packages.insert(at, own);
        format!("{head}[[package]]\n{}", packages.join("\n[[package]]\n"))
    }

    fn manifest(&self) -> String {
        let mut text = format!("[connector]\nname = \"{}\"\nversion = \"0.1.0\"\n", self.connector);
        let Some(service) = &self.service else {
            text.push_str(
                "description = \"Greets people\"\n\n\
                 # What each operation does to the service: read_only changes nothing, and may be repeated.\n\
                 [connector.effects.operations]\ngreet = \"read_only\"\n",
            );
            text.push_str(&self.imports(&[]));
            return text;
        };
        let host = &service.host;
        text.push_str(&format!(
            "description = \"Reads and creates items at {}\"\n\n\
             # May the host repeat it? Yes: every request that changes something has the call's idempotency key, and the\n\
             # service honours it. If it does not, write \"not_idempotent\".\n\
             [connector.idempotency.operations]\ncreate_item = \"idempotent\"\n\n\
             # What each operation does to the service: read_only changes nothing, additive adds and overwrites nothing.\n\
             [connector.effects.operations]\nget_item = \"read_only\"\ncreate_item = \"additive\"\n\n\
             [capabilities.network]\nhosts = [\"{host}\"]\n",
            host.host()
        ));
        if let Some(kind) = service.credential {
            text.push_str(&format!(
                "\n# What the host adds to requests; the connector never sees it: `cofferdam binding set {}/{}`.\n\
                 [[capabilities.credential]]\nkind = \"{}\"\nservice = \"{}\"\nhosts = [\"{host}\"]\n",
                kind.name(),
                short(&self.connector),
                kind.name(),
                short(&self.connector),
            ));
            if kind == CredentialKind::ApiKey {
                text.push_str("header = \"X-Api-Key\"\nformat = \"{key}\"\n");
            }
        }
        text.push_str(&self.imports(&[HTTP]));
        text
    }

    /// Returns the table with `needed` imports, and those that come with the language's interpreter.
    fn imports(&self, needed: &[&str]) -> String {
        let (names, why) = match self.language {
            Language::Rust => (needed, ""),
            Language::Python => (&[HTTP, "wasi:sockets/network"][..], INTERPRETER),
            Language::JavaScript => (&[HTTP][..], if needed.is_empty() { INTERPRETER } else { "" }),
        };
        if names.is_empty() {
            return String::new();
        }
        let names: Vec<_> = names.iter().map(|name| format!("\"{name}\"")).collect();
        format!("\n[capabilities.runtime]\n{why}imports = [{}]\n", names.join(", "))
    }
}

/// Returns a title of letters, digits and plain punctuation: it is part of a comment in code.
fn plain(title: &str) -> String {
    title.chars().map(|it| if it.is_alphanumeric() || " .,-_()".contains(it) { it } else { ' ' }).collect()
}

/// Returns the name in an entry of `Cargo.lock`.
fn package_name(package: &str) -> &str {
    package.strip_prefix("name = \"").and_then(|rest| rest.split('"').next()).unwrap_or_default()
}

/// The import of connectors that call a service.
const HTTP: &str = "wasi:http/outgoing-handler";

const INTERPRETER: &str =
    "# The interpreter is linked against these, used or not. They reach no host that is not granted.\n";

/// Returns the SDK's directory below a project that has a copy.
pub(super) fn vendored_sdk() -> (&'static Path, &'static str) {
    (Path::new("vendor/cofferdam"), "vendor/cofferdam/guest-sdk")
}
