//! A disk that is full under load: reported outcomes persist, every run is logged, and with space again all
//! calls are resolved.
//!
//! `COFFERDAM_FULL_DISK_SECONDS=3600` calls a server for an hour, most of the time on a full disk, in the place of 20
//! seconds.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cofferdam_test_support::{Serving, process};
use serde_json::{Value, json};

use super::checker::KillChecker;
use super::fixture::{Job, Left, Load, Op, PROBE, Stage};

/// The command with a limit on the size of files, as a full disk is one; in blocks of 512 bytes.
fn limited(command: &Command, blocks: u32) -> Command {
    let mut limited = Command::new("sh");
    // The default action of the signal that comes with it is to end the process: the command itself has to
    // handle it.
    let script = format!("ulimit -f {blocks}; exec \"$0\" \"$@\" <\"$LINES\"");
    limited.arg("-c").arg(script).arg(command.get_program()).args(command.get_args()).env_clear();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            limited.env(name, value);
        }
    }
    limited
}

#[test]
fn a_full_disk_loses_nothing_reported() {
    let (stage, mut checker) = (Stage::new(), KillChecker::new());
    for op in Op::BOTH {
        let jobs = |name: &str, n: usize| -> Vec<Job> {
            (0..n).map(|n| Job { name: format!("{}-{name}-{n}", op.name()), op, keyed: n % 2 == 0 }).collect()
        };
        // The compiled connector is stored before the disk is full.
        let room = stage.start(jobs("room", 4), 2, "").end();
        assert!(room.status.success());
        checker.hears(&room);
        let full = jobs("full", 400);
        let mut command = limited(&stage.command(&full, 8), 2 * 400);
        command.env("LINES", stage.lines(&full));
        let mut load = Load::of(command, full);
        load.fails();
        let left = load.kill();
        let told = |word: &str| left.lines.iter().filter(|line| line.contains(word)).count();
        assert!(told("\"value\"") > 0, "there was room for some: {:?}", left.lines);
        assert!(told("audit_unavailable") + told("outcome_unknown") > 0, "{:?}", left.lines);
        checker.hears(&left);
        let findings = checker.finds(&stage);
        assert!(findings.is_empty(), "{op:?}: {findings:#?}");
    }
    checker.replays(&stage, checker.told.keys().filter(|id| checker.told[*id].1.get("value").is_some()));
    stage.is_recovered(&mut checker);
}

/// The seconds for which a server is called.
const SECONDS: &str = "COFFERDAM_FULL_DISK_SECONDS";

/// Set in the process that the test starts for itself, with mounts of its own.
const HAS_MOUNTS: &str = "COFFERDAM_TEST_HAS_MOUNTS";

/// The time after which calls on a full disk fail at once: the first ones are tried again after 2, 4 and 6 seconds.
const RETRIES: Duration = Duration::from_secs(13);

/// The number of clients, each of which makes one call after the other.
const CLIENTS: usize = 4;

/// The room that the disk has when it is not full.
const ROOM: u64 = 32 << 20;

/// The most memory that a server may use beyond that of its first second.
const MEMORY: u64 = 96 << 20;

/// The length at which a segment is followed by the next one.
const SEGMENT: u64 = 8 << 20;

/// A file system over a directory, which is full or has room.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(dir: &Path) -> Self {
        std::fs::create_dir_all(dir).unwrap();
        let options = format!("size={ROOM},mode=700");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "none"]).arg(dir).status();
        assert!(mounted.unwrap().success());
        Self(dir.to_owned())
    }

    /// Returns the bytes that are used.
    fn used(&self) -> u64 {
        let disk = rustix::fs::statvfs(self.0.as_path()).unwrap();
        (disk.f_blocks - disk.f_bfree) * disk.f_frsize
    }

    /// Gives the disk this size. Returns false if more is used.
    fn resize(&self, bytes: u64) -> bool {
        let mut command = Command::new("mount");
        command.args(["-o", &format!("remount,size={bytes}")]).arg(&self.0).stderr(Stdio::null());
        command.status().unwrap().success()
    }

    /// Leaves no room, but for the rest of the last block of each file.
    fn fill(&self) {
        // A size below what is used is refused, and the server writes meanwhile.
        let is_full = (0..100).any(|pages| self.resize(self.used() + pages * 4_096));
        assert!(is_full, "the disk cannot be filled");
    }

    fn free(&self) {
        assert!(self.resize(self.used() + ROOM));
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.0).status());
    }
}

