//! Whether a connector may reach a host or import an interface: told without running it, by the code that
//! decides it when it runs.

use http::Uri;

use super::Host;
use crate::action::ActionScope;
use crate::call::{ConnectorRef, hash_mismatch};
use crate::digest::Digest;
use crate::error::{Error, HostError, HostErrorKind};
use crate::failure::{AuditId, Context, Denial, Permit, ascii_line};
use crate::package::{Import, Package, foretell};
use crate::registry::Stored;

/// What somebody asks about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access(Asked);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Asked {
    Network(Uri),
    Import(Import),
}

impl Access {
    /// Reads a URL (`https://host:port`, `http://host:port`; a path makes no difference), a `host:port`
    /// (over TLS, as in a manifest), or an import (`wasi:http/outgoing-handler`, with or without `@version`).
    ///
    /// # Errors
    /// `validation`: it is none of these.
    pub fn parse(text: &str) -> Result<Self, HostError> {
        let url = match text.contains("://") {
            true => text.to_owned(),
            false if text.contains('/') => return Ok(Self(Asked::Import(Import::asked(text)))),
            false => format!("https://{text}"),
        };
        match url.parse::<Uri>() {
            Ok(uri) => Ok(Self(Asked::Network(uri))),
            Err(error) => {
                let shown = ascii_line(text, 200);
                let message = format!("`{shown}` is neither a host nor an import.");
                Err(HostError::new(HostErrorKind::Validation, message)
                    .hint("Write it like api.example.com:443, http://localhost:8080 or wasi:http/outgoing-handler.")
                    .because(error))
            }
        }
    }
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
    /// It is not a package.
    pub fn why_package(
        &self,
        bytes: Vec<u8>,
        access: &Access,
        scope: Option<&ActionScope>,
    ) -> Result<Result<Permit, Denial>, HostError> {
        let package = Package::open(bytes)?;
        Ok(self.decide(&package, access, scope))
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
            Asked::Network(uri) => {
                // A component that may not be installed reaches nothing.
                package.check_imports()?;
                if let Some(scope) = scope {
                    scope.fits(package.operations().iter().map(|it| it.name().json()), manifest.hosts())?;
                }
                let permit = self.pipeline.loader.sandbox.policy(manifest).foretell(uri, scope)?;
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
        for text in ["wasi:http/outgoing-handler", "wasi:sockets/tcp@0.2.0", "acme:x/y"] {
            assert!(matches!(Access::parse(text).unwrap().0, Asked::Import(_)), "{text}");
        }
        for text in ["", "two words", "http://", "https://a b", "\u{1b}"] {
            let error = Access::parse(text).unwrap_err();
            assert!(error.hint_text().is_some() && !error.message().contains('\u{1b}'), "{text:?}: {error}");
        }
    }
}
