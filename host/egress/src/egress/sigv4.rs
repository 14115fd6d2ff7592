//! Signs requests for AWS (Signature Version 4), when everything else about them is final.
//!
//! The AWS crate computes the signature; this module decides its input: exactly the head that is sent, and
//! the body's bytes, which are held for that. Fields that proxies on the way may change are not signed, and
//! neither are other credentials.

use std::sync::Arc;
use std::time::SystemTime;

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings,
    UriPathNormalizationMode, sign,
};
use aws_sigv4::sign::v4::SigningParams;
use bytes::{Bytes, BytesMut};
use cofferdam_core::clock::Clock;
use cofferdam_core::failure::{LimitHit, LimitKind, RequestPhase};
use cofferdam_core::limits::REQUEST_BODY_BYTES;
use cofferdam_core::privileged::ExposeSecret as _;
use cofferdam_core::secret::Secret;
use cofferdam_model::manifest::UrlScheme;
use http::{HeaderName, HeaderValue, request};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use tracing::subscriber::{NoSubscriber, with_default};

use super::authority::RequestTarget;
use super::fault::{NetworkFaultParts, RequestFlaw, SendError, code};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The fields that are not signed: those that proxies change, and those that hyper writes.
const UNSIGNED: [&str; 8] = [
    "accept-encoding",
    "authorization",
    "connection",
    "content-length",
    "expect",
    "transfer-encoding",
    "user-agent",
    "x-amzn-trace-id",
];

/// The longest body for S3 that is held to be signed over TLS, in bytes. Other services sign every body.
const S3_SIGNED_BYTES: usize = 1024 * 1024;

/// The keys and the scope of a signature.
pub struct Sigv4Signer {
    pub(crate) access_key_id: String,
    pub(crate) secret_access_key: Arc<Secret>,
    pub(crate) session_token: Option<Arc<Secret>>,
    /// The AWS name of the service.
    pub(crate) service: String,
    pub(crate) region: String,
    pub(crate) clock: Arc<dyn Clock>,
}

/// The part of a request's body that the signature covers.
pub(super) enum SignedPayload {
    /// The whole body.
    Whole(Bytes),
    /// Nothing: the body is too long to hold, and S3 accepts it unsigned over TLS.
    Unsigned,
}

/// A body that was read ahead: its first frame, if one was taken, and the rest.
pub(super) struct PayloadScan {
    pub(super) first: Option<Frame<Bytes>>,
    pub(super) rest: UnsyncBoxBody<Bytes, BoxError>,
    pub(super) payload: SignedPayload,
}

impl Sigv4Signer {
    /// Returns whether the service is S3, which signs differently: it takes paths verbatim, and requires the
    /// body's hash in a header.
    fn is_s3(&self) -> bool {
        matches!(self.service.as_str(), "s3" | "s3-outposts" | "s3express" | "s3-object-lambda")
    }

    /// Returns the largest part of a body that is held to be signed, in bytes.
    pub fn holds_at_most(&self, scheme: UrlScheme) -> u64 {
        match self.is_s3() && scheme == UrlScheme::Https {
            true => S3_SIGNED_BYTES as u64,
            false => REQUEST_BODY_BYTES,
        }
    }

    /// Holds the whole body, which is within the limit of all bodies. A body for S3 that exceeds
    /// [`S3_SIGNED_BYTES`] is streamed instead, over TLS.
    pub(super) async fn look(
        &self,
        mut body: UnsyncBoxBody<Bytes, BoxError>,
        scheme: UrlScheme,
    ) -> Result<PayloadScan, SendError> {
        let mut held = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let phase = RequestPhase::Send;
            let broken = NetworkFaultParts { phase, code: code::REQUEST_BODY, request_sent: false };
            // Trailers are not part of the signature, and AWS requires none.
            let Ok(data) = frame.map_err(|_| broken)?.into_data() else { break };
            held.extend_from_slice(&data);
            if held.len() > S3_SIGNED_BYTES && self.is_s3() && scheme == UrlScheme::Https {
                let first = Some(Frame::data(held.freeze()));
                return Ok(PayloadScan { first, rest: body, payload: SignedPayload::Unsigned });
            }
            let used = held.len() as u64;
            if used > REQUEST_BODY_BYTES {
                let (limit, configured) = (LimitKind::RequestBody, REQUEST_BODY_BYTES);
                return Err(SendError::Limit(LimitHit::new(limit, configured, used)));
            }
        }
        let held = held.freeze();
        let rest = match held.is_empty() {
            true => Empty::new().map_err(|never| match never {}).boxed_unsync(),
            false => Full::new(held.clone()).map_err(|never| match never {}).boxed_unsync(),
        };
        Ok(PayloadScan { first: None, rest, payload: SignedPayload::Whole(held) })
    }

    /// Signs the request of `head` and `payload`.
    pub(super) fn sign(
        &self,
        head: &mut request::Parts,
        target: &RequestTarget,
        payload: &SignedPayload,
    ) -> Result<(), RequestFlaw> {
        let url = format!("{}://{}{}", target.scheme().name(), target.host_header(), head.uri);
        let signed = |name: &HeaderName, value: &HeaderValue| {
            !UNSIGNED.contains(&name.as_str()) && !value.is_sensitive()
        };
        let mut fields = Vec::with_capacity(head.headers.len());
        for (name, value) in head.headers.iter().filter(|(name, value)| signed(name, value)) {
            fields.push((name.as_str(), value.to_str().map_err(|_| RequestFlaw::Credential)?));
        }
        let body = match payload {
            SignedPayload::Whole(bytes) => SignableBody::Bytes(bytes),
            SignedPayload::Unsigned => SignableBody::UnsignedPayload,
        };
        // The crate writes the data that it signs to its trace, tokens included.
        let made = with_default(NoSubscriber::default(), || {
            self.headers(head.method.as_str(), url, fields.into_iter(), body)
        });
        for (name, value) in made.ok_or(RequestFlaw::Credential)? {
            head.headers.insert(name, value);
        }
        Ok(())
    }

    /// Returns the headers of the signature; `None` if the request cannot be signed.
    fn headers<'r>(
        &self,
        method: &'r str,
        url: String,
        fields: impl Iterator<Item = (&'r str, &'r str)>,
        body: SignableBody<'r>,
    ) -> Option<Vec<(HeaderName, HeaderValue)>> {
        let token = self.session_token.as_ref().map(|token| token.expose().to_owned());
        let secret = self.secret_access_key.expose();
        let identity = Credentials::new(&self.access_key_id, secret, token, None, "cofferdam").into();
        let params = SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name(&self.service)
            .time(SystemTime::from(self.clock.timestamp()))
            .settings(self.settings())
            .build()
            .ok()?
            .into();
        let request = SignableRequest::new(method, url, fields, body).ok()?;
        let (made, _) = sign(request, &params).ok()?.into_parts();
        let (headers, _) = made.into_parts();
        let sensitive = |text: &str| {
            let mut value = HeaderValue::from_str(text).ok()?;
            value.set_sensitive(true);
            Some(value)
        };
        let each = headers.iter().map(|header| {
            Some((HeaderName::from_bytes(header.name().as_bytes()).ok()?, sensitive(header.value())?))
        });
        each.collect()
    }

    fn settings(&self) -> SigningSettings {
        let mut settings = SigningSettings::default();
        if self.is_s3() {
            settings.percent_encoding_mode = PercentEncodingMode::Single;
            settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
            settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
        }
        settings
    }
}
