//! The query of a request about the audit log: which calls, and how they are counted.

use std::collections::BTreeMap;

use cofferdam_audit::{
    CallStatus, Filter, HistoryQuery, HistoryStep, OperatorEventFilter, StatsGrouping, StatsQuery,
};
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::{AuditId, FailureClass, sanitize_line};
use cofferdam_model::manifest::ConnectorName;
use cofferdam_runtime::call::ConnectorRef;
use jiff::{SignedDuration, Timestamp};
use semver::Version;
use serde_json::{Value, json};

use super::changes::ChangeArea;

/// The number of calls in a page without a `limit`.
const PAGE: usize = 100;

/// The most calls in a page.
const LONGEST_PAGE: usize = 1_000;

/// The number of steps of a history without `steps`.
const STEPS: i64 = 48;

/// The most steps of a history.
const MOST_STEPS: i64 = 1_000;

/// The longest value of a parameter, in characters.
const LONGEST: usize = 200;

/// The pattern of a connector's name, with or without its version.
pub(super) const CONNECTOR_PATTERN: &str = r"^(github|gitlab|hub|local)://[a-z0-9]{1,20}/[a-z0-9]{1,20}(@(0|[1-9][0-9]{0,4})\.(0|[1-9][0-9]{0,4})\.(0|[1-9][0-9]{0,4}))?$";

/// The pattern of a version.
const VERSION_PATTERN: &str = r"^(0|[1-9][0-9]{0,4})\.(0|[1-9][0-9]{0,4})\.(0|[1-9][0-9]{0,4})$";

/// The pattern of the id of a call.
pub(super) const ID_PATTERN: &str = "^audit-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$";

/// The pattern of an idempotency key that calls are looked for by, or of its hash.
const KEY_FILTER_PATTERN: &str = "^(sha256:[0-9a-f]{64}|[!-9;-}]{1,200})$";

/// The pattern of the id of an approval.
pub(super) const APPROVAL_PATTERN: &str =
    "^approval-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$";

/// The parameters of a query, each of which may be given once.
#[derive(Debug, Default)]
pub(super) struct QueryParameters(BTreeMap<String, String>);

impl QueryParameters {
    /// Reads the parameters.
    ///
    /// # Errors
    /// `validation`: one is given twice.
    pub(super) fn new(pairs: Vec<(String, String)>) -> Result<Self, HostError> {
        let mut parameters = BTreeMap::new();
        for (name, value) in pairs {
            if parameters.insert(name.clone(), value).is_some() {
                return Err(invalid(&name, "stands there twice", "Give it once."));
            }
        }
        Ok(Self(parameters))
    }

    /// Takes the parameter `name` out.
    pub(super) fn take(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }

    /// Refuses parameters that were not taken out; `known` are those that exist.
    pub(super) fn finish(self, known: &[&str]) -> Result<(), HostError> {
        match self.0.into_keys().next() {
            None => Ok(()),
            Some(name) => {
                Err(invalid(&name, "does not exist here", &format!("There are {}.", known.join(", "))))
            }
        }
    }

    fn parsed<T>(
        &mut self,
        name: &str,
        form: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, HostError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        match parse(&value) {
            Some(parsed) => Ok(Some(parsed)),
            None => Err(invalid(name, &format!("cannot be `{}`", sanitize_line(&value, 100)), form)),
        }
    }

    /// Takes out the parameter `name`, whose value is the name of one of these.
    fn one_of<T: Copy>(
        &mut self,
        name: &str,
        all: &[T],
        name_of: fn(T) -> &'static str,
    ) -> Result<Option<T>, HostError> {
        let names: Vec<_> = all.iter().map(|one| name_of(*one)).collect();
        let form = format!("It is one of {}.", names.join(", "));
        self.parsed(name, &form, |text| all.iter().copied().find(|one| name_of(*one) == text))
    }

    /// Takes out the parameter `connector`.
    ///
    /// # Errors
    /// `validation`: it is not the name of a connector.
    pub(super) fn connector(&mut self) -> Result<Option<String>, HostError> {
        let form = "Write it like github://acme/slack or github://acme/slack@1.2.0.";
        self.parsed("connector", form, |text| is_connector(text).then(|| text.to_owned()))
    }

