//! Dry run and run agree: every predicted problem keeps the action from running, and no other one does.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use cofferdam_core::digest::Digest;
use cofferdam_model::trust::{Keyring, SigningScope};
use cofferdam_test_support::{Cli, Home, Signer, Upstream, package};
use jiff::{Timestamp, ToSpan as _};
use serde_json::Value;

use super::fixture::{step, write};
use crate::COFFERDAM;
use crate::shared_host::run;

/// A home with two connectors: one that needs no credential, and one that is bound to nothing.
struct ActionHome {
    home: Home,
    signer: Signer,
    upstream: Upstream,
    packages: [Vec<u8>; 2],
}

const INPUT: &str = "[[inputs]]\nname = \"ms\"\ntype = \"integer\"\ndescription = \"How long.\"\nrequired = false\ndefault = 1\n";

impl ActionHome {
    fn new() -> Self {
        let (home, signer, upstream) = (Home::new(COFFERDAM), Signer::new(), Upstream::start());
        home.trust(&signer.public(), "github://cofferdam/*");
        let packages =
            [package::guest_package("probe", &[upstream.grant()]), package::guest_package("slack", &[])];
        for package in &packages {
            run(home.install(package, &signer)).unwrap();
        }
        let ground = Self { home, signer, upstream, packages };
        ground.config("");
        ground.put(&ground.good());
        ground
    }

    fn cli(&self) -> Cli {
        Cli::new(COFFERDAM, self.home.path())
    }

    fn config(&self, more: &str) {
        let config = format!("[network]\nallow_private = [\"{}\"]\n{more}", self.upstream.host_port());
        fs::write(self.home.path().join("config.toml"), config).unwrap();
    }

    fn put(&self, text: &str) {
        write(self.home.path(), "foretold", text);
    }

    /// An action that runs: it waits, and posts.
    fn good(&self) -> String {
        let [probe, slack] = [0, 1].map(|n| Digest::sha256(&self.packages[n]));
        let url = self.upstream.url("/text/foretold");
        let steps = [
            step("wait", "sleep", "ms = \"${args.ms}\"", "retry = \"none\""),
            step("pay", "post", &format!("url = \"{url}\", body = \"x\""), ""),
        ];
        format!(
            "+++\nname = \"foretold\"\nversion = \"1.0.0\"\n[[requires.connectors]]\nname = \"github://cofferdam/probe\"\n\
             version = \"0.1.0\"\nhash = \"sha256:{probe}\"\ncapabilities = {{ operations = [\"sleep\", \"post\", \"fetch\", \"call_info\"], \
             hosts = [\"{}\"] }}\n[[requires.connectors]]\nname = \"github://cofferdam/slack\"\nversion = \"0.1.0\"\nhash = \
             \"sha256:{slack}\"\ncapabilities = {{ operations = [\"list_channels\", \"post_message\"], hosts = \
             [\"slack.com:443\"] }}\n{INPUT}{}+++\nA test.\n",
            self.upstream.grant(),
            steps.concat()
        )
    }

    /// The same with the first step replaced.
    fn first(&self, first: &str) -> String {
        let own = step("wait", "sleep", "ms = \"${args.ms}\"", "retry = \"none\"");
        let text = self.good();
        assert!(text.contains(&own));
        text.replacen(&own, first, 1)
    }

    fn trusted_until(&self, not_after: Timestamp) {
        let change = |keyring: &mut Keyring| {
            let scope = SigningScope::parse("github://cofferdam/*").unwrap();
            keyring.trust(&self.signer.public(), &[scope], Timestamp::now(), Some(not_after), None).unwrap();
            Ok(())
        };
        self.home.keyring().update(change).unwrap();
    }

    fn package(&self) -> PathBuf {
        let hash = Digest::sha256(&self.packages[0]).to_string();
        self.home.path().join("packages/sha256").join(hash).join("connector.wasm")
    }

    /// The refusal of the dry run, or of one of its steps: the code, and the exit code.
    fn foretold(&self, more: &[&str]) -> Option<(String, i32)> {
        let args = [&["run", "foretold", "--dry-run", "--format", "json"], more].concat();
        let dry = self.cli().run(&args);
        let code = dry.code.unwrap();
        let told: Value = serde_json::from_str(&dry.stdout).unwrap();
        let problem = match told["steps"].as_array() {
            Some(steps) => steps.iter().find_map(|step| step.get("problem").cloned()),
            None => Some(told),
        };
        assert_eq!(problem.is_some(), code != 0, "{dry:?}");
        problem.map(|problem| (word(&problem), code))
    }

