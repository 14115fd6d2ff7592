//! Tests of the manifest: the documented example, and a table of everything that can be wrong with it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::fmt::Write as _;
use std::time::Duration;

use cofferdam_core::failure::RepeatRule;

use super::{
    CredentialKind, CredentialPlacement, DeclaredIdempotency, DocumentError, Manifest, OperationEffect,
};

/// The example of the documentation.
pub(super) const GOOD: &str = r#"[connector]
name = "github://acme/slack"
version = "1.2.0"
description = "Post to Slack"
publisher = "acme"

[connector.idempotency]
default = "idempotent"
[connector.idempotency.operations]
post_ephemeral = "not_idempotent"

[capabilities.network]
hosts = ["slack.com:443"]

[[capabilities.credential]]
kind = "api_key"
service = "slack"
hosts = ["slack.com:443"]
header = "Authorization"
format = "Bearer {key}"

[capabilities.runtime]
imports = ["wasi:http/outgoing-handler", "wasi:clocks/monotonic-clock"]

[limits]
memory = "64MiB"
wall_time = "30s"
fuel = 30_000_000_000
"#;

fn refused(text: &str) -> DocumentError {
    Manifest::parse("connector.toml", text).expect_err(text)
}

#[test]
fn the_documented_example_parses() {
    let manifest = Manifest::parse("connector.toml", GOOD).unwrap();
    assert_eq!(manifest.name().as_str(), "github://acme/slack");
    assert_eq!(manifest.version().to_string(), "1.2.0");
    assert_eq!(manifest.description(), Some("Post to Slack"));
    assert_eq!(manifest.publisher(), Some("acme"));
    assert_eq!(manifest.hosts().iter().map(ToString::to_string).collect::<Vec<_>>(), ["slack.com:443"]);
    assert_eq!(manifest.imports(), ["wasi:http/outgoing-handler", "wasi:clocks/monotonic-clock"]);
    assert_eq!(manifest.limits().memory(), Some(64 << 20));
    assert_eq!(manifest.limits().wall_time(), Some(Duration::from_secs(30)));
    assert_eq!(manifest.limits().fuel(), Some(30_000_000_000));
    let credential = &manifest.credentials()[0];
    assert_eq!((credential.kind(), credential.service()), (CredentialKind::ApiKey, "slack"));
    let bearer =
        CredentialPlacement::Header { name: http::header::AUTHORIZATION, format: "Bearer {key}".into() };
    assert_eq!((credential.placement(), credential.optional()), (&bearer, false));
    assert_eq!(credential.hosts(), manifest.hosts());
    assert_eq!(manifest.text(), GOOD);
    assert_eq!(Manifest::parse("x", &GOOD.replace('\n', "\r\n")).unwrap().name(), manifest.name());
}

#[test]
fn only_a_named_operation_is_declared_idempotent() {
    use DeclaredIdempotency::{Declared, NotIdempotent, Undeclared};
    let small = "[connector]\nname = \"local://me/x\"\nversion = \"0.1.0\"\n";
    let manifest = Manifest::parse("x", small).unwrap();
    assert!(manifest.idempotency("anything") == Undeclared && manifest.operations_named().next().is_none());
    assert_eq!(manifest.repeat_rule("anything"), RepeatRule::Always, "it reaches nothing");
    assert!(
        manifest.hosts().is_empty() && manifest.credentials().is_empty() && manifest.imports().is_empty()
    );

    let manifest = Manifest::parse("x", GOOD).unwrap();
    let words = ["post_ephemeral", "post"].map(|op| manifest.idempotency(op));
    assert_eq!(words, [NotIdempotent, Undeclared], "a default declares nothing of an operation");
    let rules = ["post_ephemeral", "post"].map(|op| manifest.repeat_rule(op));
    assert_eq!(rules, [RepeatRule::Never, RepeatRule::UnlessUnkeyed]);
    assert_eq!(manifest.operations_named().collect::<Vec<_>>(), ["post_ephemeral"]);

    let opted_out =
        "[connector.idempotency]\ndefault = \"not_idempotent\"\noperations.get = \"idempotent\"\n";
    let manifest = Manifest::parse("x", &format!("{small}{opted_out}")).unwrap();
    assert_eq!(["get", "post"].map(|op| manifest.idempotency(op)), [Declared, NotIdempotent]);
    assert_eq!(manifest.repeat_rule("get"), RepeatRule::Always);
    let reads =
        "effects.operations.list = \"read_only\"\n[capabilities.network]\nhosts = [\"a.example:443\"]\n";
    let manifest = Manifest::parse("x", &format!("{small}{reads}")).unwrap();
    assert_eq!(
        (manifest.idempotency("list"), manifest.repeat_rule("list")),
        (Undeclared, RepeatRule::Always)
    );
    assert_eq!(manifest.repeat_rule("other"), RepeatRule::UnlessUnkeyed);
}

