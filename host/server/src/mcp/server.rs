//! The server: answers the SDK's requests from the current tools, and runs each call through the host.
#![expect(
    deprecated,
    reason = "logging is to leave the protocol, and clients of its present versions use it"
)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cofferdam_audit::approvals::ApprovalId;
use cofferdam_core::error::{Error, HostErrorKind};
use cofferdam_core::failure::{AuditId, sanitize_line, visible_json};
use cofferdam_runtime::agent::{self, RenderedAnswer};
use cofferdam_runtime::call::{Call, CallResult, Cancellation};
use cofferdam_runtime::flow::{ActionResult, RunRequest};
use cofferdam_runtime::host::Host;
use rmcp::RoleServer;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestParams, CompleteResult,
    ContentBlock, CustomRequest, CustomResult, ErrorCode, ErrorData, Implementation, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, LoggingLevel, MetaObject,
    PaginatedRequestParams, ProtocolVersion, ServerCapabilities, ServerConfig, SetLevelRequestParams,
    SubscriptionFilter, Tool,
};
use rmcp::service::{NotificationContext, Peer, RequestContext, SubscriptionContext};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::elicitation::{FormChannel, InputAnswer, OpenForms};
use super::listing;
use super::live_catalog::LiveCatalog;
use super::notifications::NotificationSender;
use super::sessions::SessionLimits;
use super::tool::ToolTarget;
use crate::server::{
    BudgetCharge, CallArguments, InFlightRequests, RequestBudget, Shutdown, VALUE_BYTES, VALUES, count,
};

/// The instructions about all tools for every client.
const INSTRUCTIONS: &str = "Each tool runs in a sandbox, and every call is on record under its audit_id. A result with \
isError has the failure's class and whether trying again can help (`retriable`); a failure is never a partial success. \
Where a failure names a command, only the user can run it.";

/// The methods that the SDK recognizes by their parameters: if it cannot read one of these, its parameters
/// are wrong.
const METHODS: [&str; 4] = ["tools/call", "tools/list", "subscriptions/listen", "completion/complete"];

/// The methods of the versions with sessions; other versions do not know them.
const OLDER_METHODS: [&str; 2] = ["initialize", "logging/setLevel"];

/// The interval of pings in a session without other messages.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);

/// The settings of servers.
#[derive(Clone)]
pub struct McpSettings {
    /// The host that runs the calls; one of its listeners is [`CallNotes`](super::CallNotes).
    pub host: Host,
    /// The tools.
    pub offered: LiveCatalog,
    /// The shutdown signal of the servers.
    pub shutdown: Shutdown,
    /// The time for running calls after a client over stdio has closed its input.
    pub grace: Duration,
    /// The number of sessions over HTTP, and their lifetime.
    pub sessions: SessionLimits,
    /// The bytes of requests that the server over standard streams holds; over HTTP the listener has its own.
    pub budget: RequestBudget,
    /// The longest value that agents are shown, in bytes of JSON.
    pub value_bytes: usize,
}

/// The state that all sessions share.
pub(super) struct McpShared {
    pub(super) settings: McpSettings,
    pub(super) running: InFlightRequests,
    pub(super) forms: OpenForms,
    answers: AnswerMemory,
}

impl McpShared {
    pub(super) fn new(settings: McpSettings) -> Self {
        let (running, forms, answers) = Default::default();
        Self { settings, running, forms, answers }
    }
}

/// The form in which the value of a call is sent; it is sent once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueForm {
    /// In `structuredContent`.
    Structure,
    /// In the text, for clients that read nothing else.
    Text,
}

/// A call of a tool.
#[derive(Clone, Copy)]
pub(super) struct ToolCall<'c> {
    /// The tool's name.
    pub(super) name: &'c str,
    pub(super) runs: &'c ToolTarget,
    pub(super) context: &'c RequestContext<RoleServer>,
}

/// The end of a tool's run.
pub(super) struct ToolRun {
    pub(super) answer: RenderedAnswer,
    pub(super) audit_id: AuditId,
    /// The approval that it waits for. Nothing of it ran then.
    pub(super) waits_for: Option<ApprovalId>,
}

/// The server of one session.
pub struct McpServer {
    pub(super) shared: Arc<McpShared>,
    level: Mutex<Option<LoggingLevel>>,
    /// True if the client is notified of changes.
    told: AtomicBool,
}

