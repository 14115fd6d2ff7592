//! Answers to requests that are not served. They stay small while they wait to be written, and are assembled
//! then.

use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::failure::sanitize_line;
use cofferdam_runtime::agent;
use rmcp::model::{CallToolResult, ClientRequest, GetMeta as _, JsonRpcRequest, ProtocolVersion};
use serde_json::{Value, json};

use super::jsonrpc::RpcError;
use super::server::{ValueForm, result};
use crate::author_text::sanitize_text;

/// The longest name of a tool that an answer repeats, in characters.
const NAME_CHARS: usize = 100;

/// The answer to a message that is rejected.
#[derive(Debug)]
pub(super) enum ErrorResponse {
    /// A message that is invalid, or not allowed at this point.
    Message(RpcError),
    /// A tool call that exceeds the limits.
    Call {
        id: Value,
        tool: String,
        /// True if the request's protocol version types its results.
        typed: bool,
    },
}

impl From<RpcError> for ErrorResponse {
    fn from(refused: RpcError) -> Self {
        Self::Message(refused)
    }
}

impl ErrorResponse {
    /// Creates the answer to a request that exceeds the limits, in the words of the host for a busy host.
    pub(super) fn busy(request: &JsonRpcRequest<ClientRequest>) -> Self {
        let id = serde_json::to_value(&request.id).unwrap_or_default();
        match &request.request {
            ClientRequest::CallToolRequest(call) => {
                let version = request.request.get_meta().protocol_version();
                Self::Call {
                    id,
                    tool: sanitize_line(&call.params.name, NAME_CHARS),
                    typed: version.is_some_and(|version| version >= ProtocolVersion::V_2026_07_28),
                }
            }
            _ => Self::Message(RpcError::busy(id)),
        }
    }

    /// Returns the answer as one line of JSON.
    pub(super) fn answer(&self) -> Vec<u8> {
        match self {
            Self::Message(refused) => refused.answer(),
            Self::Call { id, tool, typed } => {
                let mut result = not_run(tool);
                result.result_type = result.result_type.filter(|_| *typed);
                json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string().into_bytes()
            }
        }
    }
}

/// Returns the agent's result for a call that was not accepted.
fn not_run(tool: &str) -> CallToolResult {
    let busy = HostError::new(
        HostErrorKind::Busy,
        "The server has as many requests of this client under way, or as many bytes of them, as it takes.",
    );
    let busy = busy.with_hint("Read the answers, and try again later.");
    let id = busy.request_id().clone();
    result(&agent::error(tool, &Error::Host(busy)), &id, ValueForm::Text)
}

/// The longest description of a tool, in bytes.
pub(super) const DESCRIPTION_BYTES: usize = 1024;

/// The longest title of a tool, in bytes.
pub(super) const TITLE_BYTES: usize = 120;

/// Returns the author's description of a tool, then our description of its target, which the author's text
/// cannot displace.
pub(super) fn description(author: &str, runs: &str) -> String {
    let runs = sanitize_text(runs, DESCRIPTION_BYTES / 2);
    let author = sanitize_text(author, DESCRIPTION_BYTES - runs.len() - 2);
    if author.is_empty() { runs } else { format!("{author}\n\n{runs}") }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

    use rmcp::model::ClientJsonRpcMessage;
    use serde_json::{Value, json};

    use super::{DESCRIPTION_BYTES, ErrorResponse, description};

    fn busy(message: Value) -> Value {
        let ClientJsonRpcMessage::Request(request) = serde_json::from_value(message).unwrap() else {
            unreachable!("a request")
        };
        serde_json::from_slice(&ErrorResponse::busy(&request).answer()).unwrap()
    }

    #[test]
    fn a_call_without_a_slot_is_answered_as_busy() {
        let call = |meta: Value| json!({"jsonrpc": "2.0", "id": "a", "method": "tools/call", "params": {"name": "x\u{1b}[2J", "_meta": meta}});
        let answer = busy(call(json!({})));
        let result = &answer["result"];
        assert_eq!((&answer["id"], &result["isError"]), (&json!("a"), &json!(true)), "{answer}");
        assert_eq!(result["structuredContent"]["error"]["code"], "busy", "{answer}");
        assert_eq!(
            result["_meta"]["cofferdam/audit_id"], result["structuredContent"]["error"]["request_id"],
            "{answer}"
        );
        let text = result["content"][0]["text"].as_str().unwrap();
        assert!(text.starts_with("Action 'x [2J' was not run: busy ("), "{text}");
        assert!(result.get("resultType").is_none(), "{answer}");
        let newer = busy(call(json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28"})));
        assert_eq!(newer["result"]["resultType"], "complete", "{newer}");
    }

    #[test]
    fn other_requests_without_a_slot_get_an_error() {
        let answer = busy(json!({"jsonrpc": "2.0", "id": 7, "method": "tools/list"}));
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(7), &json!(-32000)), "{answer}");
        assert_eq!(answer["error"]["data"], json!({"code": "busy"}), "{answer}");
    }
    #[test]
    fn descriptions_are_bounded() {
        let long = description(&"ä".repeat(1 << 20), "Operation greet of github://acme/hello@1.0.0.");
        assert!(long.len() <= DESCRIPTION_BYTES, "{}", long.len());
        assert!(long.ends_with("…\n\nOperation greet of github://acme/hello@1.0.0."), "{long}");
        assert_eq!(description("\u{200b}\n ", "Runs."), "Runs.");
    }
}
