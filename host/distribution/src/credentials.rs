//! The credentials of a registry, where container tools keep them.

use std::time::Duration;

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::sanitize_line;
use docker_credential::{CredentialRetrievalError, DockerCredential, get_credential_from_reader};
use oci_client::secrets::RegistryAuth;
use zeroize::Zeroizing;

/// The time for a credential helper, which may ask its user.
const HELPER: Duration = Duration::from_secs(60);

/// The names of Docker Hub, and the name of its entry in the file.
const DOCKER_HUB: [&str; 3] = ["docker.io", "index.docker.io", "registry-1.docker.io"];
const DOCKER_HUB_ENTRY: &str = "https://index.docker.io/v1/";

/// Returns the credentials of `registry` in `config`, which is the text of a `config.json` of Docker. A helper that the
/// file names for the registry is run. A registry without an entry is asked without credentials.
pub(crate) async fn look_up(
    config: Option<&Zeroizing<Vec<u8>>>,
    registry: &str,
) -> Result<RegistryAuth, HostError> {
    let Some(config) = config.cloned() else { return Ok(RegistryAuth::Anonymous) };
    let entry = if DOCKER_HUB.contains(&registry) { DOCKER_HUB_ENTRY } else { registry }.to_owned();
    // A helper is a process, and this waits for it.
    let found = tokio::task::spawn_blocking(move || get_credential_from_reader(&**config, &entry));
    let found = match tokio::time::timeout(HELPER, found).await {
        Ok(Ok(found)) => found,
        Ok(Err(lost)) => return Err(crate::error::internal("The credentials could not be read.", lost)),
        Err(_) => return Err(unusable(registry, "its helper did not answer within 60 s")),
    };
    match found {
        Ok(DockerCredential::UsernamePassword(user, password)) => Ok(RegistryAuth::Basic(user, password)),
        Ok(DockerCredential::IdentityToken(_)) => Err(unusable(
            registry,
            "it is an identity token, which is not supported; log in with a user name",
        )),
        Err(CredentialRetrievalError::NoCredentialConfigured) => Ok(RegistryAuth::Anonymous),
        // Helpers say so on standard output, in these words.
        Err(CredentialRetrievalError::HelperFailure { stdout, .. })
            if stdout.contains("credentials not found") =>
        {
            Ok(RegistryAuth::Anonymous)
        }
        // Its standard output may be a secret.
        Err(CredentialRetrievalError::HelperFailure { helper, stderr, .. }) => {
            let stderr = sanitize_line(&stderr, 200);
            Err(unusable(registry, &format!("{} failed: {stderr}", sanitize_line(&helper, 100))))
        }
        Err(other) => Err(unusable(registry, &other.to_string())),
    }
}

fn unusable(registry: &str, reason: &str) -> HostError {
    let message = format!("The credentials of {registry} cannot be used: {reason}.");
    HostError::new(HostErrorKind::Configuration, message)
        .with_hint("Correct ~/.docker/config.json ($DOCKER_CONFIG/config.json), or log in again.")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    async fn find(config: &str, registry: &str) -> Result<RegistryAuth, HostError> {
        look_up(Some(&Zeroizing::new(config.as_bytes().to_vec())), registry).await
    }

    #[tokio::test]
    async fn a_registry_gets_its_own_credentials_only() {
        let config = r#"{"auths": {"one.example:5000": {"auth": "YWRhOnMzY3JldA=="},
            "https://index.docker.io/v1/": {"auth": "aHViOmh1Yg=="}, "token.example": {"identitytoken": "x"},
            "broken.example": {"auth": "!"}}}"#;
        let basic = |user: &str, password: &str| RegistryAuth::Basic(user.into(), password.into());
        assert_eq!(find(config, "one.example:5000").await.unwrap(), basic("ada", "s3cret"));
        assert_eq!(find(config, "docker.io").await.unwrap(), basic("hub", "hub"));
        for other in ["one.example", "one.example:5001", "evil.one.example:5000"] {
            assert_eq!(find(config, other).await.unwrap(), RegistryAuth::Anonymous, "{other}");
        }
        assert!(find(config, "token.example").await.unwrap_err().message().contains("identity token"));
        assert!(find(config, "broken.example").await.is_err());
        assert!(find("{", "one.example").await.is_err());
    }
}
