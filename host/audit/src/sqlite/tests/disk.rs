//! A disk in memory whose power can be cut: records everything that SQLite did to it, and returns the contents
//! at any moment.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use sqlite_vfs::wip::{WalIndex, WalIndexLock};
use sqlite_vfs::{DatabaseHandle, LockKind, OpenAccess, OpenKind, OpenOptions, Vfs, register};

/// The unit that a disk writes atomically, in bytes.
const SECTOR: usize = 512;

/// The files that are there, by their names without their directory.
pub(super) type Files = BTreeMap<String, Vec<u8>>;

/// One thing that was done to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Act {
    Written {
        at: usize,
        bytes: Vec<u8>,
    },
    Sized(usize),
    Removed,
    Synced,
    /// The directory was: names that went are gone for good. SQLite does it with the first sync of a log or journal.
    Named,
}

#[derive(Default)]
struct Past {
    /// As the living process sees them.
    now: Files,
    acts: Vec<(String, Act)>,
}

/// The disk. Its clones are the same one.
#[derive(Clone, Default)]
pub(super) struct Disk(Arc<Mutex<Past>>);

impl Disk {
    /// An empty disk that SQLite knows by this name from now on.
    pub(super) fn mounted(name: &'static str) -> Self {
        let disk = Self::default();
        register(name, disk.clone(), false).unwrap();
        disk
    }

    fn past(&self) -> MutexGuard<'_, Past> {
        self.0.lock().unwrap()
    }

    fn act(&self, file: &str, act: Act) {
        let mut past = self.past();
        apply(&mut past.now, file, &act, &mut |_| true);
        past.acts.push((file.to_owned(), act));
    }

    /// Returns the number of acts until now.
    pub(super) fn acts(&self) -> usize {
        self.past().acts.len()
    }

    /// When anything was done that `which` asks for.
    pub(super) fn when(&self, which: impl Fn(&str, &Act) -> bool) -> Vec<usize> {
        let past = self.past();
        past.acts
            .iter()
            .enumerate()
            .filter(|(_, (file, act))| which(file, act))
            .map(|(when, _)| when)
            .collect()
    }

    /// Returns the files that are left if the power fails after so many acts: each file as it was when it was
    /// last synced. Each sector of a later act is applied with the probability `kept`, whatever the order.
    pub(super) fn cut(&self, after: usize, kept: f64, lots: &mut fastrand::Rng) -> Files {
        let past = self.past();
        let mut left = Files::new();
        let mut waiting_of: Waiting<'_> = BTreeMap::new();
        for (file, act) in &past.acts[..after] {
            match act {
                Act::Synced => {
                    let waiting = waiting_of.remove(file.as_str()).unwrap_or_default();
                    waiting.into_iter().for_each(|act| apply(&mut left, file, act, &mut |_| true));
                    // A file that was synced is there, even with nothing in it.
                    left.entry(file.clone()).or_default();
                }
                Act::Named => gone(&mut waiting_of, &mut left),
                act => waiting_of.entry(file).or_default().push(act),
            }
        }
        for (file, acts) in waiting_of {
            for act in acts {
                let removed = *act == Act::Removed;
                let mut stays = |_| lots.f64() < kept;
                if removed && !stays(0) {
                    // Later writes went to another file, which no name on the disk refers to.
                    break;
                }
                apply(&mut left, file, act, &mut stays);
            }
        }
        left
    }
}

/// The acts on each file that are not on the disk yet.
type Waiting<'a> = BTreeMap<&'a str, Vec<&'a Act>>;

/// Deletes removed files permanently; their earlier contents do not matter any more.
fn gone(waiting_of: &mut Waiting<'_>, left: &mut Files) {
    for (file, acts) in waiting_of {
        if let Some(removed) = acts.iter().rposition(|act| **act == Act::Removed) {
            acts.drain(..=removed);
            left.remove(*file);
        }
    }
}

/// Does it to the file; of what is written, the sectors for which `stays` says so.
fn apply(files: &mut Files, file: &str, act: &Act, stays: &mut dyn FnMut(usize) -> bool) {
    match act {
        Act::Removed => {
            files.remove(file);
        }
        Act::Sized(size) => {
            if stays(0) {
                files.entry(file.to_owned()).or_default().resize(*size, 0);
            }
        }
        Act::Written { at, bytes } => {
            let content = files.entry(file.to_owned()).or_default();
            let mut done = 0;
            while done < bytes.len() {
                let from = at + done;
                // Up to the end of the sector.
                let len = (SECTOR - from % SECTOR).min(bytes.len() - done);
                if stays(from) {
                    content.resize(content.len().max(from + len), 0);
                    content[from..from + len].copy_from_slice(&bytes[done..done + len]);
                }
                done += len;
            }
        }
        Act::Synced | Act::Named => {}
    }
}

