//! `cofferdam:connector/credential`: handles for session tokens. A guest places a handle in a request; the
//! token itself never enters the sandbox.

use cofferdam_core::failure::{Denial, DenialBoundary, DenialCode};
use cofferdam_egress::egress::Unauthorized;
use wasmtime::component::LinkerInstance;

use super::ledger::Termination;
use crate::state::StoreData;

/// Defines the interface's function.
pub(crate) fn link(instance: &mut LinkerInstance<'_, StoreData>) -> wasmtime::Result<()> {
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
        // The verdict ends the attempt; the guest's result until then does not matter.
        let handle = handle.unwrap_or_else(|refused| {
            state.ledger().end(Termination::from(refused));
            None
        });
        Ok((handle,))
    })
}
