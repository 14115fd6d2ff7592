//! An action's file against the types of the connectors that it calls: every mistake has its line, its key and a fix.

use std::sync::Arc;

use cofferdam::{HostError, HostErrorKind};
use cofferdam_core::digest::Digest;
use cofferdam_model::action::{Action, Diagnostic};
use cofferdam_runtime::flow::CheckedAction;
use serde_json::Value;

use crate::shared_host::{run, shared_host};

/// The line that the requirement of a guest takes, with its package's hash.
pub(super) fn requires(guest: &str, package: &[u8], more: &str) -> String {
    let hash = Digest::sha256(package);
    format!(
        "[[requires.connectors]]\nname = \"github://cofferdam/{guest}\"\nversion = \"0.1.0\"\nhash = \"sha256:{hash}\"\n{more}\n\n"
    )
}

fn package(guest: &str) -> &'static [u8] {
    &shared_host().packages.iter().find(|(name, _)| *name == guest).unwrap().1
}

/// An action that calls most of the example guests.
fn triage() -> String {
    let mut text = "+++\nname = \"triage\"\nversion = \"1.0.0\"\n\n".to_owned();
    text += &requires(
        "github-issues",
        package("github-issues"),
        "capabilities = { operations = [\"get_issue\", \"create_issue\", \"list_issues\"] }",
    );
    text += &requires(
        "slack",
        package("slack"),
        "capabilities = { operations = [\"post_message\", \"add_reaction\"], hosts = [\"slack.com:443\"] }\nidentity = { slack = \"work\" }",
    );
    text += &requires(
        "hello",
        package("hello"),
        "capabilities = { operations = [\"areas\", \"by_age\", \"common_rights\", \"divide\", \"echo_scalars\", \"greet\", \"nothing\", \"reverse\"] }",
    );
    text + r##"[[inputs]]
name = "repo"
type = "string"
description = "The repository."

[[inputs]]
name = "number"
type = "integer"
description = "The issue."

[[inputs]]
name = "note"
type = "string"
description = "A thread."
required = false

[[inputs]]
name = "tone"
type = "string"
enum = ["formal", "warm"]
description = "How."

[[inputs]]
name = "share"
type = "number"
description = "A part."

[[inputs]]
name = "tags"
type = "array"
items_type = "string"
description = "Labels."

[[inputs]]
name = "extra"
type = "object"
description = "Anything."

[[execute]]
id = "issue"
connector = "github://cofferdam/github-issues"
op = "get_issue"
timeout = "20s"
retry = "patient"
inputs = { repository = { owner = "acme", name = "${args.repo}" }, number = "${args.number}" }

[[execute]]
id = "post"
connector = "github://cofferdam/slack"
op = "post_message"
idempotent = false
inputs = { channel = "C1", text = "#${steps.issue.number} ${steps.issue.title} ${steps.issue.body}", thread = "${args.note}" }

[[execute]]
id = "react"
connector = "github://cofferdam/slack"
op = "add_reaction"
retry = { max = 2, initial = "1s", max_delay = "8s", jitter = 0.2 }
inputs = { channel = "${steps.post.channel}", timestamp = "${steps.post.timestamp}", emoji = "eyes" }

[[execute]]
id = "greet"
connector = "github://cofferdam/hello"
op = "greet"
inputs = { name = "${steps.issue.labels[0]}", tone = "${args.tone}" }
fallback = [{ connector = "github://cofferdam/hello", op = "greet", inputs = { tone = "warm" } }]

[[execute]]
id = "areas"
connector = "github://cofferdam/hello"
op = "areas"
inputs = { shapes = ["empty", { circle = "${args.share}" }, { rectangle = [1, "${args.number}"] }] }

[[execute]]
id = "rights"
connector = "github://cofferdam/hello"
op = "common_rights"
inputs = { one = "${args.tags}", other = ["read", "${args.repo}"] }

[[execute]]
id = "scalars"
connector = "github://cofferdam/hello"
op = "echo_scalars"
inputs.value = { truth = true, small = 255, short = -1, big = "18446744073709551615", low = 0, fraction = "NaN", letter = "x", text = "" }

[[execute]]
id = "again"
connector = "github://cofferdam/hello"
op = "echo_scalars"
inputs.value = "${steps.scalars}"

[[execute]]
id = "any"
connector = "github://cofferdam/hello"
op = "echo_scalars"
inputs = { value = "${args.extra}" }
+++
Looks at an issue, and tells a channel of it.
"##
}