/// A name without its directory.
fn name(path: &str) -> String {
    Path::new(path).file_name().unwrap().to_str().unwrap().to_owned()
}

impl Vfs for Disk {
    type Handle = Opened;

    fn open(&self, path: &str, options: OpenOptions) -> io::Result<Opened> {
        let file = name(path);
        let mut past = self.past();
        let there = past.now.contains_key(&file);
        match options.access {
            // The record makes its file before SQLite sees it.
            OpenAccess::Read | OpenAccess::Write if !there && !Path::new(path).exists() => {
                return Err(ErrorKind::NotFound.into());
            }
            OpenAccess::CreateNew if there => return Err(ErrorKind::AlreadyExists.into()),
            _ => {}
        }
        past.now.entry(file.clone()).or_default();
        drop(past);
        if options.kind == OpenKind::MainDb {
            // The file that the log created stands in for this one; it is checked at times for existence and
            // size.
            std::fs::write(path, "elsewhere")?;
        }
        let unnamed = !there && options.kind != OpenKind::MainDb;
        Ok(Opened { disk: self.clone(), file, lock: LockKind::None, unnamed })
    }

    fn delete(&self, path: &str) -> io::Result<()> {
        let file = name(path);
        match self.past().now.contains_key(&file) {
            true => {}
            false => return Err(ErrorKind::NotFound.into()),
        }
        self.act(&file, Act::Removed);
        Ok(())
    }

    fn exists(&self, path: &str) -> io::Result<bool> {
        Ok(self.past().now.contains_key(&name(path)))
    }

    fn temporary_name(&self) -> String {
        unreachable!("the record keeps what is temporary in memory")
    }

    fn random(&self, buffer: &mut [i8]) {
        buffer.fill_with(|| fastrand::i8(..));
    }

    fn sleep(&self, duration: Duration) -> Duration {
        std::thread::sleep(duration);
        duration
    }
}

/// A file of the disk, open in its only process.
pub(super) struct Opened {
    disk: Disk,
    file: String,
    lock: LockKind,
    /// True if its name is not on the disk yet.
    unnamed: bool,
}

impl DatabaseHandle for Opened {
    type WalIndex = Alone;

    fn size(&self) -> io::Result<u64> {
        Ok(self.disk.past().now.get(&self.file).map_or(0, |bytes| bytes.len() as u64))
    }

    fn read_exact_at(&mut self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        let past = self.disk.past();
        let bytes = past.now.get(&self.file).map_or(&[][..], Vec::as_slice);
        let there = bytes.get(usize::try_from(at).unwrap()..).unwrap_or_default();
        let len = there.len().min(buffer.len());
        buffer[..len].copy_from_slice(&there[..len]);
        // SQLite relies on it.
        buffer[len..].fill(0);
        if len < buffer.len() { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    fn write_all_at(&mut self, bytes: &[u8], at: u64) -> io::Result<()> {
        let at = usize::try_from(at).unwrap();
        self.disk.act(&self.file, Act::Written { at, bytes: bytes.to_owned() });
        Ok(())
    }

    fn sync(&mut self, _: bool) -> io::Result<()> {
        self.disk.act(&self.file, Act::Synced);
        if std::mem::take(&mut self.unnamed) {
            self.disk.act(&self.file, Act::Named);
        }
        Ok(())
    }

    fn set_len(&mut self, size: u64) -> io::Result<()> {
        self.disk.act(&self.file, Act::Sized(usize::try_from(size).unwrap()));
        Ok(())
    }

    fn lock(&mut self, lock: LockKind) -> io::Result<bool> {
        self.lock = lock;
        Ok(true)
    }

    fn reserved(&mut self) -> io::Result<bool> {
        Ok(matches!(self.lock, LockKind::Reserved | LockKind::Pending | LockKind::Exclusive))
    }

    fn current_lock(&self) -> io::Result<LockKind> {
        Ok(self.lock)
    }

    fn wal_index(&self, _: bool) -> io::Result<Alone> {
        Ok(Alone)
    }
}

/// The index of a write-ahead log with one user, which needs no lock. It is on no disk.
pub(super) struct Alone;

impl WalIndex for Alone {
    fn map(&mut self, _: u32) -> io::Result<[u8; 32768]> {
        Ok([0; 32768])
    }

    fn lock(&mut self, _: Range<u8>, _: WalIndexLock) -> io::Result<bool> {
        Ok(true)
    }

    fn delete(self) -> io::Result<()> {
        Ok(())
    }
}
