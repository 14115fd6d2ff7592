//! A circuit as a file's text, and back: JSON of a known version, with the connector and the host it is about.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::circuit::{Circuit, Opening, SHUT, Shut, Why};
use crate::failure::Cause;

/// What the files of this program say they are.
const VERSION: u32 = 1;

/// The most failures that a file may count: what a policy allows at most.
pub(super) const MAX_FAILURES: usize = 1000;

#[derive(Serialize, Deserialize)]
struct Kept {
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

/// What a file says: the circuit of this connector at this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) connector: String,
    pub(super) host: String,
    pub(super) circuit: Circuit,
}

/// The text of a file.
pub(super) fn write(record: &Record) -> serde_json::Result<Vec<u8>> {
    let circuit = &record.circuit;
    let kept = Kept {
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

/// What the text of a file says; none where no program of this version wrote it.
pub(super) fn read(text: &[u8]) -> Option<Record> {
    let kept: Kept = serde_json::from_slice(text).ok()?;
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
            Some(Opening { why: why(open.why)?, cooldown, probe_after })
        }
    };
    let shut = kept.shut.into_iter();
    let shut = shut.map(|shut| Some(Shut { why: why(shut.why)?, credential: shut.credential }));
    let shut = shut.collect::<Option<Vec<_>>>()?;
    Some(Record { connector: kept.connector, host: kept.host, circuit: Circuit { failures, open, shut } })
}

fn keep(why: &Why) -> KeptWhy {
    KeptWhy {
        at: why.at.to_string(),
        cause: why.cause.name().to_owned(),
        status: why.status,
        audit_id: why.audit_id.clone(),
    }
}

fn why(kept: KeptWhy) -> Option<Why> {
    let cause = Cause::ALL.into_iter().find(|cause| cause.name() == kept.cause)?;
    // It goes into failures, as it stands.
    let shown = kept.audit_id.strip_prefix("audit-")?;
    let is_id = shown.len() <= 64 && shown.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let at = kept.at.parse().ok()?;
    is_id.then_some(Why { at, cause, status: kept.status, audit_id: kept.audit_id })
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
