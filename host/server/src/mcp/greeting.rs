//! What of a client's greeting goes on: who it says it is, in few words. The SDK keeps it as long as the session.

use bytes::Bytes;
use rmcp::model::{
    ClientCapabilities, ClientJsonRpcMessage, ClientRequest, GetMeta as _, Implementation, RequestMetaObject,
};

/// The longest name, and version, of a client that is kept, in characters.
const NAME: usize = 256;

/// The message without what nobody here asks for. What is no greeting stays as it is, for the SDK to refuse.
pub(super) fn in_short(message: Bytes) -> Bytes {
    let Ok(mut greeting) = serde_json::from_slice::<ClientJsonRpcMessage>(&message) else { return message };
    let ClientJsonRpcMessage::Request(request) = &mut greeting else { return message };
    let ClientRequest::InitializeRequest(initialize) = &mut request.request else { return message };
    let short = |text: &str| text.chars().take(NAME).collect::<String>();
    let client = &initialize.params.client_info;
    let client = Implementation::new(short(&client.name), short(&client.version));
    initialize.params.meta = None;
    // A server that asks its client for nothing needs to know nothing of what it can.
    initialize.params.capabilities = ClientCapabilities::default();
    initialize.params.client_info = client;
    *request.request.get_meta_mut() = RequestMetaObject::default();
    serde_json::to_vec(&greeting).map_or(message, Bytes::from)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]
    use serde_json::{Value, json};

    use super::{NAME, in_short};

    #[test]
    fn who_greets_is_known_by_name_and_version_and_nothing_else_is_kept() {
        let short = |params: Value| -> Value {
            let message = json!({"jsonrpc": "2.0", "id": "a", "method": "initialize", "params": params});
            serde_json::from_slice(&in_short(message.to_string().into())).unwrap()
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
