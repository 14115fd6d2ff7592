//! stub
use crate::error::{AuditError, AuditErrorKind};
use crate::log::*;
use crate::settings::SealedQuota;
use cofferdam_core::failure::AuditId;
use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

pub(crate) struct LogIndex;
pub(crate) struct QuotaOutcome {
    pub(crate) dropped: u64,
    pub(crate) full_clients: HashSet<String>,
}
impl LogIndex {
    pub(crate) fn open(_: &Path, _: Duration) -> Result<Self, AuditError> {
        Ok(Self)
    }
    pub(crate) fn update(&mut self) -> Result<(), AuditError> {
        Ok(())
    }
    pub(crate) fn enforce_quota(&mut self, _: SealedQuota) -> Result<QuotaOutcome, AuditError> {
        Ok(QuotaOutcome { dropped: 0, full_clients: HashSet::new() })
    }
    pub(crate) fn forget(&mut self, _: &str, _: u64) -> Result<(), AuditError> {
        Ok(())
    }
}
pub(crate) struct IndexReader;
impl IndexReader {
    pub(crate) fn open(
        _: &Path,
        _: Duration,
        _: Box<dyn Fn(Option<&AuditId>) -> Result<Vec<AuditId>, AuditError> + Send>,
    ) -> Result<Self, AuditError> {
        Err(AuditError::new(AuditErrorKind::Other, "stub"))
    }
}

use crate::{seal::Sealed, stats::*};
impl AuditReader for IndexReader {
    fn list(&mut self, _: &Filter) -> Result<Vec<CallRow>, AuditError> {
        todo!()
    }
    fn call(&mut self, _: &AuditId) -> Result<Option<CallRow>, AuditError> {
        todo!()
    }
    fn between(&mut self, _: &AuditId, _: &AuditId, _: usize) -> Result<Vec<AuditId>, AuditError> {
        todo!()
    }
    fn stats(&mut self, _: &Filter) -> Result<Stats, AuditError> {
        todo!()
    }
    fn codes(&mut self) -> Result<Vec<String>, AuditError> {
        todo!()
    }
    fn end(&mut self) -> Result<LogPosition, AuditError> {
        todo!()
    }
    fn ended_after(&mut self, _: &mut LogPosition, _: usize) -> Result<Vec<CallRow>, AuditError> {
        todo!()
    }
    fn entries_of(&mut self, _: &AuditId) -> Result<Vec<StoredEntry>, AuditError> {
        todo!()
    }
    fn sealed_usage(&mut self) -> Result<Vec<SealedUsage>, AuditError> {
        todo!()
    }
    fn undecided_keys(&mut self, _: Option<&AuditId>) -> Result<Vec<AuditId>, AuditError> {
        todo!()
    }
    fn sealed(&mut self, _: &AuditId) -> Result<(Option<Sealed>, Option<Sealed>), AuditError> {
        todo!()
    }
}
