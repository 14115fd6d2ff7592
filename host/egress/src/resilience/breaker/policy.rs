//! The parameters of a circuit: when it opens, for how long, and the causes that open it permanently. No
//! state.

use std::num::NonZeroU32;
use std::time::Duration;

use cofferdam_core::document::{DocumentTable, InvalidValue, SpannedItem, quoted};
use cofferdam_core::failure::FailureCause;
use cofferdam_core::limits::parse_time;

use super::circuit::MAX_FAILURES;

/// The longest time that an upstream service, or failed probes, can keep a circuit open.
const LONGEST: Duration = Duration::from_secs(5 * 60);

/// The parameters of a circuit. Complete and checked: every value is a working breaker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakerPolicy {
    pub(super) threshold: NonZeroU32,
    /// The window in which failures are counted; `None` to count consecutive failures over any time.
    pub(super) window: Option<Duration>,
    /// The cooldown after 429 without `Retry-After`.
    pub(super) rate_limited: Duration,
    /// The cooldown after 5xx.
    pub(super) unavailable: Duration,
    /// The cooldown after 408 and 425.
    pub(super) timeout: Duration,
    /// The cooldown after a request without a response.
    pub(super) network: Duration,
    /// The lower and upper bound of `Retry-After`.
    pub(super) retry_after: (Duration, Duration),
    /// The time before the end of a longer cooldown at which one request is let through.
    pub(super) probe_lead: Duration,
    /// The percentage by which a failed probe extends the previous cooldown; 0 restarts with the normal one.
    pub(super) extension: u32,
    pub(super) permanent: Vec<FailureCause>,
}

/// The meaning of an observation for a breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureSignal {
    /// The host responded: a good response, or one that tells nothing about the host.
    Good,
    /// The host has a problem; the cooldown.
    Trouble(Duration),
    /// A failure that does not go away without intervention.
    Permanent,
}

impl BreakerPolicy {
    /// Opens at the first failure: after 429 for the requested time (5 minutes at most), or for 60 s if there
    /// is none; for 60 s after 5xx, and for 30 s after 408, 425 and requests without a response. One request
    /// is let through 30 s before a longer cooldown ends. 401 and 402 open it permanently.
    #[must_use]
    pub fn at_once() -> Self {
        let (half, whole) = (Duration::from_secs(30), Duration::from_secs(60));
        Self {
            threshold: NonZeroU32::MIN,
            window: None,
            rate_limited: whole,
            unavailable: whole,
            timeout: half,
            network: half,
            retry_after: (Duration::ZERO, LONGEST),
            probe_lead: half,
            extension: 0,
            permanent: vec![FailureCause::Auth, FailureCause::PaymentRequired],
        }
    }

    /// Opens at the third failure within a minute, for 2 minutes, or for 30 s after requests without a
    /// response; `Retry-After` is used within 1 to 5 minutes. A failed probe extends the cooldown by half.
    #[must_use]
    pub fn windowed() -> Self {
        let cooldown = Duration::from_secs(120);
        Self {
            threshold: NonZeroU32::MIN.saturating_add(2),
            window: Some(Duration::from_secs(60)),
            rate_limited: cooldown,
            unavailable: cooldown,
            timeout: cooldown,
            retry_after: (Duration::from_secs(60), LONGEST),
            extension: 50,
            ..Self::at_once()
        }
    }

    /// Returns the number of failures that open a circuit.
    #[must_use]
    pub fn threshold(&self) -> u32 {
        self.threshold.get()
    }

    /// Returns the window in which failures are counted; `None` if they only have to be consecutive.
    #[must_use]
    pub fn window(&self) -> Option<Duration> {
        self.window
    }

    /// Returns whether this cause opens a circuit permanently.
    #[must_use]
    pub fn is_permanent(&self, cause: FailureCause) -> bool {
        self.permanent.contains(&cause)
    }

    /// Returns the cooldown after `cause`; `None` if it does not open a circuit, or opens it permanently.
    #[must_use]
    pub fn cooldown(&self, cause: FailureCause, retry_after: Option<Duration>) -> Option<Duration> {
        match self.signal(Some(cause), retry_after) {
            FailureSignal::Trouble(cooldown) => Some(cooldown),
            FailureSignal::Good | FailureSignal::Permanent => None,
        }
    }

    /// Returns the time after which one request is let through, for a circuit with this `cooldown`.
    #[must_use]
    pub fn probe_after(&self, cooldown: Duration) -> Duration {
        if cooldown > self.probe_lead { cooldown.saturating_sub(self.probe_lead) } else { cooldown }
    }

