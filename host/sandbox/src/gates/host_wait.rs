//! The waits of an attempt's requests for their hosts: a host that hangs until the attempt's time is over
//! fails like a host that exceeds its response timeout.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use cofferdam_core::clock::Clock;
use http_body::{Body, Frame, SizeHint};

/// The least wait that counts against a host: callers choose the time of a call, and a very short one must
/// not open the circuit of a healthy host.
const LEAST: Duration = Duration::from_secs(1);

/// The requests of one attempt.
#[derive(Debug, Default)]
pub struct HostWaits(Mutex<Vec<Weak<HostWait>>>);

/// One request, from its sending until the end of its response.
pub(super) struct HostWait {
    host: String,
    clock: Arc<dyn Clock>,
    /// The start of the wait for its host; none while the host waits for the guest.
    since: Mutex<Option<Instant>>,
}

impl std::fmt::Debug for HostWait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostWait").field("host", &self.host).finish_non_exhaustive()
    }
}

impl HostWaits {
    /// Records that a request to `host` is about to be sent.
    pub(super) fn begin(&self, host: &str, clock: &Arc<dyn Clock>) -> Arc<HostWait> {
        let since = Mutex::new(Some(clock.now()));
        let wait = Arc::new(HostWait { host: host.to_owned(), clock: Arc::clone(clock), since });
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&wait));
        wait
    }

    /// Returns the hosts that the attempt was waiting for, without a pause, during at least half of the time
    /// from `began` until `now`.
    pub(super) fn hung(&self, began: Instant, now: Instant) -> Vec<String> {
        let share = (now.saturating_duration_since(began) / 2).max(LEAST);
        let waits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let hangs = |wait: &Arc<HostWait>| {
            wait.since().is_some_and(|since| now.saturating_duration_since(since) >= share)
        };
        waits.iter().filter_map(Weak::upgrade).filter(hangs).map(|wait| wait.host.clone()).collect()
    }
}

impl HostWait {
    fn since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the wait for the host unless it is running.
    fn goes_on(&self) {
        self.since().get_or_insert_with(|| self.clock.now());
    }

    /// Restarts the wait for the host, which has something new to do.
    fn begins_anew(&self) {
        *self.since() = Some(self.clock.now());
    }

    /// Stops the wait for the host.
    pub(super) fn pauses(&self) {
        *self.since() = None;
    }
}

/// A body on its way to or from a host.
pub(super) struct AwaitedHost<B> {
    body: B,
    wait: Arc<HostWait>,
    is_upload: bool,
}

impl<B> AwaitedHost<B> {
    /// A request's body: while the guest has not written the next part, the host cannot answer.
    pub(super) fn upload(body: B, wait: Arc<HostWait>) -> Self {
        Self { body, wait, is_upload: true }
    }

    /// A response's body: the host is waited for while the guest asks for the next part.
    pub(super) fn download(body: B, wait: Arc<HostWait>) -> Self {
        Self { body, wait, is_upload: false }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for AwaitedHost<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.body).poll_frame(cx);
        match (polled.is_ready(), this.is_upload) {
            (true, true) => this.wait.begins_anew(),
            (false, false) => this.wait.goes_on(),
            (false, true) | (true, false) => this.wait.pauses(),
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use std::collections::VecDeque;
    use std::convert::Infallible;

    use super::*;
    use cofferdam_core::clock::SystemClock;

    /// At each poll a frame, or nothing yet; at last the end.
    struct Script(VecDeque<bool>);

    impl Body for Script {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            match self.0.pop_front() {
                Some(true) => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"x"))))),
                Some(false) => Poll::Pending,
                None => Poll::Ready(None),
            }
        }
    }

    fn poll<B: Body<Data = Bytes> + Unpin>(body: &mut B) -> bool {
        let mut context = Context::from_waker(std::task::Waker::noop());
        Pin::new(body).poll_frame(&mut context).is_ready()
    }

    #[test]
    fn half_of_the_attempt_counts_and_a_second_at_least() {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let waits = HostWaits::default();
        let began = clock.now();
        let wait = waits.begin("a.example:443", &clock);
        let since = wait.since().unwrap();
        let at = |secs: f64| since + Duration::from_secs_f64(secs);
        assert_eq!(waits.hung(began, at(2.1)), ["a.example:443"]);
        assert!(waits.hung(began, at(0.9)).is_empty(), "next to nothing");
        let earlier = began.checked_sub(Duration::from_secs(10)).unwrap();
        assert!(waits.hung(earlier, at(5.0)).is_empty(), "most of it was the guest's own");
        assert_eq!(waits.hung(earlier, at(11.0)), ["a.example:443"]);
        wait.pauses();
        assert!(waits.hung(began, at(60.0)).is_empty(), "it was answered");
        wait.begins_anew();
        drop(wait);
        assert!(waits.hung(began, at(60.0)).is_empty(), "the guest gave it up");
    }

    #[test]
    fn a_guest_that_does_not_write_is_not_its_host() {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let wait = HostWaits::default().begin("a.example:443", &clock);
        let mut upload = AwaitedHost::upload(Script([false, true, false].into()), Arc::clone(&wait));
        assert!(!poll(&mut upload) && wait.since().is_none(), "the guest is waited for");
        assert!(poll(&mut upload) && wait.since().is_some(), "the host has it");
        assert!(!poll(&mut upload) && wait.since().is_none());
        assert!(poll(&mut upload) && wait.since().is_some(), "that was all");
    }

    #[test]
    fn a_response_is_waited_for_while_the_guest_reads() {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let wait = HostWaits::default().begin("a.example:443", &clock);
        wait.pauses();
        let mut download = AwaitedHost::download(Script([false, false, true].into()), Arc::clone(&wait));
        assert!(!poll(&mut download));
        let since = wait.since().unwrap();
        assert!(!poll(&mut download) && *wait.since() == Some(since), "it goes on");
        assert!(poll(&mut download) && wait.since().is_none(), "the guest has it");
    }
}
