//! The differences between two packages of a connector, for a person who reviews an upgrade.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};

use cofferdam_core::failure::RepeatRule;
use cofferdam_model::manifest::OperationEffect;
use cofferdam_model::trust::{DependencyRecord, Provenance, ProvenanceRecord};
use serde::Serialize;

use super::inspection::{CredentialView, OperationView, PackageInspection};

/// The number of characters before the first difference in an excerpt.
const CONTEXT_CHARS: usize = 20;

/// A package in a comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ComparedPackage {
    /// `<scheme>://<owner>/<repo>`.
    pub name: String,
    /// The exact version.
    pub version: String,
    /// `sha256:` and 64 digits.
    pub hash: String,
}

/// The weight of a change. The heaviest is the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeSeverity {
    /// The connector may do more, or its signer or its source repository changed.
    Wider,
    /// Callers or agents notice the change.
    Changed,
    /// The connector may do less.
    Narrower,
    /// The change has no effect on callers and grants.
    Note,
}

impl ChangeSeverity {
    /// Every severity, the heaviest first.
    pub const ALL: [Self; 4] = [Self::Wider, Self::Changed, Self::Narrower, Self::Note];

    /// Returns the stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wider => "wider",
            Self::Changed => "changed",
            Self::Narrower => "narrower",
            Self::Note => "note",
        }
    }
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PackageChange {
    /// Its weight.
    pub severity: ChangeSeverity,
    /// The part of the package: `identity`, `network`, `methods`, `credentials`, `imports`, `limits`, `operations`,
    /// `package`, `provenance` or `dependencies`.
    pub part: &'static str,
    /// The host, credential, import, limit or operation.
    pub subject: String,
    /// The change in words.
    pub what: String,
    /// The state before. None if there was none.
    pub before: Option<String>,
    /// The state after. None if there is none.
    pub after: Option<String>,
}

impl PackageChange {
    /// Returns the states before and after, empty where there is none. If one has more than `chars` characters, both
    /// begin shortly before their first difference; neither is cut at its end.
    #[must_use]
    pub fn excerpts(&self, chars: usize) -> (&str, &str) {
        let (before, after) =
            (self.before.as_deref().unwrap_or_default(), self.after.as_deref().unwrap_or_default());
        if before.chars().count().max(after.chars().count()) <= chars {
            return (before, after);
        }
        let same = before.chars().zip(after.chars()).take_while(|(one, other)| one == other).count();
        let from = |text: &str| {
            let mut characters = text.char_indices();
            characters.nth(same.saturating_sub(CONTEXT_CHARS)).map_or(text.len(), |(at, _)| at)
        };
        (before.get(from(before)..).unwrap_or_default(), after.get(from(after)..).unwrap_or_default())
    }
}

impl fmt::Display for PackageChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.part, self.subject, self.what)
    }
}

/// The differences between two packages, the heaviest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PackageDifference {
    /// The package that is compared with.
    pub before: ComparedPackage,
    /// The package that is reviewed.
    pub after: ComparedPackage,
    /// The differences, the heaviest first.
    pub changes: Vec<PackageChange>,
}

impl PackageDifference {
    /// Compares two packages.
    #[must_use]
    pub fn between(before: &PackageInspection, after: &PackageInspection) -> Self {
        let mut found = Changes::default();
        found.identity(before, after);
        found.set("network", (&before.network, &after.network), "host", "it may reach");
        found.set("methods", (&before.methods, &after.methods), "method", "it may send");
        found.credentials(&before.credentials, &after.credentials);
        found.imports(before, after);
        found.limits(before, after);
        found.operations(&before.operations, &after.operations);
        found.provenance(before.provenance.as_ref(), after.provenance.as_ref());
        found.0.sort_by_key(|change| change.severity);
        let compared = |one: &PackageInspection| ComparedPackage {
            name: one.name.clone(),
            version: one.version.clone(),
            hash: one.hash.clone(),
        };
        Self { before: compared(before), after: compared(after), changes: found.0 }
    }

