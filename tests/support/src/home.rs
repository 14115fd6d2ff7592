//! A home directory for one test: a keyring, packages, and hosts over them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cofferdam::{Compiler, ConnectorRef, Error, Host, HostBuilder, InstallOptions, Installed};
use cofferdam_core::clock::{Clock, SystemClock};
use cofferdam_core::digest::Digest;
use cofferdam_dev::ManualClock;
use cofferdam_model::trust::{KeyringFile, PublicKey, SigningScope};
use jiff::Timestamp;
use tempfile::TempDir;

use crate::discard_log::DiscardLog;
use crate::fast_clock::FastClock;
use crate::signer::Signer;
use crate::snapshot::Snapshot;
use crate::store;

/// A directory that is removed with the value.
pub struct Home {
    dir: Dir,
    compiler: Compiler,
}

enum Dir {
    Own(TempDir),
    Shared(PathBuf),
}

/// The prefix of the names of shared homes.
const SHARED: &str = "home-of-";

impl Home {
    /// An empty home, whose hosts compile with the binary `cofferdam`.
    ///
    /// # Panics
    /// There is no room for a temporary directory.
    #[must_use]
    pub fn new(cofferdam: impl Into<PathBuf>) -> Self {
        Self::with_compiler(Compiler::child(cofferdam))
    }

    /// An empty home with another compiler.
    ///
    /// # Panics
    /// As [`Home::new`].
    #[must_use]
    pub fn with_compiler(compiler: Compiler) -> Self {
        let dir =
            tempfile::Builder::new().prefix("cofferdam-home-").tempdir().expect("a temporary directory");
        Self { dir: Dir::Own(dir), compiler }
    }

    /// An empty home for a value that lives as long as the process, and that is never dropped: below `base`,
    /// under the process's number. Homes of ended processes are removed first.
    ///
    /// # Panics
    /// `base` cannot be written.
    #[must_use]
    pub fn shared(cofferdam: impl Into<PathBuf>, base: &Path) -> Self {
        for entry in fs::read_dir(base).expect("a directory for temporary files").flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let gone = |pid: &str| !Path::new("/proc").join(pid).exists();
            if name.strip_prefix(SHARED).is_some_and(gone) {
                drop(fs::remove_dir_all(entry.path()));
            }
        }
        let dir = base.join(format!("{SHARED}{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory");
        Self { dir: Dir::Shared(dir), compiler: Compiler::child(cofferdam) }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        match &self.dir {
            Dir::Own(dir) => dir.path(),
            Dir::Shared(dir) => dir,
        }
    }

    /// A host over it, to be configured further. It does not wait between attempts.
    #[must_use]
    pub fn builder(&self) -> HostBuilder {
        self.builder_with(Arc::new(FastClock)).clock(Arc::new(FastClock)).listener(Arc::new(FastClock))
    }

    /// A host over it with the time of `clock`, which records its steps: for one call at a time.
    #[must_use]
    pub fn builder_at(&self, clock: &Arc<ManualClock>) -> HostBuilder {
        let (time, listener) = (Arc::clone(clock), Arc::clone(clock));
        self.builder_with(Arc::<ManualClock>::clone(clock)).clock(time).listener(listener)
    }

    /// A host over it at the machine's own time, without a listener: for benchmarks.
    #[must_use]
    pub fn builder_alone(&self) -> HostBuilder {
        self.builder_with(Arc::new(SystemClock))
    }

    /// A host over it whose audit log has this clock.
    fn builder_with(&self, clock: Arc<dyn Clock>) -> HostBuilder {
        let builder = Host::builder().home(self.path()).compiler(self.compiler.clone()).concurrency(16);
        match store::log_of(self.path(), clock) {
            Some(log) => store::shared(builder, log),
            None => builder,
        }
    }

    /// A host over it.
    ///
    /// # Panics
    /// The host cannot be made.
    #[must_use]
    pub fn host(&self) -> Host {
        self.builder().build().expect("a host")
    }

    /// Its keyring.
    #[must_use]
    pub fn keyring(&self) -> KeyringFile {
        KeyringFile::new(self.path().join("keyring.toml"))
    }

    /// Trusts `key` for `scope`.
    ///
    /// # Panics
    /// The keyring refuses it.
    pub fn trust(&self, key: &PublicKey, scope: &str) {
        let scope = SigningScope::parse(scope).expect("a scope");
        let change = |keyring: &mut cofferdam_model::trust::Keyring| {
            keyring.trust(key, &[scope], Timestamp::now(), None, None).expect("a key to trust");
            Ok(())
        };
        self.keyring().update(change).expect("a keyring that can be written");
    }

