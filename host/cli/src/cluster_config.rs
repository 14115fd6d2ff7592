//! The blocks `[cluster]` and `[jobs]` of `config.toml`: the host's name in a cluster, and its queue of jobs.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::document::{DocumentTable, InvalidValue};
use cofferdam_core::limits::{LimitRequest, parse_time};
use cofferdam_distribution::{ReferenceError, RegistryRef};
use cofferdam_model::trust::PublicKey;

use super::cluster_trust::{self, ClusterTrust};

/// The most jobs that a queue may be set to hold.
const JOBS: u64 = 100_000_000;

/// The settings of a cluster.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ClusterConfig {
    /// The host's name; by default the machine's.
    pub(super) host: Option<String>,
    /// The time for which a process that was cut off still counts as alive.
    pub(super) lease: Option<Duration>,
    /// The trust that the hosts of the cluster share.
    pub(super) trust: Option<Arc<ClusterTrust>>,
    /// The address of NATS.
    pub(super) nats: Option<String>,
    /// The file with the password for NATS.
    pub(super) nats_password_file: Option<PathBuf>,
    /// True if NATS may be reached without TLS beyond this machine.
    pub(super) nats_plain_text: bool,
}

impl ClusterConfig {
    /// The keys of the block.
    pub(super) const KEYS: [&'static str; 7] =
        ["host", "lease", "trust", "trust_keys", "nats", "nats_password_file", "nats_plain_text"];

    /// Reads the block. Paths are relative to the home directory.
    pub(super) fn read(table: &DocumentTable<'_>, home: &Path) -> Self {
        table.reject_unknown_keys(&Self::KEYS);
        let reference = table.text("trust").and_then(|text| text.parse(|text| trust_reference(text)));
        let texts = table.texts("trust_keys");
        let keys: Vec<_> = texts.iter().filter_map(|key| key.parse(|key| PublicKey::parse(key))).collect();
        // An invalid value is reported already, and is not missing.
        let is_reported = keys.len() < texts.len() || (reference.is_none() && table.has("trust"));
        let trust = match is_reported {
            true => None,
            false => {
                let trust = cluster_trust::configured(reference, keys);
                trust.map_err(|refused| table.location().refuse(refused)).unwrap_or_default()
            }
        };
        Self {
            trust,
            host: table.text("host").and_then(|host| host.parse(|text| host_name(text))),
            lease: table
                .text("lease")
                .and_then(|time| time.parse(|text| bounded_time(text, *LEASES.start(), *LEASES.end()))),
            nats: table.text("nats").map(|url| url.value.to_owned()),
            nats_password_file: table.text("nats_password_file").map(|path| home.join(path.value)),
            nats_plain_text: table.flag("nats_plain_text").unwrap_or_default(),
        }
    }
}

/// The settings of the queue of jobs. All hosts of a cluster have the same.
#[derive(Debug, Default, PartialEq)]
pub(super) struct JobsConfig {
    /// The most jobs that wait or run.
    pub(super) max_jobs: Option<u64>,
    /// The most bytes of them.
    pub(super) max_bytes: Option<u64>,
    /// The number of servers that keep each message.
    pub(super) replicas: Option<u64>,
    /// The time after which a job is delivered again whose worker says nothing.
    pub(super) ack_wait: Option<Duration>,
    /// The time for which a finished job is known.
    pub(super) keep: Option<Duration>,
}

impl JobsConfig {
    /// The keys of the block.
    pub(super) const KEYS: [&'static str; 5] = ["max_jobs", "max_bytes", "replicas", "ack_wait", "keep"];

    /// Reads the block.
    pub(super) fn read(table: &DocumentTable<'_>) -> Self {
        table.reject_unknown_keys(&Self::KEYS);
        let count = |key, most: u64| {
            table.integer(key).and_then(|number| {
                number.parse(|number| match (1..=most).contains(number) {
                    true => Ok(*number),
                    false => Err(InvalidValue::new(
                        format!("not a number from 1 to {most}"),
                        "write a whole number within that",
                    )),
                })
            })
        };
        let time = |key, least, most| {
            table.text(key).and_then(|time| time.parse(|text| bounded_time(text, least, most)))
        };
        let day = Duration::from_secs(24 * 60 * 60);
        Self {
            max_jobs: count("max_jobs", JOBS),
            max_bytes: table.text("max_bytes").and_then(|size| size.parse(|text| bytes(text))),
            replicas: count("replicas", 5),
            ack_wait: time("ack_wait", Duration::from_secs(1), Duration::from_secs(3600)),
            keep: time("keep", Duration::from_secs(60), day * 3_660),
        }
    }
}

/// The place of a cluster's trust on a registry.
fn trust_reference(text: &str) -> Result<RegistryRef, InvalidValue> {
    let fix = "write it like \"oci://registry.example/acme/trust:stable\"";
    let reference: RegistryRef =
        text.parse().map_err(|error: ReferenceError| InvalidValue::new(error.to_string(), fix))?;
    match reference.tag().is_some() && reference.digest().is_none() {
        true => Ok(reference),
        false => Err(InvalidValue::new("a reference without a tag, or with a digest", fix)),
    }
}

/// The times for which a process that was cut off may count as alive.
const LEASES: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(300);

/// Parses the name of a host, as messages and metrics show it.
pub(super) fn host_name(text: &str) -> Result<String, InvalidValue> {
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    match (1..=100).contains(&text.len()) && text.bytes().all(is_fit) {
        true => Ok(text.to_owned()),
        false => Err(InvalidValue::new(
            "not the name of a host".to_owned(),
            "write 1 to 100 letters, digits, `-`, `.` and `_`",
        )),
    }
}

fn bounded_time(text: &str, least: Duration, most: Duration) -> Result<Duration, InvalidValue> {
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u32>().ok());
    let days = days.and_then(|days| Duration::from_secs(24 * 60 * 60).checked_mul(days));
    days.or_else(|| parse_time(text)).filter(|time| (least..=most).contains(time)).ok_or_else(|| {
        InvalidValue::new(
            format!("not a time from {} s to {} s", least.as_secs(), most.as_secs()),
            "write it as a whole number with s, m, h or d, like \"10s\" or \"7d\"",
        )
    })
}

fn bytes(text: &str) -> Result<u64, InvalidValue> {
    let amount = LimitRequest::parse(None, None, Some(text)).ok().and_then(|amount| amount.memory());
    amount.filter(|bytes| (1 << 20..=1 << 44).contains(bytes)).ok_or_else(|| {
        InvalidValue::new("not a size from 1MiB to 16384GiB".to_owned(), "write it like \"1GiB\"")
    })
}
