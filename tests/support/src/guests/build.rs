//! One cargo call that builds all guests: its environment, its turn, its progress.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{GuestError, file, support};

const TARGET: &str = "wasm32-wasip2";

/// Lines of a failed program's words that an error repeats.
const KEPT: usize = 60;

/// Builds the guests of `examples`; the folder their components are in.
pub(super) fn all(examples: &Path, names: &[String]) -> Result<PathBuf, GuestError> {
    let _turn = turn(&examples.join("target"))?;
    let rustc = rustc()?;
    // Two standard libraries of one version look the same to cargo: each gets a target directory.
    let target = match &rustc {
        None => examples.join("target"),
        Some(rustc) => examples.join("target").join(sysroot_name(rustc)),
    };
    let components = target.join(TARGET).join("release");
    let missing = names.iter().any(|name| !components.join(file(name)).is_file());
    if missing {
        say("building the example connectors; the first time this takes about a minute");
    }
    let mut cargo = clean(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    cargo
        .current_dir(examples)
        .args(["build", "--release", "--locked", "--color=never", "--target", TARGET, "--target-dir"])
        .arg(&target);
    if let Some(rustc) = rustc {
        cargo.env("RUSTC", rustc);
    }
    let (done, output) = run(cargo, missing)?;
    if done { Ok(components) } else { Err(GuestError::Build { folder: examples.to_owned(), output }) }
}

/// Waits for other processes; its drop lets the next one in.
fn turn(target: &Path) -> Result<File, GuestError> {
    fs::create_dir_all(target).map_err(|error| GuestError::io("create", target, &error))?;
    let path = target.join(".guests.lock");
    let lock = File::create(&path).map_err(|error| GuestError::io("create", &path, &error))?;
    if lock.try_lock().is_err() {
        lock.lock().map_err(|error| GuestError::io("lock", &path, &error))?;
    }
    Ok(lock)
}

/// The rustc to build with; none where cargo's own will do.
fn rustc() -> Result<Option<PathBuf>, GuestError> {
    if cfg!(not(unix)) {
        // No script here: cargo itself reports the missing target, and the error names the remedy.
        return Ok(None);
    }
    let mut script = clean("bash");
    script.arg(support().join("wasm-target.sh")).arg("rustc").stdout(Stdio::piped());
    let mut printed = String::new();
    let (done, output) = run_reading(script, true, Some(&mut printed))?;
    if !done {
        return Err(GuestError::NoTarget { output });
    }
    Ok(Some(printed.trim()).filter(|path| !path.is_empty()).map(PathBuf::from))
}

/// A name for a private toolchain's target directory: `v1` of `…/wasm/v1/bin/rustc`.
fn sysroot_name(rustc: &Path) -> String {
    let name = rustc.ancestors().nth(2).and_then(Path::file_name).unwrap_or(OsStr::new("other"));
    format!("debian-{}", name.to_string_lossy())
}

/// A command without what the cargo around us told *its* build: another target, other flags, another directory.
fn clean(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if is_outer_build(&name.to_string_lossy()) {
            command.env_remove(name);
        }
    }
    command
}

fn is_outer_build(name: &str) -> bool {
    let kept = ["CARGO_HOME", "CARGO_NET_", "CARGO_HTTP_", "CARGO_REGISTR", "CARGO_SOURCE_"];
    let cargo = name.starts_with("CARGO") && !kept.iter().any(|start| name.starts_with(start));
    cargo || name.starts_with("RUSTC") || name.starts_with("RUSTDOC") || name.starts_with("RUSTFLAGS")
}

fn run(command: Command, loud: bool) -> Result<(bool, String), GuestError> {
    run_reading(command, loud, None)
}

/// Runs a command to its end: returns whether it succeeded, and the last lines of its stderr. If `loud`, they are
/// passed on to ours as they come; otherwise from the first compiled crate on.
fn run_reading(
    mut command: Command,
    mut loud: bool,
    printed: Option<&mut String>,
) -> Result<(bool, String), GuestError> {
    let program = PathBuf::from(command.get_program());
    let failed = |error: std::io::Error| GuestError::io("run", &program, &error);
    if printed.is_none() {
        command.stdout(Stdio::null());
    }
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(failed)?;
    let mut kept = VecDeque::new();
    if let Some(stderr) = child.stderr.take() {
        for line in BufReader::new(stderr).split(b'\n') {
            let line = String::from_utf8_lossy(&line.map_err(failed)?).into_owned();
            loud |= line.trim_start().starts_with("Compiling");
            if loud {
                say(&line);
            }
            if kept.len() == KEPT {
                kept.pop_front();
            }
            kept.push_back(line);
        }
    }
    // One short line on stdout, long since in the pipe: reading it afterwards cannot block the child.
    if let (Some(printed), Some(mut stdout)) = (printed, child.stdout.take()) {
        std::io::Read::read_to_string(&mut stdout, printed).map_err(failed)?;
    }
    let done = child.wait().map_err(failed)?.success();
    Ok((done, Vec::from(kept).join("\n")))
}

/// A line of progress, past the capturing of a test's output: a minute of silence looks like a hang.
fn say(line: &str) {
    // A closed standard error is no reason to fail.
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outer_build_is_kept_out() {
        for name in [
            "RUSTC",
            "RUSTC_WRAPPER",
            "RUSTFLAGS",
            "RUSTDOCFLAGS",
            "CARGO",
            "CARGO_ENCODED_RUSTFLAGS",
            "CARGO_BUILD_TARGET",
            "CARGO_TARGET_DIR",
            "CARGO_MANIFEST_DIR",
            "CARGO_PROFILE_RELEASE_LTO",
        ] {
            assert!(is_outer_build(name), "{name}");
        }
        for name in
            ["PATH", "HOME", "CARGO_HOME", "CARGO_NET_OFFLINE", "RUSTUP_TOOLCHAIN", "COFFERDAM_WASM_SKIP"]
        {
            assert!(!is_outer_build(name), "{name}");
        }
    }

    #[test]
    fn a_private_toolchain_has_its_own_target_directory() {
        assert_eq!(sysroot_name(Path::new("/home/x/.cache/cofferdam/wasm/v1/bin/rustc")), "debian-v1");
    }
}
