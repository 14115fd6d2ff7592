//! The part of an initialize request that is passed on: the client's name and version, truncated. The SDK
//! keeps it as long as the session.

use bytes::Bytes;
use rmcp::model::{
    ClientCapabilities, ClientJsonRpcMessage, ClientRequest, GetMeta as _, Implementation, RequestMetaObject,
};

/// The longest name, and version, of a client that is kept, in characters.
const NAME: usize = 256;

/// Returns the message without the parts that the server does not use. Any other message is unchanged, for
/// the SDK to reject.
pub(super) fn trim_request(message: Bytes) -> Bytes {
    let Ok(mut greeting) = serde_json::from_slice::<ClientJsonRpcMessage>(&message) else { return message };
    let ClientJsonRpcMessage::Request(request) = &mut greeting else { return message };
    let ClientRequest::InitializeRequest(initialize) = &mut request.request else { return message };
    let short = |text: &str| text.chars().take(NAME).collect::<String>();
    let client = &initialize.params.client_info;
    let client = Implementation::new(short(&client.name), short(&client.version));
    initialize.params.meta = None;
    // A server that sends no requests to its client does not need its capabilities.
    initialize.params.capabilities = ClientCapabilities::default();
    initialize.params.client_info = client;
    *request.request.get_meta_mut() = RequestMetaObject::default();
    serde_json::to_vec(&greeting).map_or(message, Bytes::from)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]
    use serde_json::{Value, json};

    use super::{NAME, trim_request};

    #[test]
    fn who_greets_is_known_by_name_and_version_and_nothing_else_is_kept() {
        let short = |params: Value| -> Value {
            let message = json!({"jsonrpc": "2.0", "id": "a", "method": "initialize", "params": params});
            serde_json::from_slice(&trim_request(message.to_string().into())).unwrap()
        };
        let client = json!({"name": "é".repeat(1_000), "version": "1", "title": "x".repeat(1_000)});
        let greeting =
            short(json!({"protocolVersion": "2025-06-18", "clientInfo": client, "_meta": {"x": [[]]},
            "capabilities": {"experimental": {"x": {"y": [[], []]}}, "roots": {"listChanged": true}}}));
        assert_eq!((&greeting["id"], &greeting["method"]), (&json!("a"), &json!("initialize")));
        let client = json!({"name": "é".repeat(NAME), "version": "1"});
        let kept =
            json!({"protocolVersion": "2025-06-18", "clientInfo": client, "capabilities": {}, "_meta": {}});
        assert_eq!(greeting["params"], kept);
        let wrong = json!({"protocolVersion": 1});
        assert_eq!(short(wrong.clone())["params"], wrong);
    }
}
