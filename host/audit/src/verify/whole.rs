//! The proof of a whole record: its chain, what was signed of it, and that what is derived says the same.

use cofferdam_core::digest::Digest;
use cofferdam_core::failure::AuditId;

use super::calls::CallFacts;
use super::finding::Flaw;
use super::keys::Keys;
use super::{Outcome, Verifier};
use crate::checkpoint::{Checkpoint, Statement};
use crate::command::CallStatus;
use crate::entry::Entry;
use crate::error::AuditError;
use crate::evidence::{AuditEvidence, KeptCall};
use crate::log::StoredEntry;
use crate::note::NoteKey;
use crate::seal::{Part, Sealed, Sealer};

/// Entries that are read at once.
const AT_ONCE: usize = 1_000;

/// Entries that a host writes without signing for them, and room for several hosts at once.
const UNSIGNED: u64 = 10_000;

/// Most calls that are named that the chain has not.
const STRAYS: u32 = 100;

/// Reports the progress of a verification, in entries: those done, and the total.
pub(crate) type Progress<'p> = &'p mut dyn FnMut(u64, u64);

/// The number and the hash of the last entry that the home remembers.
pub(crate) type Remembered = Option<(u64, [u8; 32])>;

/// The inputs of a proof beside the log: statements from elsewhere, the one in the file beside the log, what the home
/// remembers, and how many findings are kept.
pub struct Expected<'p> {
    /// The statement in the file beside the log.
    pub file: Option<&'p str>,
    /// Statements from elsewhere.
    pub pinned: &'p [String],
    /// The end of the log that the home remembers.
    pub log: Remembered,
    /// The most findings that are kept.
    pub findings: usize,
}

/// The way to read it.
const REMEMBERED: &str = "home.state";

/// The proof of a record that is not there.
pub fn nothing(key: &NoteKey, expected: &Expected<'_>) -> Outcome {
    let mut verifier = Verifier::new(key);
    let Expected { file, pinned, log, findings } = *expected;
    verifier.keep(findings);
    file.into_iter().for_each(|note| drop(verifier.note(note, 0, "audit.checkpoint")));
    pinned.iter().for_each(|note| drop(verifier.note(note, 0, "a checkpoint kept elsewhere")));
    log.into_iter().for_each(|(n, hash)| verifier.expect(n, hash, REMEMBERED));
    verifier.end()
}

/// Checks all of it.
pub fn whole(
    evidence: &mut dyn AuditEvidence,
    key: &NoteKey,
    sealer: &Sealer,
    expected: &Expected<'_>,
    progress: Progress<'_>,
) -> Result<Outcome, AuditError> {
    let last = evidence.last()?;
    let mut proof = Proof { evidence, verifier: Verifier::new(key), sealer, keys: Keys::default() };
    let Expected { file, pinned, log, findings } = *expected;
    proof.verifier.keep(findings);
    proof.begin(key)?;
    proof.signed(file, pinned, last)?;
    log.into_iter().for_each(|(n, hash)| proof.verifier.expect(n, hash, REMEMBERED));
    let mut next = 0;
    loop {
        let entries = proof.evidence.entries(next, AT_ONCE)?;
        let Some(newest) = entries.last() else { break };
        next = newest.entry.n.saturating_add(1);
        for kept in entries {
            let over = proof.verifier.entry(&kept.entry, Some(kept.prev));
            if let Some(sealed) = &kept.sealed {
                proof.sealed(&kept.entry, sealed, over.as_ref().map(|(_, call)| &**call));
            }
            if let Some((id, call)) = over {
                proof.call(&id, &call)?;
            }
        }
        progress(proof.verifier.n(), last);
    }
    for (id, call) in proof.verifier.without_an_end() {
        proof.call(&AuditId::from_bytes(id), &call)?;
    }
    proof.derived()?;
    Ok(proof.verifier.end())
}

struct Proof<'e, 'k> {
    evidence: &'e mut dyn AuditEvidence,
    verifier: Verifier<'k>,
    sealer: &'k Sealer,
    keys: Keys,
}

impl Proof<'_, '_> {
    /// Finds out where the chain begins.
    fn begin(&mut self, key: &NoteKey) -> Result<(), AuditError> {
        let Some(base) = self.evidence.base()? else {
            self.verifier.begin_anywhere();
            return Ok(());
        };
        match Checkpoint::read(&base, key) {
            Ok(Checkpoint { n, hash, statement: Statement::Pruned, .. }) => {
                self.verifier.begin_after(n, hash)
            }
            said => {
                let why = match said {
                    Ok(_) => "it speaks of something else".to_owned(),
                    Err(flaw) => flaw.to_string(),
                };
                let what = format!("the statement that the beginning was pruned does not hold: {why}");
                self.verifier.find(0, None, None, Flaw::Signature, what);
                self.verifier.begin_anywhere();
            }
        }
        Ok(())
    }