impl McpServer {
    pub(super) fn new(shared: Arc<McpShared>) -> Self {
        Self { shared, level: Mutex::default(), told: AtomicBool::new(false) }
    }

    /// Runs the tool's target.
    pub(super) async fn run(&self, call: ToolCall<'_>, args: Option<Arc<CallArguments>>) -> ToolRun {
        let ToolCall { name, runs, context } = call;
        let cancellation = Cancellation::new();
        // The client may have cancelled it while a person was asked: it must not begin then.
        if context.ct.is_cancelled() {
            cancellation.cancel();
        }
        let limit = self.shared.settings.value_bytes;
        let running = async {
            match runs {
                ToolTarget::Operation { connector, op } => {
                    let args = args.and_then(|args| args.take()).unwrap_or_else(|| "{}".to_owned());
                    let call = Call::from_text(connector.clone(), op.clone(), args)
                        .actor(&actor(context))
                        .by_agent()
                        .cancelled_by(&cancellation);
                    let CallResult { outcome, report } = self.shared.settings.host.run_text(call).await;
                    let audit_id = report.audit_id.clone();
                    match outcome {
                        Ok(json) => {
                            self.make_room(&json, context).await;
                            let answer = agent::value(name, &connector.to_string(), &json, &report, limit);
                            ToolRun { answer, audit_id, waits_for: None }
                        }
                        Err(error) => {
                            let waits_for = awaited_approval(&error);
                            ToolRun { answer: agent::error(name, &error), audit_id, waits_for }
                        }
                    }
                }
                ToolTarget::Action(runnable) => {
                    let args = match args.map(|args| args.take_values()).transpose() {
                        Ok(args) => args.unwrap_or_else(|| Value::Object(Default::default())),
                        Err(error) => {
                            let audit_id = error.request_id().clone();
                            let answer = agent::error(name, &error.into());
                            return ToolRun { answer, audit_id, waits_for: None };
                        }
                    };
                    let run =
                        RunRequest::new(args).actor(actor(context)).by_agent().cancelled_by(&cancellation);
                    let ActionResult { outcome, report } =
                        self.shared.settings.host.run_checked_action(runnable, run).await;
                    // What has begun is not run again.
                    let waits_for =
                        outcome.as_ref().err().filter(|_| !report.has_begun()).and_then(awaited_approval);
                    let answer = match outcome {
                        Ok(value) => agent::action_value(name, &value, &report, limit),
                        Err(error) => agent::action_error(name, &error, &report),
                    };
                    ToolRun { answer, audit_id: report.audit_id, waits_for }
                }
            }
        };
        let mut running = std::pin::pin!(running);
        tokio::select! {
            biased;
            done = &mut running => return done,
            () = context.ct.cancelled() => {}
            () = self.shared.settings.shutdown.cancelled() => {}
        }
        // It ends at once, and the audit log says that it was cancelled.
        cancellation.cancel();
        running.await
    }

    /// Returns the result for the agent.
    pub(super) fn shown(&self, run: &ToolRun, context: &RequestContext<RoleServer>) -> CallToolResponse {
        result(&run.answer, &run.audit_id, self.value_form(context)).into()
    }

    /// Waits until there is memory for the answer with this value, or the request was cancelled.
    async fn make_room(&self, json: &str, context: &RequestContext<RoleServer>) {
        let room = tokio::select! {
            room = self.shared.answers.reserve(json, self.shared.settings.value_bytes) => room,
            () = context.ct.cancelled() => None,
            () = self.shared.settings.shutdown.cancelled() => None,
        };
        // Over HTTP an answer is serialized at once, and stored as text.
        if let (Some(room), Some(request)) = (room, context.extensions.get::<RequestPermit>()) {
            request.keep(room);
        }
    }

