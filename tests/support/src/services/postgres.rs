//! PostgreSQL, Debian's: run as a plain user, with a database of its own for each test.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tempfile::TempDir;

use super::Tools;
use super::server::{KEEPER, PATIENCE, free_port};
use crate::process::processor_time_of;

/// The user and group that the server runs as where the tests run as root, which it refuses.
const NOBODY: (u32, u32) = (65_534, 65_534);

/// The superuser that makes databases.
const SUPERUSER: &str = "admin";

/// The role of hosts, which owns their databases.
const ROLE: &str = "cofferdam";

/// The settings of the server: many connections, little memory, a log.
const SETTINGS: [&str; 10] = [
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "max_connections=400",
    "shared_buffers=64MB",
    "max_wal_size=256MB",
    "logging_collector=off",
    "log_min_messages=warning",
    "autovacuum_naptime=10s",
    "dynamic_shared_memory_type=mmap",
    "max_locks_per_transaction=256",
];

/// A running server; it ends with the value or with the test process.
pub struct Postgres {
    programs: PathBuf,
    dir: TempDir,
    port: u16,
    /// More settings, as `name=value`.
    settings: Vec<String>,
    child: Option<Child>,
    databases: AtomicU32,
}

impl Postgres {
    /// Starts a server of its own, which a test may stop and start.
    ///
    /// # Panics
    /// It does not start; with the end of what it said.
    #[must_use]
    pub fn start(tools: &Tools) -> Self {
        Self::start_with(tools, &[])
    }

