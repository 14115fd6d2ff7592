//! Amounts, as people read them: in a terminal and on a page.

/// Returns bytes in the largest unit that they fill, with one digit behind the point: `1.5 KiB`.
#[must_use]
pub fn bytes(amount: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.iter().find(|(_, size)| amount >= *size) {
        Some((unit, size)) if amount.is_multiple_of(*size) => format!("{} {unit}", amount / size),
        Some((unit, size)) => {
            let tenths = u128::from(amount) * 10 / u128::from(*size);
            format!("{}.{} {unit}", tenths / 10, tenths % 10)
        }
        None => format!("{amount} bytes"),
    }
}

/// Returns a duration in microseconds in the largest unit that it fills: `1.5 ms`.
#[must_use]
pub fn duration(micros: u64) -> String {
    let tenths = |of: u64, unit: &str| format!("{}.{} {unit}", micros / of, micros % of * 10 / of);
    match micros {
        0..1_000 => format!("{micros} us"),
        1_000..1_000_000 => tenths(1_000, "ms"),
        1_000_000..120_000_000 => tenths(1_000_000, "s"),
        120_000_000..7_200_000_000 => format!("{} min", micros / 60_000_000),
        _ => format!("{} h", micros / 3_600_000_000),
    }
}

/// Returns a time in seconds in the largest unit of which it is a whole number: `90 days`.
#[must_use]
pub fn span(seconds: u64) -> String {
    let units = [(86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")];
    let unit = units.into_iter().find(|(length, _)| seconds.is_multiple_of(*length));
    let (length, name) = unit.unwrap_or((1, "second"));
    match seconds / length {
        1 => format!("1 {name}"),
        amount => format!("{amount} {name}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_the_largest_unit_that_they_fill() {
        let shown = [0, 1_023, 1_024, 1_536, 67_108_864, u64::MAX].map(bytes);
        assert_eq!(shown, ["0 bytes", "1023 bytes", "1 KiB", "1.5 KiB", "64 MiB", "17179869183.9 GiB"]);
        let shown = [0, 999, 1_500, 999_999, 61_000_000, 180_000_000, 9_000_000_000].map(duration);
        assert_eq!(shown, ["0 us", "999 us", "1.5 ms", "999.9 ms", "61.0 s", "3 min", "2 h"]);
    }

    #[test]
    fn spans_have_the_unit_of_which_they_are_whole() {
        assert_eq!([1, 60, 90, 7_776_000].map(span), ["1 second", "1 minute", "90 seconds", "90 days"]);
    }
}
