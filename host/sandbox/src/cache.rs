//! Compiled code on disk, bound to the component it came from by a keyed MAC.
//!
//! Native code is as dangerous as the host itself: write access to it allows running anything. So an entry is
//! loaded only when its MAC, under a key that only this host has, covers the component's digest, the engine's
//! fingerprint and the code. Anything else is compiled again and reported, on the `tracing` target
//! `cofferdam::cache`; a wrong entry is never an error to the user and never a load. This file holds the only
//! `unsafe` of the crate.
//!
//! An entry is read into memory and copied from there, never mapped: the MAC would not cover a change of a
//! mapped file after the check.
//!
//! Several processes share the directory without a lock: an entry appears by one rename, so it is complete or
//! absent, and a process that has it open can go on reading after another has removed it.
#![allow(unsafe_code, reason = "deserialising native code; see `TrustedCode`")]

use std::fs;
use std::hash::{Hash, Hasher};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use cofferdam_core::digest::Digest;
use cofferdam_core::failure::sanitize_line;
use cofferdam_core::host_key::hmac;
use cofferdam_core::private_file::{self, FileError, FileFault, FilePolicy, StagedFile};
use hmac::{Hmac, Mac};
use sha2::{Digest as _, Sha256};
use wasmtime::Engine;
use wasmtime::component::Component;

/// Native code that this host's own compiler made: it came from the worker's pipe, from the compiler in this
/// process, or from the cache with a MAC that verifies. There is no other way to create one.
pub(super) struct TrustedCode(Vec<u8>);

impl TrustedCode {
    /// Wraps code from the compiler in this process.
    pub(super) fn compiled_here(code: Vec<u8>) -> Self {
        Self(code)
    }

    /// Wraps code from the pipe of a worker that this process started.
    pub(super) fn from_worker(code: Vec<u8>) -> Self {
        Self(code)
    }

    /// Makes the code runnable.
    pub(super) fn load(&self, engine: &Engine) -> wasmtime::Result<Component> {
        // SAFETY: the bytes are what `Engine::precompile_component` of this version of wasmtime wrote:
        // a `TrustedCode` is made only from a compiler's own output, or from a file whose MAC under the
        // host's key covers the code, the component and the engine. wasmtime checks version and
        // configuration itself.
        unsafe { Component::deserialize(engine, &self.0) }
    }
}

const MAC_BYTES: usize = 32;
const ENTRY: &str = "cwasm";
/// The age after which no process is still writing a temporary file: its writer was killed.
const STALE_FILE_AGE: Duration = Duration::from_secs(600);

/// The directory of compiled code.
#[derive(Debug, Clone)]
pub(super) struct CodeCache {
    dir: PathBuf,
    most: u64,
    key: [u8; 32],
    fingerprint: [u8; 32],
}

impl CodeCache {
    /// A cache in `dir` of at most `most` bytes, under a key derived from the host's.
    pub(super) fn new(dir: PathBuf, most: u64, host_key: &[u8; 32], engine: &Engine) -> Self {
        let mut fingerprint = CodeFingerprint(Sha256::new());
        engine.precompile_compatibility_hash().hash(&mut fingerprint);
        Self::with_fingerprint(dir, most, host_key, fingerprint.0.finalize().into())
    }

    fn with_fingerprint(dir: PathBuf, most: u64, host_key: &[u8; 32], fingerprint: [u8; 32]) -> Self {
        let mut mac = hmac(host_key);
        mac.update(b"cofferdam compiled code v1");
        Self { dir, most, key: mac.finalize().into_bytes().into(), fingerprint }
    }

    /// Returns the code compiled from the component with this digest, if there is an entry with a valid MAC.
    pub(super) fn get(&self, component: &Digest) -> Option<TrustedCode> {
        match self.read(component) {
            Ok(code) => Some(TrustedCode(code)),
            Err(CacheMiss::Absent) => None,
            Err(CacheMiss::Wrong(what)) => {
                rejected(component, what, "");
                None
            }
            Err(CacheMiss::Refused(fault)) => {
                rejected(component, &fault.to_string(), "");
                None
            }
            Err(CacheMiss::Unreadable(error)) => {
                rejected(component, "cannot be read", &error.to_string());
                None
            }
        }
    }

    fn read(&self, component: &Digest) -> Result<Vec<u8>, CacheMiss> {
        let policy = FilePolicy::trusted(self.most);
        let file = private_file::open(&self.path(component), &policy)?.ok_or(CacheMiss::Absent)?;
        let size = file.size();
        let mut file = file.into_file();
        let mut tag = [0u8; MAC_BYTES];
        let length = size.checked_sub(MAC_BYTES as u64).ok_or(CacheMiss::Wrong("is cut short"))?;
        file.read_exact(&mut tag)?;
        let mut code = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
        (&mut file).take(length).read_to_end(&mut code)?;
        if self.mac(component, &code).verify_slice(&tag).is_err() {
            return Err(CacheMiss::Wrong("is not what this host wrote"));
        }
        // Marks the entry as used now, so that it is evicted last. If this fails, it is evicted sooner.
        drop(file.set_modified(SystemTime::now()));
        Ok(code)
    }

