//! What one store holds: the WASI contexts, the gates and the account of one attempt.

use std::sync::Arc;

use cofferdam_core::clock::Clock;
use cofferdam_core::failure::AuditId;
use cofferdam_core::limits;
use cofferdam_core::secret::Scanner;
use cofferdam_egress::egress::Authorize;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::WasiHttpCtx;

use super::gates::call::CallFacts;
use super::gates::charges::Charges;
use super::gates::http::HttpGate;
use super::gates::http_types::Http;
use super::gates::ledger::Ledger;
use super::gates::log::LogLane;
use super::limiter::{Limiter, Refused};
use super::memory::HANDLE_BYTES;
use super::stdio::Capture;

pub(super) struct State {
    /// Made when a guest first asks for it: most calls never do.
    wasi: Option<WasiCtx>,
    http: WasiHttpCtx,
    table: ResourceTable,
    gate: HttpGate,
    charges: Charges,
    /// Handles that are paid for.
    handles: u64,
    pub(super) limiter: Limiter,
    pub(super) call: CallFacts,
    pub(super) log: LogLane,
    pub(super) audit_id: AuditId,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) stdout: Capture,
    pub(super) stderr: Capture,
}

impl State {
    pub(super) fn new(gate: HttpGate, call: CallFacts, audit_id: AuditId, clock: Arc<dyn Clock>) -> Self {
        let mut http = WasiHttpCtx::new();
        http.set_field_size_limit(limits::HEADER_BYTES);
        let mut table = ResourceTable::new();
        table.set_max_capacity(limits::HANDLES);
        let ledger = gate.shared_ledger();
        let limiter = Limiter::new(Arc::clone(ledger));
        let log = LogLane::new(audit_id.clone());
        let (stdout, stderr) = (Capture::new(ledger), Capture::new(ledger));
        let (charges, handles) = (Charges::default(), 0);
        Self {
            wasi: None,
            http,
            table,
            gate,
            charges,
            handles,
            limiter,
            call,
            log,
            audit_id,
            clock,
            stdout,
            stderr,
        }
    }

    /// What the attempt's requests may carry of credentials.
    pub(super) fn credentials(&self) -> Option<&dyn Authorize> {
        self.gate.credentials()
    }

    /// What the gates share.
    pub(super) fn ledger(&self) -> &Ledger {
        self.gate.ledger()
    }

    /// The HTTP of the store, as the linker wants it.
    pub(super) fn http_types(&mut self) -> Http<'_> {
        let Self { gate, http, table, charges, .. } = self;
        Http { gate, ctx: http, table, charges }
    }

    /// Charges the handles that there are, whichever interface made them, each at its price.
    ///
    /// # Errors
    /// The attempt has not so much memory left.
    pub(super) fn charge_handles(&mut self) -> Result<(), Refused> {
        if self.handles == 0 && self.table.is_empty() {
            return Ok(());
        }
        let handles = self.table.iter_mut().count() as u64;
        let ledger = self.gate.ledger();
        match handles.checked_sub(self.handles) {
            Some(more) => ledger.hold(more.saturating_mul(HANDLE_BYTES))?,
            None => ledger.memory().release((self.handles - handles).saturating_mul(HANDLE_BYTES)),
        }
        self.handles = handles;
        Ok(())
    }

    /// What looks for secrets in what the guest says; none where there are none.
    pub(super) fn scanner(&self) -> Option<Arc<Scanner>> {
        self.gate.scanner()
    }
}

/// No arguments, no environment, no files, no sockets; real clocks and real randomness.
fn surroundings(stdout: &Capture, stderr: &Capture) -> WasiCtx {
    WasiCtx::builder()
        .stdout(stdout.clone())
        .stderr(stderr.clone())
        .max_random_size(limits::RANDOM_BYTES as u64)
        .allow_tcp(false)
        .allow_udp(false)
        .allow_ip_name_lookup(false)
        .build()
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let ctx = self.wasi.get_or_insert_with(|| surroundings(&self.stdout, &self.stderr));
        WasiCtxView { ctx, table: &mut self.table }
    }
}
