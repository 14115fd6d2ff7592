//! Tests a binding: obtains a token from its issuer, and sends one request as a connector would.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::failure::{AuditId, Failure, FailureContext, NetworkFault, UpstreamFault, sanitize_line};
use cofferdam_core::privileged::MakeFailure as _;
use cofferdam_egress::credentials::{CredentialError, IdentitySelection};
use cofferdam_egress::egress::{AuthorizationError, EgressTimeouts, SendError};
use cofferdam_egress::vault::BindingName;
use cofferdam_model::manifest::HostGrant;
use cofferdam_model::package::Package;
use cofferdam_model::registry::RegistryEntry;
use http::{Request, Uri};
use http_body_util::Empty;
use serde::Serialize;

use super::Host;
use super::bindings::BindingInspection;

/// The time limit of each part of the exchange.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The result of a test of a binding that found no problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BindingTest {
    /// The binding as it is after the test, and the connectors that would get it.
    #[serde(flatten)]
    pub inspection: BindingInspection,
    /// The response, if a request was sent.
    pub answer: Option<TestAnswer>,
}

/// The response to a request that carried the credential. Nothing of its body is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TestAnswer {
    /// The connector in whose name it was sent, with its version.
    pub connector: String,
    /// The host that it was sent to.
    pub host: String,
    /// The HTTP status.
    pub status: u16,
}

impl Host {
    /// Tests a binding. For a kind with tokens, it obtains one unless the current one is valid. With a `url`, it
    /// sends one GET request there with the credential, as an installed connector that requests it would: within
    /// that connector's manifest, the binding's hosts and the operator's grants.
    ///
    /// Any response except 401 and 403 counts as a success: the meaning of a path depends on the service.
    ///
    /// # Errors
    /// [`Error::Failure`] is the failure of such a call: `binding_required` or `binding_failed`,
    /// `capability_denied`, `network_error`, or `external_api_error` if the credential was not accepted.
    /// [`Error::Host`]: the binding or the URL is invalid, no installed connector would send it there, or the vault
    /// or the packages cannot be read.
    pub async fn test_binding(&self, name: &BindingName, url: Option<&str>) -> Result<BindingTest, Error> {
        let context = FailureContext::new(AuditId::mint()).with_op("test", true);
        // This may open the vault, and it reads packages.
        let (host, wanted) = (self.clone(), name.clone());
        blocking(move || host.binding(&wanted)).await?;
        self.check_binding(name).await?;
        let answer = match url {
            None => None,
            Some(url) => Some(self.ask(&context, name, url).await?),
        };
        let (host, wanted) = (self.clone(), name.clone());
        let inspection = blocking(move || host.inspect_binding(&wanted)).await?;
        Ok(BindingTest { inspection, answer })
    }

