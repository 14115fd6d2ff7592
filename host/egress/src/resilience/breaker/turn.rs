//! Whose turn it is to write circuits: one thread of one process, which is asked for at once or waited for.
//!
//! Calls do not wait: others hold the turn for less than a millisecond, but one that is stopped while it does must
//! stop nobody. Who waits does so on a thread on which no call runs, and holds nothing meanwhile.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_core::private_file::FileLock;

/// How often, and how long apart, the turn is asked for by a call: a write takes some 0.1 ms, and 2 ms are the most
/// that a call, and the thread that it runs on, is held up.
const AT_ONCE: u32 = 8;
const GLANCE: Duration = Duration::from_micros(250);

/// How often, and how long apart, it is asked for by who does.
const TURNS: u32 = 200;
const POLL: Duration = Duration::from_millis(5);

/// How long nobody waits once somebody did so in vain.
const GIVEN_UP: Duration = Duration::from_secs(5);

/// Threads that may wait; one more gives up.
const WAITING: usize = 64;

/// The writers of this process.
#[derive(Debug, Default)]
pub(super) struct Writers {
    /// Held only while files are written, never while somebody waits.
    writing: Mutex<()>,
    waiting: AtomicUsize,
    given_up: Mutex<Option<Instant>>,
}

/// The turn, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn<'w> {
    lock: FileLock,
    _writing: MutexGuard<'w, ()>,
}

impl Turn<'_> {
    /// The lock among processes.
    pub(super) fn lock(&self) -> &FileLock {
        &self.lock
    }
}

impl Writers {
    /// The turn to write in `dir`; none where another process has it.
    pub(super) fn at_once(&self, dir: &Path) -> io::Result<Option<Turn<'_>>> {
        for _ in 0..AT_ONCE {
            if let Some(turn) = self.attempt(dir)? {
                return Ok(Some(turn));
            }
            std::thread::sleep(GLANCE);
        }
        Ok(None)
    }

    /// The same, waited for up to a second.
    pub(super) fn in_time(&self, dir: &Path) -> io::Result<Turn<'_>> {
        for _ in 0..TURNS {
            if let Some(turn) = self.attempt(dir)? {
                return Ok(turn);
            }
            std::thread::sleep(POLL);
        }
        *self.given_up() = Some(Instant::now());
        Err(io::Error::other("another process has been writing there for a second"))
    }

    /// The same for who would rather not have it than be one of many that wait, or wait where it is in vain.
    pub(super) fn if_it_comes(&self, dir: &Path) -> io::Result<Turn<'_>> {
        if let Some(turn) = self.at_once(dir)? {
            return Ok(turn);
        }
        let is_in_vain = self.given_up().is_some_and(|at| at.elapsed() < GIVEN_UP);
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let turn = match is_in_vain || before >= WAITING {
            true => Err(io::Error::other("another process is writing there, and nobody waits for it now")),
            false => self.in_time(dir),
        };
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        turn
    }

    fn attempt(&self, dir: &Path) -> io::Result<Option<Turn<'_>>> {
        let writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(FileLock::try_acquire(&dir.join("lock"))?.map(|lock| Turn { lock, _writing: writing }))
    }

    fn given_up(&self) -> MutexGuard<'_, Option<Instant>> {
        self.given_up.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
