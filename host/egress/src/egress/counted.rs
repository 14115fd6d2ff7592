//! Counts the bytes of a body as they pass, and fails it at a cap.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// A body that fails when it exceeds its cap. Trailers count as their bytes on the wire.
///
/// The frame that crosses the cap is not passed on. A body that announces more than its cap fails before its
/// first byte.
pub struct LimitedBody<B> {
    body: B,
    cap: u64,
    seen: u64,
    total: Arc<AtomicU64>,
    on_excess: Option<Box<dyn FnOnce(u64) + Send>>,
    ended: bool,
}

/// The error of a counted body.
#[derive(Debug, thiserror::Error)]
pub enum CountedError<E> {
    /// The body has more bytes than its cap.
    #[error("the body has {used} bytes or more; {cap} are allowed")]
    TooLarge {
        /// The cap in bytes.
        cap: u64,
        /// The size in bytes, as far as it was read or announced.
        used: u64,
    },
    /// The inner body failed.
    #[error(transparent)]
    Body(E),
}

impl<B> LimitedBody<B> {
    /// Counts `body` up to `cap` bytes. Every byte passed on is added to `total`, which may be shared by
    /// several bodies; `on_excess` is called once with the bytes used when the cap is exceeded.
    pub fn new(
        body: B,
        cap: u64,
        total: Arc<AtomicU64>,
        on_excess: impl FnOnce(u64) + Send + 'static,
    ) -> Self {
        Self { body, cap, seen: 0, total, on_excess: Some(Box::new(on_excess)), ended: false }
    }

    fn excess<E>(&mut self, used: u64) -> CountedError<E> {
        self.ended = true;
        if let Some(on_excess) = self.on_excess.take() {
            on_excess(used);
        }
        CountedError::TooLarge { cap: self.cap, used }
    }
}

impl<B> fmt::Debug for LimitedBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counted").field("cap", &self.cap).field("seen", &self.seen).finish_non_exhaustive()
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for LimitedBody<B> {
    type Data = Bytes;
    type Error = CountedError<B::Error>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        if this.ended {
            return Poll::Ready(None);
        }
        let announced = this.seen.saturating_add(this.body.size_hint().lower());
        if announced > this.cap {
            return Poll::Ready(Some(Err(this.excess(announced))));
        }
        let frame = match std::task::ready!(Pin::new(&mut this.body).poll_frame(cx)) {
            Some(Ok(frame)) => frame,
            end => {
                this.ended = true;
                return Poll::Ready(end.map(|frame| frame.map_err(CountedError::Body)));
            }
        };
        let bytes = match (frame.data_ref(), frame.trailers_ref()) {
            (Some(data), _) => data.len(),
            (None, trailers) => trailers.map_or(0, super::headers::header_bytes),
        };
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let used = this.seen.saturating_add(bytes);
        if used > this.cap {
            return Poll::Ready(Some(Err(this.excess(used))));
        }
        this.seen = used;
        this.total.fetch_add(bytes, Ordering::Relaxed);
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.ended || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.ended { SizeHint::with_exact(0) } else { self.body.size_hint() }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use std::collections::VecDeque;
    use std::convert::Infallible;

    use http_body_util::{BodyExt, Full};

    use super::*;

    /// Frames that announce nothing.
    struct Frames(VecDeque<&'static str>);

    impl Body for Frames {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(self.0.pop_front().map(|data| Ok(Frame::data(Bytes::from(data)))))
        }
    }

    fn counted<B>(body: B, cap: u64) -> (LimitedBody<B>, Arc<AtomicU64>, Arc<AtomicU64>) {
        let (total, excess) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mark = Arc::clone(&excess);
        let body = LimitedBody::new(body, cap, Arc::clone(&total), move |used| {
            mark.fetch_add(used, Ordering::Relaxed);
        });
        (body, total, excess)
    }

    #[tokio::test]
    async fn row_102_the_cap_is_the_last_byte_that_passes() {
        for (cap, passed, used) in [(10, 10, 0), (9, 7, 10), (6, 3, 7), (2, 0, 3)] {
            let (mut body, total, excess) = counted(Frames(["abc", "defg", "hij"].into()), cap);
            let mut failed = false;
            while let Some(frame) = body.frame().await {
                match frame {
                    Ok(_) => assert!(!failed, "nothing follows the failure"),
                    Err(error) => {
                        failed = true;
                        assert!(matches!(error, CountedError::TooLarge { .. }), "{error}");
                    }
                }
            }
            assert!(body.is_end_stream());
            assert_eq!(
                (total.load(Ordering::Relaxed), excess.load(Ordering::Relaxed), failed),
                (passed, used, used > 0)
            );
        }
    }

    #[tokio::test]
    async fn what_announces_too_much_fails_before_its_first_byte() {
        let (body, total, excess) = counted(Full::new(Bytes::from_static(b"0123456789")), 9);
        assert!(matches!(body.collect().await, Err(CountedError::TooLarge { cap: 9, used: 10 })));
        assert_eq!((total.load(Ordering::Relaxed), excess.load(Ordering::Relaxed)), (0, 10));
        let (body, total, _) = counted(Full::new(Bytes::from_static(b"0123456789")), 10);
        assert_eq!(body.collect().await.unwrap().to_bytes(), "0123456789");
        assert_eq!(total.load(Ordering::Relaxed), 10);
    }
}
