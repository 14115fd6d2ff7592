//! The secrets of a set of bindings that are scanned for, each with its owner.

use std::sync::Arc;

use cofferdam_core::privileged::ExposeSecret as _;
use cofferdam_core::secret::{Scanner, Secret};

use super::binding::{Binding, SecretMaterial};

/// Creates a scanner for every secret of `bindings`: each one separately, and the pair of user name and
/// password in the form in which they are sent.
pub(crate) fn scanner_for<'b>(bindings: impl IntoIterator<Item = &'b Binding>) -> Scanner {
    let mut sought = Vec::new();
    for binding in bindings {
        let name = binding.name.to_string();
        let secrets = binding.material.secrets().into_iter().map(Arc::clone);
        sought.extend(secrets.chain(pair(&binding.material)).map(|secret| (name.clone(), secret)));
    }
    Scanner::for_bindings(sought.iter().map(|(name, secret)| (name, &**secret)))
}

/// Returns the pair that a basic credential's header encodes in base64: long enough to be found even if the
/// password alone is not. It is a secret only if there is a password.
fn pair(material: &SecretMaterial) -> Option<Arc<Secret>> {
    match material {
        SecretMaterial::Basic { username, password } if !password.expose().is_empty() => {
            Some(Arc::new(Secret::new(format!("{username}:{}", password.expose()))))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use jiff::Timestamp;

    use super::*;
    use crate::vault::BindingName;
    use cofferdam_model::manifest::{ConnectorName, HostGrant};

    fn basic(password: &str) -> Binding {
        Binding {
            name: BindingName::parse("basic/wiki").unwrap(),
            material: SecretMaterial::Basic {
                username: "somebody".into(),
                password: Arc::new(Secret::new(password.into())),
            },
            hosts: vec![HostGrant::parse("wiki.test:443").unwrap()],
            connectors: vec![ConnectorName::parse("github://acme/wiki").unwrap()],
            created: Timestamp::UNIX_EPOCH,
            changed: Timestamp::UNIX_EPOCH,
            refused: None,
        }
    }

    #[test]
    fn a_header_of_basic_is_found_also_where_the_password_is_short() {
        for password in ["pw", "a-longer-password"] {
            let scanner = scanner_for([&basic(password)]);
            let header = format!("Basic {}", STANDARD.encode(format!("somebody:{password}")));
            let found = scanner.find(format!("you sent {header}.").as_bytes()).unwrap();
            assert_eq!(&*found.binding, "basic/wiki/default");
        }
        assert!(!scanner_for([&basic("pw")]).finds(b"pw and somebody"));
        assert!(scanner_for([]).is_empty());
    }
}
