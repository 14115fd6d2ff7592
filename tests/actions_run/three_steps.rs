//! The unchanged action of three steps in `examples/` with its connectors: the requests to GitHub and Slack.

use std::sync::LazyLock;

use cofferdam::{Error, Host};
use cofferdam_core::digest::Digest;
use cofferdam_egress::vault::SecretMaterial;
use cofferdam_runtime::flow::{ActionReport, ActionResult, ActionValue, RunRequest};
use cofferdam_test_support::services::{Front, Route};
use cofferdam_test_support::vault::{MemoryVault, binding, secret};
use cofferdam_test_support::{Home, InstallAccepted as _, Signer, Upstream, package};
use serde_json::{Value, json};

use super::fixture::{statuses, write};
use crate::COFFERDAM;
use crate::shared_host::{failed, run};

const GITHUB: &str = "api.github.com";
const SLACK: &str = "slack.com";

struct Stage {
    front: Front,
    host: Host,
    _home: Home,
    _upstream: Upstream,
}

static STAGE: LazyLock<Result<Stage, String>> = LazyLock::new(|| {
    let upstream = Upstream::start();
    let address = ([127, 0, 0, 1], upstream.port()).into();
    let front = Front::start([Route::new(GITHUB, address), Route::new(SLACK, address)])?;
    let base = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("seed");
    std::fs::create_dir_all(&base).unwrap();
    let (home, signer) = (Home::shared(COFFERDAM, &base), Signer::new());
    home.trust(&signer.public(), "github://cofferdam/*");
    let token = SecretMaterial::Bearer { token: secret("token-of-the-stage-0123456789") };
    let bound =
        binding("bearer/slack/default", token, &["github://cofferdam/slack"], &["slack.com:443".into()]);
    let mut builder = home.builder().extra_root_pem(front.authority().pem()).resolver(front.resolver());
    for name in [GITHUB, SLACK] {
        builder = builder.allow_private(format!("{name}:443=127.0.0.0/8"));
    }
    let host = builder.vault(MemoryVault::with(vec![bound])).build().unwrap();
    let path = package::repository().join("examples/actions/ship-update.md");
    let mut text = std::fs::read_to_string(path).unwrap();
    for name in ["github-issues", "slack"] {
        let bytes = package::guest_package(name, &[]);
        run(host.install_accepted(bytes.clone(), Some(signer.sign(&bytes)), Default::default())).unwrap();
        // As the documentation tells its reader to do.
        text = text.replacen(
            &format!("sha256:{}", "0".repeat(64)),
            &format!("sha256:{}", Digest::sha256(&bytes)),
            1,
        );
    }
    write(home.path(), "ship-update", &text);
    Ok(Stage { front, host, _home: home, _upstream: upstream })
});

fn stage() -> Option<&'static Stage> {
    match &*STAGE {
        Ok(stage) => Some(stage),
        Err(why) => {
            crate::skipped(&format!("no example action meets its services: {why}"));
            None
        }
    }
}

impl Stage {
    /// The services' responses to requests that contain the marker: a pull request, a message, a reaction.
    fn answers(&self, marker: &str, post: (u16, &str), react: (u16, &str)) {
        let found =
            json!([{"number": 7, "title": "Dams & walls", "html_url": format!("https://x/{marker}")}]);
        let path = format!("acme%3A{marker}");
        self.front.answer(GITHUB, &path, (200, &[], &found.to_string()));
        self.front.answer(SLACK, &format!("channel=C{marker}&text"), (post.0, &[], post.1));
        self.front.answer(SLACK, &format!("channel=C{marker}&timestamp"), (react.0, &[], react.1));
    }