/// A small manifest with these lines after its name.
fn small(more: &str) -> String {
    format!("[connector]\nname = \"local://me/x\"\nversion = \"0.1.0\"\n{more}")
}

#[test]
fn effects_are_known_if_declared_or_unreachable() {
    let manifest = Manifest::parse("x", &small("")).unwrap();
    assert_eq!(
        (manifest.effect("get"), manifest.known_effect("get")),
        (None, Some(OperationEffect::ReadOnly))
    );
    let hosts = "[capabilities.network]\nhosts = [\"a.example:443\"]\n";
    let manifest = Manifest::parse("x", &small(hosts)).unwrap();
    assert_eq!((manifest.effect("get"), manifest.known_effect("get")), (None, None));
    let table = "[connector.effects.operations]\nget = \"read_only\"\nput = \"additive\"\n";
    let manifest = Manifest::parse("x", &small(&format!("{table}{hosts}"))).unwrap();
    let effects = ["get", "put", "other"].map(|op| manifest.known_effect(op));
    assert_eq!(effects, [Some(OperationEffect::ReadOnly), Some(OperationEffect::Additive), None]);
    assert_eq!(manifest.operations_named().collect::<Vec<_>>(), ["get", "put"]);
    // A declaration counts even for an operation that reaches nothing.
    let table = "effects.default = \"destructive\"\neffects.operations.get = \"read_only\"\n\
                 idempotency.operations.get = \"idempotent\"\n";
    let manifest = Manifest::parse("x", &small(table)).unwrap();
    let effects = ["get", "put"].map(|op| manifest.known_effect(op));
    assert_eq!(effects, [Some(OperationEffect::ReadOnly), Some(OperationEffect::Destructive)]);
    assert_eq!(manifest.operations_named().collect::<Vec<_>>(), ["get"], "once, though two tables name it");
}

#[test]
fn invalid_effects_are_refused_with_line_and_fix() {
    let cases = [
        ("effects.default = \"readonly\"", 4, "connector.effects.default", "did you mean \"read_only\"?"),
        ("effects.default = \"maybe\"", 4, "connector.effects.default", "\"convergent\" or \"destructive\""),
        ("effects.default = true", 4, "connector.effects.default", "write a string in double quotes"),
        ("effects.defualt = \"additive\"", 4, "connector.effects.defualt", "did you mean `default`?"),
        ("effect.default = \"additive\"", 4, "connector.effect", "did you mean `effects`?"),
        ("effects.operations.get = \"\"", 4, "connector.effects.operations.get", "write \"read_only\""),
        (
            "effects.operations.get-it = \"additive\"",
            4,
            "connector.effects.operations.get-it",
            "write it like get_it",
        ),
        (
            "[connector.idempotency.operations]\nget = \"not_idempotent\"\n\
             [connector.effects.operations]\nget = \"read_only\"",
            7,
            "connector.effects.operations.get",
            "take its line out of [connector.idempotency.operations]",
        ),
        (
            "[connector.idempotency]\ndefault = \"not_idempotent\"\n\
             [connector.effects.operations]\nget = \"read_only\"",
            7,
            "connector.effects.operations.get",
            "get = \"idempotent\" under [connector.idempotency.operations]",
        ),
        (
            "[connector.idempotency]\ndefault = \"not_idempotent\"\n\
             [connector.effects]\ndefault = \"read_only\"",
            7,
            "connector.effects.default",
            "write default = \"idempotent\" there",
        ),
        (
            "[connector.idempotency.operations]\npost = \"not_idempotent\"\n\
             [connector.effects]\ndefault = \"read_only\"",
            7,
            "connector.effects.default",
            "give post an effect of its own",
        ),
    ];
    let convergent = [
        ("effects.default = \"convergent\"", 4, "connector.effects.default", "name each such operation"),
        (
            "effects.operations.put = \"convergent\"",
            4,
            "connector.effects.operations.put",
            "put = \"idempotent\" under [connector.idempotency.operations]",
        ),
        (
            "[connector.idempotency.operations]\nput = \"not_idempotent\"\n\
             [connector.effects.operations]\nput = \"convergent\"",
            7,
            "connector.effects.operations.put",
            "put = \"idempotent\" under",
        ),
    ];
    for (lines, line, key, fix) in cases.into_iter().chain(convergent) {
        let error = refused(&small(lines));
        let [problem] = error.problems() else { panic!("{lines}:\n{error}") };
        assert_eq!((problem.line(), problem.key()), (line, key), "{error}");
        assert!(problem.fix().contains(fix), "{error}");
    }
    for fine in [
        "[connector.idempotency.operations]\nput = \"idempotent\"\n\
         [connector.effects.operations]\nput = \"convergent\"",
        "[connector.idempotency]\ndefault = \"not_idempotent\"\noperations.get = \"idempotent\"\n\
         [connector.effects.operations]\nget = \"read_only\"\nput = \"destructive\"",
        "[connector.idempotency.operations]\npost = \"not_idempotent\"\n\
         [connector.effects]\ndefault = \"read_only\"\noperations.post = \"additive\"",
    ] {
        assert!(Manifest::parse("x", &small(fine)).is_ok(), "{fine}");
    }
}

