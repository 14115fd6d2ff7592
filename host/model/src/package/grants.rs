//! The access that a package gets once it is accepted, as lines for people and as one hash.

use std::collections::BTreeMap;

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
    limits: Vec<String>,
    operations: BTreeMap<String, (Option<OperationEffect>, String)>,
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
        Self::digest_of(&self.lines)
    }

    /// Returns the digest of grants with these lines.
    #[must_use]
    pub fn digest_of(lines: &[String]) -> Digest {
        let text: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
        Digest::sha256(text.as_bytes())
    }

    /// Returns the lines that `before` does not have, except limits and operations that only read now. The default of a
    /// limit belongs to the host, so limits are compared by their effect elsewhere; the rule for repeating an operation too.
    #[must_use]
    pub fn added_to(&self, before: &Self) -> Vec<String> {
        let is_covered = |line: &&String| {
            let operation = self.operations.iter().find(|(_, (_, own))| own == *line);
            let Some((name, (effect, _))) = operation else {
                return before.lines.contains(line) || self.limits.contains(line);
            };
            before
                .operations
                .get(name)
                .is_some_and(|(was, _)| was == effect || *effect == Some(OperationEffect::ReadOnly))
        };
        self.lines.iter().filter(|line| !is_covered(line)).cloned().collect()
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
            let how = match credential.placement() {
                CredentialPlacement::Signature => format!(" for {}", credential.signing_name()),
                CredentialPlacement::Header { format, .. } => format!(" `{format}`"),
                CredentialPlacement::Query { .. } | CredentialPlacement::Handle => String::new(),
            };
            let (label, place) = (credential.label(), credential.placement());
            let hosts = credential.hosts().iter();
            lines.extend(hosts.map(|host| format!("credential {label}, {place}{how}, to {host}")));
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
        let limits: Vec<_> = amounts
            .iter()
            .filter_map(|(name, amount)| Some(format!("limit {name} {}", (*amount)?)))
            .collect();
        let operation = |name: &str| {
            let effect = manifest.effect(name);
            let word = effect.map_or("undeclared", OperationEffect::name);
            (effect, format!("operation {name}: {word}, repeat {}", manifest.repeat_rule(name).name()))
        };
        let names = self.operations().iter().map(|operation| operation.name().json());
        let operations: BTreeMap<_, _> = names.map(|name| (name.to_owned(), operation(name))).collect();
        lines.extend(limits.iter().cloned());
        lines.extend(operations.values().map(|(_, line)| line.clone()));
        lines.sort();
        lines.dedup();
        PackageGrants { lines, limits, operations }
    }
}
