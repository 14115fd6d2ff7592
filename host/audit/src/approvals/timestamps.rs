//! Writes times as whole microseconds since 1970.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

pub(super) fn serialize<S: Serializer>(time: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
    time.as_microsecond().serialize(to)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
    Timestamp::from_microsecond(i64::deserialize(from)?).map_err(de::Error::custom)
}

/// The same for a time that may be missing.
pub(super) mod optional {
    use super::{Deserialize, Deserializer, Serialize, Serializer, Timestamp, de};

    pub(in crate::approvals) fn serialize<S: Serializer>(
        time: &Option<Timestamp>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        time.map(Timestamp::as_microsecond).serialize(to)
    }

    pub(in crate::approvals) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Timestamp>, D::Error> {
        let micros = Option::<i64>::deserialize(from)?;
        micros.map(Timestamp::from_microsecond).transpose().map_err(de::Error::custom)
    }
}
