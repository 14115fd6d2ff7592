//! The report of a contract: findings, headroom, and a badge.

use cofferdam_core::limits::Usage;
use serde::Serialize;

/// The report of a connector's contract.
#[derive(Debug, Clone, Serialize)]
pub struct ContractReport {
    /// The connector, as `name@version`.
    pub connector: String,
    /// True if nothing was found.
    pub kept: bool,
    /// The number of calls that were made.
    pub runs: usize,
    /// The operations, in the component's order.
    pub operations: Vec<OperationReport>,
    /// The contradictions of the manifest or the taxonomy.
    pub findings: Vec<Finding>,
    /// The operations that are not proven, and why.
    pub notes: Vec<String>,
    /// The limits that the manifest could ask for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggested_limits: Option<SuggestedLimits>,
    /// A badge for a README, in Markdown.
    pub badge: String,
}

/// The report of one operation.
#[derive(Debug, Clone, Serialize)]
pub struct OperationReport {
    /// Its name.
    pub name: String,
    /// The declaration of its idempotency: `declared`, `undeclared` or `not_idempotent`.
    pub idempotency: &'static str,
    /// The declared effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<&'static str>,
    /// The scenarios in which it was called and passed.
    pub scenarios: usize,
    /// The calls of it under the matrix.
    pub runs: usize,
    /// The number of findings.
    pub findings: usize,
    /// The most that it used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headroom: Option<Headroom>,
}

/// The most that an operation used in any run, beside its limits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Headroom {
    /// Fuel.
    pub fuel: u64,
    /// Its limit.
    pub fuel_limit: u64,
    /// Bytes of memory.
    pub memory: u64,
    /// Its limit.
    pub memory_limit: u64,
    /// Milliseconds, without faults and waits, against a service that answers at once.
    pub wall_ms: u64,
    /// Its limit.
    pub wall_limit_ms: u64,
    /// Bytes of response bodies.
    pub response_bytes: u64,
    /// Requests.
    pub requests: u64,
}

impl Headroom {
    /// Adds what an attempt used; its time only if it met no fault.
    pub(super) fn add(&mut self, usage: &Usage, is_undisturbed: bool) {
        self.fuel = self.fuel.max(usage.fuel);
        self.memory = self.memory.max(usage.memory);
        self.response_bytes = self.response_bytes.max(usage.bytes_in);
        self.requests = self.requests.max(usage.requests);
        if is_undisturbed {
            self.wall_ms = self.wall_ms.max(u64::try_from(usage.wall_time.as_millis()).unwrap_or(u64::MAX));
            self.fuel_limit = usage.limits.fuel();
            self.memory_limit = usage.limits.memory();
            self.wall_limit_ms = usage.wall_limit_ms();
        }
    }
}

/// The limits that a manifest could ask for: four times the fuel and twice the memory of the worst run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SuggestedLimits {
    /// As `fuel` under `[limits]`.
    pub fuel: u64,
    /// As `memory` under `[limits]`.
    pub memory: String,
}

impl SuggestedLimits {
    /// Returns the suggestion for these operations, if one of them was run.
    pub(super) fn of(operations: &[OperationReport]) -> Option<Self> {
        let headrooms = || operations.iter().filter_map(|operation| operation.headroom.as_ref());
        let fuel = headrooms().map(|headroom| headroom.fuel).max().filter(|fuel| *fuel > 0)?;
        let memory = headrooms().map(|headroom| headroom.memory).max()?;
        let mebibytes = memory.saturating_mul(2).div_ceil(1 << 20).max(1);
        Some(Self { fuel: rounded_up(fuel.saturating_mul(4)), memory: format!("{mebibytes}MiB") })
    }
}

/// Rounds a number up to two digits and zeroes.
fn rounded_up(number: u64) -> u64 {
    let digits = number.checked_ilog10().unwrap_or(0);
    let unit = 10_u64.checked_pow(digits.saturating_sub(1)).unwrap_or(1);
    number.div_ceil(unit).saturating_mul(unit)
}

