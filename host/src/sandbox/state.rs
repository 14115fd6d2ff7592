//! What one store holds: the WASI contexts, the gates and the account of one attempt.

use std::sync::Arc;

use wasmtime::component::ResourceTable;
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use super::gates::call::CallFacts;
use super::gates::http::HttpGate;
use super::gates::ledger::Ledger;
use super::gates::log::LogLane;
use super::limiter::Limiter;
use super::stdio::Capture;
use crate::clock::Clock;
use crate::egress::Authorize;
use crate::failure::AuditId;
use crate::limits;
use crate::secret::Scanner;

pub(super) struct State {
    /// Made when a guest first asks for it: most calls never do.
    wasi: Option<WasiCtx>,
    http: WasiHttpCtx,
    table: ResourceTable,
    gate: HttpGate,
    pub(super) limiter: Limiter,
    pub(super) call: CallFacts,
    pub(super) log: LogLane,
    pub(super) audit_id: AuditId,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) stdout: Capture,
    pub(super) stderr: Capture,
}

impl State {
    pub(super) fn new(
        gate: HttpGate,
        memory: u64,
        call: CallFacts,
        audit_id: AuditId,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let mut http = WasiHttpCtx::new();
        http.set_field_size_limit(limits::HEADER_BYTES);
        let mut table = ResourceTable::new();
        table.set_max_capacity(limits::HANDLES);
        let limiter = Limiter::new(memory);
        let log = LogLane::default();
        let (stdout, stderr) = (Capture::default(), Capture::default());
        Self { wasi: None, http, table, gate, limiter, call, log, audit_id, clock, stdout, stderr }
    }

    /// What the attempt's requests may carry of credentials.
    pub(super) fn credentials(&self) -> Option<&dyn Authorize> {
        self.gate.credentials()
    }

    /// What the gates share.
    pub(super) fn ledger(&self) -> &Ledger {
        self.gate.ledger()
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

impl WasiHttpView for State {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView { hooks: &mut self.gate, table: &mut self.table, ctx: &mut self.http }
    }
}
