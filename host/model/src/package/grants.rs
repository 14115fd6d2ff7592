//! The access that a package gets once it is accepted, as lines for people and as one hash.

use cofferdam_core::digest::Digest;

use super::Package;
use super::imports::ImportStatus;
use crate::manifest::{CredentialPlacement, OperationEffect};

/// Everything that a package may do beyond what every connector may: a sorted list of lines.
///
/// The lines are what a person accepts. Their hash binds an acceptance to them, so it also fails to match if a later
/// version of the host reads more into the same manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageGrants {
    lines: Vec<String>,
}

impl PackageGrants {
    /// The lines, in order, such as `host api.slack.com:443`.
    #[must_use]
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// Returns the SHA-256 of the lines, each with a line end.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let text: String = self.lines.iter().flat_map(|line| [line, "\n"]).collect();
        Digest::sha256(text.as_bytes())
    }
}

impl Package {
    /// Returns the access that the package asks for: hosts, methods, credentials, interfaces, limits, and what its
    /// operations are declared to do.
    #[must_use]
    pub fn grants(&self) -> PackageGrants {
        let manifest = self.manifest();
        let mut lines: Vec<String> = Vec::new();
        lines.extend(manifest.hosts().iter().map(|host| format!("host {host}")));
        lines.extend(manifest.methods().iter().map(|method| format!("method {method}")));
        for credential in manifest.credentials() {
            let signs = match credential.placement() {
                CredentialPlacement::Signature => format!(" for {}", credential.signing_name()),
                _ => String::new(),
            };
            let mut hosts: Vec<_> = credential.hosts().iter().map(ToString::to_string).collect();
            hosts.sort();
            let (label, place) = (credential.label(), credential.placement());
            lines.push(format!("credential {label}, {place}{signs}, to {}", hosts.join(", ")));
        }
        let imports = self.import_verdicts();
        let beyond = imports.iter().filter(|import| import.status() != ImportStatus::Ambient);
        lines.extend(beyond.map(|import| format!("interface {}", import.interface())));
        let limits = manifest.limits();
        let amounts = [
            ("fuel", limits.fuel().map(u128::from)),
            ("wall_time_ms", limits.wall_time().map(|time| time.as_millis())),
            ("memory_bytes", limits.memory().map(u128::from)),
        ];
        lines
            .extend(amounts.iter().filter_map(|(name, amount)| Some(format!("limit {name} {}", (*amount)?))));
        for operation in self.operations() {
            let name = operation.name().json();
            let effect = manifest.effect(name).map_or("undeclared", OperationEffect::name);
            lines.push(format!("operation {name}: {effect}, repeat {}", manifest.repeat_rule(name).name()));
        }
        lines.sort();
        lines.dedup();
        PackageGrants { lines }
    }
}