/// Has clients end, also if the test fails.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Collects the lines that the server writes about its audit log.
fn lines_about_the_log(stderr: ChildStderr) -> Arc<Mutex<Vec<String>>> {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let collected = Arc::clone(&lines);
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            if line.contains("cofferdam::audit:") {
                collected.lock().unwrap().push(line);
            }
        }
    });
    lines
}

fn ask(server: &Serving, stage: &Stage, job: &Job) -> Value {
    let args = json!({"url": stage.upstream.url(&job.path()), "body": job.name, "labels": ["effect"]});
    let key = job.keyed.then_some(job.name.as_str());
    server.call_under(key, PROBE, job.op.name(), &args).1
}

fn has_value(answer: &Value) -> bool {
    answer.get("value").is_some()
}

fn is_refused(answer: &Value) -> bool {
    answer["error"]["code"] == "audit_unavailable"
}

fn is_unknown(answer: &Value) -> bool {
    answer["error"]["code"] == "outcome_unknown"
}

/// Makes calls until `is_over`, and returns them with their answers.
fn calls_of_a_client(
    server: &Serving,
    stage: &Stage,
    client: usize,
    pause: Duration,
    is_over: &AtomicBool,
) -> Vec<(Job, Value)> {
    let mut answers = Vec::new();
    for number in 0.. {
        let name = format!("full-{client}-{number}");
        let job = Job { name, op: Op::BOTH[number % 2], keyed: number / 2 % 2 == 0 };
        // Nothing was run, so that a call under a key may be repeated.
        for _ in 0..3 {
            if is_over.load(Ordering::SeqCst) {
                return answers;
            }
            let answer = ask(server, stage, &job);
            let is_repeated = job.keyed && is_refused(&answer);
            answers.push((job.clone(), answer));
            std::thread::sleep(pause);
            if !is_repeated {
                break;
            }
        }
    }
    answers
}

/// Returns the answer as `call --each` prints it, with the call's id.
fn printed(line: usize, answer: &Value) -> String {
    let mut answer = answer.clone();
    if answer.get("error").is_some() && !is_refused(&answer) {
        answer["audit_id"] = answer["error"]["request_id"].clone();
    }
    answer["line"] = line.into();
    format!("{answer}\n")
}