    fn word(&mut self, name: &str) -> Result<Option<String>, HostError> {
        let form = format!("It is a text of 1 to {LONGEST} characters.");
        self.parsed(name, &form, |text| {
            (1..=LONGEST).contains(&text.chars().count()).then(|| text.to_owned())
        })
    }

    /// Takes out the idempotency key. It is the caller's own, so no error repeats it.
    fn key(&mut self, filter: &mut Filter) -> Result<(), HostError> {
        match self.take("key") {
            Some(key) if !filter.select_key(&key) => {
                Err(invalid("key", "is no idempotency key", Filter::KEY_FORM))
            }
            _ => Ok(()),
        }
    }

    fn flag(&mut self, name: &str) -> Result<bool, HostError> {
        let flag = self.parsed(name, "It is true or false.", |text| text.parse().ok())?;
        Ok(flag.unwrap_or_default())
    }

    /// Takes out the size of a page.
    fn limit(&mut self) -> Result<usize, HostError> {
        let form = format!("It is a number from 1 to {LONGEST_PAGE}.");
        let limit = self.parsed("limit", &form, |text| {
            text.parse().ok().filter(|limit| (1..=LONGEST_PAGE).contains(limit))
        })?;
        Ok(limit.unwrap_or(PAGE))
    }

    fn time(&mut self, name: &str) -> Result<Option<Timestamp>, HostError> {
        self.parsed(name, "Write it like 2026-11-22T12:00:00Z.", |text| text.parse().ok())
    }
}

fn invalid(name: &str, what: &str, fix: &str) -> HostError {
    let message = format!("The parameter `{}` {what}.", sanitize_line(name, 100));
    HostError::new(HostErrorKind::Validation, message).with_hint(fix)
}

/// Returns true if this is the name of a connector, with or without a version.
pub(super) fn is_connector(text: &str) -> bool {
    match text.contains('@') {
        true => ConnectorRef::parse(text).is_ok_and(|connector| connector.hash().is_none()),
        false => ConnectorName::parse(text).is_ok(),
    }
}

/// The parameters that select calls.
const FILTER: [&str; 10] =
    ["connector", "op", "action", "class", "code", "status", "failed", "actor", "since", "until"];

/// The parameters that select requests.
const NETWORK: [&str; 3] = ["connector", "since", "until"];

fn filter(query: &mut QueryParameters) -> Result<Filter, HostError> {
    let statuses = format!("It is one of {}.", CallStatus::ALL.map(CallStatus::name).join(", "));
    Ok(Filter {
        status: query.parsed("status", &statuses, CallStatus::from_name)?,
        failed: query.flag("failed")?,
        class: query.one_of("class", FailureClass::ALL, FailureClass::name)?.map(|it| it.name().to_owned()),
        code: query.word("code")?,
        connector: query.connector()?,
        op: query.word("op")?,
        action: query.word("action")?,
        actor: query.word("actor")?,
        since: query.time("since")?,
        until: query.time("until")?,
        ..Filter::default()
    })
}

/// Reads the query of a page of calls.
///
/// # Errors
/// `validation`: a parameter is unknown, or has a value that it cannot have.
pub(super) fn page(mut query: QueryParameters) -> Result<Filter, HostError> {
    let mut filter = filter(&mut query)?;
    query.key(&mut filter)?;
    filter.before =
        query.parsed("before", "It is the id of a call, like `next` of a page.", AuditId::parse)?;
    filter.limit = query.limit()?;
    query.finish(&[&FILTER[..], &["key", "before", "limit"]].concat())?;
    Ok(filter)
}

/// Reads the query of statistics.
///
/// # Errors
/// As [`page`].
pub(super) fn stats(mut query: QueryParameters) -> Result<(Filter, StatsQuery), HostError> {
    let filter = filter(&mut query)?;
    let by = query.one_of("by", &StatsGrouping::ALL, StatsGrouping::name)?;
    let usage = query.flag("usage")?;
    query.finish(&[&FILTER[..], &["by", "usage"]].concat())?;
    Ok((filter, StatsQuery { by: by.unwrap_or_default(), usage }))
}

/// The approvals that a list has.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ApprovalQuery {
    /// True if it has those that do not wait, too.
    pub(super) all: bool,
    /// The most that it has.
    pub(super) limit: usize,
}

/// Reads the query of a list of approvals.
///
/// # Errors
/// As [`page`].
pub(super) fn approvals(mut query: QueryParameters) -> Result<ApprovalQuery, HostError> {
    let (all, limit) = (query.flag("all")?, query.limit()?);
    query.finish(&["all", "limit"])?;
    Ok(ApprovalQuery { all, limit })
}