/// A text of the good manifest, its replacement, and the resulting line, key and fix.
type Case = (&'static str, &'static str, usize, &'static str, &'static str);

const CASES: &[Case] = &[
    // The connector.
    ("github://acme/slack", "GitHub://Acme/Slack", 2, "connector.name", "write it as github://acme/slack"),
    ("github://acme/slack", "github://acme/../x", 2, "connector.name", "write it like github://acme/slack"),
    ("\"github://acme/slack\"", "7", 2, "connector.name", "write a string in double quotes"),
    ("name = \"github://acme/slack\"\n", "", 1, "connector.name", "add name = \"github://acme/slack\""),
    ("name =", "nmae =", 2, "connector.nmae", "did you mean `name`?"),
    ("version = \"1.2.0\"", "version = \"1.2\"", 3, "connector.version", "write it like \"1.2.0\""),
    ("1.2.0", "^1.2.0", 3, "connector.version", "write it like \"1.2.0\""),
    ("1.2.0", "latest", 3, "connector.version", "write it like \"1.2.0\""),
    ("1.2.0", "1.2.0+linux", 3, "connector.version", "write it as \"1.2.0\""),
    ("version = \"1.2.0\"", "version = 1.2", 3, "connector.version", "write a string in double quotes"),
    ("version = \"1.2.0\"\n", "", 1, "connector.version", "add version = \"1.2.0\""),
    ("Post to Slack", r"Post\u001b[31m", 4, "connector.description", "without control characters"),
    ("Post to Slack", r"Post \u202Eto", 4, "connector.description", "without control characters"),
    ("Post to Slack", "", 4, "connector.description", "1 to 500 characters"),
    ("publisher = \"acme\"", "\"pub\\u001blisher\" = 1", 5, "connector.\"pub lisher\"", "did you mean"),
    ("publisher =", "licence =", 5, "connector.licence", "allowed: name, version, description, publisher"),
    // Idempotency.
    (
        "\"idempotent\"",
        "\"maybe\"",
        8,
        "connector.idempotency.default",
        "\"idempotent\" or \"not_idempotent\"",
    ),
    ("\"idempotent\"", "\"\"", 8, "connector.idempotency.default", "\"idempotent\" or \"not_idempotent\""),
    ("\"idempotent\"", "true", 8, "connector.idempotency.default", "write a string in double quotes"),
    (
        "\"not_idempotent\"",
        "\"no\"",
        10,
        "connector.idempotency.operations.post_ephemeral",
        "\"not_idempotent\"",
    ),
    (
        "post_ephemeral",
        "post-ephemeral",
        10,
        "connector.idempotency.operations.post-ephemeral",
        "post_ephemeral",
    ),
    (
        "post_ephemeral",
        "\"a.b\"",
        10,
        "connector.idempotency.operations.\"a.b\"",
        "write it like post_message",
    ),
    // Capabilities.
    (
        "[capabilities.network]",
        "[capabilities.netwrok]",
        12,
        "capabilities.netwrok",
        "did you mean `network`?",
    ),
    (
        "[\"slack.com:443\"]\n\n",
        "[\"*.slack.com\"]\n\n",
        13,
        "capabilities.network.hosts[0]",
        "name each one, like \"api.slack.com:443\"",
    ),
    (
        "[\"slack.com:443\"]\n\n",
        "\"slack.com:443\"\n\n",
        13,
        "capabilities.network.hosts",
        "an array of strings",
    ),
    (
        "[\"slack.com:443\"]\n\n",
        "[\"slack.com:443\", 443]\n\n",
        13,
        "capabilities.network.hosts[1]",
        "a string",
    ),
    (
        "[\"slack.com:443\"]\n\n",
        "[\"slack.com:443\", \"SLACK.com:443\"]\n\n",
        13,
        "capabilities.network.hosts[1]",
        "remove one of the two",
    ),
    (
        "[[capabilities.credential]]",
        "[capabilities.credential]",
        15,
        "capabilities.credential",
        "[[capabilities.credential]]",
    ),
    ("api_key", "apikey", 16, "capabilities.credential[0].kind", "api_key, basic, bearer, oauth2, aws_sigv4"),
    ("kind = \"api_key\"\n", "", 15, "capabilities.credential[0].kind", "add kind = \"api_key\""),
    ("service = \"slack\"", "service = \"sl/ack\"", 17, "capabilities.credential[0].service", "\"slack\""),
    (
        "hosts = [\"slack.com:443\"]\nheader",
        "hosts = [\"evil.com:443\"]\nheader",
        18,
        "capabilities.credential[0].hosts[0]",
        "add \"evil.com:443\" there",
    ),
    ("hosts = [\"slack.com:443\"]\nheader", "header", 15, "capabilities.credential[0].hosts", "add hosts"),
    (
        "hosts = [\"slack.com:443\"]\nheader",
        "hosts = []\nheader",
        15,
        "capabilities.credential[0]",
        "name the hosts",
    ),
    ("\"Authorization\"", "\"A\\r\\nB\"", 19, "capabilities.credential[0].header", "\"X-Api-Key\""),
    ("\"Authorization\"", "\"Host\"", 19, "capabilities.credential[0].header", "\"X-Api-Key\""),
    ("Bearer {key}", r"Bearer {key}\r\nX: y", 20, "capabilities.credential[0].format", "\"Bearer {key}\""),
    ("Bearer {key}", "Bearer", 20, "capabilities.credential[0].format", "with {key} in it once"),
    ("Bearer {key}", "{key}{key}", 20, "capabilities.credential[0].format", "with {key} in it once"),
    ("kind = \"api_key\"", "kind = \"bearer\"", 19, "capabilities.credential[0].header", "remove header"),
    (
        "\"wasi:http/outgoing-handler\"",
        "\"wasi:http\"",
        23,
        "capabilities.runtime.imports[0]",
        "wasi:http/outgoing",
    ),
    (
        "\"wasi:http/outgoing-handler\"",
        "\"../x\"",
        23,
        "capabilities.runtime.imports[0]",
        "wasi:http/outgoing",
    ),
    (
        "wasi:http/outgoing-handler",
        "wasi:http/outgoing-handler@x",
        23,
        "capabilities.runtime.imports[0]",
        "@version",
    ),
    (
        "wasi:http/outgoing-handler",
        "wasi:clocks/monotonic-clock",
        23,
        "capabilities.runtime.imports[1]",
        "remove one of the two",
    ),
    // Limits.
    ("64MiB", "64MB", 26, "limits.memory", "like 64MiB"),
    ("\"64MiB\"", "67108864", 26, "limits.memory", "write a string in double quotes"),
    ("30s", "-30s", 27, "limits.wall_time", "like 500ms, 30s or 2m"),
    ("30s", "0s", 27, "limits.wall_time", "like 500ms, 30s or 2m"),
    ("30_000_000_000", "-1", 28, "limits.fuel", "write a number in that range"),
    ("30_000_000_000", "0", 28, "limits.fuel", "a whole number above zero"),
    ("30_000_000_000", "1.5", 28, "limits.fuel", "write a whole number without quotes"),
    ("30_000_000_000", "18446744073709551616", 28, "limits.fuel", "write a number in that range"),
    ("[limits]", "[limts]", 25, "limts", "did you mean `limits`?"),
    ("[limits]", "limits = 3\n[x]", 26, "x", "allowed: connector, capabilities, limits"),
    // The text itself.
    ("publisher = \"acme\"", "name = \"github://acme/x\"", 5, "name", "keep one of the two"),
    ("publisher = \"acme\"", "publisher = acme", 5, "", "put the value in double quotes"),
    ("publisher = \"acme\"", "publisher = \"acme", 5, "", "correct the TOML here"),
    ("publisher = \"acme\"", "publisher = \"ac\0me\"", 5, "", "remove it"),
    ("publisher = \"acme\"", "publisher = \"ac\u{1b}me\"", 5, "", "correct the TOML here"),
    ("[connector]\n", "\u{feff}[connector]\n", 1, "", "without BOM"),
];

