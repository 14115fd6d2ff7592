//! The serialized circuit: JSON of a known version, with its connector and host.

use std::time::Duration;

use cofferdam_core::failure::FailureCause;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::circuit::{Circuit, CircuitTrip, PermanentTrip, SHUT, TripCause};

/// The format version in the files of this program.
const VERSION: u32 = 1;

/// The maximum number of failures in a file, which is also a policy's maximum.
pub(super) const MAX_FAILURES: usize = 1000;

#[derive(Serialize, Deserialize)]
struct StoredCircuits {
    version: u32,
    connector: String,
    host: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    failures: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    open: Option<KeptOpening>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    shut: Vec<KeptShut>,
}

#[derive(Serialize, Deserialize)]
struct KeptOpening {
    #[serde(flatten)]
    why: KeptWhy,
    cooldown_ms: u64,
    probe_after_ms: u64,
}

#[derive(Serialize, Deserialize)]
struct KeptShut {
    #[serde(flatten)]
    why: KeptWhy,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    credential: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct KeptWhy {
    at: String,
    cause: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    audit_id: String,
}

/// The content of a file: the circuit of this connector at this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoredCircuit {
    pub(super) connector: String,
    pub(super) host: String,
    pub(super) circuit: Circuit,
}

/// Serializes a record.
pub(super) fn write(record: &StoredCircuit) -> serde_json::Result<Vec<u8>> {
    let circuit = &record.circuit;
    let kept = StoredCircuits {
        version: VERSION,
        connector: record.connector.clone(),
        host: record.host.clone(),
        failures: circuit.failures.iter().map(ToString::to_string).collect(),
        open: circuit.open.as_ref().map(|opening| KeptOpening {
            why: keep(&opening.why),
            cooldown_ms: millis(opening.cooldown),
            probe_after_ms: millis(opening.probe_after),
        }),
        shut: circuit
            .shut
            .iter()
            .map(|shut| KeptShut { why: keep(&shut.why), credential: shut.credential.clone() })
            .collect(),
    };
    serde_json::to_vec(&kept)
}

/// Parses a record; returns `None` if no program of this version wrote the text.
pub(super) fn read(text: &[u8]) -> Option<StoredCircuit> {
    let kept: StoredCircuits = serde_json::from_slice(text).ok()?;
    if kept.version != VERSION || kept.failures.len() > MAX_FAILURES || kept.shut.len() > SHUT {
        return None;
    }
    let failures = kept.failures.iter().map(|at| at.parse().ok()).collect::<Option<Vec<Timestamp>>>()?;
    let open = match kept.open {
        None => None,
        Some(open) => {
            let cooldown = Duration::from_millis(open.cooldown_ms);
            let probe_after = Duration::from_millis(open.probe_after_ms);
            if probe_after > cooldown {
                return None;
            }
            Some(CircuitTrip { why: why(open.why)?, cooldown, probe_after })
        }
    };
    let shut = kept.shut.into_iter();
    let shut = shut.map(|shut| Some(PermanentTrip { why: why(shut.why)?, credential: shut.credential }));
    let shut = shut.collect::<Option<Vec<_>>>()?;
    Some(StoredCircuit {
        connector: kept.connector,
        host: kept.host,
        circuit: Circuit { failures, open, shut },
    })
}

fn keep(why: &TripCause) -> KeptWhy {
    KeptWhy {
        at: why.at.to_string(),
        cause: why.cause.name().to_owned(),
        status: why.status,
        audit_id: why.audit_id.clone(),
    }
}

fn why(kept: KeptWhy) -> Option<TripCause> {
    let cause = FailureCause::ALL.into_iter().find(|cause| cause.name() == kept.cause)?;
    // The id is copied into failures verbatim.
    let shown = kept.audit_id.strip_prefix("audit-")?;
    let is_id = shown.len() <= 64 && shown.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let at = kept.at.parse().ok()?;
    is_id.then_some(TripCause { at, cause, status: kept.status, audit_id: kept.audit_id })
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use proptest::prelude::*;

    use super::*;

    fn whys() -> impl Strategy<Value = TripCause> {
        let parts =
            (-4_000_000_000_i64..250_000_000_000, 0..FailureCause::ALL.len(), prop::option::of(100_u16..600));
        (parts, 0_u32..1_000_000_000).prop_map(|((second, cause, status), nano)| TripCause {
            at: Timestamp::new(second, nano.try_into().unwrap()).unwrap(),
            cause: FailureCause::ALL.get(cause).copied().unwrap(),
            status,
            audit_id: cofferdam_core::failure::AuditId::mint().to_string(),
        })
    }

    fn circuits() -> impl Strategy<Value = Circuit> {
        let failures = prop::collection::vec(whys().prop_map(|why| why.at), 0..5);
        let open = prop::option::of((whys(), 0_u64..1_000_000, 0_u64..1_000_000));
        let shut = prop::collection::vec((whys(), prop::option::of("[ -~\n]{0,60}")), 0..3);
        (failures, open, shut).prop_map(|(failures, open, shut)| Circuit {
            failures,
            open: open.map(|(why, one, other)| CircuitTrip {
                why,
                cooldown: Duration::from_millis(one.max(other)),
                probe_after: Duration::from_millis(one.min(other)),
            }),
            shut: shut.into_iter().map(|(why, credential)| PermanentTrip { why, credential }).collect(),
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_what_is_read(circuit in circuits(), cut in 0.0_f64..1.0) {
            let (connector, host) = ("github://acme/slack".to_owned(), "slack.com:443".to_owned());
            let record = StoredCircuit { connector, host, circuit };
            let text = write(&record).unwrap();
            prop_assert_eq!(read(&text), Some(record));
            // A truncated text is not a record.
            let end = (text.len() as f64 * cut) as usize;
            prop_assert_eq!(read(text.get(..end).unwrap()), None);
        }

        #[test]
        fn no_text_is_too_strange_to_read(text in ".*") {
            prop_assert_eq!(read(text.as_bytes()), None);
        }
    }
}