/// Returns the parameters of a list of approvals, for the description of the API.
pub(super) fn approval_parameters() -> Vec<Value> {
    let all = "Lists those with an answer, too, and those that ended without one.";
    let all = parameter("all", all, json!({"type": "boolean", "default": false}));
    vec![all, limit_parameter("The most approvals in the list.")]
}

/// Reads the query of a history. `now` is its end if the query names none.
///
/// # Errors
/// As [`page`].
pub(super) fn history(
    mut query: QueryParameters,
    now: Timestamp,
) -> Result<(Filter, HistoryQuery), HostError> {
    let filter = filter(&mut query)?;
    if filter.since.is_some() {
        return Err(invalid("since", "does not exist here", "Give `until` and `steps`."));
    }
    let step = query.one_of("step", &HistoryStep::ALL, HistoryStep::name)?;
    let steps = format!("It is a number from 1 to {MOST_STEPS}.");
    let steps = query
        .parsed("steps", &steps, |text| text.parse().ok().filter(|steps| (1..=MOST_STEPS).contains(steps)))?;
    query.finish(&[&FILTER[..], &["step", "steps"]].concat())?;
    let (step, until) = (step.unwrap_or_default(), filter.until.unwrap_or(now));
    let before = steps.unwrap_or(STEPS).saturating_sub(1).saturating_mul(step.seconds());
    // The last step is the one before the end.
    let last = step.begin(until.checked_sub(SignedDuration::from_nanos(1)).unwrap_or(until));
    let since = Timestamp::from_second(last.as_second().saturating_sub(before));
    let since = since.map_err(|_| invalid("until", "is too early", "Give a later time."))?;
    Ok((filter, HistoryQuery { since, until, step }))
}

/// Reads the query of a page of changes: their filter, and the length of the page. One more change shows whether there
/// is another page.
///
/// # Errors
/// As [`page`].
pub(super) fn changes(mut query: QueryParameters) -> Result<(OperatorEventFilter, usize), HostError> {
    let area = query.one_of("area", &ChangeArea::ALL, ChangeArea::name)?;
    let (since, until, before) = (query.time("since")?, query.time("until")?, query.time("before")?);
    let limit = query.limit()?;
    query.finish(&["area", "since", "until", "before", "limit"])?;
    let (actions, most) = (ChangeArea::actions(area), limit.saturating_add(1));
    Ok((OperatorEventFilter { actions, since, until, before, limit: most }, limit))
}

/// Reads the query of the requests of connectors.
///
/// # Errors
/// As [`page`].
pub(super) fn network(mut query: QueryParameters) -> Result<Filter, HostError> {
    let (connector, since, until) = (query.connector()?, query.time("since")?, query.time("until")?);
    query.finish(&NETWORK)?;
    Ok(Filter { connector, since, until, ..Filter::default() })
}

/// Reads the query of a difference: the version that is compared with.
///
/// # Errors
/// As [`page`], and if there is none.
pub(super) fn difference(mut query: QueryParameters) -> Result<Version, HostError> {
    let form = "Write it like 1.2.0.";
    let from = query.parsed("from", form, |text| Version::parse(text).ok())?;
    query.finish(&["from"])?;
    from.ok_or_else(|| invalid("from", "is missing", form))
}

/// Returns the parameter of a difference, for the description of the API.
pub(super) fn difference_parameter() -> Value {
    json!({
        "name": "from", "in": "query", "required": true, "description": "The version that is compared with.",
        "schema": {"type": "string", "pattern": VERSION_PATTERN}
    })
}

/// Returns the description of one parameter.
pub(super) fn parameter(name: &str, description: &str, schema: Value) -> Value {
    json!({"name": name, "in": "query", "required": false, "description": description, "schema": schema})
}