    fn ship(&self, marker: &str, key: Option<&str>) -> (Result<ActionValue, Error>, ActionReport) {
        let channel = format!("C{marker}");
        let args = json!({"owner": "acme", "repository": "dam", "branch": marker, "channel": channel});
        let asked = RunRequest::new(args);
        let asked = match key {
            Some(key) => asked.idempotency_key(key),
            None => asked,
        };
        let ActionResult { outcome, report } = run(self.host.run_action("ship-update", asked));
        (outcome, report)
    }

    /// The number of requests for each of the three.
    fn asked(&self, marker: &str) -> [usize; 3] {
        [
            self.front.seen(GITHUB, marker).len(),
            self.front.seen(SLACK, &format!("channel=C{marker}&text")).len(),
            self.front.seen(SLACK, &format!("channel=C{marker}&timestamp")).len(),
        ]
    }
}

fn posted(marker: &str) -> String {
    json!({"ok": true, "channel": format!("C{marker}"), "ts": "17.25"}).to_string()
}

const DONE: (u16, &str) = (200, r#"{"ok":true}"#);

#[test]
fn all_three_steps_run_and_return_values() {
    let Some(stage) = stage() else { return };
    stage.answers("fine", (200, &posted("fine")), DONE);
    let (value, report) = stage.ship("fine", None);
    let value = serde_json::to_value(value.unwrap()).unwrap();
    assert_eq!(
        value,
        json!({
            "action": "ship-update",
            "output": null,
            "steps": {
                "find_pr": {"number": 7, "title": "Dams & walls", "url": "https://x/fine"},
                "post": {"channel": "Cfine", "timestamp": "17.25"},
                "react": null,
            },
        })
    );
    assert_eq!(value.as_object().unwrap().keys().collect::<Vec<_>>(), ["action", "output", "steps"]);
    assert_eq!((statuses(&report), stage.asked("fine")), (vec!["value"; 3], [1, 1, 1]));
    let message = stage.front.seen(SLACK, "channel=Cfine&text").remove(0);
    let body = String::from_utf8_lossy(&message.body).into_owned();
    assert_eq!(body, "channel=Cfine&text=Ready%3A+%237+Dams+%26+walls%0Ahttps%3A%2F%2Fx%2Ffine");
    let reaction = stage.front.seen(SLACK, "channel=Cfine&timestamp").remove(0);
    assert_eq!(String::from_utf8_lossy(&reaction.body), "channel=Cfine&timestamp=17.25&name=rocket");
}

#[test]
fn the_first_failing_step_ends_the_action() {
    let Some(stage) = stage() else { return };
    // The first: nothing of the others happens.
    stage.front.answer(GITHUB, "acme%3Afirst", (404, &[], r#"{"message": "Not Found"}"#));
    let (outcome, report) = stage.ship("first", None);
    let failure = failed(outcome.map(|_| Value::Null));
    assert_eq!((failure.code(), failure.details()["op"].as_str()), ("not_found", Some("find_pr_by_branch")));
    assert_eq!((statuses(&report), stage.asked("first")), (vec!["failure", "not_run", "not_run"], [1, 0, 0]));
    // The second: the first was called, the third is not.
    stage.answers("second", (200, r#"{"ok": false, "error": "invalid_auth"}"#), DONE);
    let (outcome, report) = stage.ship("second", None);
    let failure = failed(outcome.map(|_| Value::Null));
    assert_eq!((failure.details()["op"].as_str(), failure.retriable()), (Some("post_message"), false));
    assert_eq!((statuses(&report), stage.asked("second")), (vec!["value", "failure", "not_run"], [1, 1, 0]));
    let call = report.ended_in().unwrap().report.as_ref().unwrap();
    assert_eq!(failure.audit_id(), &call.audit_id, "the failure is the step's own");
    assert_ne!(failure.audit_id(), &report.audit_id);
    let told = cofferdam_runtime::agent::action_error("ship-update", &failure.clone().into(), &report);
    // It is the step's envelope, and whole in the details: but the action may have posted, and is not to be run again.
    let own = serde_json::to_value(&failure).unwrap()["error"].clone();
    let error = &told.structured()["error"];
    assert_eq!(
        (&error["audit_id"], &error["message"], &error["class"]),
        (&own["audit_id"], &own["message"], &own["class"])
    );
    assert_eq!((&error["details"]["failure"], &error["details"]["again"]), (&own, &json!("ask_first")));
    assert!(told.text().starts_with("Action 'ship-update' failed: external_api_error ("), "{}", told.text());
    // The third: the message stays where it is, and nothing deletes it.
    stage.answers("third", (200, &posted("third")), (200, r#"{"ok": false, "error": "invalid_name"}"#));
    let (outcome, report) = stage.ship("third", None);
    let failure = failed(outcome.map(|_| Value::Null));
    assert_eq!(failure.details()["upstream_code"], "invalid_name");
    assert_eq!((statuses(&report), stage.asked("third")), (vec!["value", "value", "failure"], [1, 1, 1]));
    let told = cofferdam_runtime::agent::action_error("ship-update", &failure.into(), &report);
    let line = "It ended in step 'react'. Done before, and not undone: 'find_pr', 'post'. 'post' must not be repeated";
    assert!(told.text().contains(line), "{}", told.text());
}

#[test]
fn unsafe_steps_are_not_repeated_and_keys_resume() {
    let Some(stage) = stage() else { return };
    // Slack is down when the message is posted: it may be there, so that it is not posted again.
    stage.answers("down", (503, "down"), DONE);
    let (outcome, _) = stage.ship("down", None);
    let failure = failed(outcome.map(|_| Value::Null));
    assert_eq!((failure.retriable(), stage.asked("down")), (false, [1, 1, 0]));
    // The reaction fails transiently: it is retried, and then the failure is not kept for the key.
    stage.answers("later", (200, &posted("later")), (503, "down"));
    let (outcome, report) = stage.ship("later", Some("update-17"));
    assert!(failed(outcome.map(|_| Value::Null)).retriable());
    let [found, message, reactions] = stage.asked("later");
    assert_eq!((found, message), (1, 1));
    assert_eq!(report.steps[2].report.as_ref().unwrap().attempts.len(), reactions);
    assert!(reactions > 1);
    let (outcome, report) = stage.ship("later", Some("update-17"));
    assert!(failed(outcome.map(|_| Value::Null)).retriable());
    assert_eq!(stage.asked("later")[..2], [1, 1], "what was done is not done again");
    assert!(report.steps[1].report.as_ref().unwrap().replayed.is_some());
}

#[test]
fn an_identity_applies_only_to_steps_that_use_it() {
    let Some(stage) = stage() else { return };
    let ship = |marker: &str, service: &str, identity: &str| {
        stage.answers(marker, (200, &posted(marker)), DONE);
        let args =
            json!({"owner": "acme", "repository": "dam", "branch": marker, "channel": format!("C{marker}")});
        let asked = RunRequest::new(args).identity(service, identity);
        let ActionResult { outcome, report } = run(stage.host.run_action("ship-update", asked));
        (outcome, report)
    };
    // GitHub is called without a credential: it has no use for Slack's.
    let (value, report) = ship("chosen", "slack", "default");
    assert!(value.is_ok(), "{:?}", value.map(drop));
    assert_eq!((statuses(&report), stage.asked("chosen")), (vec!["value"; 3], [1, 1, 1]));
    let (outcome, _) = ship("unbound", "slack", "nobody");
    assert_eq!(failed(outcome.map(|_| Value::Null)).class().name(), "binding_required");
    assert_eq!(stage.asked("unbound"), [1, 0, 0]);
    // An identity without a use is an error, reported before anything is done.
    let (outcome, report) = ship("useless", "slcak", "work");
    let error = outcome.unwrap_err();
    assert!(error.to_string().contains("`slcak`") && !report.has_begun(), "{error}");
    assert_eq!(stage.asked("useless"), [0, 0, 0]);
}
