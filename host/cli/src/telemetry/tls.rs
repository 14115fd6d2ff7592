//! TLS to a collector: as connectors have it, ring and nothing below TLS 1.2; whom to believe is the environment's say.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

/// Settings that believe the authorities in this PEM file, or the platform's where there is none.
pub(super) fn config(certificate: Option<&Path>) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    let found: Vec<CertificateDer<'static>> = match certificate {
        None => rustls_native_certs::load_native_certs().certs,
        Some(path) => CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect)
            .map_err(|_| "OTEL_EXPORTER_OTLP_CERTIFICATE names no PEM file that can be read".to_owned())?,
    };
    roots.add_parsable_certificates(found);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}
