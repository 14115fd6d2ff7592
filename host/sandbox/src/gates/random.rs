//! Random bytes: as many in one host call as take no time worth speaking of, and more is a limit by type.
//!
//! The default implementation refuses in words alone; this one refuses first.

use cofferdam_core::failure::{LimitHit, LimitKind};
use cofferdam_core::limits;
use wasmtime::component::HasData;
use wasmtime_wasi::WasiView;
use wasmtime_wasi::p2::bindings::random::{insecure, random};
use wasmtime_wasi::random::WasiRandomCtx;

use crate::limiter::Refused;
use crate::state::State;

/// The randomness of one store.
pub(crate) struct Random<'a>(&'a mut WasiRandomCtx);

/// Says where the linker finds it.
pub(crate) struct HasRandom;

impl HasData for HasRandom {
    type Data<'a> = Random<'a>;
}

/// The randomness of `state`.
pub(crate) fn of(state: &mut State) -> Random<'_> {
    Random(state.ctx().ctx.random())
}

fn within(bytes: u64) -> wasmtime::Result<()> {
    let configured = limits::RANDOM_BYTES as u64;
    if bytes > configured {
        let hit = LimitHit::new(LimitKind::HostTransfer, configured, bytes);
        return Err(Refused(hit).into());
    }
    Ok(())
}

impl random::Host for Random<'_> {
    fn get_random_bytes(&mut self, len: u64) -> wasmtime::Result<Vec<u8>> {
        within(len)?;
        random::Host::get_random_bytes(self.0, len)
    }

    fn get_random_u64(&mut self) -> wasmtime::Result<u64> {
        random::Host::get_random_u64(self.0)
    }
}

impl insecure::Host for Random<'_> {
    fn get_insecure_random_bytes(&mut self, len: u64) -> wasmtime::Result<Vec<u8>> {
        within(len)?;
        insecure::Host::get_insecure_random_bytes(self.0, len)
    }

    fn get_insecure_random_u64(&mut self) -> wasmtime::Result<u64> {
        insecure::Host::get_insecure_random_u64(self.0)
    }
}
