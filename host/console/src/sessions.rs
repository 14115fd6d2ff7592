//! Access to the console: a link that works once, and the sessions of browsers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_core::clock::Clock;
use cofferdam_core::digest::Digest;
use cofferdam_core::error::{HostError, HostErrorKind};

/// The time for which a link works.
pub const LINK_LIFETIME: Duration = Duration::from_secs(5 * 60);

/// The time after which a session ends, unless another one is chosen.
pub const SESSION_LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);

/// The most sessions at once. A new one ends the oldest.
const SESSIONS: usize = 64;

/// The right of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionRight {
    /// It reads.
    Read,
    /// It reads, and answers calls that wait for a person.
    Answer,
}

/// The sessions of a console, and its links. Of their secrets it has digests only.
pub(crate) struct Sessions {
    clock: Arc<dyn Clock>,
    lifetime: Duration,
    state: Mutex<SessionState>,
}

#[derive(Default)]
struct SessionState {
    /// At most one of each right.
    links: Vec<Expiring>,
    /// The oldest first.
    sessions: Vec<Expiring>,
}

/// The digest of a secret that is valid until some time.
struct Expiring {
    digest: Digest,
    right: SessionRight,
    until: Instant,
}

impl Expiring {
    fn is(&self, secret: &str, now: Instant) -> bool {
        self.digest.is_of_secret(secret.as_bytes()) && now < self.until
    }
}

impl Sessions {
    pub(crate) fn new(clock: Arc<dyn Clock>, lifetime: Duration) -> Self {
        Self { clock, lifetime, state: Mutex::default() }
    }

    /// Returns the time after which a session ends.
    pub(crate) fn lifetime(&self) -> Duration {
        self.lifetime
    }

    /// Creates the secret of a link whose session has this right. An earlier link of this right ends.
    ///
    /// # Errors
    /// `internal`: the system has no randomness.
    pub(crate) fn new_link(&self, right: SessionRight) -> Result<String, HostError> {
        let (text, digest) = secret()?;
        let link = Expiring { digest, right, until: self.clock.now() + LINK_LIFETIME };
        let mut state = self.state();
        state.links.retain(|link| link.right != right);
        state.links.push(link);
        Ok(text)
    }

    /// Begins a session if this is the secret of a link, which ends. Returns the secret of the session.
    pub(crate) fn open(&self, link: &str) -> Option<String> {
        let now = self.clock.now();
        let mut state = self.state();
        let at = state.links.iter().position(|own| own.is(link, now))?;
        let Expiring { right, .. } = state.links.remove(at);
        let (text, digest) = secret().ok()?;
        state.sessions.retain(|session| now < session.until);
        if state.sessions.len() >= SESSIONS {
            state.sessions.remove(0);
        }
        state.sessions.push(Expiring { digest, right, until: now + self.lifetime });
        Some(text)
    }

    /// Returns the right of the session with this secret, if it has not ended.
    pub(crate) fn right_of(&self, session: &str) -> Option<SessionRight> {
        let now = self.clock.now();
        self.state().sessions.iter().find(|own| own.is(session, now)).map(|own| own.right)
    }

    /// Ends a session.
    pub(crate) fn close(&self, session: &str) {
        self.state().sessions.retain(|own| !own.digest.is_of_secret(session.as_bytes()));
    }

    fn state(&self) -> std::sync::MutexGuard<'_, SessionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the token that the forms of a session have: a page of another origin cannot know it.
pub(crate) fn form_token(session: &str) -> String {
    Digest::sha256(format!("form of {session}").as_bytes()).to_string()
}

/// Returns true if this is the token of the forms of `session`.
pub(crate) fn is_form_token(session: &str, given: &str) -> bool {
    Digest::sha256(form_token(session).as_bytes()).is_of_secret(given.as_bytes())
}

/// Returns a random text of 64 digits, and its digest.
fn secret() -> Result<(String, Digest), HostError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| {
        HostError::new(HostErrorKind::Internal, "The system has no randomness.").with_source(error)
    })?;
    let text = Digest::from_bytes(bytes).to_string();
    let digest = Digest::sha256(text.as_bytes());
    Ok((text, digest))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use cofferdam_test_support::ManualClock;

    use super::SessionRight::{Answer, Read};
    use super::*;

    fn sessions() -> (Arc<ManualClock>, Sessions) {
        let clock = ManualClock::new();
        (Arc::clone(&clock), Sessions::new(clock, SESSION_LIFETIME))
    }

    #[test]
    fn a_link_works_once() {
        let (_, sessions) = sessions();
        let link = sessions.new_link(Read).unwrap();
        for wrong in ["", "x", &link[1..], &link.to_uppercase()] {
            assert!(sessions.open(wrong).is_none(), "{wrong}");
        }
        let session = sessions.open(&link).unwrap();
        assert_eq!(sessions.right_of(&session), Some(Read));
        assert!([&*link, ""].iter().all(|wrong| sessions.right_of(wrong).is_none()));
        assert!(sessions.open(&link).is_none(), "a second time");
        sessions.close(&session);
        assert!(sessions.right_of(&session).is_none());
    }

    #[test]
    fn a_link_ends_after_five_minutes() {
        let (clock, sessions) = sessions();
        let link = sessions.new_link(Read).unwrap();
        clock.skip(LINK_LIFETIME);
        assert!(sessions.open(&link).is_none());
        let (first, second) = (sessions.new_link(Read).unwrap(), sessions.new_link(Read).unwrap());
        clock.skip(LINK_LIFETIME - Duration::from_secs(1));
        assert!(sessions.open(&first).is_none() && sessions.open(&second).is_some());
    }

    #[test]
    fn a_session_has_the_right_of_its_link() {
        let (_, sessions) = sessions();
        let (read, answer) = (sessions.new_link(Read).unwrap(), sessions.new_link(Answer).unwrap());
        for (link, right) in [(read, Read), (answer, Answer)] {
            let session = sessions.open(&link).unwrap();
            assert_eq!(sessions.right_of(&session), Some(right));
        }
    }

    #[test]
    fn a_session_ends_after_its_lifetime() {
        let (clock, sessions) = sessions();
        let session = sessions.open(&sessions.new_link(Read).unwrap()).unwrap();
        clock.skip(SESSION_LIFETIME - Duration::from_secs(1));
        assert!(sessions.right_of(&session).is_some());
        clock.skip(Duration::from_secs(1));
        assert!(sessions.right_of(&session).is_none());
    }

    #[test]
    fn the_number_of_sessions_is_bounded() {
        let (_, sessions) = sessions();
        let open = || sessions.open(&sessions.new_link(Read).unwrap()).unwrap();
        let first = open();
        let others: Vec<_> = (0..SESSIONS).map(|_| open()).collect();
        assert!(
            sessions.right_of(&first).is_none() && others.iter().all(|it| sessions.right_of(it).is_some())
        );
    }

    #[test]
    fn a_form_token_is_that_of_its_session() {
        assert!(is_form_token("a", &form_token("a")));
        assert!(!is_form_token("b", &form_token("a")) && !is_form_token("a", "a") && !is_form_token("a", ""));
    }
}