    /// Takes all that was signed.
    fn signed(&mut self, file: Option<&str>, pinned: &[String], last: u64) -> Result<(), AuditError> {
        let notes = self.evidence.notes()?;
        // Before the first entry something is signed, and the file is there before that.
        let is_due = last > 0 || !notes.is_empty();
        let mut newest = None;
        for note in notes {
            if note.is_base {
                // That it holds is looked at where the chain begins.
                newest = newest.max(Some(note.n));
            } else if let Some(checkpoint) = self.verifier.note(&note.note, note.n, "a checkpoint") {
                newest = newest.max(Some(checkpoint.n));
                if checkpoint.n != note.n || checkpoint.statement != Statement::Head {
                    let what = format!("the checkpoint at entry {} is one of another place", note.n);
                    self.verifier.find(note.n, None, None, Flaw::Signature, what);
                }
            }
        }
        let missing = match newest {
            None if is_due => Some("all signed statements are missing from the record".to_owned()),
            Some(newest) if newest.saturating_add(UNSIGNED) < last => {
                Some(format!("the signed statements about what came after entry {newest} are missing"))
            }
            _ => None,
        };
        if let Some(what) = missing {
            self.verifier.find(last, None, None, Flaw::Signature, what);
        }
        match file {
            Some(note) => drop(self.verifier.note(note, last, "audit.checkpoint")),
            None if is_due => {
                let what =
                    "audit.checkpoint is missing: whether the end was cut off cannot be told".to_owned();
                self.verifier.find(last, None, None, Flaw::Signature, what);
            }
            None => {}
        }
        for note in pinned {
            drop(self.verifier.note(note, last, "a checkpoint kept elsewhere"));
        }
        Ok(())
    }

    /// Compares what is sealed of a call with what the chain says of it: its request stands beside its first entry, its
    /// outcome beside its last.
    fn sealed(&mut self, entry: &StoredEntry, sealed: &Sealed, over: Option<&CallFacts>) {
        let id = entry.body.strip_prefix("{\"audit_id\":\"").and_then(|rest| rest.split('"').next());
        let Some(id) = id.and_then(AuditId::parse) else { return };
        let call = over.or(self.verifier.open(&id));
        let part = match call {
            Some(call) if call.first == entry.n => Part::Request,
            _ => Part::Outcome,
        };
        let said = call.and_then(|call| match part {
            Part::Request => call.arguments.clone(),
            Part::Outcome => call.outcome.clone(),
        });
        let what = match self.sealer.open(&id, part, sealed) {
            Err(_) => "what is sealed of the call was changed, or host.key was",
            Ok(text) => {
                // A line of the host's, and then what the digest is of.
                let payload = text.iter().position(|byte| *byte == b'\n').and_then(|at| text.get(at + 1..));
                match (payload, said) {
                    (Some(payload), Some(said)) if Digest::sha256(payload).to_string() != said => {
                        "what is sealed of the call is not what the chain says"
                    }
                    _ => return,
                }
            }
        };
        let thing = [sealed.bytes(), what.as_bytes()].concat();
        self.verifier.find_in(entry.n, Some(id), None, Flaw::Sealed, what.to_owned(), &thing);
    }

    /// Compares the list of calls with what the chain says of one.
    fn call(&mut self, id: &AuditId, call: &CallFacts) -> Result<(), AuditError> {
        let (n, of) = (call.last, Some(id.clone()));
        let Some(kept) = self.evidence.call(id)? else {
            self.verifier.find(n, of, None, Flaw::Calls, "the list of calls lacks the call".to_owned());
            return Ok(());
        };
        if let Some(what) = self.keys.call(id, call, &kept) {
            let thing = format!("{what}\n{:?} {:?}", kept.key, kept.held);
            self.verifier.find_in(n, of.clone(), None, Flaw::Keys, what.to_owned(), thing.as_bytes());
        }
        if let Some(what) = self.difference(id, call, &kept)? {
            let thing = format!("{what}\n{:?}", KeptCall { key: None, held: None, ..kept });
            self.verifier.find_in(n, of, None, Flaw::Calls, what, thing.as_bytes());
        }
        Ok(())
    }

