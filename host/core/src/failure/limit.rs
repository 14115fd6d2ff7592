//! The constructor of `resource_limit_exceeded`, and the closed list of limits it can name.

use std::time::Duration;

use super::class::FailureCause;
use super::class::{FailureBoundary, FailureClass};
use super::context::FailureContext;
use super::envelope::Failure;

macro_rules! limits {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal, $unit:literal;)+) => {
        /// A limit of a call (`details.limit`).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum LimitKind {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl LimitKind {
            /// Every limit.
            pub const ALL: &'static [LimitKind] = &[$(LimitKind::$variant),+];

            /// Returns the stable name in `details.limit`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(LimitKind::$variant => $name,)+ }
            }

            /// Returns the unit of `configured` and `used`.
            #[must_use]
            pub const fn unit(self) -> &'static str {
                match self { $(LimitKind::$variant => $unit,)+ }
            }

            /// Returns the meaning of the limit in one sentence.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self { $(LimitKind::$variant => concat!($($doc),+).trim_ascii_start(),)+ }
            }
        }
    };
}

limits! {
    /// Instructions, as wasmtime counts them: the same call uses the same fuel.
    Fuel = "fuel", "fuel";
    /// Time from the permit to run until the outcome, waits included.
    WallTime = "wall_time", "ms";
    /// Linear memories, tables and what the host holds for the guest, together.
    Memory = "memory", "bytes";
    /// The stack of WebAssembly frames.
    Stack = "stack", "bytes";
    /// Tables of one instance tree.
    Tables = "tables", "tables";
    /// Linear memories of one instance tree.
    Memories = "memories", "memories";
    /// Core instances of one component.
    Instances = "instances", "instances";
    /// Handles that a guest holds on host resources.
    Handles = "handles", "handles";
    /// Bytes that one call into the host, or the result, hands over.
    HostTransfer = "host_transfer", "bytes";
    /// Arguments or result as JSON.
    Payload = "payload", "bytes";
    /// Outgoing requests of one attempt.
    Requests = "requests", "requests";
    /// Bytes of one request's body.
    RequestBody = "request_body", "bytes";
    /// Bytes of one response's body.
    ResponseBody = "response_body", "bytes";
    /// Bytes of one request's header fields.
    RequestHeaders = "request_headers", "bytes";
    /// Bytes of one response's header fields.
    ResponseHeaders = "response_headers", "bytes";
    /// Header fields of one response.
    ResponseFields = "response_fields", "fields";
    /// Requests to one host in a period that the operator set.
    Rate = "rate", "requests";
}

/// The roles that can raise a limit (`details.raised_by`), and the settings for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitOwner {
    /// `caller`, `action`, `connector` and `operator`; empty if the limit is the same on every host.
    pub roles: &'static [&'static str],
    /// The options and keys that raise it, or an alternative if there are none, in a sentence.
    pub advice: &'static str,
}