fn filter_parameters() -> Vec<Value> {
    let text = || json!({"type": "string", "minLength": 1, "maxLength": LONGEST});
    let words = |words: Vec<&str>| json!({"type": "string", "enum": words});
    let time = || json!({"type": "string", "format": "date-time"});
    let classes = FailureClass::ALL.iter().map(|class| class.name());
    vec![
        parameter(
            "connector",
            "Calls of this connector, of all versions or of the one that is named.",
            json!({"type": "string", "pattern": CONNECTOR_PATTERN}),
        ),
        parameter("op", "Calls of this operation.", text()),
        parameter(
            "action",
            "Runs of this action, `name` or `name@version`, and the calls of its steps.",
            text(),
        ),
        parameter("class", "Calls whose failure is of this class.", words(classes.collect())),
        parameter("code", "Calls whose failure or error has this code.", text()),
        parameter(
            "status",
            "Calls with this status; `incomplete` are those of a process that is gone.",
            words(CallStatus::ALL.map(CallStatus::name).to_vec()),
        ),
        parameter("failed", "Calls that ended without a value.", json!({"type": "boolean"})),
        parameter("actor", "Calls of this actor.", text()),
        parameter("since", "Calls received at or after this time.", time()),
        parameter("until", "Calls received before this time.", time()),
    ]
}

/// Returns the parameters of a page of calls, for the description of the API.
pub(super) fn page_parameters() -> Vec<Value> {
    let mut parameters = filter_parameters();
    parameters.push(parameter(
        "key",
        "Calls that ran under this idempotency key of their caller: the key itself, or `sha256:` and its SHA-256.",
        json!({"type": "string", "pattern": KEY_FILTER_PATTERN}),
    ));
    parameters.push(parameter(
        "before",
        "Calls before this one: `next` of the page before.",
        json!({"type": "string", "pattern": ID_PATTERN}),
    ));
    parameters.push(limit_parameter("The most calls in the page."));
    parameters
}

fn limit_parameter(description: &str) -> Value {
    let limit = json!({"type": "integer", "minimum": 1, "maximum": LONGEST_PAGE, "default": PAGE});
    parameter("limit", description, limit)
}

/// Returns the parameters of a page of changes, for the description of the API.
pub(super) fn changes_parameters() -> Vec<Value> {
    let area = json!({"type": "string", "enum": ChangeArea::ALL.map(ChangeArea::name)});
    let time = || json!({"type": "string", "format": "date-time"});
    vec![
        parameter("area", "Changes of this part of the host; without it, of all but `approvals`.", area),
        parameter("since", "Changes made at or after this time.", time()),
        parameter("until", "Changes made before this time.", time()),
        parameter("before", "Changes before a page: its `next`.", time()),
        limit_parameter("The most changes in the page."),
    ]
}

/// Returns the parameters of statistics, for the description of the API.
pub(super) fn stats_parameters() -> Vec<Value> {
    let mut parameters = filter_parameters();
    let by: Vec<_> = StatsGrouping::ALL.iter().map(|by| by.name()).collect();
    let by = json!({"type": "string", "enum": by, "default": StatsGrouping::default().name()});
    parameters.push(parameter("by", "The property by which calls are grouped.", by));
    let usage = "Adds what attempts used of their limits.";
    parameters.push(parameter("usage", usage, json!({"type": "boolean", "default": false})));
    parameters
}

/// Returns the parameters of the requests of connectors, for the description of the API.
pub(super) fn network_parameters() -> Vec<Value> {
    let mut parameters = filter_parameters();
    let is_known = |name: &Value| NETWORK.iter().any(|own| name == own);
    parameters.retain(|parameter| parameter.get("name").is_some_and(is_known));
    parameters
}

