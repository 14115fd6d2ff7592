//! The readiness of a server: whether the parts that its requests need can be used, and which of them cannot.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::json;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

/// The time for which a result is used again: everybody may ask, and an answer costs a look at every part.
const VALIDITY: Duration = Duration::from_secs(1);

/// The longest time of one check.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The parts that a server needs.
pub trait ReadinessCheck: Send + Sync + 'static {
    /// Returns the names of the parts that cannot be used now: for everybody, so without secrets, addresses and paths.
    fn missing(&self) -> Pin<Box<dyn Future<Output = Vec<String>> + Send + '_>>;
}

/// The missing parts, and the time at which they were found out.
type LastCheck = (Instant, Vec<String>);

/// The check of a server, and its last result.
#[derive(Clone)]
pub(super) struct Readiness {
    check: Arc<dyn ReadinessCheck>,
    last: Arc<Mutex<Option<LastCheck>>>,
}

impl std::fmt::Debug for Readiness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Readiness").finish_non_exhaustive()
    }
}

impl Readiness {
    pub(super) fn new(check: Arc<dyn ReadinessCheck>) -> Self {
        Self { check, last: Arc::default() }
    }

    /// Returns what is missing. Requests that come together share one check.
    async fn missing(&self) -> Vec<String> {
        let mut last = self.last.lock().await;
        if let Some((at, missing)) = &*last
            && at.elapsed() < VALIDITY
        {
            return missing.clone();
        }
        let missing = match timeout(TIMEOUT, self.check.missing()).await {
            Ok(missing) => missing,
            Err(_) => vec!["an answer within 5 seconds".to_owned()],
        };
        *last = Some((Instant::now(), missing.clone()));
        missing
    }
}

/// Returns the answer to a readiness check. The connection ends with it, as after a health check.
pub(super) async fn answer(readiness: Option<&Readiness>, is_closing: bool) -> Response<Body> {
    let missing = match readiness {
        _ if is_closing => vec!["the server is about to end".to_owned()],
        Some(readiness) => readiness.missing().await,
        None => Vec::new(),
    };
    let body = json!({"ready": missing.is_empty(), "missing": missing});
    let mut answer = Response::new(Body::from(format!("{body}\n")));
    if !missing.is_empty() {
        *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    answer
}
