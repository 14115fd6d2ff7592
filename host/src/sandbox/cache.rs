//! Compiled code on disk, bound to the component it came from by a keyed MAC.
//!
//! Native code is as dangerous as the host itself: whoever can write it can run anything. So an entry
//! is loaded only when its MAC, under a key that only this host has, covers the component's digest,
//! the engine's fingerprint and the code. Anything else is compiled again; a wrong entry is never an
//! error to the user and never a load. This file holds the only `unsafe` of the crate.
#![allow(unsafe_code, reason = "deserialising native code; see `TrustedCode`")]

use std::fs;
use std::hash::{Hash, Hasher};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest as _, Sha256};
use wasmtime::Engine;
use wasmtime::component::Component;

use crate::digest::Digest;

/// Native code that this host's own compiler made: it came from the worker's pipe, from the compiler in
/// this process, or from the cache with a MAC that verifies. Nothing else can make one.
pub(super) struct TrustedCode(Vec<u8>);

impl TrustedCode {
    /// From the compiler in this process.
    pub(super) fn compiled_here(code: Vec<u8>) -> Self {
        Self(code)
    }

    /// From the pipe of a worker that this process started.
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

/// The directory of compiled code.
#[derive(Debug, Clone)]
pub(super) struct CodeCache {
    dir: PathBuf,
    key: [u8; 32],
    fingerprint: [u8; 32],
}

const MAC_BYTES: usize = 32;
const CODE_BYTES: u64 = 512 * 1024 * 1024;

impl CodeCache {
    /// A cache in `dir`, under a key derived from the host's.
    pub(super) fn new(dir: PathBuf, host_key: &[u8; 32], engine: &Engine) -> Self {
        let key = mac(host_key, &[b"cofferdam compiled code v1"]);
        let mut fingerprint = Fingerprint(Sha256::new());
        engine.precompile_compatibility_hash().hash(&mut fingerprint);
        Self { dir, key, fingerprint: fingerprint.0.finalize().into() }
    }

    /// The code compiled from the component with this digest, if an entry is there and is ours.
    pub(super) fn get(&self, component: &Digest) -> Option<TrustedCode> {
        let path = self.path(component);
        let mut file = fs::File::open(&path).ok()?;
        let length = file.metadata().ok()?.len();
        let code_length = length.checked_sub(MAC_BYTES as u64).filter(|length| *length <= CODE_BYTES)?;
        let mut tag = [0u8; MAC_BYTES];
        file.read_exact(&mut tag).ok()?;
        let mut code = Vec::with_capacity(usize::try_from(code_length).ok()?);
        file.take(code_length).read_to_end(&mut code).ok()?;
        let mut expected = self.mac(component);
        expected.update(&code);
        if expected.verify_slice(&tag).is_err() {
            tracing::warn!(component = %component, "compiled code on disk is not this host's; compiling again");
            return None;
        }
        Some(TrustedCode(code))
    }

    /// Keeps `code`, best effort: a cache that cannot be written costs time and nothing else.
    pub(super) fn put(&self, component: &Digest, code: &TrustedCode) {
        if let Err(error) = self.write(component, code) {
            tracing::warn!(reason = %error, "compiled code could not be kept; the next start compiles again");
        }
    }

    /// Drops the entry of a component that is gone.
    pub(super) fn forget(&self, component: &Digest) {
        // An entry that is not there is what was asked for; one that stays is only disk space.
        drop(fs::remove_file(self.path(component)));
    }

    fn write(&self, component: &Digest, code: &TrustedCode) -> std::io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        let mut tag = self.mac(component);
        tag.update(&code.0);
        let mut file = tempfile::NamedTempFile::new_in(&self.dir)?;
        file.write_all(&tag.finalize().into_bytes())?;
        file.write_all(&code.0)?;
        file.persist(self.path(component))?;
        Ok(())
    }

    fn path(&self, component: &Digest) -> PathBuf {
        let engine: String = self.fingerprint.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        self.dir.join(format!("{component}-{engine}.cwasm"))
    }

    fn mac(&self, component: &Digest) -> Hmac<Sha256> {
        let mut mac = keyed(&self.key);
        mac.update(component.as_bytes());
        mac.update(&self.fingerprint);
        mac
    }
}

/// Reads the host's key, or makes it on first use (32 random bytes, mode 0600).
pub(super) fn host_key(path: &Path) -> std::io::Result<[u8; 32]> {
    let mut key = [0u8; 32];
    match fs::File::open(path) {
        Ok(mut file) => file.read_exact(&mut key).map(|()| key),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            getrandom::fill(&mut key)?;
            let dir = path.parent().unwrap_or(Path::new("."));
            fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
            let mut file = tempfile::Builder::new().permissions(permissions()).tempfile_in(dir)?;
            file.write_all(&key)?;
            file.as_file().sync_all()?;
            match file.persist_noclobber(path) {
                Ok(_) => Ok(key),
                // Another process was first: its key is the host's.
                Err(_) => fs::OpenOptions::new().read(true).mode(0o600).open(path)?.read_exact(&mut key).map(|()| key),
            }
        }
        Err(error) => Err(error),
    }
}

fn permissions() -> fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o600)
}

fn keyed(key: &[u8; 32]) -> Hmac<Sha256> {
    // HMAC pads a key to its block with zeros; doing it here leaves no error to handle.
    let mut block = [0u8; 64];
    block.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
    <Hmac<Sha256> as KeyInit>::new(&block.into())
}

fn mac(key: &[u8; 32], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = keyed(key);
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

/// Feeds what wasmtime hashes of its configuration into SHA-256.
struct Fingerprint(Sha256);

impl Hasher for Fingerprint {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let digest: [u8; 32] = self.0.clone().finalize().into();
        digest.first_chunk().map_or(0, |head| u64::from_be_bytes(*head))
    }
}
