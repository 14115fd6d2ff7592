//! The credentials of a document's operations.

use cofferdam_model::manifest::CredentialKind;

use crate::document::{Document, Node};
use crate::error::OpenApiError;

/// A credential that requests need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scheme {
    /// The name in the document.
    pub(crate) name: String,
    pub(crate) kind: CredentialKind,
    pub(crate) header: Option<String>,
    pub(crate) format: Option<String>,
    pub(crate) query: Option<String>,
}

/// The credentials of one operation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Security {
    pub(crate) schemes: Vec<Scheme>,
    /// It may be called without.
    pub(crate) is_optional: bool,
}

impl Security {
    pub(crate) fn is_empty(&self) -> bool {
        self.schemes.is_empty()
    }
}

/// Returns the credentials that an operation takes: of several ways, the one that people would choose.
pub(crate) fn of_operation(document: &Document, node: &Node<'_>) -> Result<Security, OpenApiError> {
    let root = document.root();
    let Some(requirements) = node.get("security").or_else(|| root.get("security")) else {
        return Ok(Security { schemes: Vec::new(), is_optional: true });
    };
    let schemes = root.get("components").and_then(|components| components.get("securitySchemes"));
    let mut ways: Vec<(u32, Vec<Scheme>)> = Vec::new();
    let mut is_optional = requirements.value.as_array().is_none_or(Vec::is_empty);
    for requirement in requirements.items() {
        let mut way = Vec::new();
        let mut names = 0;
        for (name, _) in requirement.fields() {
            names += 1;
            let Some(scheme) = schemes.as_ref().and_then(|schemes| schemes.get(name)) else {
                let message = format!("the security scheme {name:?} is not in components.securitySchemes");
                return Err(document.error(&requirement, message, "Describe it there, or correct its name."));
            };
            let scheme = document.follow(&scheme)?;
            if let Some(scheme) = self::scheme(name, &scheme) {
                way.push(scheme);
            }
        }
        match (names, way.len()) {
            (0, _) => is_optional = true,
            (wanted, known) if wanted == known => {
                ways.push((way.iter().map(rank).sum::<u32>() + 10 * u32::try_from(known).unwrap_or(9), way));
            }
            // A way that the host cannot send.
            _ => {}
        }
    }
    // The first of the best: the order is the document's.
    let best = ways.iter().map(|(rank, _)| *rank).min();
    let chosen = ways.into_iter().find(|(rank, _)| Some(*rank) == best);
    Ok(Security { schemes: chosen.map(|(_, way)| way).unwrap_or_default(), is_optional })
}

fn rank(scheme: &Scheme) -> u32 {
    match scheme.kind {
        CredentialKind::Bearer => 0,
        CredentialKind::Oauth2 => 1,
        CredentialKind::ApiKey => 2,
        _ => 3,
    }
}

fn scheme(name: &str, node: &Node<'_>) -> Option<Scheme> {
    let plain = |kind| Scheme { name: name.to_owned(), kind, header: None, format: None, query: None };
    Some(match node.text("type")? {
        "http" => match node.text("scheme")?.to_ascii_lowercase().as_str() {
            "bearer" => plain(CredentialKind::Bearer),
            "basic" => plain(CredentialKind::Basic),
            _ => return None,
        },
        "apiKey" => {
            let key = node.text("name")?.to_owned();
            let mut scheme = plain(CredentialKind::ApiKey);
            match node.text("in")? {
                "header" => {
                    scheme.header = Some(key);
                    scheme.format = Some("{key}".to_owned());
                }
                "query" => scheme.query = Some(key),
                "cookie" => {
                    scheme.header = Some("Cookie".to_owned());
                    scheme.format = Some(format!("{key}={{key}}"));
                }
                _ => return None,
            }
            scheme
        }
        "oauth2" => {
            let flows = node.get("flows");
            // Flows whose tokens the host can obtain or renew. Others give a token that is bound as it is.
            let renewable = flows.iter().flat_map(Node::fields).any(|(name, flow)| {
                matches!(name, "clientCredentials" | "authorizationCode") || flow.text("refreshUrl").is_some()
            });
            plain(if renewable { CredentialKind::Oauth2 } else { CredentialKind::Bearer })
        }
        "openIdConnect" => plain(CredentialKind::Oauth2),
        _ => return None,
    })
}
