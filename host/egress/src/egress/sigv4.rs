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

type PayloadError = Box<dyn std::error::Error + Send + Sync>;

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
pub(super) struct BufferedPayload {
    pub(super) first: Option<Frame<Bytes>>,
    pub(super) rest: UnsyncBoxBody<Bytes, PayloadError>,
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
    pub(super) async fn buffer_payload(
        &self,
        mut body: UnsyncBoxBody<Bytes, PayloadError>,
        scheme: UrlScheme,
    ) -> Result<BufferedPayload, SendError> {
        let mut held = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let phase = RequestPhase::Send;
            let broken = NetworkFaultParts { phase, code: code::REQUEST_BODY, request_sent: false };
            // Trailers are not part of the signature, and AWS requires none.
            let Ok(data) = frame.map_err(|_| broken)?.into_data() else { break };
            held.extend_from_slice(&data);
            if held.len() > S3_SIGNED_BYTES && self.is_s3() && scheme == UrlScheme::Https {
                let first = Some(Frame::data(held.freeze()));
                return Ok(BufferedPayload { first, rest: body, payload: SignedPayload::Unsigned });
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
        Ok(BufferedPayload { first: None, rest, payload: SignedPayload::Whole(held) })
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

/// The suffixes of the names of AWS's endpoints.
const SUFFIXES: [&str; 5] = [".amazonaws.com", ".amazonaws.com.cn", ".amazonaws.eu", ".api.aws", ".on.aws"];

/// Returns the region for a request to `host`: the one in its name, otherwise the one `configured` with the
/// binding, otherwise the one in which AWS signs for its global endpoints. `None` for other hosts, about
/// which nothing is known.
pub(crate) fn region(host: &str, configured: Option<&str>) -> Option<String> {
    let aws = SUFFIXES.iter().find_map(|suffix| Some((host.strip_suffix(suffix)?, *suffix)));
    let named = aws.and_then(|(labels, _)| named(labels));
    let global = || match aws {
        Some((labels, ".amazonaws.com")) if last(labels) == "us-gov" => Some("us-gov-west-1".to_owned()),
        Some((_, ".amazonaws.com")) => Some("us-east-1".to_owned()),
        _ => None,
    };
    named.or(configured).map(str::to_owned).or_else(global)
}

fn last(labels: &str) -> &str {
    labels.rsplit('.').next().unwrap_or_default()
}

/// Returns the rightmost label that is a region. Labels further left are chosen by users: a bucket's name may
/// look like a region.
fn named(labels: &str) -> Option<&str> {
    if last(labels) == "s3" {
        return None;
    }
    labels.rsplit('.').find_map(|label| {
        // S3 used to write s3-us-west-2. Other labels with this prefix (s3-external-1, s3-fips) name no
        // region.
        let label = label.strip_prefix("s3-").unwrap_or(label);
        is_region(label).then_some(label)
    })
}

/// Matches `us-east-1`, `us-gov-west-1`, `eusc-de-east-1`: words, the first of 2 to 4 letters, and a number.
fn is_region(label: &str) -> bool {
    let mut parts = label.split('-');
    let (first, number) = (parts.next().unwrap_or_default(), parts.next_back().unwrap_or_default());
    let word = |word: &str| word.len() >= 2 && word.bytes().all(|b| b.is_ascii_lowercase());
    let words: Vec<&str> = parts.collect();
    (2..=4).contains(&first.len())
        && word(first)
        && (1..=2).contains(&words.len())
        && words.iter().all(|it| word(it))
        && (1..=2).contains(&number.len())
        && number.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {

    use super::region;

    #[test]
    fn the_region_comes_from_the_name_or_the_binding() {
        for (host, configured, expected) in [
            ("s3.us-east-1.amazonaws.com", None, Some("us-east-1")),
            ("bucket.s3.eu-west-1.amazonaws.com", None, Some("eu-west-1")),
            ("bucket.s3.eu-west-1.amazonaws.com", Some("us-east-2"), Some("eu-west-1")),
            ("eu-west-9.s3.us-gov-west-1.amazonaws.com", None, Some("us-gov-west-1")),
            ("us-west-2.s3.amazonaws.com", None, Some("us-east-1")),
            ("bucket.s3-ap-southeast-2.amazonaws.com", None, Some("ap-southeast-2")),
            ("s3-external-1.amazonaws.com", None, Some("us-east-1")),
            ("bucket.s3.dualstack.me-central-1.amazonaws.com", None, Some("me-central-1")),
            ("s3-fips.us-west-1.amazonaws.com", None, Some("us-west-1")),
            ("123456789012.s3-control.sa-east-1.amazonaws.com", None, Some("sa-east-1")),
            ("dynamodb.cn-north-1.amazonaws.com.cn", None, Some("cn-north-1")),
            ("s3.amazonaws.com.cn", None, None),
            ("s3.amazonaws.com.cn", Some("cn-northwest-1"), Some("cn-northwest-1")),
            ("search-x.eu-central-1.es.amazonaws.com", None, Some("eu-central-1")),
            ("abc.execute-api.ca-central-1.amazonaws.com", None, Some("ca-central-1")),
            ("abc.lambda-url.ap-east-1.on.aws", None, Some("ap-east-1")),
            ("ec2.us-east-2.api.aws", None, Some("us-east-2")),
            ("s3.eusc-de-east-1.amazonaws.eu", None, Some("eusc-de-east-1")),
            ("iam.amazonaws.com", None, Some("us-east-1")),
            ("sts.amazonaws.com", Some("eu-north-1"), Some("eu-north-1")),
            ("iam.us-gov.amazonaws.com", None, Some("us-gov-west-1")),
            ("s3.amazonaws.com", None, Some("us-east-1")),
            ("minio.example", None, None),
            ("localhost", Some("us-east-1"), Some("us-east-1")),
            ("s3.eu-west-1.amazonaws.com.evil.example", None, None),
        ] {
            assert_eq!(region(host, configured).as_deref(), expected, "{host} {configured:?}");
        }
    }
}
