//! `cofferdam:connector/credential`: handles for session tokens. A guest holds one and places it; what it
//! stands for never comes into the sandbox.

use cofferdam_core::failure::{Denial, DenialBoundary, DenialCode};
use cofferdam_egress::egress::Unauthorized;
use wasmtime::component::LinkerInstance;

use super::ledger::Verdict;
use crate::state::State;

/// Defines the interface's function.
pub(crate) fn link(instance: &mut LinkerInstance<'_, State>) -> wasmtime::Result<()> {
    instance.func_wrap("handle", |store, (service,): (String,)| {
        let state = store.data();
        let handle = match state.credentials() {
            Some(credentials) => credentials.handle(&service),
            None => Err(Unauthorized::Denied(Denial::new(
                DenialBoundary::Sandbox,
                DenialCode::CredentialNotGranted,
                &format!("credential:session_token/{service}"),
                Vec::new(),
            ))),
        };
        // The verdict ends the attempt; what the guest gets until then does not matter.
        let handle = handle.unwrap_or_else(|refused| {
            state.ledger().end(Verdict::from(refused));
            None
        });
        Ok((handle,))
    })
}
