//! The content of `home.state`, its text form, and the comparison with the files.

use std::fmt::Write as _;

/// First line of the file.
const ORIGIN: &str = "cofferdam home state 1";

/// The lowest counter if no vault is expected.
const NO_VAULT: &str = "none";

/// The stored progress of the audit log and the vault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HomeProgress {
    /// `None` while the home has no log.
    pub log: Option<LogProgress>,
    /// `None` while the home has no vault.
    pub vault: Option<VaultProgress>,
}

/// The progress of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogProgress {
    /// The size of the log in its newest checkpoint.
    pub n: u64,
    /// The SHA-256 of what that checkpoint says of the journals.
    pub hash: [u8; 32],
    /// The largest size that any log of this home ever had. It can be above `n` after a loss was accepted.
    pub highest: u64,
}

/// The progress of the vault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VaultProgress {
    /// The lowest counter of a vault that may be used. `None` after the operator accepted that there is no
    /// vault.
    pub(crate) least: Option<u64>,
    /// The highest counter that any vault of this home ever had. It is above `least` after a loss was accepted.
    pub highest: u64,
}

/// The counters in a vault's header: its own, and the log's progress when it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VaultMark {
    /// The number of the vault's change.
    pub counter: u64,
    /// The largest size of the log by then.
    pub log: u64,
}

/// The file that is missing, or older than it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the text of each variant is its documentation")]
pub enum StateLoss {
    #[error("home.state is missing, although the audit log or the vault was written with it")]
    StateMissing,
    #[error("home.state was changed, or was sealed with another host.key")]
    StateInvalid,
    #[error("home.state is older than the audit log or the vault")]
    StateOlder,
    #[error("the audit log is missing or older than this home remembers: at least {0} entries were written")]
    LogOlder(u64),
    #[error("the audit log is not the one that this home remembers: it differs at {0}")]
    LogOther(u64),
    #[error("the database of the audit log was restored from a dump, and may lack what was recorded since")]
    LogRestored,
    #[error("a host has found that the database of the audit log is older than it was")]
    LogLossFound,
    #[error("the vault is missing: home.state says that there is one")]
    VaultMissing,
    #[error("the vault cannot be compared with home.state: it is damaged, or not this user's alone")]
    VaultUnusable,
    #[error("the vault is older than home.state says: it is at change {found}, and was at {remembered}")]
    VaultOlder { remembered: u64, found: u64 },
}

impl HomeProgress {
    /// Compares the existing vault, by its header, with the stored progress.
    pub fn vault_loss(&self, found: Option<VaultMark>) -> Option<StateLoss> {
        let least = self.vault.and_then(|vault| vault.least);
        let Some(mark) = found else { return least.map(|_| StateLoss::VaultMissing) };
        if let Some(remembered) = least.filter(|least| mark.counter < *least) {
            return Some(StateLoss::VaultOlder { remembered, found: mark.counter });
        }
        let highest = self.vault.map_or(0, |vault| vault.highest);
        // Its own counter may be ahead by the one write that a crash interrupted.
        let is_older =
            mark.log > self.log.map_or(0, |log| log.highest) || mark.counter > highest.saturating_add(1);
        is_older.then_some(StateLoss::StateOlder)
    }

    /// Returns whether a vault should exist by the stored progress.
    pub(super) fn expects_vault(&self) -> bool {
        self.vault.is_some_and(|vault| vault.least.is_some())
    }

    /// Returns the counters for the next version of the vault.
    pub fn next_mark(&self, found: Option<VaultMark>) -> VaultMark {
        let highest = self.vault.map_or(0, |vault| vault.highest).max(found.map_or(0, |mark| mark.counter));
        VaultMark { counter: highest.saturating_add(1), log: self.log.map_or(0, |log| log.highest) }
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!("{ORIGIN}\n");
        if let Some(LogProgress { n, hash, highest }) = self.log {
            let _ = write!(text, "log {n} {highest} ");
            hash.iter().for_each(|byte| {
                let _ = write!(text, "{byte:02x}");
            });
            text.push('\n');
        }
        if let Some(VaultProgress { least, highest }) = self.vault {
            let least = least.map_or_else(|| NO_VAULT.to_owned(), |least| least.to_string());
            let _ = writeln!(text, "vault {least} {highest}");
        }
        text
    }

    /// Parses the text; `None` if it is not exactly the output of [`text`](Self::text).
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        lines.next().filter(|origin| *origin == ORIGIN)?;
        let mut progress = Self::default();
        for line in lines {
            let mut words = line.split(' ');
            let (what, first, highest) = (words.next()?, words.next()?, words.next()?.parse().ok()?);
            match what {
                "log" => {
                    let (n, hash) = (first.parse().ok()?, hash(words.next()?)?);
                    progress.log = Some(LogProgress { n, hash, highest });
                }
                "vault" => {
                    let least = if first == NO_VAULT { None } else { Some(first.parse().ok()?) };
                    progress.vault = Some(VaultProgress { least, highest });
                }
                _ => return None,
            }
        }
        (progress.text() == text).then_some(progress)
    }
}

fn hash(text: &str) -> Option<[u8; 32]> {
    let bytes = text.as_bytes().chunks(2);
    let bytes = bytes.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    bytes.collect::<Option<Vec<u8>>>()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn progress_round_trips() {
        let log = Some(LogProgress { n: 7, hash: [0xab; 32], highest: 9 });
        let vault = Some(VaultProgress { least: Some(3), highest: 4 });
        let gone = Some(VaultProgress { least: None, highest: 4 });
        for progress in [
            HomeProgress::default(),
            HomeProgress { log, vault },
            HomeProgress { log, vault: None },
            HomeProgress { log: None, vault },
            HomeProgress { log, vault: gone },
        ] {
            assert_eq!(HomeProgress::parse(&progress.text()), Some(progress));
        }
        for text in ["", "cofferdam home state 1\nvault 1\n", "cofferdam home state 1\nvault 01 2\n", "x\n"] {
            assert_eq!(HomeProgress::parse(text), None, "{text}");
        }
    }

    #[test]
    fn an_older_vault_and_an_older_state_are_losses() {
        let log = Some(LogProgress { n: 7, hash: [1; 32], highest: 9 });
        let state = HomeProgress { log, vault: Some(VaultProgress { least: Some(3), highest: 4 }) };
        let found = |counter, log| state.vault_loss(Some(VaultMark { counter, log }));
        assert_eq!(state.vault_loss(None), Some(StateLoss::VaultMissing));
        assert_eq!(found(2, 0), Some(StateLoss::VaultOlder { remembered: 3, found: 2 }));
        assert_eq!([found(3, 0), found(4, 9), found(5, 9)], [None; 3]);
        assert_eq!([found(6, 0), found(4, 10)], [Some(StateLoss::StateOlder); 2]);
        let accepted = HomeProgress { vault: Some(VaultProgress { least: None, highest: 4 }), ..state };
        assert_eq!(accepted.vault_loss(None), None);
        assert_eq!(state.next_mark(Some(VaultMark { counter: 3, log: 0 })), VaultMark { counter: 5, log: 9 });
    }
}