#[test]
fn a_server_on_a_full_disk_stays_bounded() {
    if std::env::var_os(HAS_MOUNTS).is_some() {
        return serve_on_a_full_disk();
    }
    let Some(mut command) = crate::disk::mount_namespace("a server on a full disk") else { return };
    let test = "kills::full_disk::a_server_on_a_full_disk_stays_bounded";
    command.arg(std::env::current_exe().unwrap()).args(["--exact", test, "--nocapture"]);
    let output = command.env(HAS_MOUNTS, "1").output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

fn serve_on_a_full_disk() {
    let seconds = std::env::var(SECONDS).map_or(20, |text| text.parse().unwrap());
    let time = Duration::from_secs(seconds);
    let stage = Stage::new();
    let disk = SmallDisk::mount(&stage.home.path().join("audit"));
    let mut command = Serving::command(&stage.cli());
    command.stderr(Stdio::piped());
    let mut server = Serving::spawn(command);
    let pid = server.pid();
    let log_lines = lines_about_the_log(server.take_stderr().unwrap());
    // What the first call loads is no growth, however long it takes.
    let first = Job { name: "full-first".to_owned(), op: Op::Order, keyed: true };
    let answer = ask(&server, &stage, &first);
    assert_eq!(answer["value"]["body"], *first.name, "{answer}");
    // The journal of an hour of calls has some hundred megabytes.
    let pause = (time / 10_000).max(Duration::from_millis(5));
    let (is_over, begun) = (AtomicBool::new(false), Instant::now());
    let (mut fills, mut memory, mut files, mut most_files) = (0, 0, 0, 0);
    let answers: Vec<(Job, Value)> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (server, stage, is_over) = (&server, &stage, &is_over);
                scope.spawn(move || calls_of_a_client(server, stage, client, pause, is_over))
            })
            .collect();
        let ends = EndOnDrop(&is_over);
        let mut rest = |time: Duration| {
            let until = Instant::now() + time;
            while Instant::now() < until {
                std::thread::sleep(Duration::from_millis(100));
                most_files = process::open_files_of(pid).max(most_files);
            }
        };
        rest(Duration::from_secs(1));
        memory = process::resident_bytes_of(pid);
        files = process::open_files_of(pid);
        let mut rng = fastrand::Rng::with_seed(7);
        let longest = u64::try_from((time / 8).as_millis()).unwrap().clamp(1_000, 60_000);
        let mut random = || Duration::from_millis(rng.u64(200..=longest));
        while begun.elapsed() < time {
            disk.fill();
            fills += 1;
            rest(if fills == 1 { (time / 3).max(RETRIES + Duration::from_secs(2)) } else { random() });
            disk.free();
            rest(random());
        }
        drop(ends);
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    let grown = process::peak_resident_bytes_of(pid).saturating_sub(memory);
    // It goes on where there is room.
    let last = Job { name: "full-last".to_owned(), op: Op::Order, keyed: true };
    let answer = ask(&server, &stage, &last);
    assert_eq!(answer["value"]["body"], *last.name, "{answer}");
    let status = server.end();
    assert!(status.success(), "{status}");

    let count = |what: fn(&Value) -> bool| answers.iter().filter(|(_, answer)| what(answer)).count();
    let (values, refused, unknown) = (count(has_value), count(is_refused), count(is_unknown));
    let log_lines = std::mem::take(&mut *log_lines.lock().unwrap());
    let segments = stage.home.segments();
    let bytes: u64 = segments.iter().map(|path| path.metadata().unwrap().len()).sum();
    eprintln!(
        "{fills} times full in {:.0?}: {values} values, {refused} refused, {unknown} unknown; {} KiB more memory, \
         {files} to {most_files} open files, {} segments of {} KiB, {} warnings",
        begun.elapsed(),
        grown >> 10,
        segments.len(),
        bytes >> 10,
        log_lines.len(),
    );
    let is_other = |answer: &Value| !has_value(answer) && !is_refused(answer) && !is_unknown(answer);
    let others: Vec<_> = answers.iter().filter(|(_, answer)| is_other(answer)).collect();
    assert!(others.is_empty(), "{others:#?}");
    assert!(values > 20 && refused > 20, "{values} values, {refused} refused");
    assert!(grown < MEMORY, "{} KiB more memory", grown >> 10);
    assert!(files > 0 && most_files < files + 8 * CLIENTS, "{files} to {most_files} open files");
    assert!(segments.len() as u64 <= bytes / SEGMENT + 2, "{segments:?}");
    assert!(!log_lines.is_empty(), "a full disk is no warning");
    let warnings = 50 * (fills + 1);
    assert!(log_lines.len() <= warnings, "{} warnings: {:#?}", log_lines.len(), &log_lines[..warnings]);

    // No call ran that was refused, however often.
    let seen: BTreeSet<_> = stage.upstream.seen("/text/").into_iter().map(|request| request.path).collect();
    let mut never_ran = BTreeMap::new();
    for (job, answer) in &answers {
        *never_ran.entry(job.path()).or_insert(true) &= is_refused(answer);
    }
    let ran: Vec<_> = never_ran.iter().filter(|(path, refused)| **refused && seen.contains(*path)).collect();
    assert!(ran.is_empty(), "refused, and run: {ran:?}");

    stage.cli().run(&["audit", "verify"]).ok();
    let lines = answers.iter().enumerate().map(|(at, (_, answer))| printed(at + 1, answer)).collect();
    let jobs = answers.into_iter().map(|(job, _)| job).collect();
    let mut checker = KillChecker::new();
    checker.hears(&Left { jobs, lines, status });
    let findings = checker.finds(&stage);
    assert!(findings.is_empty(), "{findings:#?}");
    assert_eq!(checker.without_end(), Vec::<&str>::new(), "outcomes are written once there is room");
    stage.is_recovered(&mut checker);
}