    /// Revokes `key`.
    ///
    /// # Panics
    /// The keyring cannot be written.
    pub fn revoke(&self, key: &PublicKey) {
        let change = |keyring: &mut cofferdam_model::trust::Keyring| {
            keyring.revoke(key, Timestamp::now(), None).expect("a key to revoke");
            Ok(())
        };
        self.keyring().update(change).expect("a keyring that can be written");
    }

    /// Installs `package`, signed by `signer`, with a separate host that records nothing.
    ///
    /// # Errors
    /// What the install ends with.
    pub async fn install(&self, package: &[u8], signer: &Signer) -> Result<Installed, Error> {
        let signature = signer.sign(package);
        let host = self.builder().audit_log(Arc::new(DiscardLog)).build().expect("a host");
        host.install_accepted(package.to_vec(), Some(signature), InstallOptions::default()).await
    }

    /// The installed file of `package`.
    #[must_use]
    pub fn installed_file(&self, package: &[u8]) -> PathBuf {
        self.path().join("packages/sha256").join(Digest::sha256(package).to_string()).join("connector.wasm")
    }

    /// Its present contents without the audit log, which grows with every call.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        ["audit", "home.state", "home.tmp", "cluster"]
            .iter()
            .fold(Snapshot::of(self.path()), |snapshot, name| snapshot.without(name))
    }

    /// The segments of the audit log's journals, in the order of their writers and entries.
    ///
    /// # Panics
    /// They cannot be listed.
    #[must_use]
    pub fn segments(&self) -> Vec<PathBuf> {
        let Ok(writers) = fs::read_dir(self.path().join("audit")) else { return Vec::new() };
        let dirs = writers.map(|writer| writer.unwrap().path()).filter(|path| path.is_dir());
        let files = dirs.flat_map(|dir| fs::read_dir(dir).unwrap()).map(|file| file.unwrap().path());
        let is_segment = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "jsonl");
        let mut segments: Vec<_> = files.filter(is_segment).collect();
        segments.sort();
        segments
    }

    /// The lines of the audit log's journals, by the name of their segment, in the order of their writers and entries. Lines
    /// without an end are left out.
    ///
    /// # Panics
    /// They cannot be read.
    #[must_use]
    pub fn journals(&self) -> Vec<(String, Vec<String>)> {
        if let Some(journals) = store::journals_of(self.path()) {
            return journals;
        }
        let read = |path: PathBuf| {
            let text = fs::read_to_string(&path).unwrap();
            // What a kill left of a last line is cut off by the next process.
            let whole = text.rfind('\n').map_or(0, |at| at + 1);
            (path.display().to_string(), text[..whole].lines().map(str::to_owned).collect())
        };
        self.segments().into_iter().map(read).collect()
    }

    /// Changes the lines of the only segment of the audit log.
    ///
    /// # Panics
    /// There is another number of segments.
    pub fn edit_segment(&self, edit: impl FnOnce(&mut Vec<String>)) {
        let segments = self.segments();
        let [path] = &*segments else { panic!("{segments:?}") };
        let mut lines: Vec<_> = fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect();
        edit(&mut lines);
        let text: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
        fs::write(path, text).unwrap();
    }

    /// Removes the audit log.
    ///
    /// # Panics
    /// It cannot be removed.
    pub fn remove_log(&self) {
        fs::remove_dir_all(self.path().join("audit")).unwrap();
    }
}

/// Installs packages whose access is accepted, as most tests need.
pub trait InstallAccepted {
    /// Installs `package`, and accepts what it asks for.
    ///
    /// # Errors
    /// As [`Host::install`].
    fn install_accepted(
        &self,
        package: Vec<u8>,
        signature: Option<Vec<u8>>,
        options: InstallOptions,
    ) -> impl Future<Output = Result<Installed, Error>> + Send;
}

impl InstallAccepted for Host {
    async fn install_accepted(
        &self,
        package: Vec<u8>,
        signature: Option<Vec<u8>>,
        options: InstallOptions,
    ) -> Result<Installed, Error> {
        let options = options.accept(Digest::sha256(&package));
        self.install(package, signature, options).await
    }
}

/// The connector `text`, as `name@version`.
///
/// # Panics
/// It is not one.
#[must_use]
pub fn connector(text: &str) -> ConnectorRef {
    ConnectorRef::parse(text).expect("a connector")
}