impl LimitKind {
    /// Returns the code of the failure when the limit is exceeded. `rate` alone would be mistaken for the service's own rate
    /// limit.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Rate => "host_rate_limit",
            limit => limit.name(),
        }
    }

    /// Returns the roles that can raise the limit, and the setting. `of` is the exceeded deadline, if time is
    /// the limit.
    #[must_use]
    pub const fn owner(self, of: DeadlineScope) -> LimitOwner {
        const CALLER: &[&str] = &["caller", "connector"];
        let (roles, advice): (&'static [&'static str], _) = match (self, of) {
            (Self::Fuel, _) => (
                CALLER,
                "The caller can raise it (`--fuel`), and so can the connector's author (`fuel` under [limits] in \
                 connector.toml), up to the host's ceiling.",
            ),
            (Self::Memory, _) => (
                CALLER,
                "The caller can raise it (`--memory`), and so can the connector's author (`memory` under [limits] in \
                 connector.toml), up to the host's ceiling.",
            ),
            (Self::WallTime, DeadlineScope::Call) => (
                CALLER,
                "The caller can raise it (`--wall-time`), and so can the connector's author (`wall_time` under \
                 [limits] in connector.toml), up to the host's ceiling.",
            ),
            (Self::WallTime, DeadlineScope::Attempt) => (
                &["caller", "operator"],
                "The caller can raise it (`--attempt-timeout`), and so can the operator (`attempt_timeout` of the \
                 retry profile in config.toml), up to the time of the call.",
            ),
            // A run has no option for it: `--wall-time` is that of the whole action.
            (Self::WallTime, DeadlineScope::Step) => (
                &["action"],
                "The action's author can raise it (`timeout` of the step in the action's file), up to the host's \
                 ceiling.",
            ),
            (Self::WallTime, DeadlineScope::Action) => (
                &["caller", "action"],
                "The caller can raise it (`--wall-time`), and so can the action's author (`timeout` in the action's \
                 file).",
            ),
            (Self::Rate, _) => {
                (&["operator"], "Only the operator can raise it ([rate_limit] in config.toml).")
            }
            (Self::Payload, _) => (
                &[],
                "It is the same on every host, and nobody can raise it: the caller has to ask for less in one call \
                 (pages, or a part).",
            ),
            (Self::ResponseBody | Self::ResponseHeaders | Self::ResponseFields, _) => (
                &[],
                "It is the same on every host, and nobody can raise it: the caller has to ask for less, or the \
                 connector's author has to have the service send less.",
            ),
            _ => (
                &[],
                "It is the same on every host, and nobody can raise it: the connector's author has to have it use \
                 less in one call.",
            ),
        };
        LimitOwner { roles, advice }
    }
}

/// The scope of the exceeded deadline (`details.of`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadlineScope {
    /// The call, with all its attempts and waits.
    Call,
    /// One attempt, whose time is shorter.
    Attempt,
    /// The call of a step, with all its attempts and waits.
    Step,
    /// The action that the call is a part of.
    Action,
}

impl DeadlineScope {
    /// Returns the stable name in `details.of`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Attempt => "attempt",
            Self::Step => "step",
            Self::Action => "action",
        }
    }
}

/// An exceeded limit, with the allowed and the used or requested amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitHit {
    /// The limit.
    pub limit: LimitKind,
    /// The amount this call was allowed, in the limit's unit.
    pub configured: u64,
    /// The amount used, or requested in the refused step. If only the refusal is known, the minimum: one more
    /// than was allowed.
    pub used: u64,
    /// The time after which a retry helps, if waiting helps.
    pub retry_after: Option<Duration>,
    /// The scope of the deadline, if time is the limit.
    pub scope: DeadlineScope,
    /// The period for which the amount was allowed, if there is one.
    pub period: Option<Duration>,
}

impl LimitHit {
    /// Creates a hit of a limit that was exceeded by an unknown amount.
    pub fn at_least_one_over(limit: LimitKind, configured: u64) -> Self {
        Self::new(limit, configured, configured.saturating_add(1))
    }

    /// Creates a hit of a limit with the used amount.
    #[must_use]
    pub fn new(limit: LimitKind, configured: u64, used: u64) -> Self {
        Self { limit, configured, used, retry_after: None, scope: DeadlineScope::Call, period: None }
    }

    /// Sets the scope of the deadline.
    #[must_use]
    pub fn with_scope(mut self, of: DeadlineScope) -> Self {
        self.scope = of;
        self
    }

    /// Sets the period for which the amount is allowed.
    #[must_use]
    pub fn with_period(mut self, period: Duration) -> Self {
        self.period = Some(period);
        self
    }

    /// Sets the time after which a retry helps.
    #[must_use]
    pub fn with_retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }
}