    /// Returns the form in which the value is sent: clients of versions before 2025-06-18 read texts alone.
    fn value_form(&self, context: &RequestContext<RoleServer>) -> ValueForm {
        let structure =
            context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2025_06_18);
        match structure && !self.shared.settings.offered.sends_text() {
            true => ValueForm::Structure,
            false => ValueForm::Text,
        }
    }

    /// Returns the level from which on the client wants log lines, from this request or an earlier one.
    fn level(&self, context: &RequestContext<RoleServer>) -> Option<LoggingLevel> {
        context.meta.log_level().or_else(|| *self.level.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Returns the arguments of the call, which are not passed through the SDK: they are attached to the message,
/// or to its HTTP request.
fn arguments(context: &RequestContext<RoleServer>) -> Option<Arc<CallArguments>> {
    let request = context.extensions.get::<http::request::Parts>();
    let beside = context.extensions.get::<Arc<CallArguments>>();
    beside.or_else(|| request?.extensions.get()).cloned()
}

/// Returns true if the request's version has sessions.
pub(super) fn has_sessions(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_none_or(|version| version < ProtocolVersion::V_2026_07_28)
}

/// Returns the caller's name for the audit log: a claim of the client's, marked as one of an agent.
pub(super) fn actor(context: &RequestContext<RoleServer>) -> String {
    match context.client_info() {
        Some(client) => format!("mcp:{}", sanitize_line(&client.name, 100)),
        None => "mcp".to_owned(),
    }
}

/// Returns the approval that a call waits for, if that is how it ended.
fn awaited_approval(error: &Error) -> Option<ApprovalId> {
    let Error::Host(error) = error else { return None };
    let id = error.details().get("approval").filter(|_| error.kind() == HostErrorKind::ApprovalRequired)?;
    ApprovalId::parse(id.as_str()?)
}

/// Returns the result of a call, with or without a value. A value is sent once.
pub(super) fn result(told: &RenderedAnswer, audit_id: &AuditId, form: ValueForm) -> CallToolResult {
    let text = match form {
        ValueForm::Structure => told.structured_text(),
        ValueForm::Text => told.text(),
    };
    let text = vec![ContentBlock::text(text)];
    let mut result =
        if told.is_error() { CallToolResult::error(text) } else { CallToolResult::success(text) };
    result.structured_content = match (told.is_error(), form) {
        // An error's text and structure differ.
        (true, _) => serde_json::from_str(&visible_json(&told.structured().to_string())).ok(),
        (false, ValueForm::Structure) => Some(told.structured().clone()),
        (false, ValueForm::Text) => None,
    };
    let mut meta = MetaObject::new();
    meta.0.insert("cofferdam/audit_id".into(), audit_id.as_str().into());
    result.meta = Some(meta);
    result
}

/// Notifies the client of a session about changed tools, until the session ends.
async fn notify_changes(shared: Arc<McpShared>, peer: Peer<RoleServer>) {
    let mut changes = shared.settings.offered.changes();
    loop {
        tokio::select! {
            changed = changes.changed() => {
                if changed.is_err() || peer.notify_tool_list_changed().await.is_err() {
                    return;
                }
            }
            () = tokio::time::sleep(KEEP_ALIVE_INTERVAL) => {
                if peer.is_transport_closed() {
                    return;
                }
            }
            () = shared.settings.shutdown.begun() => return,
        }
    }
}

/// Returns the answer to an unknown method.
fn method_not_found(method: &str) -> ErrorData {
    let message = format!("There is no method `{}`.", sanitize_line(method, 100));
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, message, None)
}

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities =
            ServerCapabilities::builder().enable_tools().enable_tool_list_changed().enable_logging();
        let server = Implementation::new("cofferdam", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(capabilities.build()).with_server_info(server).with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let after = match request.and_then(|request| request.cursor) {
            Some(cursor) => Some(listing::read(&cursor).ok_or_else(|| {
                let message = "The cursor is none of this list's. Ask for the tools from their beginning.";
                ErrorData::invalid_params(message, None)
            })?),
            None => None,
        };
        let catalog = self.shared.settings.offered.now();
        let (tools, more) = catalog.page(after.as_deref());
        let mut result = ListToolsResult::with_all_items(tools);
        result.next_cursor = more.map(listing::after);
        Ok(result)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.shared.settings.offered.now().get(name).map(|named| named.tool.clone())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let catalog = self.shared.settings.offered.now();
        let Some(tool) = catalog.get(&request.name) else {
            let message = format!("There is no tool `{}`.", sanitize_line(&request.name, 100));
            return Err(ErrorData::invalid_params(message, None));
        };
        let _one = self.shared.running.start();
        let form_channel = self.form_channel(&context);
        let (progress, level) = (context.meta.get_progress_token(), self.level(&context));
        let notes = NotificationSender::start(&context.peer, progress, level, form_channel.is_some());
        let args = arguments(&context);
        let call = ToolCall { name: &tool.tool.name, runs: tool.runs(), context: &context };
        let given = InputAnswer { responses: request.input_responses, state: request.request_state };
        let ended = notes.run(async {
            match form_channel {
                None => Ok(self.shown(&self.run(call, args).await, &context)),
                Some(FormChannel::Request) => Ok(self.shown(&self.run_and_ask(call, args).await, &context)),
                Some(FormChannel::Result) => self.run_or_ask(call, args, given).await,
            }
        });
        ended.await
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if !has_sessions(&context) {
            return Err(method_not_found("logging/setLevel"));
        }
        *self.level.lock().unwrap_or_else(PoisonError::into_inner) = Some(request.level);
        Ok(())
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        // A repeated subscription does not add notifications.
        if !self.told.swap(true, Ordering::Relaxed) {
            tokio::spawn(notify_changes(Arc::clone(&self.shared), context.peer));
        }
    }

    fn accepted_subscription_filter(&self, _: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(SubscriptionFilter::builder().tools_list_changed().build())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.shared.settings.offered.changes();
        loop {
            tokio::select! {
                changed = changes.changed() => {
                    if changed.is_err() || context.sink().notify_tool_list_changed().await.is_err() {
                        return Ok(());
                    }
                }
                () = context.cancelled() => return Ok(()),
                () = self.shared.settings.shutdown.begun() => return Ok(()),
            }
        }
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method = request.method.as_str();
        if METHODS.contains(&method) || (OLDER_METHODS.contains(&method) && has_sessions(&context)) {
            return Err(ErrorData::invalid_params("The parameters are not those of this method.", None));
        }
        Err(method_not_found(&request.method))
    }

    // An undeclared feature is unknown; the SDK would answer with an empty list.

    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Err(method_not_found("completion/complete"))
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Err(method_not_found("prompts/list"))
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Err(method_not_found("resources/list"))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Err(method_not_found("resources/templates/list"))
    }
}

