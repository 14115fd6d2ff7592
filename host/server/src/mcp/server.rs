//! The server: what the SDK asks it, answered from the tools there are, each call through the host.
#![expect(
    deprecated,
    reason = "logging is to leave the protocol, and clients of its present versions use it"
)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cofferdam_core::failure::{AuditId, safe_line, visible_json};
use cofferdam_runtime::agent::{self, Rendered};
use cofferdam_runtime::call::{Call, Cancellation};
use cofferdam_runtime::flow::Run;
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

use super::cursor;
use super::notes::Notes;
use super::offered::Offered;
use super::room::{Answers, Room};
use super::sessions::SessionLimits;
use super::tool::Runs;
use crate::server::{Arguments, RequestBudget, Shutdown, UnderWay};

/// What every client is told of all tools.
const INSTRUCTIONS: &str = "Each tool runs in a sandbox, and every call is on record under its audit_id. A result with \
isError has the failure's class and whether trying again can help (`retriable`); a failure is never a partial success. \
Where a failure names a command, only the user can run it.";

/// The methods that the SDK knows by their parameters: what it cannot read of these has wrong parameters.
const METHODS: [&str; 4] = ["tools/call", "tools/list", "subscriptions/listen", "completion/complete"];

/// Those of the versions that have sessions; the others do not know them.
const OLDER_METHODS: [&str; 2] = ["initialize", "logging/setLevel"];

/// How often a session that nobody told anything is asked whether it still lives.
const LIVES: Duration = Duration::from_secs(30);

/// What servers are made of.
#[derive(Clone)]
pub struct McpSettings {
    /// The host that runs what tools run; one of its listeners is [`CallNotes`](super::CallNotes).
    pub host: Host,
    /// The tools.
    pub offered: Offered,
    /// How the servers end.
    pub shutdown: Shutdown,
    /// How long running calls may go on when a client over stdio says no more.
    pub grace: Duration,
    /// How many sessions there are over HTTP, and for how long.
    pub sessions: SessionLimits,
    /// The bytes of requests that the server over standard streams holds; over HTTP the listener has its own.
    pub budget: RequestBudget,
    /// The longest value that agents are shown, in bytes of JSON.
    pub value_bytes: usize,
}

/// What all sessions share.
pub(super) struct Shared {
    pub(super) settings: McpSettings,
    pub(super) running: UnderWay,
    answers: Answers,
}

impl Shared {
    pub(super) fn new(settings: McpSettings) -> Self {
        Self { settings, running: UnderWay::default(), answers: Answers::default() }
    }
}

/// The form in which the value of a call is sent, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueForm {
    /// In `structuredContent`.
    Structure,
    /// In the text, for clients that read nothing else.
    Text,
}

/// The server of one session.
pub struct McpServer {
    shared: Arc<Shared>,
    level: Mutex<Option<LoggingLevel>>,
    /// Whether the client is told of changes.
    told: AtomicBool,
}

