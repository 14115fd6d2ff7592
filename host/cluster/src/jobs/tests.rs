//! The queue on a real NATS server: what others do to its streams loses no job, and runs none again.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

pub(super) mod fixture;

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, pull, push};
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};
use cofferdam_audit::{AuditLog as _, wait};
use cofferdam_core::clock::SystemClock;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_egress::egress::default_tls;
use cofferdam_runtime::host::Host;
use cofferdam_sandbox::Compiler;
use cofferdam_server::http_api::{JobRequest, JobService as _, JobState, NewJob};
use cofferdam_test_support::services::Postgres;

use self::fixture::{Stage, authenticator, host, login, queue, tools};
use super::authentication::MessageKind;
use super::message::JobMessage;
use super::metrics::JobMetrics;
use super::queue::JobQueue;
use super::record::StoredRecord;
use super::service::Jobs;
use super::settings::JobSettings;
use crate::audit_log::{PostgresLog, PostgresSettings};
use crate::database::{Database, DatabaseSettings};

const NOW: Duration = Duration::ZERO;

/// Makes a job dead, as a worker does.
async fn die(stage: &Stage, job: &JobMessage) {
    let streams = stage.queue.streams().await.unwrap();
    let (headers, payload) = stage.queue.encode(job, "letter").unwrap();
    let dead = stage.queue.dead_subject(&job.id);
    stage.queue.connection().publish(dead, headers, payload).await.unwrap();
    streams.jobs.purge().filter(stage.queue.job_subject(&job.id)).await.unwrap();
    let changed = streams.records.change(&job.id, |record| {
        record.set_state(JobState::Dead, super::queue::now());
        true
    });
    changed.await.unwrap().unwrap();
}

async fn is_stored(stage: &Stage, job: &JobMessage) -> bool {
    let streams = stage.queue.streams().await.unwrap();
    stage.queue.stored_job(&streams.jobs, &stage.queue.job_subject(&job.id)).await.unwrap().is_some()
}

#[tokio::test]
async fn a_taken_message_id_loses_no_retry() {
    let Some(stage) = Stage::start().await else { return };
    let job = stage.job("taken-1", NOW);
    stage.queue.submit(&job).await.unwrap();
    die(&stage, &job).await;
    for copy in 0..4 {
        let id = format!("Nats-Msg-Id: {}/{copy}", job.id);
        stage.nats.publish(&stage.queue.job_subject(&job.id), &[id], b"junk");
    }
    let retried = stage.jobs().retry(job.id.as_str()).await.unwrap();
    assert_eq!(retried.state, JobState::Queued);
    assert!(is_stored(&stage, &job).await);
    let streams = stage.queue.streams().await.unwrap();
    let letter = stage.queue.stored_job(&streams.dead, &stage.queue.dead_subject(&job.id)).await.unwrap();
    assert!(letter.is_none());
}

#[tokio::test]
async fn a_taken_message_id_loses_no_submission() {
    let Some(stage) = Stage::start().await else { return };
    let job = stage.job("taken-2", NOW);
    stage.queue.streams().await.unwrap();
    let id = format!("Nats-Msg-Id: {}/0", job.id);
    stage.nats.publish(&stage.queue.job_subject(&job.id), &[id], b"junk");
    stage.queue.submit(&job).await.unwrap();
    assert!(is_stored(&stage, &job).await);
}

#[tokio::test]
async fn a_letter_of_another_job_is_not_retried() {
    let Some(stage) = Stage::start().await else { return };
    let (job, other) = (stage.job("own-1", NOW), stage.job("other-1", NOW));
    stage.queue.submit(&job).await.unwrap();
    die(&stage, &job).await;
    let (headers, payload) = stage.queue.encode(&other, "other").unwrap();
    stage.queue.connection().publish(stage.queue.dead_subject(&job.id), headers, payload).await.unwrap();
    let error = stage.jobs().retry(job.id.as_str()).await.unwrap_err();
    assert_eq!(error.kind(), HostErrorKind::Conflict, "{error}");
    assert!(!is_stored(&stage, &other).await);
}

#[tokio::test]
async fn a_lost_message_returns_with_its_resubmission() {
    let Some(stage) = Stage::start().await else { return };
    let job = stage.job("lost-1", NOW);
    stage.queue.submit(&job).await.unwrap();
    let streams = stage.queue.streams().await.unwrap();
    streams.jobs.purge().await.unwrap();
    let (record, is_known) = stage.queue.submit(&job).await.unwrap();
    assert_eq!((record.state, is_known), (JobState::Queued, true));
    assert!(is_stored(&stage, &job).await);
    stage.queue.submit(&job).await.unwrap();
    assert_eq!(streams.jobs.get_info().await.unwrap().state.messages, 1, "it is there once");
}