    pub(super) fn signal(&self, cause: Option<FailureCause>, retry_after: Option<Duration>) -> FailureSignal {
        let Some(cause) = cause else { return FailureSignal::Good };
        if self.is_permanent(cause) {
            return FailureSignal::Permanent;
        }
        let own = match cause {
            FailureCause::RateLimited => self.rate_limited,
            FailureCause::Unavailable => self.unavailable,
            FailureCause::Timeout => self.timeout,
            FailureCause::Network => self.network,
            _ => return FailureSignal::Good,
        };
        let (least, most) = self.retry_after;
        FailureSignal::Trouble(retry_after.map_or(own, |asked| asked.max(least).min(most)))
    }

    /// Returns the cooldown after a failed probe; `own` is the one of its cause, `before` the previous one.
    pub(super) fn extended(&self, own: Duration, before: Duration) -> Duration {
        if self.extension == 0 {
            return own;
        }
        let percent = self.extension.saturating_add(100);
        let longer = before.checked_mul(percent).map_or(LONGEST, |product| product / 100);
        own.max(longer.min(LONGEST))
    }
}

/// The longest window and the longest cooldown: after that the operator should have intervened.
const LONGEST_TIME: Duration = Duration::from_secs(24 * 60 * 60);

/// The causes that may open a circuit permanently. Transient ones may not.
const PERMANENT_CAUSES: [FailureCause; 3] =
    [FailureCause::Auth, FailureCause::PaymentRequired, FailureCause::NotFound];

impl BreakerPolicy {
    /// Reads a table of `config.toml`; returns `None` if it has `enabled = false`, or if a problem was
    /// reported.
    pub(crate) fn read(table: &DocumentTable<'_>) -> Option<Self> {
        let keys = ["enabled", "policy", "threshold", "window", "cooldown", "probe_lead", "open_for_good"];
        table.reject_unknown_keys(&keys);
        let base = match table.text("policy") {
            None => Some(Self::at_once()),
            Some(name) => name.parse(|name| built_in(name)),
        };
        // All keys are read even after a problem, so that one run reports all problems.
        let threshold =
            table.integer("threshold").and_then(|number| number.parse(|number| threshold(*number)));
        let window = table.text("window").and_then(window);
        let cooldown = table.text("cooldown").and_then(time);
        let probe_lead = table.text("probe_lead").and_then(time);
        let for_good = table.has("open_for_good").then(|| {
            let words = table.texts("open_for_good");
            words.iter().filter_map(|word| word.parse(|word| cause(word))).collect::<Vec<_>>()
        });
        let enabled = table.flag("enabled").unwrap_or(true);
        let mut policy = base?;
        policy.threshold = threshold.unwrap_or(policy.threshold);
        policy.window = window.or(policy.window);
        if let Some(cooldown) = cooldown {
            policy.rate_limited = cooldown;
            policy.unavailable = cooldown;
            policy.timeout = cooldown;
            policy.network = cooldown;
        }
        policy.probe_lead = probe_lead.unwrap_or(policy.probe_lead);
        policy.permanent = for_good.unwrap_or(policy.permanent);
        enabled.then_some(policy)
    }
}

/// Returns a built-in breaker by its configuration name.
fn built_in(name: &str) -> Result<BreakerPolicy, InvalidValue> {
    match name {
        "at-once" => Ok(BreakerPolicy::at_once()),
        "windowed" => Ok(BreakerPolicy::windowed()),
        _ => {
            let fix = "write \"at-once\" (opens at the first failure) or \"windowed\" (at the third within a minute)";
            Err(InvalidValue::new(format!("{} is no breaker", quoted(name)), fix))
        }
    }
}

fn threshold(number: u64) -> Result<NonZeroU32, InvalidValue> {
    let most = u32::try_from(MAX_FAILURES).unwrap_or(u32::MAX);
    let number = u32::try_from(number).ok().filter(|number| *number <= most).and_then(NonZeroU32::new);
    number.ok_or_else(|| {
        InvalidValue::new(
            format!("not a number of failures from 1 to {most}"),
            "write how many open the circuit",
        )
    })
}

fn time(text: SpannedItem<'_, &str>) -> Option<Duration> {
    text.parse(|text| {
        parse_time(text).filter(|time| *time <= LONGEST_TIME).ok_or_else(|| {
            let fix = "write it like \"90s\", \"5m\" or \"2h\"";
            InvalidValue::new(format!("{} is not a time of a day at most", quoted(text)), fix)
        })
    })
}