/// Returns the parameters of a history, for the description of the API.
pub(super) fn history_parameters() -> Vec<Value> {
    let mut parameters = filter_parameters();
    parameters.retain(|parameter| parameter.get("name").is_none_or(|name| name != "since"));
    let step = HistoryStep::ALL.map(HistoryStep::name);
    let step = json!({"type": "string", "enum": step, "default": HistoryStep::default().name()});
    parameters.push(parameter("step", "The length of the steps.", step));
    let steps = json!({"type": "integer", "minimum": 1, "maximum": MOST_STEPS, "default": STEPS});
    parameters.push(parameter("steps", "The number of steps up to `until`, or up to now.", steps));
    parameters
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    fn query(pairs: &[(&str, &str)]) -> QueryParameters {
        QueryParameters::new(pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect())
            .unwrap()
    }

    #[test]
    fn a_page_is_read_from_its_parameters() {
        let empty = page(query(&[])).unwrap();
        assert_eq!((empty.limit, empty.before, empty.failed), (PAGE, None, false));
        let all = [
            ("connector", "github://acme/slack@1.2.0"),
            ("op", "post"),
            ("class", "network_error"),
            ("status", "incomplete"),
            ("failed", "true"),
            ("actor", "ada"),
            ("key", "order-17"),
            ("since", "2026-11-22T12:00:00Z"),
            ("limit", "1000"),
        ];
        let filter = page(query(&all)).unwrap();
        assert!(filter.key.is_some());
        assert!(filter.failed && filter.status == Some(CallStatus::Incomplete));
        assert_eq!((filter.actor.as_deref(), filter.limit), (Some("ada"), 1_000));
        let counted = stats(query(&[("by", "actor"), ("usage", "true")])).unwrap().1;
        assert_eq!(counted, StatsQuery { by: StatsGrouping::Actor, usage: true });
    }

    #[test]
    fn a_history_ends_with_the_step_before_its_end() {
        let now = "2026-11-22T12:30:00Z".parse().unwrap();
        let read = |pairs: &[(&str, &str)]| history(query(pairs), now).unwrap().1;
        let hours = read(&[]);
        assert_eq!((hours.step, hours.until, hours.starts().count()), (HistoryStep::Hour, now, 48));
        assert_eq!(hours.starts().last().unwrap().to_string(), "2026-11-22T12:00:00Z");
        let days = read(&[("step", "day"), ("steps", "2"), ("until", "2026-11-22T00:00:00Z")]);
        let starts: Vec<_> = days.starts().map(|start| start.to_string()).collect();
        assert_eq!(starts, ["2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z"]);
        for pair in [
            ("step", "week"),
            ("steps", "0"),
            ("steps", "1001"),
            ("since", "2026-11-22T12:00:00Z"),
            ("until", "-009999-01-02T01:59:59Z"),
            ("limit", "1"),
        ] {
            let error = history(query(&[pair]), now).unwrap_err();
            assert!(error.message().contains(&format!("`{}`", pair.0)), "{error}");
        }
    }

    #[test]
    fn a_difference_is_from_one_version() {
        assert_eq!(difference(query(&[("from", "1.2.0")])).unwrap(), Version::new(1, 2, 0));
        for pairs in
            [&[("from", "latest")][..], &[("from", "1.2")], &[("from", "1.2.0"), ("to", "1.3.0")], &[]]
        {
            let error = difference(query(pairs)).unwrap_err();
            assert!(error.kind() == HostErrorKind::Validation && error.hint().is_some(), "{error}");
        }
    }

    #[test]
    fn no_error_repeats_an_idempotency_key() {
        let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let read = |key: &str| page(query(&[("key", key)]));
        assert_eq!(read("abc").unwrap().key, read(&format!("sha256:{hash}")).unwrap().key);
        for wrong in ["", "a secret key", "secret:1", "sha256:secret", "secret~1"] {
            let error = read(wrong).unwrap_err();
            let text = format!("{error:?} {error} {:?}", error.hint());
            assert!(text.contains("`key`") && !text.contains("secret"), "{text}");
        }
        // No statistics are kept by key.
        assert!(stats(query(&[("key", "abc")])).is_err());
    }

    #[test]
    fn invalid_parameters_are_named() {
        for (name, value) in [
            ("connector", "slack"),
            ("connector", ""),
            ("op", ""),
            ("class", "other"),
            ("status", "failed"),
            ("failed", "1"),
            ("since", "yesterday"),
            ("before", "audit-1"),
            ("limit", "0"),
            ("limit", "1001"),
            ("limit", "-1"),
            ("by", "connector"),
            ("actr", "ada"),
        ] {
            let error = page(query(&[(name, value)])).unwrap_err();
            assert!(error.message().contains(&format!("`{name}`")), "{error}");
            assert!(error.kind() == HostErrorKind::Validation && error.hint().is_some(), "{error}");
        }
        assert!(stats(query(&[("by", "week")])).is_err() && stats(query(&[("limit", "1")])).is_err());
        assert_eq!(
            approvals(query(&[("all", "true"), ("limit", "2")])).unwrap(),
            ApprovalQuery { all: true, limit: 2 }
        );
        assert!(approvals(query(&[("state", "waiting")])).is_err());
        let twice = [("op".to_owned(), "a".to_owned()), ("op".to_owned(), "b".to_owned())];
        assert!(QueryParameters::new(twice.to_vec()).unwrap_err().message().contains("twice"));
    }
}
