//! Whether a connector may reach a host or import an interface: told without running it, by the code that
//! decides it when it runs.

use cofferdam_core::digest::Digest;
use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::failure::{
    AuditId, Context, Denial, DenialBoundary, DenialCode, GrantLine, Permit, ascii_line,
};
use cofferdam_egress::egress::Target;
use cofferdam_model::action::ActionScope;
use cofferdam_model::manifest::{CredentialKind, EVERYONES_METHODS, Effect, HostGrant, Manifest};
use cofferdam_model::package::{Import, Package, foretell};
use cofferdam_model::registry::Stored;
use http::{Method, Uri};

use super::Host;
use crate::call::{ConnectorRef, hash_mismatch};

/// Operations that a note names; `inspect` shows all of them.
const NAMED: usize = 12;

/// What somebody asks about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access(Asked);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Asked {
    Network(Uri),
    Method(Method),
    Import(Import),
    /// Kind and service.
    Credential(CredentialKind, String),
}

impl Access {
    /// Reads a URL (`https://host:port`, `http://host:port`; a path makes no difference), a `host:port` (over TLS, as
    /// in a manifest), a method (`method:PROPFIND`), a credential (`api_key/slack`), or an import
    /// (`wasi:http/outgoing-handler`, with or without `@version`).
    ///
    /// # Errors
    /// `validation`: it is none of these.
    pub fn parse(text: &str) -> Result<Self, HostError> {
        if let Some(asked) = credential(text) {
            if let Asked::Credential(kind, service) = &asked
                && let Some((service, _)) = service.split_once('/')
            {
                let shown = ascii_line(&format!("{}/{service}", kind.name()), 200);
                let message = "What a connector asks for has no identity: that is for the call to choose.";
                return Err(HostError::new(HostErrorKind::Validation, message).hint(format!(
                    "Ask for `{shown}`; `cofferdam binding inspect` answers for one identity."
                )));
            }
            return Ok(Self(asked));
        }
        if let Some(method) = method(text) {
            return Ok(Self(Asked::Method(method)));
        }
        let url = match text.contains("://") {
            true => text.to_owned(),
            false if text.contains('/') => return Ok(Self(Asked::Import(Import::asked(text)))),
            false => format!("https://{text}"),
        };
        match url.parse::<Uri>() {
            Ok(uri) => Ok(Self(Asked::Network(uri))),
            Err(error) => {
                let shown = ascii_line(text, 200);
                let message = format!("`{shown}` is neither a host, a method, an import nor a credential.");
                Err(HostError::new(HostErrorKind::Validation, message)
                    .hint("Write it like api.example.com:443, http://localhost:8080, method:PROPFIND, api_key/slack or wasi:http/outgoing-handler.")
                    .because(error))
            }
        }
    }
}

/// A method, if the text begins as one or is written as methods are, in capitals. A digit begins the port
/// of a host of that name.
fn method(text: &str) -> Option<Method> {
    let in_capitals = text.bytes().all(|byte| byte.is_ascii_uppercase()).then_some(text);
    let name = text
        .strip_prefix("method:")
        .or(in_capitals)
        .filter(|name| !name.starts_with(|c: char| c.is_ascii_digit()))?;
    Method::from_bytes(name.as_bytes()).ok()
}

/// A credential, if the text begins as one.
fn credential(text: &str) -> Option<Asked> {
    let (kind, service) = text.split_once('/')?;
    let kind = CredentialKind::ALL.iter().copied().find(|known| known.name() == kind)?;
    Some(Asked::Credential(kind, service.to_owned()))
}

impl Host {
    /// Whether an installed connector may do this on this host, called within `scope` if there is one.
    ///
    /// Nothing runs and no name is looked up; for `localhost` the operator's leave counts, for other names
    /// the permit says what it would take.
    ///
    /// # Errors
    /// It is not installed, its package cannot be read, or was changed.
    pub fn why(
        &self,
        connector: &ConnectorRef,
        access: &Access,
        scope: Option<&ActionScope>,
    ) -> Result<Result<Permit, Denial>, Error> {
        let loader = &self.pipeline.loader;
        let digest = loader.find(connector)?;
        let Stored { bytes, .. } = loader.registry.read(&digest).map_err(HostError::from)?;
        let got = Digest::of(&bytes);
        if got != digest {
            let key = connector.to_string();
            let context = Context::new(AuditId::mint()).with_connector(key.as_str(), None);
            return Err(hash_mismatch(&context, &key, &digest, &got));
        }
        Ok(self.why_package(bytes, access, scope)?)
    }

    /// As [`Host::why`], of a package that need not be installed.
    ///
    /// # Errors
    /// It is not a package; or the credential that is asked for is granted, and the vault cannot be used.
    pub fn why_package(
        &self,
        bytes: Vec<u8>,
        access: &Access,
        scope: Option<&ActionScope>,
    ) -> Result<Result<Permit, Denial>, HostError> {
        let package = self.pipeline.loader.sandbox.open_blocking(bytes)?;
        let decided = self.decide(&package, access, scope);
        if let (Asked::Credential(..), Ok(_)) = (&access.0, &decided) {
            // A call would end with this.
            self.pipeline.broker.check_vault()?;
        }
        Ok(decided)
    }