    fn difference(
        &mut self,
        id: &AuditId,
        call: &CallFacts,
        kept: &KeptCall,
    ) -> Result<Option<String>, AuditError> {
        let differs =
            |what: &str| Ok(Some(format!("the list of calls has another {what} of the call than the chain")));
        // A value that an event does not contain cannot be compared.
        let other = |chain: &Option<String>, list: Option<&str>| chain.is_some() && chain.as_deref() != list;
        if kept.first != call.first {
            return differs("beginning");
        }
        if kept.last != call.last && !self.is_beside(id, kept.last)? {
            return differs("last entry");
        }
        if kept.at != call.at {
            return differs("time");
        }
        // One that the connector does not have is in the events alone.
        let is_unknown = kept.op.is_none() && call.code.as_deref() == Some("op_not_found");
        // A name of which nothing is left that can be written is empty in the chain, and none in the list.
        let other_op = !is_unknown && other(&call.op, Some(kept.op.as_deref().unwrap_or_default()));
        if other(&call.connector, kept.connector.as_deref()) || other_op {
            return differs("operation");
        }
        let (action, step) = (kept.action.as_deref(), kept.step.as_deref());
        let named =
            |text: &Option<String>| text.as_deref().filter(|text| !text.is_empty()).map(str::to_owned);
        if named(&call.action).as_deref() != action || named(&call.step).as_deref() != step {
            return differs("action");
        }
        if call.idempotent.is_some_and(|idempotent| idempotent != kept.idempotent) {
            return differs("word on whether it may be repeated");
        }
        if other(&call.actor, Some(&kept.actor)) {
            return differs("actor");
        }
        let status = call.status.as_deref().unwrap_or(CallStatus::Running.name());
        if kept.status.map(CallStatus::name) != Some(status) {
            return differs("outcome");
        }
        if call.class != kept.class || call.code != kept.code {
            return differs("class or code");
        }
        if kept.attempts.is_some_and(|attempts| attempts != call.attempts) {
            return differs("number of attempts");
        }
        Ok(None)
    }

    /// Returns true if this entry belongs to the call and has no events: it exists only for the sealed outcome.
    fn is_beside(&mut self, id: &AuditId, n: u64) -> Result<bool, AuditError> {
        let body = Entry::new(id, &[]);
        let there = self.evidence.chain(n, 1)?;
        Ok(there.iter().any(|kept| kept.entry.n == n && kept.entry.body == body.body()))
    }

    /// Looks for what is listed and is not in the chain.
    fn derived(&mut self) -> Result<(), AuditError> {
        // The time of the last received call serves as the current time, since clocks may differ.
        let newest = self.verifier.tally.until;
        let keys = std::mem::take(&mut self.keys);
        for (n, audit_id, what) in keys.end(self.evidence, &self.verifier.keys, newest)? {
            self.verifier.find(n, audit_id, None, Flaw::Keys, what.to_owned());
        }
        if !self.evidence.counts_hold()? {
            let what = "the statistics are not those of the calls".to_owned();
            self.verifier.find(self.verifier.n(), None, None, Flaw::Counts, what);
        }
        if self.evidence.count()? == self.verifier.calls() {
            return Ok(());
        }
        let (mut after, mut strays) = (None, 0);
        loop {
            let calls = self.evidence.calls(after.as_ref(), AT_ONCE)?;
            let Some(newest) = calls.last() else { break };
            after.clone_from(&newest.audit_id);
            for call in calls {
                if !self.is_of(&call)? && strays < STRAYS {
                    strays += 1;
                    let what = "the list of calls has a call that the chain has not".to_owned();
                    self.verifier.find(call.first, call.audit_id, None, Flaw::Calls, what);
                }
            }
            if after.is_none() {
                break;
            }
        }
        if strays == 0 {
            let what = "the list of calls has not as many calls as the chain".to_owned();
            self.verifier.find(self.verifier.n(), None, None, Flaw::Calls, what);
        }
        Ok(())
    }

    /// Returns true if the entry that is listed as its first one belongs to this call.
    fn is_of(&mut self, call: &KeptCall) -> Result<bool, AuditError> {
        let Some(id) = &call.audit_id else { return Ok(false) };
        let begins = format!("{{\"audit_id\":\"{}\",", id.as_str());
        let there = self.evidence.chain(call.first, 1)?;
        Ok(there.iter().any(|kept| kept.entry.n == call.first && kept.entry.body.starts_with(&begins)))
    }
}