    /// Starts a server as [`start`](Self::start) does, with more settings, as `name=value`.
    ///
    /// # Panics
    /// It does not start; with the end of what it said.
    #[must_use]
    pub fn start_with(tools: &Tools, settings: &[&str]) -> Self {
        let programs = programs(tools);
        let dir = tempfile::Builder::new().prefix("cofferdam-postgres-").tempdir().expect("a directory");
        let (user, group) = NOBODY;
        if is_root() {
            std::os::unix::fs::chown(dir.path(), Some(user), Some(group)).expect("the directory is ours");
        } else {
            fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700))
                .expect("the directory is ours");
        }
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let databases = AtomicU32::new(0);
        let mut own = Self { programs, dir, port: free_port(), settings, child: None, databases };
        let made = own
            .command("initdb")
            .args(["--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C", "--username", SUPERUSER])
            .arg(own.data())
            .output();
        assert_success("initdb", &made.expect("initdb runs"));
        own.start_again();
        own.psql("postgres", &format!("CREATE ROLE {ROLE} LOGIN"));
        own
    }

    /// Returns the server that the tests of this process share.
    ///
    /// # Panics
    /// It does not start; with the end of what it said.
    pub fn shared(tools: &Tools) -> &'static Self {
        static SHARED: OnceLock<Postgres> = OnceLock::new();
        // Of databases that no test outlives.
        SHARED.get_or_init(|| Self::start_with(tools, &["fsync=off", "full_page_writes=off"]))
    }

    /// Returns the server as [`shared`](Self::shared) does; none, visibly, where there are no servers.
    ///
    /// # Panics
    /// It does not start; or there are no servers, and they are required.
    pub fn shared_or_skip() -> Option<&'static Self> {
        tools_or_skip().map(|tools| Self::shared(&tools))
    }

    /// Starts a server as [`start`](Self::start) does; none, visibly, where there are no servers.
    ///
    /// # Panics
    /// It does not start; or there are no servers, and they are required.
    pub fn start_or_skip() -> Option<Self> {
        tools_or_skip().map(|tools| Self::start(&tools))
    }

    /// Makes a database for one test, and returns its URL.
    ///
    /// # Panics
    /// It cannot be made.
    pub fn database(&self) -> String {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.psql("postgres", &format!("CREATE DATABASE {name} OWNER {ROLE} TEMPLATE template0"));
        self.url(&name)
    }

    /// Returns the URL of a database, for the role of hosts.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        self.url_as(ROLE, database)
    }

    /// Returns the URL of a database, for this role.
    #[must_use]
    pub fn url_as(&self, role: &str, database: &str) -> String {
        format!("postgres://{role}@127.0.0.1:{}/{database}", self.port)
    }

    /// Returns the URL of a database, for the superuser.
    #[must_use]
    pub fn superuser_url(&self, database: &str) -> String {
        self.url_as(SUPERUSER, database)
    }

    /// Returns the port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Runs statements as the superuser, and returns the rows: unaligned, without headers.
    ///
    /// # Panics
    /// They fail.
    pub fn psql(&self, database: &str, statements: &str) -> String {
        let output = self
            .command("psql")
            .args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1"])
            .args(["--dbname", &self.superuser_url(database), "--command", statements])
            .output()
            .expect("psql runs");
        assert_success(statements, &output);
        String::from_utf8(output.stdout).expect("UTF-8").trim().to_owned()
    }

    /// Ends the server as a crash does: all its processes are killed.
    pub fn kill(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        if let Some(group) = Pid::from_raw(child.id().cast_signed()) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        drop(child.wait());
        // Its processes have sessions of their own. Each works in the directory of the data, and the next server does not
        // start while one of them is there.
        let begun = Instant::now();
        while self.kill_rest() > 0 && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Has no file of the server grow beyond so many bytes, until it is called with `None`. A write that is cut short is
    /// what the server reports as a full disk; so the limit must not be a multiple of its pages of 8 KiB. It must be more
    /// than the 16 MiB of a segment of the write-ahead log, without which the server ends.
    ///
    /// # Panics
    /// The limit cannot be set.
    pub fn limit_files(&self, bytes: Option<u64>) {
        let limit = bytes.map_or_else(|| "unlimited".to_owned(), |bytes| bytes.to_string());
        for pid in self.processes() {
            let mut prlimit = self.command("prlimit");
            prlimit.args(["--pid", &pid.as_raw_nonzero().to_string(), &format!("--fsize={limit}:")]);
            let output = prlimit.output().expect("prlimit runs");
            // One that has ended meanwhile has no limit.
            assert!(output.status.success() || kill_process(pid, Signal::CONT).is_err(), "{output:?}");
        }
    }

    /// Returns the processor time that the server's processes have used until now.
    #[must_use]
    pub fn processor_time(&self) -> Duration {
        self.processes().map(|pid| processor_time_of(pid.as_raw_nonzero().get().unsigned_abs())).sum()
    }

    /// Kills the processes that work in the directory of the data, and returns their number.
    fn kill_rest(&self) -> usize {
        self.processes().filter(|pid| kill_process(*pid, Signal::KILL).is_ok()).count()
    }

    /// The processes that work in the directory of the data.
    fn processes(&self) -> impl Iterator<Item = Pid> {
        let data = fs::canonicalize(self.data());
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        processes
            .filter_map(|process| process.file_name().to_str()?.parse().ok().and_then(Pid::from_raw))
            .filter(move |pid| {
                let place = fs::read_link(format!("/proc/{}/cwd", pid.as_raw_nonzero()));
                matches!((place, &data), (Ok(place), Ok(data)) if place == *data)
            })
    }

    /// Ends the server as its service manager does: connections are cut, and what was committed is written.
    pub fn stop(&mut self) {
        let stopped =
            self.command("pg_ctl").args(["stop", "--mode=fast", "--pgdata"]).arg(self.data()).output();
        drop(stopped);
        self.kill();
    }

    /// Starts the server again, at the same port.
    ///
    /// # Panics
    /// It does not start; with the end of what it said.
    pub fn start_again(&mut self) {
        self.kill();
        // Of a server that was killed.
        drop(fs::remove_file(self.data().join("postmaster.pid")));
        let log = fs::OpenOptions::new().create(true).append(true).open(self.log_file()).expect("a file");
        let mut server = self.command("sh");
        server.args(["-c", KEEPER, "sh"]).arg(self.programs.join("postgres")).arg("-D").arg(self.data());
        server.args(["-p", &self.port.to_string()]);
        for setting in SETTINGS.iter().copied().chain(self.settings.iter().map(String::as_str)) {
            server.args(["-c", setting]);
        }
        server.stdin(Stdio::piped()).stdout(log.try_clone().expect("a file")).stderr(log).process_group(0);
        self.child = Some(server.spawn().expect("the server runs"));
        let begun = Instant::now();
        loop {
            let ready = self
                .command("pg_isready")
                .args(["--host=127.0.0.1", "--port", &self.port.to_string()])
                .output();
            if ready.is_ok_and(|output| output.status.success()) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "PostgreSQL does not answer:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Saves a copy of the server's files.
    ///
    /// # Panics
    /// They cannot be copied, or the server does not start again.
    pub fn save(&mut self) {
        self.stop();
        self.copy(&self.data(), &self.saved());
        self.start_again();
    }

    /// Ends the server as a crash does, and starts it with the files that were saved.
    ///
    /// # Panics
    /// Nothing was saved, or the server does not start again.
    pub fn put_back(&mut self) {
        self.kill();
        fs::remove_dir_all(self.data()).expect("the files are ours");
        self.copy(&self.saved(), &self.data());
        self.start_again();
    }

    fn saved(&self) -> PathBuf {
        self.dir.path().join("saved")
    }

    fn copy(&self, from: &Path, to: &Path) {
        let output = self.command("cp").arg("-a").args([from, to]).output().expect("cp runs");
        assert_success("cp", &output);
    }

    /// Has the server ask the role of hosts for its password from now on.
    ///
    /// # Panics
    /// It does not start again.
    pub fn require_passwords(&mut self) {
        let rules = format!("host all {ROLE} 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n");
        fs::write(self.data().join("pg_hba.conf"), rules).expect("the file is written");
        self.start_again();
    }

    /// Has the server speak TLS from now on, with this certificate and key in PEM.
    ///
    /// # Panics
    /// It does not start again.
    pub fn speak_tls(&mut self, certificate: &str, key: &str) {
        for (name, text) in [("server.crt", certificate), ("server.key", key)] {
            let path = self.data().join(name);
            fs::write(&path, text).expect("the file is written");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("the file is ours");
            if is_root() {
                std::os::unix::fs::chown(&path, Some(NOBODY.0), Some(NOBODY.1)).expect("the file is ours");
            }
        }
        self.settings.push("ssl=on".to_owned());
        self.start_again();
    }

    /// Returns its output until now.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn log_file(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    /// Returns a command that runs as the server's user.
    fn command(&self, program: &str) -> Command {
        let own = self.programs.join(program);
        let mut command = Command::new(if own.exists() { own } else { program.into() });
        command.current_dir(self.dir.path()).env("LC_ALL", "C").env("PGCONNECT_TIMEOUT", "10");
        if is_root() {
            let (user, group) = NOBODY;
            command.uid(user).gid(group);
        }
        command
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Killed, it would leave its shared memory.
        let stop =
            self.command("pg_ctl").args(["stop", "--mode=immediate", "--pgdata"]).arg(self.data()).output();
        drop(stop);
        self.kill();
    }
}

/// Returns the directory of the newest server's programs: those of this machine, or what install.sh has unpacked.
fn programs(tools: &Tools) -> PathBuf {
    let roots = [PathBuf::from("/usr/lib/postgresql"), tools.dir().join("postgresql/usr/lib/postgresql")];
    let versions = roots.iter().filter_map(|root| fs::read_dir(root).ok()).flatten().flatten();
    let mut found: Vec<_> = versions
        .filter_map(|version| {
            Some((version.file_name().to_str()?.parse::<u32>().ok()?, version.path().join("bin")))
        })
        .filter(|(_, programs)| programs.join("initdb").exists())
        .collect();
    found.sort_unstable();
    found.pop().expect("tests/services/tools/install.sh installs PostgreSQL").1
}

/// Returns the servers of this machine; none, visibly, where there are none.
fn tools_or_skip() -> Option<Tools> {
    match Tools::find() {
        Ok(tools) => Some(tools),
        Err(why) => {
            assert!(!Tools::required(), "COFFERDAM_REQUIRE_SERVICES is set, and {why}");
            // Past the capture of a test's output.
            let _ = writeln!(std::io::stderr(), "\nSKIPPED: nothing is tried with PostgreSQL: {why}");
            None
        }
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn assert_success(what: &str, output: &Output) {
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{what}: {}{}", said(&output.stdout), said(&output.stderr));
}
