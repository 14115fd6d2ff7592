//! Packages on web servers: one file, and its signature next to it.

use std::time::Duration;

use cofferdam_core::error::HostError;
use cofferdam_egress::egress::HostPort;
use cofferdam_model::package;
use reqwest::{Certificate, Client, Proxy, StatusCode};
use url::Url;

use crate::artifact::SIGNATURE_BYTES;
use crate::error;
use crate::guard::{ConnectionGuard, PlainHttp};
use crate::reference::WebRef;
use crate::registry::{DOCUMENT_BYTES, loopback_grant};
use crate::settings::DistributionSettings;

/// The time to connect.
pub(crate) const CONNECT: Duration = Duration::from_secs(15);

/// The longest silence of a server in the middle of a response.
pub(crate) const SILENCE: Duration = Duration::from_secs(30);

/// The name that servers log.
pub(crate) const USER_AGENT: &str = concat!("cofferdam/", env!("CARGO_PKG_VERSION"));

/// Downloads a package and its signature, if there is one.
pub(crate) async fn fetch(
    settings: &DistributionSettings,
    reference: &WebRef,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<(Vec<u8>, Option<Vec<u8>>), HostError> {
    let mut private = settings.private.clone();
    if let Ok(own) = HostPort::parse(&reference.host_port()) {
        private.extend(loopback_grant(own.host(), own.port()));
    }
    // No plain HTTP at all, also not by a redirect.
    let guard = ConnectionGuard::start(&private, PlainHttp::default(), settings.resolver.clone()).await?;
    let client = client(settings, &guard, false).map_err(|error| error::no_client().with_source(error))?;
    let bytes = get(&client, &guard, reference.url(), package::MAX_BYTES, progress).await?;
    let bytes = bytes.ok_or_else(|| {
        error::unavailable(format!("The server does not have {reference}."), "Check the reference.")
    })?;
    let signature = get(&client, &guard, &reference.signature_url(), SIGNATURE_BYTES, &|_, _| {}).await?;
    Ok((bytes, signature))
}

/// Downloads a document of at most `limit` bytes: by https, or by http from a loopback address.
pub(crate) async fn fetch_document(
    settings: &DistributionSettings,
    url: &Url,
    limit: u64,
) -> Result<Vec<u8>, HostError> {
    let host_port =
        url.host_str().zip(url.port_or_known_default()).map(|(host, port)| format!("{host}:{port}"));
    let own = host_port.and_then(|host_port| HostPort::parse(&host_port).ok());
    let mut private = settings.private.clone();
    let loopback = own.as_ref().and_then(|own| loopback_grant(own.host(), own.port()));
    let is_plain = url.scheme() == "http";
    if url.scheme() != "https" && !(is_plain && loopback.is_some()) {
        let message = format!("{url} is neither https nor on this machine.");
        return Err(error::refused(
            message,
            "Name an https address, or download the file yourself and name that.",
        ));
    }
    private.extend(loopback);
    let plain_http = PlainHttp { named: Vec::new(), loopback: own.filter(|_| is_plain) };
    let guard = ConnectionGuard::start(&private, plain_http, settings.resolver.clone()).await?;
    let client = client(settings, &guard, is_plain).map_err(|error| error::no_client().with_source(error))?;
    let bytes = get(&client, &guard, url, limit, &|_, _| {}).await?;
    bytes.ok_or_else(|| error::unavailable(format!("The server does not have {url}."), "Check the address."))
}

/// Returns a client whose connections go through `guard`. With `is_plain` it may use http, too, where the guard lets it.
fn client(
    settings: &DistributionSettings,
    guard: &ConnectionGuard,
    is_plain: bool,
) -> reqwest::Result<Client> {
    // Refused only if there is one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let certificates = |roots: Vec<Vec<u8>>| {
        roots.iter().map(|root| Certificate::from_der(root)).collect::<reqwest::Result<Vec<_>>>()
    };
    let only = settings.only_roots();
    let mut builder = Client::builder().proxy(Proxy::all(guard.url())?);
    if !only.is_empty() {
        builder = builder.tls_certs_only(certificates(only)?);
    }
    builder
        .tls_certs_merge(certificates(settings.extra_roots.clone())?)
        .https_only(!is_plain)
        .connect_timeout(CONNECT)
        .read_timeout(SILENCE)
        .user_agent(USER_AGENT)
        .build()
}

/// Downloads a file of at most `limit` bytes; none if the server does not have it.
async fn get(
    client: &Client,
    guard: &ConnectionGuard,
    url: &Url,
    limit: u64,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Option<Vec<u8>>, HostError> {
    guard.begin_step(limit + limit / 16 + DOCUMENT_BYTES);
    let failed = |error| guard.take_refusal().unwrap_or_else(|| error::from_request(url, error));
    let mut response = client.get(url.clone()).send().await.map_err(failed)?;
    match response.status() {
        StatusCode::OK => {}
        StatusCode::NOT_FOUND => return Ok(None),
        status => {
            let message =
                format!("The server answered the request for {url} with status {}.", status.as_u16());
            return Err(error::unavailable(message, "Check the reference, or try again later."));
        }
    }
    let announced = response.content_length();
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        bytes.extend_from_slice(&chunk);
        let received = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if received > limit {
            let message = format!("{url} has more than {limit} bytes.");
            return Err(error::refused(message, "Is it the file that was meant?"));
        }
        progress(received, announced.unwrap_or(received));
    }
    // A body without a length that the guard cut looks complete.
    guard.take_refusal().map_or(Ok(Some(bytes)), Err)
}