#[tokio::test]
async fn streams_that_drop_jobs_are_repaired() {
    let Some(stage) = Stage::start().await else { return };
    let prefix = format!("cofferdam.{}", authenticator().cluster());
    let config = Config {
        name: stage.stream_name("jobs"),
        subjects: vec![format!("{prefix}.jobs.*")],
        retention: RetentionPolicy::WorkQueue,
        discard: DiscardPolicy::Old,
        max_age: Duration::from_secs(300),
        max_messages_per_subject: 1,
        ..Config::default()
    };
    stage.stream().create_stream(config).await.unwrap();
    stage.queue.submit(&stage.job("repaired-1", NOW)).await.unwrap();
    let own = stage.stream().get_stream(stage.stream_name("jobs")).await.unwrap();
    let own = &own.cached_info().config;
    assert_eq!((own.max_age, own.discard), (NOW, DiscardPolicy::New));
    assert_eq!(own.max_messages_per_subject, -1);
}

#[tokio::test]
async fn a_consumer_that_skips_jobs_is_repaired() {
    let Some(stage) = Stage::start().await else { return };
    let job = stage.job("consumed-1", NOW);
    stage.queue.submit(&job).await.unwrap();
    let streams = stage.queue.streams().await.unwrap();
    let config = pull::Config {
        durable_name: Some("workers".to_owned()),
        ack_policy: AckPolicy::Explicit,
        filter_subject: format!("cofferdam.{}.jobs.none", authenticator().cluster()),
        headers_only: true,
        max_deliver: 1,
        ..pull::Config::default()
    };
    streams.jobs.create_consumer(config).await.unwrap();
    let message = stage.next().await;
    assert_eq!(message.subject.as_str(), stage.queue.job_subject(&job.id));
    assert!(!message.payload.is_empty());
}

#[tokio::test]
async fn a_consumer_of_another_kind_is_named() {
    let Some(stage) = Stage::start().await else { return };
    let streams = stage.queue.streams().await.unwrap();
    let config = push::Config {
        durable_name: Some("workers".to_owned()),
        deliver_subject: "elsewhere".to_owned(),
        ack_policy: AckPolicy::Explicit,
        ..push::Config::default()
    };
    streams.jobs.create_consumer(config).await.unwrap();
    let error = stage.queue.consumer().await.map(drop).unwrap_err();
    assert!(error.hint().unwrap().contains("nats consumer rm"), "{error}");
}

#[tokio::test]
async fn a_stream_in_memory_is_refused() {
    let Some(stage) = Stage::start().await else { return };
    let config = Config {
        name: stage.stream_name("jobs"),
        subjects: vec![format!("cofferdam.{}.jobs.*", authenticator().cluster())],
        retention: RetentionPolicy::WorkQueue,
        storage: StorageType::Memory,
        ..Config::default()
    };
    stage.stream().create_stream(config).await.unwrap();
    let error = stage.queue.submit(&stage.job("memory-1", NOW)).await.unwrap_err();
    assert!(error.message().contains("kept in memory"), "{error}");
}

