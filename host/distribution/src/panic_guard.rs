//! Turns panics of `oci-client` into errors: it unwraps what some servers and machines can break.

use std::cell::Cell;
use std::future::poll_fn;
use std::panic::{self, AssertUnwindSafe};
use std::pin::pin;
use std::sync::Once;
use std::task::Poll;

thread_local! {
    /// True while this thread runs code whose panics become errors.
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `code`, and returns none if it panics. The panic is not printed, because the caller reports an error.
pub(crate) fn guard_panic<T>(code: impl FnOnce() -> T) -> Option<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !IS_GUARDED.get() {
                report(info);
            }
        }));
    });
    let was_guarded = IS_GUARDED.replace(true);
    let ended = panic::catch_unwind(AssertUnwindSafe(code));
    IS_GUARDED.set(was_guarded);
    ended.ok()
}

/// Awaits `future`, and returns none if it panics, as [`guard_panic`] does.
pub(crate) async fn guard_future<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|cx| match guard_panic(|| future.as_mut().poll(cx)) {
        Some(poll) => poll.map(Some),
        None => Poll::Ready(None),
    })
    .await
}