    /// The end of the run, its code and exit code; and the number of posts.
    fn done(&self, more: &[&str]) -> (Option<(String, i32)>, usize) {
        let before = self.upstream.seen("/text/foretold").len();
        let ran = self.cli().run(&[&["run", "foretold", "--format", "json"], more].concat());
        let ended = match ran.code {
            Some(0) => None,
            code => Some((word(&ran.envelope()), code.unwrap())),
        };
        (ended, self.upstream.seen("/text/foretold").len() - before)
    }

    /// Both say the same, and that is `word`; nothing was posted.
    #[track_caller]
    fn refused(&self, what: &str, more: &[&str], expected: &str) {
        let foretold = self.foretold(more);
        let (done, posted) = self.done(more);
        assert_eq!(foretold, done, "{what}: what is foretold, and what is done");
        assert_eq!((foretold.map(|(word, _)| word).as_deref(), posted), (Some(expected), 0), "{what}");
    }

    /// No problem is predicted, and the run succeeds.
    #[track_caller]
    fn runs(&self, what: &str, more: &[&str]) {
        assert_eq!(self.foretold(more), None, "{what}");
        assert_eq!(self.done(more), (None, 1), "{what}");
    }
}

/// The class, or the code of the host's own error.
fn word(envelope: &Value) -> String {
    let error = &envelope["error"];
    error.get("class").unwrap_or(&error["code"]).as_str().unwrap_or_else(|| panic!("{envelope}")).to_owned()
}

/// Puts other bytes into a file, and takes them out again when it is dropped.
struct Replaced(PathBuf, Option<Vec<u8>>);

fn replaced(path: &Path, bytes: Option<&[u8]>) -> Replaced {
    let before = fs::read(path).ok();
    match bytes {
        Some(bytes) => fs::write(path, bytes).unwrap(),
        None => fs::remove_file(path).unwrap(),
    }
    Replaced(path.to_owned(), before)
}

impl Drop for Replaced {
    fn drop(&mut self) {
        match &self.1 {
            Some(bytes) => fs::write(&self.0, bytes).unwrap(),
            None => fs::remove_file(&self.0).unwrap(),
        }
    }
}

#[test]
fn dry_run_and_run_agree_on_arguments() {
    let ground = ActionHome::new();
    ground.runs("as it is", &[]);
    ground.runs("with a key", &["--idempotency-key", "fine-1", "--wall-time", "30s", "ms=2"]);
    for (what, more) in [
        ("an argument that is none", &["mss=1"][..]),
        ("an argument of another type", &["ms=soon"]),
        ("an argument that the operation does not take", &["ms=-1"]),
        ("a key that is none", &["--idempotency-key", "a:b"]),
        ("a key like the host's", &["--key", "audit-1"]),
        ("more time than there is", &["--wall-time", "2h"]),
        ("an identity that nobody asks for", &["--identity", "github=work"]),
    ] {
        ground.refused(what, more, "validation");
    }
    let long = "k".repeat(200);
    ground.refused("a key that steps cannot carry", &["--idempotency-key", &long], "validation");
    ground.runs("as it was", &[]);
}

#[test]
fn dry_run_and_run_agree_on_the_file() {
    let ground = ActionHome::new();
    let good = ground.good();
    let hash = Digest::sha256(&ground.packages[0]).to_string();
    let once = ground.upstream.url("/text/foretold-once");
    let same = format!(
        "fallback = [{{ connector = \"github://cofferdam/probe\", op = \"fetch\", inputs = {{ url = \"{once}\" }} }}]"
    );
    for (what, text) in [
        ("another package", good.replacen(&hash, &"0".repeat(64), 1)),
        ("another version", good.replacen("version = \"0.1.0\"", "version = \"0.2.0\"", 1)),
        ("another type", good.replacen("\"${args.ms}\"", "\"soon\"", 1)),
        ("a retry that never comes", good.replacen("body = \"x\" }", "body = \"x\" }\nretry = \"standard\"", 1)),
        ("no TOML", good.replacen("[[requires", "[[requires[", 1)),
        (
            "a fallback that asks the same",
            ground.first(&step("wait", "fetch", &format!("url = \"{once}\""), &same)),
        ),
        ("an identity that the connector has no use for", ground.first(&step("wait", "sleep", "ms = 1", "")).replacen(
            "[[requires.connectors]]\nname = \"github://cofferdam/slack\"",
            "identity = { github = \"work\" }\n[[requires.connectors]]\nname = \"github://cofferdam/slack\"",
            1,
        )),
    ] {
        assert_ne!(text, good, "{what}");
        ground.put(&text);
        ground.refused(what, &[], "validation");
    }
    ground.put(&good);
    ground.runs("as it was", &[]);
    let actions = ground.home.path().join("actions");
    fs::set_permissions(&actions, Permissions::from_mode(0o777)).unwrap();
    ground.refused("a directory that others write", &[], "validation");
    fs::set_permissions(&actions, Permissions::from_mode(0o700)).unwrap();
    {
        let _gone = replaced(&actions.join("foretold.md"), None);
        ground.refused("no file", &[], "action_not_found");
    }
    fs::set_permissions(actions.join("foretold.md"), Permissions::from_mode(0o600)).unwrap();
    ground.runs("as it was", &[]);
}

