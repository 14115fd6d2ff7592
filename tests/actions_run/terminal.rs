//! The output of `cofferdam run` while it runs: a line for each step on a terminal, and nothing otherwise.

use std::process::Command;
use std::sync::LazyLock;

use super::fixture::{ActionHome, step};

static GROUND: LazyLock<ActionHome> = LazyLock::new(|| ActionHome::shared("terminal"));

/// The screen of the command in a terminal of its own, and its exit code; none if there are no terminals.
fn on_a_terminal(command: &Command) -> Option<(String, Option<i32>)> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let quoted = words.map(|word| format!("'{}'", word.to_str().unwrap().replace('\'', "'\\''")));
    let line = quoted.collect::<Vec<_>>().join(" ");
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &line, "/dev/null"]).env_clear().env("TERM", "xterm");
    script.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    script.stdin(std::process::Stdio::null()).current_dir(command.get_current_dir().unwrap());
    let Ok(output) = script.output() else {
        crate::skipped("`script` of util-linux is not here to make a terminal");
        return None;
    };
    Some((String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code()))
}

/// The lines that were not drawn over, without what colours them and moves the cursor.
fn lines(seen: &str) -> Vec<String> {
    let plain = anstream::adapter::strip_str(seen).to_string();
    plain
        .lines()
        .map(|line| line.rsplit('\r').find(|part| !part.is_empty()).unwrap_or("").to_owned())
        .collect()
}

#[test]
fn each_step_prints_its_start_and_end() {
    let ground = &*GROUND;
    let url = |path: &str| ground.upstream.url(path);
    let again = "retry = { max = 1, initial = \"1ms\", max_delay = \"1ms\", jitter = 0.0 }";
    let rest = [
        step("one", "post", &format!("url = \"{}\", body = \"x\"", url("/text/shown-1")), ""),
        // Long enough for a spinner, over which nothing of this may be drawn.
        step("two", "sleep", "ms = 700", ""),
        step("three", "fetch", &format!("url = \"{}\"", url("/flaky/1/shown")), again),
        step("four", "fetch", &format!("url = \"{}\"", url("/status/404?shown")), ""),
        step("five", "fetch", &format!("url = \"{}\"", url("/text/shown-5")), ""),
    ];
    ground.action("shown", &rest.concat());
    let cli = ground.cli();
    let command = cli.command(&["run", "shown"]);
    let Some((seen, code)) = on_a_terminal(&command) else { return };
    assert_eq!(code, Some(76), "{seen}");
    let shown = lines(&seen);
    let mut at = shown.iter();
    for words in [
        "step 1/5 one: post of github://cofferdam/probe@0.1.0",
        "step one: done after ",
        "step 2/5 two: sleep of github://cofferdam/probe@0.1.0",
        "step two: done after ",
        "step 3/5 three: fetch of github://cofferdam/probe@0.1.0",
        "Retry 1/1 in ",
        "step three: done after ",
        "step 4/5 four: fetch of github://cofferdam/probe@0.1.0",
        "step four: external_api_error after ",
        "step one: done, in the audit log as audit-",
        "step five: not run",
        "error: external_api_error: ",
    ] {
        assert!(at.any(|line| line.contains(words)), "`{words}` does not stand in its place: {shown:#?}");
    }
    assert!(!seen.contains("5/5"), "{seen}");
    assert!(seen.contains("running shown ("), "a spinner between the lines: {seen:?}");
    // JSON output and `--quiet` have no progress lines.
    let piped = cli.run(&["run", "shown"]).fails(76);
    assert!(!piped.stderr.contains("step 1/5"), "{}", piped.stderr);
    for more in ["--quiet", "--format=json"] {
        let (seen, _) = on_a_terminal(&cli.command(&["run", "shown", more])).unwrap();
        assert!(!seen.contains("step 1/5") && !seen.contains("running shown"), "{more}: {seen}");
    }
}