impl McpServer {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, level: Mutex::default(), told: AtomicBool::new(false) }
    }

    /// Runs what the tool runs; what an agent is told of it, and its record.
    async fn run(
        &self,
        name: &str,
        runs: &Runs,
        args: Option<Arc<Arguments>>,
        context: &RequestContext<RoleServer>,
    ) -> (Rendered, AuditId) {
        let cancellation = Cancellation::new();
        let limit = self.shared.settings.value_bytes;
        let running = async {
            match runs {
                Runs::Operation { connector, op } => {
                    let args = args.and_then(|args| args.take()).unwrap_or_else(|| "{}".to_owned());
                    let call = Call::from_text(connector.clone(), op.clone(), args)
                        .actor(&actor(context))
                        .cancelled_by(&cancellation);
                    let (outcome, report) = self.shared.settings.host.run_text_reported(call).await;
                    let told = match outcome {
                        Ok(json) => {
                            self.make_room(&json, context).await;
                            agent::value(name, &connector.to_string(), &json, &report, limit)
                        }
                        Err(error) => agent::error(name, &error),
                    };
                    (told, report.audit_id)
                }
                Runs::Action(runnable) => {
                    let args = match args.map(|args| args.take_values()).transpose() {
                        Ok(args) => args.unwrap_or_else(|| Value::Object(Default::default())),
                        Err(error) => {
                            let id = error.request_id().clone();
                            return (agent::error(name, &error.into()), id);
                        }
                    };
                    let run = Run::new(args).actor(actor(context)).cancelled_by(&cancellation);
                    let (outcome, report) = self.shared.settings.host.run_checked_action(runnable, run).await;
                    let told = match outcome {
                        Ok(value) => agent::action_value(name, &value, &report, limit),
                        Err(error) => agent::action_error(name, &error, &report),
                    };
                    (told, report.audit_id)
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
        // It ends at once, and says on record that it was cancelled.
        cancellation.cancel();
        running.await
    }

    /// Waits until there is memory for the answer with this value, or the request was cancelled.
    async fn make_room(&self, json: &str, context: &RequestContext<RoleServer>) {
        let room = tokio::select! {
            room = self.shared.answers.room(json, self.shared.settings.value_bytes) => room,
            () = context.ct.cancelled() => None,
            () = self.shared.settings.shutdown.cancelled() => None,
        };
        // Over HTTP what is answered is written down at once, and kept as text.
        if let (Some(room), Some(request)) = (room, context.extensions.get::<Room>()) {
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

    /// From which level on the client wants to read the log: what this request says, or what it said before.
    fn level(&self, context: &RequestContext<RoleServer>) -> Option<LoggingLevel> {
        context.meta.log_level().or_else(|| *self.level.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The arguments of the call, which the SDK was not given: beside the message, or beside its HTTP request.
fn arguments(context: &RequestContext<RoleServer>) -> Option<Arc<Arguments>> {
    let request = context.extensions.get::<http::request::Parts>();
    let beside = context.extensions.get::<Arc<Arguments>>();
    beside.or_else(|| request?.extensions.get()).cloned()
}

/// Whether the request is of a version that has sessions.
fn has_sessions(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_none_or(|version| version < ProtocolVersion::V_2026_07_28)
}

/// Who asks, for the record: a claim of the client's, and marked as one of an agent's.
fn actor(context: &RequestContext<RoleServer>) -> String {
    match context.client_info() {
        Some(client) => format!("mcp:{}", safe_line(&client.name, 100)),
        None => "mcp".to_owned(),
    }
}

/// The result of a call, whatever came of it. A value is sent once.
pub(super) fn result(told: &Rendered, audit_id: &AuditId, form: ValueForm) -> CallToolResult {
    let text = match form {
        ValueForm::Structure => told.text_beside(),
        ValueForm::Text => told.text(),
    };
    let text = vec![ContentBlock::text(text)];
    let mut result =
        if told.is_error() { CallToolResult::error(text) } else { CallToolResult::success(text) };
    result.structured_content = match (told.is_error(), form) {
        // An error's text and structure say it in their own ways.
        (true, _) => serde_json::from_str(&visible_json(&told.structured().to_string())).ok(),
        (false, ValueForm::Structure) => Some(told.structured().clone()),
        (false, ValueForm::Text) => None,
    };
    let mut meta = MetaObject::new();
    meta.0.insert("cofferdam/audit_id".into(), audit_id.as_str().into());
    result.meta = Some(meta);
    result
}

/// Tells a client of a session that the tools are others now, for as long as it is there.
async fn tell_changes(shared: Arc<Shared>, peer: Peer<RoleServer>) {
    let mut changes = shared.settings.offered.changes();
    loop {
        tokio::select! {
            changed = changes.changed() => {
                if changed.is_err() || peer.notify_tool_list_changed().await.is_err() {
                    return;
                }
            }
            () = tokio::time::sleep(LIVES) => {
                if peer.is_transport_closed() {
                    return;
                }
            }
            () = shared.settings.shutdown.begun() => return,
        }
    }
}

/// The answer to a method that there is not.
fn absent(method: &str) -> ErrorData {
    let message = format!("There is no method `{}`.", safe_line(method, 100));
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
            Some(cursor) => Some(cursor::read(&cursor).ok_or_else(|| {
                let message = "The cursor is none of this list's. Ask for the tools from their beginning.";
                ErrorData::invalid_params(message, None)
            })?),
            None => None,
        };
        let catalog = self.shared.settings.offered.now();
        let (tools, more) = catalog.page(after.as_deref());
        let mut result = ListToolsResult::with_all_items(tools);
        result.next_cursor = more.map(cursor::after);
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
            let message = format!("There is no tool `{}`.", safe_line(&request.name, 100));
            return Err(ErrorData::invalid_params(message, None));
        };
        let _one = self.shared.running.one();
        let notes = Notes::to(&context.peer, context.meta.get_progress_token(), self.level(&context));
        let args = arguments(&context);
        let (told, audit_id) = notes.of(self.run(&tool.tool.name, tool.runs(), args, &context)).await;
        Ok(result(&told, &audit_id, self.value_form(&context)).into())
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if !has_sessions(&context) {
            return Err(absent("logging/setLevel"));
        }
        *self.level.lock().unwrap_or_else(PoisonError::into_inner) = Some(request.level);
        Ok(())
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        // Whoever says so again is told no more often.
        if !self.told.swap(true, Ordering::Relaxed) {
            tokio::spawn(tell_changes(Arc::clone(&self.shared), context.peer));
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
        Err(absent(&request.method))
    }

    // What is not declared is not there; the SDK would answer that there are none.

    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Err(absent("completion/complete"))
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Err(absent("prompts/list"))
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Err(absent("resources/list"))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Err(absent("resources/templates/list"))
    }
}
