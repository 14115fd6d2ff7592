//! Slack's Web API, as far as it is used: methods, answers, and errors that come with status 200.

use cofferdam_guest::Failure;
use cofferdam_guest::http::Response;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::Channel as Own;

/// The URL of a method.
pub(crate) fn url(method: &str) -> String {
    format!("https://slack.com/api/{method}")
}

/// A message to be posted.
#[derive(Serialize)]
pub(crate) struct NewMessage {
    pub(crate) channel: String,
    pub(crate) text: String,
    pub(crate) thread_ts: Option<String>,
}

/// A message that was posted.
#[derive(Deserialize)]
pub(crate) struct Posted {
    pub(crate) channel: String,
    pub(crate) ts: String,
}

/// An answer that has nothing to say.
#[derive(Deserialize)]
pub(crate) struct Done {}

/// Some channels, and where the next ones are.
#[derive(Deserialize)]
pub(crate) struct Page {
    pub(crate) channels: Vec<Channel>,
    response_metadata: Option<Metadata>,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    next_cursor: String,
}

impl Page {
    /// The cursor of the next page; Slack has an empty one on the last.
    pub(crate) fn next(&self) -> Option<String> {
        let cursor = &self.response_metadata.as_ref()?.next_cursor;
        Some(cursor.clone()).filter(|cursor| !cursor.is_empty())
    }
}

/// A channel as the API gives it.
#[derive(Deserialize)]
pub(crate) struct Channel {
    id: String,
    name: String,
    topic: Option<Topic>,
    #[serde(default)]
    is_private: bool,
    num_members: Option<u32>,
}

#[derive(Deserialize)]
struct Topic {
    value: String,
}

impl From<Channel> for Own {
    fn from(channel: Channel) -> Self {
        Self {
            id: channel.id,
            name: channel.name,
            topic: channel.topic.map(|topic| topic.value).filter(|topic| !topic.is_empty()),
            private: channel.is_private,
            members: channel.num_members,
        }
    }
}

/// Every answer says whether it is one: an error has status 200 and a name.
#[derive(Deserialize)]
struct Verdict {
    ok: bool,
    error: Option<String>,
    /// The scope that the token lacks.
    needed: Option<String>,
}

/// Slack said no, one way or the other.
pub(crate) struct Refused {
    error: Option<String>,
    failure: Failure,
}

impl Refused {
    /// Returns whether that is Slack's name for it.
    pub(crate) fn is(&self, error: &str) -> bool {
        self.error.as_deref() == Some(error)
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        refused.failure
    }
}

/// The answer in a response. Only rate limits and outages have an error status; everything else
/// is told by a name, and is reported with that name and the status that came with it.
pub(crate) fn answer<T: DeserializeOwned>(response: Response) -> Result<T, Refused> {
    let other = |failure: Failure| Refused { error: None, failure };
    let response = response.error_for_status().map_err(|error| other(error.into()))?;
    let verdict: Verdict = response.json().map_err(|error| other(error.into()))?;
    if verdict.ok {
        return response.json().map_err(|error| other(error.into()));
    }
    let mut failure = Failure::upstream(response.status(), verdict.error.as_deref().unwrap_or_default());
    if let Some(scope) = verdict.needed {
        failure = failure.with_detail(format!("the token lacks the scope {scope}"));
    }
    Err(Refused { error: verdict.error, failure })
}