#[test]
fn every_problem_has_its_line_key_and_fix() {
    for (old, new, line, key, fix) in CASES {
        assert!(GOOD.contains(old), "{old}");
        let error = refused(&GOOD.replacen(old, new, 1));
        let found = error.problems().iter().find(|p| (p.line(), p.key()) == (*line, *key));
        let problem = found.unwrap_or_else(|| panic!("{new:?} at {line} {key}:\n{error}"));
        assert!(problem.fix().contains(fix), "{new:?}:\n{error}");
        let shown = error.to_string() + &error.render(false);
        let hidden = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
        assert!(!shown.contains(hidden), "{shown:?}");
        assert!(error.render(true).contains("\u{1b}["), "colour was asked for");
    }
}

#[test]
fn all_problems_are_listed_in_order_one_a_line() {
    let text = GOOD
        .replace("1.2.0", "1")
        .replace("64MiB", "64")
        .replace("[\"slack.com:443\"]\n\n", "[\"*.slack.com\"]\n\n");
    let error = refused(&text);
    let lines: Vec<_> = error.to_string().lines().map(str::to_owned).collect();
    assert_eq!(
        lines[0],
        "connector.toml:3:11: connector.version: \"1\" is not an exact version; write it like \"1.0.0\""
    );
    assert_eq!(
        lines[1],
        "connector.toml:13:10: capabilities.network.hosts[0]: \"*.slack.com\" is not an exact host:port; \
         no pattern stands for several hosts: name each one, like \"api.slack.com:443\""
    );
    assert!(
        lines[2].starts_with("connector.toml:18:10: capabilities.credential[0].hosts[0]: "),
        "{}",
        lines[2]
    );
    assert!(
        lines[3].starts_with("connector.toml:26:10: limits.memory: \"64\" is not an amount"),
        "{}",
        lines[3]
    );
    assert_eq!(lines.len(), 4, "{error}");
    let json = serde_json::to_value(error.problems()).unwrap();
    assert_eq!(json[1]["key"], "capabilities.network.hosts[0]");
    assert_eq!(json[1]["line"], 13);
}

