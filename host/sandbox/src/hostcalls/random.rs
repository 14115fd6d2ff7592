//! Random bytes: one host call returns at most an amount that takes negligible time, and more is a typed
//! limit.
//!
//! The default implementation reports its refusal as text only; this one refuses first.

use cofferdam_core::failure::{LimitHit, LimitKind};
use cofferdam_core::limits;
use wasmtime::component::HasData;
use wasmtime_wasi::WasiView;
use wasmtime_wasi::p2::bindings::random::{insecure, random};
use wasmtime_wasi::random::WasiRandomCtx;

use crate::memory::GrowthRefusal;
use crate::store_data::StoreData;

/// The randomness of one store.
pub(crate) struct RandomBudget<'a>(&'a mut WasiRandomCtx);

/// The accessor of [`Random`] for the linker.
pub(crate) struct HasRandom;

impl HasData for HasRandom {
    type Data<'a> = RandomBudget<'a>;
}

/// The randomness of `state`.
pub(crate) fn random_budget(state: &mut StoreData) -> RandomBudget<'_> {
    RandomBudget(state.ctx().ctx.random())
}

fn within(bytes: u64) -> wasmtime::Result<()> {
    let configured = limits::RANDOM_BYTES as u64;
    if bytes > configured {
        let hit = LimitHit::new(LimitKind::HostTransfer, configured, bytes);
        return Err(GrowthRefusal(hit).into());
    }
    Ok(())
}

impl random::Host for RandomBudget<'_> {
    fn get_random_bytes(&mut self, len: u64) -> wasmtime::Result<Vec<u8>> {
        within(len)?;
        random::Host::get_random_bytes(self.0, len)
    }

    fn get_random_u64(&mut self) -> wasmtime::Result<u64> {
        random::Host::get_random_u64(self.0)
    }
}

impl insecure::Host for RandomBudget<'_> {
    fn get_insecure_random_bytes(&mut self, len: u64) -> wasmtime::Result<Vec<u8>> {
        within(len)?;
        insecure::Host::get_insecure_random_bytes(self.0, len)
    }

    fn get_insecure_random_u64(&mut self) -> wasmtime::Result<u64> {
        insecure::Host::get_insecure_random_u64(self.0)
    }
}