/// Reads the window. A window of zero would hold no failure, and the circuit would never open.
fn window(text: SpannedItem<'_, &str>) -> Option<Duration> {
    let number = text.value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    if number.is_empty() || number.bytes().any(|digit| digit != b'0') {
        return time(text);
    }
    text.parse(|text| {
        let fix = "leave `window` out where failures only have to follow each other, however long that takes";
        Err(InvalidValue::new(
            format!("in {} no failure has room: the circuit would never open", quoted(text)),
            fix,
        ))
    })
}

fn cause(word: &str) -> Result<FailureCause, InvalidValue> {
    PERMANENT_CAUSES.into_iter().find(|cause| cause.name() == word).ok_or_else(|| {
        let all: Vec<_> = PERMANENT_CAUSES.iter().map(|cause| cause.name()).collect();
        let passes = FailureCause::ALL.iter().any(|cause| cause.name() == word);
        let message = match passes {
            true => format!("{} may pass by itself, and opens a circuit for a while only", quoted(word)),
            false => format!("{} is nothing that a host sees", quoted(word)),
        };
        InvalidValue::new(message, format!("name some of {}, or none", all.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use std::time::Duration;

    use cofferdam_core::document::{DocumentError, read};
    use cofferdam_core::failure::FailureCause;

    use super::BreakerPolicy;

    fn policy(text: &str) -> Result<Option<BreakerPolicy>, DocumentError> {
        read("config.toml", &format!("[breaker]\n{text}"), |root| {
            root.table("breaker").map(|table| BreakerPolicy::read(&table))
        })
    }

    #[test]
    fn a_breaker_overrides_a_built_in_one() {
        assert_eq!(policy("").unwrap(), Some(BreakerPolicy::at_once()));
        assert_eq!(policy("policy = \"windowed\"").unwrap(), Some(BreakerPolicy::windowed()));
        assert_eq!(policy("enabled = false\npolicy = \"windowed\"").unwrap(), None);
        let own = "threshold = 5\nwindow = \"2m\"\ncooldown = \"10m\"\nprobe_lead = \"1m\"\n\
                   open_for_good = [\"auth\", \"not_found\"]";
        let own = policy(own).unwrap().unwrap();
        assert_eq!((own.threshold(), own.window()), (5, Some(Duration::from_secs(120))));
        for cause in [
            FailureCause::Network,
            FailureCause::Timeout,
            FailureCause::RateLimited,
            FailureCause::Unavailable,
        ] {
            assert_eq!(own.cooldown(cause, None), Some(Duration::from_secs(600)), "{cause:?}");
        }
        assert_eq!(own.probe_after(Duration::from_secs(600)), Duration::from_secs(540));
        assert!(own.is_permanent(FailureCause::NotFound) && !own.is_permanent(FailureCause::PaymentRequired));
        let hours = policy("window = \"24h\"\ncooldown = \"2h\"").unwrap().unwrap();
        assert_eq!(hours.window(), Some(Duration::from_secs(86_400)));
        assert_eq!(hours.cooldown(FailureCause::Network, None), Some(Duration::from_secs(7_200)));
        let none = policy("open_for_good = []").unwrap().unwrap();
        assert!(!none.is_permanent(FailureCause::Auth));
    }

    #[test]
    fn invalid_settings_are_refused_at_their_place() {
        for (text, place, words) in [
            ("treshold = 3", "config.toml:2:1", "did you mean `threshold`?"),
            ("policy = \"fast\"", "config.toml:2:10", "\"fast\" is no breaker"),
            ("threshold = 0", "config.toml:2:13", "from 1 to 1000"),
            ("threshold = 1001", "config.toml:2:13", "from 1 to 1000"),
            ("threshold = \"3\"", "config.toml:2:13", "this is a string"),
            ("window = \"0s\"", "config.toml:2:10", "leave `window` out"),
            ("window = \"soon\"", "config.toml:2:10", "not a time"),
            ("cooldown = \"0s\"", "config.toml:2:12", "not a time"),
            ("cooldown = \"25h\"", "config.toml:2:12", "a day at most"),
            ("window = 60", "config.toml:2:10", "this is an integer"),
            ("cooldown = \"1441m\"", "config.toml:2:12", "a day at most"),
            ("probe_lead = \"soon\"", "config.toml:2:14", "not a time"),
            ("open_for_good = [\"unavailable\"]", "config.toml:2:18", "may pass by itself"),
            (
                "open_for_good = [\"teapot\"]",
                "config.toml:2:18",
                "name some of auth, payment_required, not_found",
            ),
            ("enabled = 1", "config.toml:2:11", "this is an integer"),
        ] {
            let error = policy(text).unwrap_err().to_string();
            assert!(error.contains(place) && error.contains(words), "{text}: {error}");
        }
    }
}
