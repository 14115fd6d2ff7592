//! `cofferdam:connector/call`: the facts that a guest may know about its own call.

use std::sync::Arc;
use std::time::Instant;

use wasmtime::component::LinkerInstance;

use super::unkeyed::UnkeyedWatch;
use crate::state::StoreData;

/// The facts of one attempt.
#[derive(Debug, Clone)]
pub(crate) struct CallFacts {
    /// Has the idempotency key: the same for every attempt of a call, new for a new call.
    pub(crate) unkeyed: Arc<UnkeyedWatch>,
    /// From 1.
    pub(crate) attempt: u32,
    /// The end of the attempt: with the call, or before it.
    pub(crate) deadline: Instant,
}

/// Defines the interface's functions.
pub(crate) fn link(instance: &mut LinkerInstance<'_, StoreData>) -> wasmtime::Result<()> {
    instance.func_wrap("idempotency-key", |store, (): ()| {
        Ok((store.data().call.unkeyed.key_for_guest().to_owned(),))
    })?;
    instance.func_wrap("attempt", |store, (): ()| Ok((store.data().call.attempt,)))?;
    instance.func_wrap("deadline", |store, (): ()| {
        let state = store.data();
        let left = state.call.deadline.saturating_duration_since(state.clock.now());
        Ok((u64::try_from(left.as_millis()).unwrap_or(u64::MAX),))
    })
}
