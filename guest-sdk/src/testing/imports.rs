//! Native substitutes of the host's functions: each asks the newest [`Call`](super::Call) of the thread, and does
//! without one if there is none.

use super::call::current;

pub(crate) mod call {
    use super::current;

    pub(crate) fn idempotency_key() -> String {
        current(|call| call.borrow().key.clone()).unwrap_or_else(|| "outside-a-call".to_owned())
    }

    pub(crate) fn attempt() -> u32 {
        current(|call| call.borrow().attempt).unwrap_or(1)
    }

    pub(crate) fn deadline() -> u64 {
        current(|call| call.borrow().deadline_ms).unwrap_or(u64::MAX)
    }
}

pub(crate) mod credential {
    use super::current;

    pub(crate) fn handle(service: &str) -> Option<String> {
        let is_bound = current(|call| !call.borrow().unbound.iter().any(|it| it == service)).unwrap_or(true);
        is_bound.then(|| format!("handle-of-{service}"))
    }
}

pub(crate) mod log {
    use super::current;
    use crate::log::{Fields, Level};
    use crate::testing::{LogLine, SuppressedError};

    pub(crate) fn log(level: Level, message: &str, fields: Fields<'_>) {
        // The values are formatted before the call is borrowed: their code may log too.
        let line = LogLine::new(level, message, fields);
        current(|call| call.borrow_mut().log_lines.push(line));
    }

    pub(crate) fn suppressed(reason: &str, cause: &str) {
        current(|call| call.borrow_mut().suppressed.push(SuppressedError::new(reason, cause)));
    }
}

pub(crate) mod transport {
    use super::current;
    use crate::http::request::PreparedRequest;
    use crate::http::{Error, Response};
    use crate::testing::call;

    #[track_caller]
    pub(crate) fn send(request: PreparedRequest) -> Result<Response, Error> {
        match current(std::rc::Rc::clone) {
            Some(state) => call::send(&state, request),
            None => Err(Error::OutsideSandbox),
        }
    }
}
