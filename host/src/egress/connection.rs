//! One HTTP/1.1 connection: whoever holds it owns it, and dropping it ends it at once.

use std::sync::Arc;

use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;

use super::fault::{NetworkFaultParts, SendError, classify};
use super::outgoing::RequestBody;
use super::stream::{Meter, Metered};
use crate::failure::Phase;
use crate::limits::HEADER_BYTES;

/// A connection with at most one request under way.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) sender: http1::SendRequest<RequestBody>,
    pub(super) meter: Arc<Meter>,
    driver: JoinHandle<()>,
}

impl Connection {
    /// Starts HTTP on an open stream. Nothing is written yet.
    pub(super) async fn open<S>(stream: Metered<S>) -> Result<Self, SendError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let meter = stream.meter();
        let mut http = http1::Builder::new();
        // hyper's own limit of 100 fields stays: to name it would cost an allocation for each response.
        http.max_header_size(HEADER_BYTES).max_buf_size(2 * HEADER_BYTES);
        let (sender, connection) = http.handshake(TokioIo::new(stream)).await.map_err(|error| {
            NetworkFaultParts { phase: Phase::Send, code: classify(&error), request_sent: false }
        })?;
        // An error reaches whoever waits for the response; of a connection that nobody uses it is no news.
        let driver = tokio::spawn(async move { drop(connection.await) });
        Ok(Self { sender, meter, driver })
    }

    /// Ends the connection and waits until nothing more can be written; what its meter then says is final.
    ///
    /// An error is reported before the driver is done: it may still flush what it had buffered.
    pub(super) async fn stop(mut self) -> Arc<Meter> {
        self.driver.abort();
        // Either it was cancelled or it had ended; both are what is wanted.
        let _ = (&mut self.driver).await;
        Arc::clone(&self.meter)
    }
}

impl Drop for Connection {
    /// The driver holds the socket and the request's body: neither outlives the request that is given up.
    fn drop(&mut self) {
        self.driver.abort();
    }
}
