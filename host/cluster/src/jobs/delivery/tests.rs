//! Deliveries to workers that were cut off, of jobs that are old, and by clocks that differ.

#![allow(clippy::unwrap_used, reason = "a test")]

use cofferdam_server::http_api::JobService as _;

use super::super::tests::fixture::Stage;
use super::*;

const HOUR: Duration = Duration::from_secs(60 * 60);

fn record(stage_job: &JobMessage) -> JobRecord {
    JobRecord::new(stage_job)
}

fn error(kind: HostErrorKind) -> JobOutcome {
    JobOutcome::refused(HostError::new(kind, "No."))
}

#[tokio::test]
async fn a_worker_that_was_cut_off_changes_nothing() {
    let Some(stage) = Stage::start().await else { return };
    let worker = stage.worker("first");
    let job = stage.job("cut-1", Duration::ZERO);
    stage.queue.submit(&job).await.unwrap();
    let (message, streams) = (stage.next().await, stage.queue.streams().await.unwrap());
    let own = AuditId::mint();
    let taken = worker.0.take(&job, &own, &streams, &message).await.unwrap();
    assert!(matches!(taken, Taken::Runs { .. }));
    // Another worker has taken it over.
    let other = AuditId::mint();
    let changed = streams.records.change(&job.id, |record| {
        record.run.as_mut().unwrap().audit_id = other.to_string();
        true
    });
    let before = changed.await.unwrap().unwrap();
    let done = JobOutcome { error: None, replayed: None, profile: None };
    for (outcome, disposition) in [
        (error(HostErrorKind::OutcomeUnknown), Disposition::Dead),
        (error(HostErrorKind::ConnectorNotFound), Disposition::Missing),
        (error(HostErrorKind::Busy), Disposition::Later(HOUR)),
        (error(HostErrorKind::Busy), Disposition::Retry(HOUR)),
        (error(HostErrorKind::Cancelled), Disposition::Cancelled),
        (error(HostErrorKind::Validation), Disposition::Failed),
        (done, Disposition::Done),
    ] {
        let what = format!("{disposition:?}");
        let concluded =
            worker.0.conclude(&message, &job, &own, &outcome, disposition, &streams).await.unwrap();
        assert_eq!(concluded, Acknowledgement::Leave, "{what}");
        assert_eq!(streams.records.get(&job.id).await.unwrap().unwrap().record, before, "{what}");
    }
    assert_eq!(streams.dead.get_info().await.unwrap().state.messages, 0, "no letter");
    // The worker that has it may.
    let outcome = error(HostErrorKind::OutcomeUnknown);
    let ended =
        worker.0.conclude(&message, &job, &other, &outcome, Disposition::Dead, &streams).await.unwrap();
    assert_eq!(ended, Acknowledgement::Done);
    assert_eq!(streams.records.get(&job.id).await.unwrap().unwrap().record.state, JobState::Dead);
    assert_eq!(streams.dead.get_info().await.unwrap().state.messages, 1);
}

#[tokio::test]
async fn a_job_older_than_its_key_is_not_run() {
    let Some(stage) = Stage::start().await else { return };
    let worker = stage.worker("only");
    let job = stage.job("old-1", 25 * HOUR);
    stage.queue.submit(&job).await.unwrap();
    worker.0.handle(stage.next().await).await;
    let shown = stage.jobs().show(job.id.as_str(), "host").await.unwrap();
    assert_eq!((shown.state, shown.code.as_deref()), (JobState::Dead, Some("too_old")));
    // An operator who knows that it never ran puts it on the queue again.
    stage.jobs().retry(job.id.as_str()).await.unwrap();
    worker.0.handle(stage.next().await).await;
    let shown = stage.jobs().show(job.id.as_str(), "host").await.unwrap();
    assert_eq!((shown.state, shown.code.as_deref()), (JobState::Queued, Some("connector_not_found")));
}

#[tokio::test]
async fn a_job_behind_a_foreign_record_stays() {
    let Some(stage) = Stage::start().await else { return };
    let worker = stage.worker("only");
    let job = stage.job("stays-1", Duration::ZERO);
    stage.queue.submit(&job).await.unwrap();
    let subject = format!("cofferdam.{}.state.{}", stage.queue.authenticator().cluster(), job.id);
    stage.nats.publish(&subject, &[], b"{}");
    worker.0.handle(stage.next().await).await;
    let streams = stage.queue.streams().await.unwrap();
    assert_eq!(streams.jobs.get_info().await.unwrap().state.messages, 1);
    // An operator removes what is there: the job goes on.
    streams.records.stream.purge().filter(subject).await.unwrap();
    worker.0.handle(stage.next().await).await;
    let shown = stage.jobs().show(job.id.as_str(), "host").await.unwrap();
    assert_eq!(shown.code.as_deref(), Some("connector_not_found"));
}

#[tokio::test]
async fn a_worker_with_a_fast_clock_delays_no_retry() {
    let Some(stage) = Stage::start().await else { return };
    let at = now();
    let mut record = record(&stage.job("skew-1", Duration::ZERO));
    let wait = |record: &mut JobRecord, written: Timestamp, delay: Duration| {
        record.set_state(JobState::Queued, written);
        record.next_attempt_at = after(written, delay);
        time_left(record, at)
    };
    let second = Duration::from_secs(1);
    assert_eq!(wait(&mut record, at, second), Some(second));
    assert_eq!(wait(&mut record, at - second, second), None);
    assert_eq!(wait(&mut record, at + 10 * HOUR, second), None, "its clock is 10 hours ahead");
    assert_eq!(wait(&mut record, at - 10 * HOUR, second), None);
    record.next_attempt_at = None;
    assert_eq!(time_left(&record, at), None);
}

#[tokio::test]
async fn a_record_outlives_its_key_by_the_log() {
    let Some(stage) = Stage::start().await else { return };
    let at = now();
    let mut record = record(&stage.job("age-1", Duration::ZERO));
    record.set_state(JobState::Queued, at);
    assert!(!has_outlived(&record, at + 22 * HOUR, 24 * HOUR));
    assert!(has_outlived(&record, at + 24 * HOUR, 24 * HOUR));
    assert!(!has_outlived(&record, at - 48 * HOUR, 24 * HOUR), "a log whose time stands still");
    record.next_attempt_at = after(at, 20 * HOUR);
    assert!(!has_outlived(&record, at + 40 * HOUR, 24 * HOUR), "it was to wait");
    assert!(has_outlived(&record, at + 44 * HOUR, 24 * HOUR));
    record.updated_at = "never".to_owned();
    assert!(has_outlived(&record, at, 24 * HOUR));
}
