//! The data of one store: the WASI contexts, the gates and the account of one attempt.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cofferdam_core::clock::Clock;
use cofferdam_core::failure::AuditId;
use cofferdam_core::limits::{self, Limits, Usage};
use cofferdam_core::secret::Scanner;
use cofferdam_egress::egress::Authorize;
use jiff::Timestamp;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::{HostWallClock, WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::WasiHttpCtx;

use super::attempt_trace::HostCallRecorder;
use super::hostcalls::attempt_log::AttemptLog;
use super::hostcalls::connector::CallInfo;
use super::hostcalls::http::HttpGate;
use super::hostcalls::http_types::HttpTypes;
use super::hostcalls::log::GuestLog;
use super::memory::{GrowthRefusal, HANDLE_BYTES, MemoryCharges, StoreLimiter};
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
    pub(super) call: CallInfo,
    pub(super) log: GuestLog,
    pub(super) audit_id: AuditId,
    pub(super) clock: Arc<dyn Clock>,
    /// The recorder of host calls, if the attempt is traced.
    pub(super) recorder: Option<Arc<HostCallRecorder>>,
    pub(super) stdout: StdioCapture,
    pub(super) stderr: StdioCapture,
}

impl StoreData {
    pub(super) fn new(gate: HttpGate, call: CallInfo, audit_id: AuditId, clock: Arc<dyn Clock>) -> Self {
        let mut http = WasiHttpCtx::new();
        http.set_field_size_limit(limits::HEADER_BYTES);
        let mut table = ResourceTable::new();
        table.set_max_capacity(limits::HANDLES);
        let ledger = gate.shared_ledger();
        let limiter = StoreLimiter::new(Arc::clone(ledger));
        let log = GuestLog::new(audit_id.clone());
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
            recorder: None,
            stdout,
            stderr,
        }
    }

    /// Returns the credentials that the attempt's requests may carry.
    pub(super) fn credentials(&self) -> Option<&dyn Authorize> {
        self.gate.credentials()
    }

    /// Names the host call that is running, for a trace.
    pub(super) fn names_host_call(&self, function: &str) {
        if let Some(recorder) = &self.recorder {
            recorder.name(function);
        }
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

/// The host's time of day, for the guest.
struct GuestWallClock(Arc<dyn Clock>);

impl HostWallClock for GuestWallClock {
    fn resolution(&self) -> Duration {
        Duration::from_nanos(1)
    }

    fn now(&self) -> Duration {
        Duration::try_from(self.0.timestamp().duration_since(Timestamp::UNIX_EPOCH)).unwrap_or_default()
    }
}

/// Returns a context without arguments, environment, files and sockets. The time of day is that of the host's clock;
/// the monotonic clock and randomness are real.
fn wasi_ctx(clock: &Arc<dyn Clock>, stdout: &StdioCapture, stderr: &StdioCapture) -> WasiCtx {
    WasiCtx::builder()
        .wall_clock(GuestWallClock(Arc::clone(clock)))
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
        let ctx = self.wasi.get_or_insert_with(|| wasi_ctx(&self.clock, &self.stdout, &self.stderr));
        WasiCtxView { ctx, table: &mut self.table }
    }
}

/// Returns the resources that the attempt used.
pub(super) fn attempt_usage(
    state: &StoreData,
    ledger: &AttemptLog,
    limits: &Limits,
    fuel: u64,
    wall_time: Duration,
) -> Usage {
    let (stdout_kept, stdout_dropped) = state.stdout.kept_and_dropped();
    let (stderr_kept, stderr_dropped) = state.stderr.kept_and_dropped();
    let (log_lines, log_lines_dropped) = state.log.kept_and_dropped();
    let (memory, host_memory) = ledger.memory().peaks();
    Usage {
        fuel,
        memory,
        host_memory,
        memory_grows: state.limiter.grows(),
        wall_time,
        requests: ledger.requests.load(Ordering::Relaxed),
        bytes_out: ledger.bytes_out.load(Ordering::Relaxed),
        bytes_in: ledger.bytes_in.load(Ordering::Relaxed),
        log_lines,
        log_lines_dropped,
        stdio_bytes: stdout_kept.saturating_add(stderr_kept),
        stdio_bytes_dropped: stdout_dropped.saturating_add(stderr_dropped),
        limits: *limits,
    }
}
