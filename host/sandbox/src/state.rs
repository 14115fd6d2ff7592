//! The data of one store: the WASI contexts, the gates and the account of one attempt.

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
use super::gates::charges::MemoryCharges;
use super::gates::http::HttpGate;
use super::gates::http_types::HttpTypes;
use super::gates::ledger::AttemptLog;
use super::gates::log::LogLane;
use super::limiter::{GrowthRefusal, StoreLimiter};
use super::memory::HANDLE_BYTES;
use super::stdio::StdioCapture;

pub(super) struct StoreData {
    /// Created when a guest first asks for it: most calls never do.
    wasi: Option<WasiCtx>,
    http: WasiHttpCtx,
    table: ResourceTable,
    gate: HttpGate,
    charges: MemoryCharges,
    /// Handles that are charged.
    handles: u64,
    pub(super) limiter: StoreLimiter,
    pub(super) call: CallFacts,
    pub(super) log: LogLane,
    pub(super) audit_id: AuditId,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) stdout: StdioCapture,
    pub(super) stderr: StdioCapture,
}

impl StoreData {
    pub(super) fn new(gate: HttpGate, call: CallFacts, audit_id: AuditId, clock: Arc<dyn Clock>) -> Self {
        let mut http = WasiHttpCtx::new();
        http.set_field_size_limit(limits::HEADER_BYTES);
        let mut table = ResourceTable::new();
        table.set_max_capacity(limits::HANDLES);
        let ledger = gate.shared_ledger();
        let limiter = StoreLimiter::new(Arc::clone(ledger));
        let log = LogLane::new(audit_id.clone());
        let (stdout, stderr) = (StdioCapture::new(ledger), StdioCapture::new(ledger));
        let (charges, handles) = (MemoryCharges::default(), 0);
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

    /// Returns the credentials that the attempt's requests may carry.
    pub(super) fn credentials(&self) -> Option<&dyn Authorize> {
        self.gate.credentials()
    }

    /// Returns the ledger that the gates share.
    pub(super) fn ledger(&self) -> &AttemptLog {
        self.gate.ledger()
    }

    /// Returns the HTTP view of the store, as the linker requires it.
    pub(super) fn http_types(&mut self) -> HttpTypes<'_> {
        let Self { gate, http, table, charges, .. } = self;
        HttpTypes { gate, ctx: http, table, charges }
    }

    /// Charges the existing handles of every interface, each at its price.
    ///
    /// # Errors
    /// The attempt has too little memory left.
    pub(super) fn charge_handles(&mut self) -> Result<(), GrowthRefusal> {
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

    /// Returns the scanner for secrets in the guest's output; none if there are no secrets.
    pub(super) fn scanner(&self) -> Option<Arc<Scanner>> {
        self.gate.scanner()
    }
}

/// Returns a context without arguments, environment, files and sockets; clocks and randomness are real.
fn surroundings(stdout: &StdioCapture, stderr: &StdioCapture) -> WasiCtx {
    WasiCtx::builder()
        .stdout(stdout.clone())
        .stderr(stderr.clone())
        .max_random_size(limits::RANDOM_BYTES as u64)
        .allow_tcp(false)
        .allow_udp(false)
        .allow_ip_name_lookup(false)
        .build()
}

impl WasiView for StoreData {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let ctx = self.wasi.get_or_insert_with(|| surroundings(&self.stdout, &self.stderr));
        WasiCtxView { ctx, table: &mut self.table }
    }
}
