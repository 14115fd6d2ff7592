//! The HTTP client of the span exporter: reqwest, with one warning for all lost spans.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use opentelemetry_http::{HttpClient, HttpError};
use reqwest::blocking::Client;
use reqwest::redirect::Policy;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

use super::environment::OtlpVariables;

/// The client for one collector. Like connectors, it follows no redirect and uses no proxy.
#[derive(Debug)]
pub(super) struct CollectorClient {
    client: Client,
    timeout: Duration,
    /// Host and port alone: the rest of the address may contain a credential.
    address: String,
    warned: AtomicBool,
}

impl CollectorClient {
    /// # Errors
    /// The reason for the operator why there is no client.
    pub(super) fn new(variables: &OtlpVariables) -> Result<Self, String> {
        let roots = match variables.secure {
            true => trusted_roots(variables.certificate.as_deref())?,
            false => RootCertStore::empty(),
        };
        // A provider of its own: rustls has no default one here, and takes TLS 1.2 and 1.3 with it.
        let tls = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .redirect(Policy::none())
            .no_proxy()
            .timeout(variables.timeout)
            .build()
            .map_err(|error| error.to_string())?;
        let address = variables.address.clone();
        Ok(Self { client, timeout: variables.timeout, address, warned: AtomicBool::new(false) })
    }

    /// Warns, once in a process, that spans were lost.
    fn warn(&self, reason: &str) {
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(target: "cofferdam::telemetry", collector = self.address, "spans could not be sent: {reason}");
        }
    }
}

#[async_trait::async_trait]
impl HttpClient for CollectorClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let result = self.client.send_bytes(request).await;
        match &result {
            Ok(response) if response.status().is_success() => {}
            Ok(response) => self.warn(&format!("it answered with status {}", response.status().as_u16())),
            Err(error) if error.downcast_ref().is_some_and(reqwest::Error::is_timeout) => {
                self.warn(&format!("no answer within {} ms", self.timeout.as_millis()));
            }
            // The outer errors quote the whole address.
            Err(error) => self.warn(&root_cause(error.as_ref()).to_string()),
        }
        result
    }
}

fn root_cause<'a>(mut error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    while let Some(source) = error.source() {
        error = source;
    }
    error
}

/// Returns the certificate authorities in this PEM file, or the platform's if there is none.
fn trusted_roots(certificate: Option<&Path>) -> Result<RootCertStore, String> {
    let found: Vec<CertificateDer<'static>> = match certificate {
        None => rustls_native_certs::load_native_certs().certs,
        Some(path) => CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect)
            .map_err(|_| "OTEL_EXPORTER_OTLP_CERTIFICATE names no PEM file that can be read".to_owned())?,
    };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found);
    Ok(roots)
}