    /// Stores `code`, best effort: a failed write only costs time.
    pub(super) fn put(&self, component: &Digest, code: &TrustedCode) {
        if let Err(error) = self.write(component, code) {
            tracing::warn!(
                target: "cofferdam::cache", component = %component, reason = %error,
                "compiled code could not be kept; the next start compiles again"
            );
        }
    }

    /// Returns true if there is an entry, valid or not.
    pub(super) fn has(&self, component: &Digest) -> bool {
        self.path(component).is_file()
    }

    /// Removes the entry of a component that was removed.
    pub(super) fn forget(&self, component: &Digest) {
        // A missing entry is the desired result; an entry that remains only costs disk space.
        drop(fs::remove_file(self.path(component)));
    }

    fn write(&self, component: &Digest, code: &TrustedCode) -> io::Result<()> {
        let size = (code.0.len() + MAC_BYTES) as u64;
        if size > self.most {
            return Err(io::Error::other(format!(
                "it has {size} bytes, and the cache may have {}",
                self.most
            )));
        }
        private_file::create_dir(&self.dir)?;
        let path = self.path(component);
        self.make_room(size, &path)?;
        let mut file = StagedFile::begin(&path, &FilePolicy::secret(self.most))?.without_sync();
        file.write_all(&self.mac(component, &code.0).finalize().into_bytes())?;
        file.write_all(&code.0)?;
        // A directory in this place was never written by the cache.
        if path.is_dir() {
            fs::remove_dir_all(&path)?;
        }
        Ok(file.replace()?)
    }

    /// Removes the least recently used entries until an entry of `size` bytes fits, and the leftovers of
    /// killed writers.
    fn make_room(&self, size: u64, but: &Path) -> io::Result<()> {
        let now = SystemTime::now();
        let mut entries = Vec::new();
        for entry in fs::read_dir(&self.dir)?.flatten() {
            let path = entry.path();
            let Ok(metadata) = entry.metadata() else { continue };
            let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let old = now.duration_since(used).is_ok_and(|age| age > STALE_FILE_AGE);
            if entry.file_name().to_string_lossy().starts_with(StagedFile::PREFIX) {
                if old {
                    drop(fs::remove_file(&path));
                }
            } else if metadata.is_file() && path.extension().is_some_and(|it| it == ENTRY) && path != but {
                entries.push((used, metadata.len(), path));
            }
        }
        entries.sort();
        let mut total = entries.iter().fold(size, |total, (_, size, _)| total.saturating_add(*size));
        for (_, size, path) in entries {
            if total <= self.most {
                break;
            }
            // Missing if another process evicts at the same time.
            drop(fs::remove_file(path));
            total = total.saturating_sub(size);
        }
        Ok(())
    }

    fn path(&self, component: &Digest) -> PathBuf {
        let engine: String = self.fingerprint.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        self.dir.join(format!("{component}-{engine}.{ENTRY}"))
    }

    fn mac(&self, component: &Digest, code: &[u8]) -> Hmac<Sha256> {
        let mut mac = hmac(&self.key);
        mac.update(component.as_bytes());
        mac.update(&self.fingerprint);
        mac.update(code);
        mac
    }
}

/// The reason why an entry is not used.
enum CacheMiss {
    Absent,
    Wrong(&'static str),
    Refused(FileFault),
    Unreadable(io::Error),
}

impl From<FileError> for CacheMiss {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Refused(fault) => Self::Refused(fault),
            error => io::Error::from(error).into(),
        }
    }
}

impl From<io::Error> for CacheMiss {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::NotFound { Self::Absent } else { Self::Unreadable(error) }
    }
}

/// Reports an entry that is not used: it was written by another program or damaged on disk.
pub(super) fn rejected(component: &Digest, what: &str, detail: &str) {
    tracing::warn!(
        target: "cofferdam::cache", component = %component, entry = what,
        reason = (!detail.is_empty()).then(|| sanitize_line(detail, 300)),
        "compiled code on disk {what}; compiling again"
    );
}

/// Feeds what wasmtime hashes of its configuration into SHA-256.
struct CodeFingerprint(Sha256);

impl Hasher for CodeFingerprint {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let digest: [u8; 32] = self.0.clone().finalize().into();
        digest.first_chunk().map_or(0, |head| u64::from_be_bytes(*head))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const KIB: usize = 1024;

    fn cache(dir: &Path, most: u64) -> CodeCache {
        CodeCache::with_fingerprint(dir.join("cache"), most, &[1; 32], [2; 32])
    }

    fn code(byte: u8, size: usize) -> TrustedCode {
        TrustedCode(vec![byte; size])
    }

    fn digest(name: &str) -> Digest {
        Digest::sha256(name.as_bytes())
    }

