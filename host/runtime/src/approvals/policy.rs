//! The operator's rules: which calls wait for the approval of a person. In `config.toml` they are `[approvals]`.

use std::ops::RangeInclusive;
use std::time::Duration;

use cofferdam_core::document::{DocumentError, DocumentTable, InvalidValue, quoted, read};
use cofferdam_core::limits::parse_time;
use cofferdam_core::suggest;
use cofferdam_model::manifest::{ConnectorName, OperationEffect};
use cofferdam_model::trust::SigningScope;

/// The default time for which a request waits for an answer.
const REQUEST_LIFETIME: Duration = Duration::from_secs(60 * 60);

/// The default time within which an approval has to be used.
const APPROVAL_LIFETIME: Duration = Duration::from_secs(10 * 60);

/// The valid times for which a request waits: a minute to a week.
const REQUEST_LIFETIMES: RangeInclusive<Duration> =
    Duration::from_secs(60)..=Duration::from_secs(7 * 24 * 60 * 60);

/// The valid times within which an approval has to be used: ten seconds to a day.
const APPROVAL_LIFETIMES: RangeInclusive<Duration> =
    Duration::from_secs(10)..=Duration::from_secs(24 * 60 * 60);

/// The default time for which a call waits for the answer of a person in its MCP client.
const ELICIT_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// The valid times for that: five seconds to an hour.
const ELICIT_TIMEOUTS: RangeInclusive<Duration> = Duration::from_secs(5)..=Duration::from_secs(60 * 60);

/// The word for an operation whose effect its manifest does not declare.
const UNDECLARED: &str = "undeclared";

/// Returns the effects that a rule can name.
fn effects() -> impl Iterator<Item = &'static str> {
    OperationEffect::ALL.iter().map(|effect| effect.name()).chain([UNDECLARED])
}

/// The rules for approvals. By default an agent's call of an operation that is declared destructive waits for a person,
/// and no other call does.
#[derive(Debug, Clone, PartialEq)]
pub struct ApprovalPolicy {
    rules: Vec<ApprovalRule>,
    request_lifetime: Duration,
    approval_lifetime: Duration,
    elicits: bool,
    elicit_timeout: Duration,
}

/// A rule: the calls that it is for, and whether they wait for a person.
#[derive(Debug, Clone, PartialEq)]
struct ApprovalRule {
    connector: Option<SigningScope>,
    /// None: every operation.
    operations: Option<Vec<String>>,
    /// None: every effect. An undeclared effect is none.
    effects: Option<Vec<Option<OperationEffect>>>,
    actor: Option<ActorPattern>,
    agent: Option<bool>,
    asks: bool,
}

/// A caller's name, or its beginning.
#[derive(Debug, Clone, PartialEq)]
enum ActorPattern {
    Name(String),
    Prefix(String),
}

/// The facts that decide whether a call waits for a person.
#[derive(Debug, Clone, Copy)]
pub struct CallFacts<'c> {
    /// The connector.
    pub connector: &'c ConnectorName,
    /// The operation.
    pub op: &'c str,
    /// The effect of the operation, as far as it is known.
    pub effect: Option<OperationEffect>,
    /// The caller.
    pub actor: &'c str,
    /// True if the caller is an agent.
    pub is_agent: bool,
}

impl Default for ApprovalPolicy {
    fn default() -> Self {
        Self {
            rules: Vec::new(),
            request_lifetime: REQUEST_LIFETIME,
            approval_lifetime: APPROVAL_LIFETIME,
            elicits: false,
            elicit_timeout: ELICIT_TIMEOUT,
        }
    }
}

impl ApprovalPolicy {
    /// Returns a policy by which no call waits for a person.
    #[must_use]
    pub fn never() -> Self {
        let rule = ApprovalRule {
            connector: None,
            operations: None,
            effects: None,
            actor: None,
            agent: None,
            asks: false,
        };
        Self { rules: vec![rule], ..Self::default() }
    }

    /// Parses the block `[approvals]` of `text`, called `label` in problems.
    ///
    /// # Errors
    /// All problems of the text, each with its place and its fix.
    pub fn parse(label: &str, text: &str) -> Result<Self, DocumentError> {
        read(label, text, |root| {
            root.reject_unknown_keys(&["approvals"]);
            Some(root.table("approvals").map_or_else(Self::default, |table| Self::read(&table)))
        })
    }