impl Failure {
    /// The call hit a limit.
    pub(crate) fn resource_limit_exceeded(context: &FailureContext, hit: LimitHit) -> Self {
        let LimitHit { limit, configured, used, retry_after, scope: of, period: per } = hit;
        let mut details = context.details(limit.code());
        details.insert("limit".into(), limit.name().into());
        details.insert("configured".into(), configured.into());
        details.insert("used".into(), used.into());
        details.insert("unit".into(), limit.unit().into());
        if limit == LimitKind::WallTime {
            details.insert("of".into(), of.name().into());
        }
        if let Some(period) = per {
            details.insert("period_ms".into(), millis(period).into());
        }
        if let Some(wait) = retry_after {
            details.insert("retry_after_ms".into(), millis(wait).into());
        }
        let owner = limit.owner(of);
        details.insert("raised_by".into(), owner.roles.into());
        let message = match (retry_after, limit) {
            (Some(wait), LimitKind::Rate) => format!(
                "The operator's rate limit of {configured} request{}{} is used up. The next may be sent in {} s, which \
                 is longer than the call has. {}",
                if configured == 1 { "" } else { "s" },
                per.map(|period| format!(" in {}", shown(millis(period), "ms"))).unwrap_or_default(),
                wait.as_millis().div_ceil(1000),
                owner.advice
            ),
            _ => format!(
                "The {} exceeded its {} limit of {}, and was ended. {}",
                of.name(),
                limit.name(),
                shown(configured, limit.unit()),
                owner.advice
            ),
        };
        let cause = if limit == LimitKind::WallTime { FailureCause::WallTime } else { FailureCause::Other };
        Self::new(
            context,
            FailureClass::ResourceLimitExceeded,
            FailureBoundary::Sandbox,
            false,
            message,
            details,
        )
        .with_cause(cause, None)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Formats an amount for people.
fn shown(amount: u64, unit: &str) -> String {
    const KIB: u64 = 1024;
    const MIB: u64 = 1024 * KIB;
    match unit {
        "bytes" if amount > 0 && amount.is_multiple_of(MIB) => format!("{} MiB", amount / MIB),
        "bytes" if amount > 0 && amount.is_multiple_of(KIB) => format!("{} KiB", amount / KIB),
        "ms" if amount > 0 && amount.is_multiple_of(3_600_000) => format!("{} h", amount / 3_600_000),
        "ms" if amount > 0 && amount.is_multiple_of(1000) => format!("{} s", amount / 1000),
        "bytes" | "ms" => format!("{amount} {unit}"),
        // The limit's own name contains the unit.
        _ => amount.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::{DeadlineScope, LimitHit, LimitKind, shown};
    use crate::failure::{AuditId, Failure, FailureContext};

    #[test]
    fn every_limit_names_its_owner() {
        for limit in LimitKind::ALL {
            for of in
                [DeadlineScope::Call, DeadlineScope::Attempt, DeadlineScope::Step, DeadlineScope::Action]
            {
                let owner = limit.owner(of);
                let hit = LimitHit::new(*limit, 1, 2).with_scope(of);
                let failure = Failure::resource_limit_exceeded(&FailureContext::new(AuditId::mint()), hit);
                assert!(failure.message().ends_with(owner.advice), "{failure}");
                assert_eq!(failure.details().get("raised_by"), Some(&owner.roles.into()), "{failure}");
                for (role, word) in [
                    ("caller", "The caller can raise it (`--"),
                    ("connector", "in connector.toml"),
                    ("operator", "in config.toml"),
                    ("action", "in the action's file"),
                ] {
                    let (named, said) = (owner.roles.contains(&role), owner.advice.contains(word));
                    assert_eq!(named, said, "{limit:?}: {role}: {}", owner.advice);
                }
                assert_eq!(owner.roles.is_empty(), owner.advice.contains("nobody can raise it"), "{limit:?}");
            }
        }
    }

    #[test]
    fn amounts_are_formatted_readably() {
        let shown = [
            (64 << 20, "bytes"),
            (512 << 10, "bytes"),
            (1_001, "bytes"),
            (30_000, "ms"),
            (300, "ms"),
            (64, "requests"),
        ]
        .map(|(amount, unit)| shown(amount, unit));
        assert_eq!(shown, ["64 MiB", "512 KiB", "1001 bytes", "30 s", "300 ms", "64"]);
    }
}