fn checked(text: &str) -> Result<CheckedAction, HostError> {
    let action = Action::parse("triage.md", text.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
    run(shared_host().host.check_action(Arc::new(action)))
}

/// Every problem, as data.
fn problems(error: &HostError) -> Vec<(u64, String, String)> {
    assert_eq!(error.kind(), HostErrorKind::Validation, "{error}");
    let problems = error.details()["problems"].as_array().unwrap();
    let text = |problem: &Value, key: &str| problem[key].as_str().unwrap().to_owned();
    let each = |it: &Value| {
        assert!(!text(it, "fix").is_empty(), "{it}");
        (
            it["line"].as_u64().unwrap(),
            text(it, "key"),
            format!("{}; {}", text(it, "message"), text(it, "fix")),
        )
    };
    problems.iter().map(each).collect()
}

/// The one problem of the example with `from` replaced.
#[track_caller]
fn told(from: &str, to: &str, key: &str, words: &str) {
    let text = triage();
    let (before, _) = text.split_once(from).unwrap_or_else(|| panic!("`{from}` is not in the example"));
    let line = before.matches('\n').count() as u64 + 1;
    let error = match checked(&text.replacen(from, to, 1)) {
        Ok(_) => panic!("`{to}` is accepted"),
        Err(error) => error,
    };
    let all = problems(&error);
    let [(at, got, says)] = all.as_slice() else { panic!("`{to}`: {all:#?}") };
    assert_eq!((*at, got.as_str()), (line, key), "`{to}`: {says}");
    assert!(says.contains(words), "`{to}`: not `{words}` in {says}");
    assert_eq!(says.chars().find(|c| c.is_control()), None);
}

#[test]
fn an_action_that_fits_is_ready() {
    let ready = checked(&triage()).unwrap_or_else(|error| panic!("{:#?}", problems(&error)));
    assert_eq!(ready.steps().len(), 9);
    assert_eq!(ready.timeout().as_secs(), 120);
    let idempotent: Vec<_> = ready.steps().iter().take(4).map(|step| step.idempotent()).collect();
    assert_eq!(idempotent, [true, false, true, true]);
    assert_eq!(&**ready.steps()[0].retry().unwrap().name(), "patient");
    assert_eq!(ready.steps()[2].retry().unwrap().max_attempts(), 3);
    assert_eq!(ready.steps()[3].fallbacks().len(), 1);
    assert!(ready.steps()[0].connector().hash().is_some());
    assert_eq!(ready.steps()[1].operation().name().json(), "post_message");
}

#[test]
fn required_connectors_must_be_installed_and_match() {
    let at = |key: &str| format!("requires.connectors[2].{key}");
    told(
        "\"github://cofferdam/hello\"\nversion = \"0.1.0\"",
        "\"github://cofferdam/hello\"\nversion = \"0.1.1\"",
        &at("name"),
        "cofferdam install",
    );
    let hash = Digest::sha256(package("hello")).to_string();
    told(&hash, &"0".repeat(64), &at("hash"), &format!("is another: sha256:{hash}"));
    let text = triage().replace("[\"areas\"", "[\"arreas\", \"areas\"");
    let all = problems(&checked(&text).unwrap_err());
    assert!(
        all[0].1 == at("capabilities.operations[0]") && all[0].2.contains("did you mean \"areas\"?"),
        "{all:?}"
    );
    told(
        "hosts = [\"slack.com:443\"]",
        "hosts = [\"evil.example:443\"]",
        "requires.connectors[1].capabilities.hosts[0]",
        "can only narrow; remove it, or write one of slack.com:443",
    );
    told(
        "identity = { slack = \"work\" }",
        "identity = { github = \"work\" }",
        "requires.connectors[1].identity.github",
        "it asks for: slack",
    );
    told(
        "identity = { slack = \"work\" }",
        "identity = { slack = \"../x\" }",
        "requires.connectors[1].identity.slack",
        "identity",
    );
}

#[test]
fn an_unverified_connector_is_reported() {
    let text = triage();
    let (home, signer) =
        (cofferdam_test_support::Home::new(crate::COFFERDAM), cofferdam_test_support::Signer::new());
    home.trust(&signer.public(), "github://cofferdam/*");
    run(home.install(package("hello"), &signer)).unwrap();
    home.revoke(&signer.public());
    let action = Arc::new(Action::parse("triage.md", text.as_bytes()).unwrap());
    let error = run(home.host().check_action(action)).unwrap_err();
    let all = problems(&error);
    assert_eq!(all.len(), 3, "{all:#?}");
    assert!(all[0].2.contains("is not installed") && all[2].2.contains("may not run here"), "{all:#?}");
    assert!(all[2].2.contains("revoked"), "{all:#?}");
}

#[test]
fn step_inputs_must_match_operation_types() {
    let (issue, post, greet) = ("execute[0].inputs", "execute[1].inputs", "execute[3].inputs");
    told(
        "number = \"${args.number}\" }",
        "number = \"${args.repo}\" }",
        &format!("{issue}.number"),
        "type string is not `u64`",
    );
    told(
        "number = \"${args.number}\" }",
        "number = \"${args.share}\" }",
        &format!("{issue}.number"),
        "declare an integer",
    );
    told("number = \"${args.number}\" }", "number = -1 }", &format!("{issue}.number"), "fits u64");
    told("number = \"${args.number}\" }", "number = 1.5 }", &format!("{issue}.number"), "fits u64");
    told(
        "number = \"${args.number}\" }",
        "number = \"#${args.number}\" }",
        &format!("{issue}.number"),
        "a text does not fit",
    );
    told(
        "number = \"${args.number}\" }",
        "numbr = \"${args.number}\", number = 1 }",
        &format!("{issue}.numbr"),
        "did you mean `number`?",
    );
    told(", number = \"${args.number}\" }", " }", issue, "needs `number`: `u64`");
    told(
        "{ owner = \"acme\", name",
        "{ ownr = \"acme\", owner = \"acme\", name",
        &format!("{issue}.repository.ownr"),
        "did you mean `owner`?",
    );
    told("{ owner = \"acme\", name", "{ name", &format!("{issue}.repository"), "`owner` is missing");
    told(
        "{ owner = \"acme\", name",
        "{ owner = 3, name",
        &format!("{issue}.repository.owner"),
        "expected a string, got a number",
    );
    told(
        "{ owner = \"acme\", name = \"${args.repo}\" }",
        "\"acme\"",
        &format!("{issue}.repository"),
        "expected an object",
    );
    told(
        "{ owner = \"acme\", name = \"${args.repo}\" }",
        "[\"${args.repo}\"]",
        &format!("{issue}.repository"),
        "a list is not",
    );
    told(
        "channel = \"C1\"",
        "channel = \"${args.note}\"",
        &format!("{post}.channel"),
        "may be left out by callers",
    );
    told(
        "text = \"#",
        "text = \"${args.note}#",
        &format!("{post}.text"),
        "may be left out by callers, and stands in a text",
    );
    told("text = \"#", "text = \"${args.tags}#", &format!("{post}.text"), "lists and objects");
    told(
        "text = \"#",
        "text = \"${steps.issue.labels}#",
        &format!("{post}.text"),
        "`list<string>` is no text",
    );
    told("${steps.issue.title}", "${steps.issue.titel}", &format!("{post}.text"), "did you mean `title`?");
    told(
        "${steps.issue.title}",
        "${steps.issue.title.x}",
        &format!("{post}.text"),
        "`string` has no field `x`",
    );
    told("${steps.issue.title}", "${steps.issue[0]}", &format!("{post}.text"), "has no item 0");
    told(
        "${steps.issue.title}",
        "${args.repo.x}",
        &format!("{post}.text"),
        "an argument of type string has no field",
    );
    told(
        "${steps.post.channel}",
        "${steps.issue.labels}",
        "execute[2].inputs.channel",
        "`list<string>` is not `string`",
    );
    told(
        "name = \"${steps.issue.labels[0]}\"",
        "name = \"${steps.react}\"",
        &format!("{greet}.name"),
        "returns nothing",
    );
    let all = problems(
        &checked(&triage().replace("[\"formal\", \"warm\"]", "[\"formal\", \"cold\"]")).unwrap_err(),
    );
    assert!(all.len() == 1 && all[0].1 == format!("{greet}.tone"), "{all:#?}");
    assert!(all[0].2.contains("`cold` is none of formal, warm"), "{all:#?}");
}

#[test]
fn lists_variants_and_flags_are_walked() {
    let (areas, rights) = ("execute[4].inputs.shapes", "execute[5].inputs");
    told("\"empty\", {", "\"emty\", {", &format!("{areas}[0]"), "empty");
    told("{ circle = ", "{ cirle = ", &format!("{areas}[1]"), "none of");
    told(
        "circle = \"${args.share}\"",
        "circle = \"${args.repo}\"",
        &format!("{areas}[1].circle"),
        "is not `f64`",
    );
    told(
        "[1, \"${args.number}\"]",
        "[1, \"${args.number}\", 2]",
        &format!("{areas}[2].rectangle"),
        "a list is not",
    );
    told(
        "[\"read\", \"${args.repo}\"]",
        "[\"raed\", \"${args.repo}\"]",
        &format!("{rights}.other[0]"),
        "did you mean `read`?",
    );
    told("one = \"${args.tags}\"", "one = \"${args.number}\"", &format!("{rights}.one"), "is not `flags");
    told("small = 255", "small = 256", "execute[6].inputs.value.small", "fits u8");
    told("letter = \"x\"", "letter = \"xy\"", "execute[6].inputs.value.letter", "exactly one character");
    told("\"${steps.scalars}\"", "\"${steps.issue}\"", "execute[7].inputs.value", "it has a field `number`");
    told("\"${steps.scalars}\"", "\"${steps.areas}\"", "execute[7].inputs.value", "does not fit");
    told("\"${args.extra}\"", "\"${args.tags}\"", "execute[8].inputs.value", "type array is not");
}

#[test]
fn step_settings_are_checked_against_the_manifest() {
    told("idempotent = false", "idempotent = true", "execute[1].idempotent", "must not be repeated");
    told("retry = \"patient\"", "retry = \"patiant\"", "execute[0].retry", "did you mean \"patient\"?");
    told("timeout = \"20s\"", "timeout = \"6m\"", "execute[0].timeout", "above what the host allows");
    told(
        "version = \"1.0.0\"\n",
        "timeout = \"50m\"\nversion = \"1.0.0\"\n",
        "timeout",
        "above what the host allows",
    );
    told(
        "op = \"greet\", inputs = { tone = \"warm\" }",
        "op = \"greet\", inputs = { tone = \"cold\" }",
        "execute[3].fallback[0].inputs.tone",
        "expected one of formal, warm",
    );
    let text = triage().replace("op = \"greet\", inputs = { tone = \"warm\" }", "op = \"nothing\"");
    let all = problems(&checked(&text).unwrap_err());
    let unknown =
        |name: &str| all.iter().any(|it| it.2.contains(&format!("`nothing` has no parameter `{name}`")));
    assert!(all.len() == 2 && unknown("name") && unknown("tone"), "{all:#?}");
    let react = "retry = { max = 2, initial = \"1s\", max_delay = \"8s\", jitter = 0.2 }\n";
    let twice = "fallback = [{ connector = \"github://cofferdam/slack\", op = \"add_reaction\" }]\nidempotent = false\n";
    told(react, twice, "execute[2].fallback[0]", "must not be repeated");
}

#[test]
fn a_retry_of_a_non_idempotent_step_is_refused() {
    let once = "idempotent = false\n";
    let own = "retry = { max = 2, initial = \"1s\", max_delay = \"8s\", jitter = 0.2 }";
    // The manifest declares it, regardless of the file; and the file, if the manifest does not.
    for retry in [own, "retry = \"patient\"", "retry = \"standard\""] {
        let of_manifest = "must not be repeated, says its connector's manifest; remove it, or write \"none\"";
        told(once, &format!("{retry}\n"), "execute[1].retry", of_manifest);
        told(once, &format!("{retry}\n{once}"), "execute[1].retry", of_manifest);
        let of_file =
            "says `idempotent = false` in the action's file; remove it, or write \"none\"; or remove";
        told(&format!("{own}\n"), &format!("{retry}\n{once}"), "execute[2].retry", of_file);
    }
    // A setting that repeats nothing is allowed.
    for none in [format!("retry = \"none\"\n{once}"), "retry = \"none\"\n".to_owned()] {
        let ready = checked(&triage().replacen(once, &none, 1));
        let ready = ready.unwrap_or_else(|error| panic!("{:#?}", problems(&error)));
        assert_eq!(
            ready.steps()[1].non_idempotent_reason(),
            Some(cofferdam_runtime::flow::NonIdempotentReason::Manifest)
        );
    }
}

#[test]
fn all_errors_are_reported_at_once_in_order() {
    let text = triage()
        .replace("hosts = [\"slack.com:443\"]", "hosts = [\"evil.example:443\"]")
        .replace("\"patient\"", "\"patiant\"")
        .replace("emoji = \"eyes\"", "emoij = \"eyes\"")
        .replace("small = 255", "small = 256");
    let error = checked(&text).unwrap_err();
    let keys: Vec<_> = problems(&error).into_iter().map(|(_, key, _)| key).collect();
    assert_eq!(
        keys,
        [
            "requires.connectors[1].capabilities.hosts[0]",
            "execute[0].retry",
            "execute[2].inputs",
            "execute[2].inputs.emoij",
            "execute[6].inputs.value.small",
        ]
    );
    assert!(error.message().starts_with("triage.md:") && error.message().ends_with("(4 more)."), "{error}");
    let shown: &Diagnostic = std::error::Error::source(&error)
        .and_then(|it| it.downcast_ref::<cofferdam_model::action::DocumentError>())
        .and_then(|it| it.problems().first())
        .unwrap();
    assert_eq!(shown.file(), "triage.md");
}