    /// Reads the block `[approvals]`; problems are reported.
    #[must_use]
    pub fn read(table: &DocumentTable<'_>) -> Self {
        let keys = ["request_lifetime", "approval_lifetime", "elicit", "elicit_timeout", "rules"];
        table.reject_unknown_keys(&keys);
        let time = |key, bounds: &RangeInclusive<Duration>| {
            table.text(key).and_then(|time| time.parse(|text| lifetime(text, bounds)))
        };
        Self {
            request_lifetime: time("request_lifetime", &REQUEST_LIFETIMES).unwrap_or(REQUEST_LIFETIME),
            approval_lifetime: time("approval_lifetime", &APPROVAL_LIFETIMES).unwrap_or(APPROVAL_LIFETIME),
            elicits: table.flag("elicit").unwrap_or(false),
            elicit_timeout: time("elicit_timeout", &ELICIT_TIMEOUTS).unwrap_or(ELICIT_TIMEOUT),
            rules: table.tables("rules").iter().filter_map(ApprovalRule::read).collect(),
        }
    }

    /// Returns true if a call may have to wait for a person: without a look at its operation.
    #[must_use]
    pub fn may_ask(&self, is_agent: bool) -> bool {
        is_agent || !self.rules.is_empty()
    }

    /// Returns true if the call waits for a person. The first rule that is for the call decides.
    #[must_use]
    pub fn asks(&self, call: CallFacts<'_>) -> bool {
        match self.rules.iter().find(|rule| rule.is_for(call)) {
            Some(rule) => rule.asks,
            None => call.is_agent && call.effect == Some(OperationEffect::Destructive),
        }
    }

    /// Returns how long a request waits for an answer.
    #[must_use]
    pub fn request_lifetime(&self) -> Duration {
        self.request_lifetime
    }

    /// Returns the time within which an approval has to be used.
    #[must_use]
    pub fn approval_lifetime(&self) -> Duration {
        self.approval_lifetime
    }

    /// Returns true if a person may answer in the MCP client of the call, through a form. The client passes the answer
    /// on, so it is to be a program that the agent does not control.
    #[must_use]
    pub fn elicits(&self) -> bool {
        self.elicits
    }

    /// Returns how long a call waits for the answer in its MCP client.
    #[must_use]
    pub fn elicit_timeout(&self) -> Duration {
        self.elicit_timeout
    }

    /// Parses the time for which an approval of all calls with the same arguments stands.
    ///
    /// # Errors
    /// It is none, or outside the bounds.
    pub fn window(text: &str) -> Result<Duration, InvalidValue> {
        lifetime(text, &APPROVAL_LIFETIMES)
    }
}

impl ApprovalRule {
    fn read(table: &DocumentTable<'_>) -> Option<Self> {
        table.reject_unknown_keys(&["connector", "operations", "effects", "actor", "agent", "ask"]);
        let connector = table.text("connector").map(|scope| scope.parse(|text| SigningScope::parse(text)));
        let actor = table.text("actor").map(|actor| actor.parse(|text| ActorPattern::parse(text)));
        let operations = table.has("operations").then(|| {
            let names = table.texts("operations");
            names.iter().filter_map(|name| name.parse(|name| operation(name))).collect()
        });
        let effects = table.has("effects").then(|| {
            let words = table.texts("effects");
            words.iter().filter_map(|word| word.parse(|word| effect(word))).collect()
        });
        let agent = table.flag("agent");
        if !table.has("ask") {
            table.missing("ask", "ask = true");
        }
        let asks = table.flag("ask")?;
        // A part that cannot be read was reported. Without it the rule would be for more calls.
        let (connector, actor) = (unless_invalid(connector)?, unless_invalid(actor)?);
        Some(Self { connector, operations, effects, actor, agent, asks })
    }

    fn is_for(&self, call: CallFacts<'_>) -> bool {
        self.connector.as_ref().is_none_or(|scope| scope.covers(call.connector))
            && self.operations.as_ref().is_none_or(|names| names.iter().any(|name| name == call.op))
            && self.effects.as_ref().is_none_or(|effects| effects.contains(&call.effect))
            && self.actor.as_ref().is_none_or(|actor| actor.covers(call.actor))
            && self.agent.is_none_or(|agent| agent == call.is_agent)
    }
}

