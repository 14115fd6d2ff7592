//! Explains whether a connector may reach a host or import an interface, without running it, with the same code
//! that decides it at run time.

use std::collections::BTreeMap;
use std::net::IpAddr;

use cofferdam_core::digest::Digest;
use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::failure::{
    Allowed, AuditId, Denial, DenialBoundary, DenialCode, FailureContext, GrantLine, ascii_line,
};
use cofferdam_egress::credentials::IdentitySelection;
use cofferdam_egress::egress::RequestTarget;
use cofferdam_model::action::ActionScope;
use cofferdam_model::manifest::{CredentialKind, EVERYONES_METHODS, HostGrant, Manifest, OperationEffect};
use cofferdam_model::package::{ImportDeclaration, Package, check_access};
use cofferdam_model::registry::StoredPackage;
use http::{Method, Uri};

use super::Host;
use crate::call::{ConnectorRef, hash_mismatch};

/// The most operations that a note names. `inspect` shows all of them.
pub(super) const NAMED: usize = 12;

/// The access that the question is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessQuery(AccessTarget);

/// The answer to an [`AccessQuery`].
#[derive(Debug, Clone)]
pub enum AccessDecision {
    /// A call may do it.
    Allowed(Allowed),
    /// A call fails with this denial.
    Denied(Denial),
}

