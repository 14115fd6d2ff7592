//! The responses of a path, request after request.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use serde_json::json;

use super::reply::{Reply, value};

/// The reaction to one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptedReply(Kind);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Answer { status: u16, retry_after: Option<String> },
    HangUp,
    Hang,
}

impl ScriptedReply {
    /// An answer with this status.
    #[must_use]
    pub fn status(status: u16) -> Self {
        Self(Kind::Answer { status, retry_after: None })
    }

    /// An answer with this status and this text in `Retry-After`.
    #[must_use]
    pub fn after(status: u16, retry_after: impl Into<String>) -> Self {
        Self(Kind::Answer { status, retry_after: Some(retry_after.into()) })
    }

    /// The end of the connection, without an answer.
    #[must_use]
    pub fn hang_up() -> Self {
        Self(Kind::HangUp)
    }

    /// Nothing, as long as the client waits.
    #[must_use]
    pub fn hang() -> Self {
        Self(Kind::Hang)
    }

    pub(super) async fn reply(self) -> Reply {
        match self.0 {
            Kind::Answer { status, retry_after } => {
                let mut reply = value(status, &json!({"message": "as the script says"}));
                if let (Reply::Response(response), Some(wait)) = (&mut reply, retry_after) {
                    response.headers_mut().insert("retry-after", wait.parse().expect("a header value"));
                }
                reply
            }
            Kind::HangUp => Reply::HangUp,
            Kind::Hang => std::future::pending().await,
        }
    }
}

/// The scripts, by path.
#[derive(Default)]
pub(super) struct Scripts(Mutex<HashMap<String, VecDeque<ScriptedReply>>>);

impl Scripts {
    pub(super) fn set(&self, path: &str, turns: VecDeque<ScriptedReply>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned(), turns);
    }

    /// The reaction to the next request for `path`, if it has a script.
    pub(super) fn next(&self, path: &str) -> Option<ScriptedReply> {
        let mut scripts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let turns = scripts.get_mut(path)?;
        match turns.len() {
            0 | 1 => turns.front().cloned(),
            _ => turns.pop_front(),
        }
    }
}