/// The memory for values that are built and not written yet, in KiB, for all clients together.
const ANSWERS: usize = 64 * 1024;

/// The resources of a request over standard streams: held until its answer is written and its handler has
/// stopped.
#[derive(Debug, Clone)]
pub(super) struct RequestPermit(Arc<RequestResources>);

#[derive(Debug)]
struct RequestResources {
    _place: OwnedSemaphorePermit,
    _charge: Arc<BudgetCharge>,
    answer: Mutex<Option<AnswerMemoryPermit>>,
}

/// Memory for the answer to one request, until this is dropped.
#[derive(Debug)]
pub(super) struct AnswerMemoryPermit(#[expect(dead_code, reason = "held")] OwnedSemaphorePermit);

impl RequestPermit {
    pub(super) fn new(place: OwnedSemaphorePermit, charge: Arc<BudgetCharge>) -> Self {
        Self(Arc::new(RequestResources { _place: place, _charge: charge, answer: Mutex::default() }))
    }

    /// Holds `answer` as long as the request's resources.
    pub(super) fn keep(&self, answer: AnswerMemoryPermit) {
        *self.0.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
    }
}

/// The memory of all unwritten answers.
#[derive(Debug, Clone)]
pub(super) struct AnswerMemory(Arc<Semaphore>);

impl Default for AnswerMemory {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(ANSWERS)))
    }
}

impl AnswerMemory {
    /// Waits for the memory for the value in `json`: a client that reads no answers gets no further ones.
    pub(super) async fn reserve(&self, json: &str, limit: usize) -> Option<AnswerMemoryPermit> {
        let shown = json.len().min(limit.saturating_mul(2));
        let values = match json.len() <= limit {
            true => count(json.as_bytes(), VALUES).unwrap_or(VALUES),
            // Two bytes are the shortest item.
            false => shown / 2,
        };
        let kib = shown.saturating_add(values.saturating_mul(VALUE_BYTES)) >> 10;
        let permits = u32::try_from(kib.min(ANSWERS)).unwrap_or(u32::MAX);
        Arc::clone(&self.0).acquire_many_owned(permits).await.ok().map(AnswerMemoryPermit)
    }
}