/// A contradiction between a connector and its declarations, or between a fault and what the caller sees of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The rule that is broken.
    pub rule: ContractRule,
    /// The operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// The observation.
    pub message: String,
    /// The faults at which it was.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<&'static str>,
    /// The line of the manifest, as `connector.toml:LINE`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manifest: Option<String>,
    /// The scenario, as `FILE:LINE`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scenario: Option<String>,
    /// The suggested fix.
    pub fix: String,
}

macro_rules! rules {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal;)+) => {
        /// A rule of the contract.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        #[serde(rename_all = "snake_case")]
        pub enum ContractRule {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl ContractRule {
            /// Every rule.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Returns the stable name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// Returns the rule in a sentence.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$variant => concat!($($doc),+).trim_ascii_start(),)+ }
            }
        }
    };
}

rules! {
    /// An operation that is declared `idempotent` sends the call's key with every request that is not idempotent by its method, or a scenario shows that the request is as good twice as once.
    UnkeyedWrite = "unkeyed_write";
    /// A repeated attempt sends the same requests as the first one.
    ChangedRequest = "changed_request";
    /// One key belongs to one request of a call.
    SharedKey = "shared_key";
    /// A service that honours keys has one effect, however often the call is attempted.
    SecondEffect = "second_effect";
    /// An operation that may be repeated reaches its value after a fault that passes.
    NotRecovered = "not_recovered";
    /// A `read_only` operation sends only GET, HEAD and OPTIONS.
    ReadOnlyWrites = "read_only_writes";
    /// A value hides no failed request, unless the connector says so (`log::suppressed`) or the value is partial.
    Swallowed = "swallowed";
    /// A fault, a denial and a limit reach the caller as the class that they have.
    WrongClass = "wrong_class";
    /// A connector reports failures and does not crash.
    Crash = "crash";
    /// No failure repeats what a service answered.
    PayloadInFailure = "payload_in_failure";
    /// No failure has a secret in it, which the host would not let pass.
    SecretInFailure = "secret_in_failure";
    /// Every failure has a message.
    EmptyMessage = "empty_message";
    /// Each grant of the manifest is needed by some scenario.
    UnusedGrant = "unused_grant";
}

/// Returns the badge of a contract, in Markdown: how many of its operations were proven.
pub(super) fn badge(kept: bool, proven: usize, operations: usize) -> String {
    let (text, colour) = match (kept, proven) {
        (true, 0) => ("unproven".to_owned(), "lightgrey"),
        (true, _) => (format!("{proven}%2F{operations}_operations"), "brightgreen"),
        (false, _) => ("broken".to_owned(), "red"),
    };
    format!("![cofferdam contract](https://img.shields.io/badge/cofferdam_contract-{text}-{colour})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggestions_are_round() {
        for (number, rounded) in [(1, 1), (99, 99), (101, 110), (1_234_567, 1_300_000), (0, 0)] {
            assert_eq!(rounded_up(number), rounded);
        }
    }

    #[test]
    fn a_badge_says_how_many_operations_are_proven() {
        let of = |kept| badge(kept, 3, 4);
        assert!(of(true).ends_with("/cofferdam_contract-3%2F4_operations-brightgreen)"), "{}", of(true));
        assert!(of(false).ends_with("/cofferdam_contract-broken-red)"), "{}", of(false));
        assert!(badge(true, 0, 4).ends_with("/cofferdam_contract-unproven-lightgrey)"));
    }

    #[test]
    fn the_guide_lists_the_rules_of_the_reference() {
        let rows: Vec<_> = ContractRule::ALL
            .iter()
            .map(|rule| format!("| `{}` | {} |", rule.name(), rule.meaning()))
            .collect();
        let text = format!("| rule | kept if |\n|---|---|\n{}", rows.join("\n"));
        let path = "docs/guides/test-a-connector.md";
        cofferdam_test_support::golden::assert_committed_part(path, "rules", &text);
    }

    #[test]
    fn rules_are_named_as_they_are_serialized() {
        for rule in ContractRule::ALL {
            assert_eq!(serde_json::to_value(rule).ok(), Some(rule.name().into()));
            assert!(rule.meaning().ends_with('.'));
        }
    }
}