#[tokio::test]
async fn deleted_streams_are_made_again() {
    let Some(stage) = Stage::start().await else { return };
    stage.queue.submit(&stage.job("first", NOW)).await.unwrap();
    assert!(stage.queue.is_ready().await);
    for part in ["records", "dead", "jobs"] {
        stage.stream().delete_stream(stage.stream_name(part)).await.unwrap();
        assert!(!stage.queue.is_ready().await, "{part}");
        assert!(stage.queue.is_ready().await, "{part}");
        stage.stream().delete_stream(stage.stream_name(part)).await.unwrap();
        let job = stage.job(part, NOW);
        // The first one may find that it is gone.
        if stage.queue.submit(&job).await.is_err() {
            stage.queue.submit(&job).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_foreign_record_is_not_a_missing_one() {
    let Some(stage) = Stage::start().await else { return };
    let job = stage.job("foreign-1", NOW);
    stage.queue.submit(&job).await.unwrap();
    let subject = format!("cofferdam.{}.state.{}", authenticator().cluster(), job.id);
    stage.nats.publish(&subject, &[], b"{}");
    let refused = |error: HostError, what: &str| {
        assert_eq!(error.kind(), HostErrorKind::QueueUnavailable, "{error}");
        assert!(error.message().contains(what), "{error}");
    };
    let own = "not the cluster's own";
    refused(stage.queue.record(&job.id).await.unwrap_err(), own);
    refused(stage.queue.submit(&job).await.unwrap_err(), own);
    refused(stage.jobs().retry(job.id.as_str()).await.unwrap_err(), own);
    // One of a newer version is authentic, and has fields that are not known.
    for newer in [&br#"{"v":2}"#[..], b"[]"] {
        let mac = authenticator().sign(MessageKind::Record, job.id.as_str(), "", newer);
        stage.nats.publish(&subject, &[format!("Cofferdam-Mac: {mac}")], newer);
        refused(stage.queue.record(&job.id).await.unwrap_err(), "newer version");
    }
}

#[tokio::test]
async fn too_many_replicas_name_the_setting() {
    let Some(tools) = tools() else { return };
    let nats = cofferdam_test_support::services::Nats::start(&tools);
    let queue = queue(&nats, JobSettings { replicas: 3, ..JobSettings::default() }).await;
    let error = queue.streams().await.map(drop).unwrap_err();
    assert!(error.hint().unwrap().contains("`replicas` in [jobs]"), "{error}");
}

fn new_job(key: &str) -> NewJob {
    let request = r#"{"call":{"connector":"github://acme/a@1.0.0","op":"run","args":{}}}"#;
    let request = JobRequest::read(request.as_bytes()).unwrap();
    NewJob { key: Some(key.to_owned()), actor: "host".to_owned(), request, traceparent: None }
}

fn jobs(queue: JobQueue, host: Host) -> Jobs {
    Jobs::new(queue, host, Arc::new(JobMetrics::new("test")), None)
}

#[tokio::test]
async fn a_refused_connection_has_its_cause() {
    // The port is free again: no process listens on it.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let login = login(&format!("nats://{address}"));
    let queue = JobQueue::connect(&login, authenticator(), JobSettings::default(), false).await.unwrap();
    let (host, _home) = host();
    let error = jobs(queue, host).submit(new_job("away-1")).await.unwrap_err();
    assert!(error.message().to_lowercase().contains("connection refused"), "{error}");
    assert_eq!(error.details()["idempotency_key"], "away-1");
}

#[tokio::test]
async fn a_refused_login_names_the_password_file() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let login = login(&format!("nats://worker:wrong@{}", listener.local_addr().unwrap()));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.write_all(
                b"INFO {\"server_id\":\"x\",\"version\":\"2.11.0\",\"auth_required\":true,\"max_payload\":1048576}\r\n",
            );
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"-ERR 'Authorization Violation'\r\n");
        }
    });
    let queue = JobQueue::connect(&login, authenticator(), JobSettings::default(), false).await.unwrap();
    let error = queue.streams().await.map(drop).unwrap_err();
    assert!(error.message().contains("refuses the login"), "{error}");
    assert!(error.hint().unwrap().contains("nats_password_file"), "{error}");
}

/// The audit log in the database of this URL, of a host in this home.
fn log(url: &str, home: &std::path::Path) -> PostgresLog {
    let url = DatabaseSettings::parse(url, false).unwrap();
    let database = Database::new(url, default_tls([]).unwrap(), home);
    PostgresLog::new(database, home, PostgresSettings::new("test"), Arc::new(SystemClock))
}

fn host_on(url: &str, home: &std::path::Path) -> Host {
    let log = Arc::new(log(url, home));
    let host = Host::builder().home(home).compiler(Compiler::in_process()).audit_log(log);
    host.build().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn another_clusters_database_refuses_jobs() {
    let (Some(stage), Some(mut postgres)) = (Stage::start().await, Postgres::start_or_skip()) else { return };
    let url = postgres.database();
    let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let made = {
        let (url, home) = (url.clone(), own.path().to_owned());
        move || wait(log(&url, &home).sign())
    };
    tokio::task::spawn_blocking(made).await.unwrap().unwrap();
    let foreign = jobs(stage.queue.clone(), host_on(&url, other.path()));
    let error = foreign.submit(new_job("other-1")).await.unwrap_err();
    assert_eq!(error.kind(), HostErrorKind::AuditUnavailable, "{error}");
    assert_eq!(error.details()["idempotency_key"], "other-1");
    let id = authenticator().job_id("other-1");
    assert!(stage.queue.record(&id).await.unwrap().is_none(), "nothing was accepted");
    // One that cannot be reached does not: the job waits.
    postgres.stop();
    let own = jobs(stage.queue.clone(), host_on(&url, own.path()));
    own.submit(new_job("away-1")).await.unwrap();
}

#[tokio::test]
async fn a_done_job_shows_no_earlier_failure() {
    let Some(stage) = Stage::start().await else { return };
    let job = stage.job("done-1", NOW);
    stage.queue.submit(&job).await.unwrap();
    let streams = stage.queue.streams().await.unwrap();
    let changed = streams.records.change(&job.id, |record| {
        record.state = JobState::Done;
        record.code = Some("in_progress".to_owned());
        record.reason = Some("another call has the key".to_owned());
        true
    });
    changed.await.unwrap().unwrap();
    let shown = stage.jobs().show(job.id.as_str(), "host").await.unwrap();
    assert_eq!((shown.state, shown.code, shown.reason), (JobState::Done, None, None));
    let changed = streams.records.change(&job.id, |record| {
        record.set_state(JobState::Done, super::queue::now());
        true
    });
    assert_eq!(changed.await.unwrap().unwrap().code, None);
    let StoredRecord { sequence, .. } = stage.queue.record(&job.id).await.unwrap().unwrap();
    assert!(sequence > 0);
}
