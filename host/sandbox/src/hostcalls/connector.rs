//! The interfaces `cofferdam:connector/call` and `cofferdam:connector/credential`.

use std::sync::Arc;
use std::time::Instant;

use cofferdam_core::failure::{Denial, DenialBoundary, DenialCode};
use cofferdam_egress::egress::AuthorizationError;
use wasmtime::component::LinkerInstance;

use super::attempt_log::Termination;
use super::request_observer::KeyWatch;
use crate::store_data::StoreData;

/// The facts of one attempt.
#[derive(Debug, Clone)]
pub(crate) struct CallInfo {
    /// Has the idempotency key: the same for every attempt of a call, new for a new call.
    pub(crate) key_watch: Arc<KeyWatch>,
    /// From 1.
    pub(crate) attempt: u32,
    /// The end of the attempt: with the call, or before it.
    pub(crate) deadline: Instant,
}

/// Defines the functions of `call`.
pub(crate) fn link_call(instance: &mut LinkerInstance<'_, StoreData>) -> wasmtime::Result<()> {
    instance.func_wrap("idempotency-key", |store, (): ()| {
        store.data().names_host_call("call.idempotency-key");
        Ok((store.data().call.key_watch.key_for_guest().to_owned(),))
    })?;
    instance.func_wrap("attempt", |store, (): ()| {
        store.data().names_host_call("call.attempt");
        Ok((store.data().call.attempt,))
    })?;
    instance.func_wrap("deadline", |store, (): ()| {
        let state = store.data();
        state.names_host_call("call.deadline");
        let left = state.call.deadline.saturating_duration_since(state.clock.now());
        Ok((u64::try_from(left.as_millis()).unwrap_or(u64::MAX),))
    })
}

/// Defines the function of `credential`.
pub(crate) fn link_credential(instance: &mut LinkerInstance<'_, StoreData>) -> wasmtime::Result<()> {
    instance.func_wrap("handle", |store, (service,): (String,)| {
        let state = store.data();
        state.names_host_call("credential.handle");
        let handle = match state.credentials() {
            Some(credentials) => credentials.handle(&service),
            None => Err(AuthorizationError::Denied(Denial::new(
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