fn unless_invalid<T>(part: Option<Option<T>>) -> Option<Option<T>> {
    match part {
        Some(None) => None,
        Some(read) => Some(read),
        None => Some(None),
    }
}

impl ActorPattern {
    fn parse(text: &str) -> Result<Self, InvalidValue> {
        let wrong = |message: &str| {
            let fix = "write a caller's whole name, or its beginning and a `*`, like \"mcp:*\"";
            InvalidValue::new(format!("{} {message}", quoted(text)), fix)
        };
        match text.split_once('*') {
            _ if text.trim().is_empty() => Err(wrong("names no caller")),
            None => Ok(Self::Name(text.to_owned())),
            Some(("", _)) => Err(wrong("would be every caller: leave it out for that")),
            Some((prefix, "")) => Ok(Self::Prefix(prefix.to_owned())),
            Some(_) => Err(wrong("has a `*` that is not at its end")),
        }
    }

    fn covers(&self, actor: &str) -> bool {
        match self {
            Self::Name(name) => name == actor,
            Self::Prefix(prefix) => actor.starts_with(prefix.as_str()),
        }
    }
}

fn operation(name: &str) -> Result<String, InvalidValue> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    match !name.is_empty() && name.chars().all(is_name) {
        true => Ok(name.to_owned()),
        false => {
            let fix =
                "write an operation as calls name it, like \"delete_file\"; leave `operations` out for all";
            Err(InvalidValue::new(format!("{} is not the name of an operation", quoted(name)), fix))
        }
    }
}

fn effect(word: &str) -> Result<Option<OperationEffect>, InvalidValue> {
    if word == UNDECLARED {
        return Ok(None);
    }
    OperationEffect::ALL.into_iter().find(|effect| effect.name() == word).map(Some).ok_or_else(|| {
        let near = suggest::nearest(word, effects());
        let near = near.map(|near| format!("did you mean \"{near}\"? ")).unwrap_or_default();
        let all = effects().map(|effect| format!("\"{effect}\"")).collect::<Vec<_>>().join(", ");
        InvalidValue::new(format!("{} is not an effect", quoted(word)), format!("{near}write one of {all}"))
    })
}