#[test]
fn dry_run_and_run_agree_on_trust_and_bindings() {
    let ground = ActionHome::new();
    let home = ground.home.path();
    {
        let _nobody = replaced(&home.join("keyring.toml"), None);
        ground.refused("nobody is trusted", &[], "validation");
    }
    // Trusted for a moment that is over.
    let until = Timestamp::now() + 1.second();
    ground.trusted_until(until);
    while Timestamp::now() <= until {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    ground.refused("trust that has ended", &[], "validation");
    ground.trusted_until(Timestamp::now() + 24.hours());
    ground.runs("trusted again", &[]);
    {
        let mut bytes = ground.packages[0].clone();
        *bytes.last_mut().unwrap() ^= 1;
        let _other = replaced(&ground.package(), Some(&bytes));
        ground.refused("bytes that are not the package's", &[], "validation");
    }
    {
        let _broken = replaced(&home.join("packages/index.json"), Some(b"{ broken"));
        ground.refused("an index that cannot be read", &[], "registry_unavailable");
    }
    {
        let _broken = replaced(&home.join("keyring.toml"), Some(b"version = \"x\""));
        ground.refused("a keyring that cannot be read", &[], "keyring_invalid");
    }
    ground.runs("as it was", &[]);
    // A step that needs a credential.
    let list = step("wait", "list_channels", "", "").replace("cofferdam/probe", "cofferdam/slack");
    ground.put(&ground.first(&list));
    ground.refused("nothing is bound", &[], "binding_required");
    ground.refused("nor that identity", &["--identity", "slack=work"], "binding_required");
    let _vault = replaced(&home.join("vault"), Some(b"no vault"));
    let (foretold, (done, posted)) = (ground.foretold(&[]), ground.done(&[]));
    assert!(
        foretold.is_some() && foretold == done && posted == 0,
        "a vault that is none: {foretold:?} {done:?}"
    );
}

#[test]
fn an_unbound_fallback_does_not_stop_a_run() {
    let ground = ActionHome::new();
    let fallback = "fallback = [{ connector = \"github://cofferdam/slack\", op = \"list_channels\" }]";
    ground.put(&ground.first(&step("wait", "call_info", "", fallback)));
    ground.runs("the first is asked alone", &[]);
    let dry = ground.cli().run(&["run", "foretold", "--dry-run", "--format", "json"]).json();
    let step = &dry["steps"][0];
    assert_eq!(step.get("problem"), None);
    assert_eq!(word(&step["fallback"][0]["problem"]), "binding_required");
    let page = ground.cli().run(&["run", "foretold", "--dry-run"]).ok();
    assert!(page.contains("or else") && page.contains("cofferdam binding set"), "{page}");
}

#[test]
fn a_dry_run_reports_an_open_circuit() {
    let ground = ActionHome::new();
    ground.config(
        "[retry]\nprofile = \"none\"\n[breaker]\npolicy = \"at-once\"\nthreshold = 1\ncooldown = \"1h\"\n",
    );
    ground.runs("a circuit that is closed", &[]);
    let open = |more: &[&str]| {
        let dry =
            ground.cli().run(&[&["run", "foretold", "--dry-run", "--format", "json"], more].concat()).json();
        dry["steps"][1]["call"].get("open_circuits").cloned()
    };
    assert_eq!(open(&[]), None);
    let url = format!("{{\"url\": \"{}\"}}", ground.upstream.url("/status/503/opens"));
    ground.cli().run(&["call", "github://cofferdam/probe", "fetch", &url]).fails(76).said("503");
    assert_eq!(open(&[]), Some(serde_json::json!([ground.upstream.host_port()])));
    let page = ground.cli().run(&["run", "foretold", "--dry-run"]).ok();
    assert!(page.contains("is not asked now") && page.contains("cofferdam breaker status"), "{page}");
    let (ended, posted) = ground.done(&[]);
    assert_eq!((ended.unwrap().0.as_str(), posted), ("external_api_error", 0));
    ground.cli().run(&["breaker", "reset", "--all"]).ok();
    assert_eq!(open(&[]), None);
    ground.runs("a circuit that was closed", &[]);
}