    fn decide(
        &self,
        package: &Package,
        access: &Access,
        scope: Option<&ActionScope>,
    ) -> Result<Permit, Denial> {
        let (manifest, imports) = (package.manifest(), package.imports());
        match &access.0 {
            Asked::Import(import) => {
                let permit = foretell(import, manifest.imports())?;
                let uses = imports.iter().any(|own| own.interface() == import.interface());
                Ok(if uses { permit } else { permit.note("The component does not import it.") })
            }
            Asked::Method(method) => {
                let permit = self.pipeline.loader.sandbox.policy(manifest).foretell_method(method)?;
                Ok(if method.is_safe() { permit } else { with_effects(permit, package) })
            }
            Asked::Credential(kind, service) => self.decide_credential(manifest, *kind, service),
            Asked::Network(uri) => {
                // A component that may not be installed reaches nothing.
                package.check_imports()?;
                if let Some(scope) = scope {
                    scope.fits(package.operations().iter().map(|it| it.name().json()), manifest.hosts())?;
                }
                let permit = self.pipeline.loader.sandbox.policy(manifest).foretell(uri, scope)?;
                let permit = self.with_credentials(permit, manifest, &Target::from_uri(uri)?);
                let permit = with_methods(with_effects(permit, package), manifest);
                let sends = imports.iter().any(|own| own.interface() == "wasi:http/outgoing-handler");
                Ok(match sends {
                    true => permit,
                    false => permit.note(
                        "The component sends no requests: it does not import wasi:http/outgoing-handler.",
                    ),
                })
            }
        }
    }
}

impl Host {
    /// Says which credentials go to `target`, and whether they are bound.
    fn with_credentials(&self, permit: Permit, manifest: &Manifest, target: &Target) -> Permit {
        let goes = |host: &HostGrant| {
            (host.scheme(), host.host(), host.port()) == (target.scheme(), target.host(), target.port())
        };
        let grants = manifest.credentials().iter().filter(|grant| grant.hosts().iter().any(goes));
        grants.fold(permit, |permit, grant| {
            let (bound, problem) = self.pipeline.broker.foretell(manifest, grant, Some(target));
            let note = format!("The credential {} goes there, {}. {bound}", grant.label(), grant.placement());
            permit.note(note).without_binding(problem.as_ref())
        })
    }

    fn decide_credential(
        &self,
        manifest: &Manifest,
        kind: CredentialKind,
        service: &str,
    ) -> Result<Permit, Denial> {
        let requested = format!("credential:{}/{service}", kind.name());
        let asked =
            manifest.credentials().iter().find(|grant| (grant.kind(), grant.service()) == (kind, service));
        let Some(grant) = asked else {
            let granted = manifest.credentials().iter().map(|grant| format!("credential:{}", grant.label()));
            let code = DenialCode::CredentialNotGranted;
            let fix = "To allow it, add a [[capabilities.credential]] with this kind and service to \
                connector.toml, then build, sign and install the connector again.";
            let denial = Denial::new(DenialBoundary::ConnectorManifest, code, &requested, granted.collect());
            return Err(denial.otherwise(fix));
        };
        let place = format!("It stands in the {}.", grant.placement());
        let permit = Permit::new(&requested).by(GrantLine::manifest_credential(grant.hosts()));
        let (bound, problem) = self.pipeline.broker.foretell(manifest, grant, None);
        Ok(permit.note(place).note(bound).without_binding(problem.as_ref()))
    }
}

/// Says which methods the manifest adds.
fn with_methods(permit: Permit, manifest: &Manifest) -> Permit {
    let extra: Vec<_> = manifest.methods().iter().map(Method::as_str).collect();
    match extra.is_empty() {
        true => permit,
        false => permit.note(format!(
            "It may send {}, which the manifest adds to {}.",
            extra.join(", "),
            EVERYONES_METHODS.join(", ")
        )),
    }
}

/// Says which operations may only read there.
fn with_effects(permit: Permit, package: &Package) -> Permit {
    let names = package.operations().iter().map(|operation| operation.name().json());
    let held: Vec<_> = names.filter(|op| package.manifest().effect(op) == Some(Effect::ReadOnly)).collect();
    let which = match held.len() {
        0 => return permit,
        all if all == package.operations().len() => "Every operation is".to_owned(),
        1 => format!("The operation {} is", held.join(", ")),
        many if many > NAMED => format!("{many} of the operations are"),
        _ => format!("The operations {} are", held.join(", ")),
    };
    permit.note(format!("{which} declared read_only: GET, HEAD and OPTIONS pass, and no other method."))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::{Access, Asked};

    #[test]
    fn hosts_are_told_from_imports() {
        for text in
            ["slack.com:443", "slack.com", "http://localhost:8080", "https://x/y?z", "u@x:1", "[::1]:80"]
        {
            assert!(matches!(Access::parse(text).unwrap().0, Asked::Network(_)), "{text}");
        }
        for text in ["method:PROPFIND", "method:get", "method:TRACE", "PROPFIND"] {
            assert!(matches!(Access::parse(text).unwrap().0, Asked::Method(_)), "{text}");
        }
        assert!(matches!(Access::parse("method:443").unwrap().0, Asked::Network(_)), "a host of that name");
        for text in ["api_key/slack", "session_token/a.b", "oauth2/"] {
            assert!(matches!(Access::parse(text).unwrap().0, Asked::Credential(..)), "{text}");
        }
        for text in ["wasi:http/outgoing-handler", "wasi:sockets/tcp@0.2.0", "acme:x/y"] {
            assert!(matches!(Access::parse(text).unwrap().0, Asked::Import(_)), "{text}");
        }
        for text in ["", "two words", "http://", "https://a b", "\u{1b}"] {
            let error = Access::parse(text).unwrap_err();
            assert!(error.hint_text().is_some() && !error.message().contains('\u{1b}'), "{text:?}: {error}");
        }
    }
}
