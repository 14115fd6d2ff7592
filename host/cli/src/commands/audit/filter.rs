//! Which calls: the options that `list` and `stats` have in common, and what they mean.

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use cofferdam_audit::{AuditReader, CallStatus, Filter};
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::{FailureClass, sanitize_line};
use cofferdam_core::suggest;
use cofferdam_model::manifest::ConnectorName;
use cofferdam_runtime::call::ConnectorRef;
use jiff::Timestamp;

use crate::commands::time_format::parse_timestamp;
use crate::explain;
use crate::report::CommandError;

/// Which calls.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct CallFilterArgs {
    /// Those that failed, were refused or cancelled, or were interrupted and are decided.
    #[arg(long, conflicts_with = "status")]
    failed: bool,

    /// Those with this status; `incomplete` are those that were interrupted and not resumed or skipped yet.
    #[arg(long, value_name = "STATUS", value_parser = PossibleValuesParser::new(CallStatus::ALL.map(CallStatus::name)))]
    status: Option<String>,

    /// Those whose failure is of this class.
    #[arg(long, value_name = "CLASS", value_parser = PossibleValuesParser::new(classes()))]
    class: Option<String>,

    /// Those whose failure or error has this code.
    #[arg(long, value_name = "CODE")]
    code: Option<String>,

    /// Those of this connector: NAME of all versions, or NAME@VERSION.
    #[arg(long, value_name = "CONNECTOR", value_parser = clap::builder::StringValueParser::new().try_map(connector))]
    connector: Option<String>,

    /// Those of this operation.
    #[arg(long, value_name = "OP")]
    op: Option<String>,

    /// This action, NAME or NAME@VERSION: its runs, and the calls that are its steps.
    #[arg(long, value_name = "ACTION")]
    action: Option<String>,

    /// Those of this actor: `cli:USER`, `http`, `mcp:CLIENT`, or `host` for an embedding program that names none.
    #[arg(long, value_name = "ACTOR")]
    actor: Option<String>,

    #[command(flatten)]
    period: PeriodArgs,
}

/// The time at which calls were received.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct PeriodArgs {
    /// Those received at or after: so long ago (90s, 30m, 2h, 7d), a date, or RFC 3339. In UTC.
    #[arg(long, value_name = "TIME", value_parser = parse_timestamp)]
    pub(crate) since: Option<Timestamp>,

    /// Those received before.
    #[arg(long, value_name = "TIME", value_parser = parse_timestamp)]
    pub(crate) until: Option<Timestamp>,
}

impl PeriodArgs {
    /// Refuses a period without a moment.
    ///
    /// # Errors
    /// `validation`: it ends before it begins.
    pub(crate) fn check(&self) -> Result<(), HostError> {
        match (self.since, self.until) {
            (Some(since), Some(until)) if since >= until => {
                let message = "No time is between --since and --until.";
                Err(HostError::new(HostErrorKind::Validation, message)
                    .with_hint("Give --since the earlier one."))
            }
            _ => Ok(()),
        }
    }
}

impl CallFilterArgs {
    /// Returns the query for the audit log.
    ///
    /// # Errors
    /// `validation`: the code is none that a call could have, or no time is left.
    pub(super) fn filter(self) -> Result<Filter, CommandError> {
        self.period.check()?;
        Ok(Filter {
            failed: self.failed,
            status: self.status.as_deref().and_then(CallStatus::from_name),
            class: self.class,
            code: self.code,
            connector: self.connector,
            op: self.op,
            action: self.action,
            actor: self.actor,
            since: self.period.since,
            until: self.period.until,
            ..Filter::default()
        })
    }
}

/// Refuses a code that no call has, unless cofferdam has it: a connector may bring codes of its own.
pub(super) fn check_code(filter: &Filter, reader: Option<&mut dyn AuditReader>) -> Result<(), CommandError> {
    let Some(code) = &filter.code else { return Ok(()) };
    let ours = explain::code_infos().iter().map(|ours| ours.word.as_str());
    if ours.clone().any(|known| known == code) {
        return Ok(());
    }
    let recorded = match reader {
        Some(reader) => reader.codes()?,
        None => Vec::new(),
    };
    if recorded.contains(code) {
        return Ok(());
    }
    let message = format!("No call has the code `{}`, and cofferdam knows none.", sanitize_line(code, 100));
    let hint = match suggest::nearest(code, ours.chain(recorded.iter().map(String::as_str))) {
        Some(near) => format!("Did you mean `{}`?", sanitize_line(near, 100)),
        None => "docs/reference/failures.md lists them; `cofferdam explain WORD` explains one.".to_owned(),
    };
    Err(HostError::new(HostErrorKind::Validation, message).with_hint(hint).into())
}

fn classes() -> impl Iterator<Item = &'static str> {
    FailureClass::ALL.iter().map(|class| class.name())
}

fn connector(text: String) -> Result<String, String> {
    let read = match text.contains('@') {
        true => ConnectorRef::parse(&text).map(drop).map_err(|refused| refused.to_string()),
        false => ConnectorName::parse(&text).map(drop).map_err(|refused| refused.to_string()),
    };
    read.map(|()| text)
}