    /// Returns true if the second package may do more than the first.
    #[must_use]
    pub fn is_wider(&self) -> bool {
        self.changes.iter().any(|change| change.severity == ChangeSeverity::Wider)
    }
}

#[derive(Default)]
struct Changes(Vec<PackageChange>);

impl Changes {
    fn push(
        &mut self,
        (severity, part): (ChangeSeverity, &'static str),
        subject: &str,
        what: impl Into<String>,
        (before, after): (Option<&dyn Display>, Option<&dyn Display>),
    ) {
        self.0.push(PackageChange {
            severity,
            part,
            subject: subject.to_owned(),
            what: what.into(),
            before: before.map(ToString::to_string),
            after: after.map(ToString::to_string),
        });
    }

    fn identity(&mut self, before: &PackageInspection, after: &PackageInspection) {
        use ChangeSeverity::{Narrower, Note, Wider};
        if before.name != after.name {
            let names = (Some(&before.name as &dyn Display), Some(&after.name as &dyn Display));
            self.push((Wider, "identity"), "name", "it is another connector", names);
        }
        let signer = |one: &PackageInspection| {
            let mut by: Vec<_> = one.signature.signers.iter().map(String::as_str).collect();
            // Anyone can change the order of the signatures.
            by.sort_unstable();
            match by.is_empty() {
                false => format!("{}, by {}", one.signature.status, by.join(", ")),
                true => one.signature.status.clone(),
            }
        };
        let (old, new) = (signer(before), signer(after));
        if old != new {
            let owners =
                |one: &PackageInspection| one.signature.owners.iter().cloned().collect::<BTreeSet<_>>();
            let (had, has) = (owners(before), owners(after));
            let (severity, what) = match (had.is_empty(), has.is_empty()) {
                (_, true) => (Wider, "its signature is not accepted here"),
                (true, false) => (Narrower, "its signature is accepted now"),
                (false, false) if had == has => (Note, "another key of the same signer signed it"),
                (false, false) if had.is_disjoint(&has) => (Wider, "another trusted key signed it"),
                (false, false) => (Note, "other trusted keys signed it too, or no longer"),
            };
            self.push((severity, "identity"), "signer", what, (Some(&old), Some(&new)));
        }
        let publisher = |one: &PackageInspection| one.publisher.clone().unwrap_or_else(|| "none".to_owned());
        let (old, new) = (publisher(before), publisher(after));
        if old != new {
            self.push(
                (Note, "identity"),
                "publisher",
                "it names another publisher",
                (Some(&old), Some(&new)),
            );
        }
        if before.size != after.size {
            let sizes = (Some(&before.size as &dyn Display), Some(&after.size as &dyn Display));
            self.push((Note, "package"), "size", "it has another size, in bytes", sizes);
        }
        if before.hash != after.hash && before.version == after.version {
            let hashes = (Some(&before.hash as &dyn Display), Some(&after.hash as &dyn Display));
            self.push((Wider, "package"), "version", "other bytes have the same version", hashes);
        }
    }

    /// Compares two sets of grants.
    fn set(&mut self, part: &'static str, (before, after): (&[String], &[String]), kind: &str, may: &str) {
        let (old, new): (BTreeSet<_>, BTreeSet<_>) = (before.iter().collect(), after.iter().collect());
        for added in new.difference(&old) {
            let clear = if added.starts_with("http://") { ", unencrypted" } else { "" };
            let what = format!("{may} this {kind} as well{clear}");
            self.push((ChangeSeverity::Wider, part), added, what, (None, Some(added)));
        }
        for removed in old.difference(&new) {
            let what = format!("{may} this {kind} no longer");
            self.push((ChangeSeverity::Narrower, part), removed, what, (Some(removed), None));
        }
    }

    fn credentials(&mut self, before: &[CredentialView], after: &[CredentialView]) {
        use ChangeSeverity::{Changed, Narrower, Wider};
        let by_name = |all: &[CredentialView]| -> BTreeMap<String, CredentialView> {
            all.iter().map(|one| (format!("{}/{}", one.kind, one.service), one.clone())).collect()
        };
        let (old, new) = (by_name(before), by_name(after));
        for (name, now) in &new {
            let Some(was) = old.get(name) else {
                self.push((Wider, "credentials"), name, "it asks for this credential", (None, Some(now)));
                continue;
            };
            let hosts = |one: &CredentialView| one.hosts.iter().cloned().collect::<BTreeSet<_>>();
            let (had, has) = (hosts(was), hosts(now));
            for host in has.difference(&had) {
                let what = format!("the credential may go to {host} as well");
                self.push((Wider, "credentials"), name, what, (None, Some(host)));
            }
            for host in had.difference(&has) {
                let what = format!("the credential may go to {host} no longer");
                self.push((Narrower, "credentials"), name, what, (Some(host), None));
            }
            if was.place != now.place {
                let places = (Some(&was.place as &dyn Display), Some(&now.place as &dyn Display));
                self.push((Changed, "credentials"), name, "it is sent in another place", places);
            }
            if was.signs_for != now.signs_for {
                let service = |one: &CredentialView| one.signs_for.clone().unwrap_or_default();
                let (old, new) = (service(was), service(now));
                self.push(
                    (Wider, "credentials"),
                    name,
                    "it signs for another service",
                    (Some(&old), Some(&new)),
                );
            }
            if was.optional != now.optional {
                let word = |optional| if optional { "optional" } else { "required" };
                let (old, new) = (word(was.optional), word(now.optional));
                self.push(
                    (Changed, "credentials"),
                    name,
                    format!("it is {new} now"),
                    (Some(&old), Some(&new)),
                );
            }
        }
        for (name, was) in old.iter().filter(|(name, _)| !new.contains_key(*name)) {
            let what = "it asks for this credential no longer";
            self.push((Narrower, "credentials"), name, what, (Some(was), None));
        }
    }

    fn imports(&mut self, before: &PackageInspection, after: &PackageInspection) {
        // A host that has an interface has it in every compatible version.
        let granted = |one: &PackageInspection| -> Vec<String> {
            let imports = one.imports.iter().filter(|import| import.standing != "plumbing");
            imports.map(|import| import.name.split('@').next().unwrap_or_default().to_owned()).collect()
        };
        let (old, new) = (granted(before), granted(after));
        self.set("imports", (&old, &new), "interface", "it uses");
    }

    fn limits(&mut self, before: &PackageInspection, after: &PackageInspection) {
        for (name, now) in &after.limits {
            let Some(was) = before.limits.get(name).filter(|was| was.effective != now.effective) else {
                continue;
            };
            let (severity, what) = match now.effective > was.effective {
                true => (ChangeSeverity::Wider, "a call gets more"),
                false => (ChangeSeverity::Narrower, "a call gets less"),
            };
            let (old, new) =
                (format!("{} {}", was.effective, was.unit), format!("{} {}", now.effective, now.unit));
            self.push((severity, "limits"), name, what, (Some(&old), Some(&new)));
        }
    }

    fn operations(&mut self, before: &[OperationView], after: &[OperationView]) {
        use ChangeSeverity::{Changed, Wider};
        let by_name = |all: &[OperationView]| -> BTreeMap<String, OperationView> {
            all.iter().map(|one| (one.name.clone(), one.clone())).collect()
        };
        let (old, new) = (by_name(before), by_name(after));
        for (name, now) in &new {
            let Some(was) = old.get(name) else {
                let (severity, what) = match now.effect {
                    Some(OperationEffect::ReadOnly) => (Changed, "it is new, and only reads"),
                    _ => (Wider, "it is new, and may write"),
                };
                self.push((severity, "operations"), name, what, (None, Some(&now.signature)));
                continue;
            };
            self.operation(name, was, now);
        }
        for (name, was) in old.iter().filter(|(name, _)| !new.contains_key(*name)) {
            self.push(
                (Changed, "operations"),
                name,
                "it is gone: its callers fail",
                (Some(&was.signature), None),
            );
        }
    }

    fn operation(&mut self, name: &str, was: &OperationView, now: &OperationView) {
        use ChangeSeverity::{Changed, Narrower, Wider};
        if was.signature != now.signature {
            let signatures = (Some(&was.signature as &dyn Display), Some(&now.signature as &dyn Display));
            self.push((Changed, "operations"), name, "its types changed", signatures);
        }
        if was.effect != now.effect {
            let reads = |one: &OperationView| one.effect == Some(OperationEffect::ReadOnly);
            let (severity, what) = match (reads(was), reads(now)) {
                (true, _) => (Wider, "it lost its read-only guard: it may write"),
                (_, true) => (Narrower, "it only reads now, and the host holds it to that"),
                _ => (Changed, "its declared effect changed"),
            };
            let word = |one: &OperationView| one.effect.map_or("undeclared", OperationEffect::name);
            self.push((severity, "operations"), name, what, (Some(&word(was)), Some(&word(now))));
        }
        // An operation that only reads may always be repeated.
        if was.repeat != now.repeat && now.effect != Some(OperationEffect::ReadOnly) {
            let (severity, what) = match now.repeat {
                RepeatRule::Always => (Wider, "it may be repeated after a failure, whatever it sent"),
                RepeatRule::UnlessUnkeyed if was.repeat == RepeatRule::Never => {
                    (Wider, "it may be repeated after a failure, unless it sent a request without a key")
                }
                RepeatRule::UnlessUnkeyed => {
                    (Narrower, "it is no longer repeated once it sent a request without a key")
                }
                RepeatRule::Never => (Narrower, "it is never repeated"),
            };
            self.push(
                (severity, "operations"),
                name,
                what,
                (Some(&was.repeat.name()), Some(&now.repeat.name())),
            );
        }
        if was.docs != now.docs {
            let text = |one: &OperationView| one.docs.clone().unwrap_or_default();
            let (old, new) = (text(was), text(now));
            let what = "its description changed, which agents read";
            self.push((Changed, "operations"), name, what, (Some(&old), Some(&new)));
        }
        for (param, new) in &now.param_docs {
            let old = was.param_docs.get(param).map_or("", String::as_str);
            if old != new {
                let what = format!("the description of its parameter {param} changed, which agents read");
                self.push((Changed, "operations"), name, what, (Some(&old), Some(new)));
            }
        }
    }

    /// Compares the claims of the signers about what the packages were made from.
    fn provenance(&mut self, before: Option<&Provenance>, after: Option<&Provenance>) {
        use ChangeSeverity::{Changed, Note, Wider};
        let (was, now) = match (before, after) {
            (Some(was), Some(now)) => (was.record(), now.record()),
            (None, None) => return,
            (was, now) => {
                let (severity, what) = match now {
                    Some(_) => (Note, "its signature says now what it was made from"),
                    None => (Changed, "its signature no longer says what it was made from"),
                };
                let state = |one: Option<&Provenance>| if one.is_some() { "stated" } else { "not stated" };
                let states = (Some(&state(was) as &dyn Display), Some(&state(now) as &dyn Display));
                self.push((severity, "provenance"), "statement", what, states);
                return;
            }
        };
        let repository = |one: &ProvenanceRecord| {
            let url = one.source.as_ref().and_then(|source| source.repository.as_ref());
            url.map_or_else(|| "none".to_owned(), ToString::to_string)
        };
        let directory = |one: &ProvenanceRecord| {
            let directory = one.source.as_ref().map(|source| source.directory.as_str()).unwrap_or_default();
            if directory.is_empty() { ".".to_owned() } else { directory.to_owned() }
        };
        let tree = |one: &ProvenanceRecord| match one.source.as_ref().map(|source| source.clean) {
            Some(true) => "that of the commit".to_owned(),
            Some(false) => "with changes that are not in the commit".to_owned(),
            None => "in no repository".to_owned(),
        };
        let tools =
            |one: &ProvenanceRecord| one.tools.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let is_clean = now.source.as_ref().is_some_and(|source| source.clean);
        for (severity, subject, what, old, new) in [
            (Wider, "repository", "it was made from another repository", repository(was), repository(now)),
            (Changed, "directory", "it was made from another directory", directory(was), directory(now)),
            (
                if is_clean { Note } else { Changed },
                "tree",
                "its sources differ in how they match their commit",
                tree(was),
                tree(now),
            ),
            (Note, "tools", "it was made with other tools", tools(was), tools(now)),
        ] {
            if old != new {
                self.push((severity, "provenance"), subject, what, (Some(&old), Some(&new)));
            }
        }
        self.dependencies(&was.dependencies, &now.dependencies);
    }

    fn dependencies(&mut self, before: &[DependencyRecord], after: &[DependencyRecord]) {
        use ChangeSeverity::{Changed, Note};
        // A connector may have several versions of a crate.
        let by_name = |all: &[DependencyRecord]| {
            let mut names: BTreeMap<String, BTreeSet<DependencyRecord>> = BTreeMap::new();
            for one in all {
                names.entry(one.name.clone()).or_default().insert(one.clone());
            }
            names
        };
        let versions = |all: &BTreeSet<DependencyRecord>| {
            all.iter().map(|one| one.version.clone()).collect::<Vec<_>>().join(", ")
        };
        // The source and checksum of one version differ only if the dependency was replaced.
        let origins = |all: &BTreeSet<DependencyRecord>| {
            let origin = |one: &DependencyRecord| {
                let source = one.source.as_deref().unwrap_or("local");
                format!("{} from {source}, {}", one.version, one.checksum.as_deref().unwrap_or("no checksum"))
            };
            all.iter().map(origin).collect::<Vec<_>>().join("; ")
        };
        let (old, new) = (by_name(before), by_name(after));
        for (name, now) in &new {
            let Some(was) = old.get(name).filter(|was| *was != now) else {
                if !old.contains_key(name) {
                    let only_builds = now.iter().all(|one| one.build);
                    let what = if only_builds { "it is new, and runs during the build" } else { "it is new" };
                    self.push((Changed, "dependencies"), name, what, (None, Some(&origins(now))));
                }
                continue;
            };
            let sources = |all: &BTreeSet<DependencyRecord>| -> BTreeSet<Option<String>> {
                all.iter().map(|one| one.source.clone()).collect()
            };
            if versions(was) == versions(now) && origins(was) != origins(now) {
                let what = "the same version has another source or checksum";
                self.push((Changed, "dependencies"), name, what, (Some(&origins(was)), Some(&origins(now))));
            } else if versions(was) != versions(now) {
                let (severity, what) = match sources(was) == sources(now) {
                    true => (Note, "it has another version"),
                    false => (Changed, "it has another version, from another source"),
                };
                let (old, new) = match severity {
                    Note => (versions(was), versions(now)),
                    _ => (origins(was), origins(now)),
                };
                self.push((severity, "dependencies"), name, what, (Some(&old), Some(&new)));
            }
        }
        for (name, was) in old.iter().filter(|(name, _)| !new.contains_key(*name)) {
            self.push((Note, "dependencies"), name, "it is gone", (Some(&versions(was)), None));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_shown_from_its_first_difference() {
        let change = |before: &str, after: &str| PackageChange {
            severity: ChangeSeverity::Changed,
            part: "operations",
            subject: "post".to_owned(),
            what: String::new(),
            before: Some(before.to_owned()),
            after: Some(after.to_owned()),
        };
        assert_eq!(change("short", "text").excerpts(200), ("short", "text"));
        let same = "\u{e9}".repeat(300);
        let (before, after) = (format!("{same}end"), format!("{same}other"));
        let context = "\u{e9}".repeat(CONTEXT_CHARS);
        let expected = (format!("{context}end"), format!("{context}other"));
        assert_eq!(change(&before, &after).excerpts(200), (&*expected.0, &*expected.1));
        assert_eq!(change(&same, &before).excerpts(200).0, context);
    }
}