    #[test]
    fn an_entry_is_bound_to_component_engine_and_key() {
        let home = tempfile::tempdir().unwrap();
        let ours = cache(home.path(), 1 << 20);
        ours.put(&digest("one"), &code(7, 100));
        assert_eq!(ours.get(&digest("one")).unwrap().0, [7; 100]);
        assert!(ours.get(&digest("two")).is_none());
        fs::copy(ours.path(&digest("one")), ours.path(&digest("two"))).unwrap();
        assert!(ours.get(&digest("two")).is_none());
        let other_engine = CodeCache { fingerprint: [3; 32], ..ours.clone() };
        fs::copy(ours.path(&digest("one")), other_engine.path(&digest("one"))).unwrap();
        assert!(other_engine.get(&digest("one")).is_none());
        let other_host = CodeCache::with_fingerprint(home.path().join("cache"), 1 << 20, &[9; 32], [2; 32]);
        assert!(other_host.get(&digest("one")).is_none());
        assert!(ours.get(&digest("one")).is_some(), "nobody touched it");
    }

    #[test]
    fn a_changed_cache_entry_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let (cache, one) = (cache(home.path(), 1 << 20), digest("one"));
        cache.put(&one, &code(7, 100));
        let (path, good) = (cache.path(&one), fs::read(cache.path(&one)).unwrap());
        for at in 0..good.len() {
            let flipped = good.iter().enumerate().map(|(i, byte)| if i == at { byte ^ 1 } else { *byte });
            fs::write(&path, flipped.collect::<Vec<_>>()).unwrap();
            assert!(cache.get(&one).is_none(), "byte {at}");
            fs::write(&path, good.get(..at).unwrap()).unwrap();
            assert!(cache.get(&one).is_none(), "{at} bytes");
        }
        fs::write(&path, [&good[..], b"x"].concat()).unwrap();
        assert!(cache.get(&one).is_none());
        fs::write(&path, &good).unwrap();
        assert!(cache.get(&one).is_some());
    }

    #[test]
    fn special_files_are_replaced_without_reading() {
        let home = tempfile::tempdir().unwrap();
        let (cache, one) = (cache(home.path(), 1 << 20), digest("one"));
        cache.put(&one, &code(7, 100));
        let path = cache.path(&one);
        let elsewhere = home.path().join("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();
        let pipe = |path: &Path| {
            let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
            rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).unwrap();
        };
        let link = |path: &Path| std::os::unix::fs::symlink(&elsewhere, path).unwrap();
        let directory = |path: &Path| fs::create_dir_all(path.join("deep")).unwrap();
        let others: [&dyn Fn(&Path); 3] = [&pipe, &link, &directory];
        for make in others {
            make(&path);
            assert!(cache.get(&one).is_none());
            cache.put(&one, &code(8, 100));
            assert_eq!(cache.get(&one).unwrap().0, [8; 100]);
            fs::remove_file(&path).unwrap();
        }
        assert_eq!(fs::read(&elsewhere).unwrap().len(), 132, "what the link points to is left alone");
    }

    #[test]
    fn cache_entries_are_private() {
        let home = tempfile::tempdir().unwrap();
        let cache = cache(home.path(), 1 << 20);
        cache.put(&digest("one"), &code(7, 100));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&cache.dir), mode(&cache.path(&digest("one")))), (0o700, 0o600));
    }

    #[test]
    fn the_cache_evicts_the_least_recently_used() {
        let home = tempfile::tempdir().unwrap();
        let cache = cache(home.path(), (35 * KIB) as u64);
        let age = |name: &str, seconds: u64| {
            let file = fs::File::open(cache.path(&digest(name))).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
        };
        for (at, name) in ["a", "b", "c"].into_iter().enumerate() {
            cache.put(&digest(name), &code(1, 10 * KIB));
            age(name, 1000 - at as u64);
        }
        assert!(cache.get(&digest("a")).is_some(), "and now it was used last");
        cache.put(&digest("d"), &code(1, 10 * KIB));
        let there = |name: &str| cache.path(&digest(name)).exists();
        assert_eq!(["a", "b", "c", "d"].map(there), [true, false, true, true]);
        cache.put(&digest("e"), &code(1, 34 * KIB));
        assert_eq!(["a", "c", "d", "e"].map(there), [false, false, false, true]);
        cache.put(&digest("f"), &code(1, 36 * KIB));
        assert_eq!(["e", "f"].map(there), [true, false], "what is larger than all of it is not kept");
    }

    #[test]
    fn leftover_temporary_files_are_removed() {
        let home = tempfile::tempdir().unwrap();
        let cache = cache(home.path(), 1 << 20);
        cache.put(&digest("a"), &code(1, 10));
        let (left, current) = (cache.dir.join(".cofferdam-left"), cache.dir.join(".cofferdam-current"));
        fs::write(&current, "half").unwrap();
        fs::write(&left, "half").unwrap();
        let long_ago = SystemTime::now() - 2 * STALE_FILE_AGE;
        fs::File::open(&left).unwrap().set_modified(long_ago).unwrap();
        cache.put(&digest("b"), &code(1, 10));
        assert_eq!((left.exists(), current.exists()), (false, true));
    }
}
