//! The lock for writing circuits, which one thread of one process holds at a time. It can be tried or waited
//! for.
//!
//! Calls do not wait: other holders release the lock within a millisecond, but a process that is suspended
//! while it holds the lock must not block calls. Waiting happens on a thread that runs no call and holds no
//! other lock.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_core::private_file::FileLock;

/// The number of tries, and the time between them, for a call: a write takes some 0.1 ms, and a call and its
/// thread are delayed by 2 ms at most.
const AT_ONCE: u32 = 8;
const GLANCE: Duration = Duration::from_micros(250);

/// The number of tries, and the time between them, for a waiting thread.
const TURNS: u32 = 200;
const POLL: Duration = Duration::from_millis(5);

/// The time during which no thread waits after one waited in vain.
const GIVEN_UP: Duration = Duration::from_secs(5);

/// The number of threads that may wait; one more gives up.
const WAITING: usize = 64;

/// The writers of this process.
#[derive(Debug, Default)]
pub(super) struct BreakerWriters {
    /// Held only while files are written, never while a thread waits.
    writing: Mutex<()>,
    waiting: AtomicUsize,
    given_up: Mutex<Option<Instant>>,
}

/// The lock, until it is dropped.
#[derive(Debug)]
pub(super) struct WriteLock<'w> {
    lock: FileLock,
    _writing: MutexGuard<'w, ()>,
}

impl WriteLock<'_> {
    /// Returns the file lock among processes.
    pub(super) fn lock(&self) -> &FileLock {
        &self.lock
    }
}

impl BreakerWriters {
    /// Tries to take the lock to write in `dir`; returns `None` if another process has it.
    pub(super) fn at_once(&self, dir: &Path) -> io::Result<Option<WriteLock<'_>>> {
        for _ in 0..AT_ONCE {
            if let Some(turn) = self.attempt(dir)? {
                return Ok(Some(turn));
            }
            std::thread::sleep(GLANCE);
        }
        Ok(None)
    }

    /// Takes the lock, waiting up to a second.
    pub(super) fn in_time(&self, dir: &Path) -> io::Result<WriteLock<'_>> {
        for _ in 0..TURNS {
            if let Some(turn) = self.attempt(dir)? {
                return Ok(turn);
            }
            std::thread::sleep(POLL);
        }
        *self.given_up() = Some(Instant::now());
        Err(io::Error::other("another process has been writing there for a second"))
    }

    /// Takes the lock like `in_time`, but gives up if many threads wait already, or if one waited in vain
    /// recently.
    pub(super) fn if_it_comes(&self, dir: &Path) -> io::Result<WriteLock<'_>> {
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

    fn attempt(&self, dir: &Path) -> io::Result<Option<WriteLock<'_>>> {
        let writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(FileLock::try_acquire(&dir.join("lock"))?.map(|lock| WriteLock { lock, _writing: writing }))
    }

    fn given_up(&self) -> MutexGuard<'_, Option<Instant>> {
        self.given_up.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