    async fn ask(
        &self,
        context: &FailureContext,
        name: &BindingName,
        url: &str,
    ) -> Result<TestAnswer, Error> {
        let uri = url.parse::<Uri>().ok().filter(|uri| uri.host().is_some()).ok_or_else(|| {
            let message = format!("`{}` is not a URL.", sanitize_line(url, 200));
            HostError::new(HostErrorKind::Validation, message)
                .with_hint("Write it like https://slack.com/api/auth.test.")
        })?;
        let (host, wanted, asked) = (self.clone(), name.clone(), uri.clone());
        let (entry, package) = blocking(move || host.sender(&wanted, &asked)).await?;
        let (manifest, loader) = (package.manifest(), &self.pipeline.loader);
        let client = loader.sandbox.client(manifest);
        let denied = |denial| Error::Failure(Failure::capability_denied(context, &denial));
        let target = client.policy().decide(&uri, None).map_err(denied)?;
        let choice = BTreeMap::from([(name.service().to_owned(), name.identity().to_owned())]);
        let hash = format!("sha256:{}", entry.digest).into();
        let credentials =
            self.pipeline.broker.for_call(manifest, &hash, IdentitySelection::new(&choice, None)).await;
        let credentials = credentials.map_err(|refused| not_given(context, refused))?;
        let (head, body) = Request::get(uri).body(Empty::<Bytes>::new()).map_err(internal)?.into_parts();
        let (authorization, bindings) = match &credentials {
            None => Default::default(),
            Some(credentials) => {
                let attempt = credentials.attempt();
                let authorization = attempt.authorize(&target, &head).await;
                (authorization.map_err(|why| unauthorized(context, why))?, attempt.bindings_for(&target))
            }
        };
        let timeouts = EgressTimeouts::default().with_connect(TEST_TIMEOUT).with_first_byte(TEST_TIMEOUT);
        let request = Request::from_parts(head, body);
        let sent = client.send(request, &target, &timeouts, &authorization, None).await;
        let status = match sent {
            Ok(response) => response.status().as_u16(),
            Err(SendError::Refused(denial) | SendError::RefusedAnswer(denial)) => return Err(denied(denial)),
            Err(SendError::Fault(fault)) => {
                let fault = NetworkFault {
                    phase: Some(fault.phase),
                    code: fault.code,
                    host: Some(target.to_string()),
                    request_sent: fault.request_sent,
                    observed: true,
                };
                return Err(Failure::network_error(context, fault).into());
            }
            Err(other) => {
                let message = format!("The request was not made: {other}.");
                return Err(HostError::new(HostErrorKind::Validation, message)
                    .with_hint("Try another path.")
                    .into());
            }
        };
        if matches!(status, 401 | 403) {
            let fault = UpstreamFault {
                status,
                upstream_code: None,
                host: Some(target.to_string()),
                retry_after_ms: None,
                bindings,
                observed: true,
            };
            return Err(Failure::external_api_error(context, fault).into());
        }
        let connector = format!("{}@{}", entry.name, entry.version);
        Ok(TestAnswer { connector, host: target.to_string(), status })
    }

    /// Returns the installed connector that would send this binding to the host of `uri`.
    fn sender(&self, name: &BindingName, uri: &Uri) -> Result<(RegistryEntry, Package), HostError> {
        let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
        let clear = uri.scheme_str() == Some("http");
        let port = uri.port_u16().unwrap_or(if clear { 80 } else { 443 });
        let goes = |host: &HostGrant| {
            let scheme = if clear { "http" } else { "https" };
            let same = uri.host().is_some_and(|name| name.eq_ignore_ascii_case(host.host()));
            same && host.port() == port && host.scheme().name() == scheme
        };
        let binding = self.binding(name)?;
        let found =
            self.packages_requesting(name.kind(), name.service())?.into_iter().find(|(entry, package)| {
                let grants = package.manifest().credentials().iter();
                let mut grants =
                    grants.filter(|grant| grant.kind() == name.kind() && grant.service() == name.service());
                binding.connectors.contains(&entry.name.to_string())
                    && grants.any(|grant| grant.hosts().iter().any(goes))
            });
        found.ok_or_else(|| {
            let message = format!(
                "No installed connector that may use {name} asks to have it sent to {}.",
                sanitize_line(&authority, 200)
            );
            let hint = format!(
                "`cofferdam binding inspect {name}` shows where it would go, and what would allow more."
            );
            HostError::new(HostErrorKind::Validation, message).with_hint(hint)
        })
    }
}

fn not_given(context: &FailureContext, refused: CredentialError) -> Error {
    match refused {
        CredentialError::Binding(problem) => Failure::binding(context, &problem).into(),
        CredentialError::Host(error) => error.into(),
    }
}

fn unauthorized(context: &FailureContext, why: AuthorizationError) -> Error {
    match why {
        AuthorizationError::Binding(problem) => Failure::binding(context, &problem).into(),
        AuthorizationError::Denied(denial) => Failure::capability_denied(context, &denial).into(),
        AuthorizationError::Host(trouble) => {
            HostError::new(trouble.kind, trouble.message).with_hint(trouble.hint).into()
        }
    }
}

fn internal(error: http::Error) -> HostError {
    HostError::new(HostErrorKind::Internal, "The request could not be made.").with_source(error)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, HostError> + Send + 'static,
) -> Result<T, HostError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| {
        HostError::new(HostErrorKind::Internal, "The look into the vault was lost.").with_source(error)
    })?
}