impl AccessDecision {
    /// Returns the grants, or the denial as an error.
    ///
    /// # Errors
    /// The access is denied.
    pub fn into_result(self) -> Result<Allowed, Denial> {
        match self {
            Self::Allowed(allowed) => Ok(allowed),
            Self::Denied(denial) => Err(denial),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum AccessTarget {
    /// The URL, and the address that its name is known to lead to.
    Network(Uri, Option<IpAddr>),
    Method(Method),
    Import(ImportDeclaration),
    /// The kind and the service, and the identity that a call chose.
    Credential(CredentialKind, String, Option<String>),
}

impl AccessQuery {
    /// Parses a URL (`https://host:port`, `http://host:port`; its path is ignored), a `host:port` (over TLS, as in
    /// a manifest), a method (`method:PROPFIND`), a credential (`api_key/slack`), or an import
    /// (`wasi:http/outgoing-handler`, with or without `@version`).
    ///
    /// # Errors
    /// `validation`: it is none of these.
    pub fn parse(text: &str) -> Result<Self, HostError> {
        if let Some(asked) = credential(text) {
            if let AccessTarget::Credential(kind, service, _) = &asked
                && let Some((service, _)) = service.split_once('/')
            {
                let shown = ascii_line(&format!("{}/{service}", kind.name()), 200);
                let message = "What a connector asks for has no identity: that is for the call to choose.";
                return Err(HostError::new(HostErrorKind::Validation, message).with_hint(format!(
                    "Ask for `{shown}`; `cofferdam binding inspect` answers for one identity."
                )));
            }
            return Ok(Self(asked));
        }
        if let Some(method) = method(text) {
            return Ok(Self(AccessTarget::Method(method)));
        }
        let url = match text.contains("://") {
            true => text.to_owned(),
            false if text.contains('/') => {
                return Ok(Self(AccessTarget::Import(ImportDeclaration::from_query(text))));
            }
            false => format!("https://{text}"),
        };
        match url.parse::<Uri>() {
            Ok(uri) => Ok(Self(AccessTarget::Network(uri, None))),
            Err(error) => {
                let shown = ascii_line(text, 200);
                let message = format!("`{shown}` is neither a host, a method, an import nor a credential.");
                Err(HostError::new(HostErrorKind::Validation, message)
                    .with_hint("Write it like api.example.com:443, http://localhost:8080, method:PROPFIND, api_key/slack or wasi:http/outgoing-handler.")
                    .with_source(error))
            }
        }
    }

    /// Adds the address that the name of a host led a call to, which may need a grant of its own.
    pub(super) fn with_address(mut self, found: IpAddr) -> Self {
        if let AccessTarget::Network(_, address) = &mut self.0 {
            *address = Some(found);
        }
        self
    }

    /// Adds the identity that a call chose for a credential.
    pub(super) fn with_identity(mut self, chosen: &str) -> Self {
        if let AccessTarget::Credential(_, _, identity) = &mut self.0 {
            *identity = Some(chosen.to_owned());
        }
        self
    }
}

/// Parses a method: a text with the prefix, or in capitals as methods are. If a digit follows the colon, it is the
/// port of a host of that name.
fn method(text: &str) -> Option<Method> {
    let in_capitals = text.bytes().all(|byte| byte.is_ascii_uppercase()).then_some(text);
    let name = text
        .strip_prefix("method:")
        .or(in_capitals)
        .filter(|name| !name.starts_with(|c: char| c.is_ascii_digit()))?;
    Method::from_bytes(name.as_bytes()).ok()
}

/// Parses a credential: a text with the prefix of one.
fn credential(text: &str) -> Option<AccessTarget> {
    let (kind, service) = text.split_once('/')?;
    let kind = CredentialKind::ALL.iter().copied().find(|known| known.name() == kind)?;
    Some(AccessTarget::Credential(kind, service.to_owned(), None))
}

impl Host {
    /// Decides whether an installed connector may do this on this host, called within `scope` if there is one.
    ///
    /// Nothing runs and no name is looked up. For `localhost` the operator's grants decide. For other names the
    /// permit lists the grants that a private address would need.
    ///
    /// # Errors
    /// It is not installed, or its package cannot be read or was changed.
    pub fn why(
        &self,
        connector: &ConnectorRef,
        access: &AccessQuery,
        scope: Option<&ActionScope>,
    ) -> Result<AccessDecision, Error> {
        let (package, signature) = self.open_installed(connector)?;
        let decision = self.why_opened(&package, access, scope)?;
        let signature = self.signature_view(&package, signature.as_deref())?;
        Ok(match (decision, signature.reason) {
            // The operator chose to install it unsigned, and can allow it for a call.
            (AccessDecision::Allowed(permit), Some(reason)) if signature.status != "unsigned" => {
                AccessDecision::Allowed(
                    permit.with_note(format!("No call runs until this is solved: {reason}")),
                )
            }
            (decision, _) => decision,
        })
    }

    /// Decides as [`Host::why`] does, for a package that need not be installed.
    ///
    /// # Errors
    /// It is not a package; or the requested credential is granted, and the vault cannot be used.
    pub fn why_package(
        &self,
        bytes: Vec<u8>,
        access: &AccessQuery,
        scope: Option<&ActionScope>,
    ) -> Result<AccessDecision, HostError> {
        self.why_opened(&self.pipeline.loader.sandbox.open_blocking(bytes)?, access, scope)
    }

    /// Returns the package of an installed connector, whose bytes are those of its hash, and its signature.
    ///
    /// # Errors
    /// It is not installed, or its package cannot be read or was changed.
    pub(super) fn open_installed(
        &self,
        connector: &ConnectorRef,
    ) -> Result<(Package, Option<Vec<u8>>), Error> {
        let loader = &self.pipeline.loader;
        let digest = loader.find(connector)?;
        let StoredPackage { bytes, signature, .. } =
            loader.registry.read(&digest).map_err(HostError::from)?;
        let got = Digest::sha256(&bytes);
        if got != digest {
            let key = connector.to_string();
            let context = FailureContext::new(AuditId::mint()).with_connector(key.as_str(), None);
            return Err(hash_mismatch(&context, &key, &digest, &got));
        }
        Ok((loader.sandbox.open_blocking(bytes)?, signature))
    }

    /// Decides as [`Host::why`] does, for an open package.
    ///
    /// # Errors
    /// The requested credential is granted, and the vault cannot be used.
    pub(super) fn why_opened(
        &self,
        package: &Package,
        access: &AccessQuery,
        scope: Option<&ActionScope>,
    ) -> Result<AccessDecision, HostError> {
        let decided = self.decide(package, access, scope);
        if let (AccessTarget::Credential(..), Ok(_)) = (&access.0, &decided) {
            // A call would end with this error.
            self.pipeline.broker.check_vault()?;
        }
        Ok(match decided {
            Ok(allowed) => AccessDecision::Allowed(allowed),
            Err(denial) => AccessDecision::Denied(denial),
        })
    }

    fn decide(
        &self,
        package: &Package,
        access: &AccessQuery,
        scope: Option<&ActionScope>,
    ) -> Result<Allowed, Denial> {
        let (manifest, imports) = (package.manifest(), package.imports());
        match &access.0 {
            AccessTarget::Import(import) => {
                let permit = check_access(import, manifest.imports())?;
                let uses = imports.iter().any(|own| own.interface() == import.interface());
                Ok(if uses { permit } else { permit.with_note("The component does not import it.") })
            }
            AccessTarget::Method(method) => {
                let permit = self.pipeline.loader.sandbox.policy(manifest).check_method_access(method)?;
                Ok(if method.is_safe() { permit } else { with_effects(permit, package) })
            }
            AccessTarget::Credential(kind, service, identity) => {
                self.decide_credential(manifest, *kind, service, identity.as_deref())
            }
            AccessTarget::Network(uri, address) => {
                // A component that may not be installed reaches nothing.
                package.check_imports()?;
                if let Some(scope) = scope {
                    scope.fits(package.operations().iter().map(|it| it.name().json()), manifest.hosts())?;
                }
                let policy = self.pipeline.loader.sandbox.policy(manifest);
                let (permit, target) = (policy.check_access(uri, scope)?, RequestTarget::from_uri(uri)?);
                if let Some(address) = address {
                    policy.admit_address(&target, *address)?;
                }
                let permit = self.with_credentials(permit, manifest, &target);
                let permit = with_methods(with_effects(permit, package), manifest);
                let sends = imports.iter().any(|own| own.interface() == "wasi:http/outgoing-handler");
                Ok(match sends {
                    true => permit,
                    false => permit.with_note(
                        "The component sends no requests: it does not import wasi:http/outgoing-handler.",
                    ),
                })
            }
        }
    }
}

impl Host {
    /// Adds the credentials that are sent to `target`, and their bindings.
    fn with_credentials(&self, permit: Allowed, manifest: &Manifest, target: &RequestTarget) -> Allowed {
        let goes = |host: &HostGrant| {
            (host.scheme(), host.host(), host.port()) == (target.scheme(), target.host(), target.port())
        };
        let grants = manifest.credentials().iter().filter(|grant| grant.hosts().iter().any(goes));
        grants.fold(permit, |permit, grant| {
            let choice = IdentitySelection::default();
            let (bound, problem) = self.pipeline.broker.check_access(manifest, grant, Some(target), &choice);
            let note = format!("The credential {} goes there, {}. {bound}", grant.label(), grant.placement());
            permit.with_note(note).without_binding(problem.as_ref())
        })
    }

    fn decide_credential(
        &self,
        manifest: &Manifest,
        kind: CredentialKind,
        service: &str,
        identity: Option<&str>,
    ) -> Result<Allowed, Denial> {
        let requested = format!("credential:{}/{service}", kind.name());
        let asked =
            manifest.credentials().iter().find(|grant| (grant.kind(), grant.service()) == (kind, service));
        let Some(grant) = asked else {
            let granted = manifest.credentials().iter().map(|grant| format!("credential:{}", grant.label()));
            let code = DenialCode::CredentialNotGranted;
            let fix = "To allow it, add a [[capabilities.credential]] with this kind and service to \
                connector.toml, then build, sign and install the connector again.";
            let denial = Denial::new(DenialBoundary::ConnectorManifest, code, &requested, granted.collect());
            return Err(denial.with_alternative(fix));
        };
        let place = format!("It stands in the {}.", grant.placement());
        let permit = Allowed::new(&requested).with_grant(GrantLine::manifest_credential(grant.hosts()));
        let chosen: BTreeMap<_, _> =
            identity.map(|identity| (service.to_owned(), identity.to_owned())).into_iter().collect();
        let choice = IdentitySelection::new(&chosen, None);
        let (bound, problem) = self.pipeline.broker.check_access(manifest, grant, None, &choice);
        Ok(permit.with_note(place).with_note(bound).without_binding(problem.as_ref()))
    }
}

/// Adds the methods of the manifest.
fn with_methods(permit: Allowed, manifest: &Manifest) -> Allowed {
    let extra: Vec<_> = manifest.methods().iter().map(Method::as_str).collect();
    match extra.is_empty() {
        true => permit,
        false => permit.with_note(format!(
            "It may send {}, which the manifest adds to {}.",
            extra.join(", "),
            EVERYONES_METHODS.join(", ")
        )),
    }
}

/// Adds the operations that may only read there.
fn with_effects(permit: Allowed, package: &Package) -> Allowed {
    let names = package.operations().iter().map(|operation| operation.name().json());
    let held: Vec<_> =
        names.filter(|op| package.manifest().effect(op) == Some(OperationEffect::ReadOnly)).collect();
    let which = match held.len() {
        0 => return permit,
        all if all == package.operations().len() => "Every operation is".to_owned(),
        1 => format!("The operation {} is", held.join(", ")),
        many if many > NAMED => format!("{many} of the operations are"),
        _ => format!("The operations {} are", held.join(", ")),
    };
    permit.with_note(format!("{which} declared read_only: GET, HEAD and OPTIONS pass, and no other method."))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::{AccessQuery, AccessTarget};

    #[test]
    fn access_queries_are_classified() {
        for text in
            ["slack.com:443", "slack.com", "http://localhost:8080", "https://x/y?z", "u@x:1", "[::1]:80"]
        {
            assert!(matches!(AccessQuery::parse(text).unwrap().0, AccessTarget::Network(..)), "{text}");
        }
        for text in ["method:PROPFIND", "method:get", "method:TRACE", "PROPFIND"] {
            assert!(matches!(AccessQuery::parse(text).unwrap().0, AccessTarget::Method(_)), "{text}");
        }
        assert!(
            matches!(AccessQuery::parse("method:443").unwrap().0, AccessTarget::Network(..)),
            "a host of that name"
        );
        for text in ["api_key/slack", "session_token/a.b", "oauth2/"] {
            assert!(matches!(AccessQuery::parse(text).unwrap().0, AccessTarget::Credential(..)), "{text}");
        }
        for text in ["wasi:http/outgoing-handler", "wasi:sockets/tcp@0.2.0", "acme:x/y"] {
            assert!(matches!(AccessQuery::parse(text).unwrap().0, AccessTarget::Import(_)), "{text}");
        }
        for text in ["", "two words", "http://", "https://a b", "\u{1b}"] {
            let error = AccessQuery::parse(text).unwrap_err();
            assert!(error.hint().is_some() && !error.message().contains('\u{1b}'), "{text:?}: {error}");
        }
    }
}