fn lifetime(text: &str, bounds: &RangeInclusive<Duration>) -> Result<Duration, InvalidValue> {
    const DAY: u32 = 24 * 60 * 60;
    let days = |text: &str| {
        let days: u32 = text.strip_suffix('d').filter(|days| !days.starts_with('+'))?.parse().ok()?;
        Some(Duration::from_secs(days.checked_mul(DAY)?.into()))
    };
    let time = days(text).or_else(|| parse_time(text)).filter(|time| bounds.contains(time));
    time.ok_or_else(|| {
        let (least, most) = (bounds.start().as_secs(), bounds.end().as_secs() / 3600);
        InvalidValue::new(
            format!("not a time from {least}s to {most}h"),
            "write it as a whole number with s, m, h or d, like \"10m\"",
        )
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    fn parse(text: &str) -> Result<ApprovalPolicy, DocumentError> {
        ApprovalPolicy::parse("config.toml", text)
    }

    fn asks(policy: &ApprovalPolicy, (connector, op): (&str, &str), effect: &str, actor: &str) -> bool {
        let connector = ConnectorName::parse(connector).unwrap();
        let effect = super::effect(effect).unwrap();
        let is_agent = actor.starts_with("mcp");
        policy.asks(CallFacts { connector: &connector, op, effect, actor, is_agent })
    }

    #[test]
    fn by_default_destructive_calls_of_agents_ask() {
        let call = ("github://acme/files", "delete");
        for policy in [parse("").unwrap(), ApprovalPolicy::default()] {
            assert_eq!(policy, ApprovalPolicy::default());
            for effect in effects() {
                assert_eq!(asks(&policy, call, effect, "mcp:claude"), effect == "destructive");
                assert!(!asks(&policy, call, effect, "cli:ada"));
            }
        }
        assert!(!asks(&ApprovalPolicy::never(), call, "destructive", "mcp:claude"));
    }

    #[test]
    fn the_first_rule_for_a_call_decides() {
        let text = "[approvals]\nrequest_lifetime = \"2d\"\napproval_lifetime = \"90s\"\nelicit = true\nelicit_timeout = \"1h\"\n\
                    [[approvals.rules]]\nconnector = \"github://acme/*\"\noperations = [\"peek\", \"list\"]\nask = false\n\
                    [[approvals.rules]]\nconnector = \"github://acme/files\"\nask = true\n\
                    [[approvals.rules]]\nactor = \"mcp:trusted\"\nask = false\n\
                    [[approvals.rules]]\nactor = \"http:*\"\neffects = [\"destructive\", \"undeclared\"]\nask = true\n\
                    [[approvals.rules]]\nagent = true\neffects = [\"undeclared\"]\nask = true\n";
        let policy = parse(text).unwrap();
        assert_eq!(policy.request_lifetime(), Duration::from_secs(2 * 86_400));
        assert_eq!(policy.approval_lifetime(), Duration::from_secs(90));
        assert_eq!((policy.elicits(), policy.elicit_timeout()), (true, Duration::from_secs(3_600)));
        assert!(!ApprovalPolicy::default().elicits() && !ApprovalPolicy::never().elicits());
        let files = |op| ("github://acme/files", op);
        let other = |op| ("github://zeta/files", op);
        for (call, effect, actor, expected) in [
            (files("peek"), "destructive", "mcp:x", false),
            (files("peeks"), "read_only", "cli:ada", true),
            (other("peek"), "destructive", "mcp:x", true),
            (other("peek"), "destructive", "mcp:trusted", false),
            (other("peek"), "destructive", "mcp:trusted2", true),
            (other("peek"), "undeclared", "http:a", true),
            (other("peek"), "additive", "http:a", false),
            (other("peek"), "undeclared", "http", false),
            (other("peek"), "undeclared", "mcp:x", true),
        ] {
            assert_eq!(asks(&policy, call, effect, actor), expected, "{call:?} {effect} {actor}");
        }
    }

    #[test]
    fn unacceptable_rules_are_refused_with_line_and_fix() {
        let rule = "[[approvals.rules]]\nask = true\n";
        for (text, line, key, fix) in [
            ("[approvals]\nrequest_lifetime = \"30s\"", 2, "approvals.request_lifetime", "like \"10m\""),
            ("[approvals]\napproval_lifetime = \"25h\"", 2, "approvals.approval_lifetime", "like \"10m\""),
            ("[approvals]\napproval_lifetime = 10", 2, "approvals.approval_lifetime", "double quotes"),
            ("[approvals]\nelicit = \"yes\"", 2, "approvals.elicit", "true"),
            ("[approvals]\nelicit_timeout = \"2h\"", 2, "approvals.elicit_timeout", "like \"10m\""),
            ("[approvals]\nelicits = true", 2, "approvals.elicits", "did you mean `elicit`?"),
            ("[approvals]\nrule = []", 2, "approvals.rule", "did you mean `rules`?"),
            ("[[approvals.rules]]\nagent = true", 1, "approvals.rules[0].ask", "add ask = true"),
            (&format!("{rule}asks = true"), 3, "approvals.rules[0].asks", "did you mean `ask`?"),
            (&format!("{rule}connector = \"*\""), 3, "approvals.rules[0].connector", "github://acme/*"),
            (&format!("{rule}actor = \"*\""), 3, "approvals.rules[0].actor", "\"mcp:*\""),
            (&format!("{rule}actor = \"a*b\""), 3, "approvals.rules[0].actor", "\"mcp:*\""),
            (
                &format!("{rule}operations = [\"a b\"]"),
                3,
                "approvals.rules[0].operations[0]",
                "leave `operations` out",
            ),
            (
                &format!("{rule}effects = [\"destroys\"]"),
                3,
                "approvals.rules[0].effects[0]",
                "\"undeclared\"",
            ),
        ] {
            let refused = parse(text).unwrap_err();
            let [problem] = refused.problems() else { unreachable!("{text}: {refused}") };
            assert_eq!((problem.line(), problem.key()), (line, key), "{text}");
            assert!(problem.fix().contains(fix), "{text}: {}", problem.fix());
        }
    }
}
