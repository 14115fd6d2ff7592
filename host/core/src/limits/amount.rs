//! Amounts in text form: `30s`, `64MiB`, `30_000_000_000`; checked, and never zero.

use std::time::Duration;

use super::LimitCeilings;

/// The requested limits; those that are not set are left to the next rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LimitRequest {
    fuel: Option<u64>,
    wall_time: Option<Duration>,
    memory: Option<u64>,
}

/// The error for an amount that cannot be a limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// The text is not an amount, or the amount is zero.
    #[error("{limit}: `{text}` is not an amount; write it as {form}")]
    Malformed {
        /// The limit's name.
        limit: &'static str,
        /// The text.
        text: String,
        /// The expected form.
        form: &'static str,
    },
    /// The amount is above the host's ceiling.
    #[error("{limit}: {asked} is above this host's ceiling of {ceiling}; ask for that or less")]
    AboveCeiling {
        /// The limit's name.
        limit: &'static str,
        /// The requested amount.
        asked: String,
        /// The ceiling.
        ceiling: String,
    },
}

const FUEL_FORM: &str = "a whole number above zero, like 30000000000";
const TIME_FORM: &str = "a whole number above zero with ms, s or m, like 500ms, 30s or 2m";
const MEMORY_FORM: &str = "a whole number above zero with KiB, MiB or GiB, like 64MiB";

impl LimitRequest {
    /// Parses amounts as the manifest and the command line write them: fuel as a number, wall time with `ms`,
    /// `s` or `m`, memory with `KiB`, `MiB` or `GiB`.
    ///
    /// # Errors
    /// Zero, signs, fractions, other units and overflowing amounts are rejected, with the name of the limit.
    pub fn parse(
        fuel: Option<u64>,
        wall_time: Option<&str>,
        memory: Option<&str>,
    ) -> Result<Self, LimitError> {
        if fuel == Some(0) {
            return Err(LimitError::Malformed { limit: "fuel", text: "0".into(), form: FUEL_FORM });
        }
        let wall_time = wall_time.map(parse_wall_time).transpose()?;
        let memory = memory.map(parse_memory).transpose()?;
        Ok(Self { fuel, wall_time, memory })
    }

    /// Returns the requested fuel.
    #[must_use]
    pub fn fuel(&self) -> Option<u64> {
        self.fuel
    }

    /// Returns the requested wall time.
    #[must_use]
    pub fn wall_time(&self) -> Option<Duration> {
        self.wall_time
    }

    /// Returns the requested memory, in bytes.
    #[must_use]
    pub fn memory(&self) -> Option<u64> {
        self.memory
    }

    /// Checks that every amount is within its ceiling.
    ///
    /// # Errors
    /// The first amount above its ceiling, by name.
    pub fn within(&self, ceilings: &LimitCeilings) -> Result<(), LimitError> {
        let above =
            |limit, asked: String, ceiling: String| Err(LimitError::AboveCeiling { limit, asked, ceiling });
        match *self {
            Self { fuel: Some(fuel), .. } if fuel > ceilings.fuel() => {
                above("fuel", fuel.to_string(), ceilings.fuel().to_string())
            }
            Self { wall_time: Some(wall), .. } if wall > ceilings.wall_time() => {
                above("wall_time", format!("{wall:?}"), format!("{:?}", ceilings.wall_time()))
            }
            Self { memory: Some(memory), .. } if memory > ceilings.memory() => {
                above("memory", format!("{memory} bytes"), format!("{} bytes", ceilings.memory()))
            }
            _ => Ok(()),
        }
    }
}

/// Parses a time above zero as documents write it: a whole number with `ms`, `s`, `m` or `h`.
pub fn parse_time(text: &str) -> Option<Duration> {
    let units = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];
    parse_amount(text, &units).map(Duration::from_millis)
}

fn parse_wall_time(text: &str) -> Result<Duration, LimitError> {
    let units = [("ms", 1), ("s", 1_000), ("m", 60_000)];
    parse_amount(text, &units).map(Duration::from_millis).ok_or_else(|| LimitError::Malformed {
        limit: "wall_time",
        text: text.into(),
        form: TIME_FORM,
    })
}

fn parse_memory(text: &str) -> Result<u64, LimitError> {
    let units = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
    parse_amount(text, &units).ok_or_else(|| LimitError::Malformed {
        limit: "memory",
        text: text.into(),
        form: MEMORY_FORM,
    })
}

fn parse_amount(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text.strip_prefix(digits)?;
    let factor = units.iter().find(|(name, _)| *name == unit)?.1;
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(factor).filter(|amount| *amount > 0)
}

/// The sources of a limit, highest rank first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitSource {
    /// The caller.
    Caller,
    /// The action that the call is a step of.
    Action,
    /// The connector's manifest.
    Manifest,
}

impl LimitSource {
    /// Returns the name of the source in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Caller => "the caller",
            Self::Action => "the action",
            Self::Manifest => "the manifest",
        }
    }

    /// Returns the fix for an invalid limit of this source.
    #[must_use]
    pub const fn fix(self) -> &'static str {
        match self {
            Self::Caller => "Ask for less in the call (--fuel, --wall-time, --memory on the command line).",
            Self::Action => "Lower the limit in the action.",
            Self::Manifest => "Lower the limit in the [limits] table of connector.toml.",
        }
    }
}

/// A request above its ceiling.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error} (asked for by {})", .asked_by.name())]
pub struct RefusedLimit {
    /// The source of the request.
    pub asked_by: LimitSource,
    /// The problem.
    pub error: LimitError,
}

#[cfg(test)]
mod tests {

    use super::LimitRequest;

    #[test]
    fn amounts_are_positive_integers_with_a_unit() {
        for good in ["1ms", "30s", "5m"] {
            assert!(LimitRequest::parse(None, Some(good), None).is_ok(), "{good}");
        }
        for bad in ["", "0s", "30", "-1s", "1.5s", "1 s", "s", "1h", "18446744073709551615m", "+1s", "１s"] {
            assert!(LimitRequest::parse(None, Some(bad), None).is_err(), "{bad}");
        }
        for bad in ["0MiB", "64", "64MB", "64mib", "99999999999999999999GiB", "17179869184GiB"] {
            assert!(LimitRequest::parse(None, None, Some(bad)).is_err(), "{bad}");
        }
        assert!(LimitRequest::parse(Some(0), None, None).is_err());
    }
}