#[test]
fn problems_are_rendered_like_compiler_errors() {
    let rendered = refused(
        &GOOD
            .replace("[\"slack.com:443\"]\n\n", "[\"*.slack.com\"]\n\n")
            .replace("\"slack.com:443\"]\nheader", "\"*.slack.com\"]\nheader"),
    )
    .render(false);
    let expected = r#"error: capabilities.network.hosts[0]: "*.slack.com" is not an exact host:port
  --> connector.toml:13:10
   |
13 | hosts = ["*.slack.com"]
   |          ^^^^^^^^^^^^^
   |
   = help: no pattern stands for several hosts: name each one, like "api.slack.com:443""#;
    assert!(rendered.starts_with(expected), "{rendered}");
}

#[test]
fn the_file_name_cannot_forge_lines_either() {
    let error = Manifest::parse("a\u{1b}[2J\nb.toml", "x = 1").expect_err("no connector");
    assert!(error.to_string().lines().all(|line| line.starts_with("a [2J b.toml:1:1: ")), "{error}");
}

#[test]
fn huge_and_deep_manifests_are_refused() {
    let nested = |open: &str, close: &str, n: usize| format!("x = {}1{}", open.repeat(n), close.repeat(n));
    let dotted = |n: usize| vec!["a"; n].join(".");
    let mut many = String::from(GOOD);
    for index in 0..20_000 {
        writeln!(many, "key{index} = {index}").unwrap();
    }
    let hostile = [
        "x = \"".to_owned() + &"a".repeat(2 << 20) + "\"",
        nested("[", "]", 400_000),
        nested("[", "]", 17),
        nested("{a=", "}", 200_000),
        nested("{a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a=", "}", 80),
        format!("[{}]", dotted(400_000)),
        format!("{} = 1", dotted(400_000)),
        "[[a]]\n".repeat(100_000),
        "[".repeat(1 << 20),
        "=\n".repeat(400_000),
        "\u{1b}\n".repeat(400_000),
        "\"".repeat(1 << 20),
        many,
    ];
    for text in hostile {
        let error = refused(&text);
        let start: String = text.chars().take(20).collect();
        assert!(!error.problems().is_empty() && error.problems().len() <= 50, "{start}");
        assert!(error.to_string().len() < 100_000 && error.render(false).len() < 200_000, "{start}");
    }
    // Realistic files are not too deep: brackets in comments and strings, dots in numbers and names.
    let chatty = format!("{GOOD}# {} {}\n", "[".repeat(100), ".".repeat(100));
    let chatty = chatty.replace("Post to Slack", "[[[[[[[[[[[[[[[[[[[[ ....................");
    assert!(Manifest::parse("x", &chatty).is_ok());
}
