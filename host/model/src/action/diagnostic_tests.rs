//! Tests of every mistake in an action's file: its position and its message.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test")]

use super::tests::{HASH, ship_update};
use super::*;

/// Returns the problems of the example with the first `from` replaced by `to`.
#[track_caller]
fn problems(from: &str, to: &str) -> Vec<Diagnostic> {
    let text = ship_update();
    assert!(text.contains(from), "`{from}` is not in the example");
    let changed = text.replacen(from, to, 1);
    match Action::parse("ship-update.md", changed.as_bytes()) {
        Ok(_) => panic!("`{to}` is accepted"),
        Err(error) => {
            assert!(!error.render(false).contains('\u{1b}'));
            error.problems().to_vec()
        }
    }
}

/// Checks that one mistake is one problem, at this line and key, in these words.
#[track_caller]
fn told(from: &str, to: &str, line: usize, key: &str, words: &str) {
    let problems = problems(from, to);
    let shown: Vec<_> = problems.iter().map(ToString::to_string).collect();
    let [problem] = problems.as_slice() else { panic!("`{to}`: {shown:#?}") };
    assert_eq!((problem.line(), problem.key()), (line, key), "`{to}`: {shown:?}");
    assert!(shown[0].contains(words), "`{to}`: not `{words}` in {shown:?}");
    assert!(!problem.fix().is_empty());
}

/// Checks a mistake that causes other problems too.
#[track_caller]
fn among(from: &str, to: &str, line: usize, key: &str, words: &str) {
    let problems = problems(from, to);
    let found = problems
        .iter()
        .any(|problem| (problem.line(), problem.key()) == (line, key) && problem.to_string().contains(words));
    assert!(found, "`{to}`: not `{words}` in {problems:#?}");
}

#[test]
fn errors_in_the_head_are_reported() {
    told("name = \"ship-update\"\n", "", 1, "name", "missing");
    told("\"ship-update\"", "\"Ship Update\"", 2, "name", "is not an action's name");
    told("\"ship-update\"", "\"../x\"", 2, "name", "is not an action's name");
    told("\"ship-update\"", "3", 2, "name", "this is an integer");
    told("\"1.0.0\"", "\"1.0\"", 3, "version", "write it like \"1.0.0\"");
    told("\"1.0.0\"", "\"1.0.0+a\"", 3, "version", "no build metadata");
    told("\"60s\"", "\"60\"", 5, "timeout", "is not a time");
    told("\"60s\"", "\"2h\"", 5, "timeout", "more than 1 hour");
    told("\"60s\"", "\"-1s\"", 5, "timeout", "is not a time");
    told("timeout = \"60s\"", "timeuot = \"60s\"", 5, "timeuot", "did you mean `timeout`?");
    told("title = \"Ship update\"", "title = \"a\\nb\"", 4, "title", "one line");
    told("intent = ", "intents = ", 6, "match.intents", "did you mean `intent`?");
    told("version = \"1.0.0\"", "version = \"1.0.0\"\nversion = \"1.0.0\"", 4, "version", "twice");
    told("[output]\ntype = \"object\"", "[output]\ntype = \"objet\"", 64, "output.type", "not JSON Schema");
    told("[output]\n", "[output]\n\"$ref\" = \"#\"\n", 64, "output.\"$ref\"", "refers to nothing");
    told("required = [\"ok\"]", "pattern = \"(\"", 65, "output.pattern", "not JSON Schema");
    told(
        "\n# Ship update\n\nFinds the pull request of a branch\nand announces it.\n\nMore.\n",
        "\n# A\n",
        67,
        "",
        "does not say what",
    );
}

#[test]
fn errors_in_requirements_are_reported() {
    let at = |key: &str| format!("requires.connectors[1].{key}");
    among("\"github://aileron/slack\"\nversion", "\"slack\"\nversion", 15, &at("name"), "no scheme");
    told("version = \"2.0.0\"", "version = \"^2\"", 16, &at("version"), "exact version");
    told(&format!("\"2.0.0\"\nhash = \"{HASH}\""), "\"2.0.0\"\nhash = \"abc\"", 17, &at("hash"), "SHA-256");
    told(&format!("\"2.0.0\"\nhash = \"{HASH}\""), "\"2.0.0\"", 14, &at("hash"), "missing");
    told("identity = { slack", "identiy = { slack", 19, &at("identiy"), "did you mean `identity`?");
    told(
        "[\"post\", \"react\"]",
        "[\"post\", \"react\", \"Bad\"]",
        18,
        &at("capabilities.operations[2]"),
        "operation's name",
    );
    told(
        "[\"post\", \"react\"]",
        "[\"post\", \"react\", \"post\"]",
        18,
        &at("capabilities.operations[2]"),
        "twice",
    );
    told("\"api.github.com:443\"", "\"*\"", 12, "requires.connectors[0].capabilities.hosts[0]", "");
    for host in ["*.com:443", "https://a.b/x", "u@a.b:443", "1.2.3.4:443", "a.b:0", "a.b:65536", "a.b.:443"] {
        told("api.github.com:443", host, 12, "requires.connectors[0].capabilities.hosts[0]", "");
    }
    // An unreadable part also suppresses the checks that depend on it, and is reported.
    let all = problems("capabilities = { operations = [\"find_pr\"]", "capabilities = { operations = []");
    assert!(all.iter().any(|it| it.message() == "no operation is named" && it.line() == 12), "{all:?}");
    let all = problems("name = \"github://aileron/slack\"", "name = \"github://aileron/github\"");
    assert!(all.iter().any(|it| it.message().contains("stands above already") && it.line() == 15), "{all:?}");
}

#[test]
fn errors_in_inputs_are_reported() {
    let at = |key: &str| format!("inputs[1].{key}");
    among("name = \"count\"", "name = \"Count\"", 27, &at("name"), "is not an input's name");
    told("type = \"integer\"", "type = \"int\"", 28, &at("type"), "did you mean \"integer\"?");
    told("type = \"integer\"\n", "", 26, &at("type"), "missing");
    told("description = \"How many.\"\n", "", 26, &at("description"), "missing");
    told("description = \"How many.\"", "description = \"\"", 29, &at("description"), "not a description");
    told("default = 3", "default = \"3\"", 31, &at("default"), "expected a whole number, got a string");
    told("default = 3", "default = 1979-05-27", 31, &at("default"), "no dates");
    told("required = false\ndefault", "default", 30, &at("default"), "must be given");
    told("items_type = \"string\"", "items_type = \"array\"", 36, "inputs[2].items_type", "not a type");
    told("type = \"array\"", "type = \"object\"", 36, "inputs[2].items_type", "only an array");
    told("default = 3", "multiline = true", 31, &at("multiline"), "only a string");
    told("default = 3", "enum = [\"a\"]", 31, &at("enum"), "only a string");
    told("default = 3", "min = 3", 31, &at("min"), "not known here");
    let branch = "description = \"The branch.\"";
    told(branch, &format!("{branch}\nenum = [\"a\", \"a\"]"), 25, "inputs[0].enum[1]", "twice");
    told(branch, &format!("{branch}\nenum = []"), 25, "inputs[0].enum", "nothing to choose");
    told(
        branch,
        &format!("{branch}\nenum = [\"a\"]\nrequired = false\ndefault = \"b\""),
        27,
        "inputs[0].default",
        "one of a",
    );
    told(
        branch,
        &format!("{branch}\nrequired = false\ndefault = \"${{args.count}}\""),
        26,
        "inputs[0].default",
        "no references",
    );
    let all = problems("name = \"labels\"", "name = \"branch\"");
    assert!(all.iter().any(|it| it.message().contains("stands above") && it.line() == 34), "{all:?}");
}

#[test]
fn errors_in_steps_are_reported() {
    let at = |key: &str| format!("execute[1].{key}");
    among("id = \"post\"", "id = \"Post\"", 47, &at("id"), "is not a step's id");
    told("op = \"post\"\nidem", "op = \"pots\"\nidem", 49, &at("op"), "did you mean \"post\"?");
    told("op = \"post\"\nidem", "op = \"find_pr\"\nidem", 49, &at("op"), "not in the action's capabilities");
    told("op = \"post\"\nidem", "idem", 46, &at("op"), "missing");
    told("idempotent = false", "idempotent = \"no\"", 50, &at("idempotent"), "true or false");
    told("idempotent = false", "when = \"x\"", 50, &at("when"), "not conditional");
    told("idempotent = false", "compensate = {}", 50, &at("compensate"), "nothing is rolled back");
    told("idempotent = false", "timeuot = \"1s\"", 50, &at("timeuot"), "did you mean `timeout`?");
    told("timeout = \"10s\"", "timeout = \"0s\"", 51, &at("timeout"), "not a time above zero");
    told("inputs.text = \"", "retry = 3\ninputs.text = \"", 52, &at("retry"), "neither a profile's name");
    told("jitter = 0.2", "jitter = 1.2", 59, "execute[2].retry.jitter", "not a part");
    told("max = 2", "max = 0", 59, "execute[2].retry.max", "no number of retries");
    told("max = 2, ", "", 59, "execute[2].retry.max", "missing");
    told("initial = \"1s\"", "initial = \"9s\"", 59, "execute[2].retry", "below the first");
    among("max_delay", "max_wait", 59, "execute[2].retry.max_wait", "not known");
    told(
        "connector = \"github://aileron/slack\"\nop = \"post\"",
        "connector = \"github://aileron/slak\"\nop = \"post\"",
        48,
        &at("connector"),
        "did you mean \"github://aileron/slack\"?",
    );
    let all = problems("id = \"react\"", "id = \"post\"");
    assert!(all.iter().any(|it| it.message().contains("stands above") && it.line() == 56), "{all:?}");
    let none = problems("[[execute]]\nid = \"find\"", "[[exceute]]\nid = \"find\"");
    assert!(none.iter().any(|it| it.fix().contains("did you mean `execute`?")), "{none:?}");
}

#[test]
fn errors_in_references_are_reported() {
    let key = "execute[1].inputs.text";
    let of = |reference: &str, words: &str| told("${steps.find.title}", reference, 52, key, words);
    of("${args.barnch}", "did you mean `branch`?");
    of("${args.x.y}", "names no declared input");
    of("${steps.fnd.title}", "did you mean `find`?");
    of("${steps.post.title}", "of this very step");
    of("${steps.react.title}", "of a step that comes later");
    of("${step.find.title}", "did you mean `steps`?");
    of("${secrets.token}", "sees no secrets");
    of("${env.HOME}", "sees no secrets");
    of("${title}", "refers to nothing there is");
    of("${}", "is no reference");
    of("${ args.branch }", "is no reference");
    of("${args}", "does not say which");
    of("${args.}", "is no reference");
    of("${args.branch.}", "is no reference");
    of("${args.branch[x]}", "is no reference");
    of("${args.branch[-1]}", "is no reference");
    of("${args.branch[9999999]}", "is no reference");
    of("${args.branch | upper}", "is no reference");
    of("${args.branch", "is no reference");
    of(&format!("${{args.branch{}}}", "[0]".repeat(17)), "is no reference");
    of(&format!("${{args.{}}}", "x".repeat(400)), "longer than 300");
    told("$${literal}, ", "${", 52, key, "refers to nothing");
    told("$$${args.count}\"", "$${args.count}, ${\"", 52, key, "not closed");
    told(
        "kind = \"plain\"",
        "\"${args.branch}\" = \"plain\"",
        53,
        "execute[1].inputs.blocks[0].\"${args.branch}\"",
        "a name has no references",
    );
    // A step in a circle refers to itself or to a later one, in either direction.
    told(
        "limit = \"${args.count}\"",
        "limit = \"${steps.react.x}\"",
        44,
        "execute[0].inputs.limit",
        "comes later",
    );
}

#[test]
fn errors_in_the_file_format_are_reported() {
    let parse = |bytes: &[u8]| Action::parse("x.md", bytes).unwrap_err().to_string();
    let text = ship_update();
    assert!(Action::parse("x.md", text.replace('\n', "\r\n").as_bytes()).is_ok(), "CRLF");
    assert!(parse(format!("\u{feff}{text}").as_bytes()).contains("byte order mark"));
    for (hidden, name) in [
        ("\0", "U+0000"),
        ("\u{1b}", "U+001B"),
        ("\u{202e}", "U+202E"),
        ("\u{2066}", "U+2066"),
        ("\u{85}", "U+0085"),
    ] {
        let in_body = text.replace("More.", &format!("Mo{hidden}re."));
        let error = parse(in_body.as_bytes());
        assert!(error.starts_with("x.md:72:3: ") && error.contains(name), "{error:?}");
        let in_front = text.replace("\"The branch.\"", &format!("\"The{hidden}branch.\""));
        assert!(parse(in_front.as_bytes()).starts_with("x.md:24:19: "), "{name}");
    }
    assert!(parse(text.replace("More.", "Mo\rre.").as_bytes()).contains("U+000D"));
    assert!(parse(b"name = \"x\"\n").contains("does not begin with front matter"));
    assert!(parse(b"").contains("does not begin with front matter"));
    assert!(parse(b"+++\nname = \"x\"\n").contains("front matter has no end"));
    let mut bytes = text.clone().into_bytes();
    bytes.extend(b"\xff");
    assert!(parse(&bytes).contains("not UTF-8"));
    assert!(parse(&vec![b'+'; 300_000]).contains("more than 256 KiB"));
    assert!(parse(&vec![b'x'; 100 << 20]).contains("more than 256 KiB"));
    let deep = format!("inputs.deep = {}1{}", "[".repeat(10_000), "]".repeat(10_000));
    assert!(
        parse(
            text.replace("inputs.text = \"Shipped", &format!("{deep}\ninputs.text = \"Shipped")).as_bytes()
        )
        .contains("nested more than 16")
    );
    let deep = format!("inputs.deep = {}1{}", "{a=".repeat(10_000), "}".repeat(10_000));
    assert!(
        parse(
            text.replace("inputs.text = \"Shipped", &format!("{deep}\ninputs.text = \"Shipped")).as_bytes()
        )
        .contains("nested more than 16")
    );
    let deep = (0..3).fold("1".to_owned(), |inner, _| format!("{{ {} = {inner} }}", ["a"; 15].join(".")));
    let deep =
        text.replace("inputs.text = \"Shipped", &format!("inputs.deep = {deep}\ninputs.text = \"Shipped"));
    assert!(parse(deep.as_bytes()).contains("nested more than 32 deep"));
}

#[test]
fn oversized_files_are_reported() {
    let text = ship_update();
    let many = |what: &str, count: usize| what.repeat(count);
    let step = "[[execute]]\nid = \"x\"\nconnector = \"github://aileron/slack\"\nop = \"react\"\n";
    let error = Action::parse("x.md", text.replace("[output]", &(many(step, 70) + "[output]")).as_bytes());
    assert!(
        error.unwrap_err().problems().iter().any(|it| it.message().contains("73 of these, more than 64"))
    );
    let input = "[[inputs]]\nname = \"x\"\ntype = \"string\"\ndescription = \"d\"\n";
    let error = Action::parse("x.md", text.replace("[output]", &(many(input, 70) + "[output]")).as_bytes());
    assert!(error.unwrap_err().problems().iter().any(|it| it.message().contains("more than 64")));
    let references = many("${args.branch} ", 200);
    let error = Action::parse("x.md", text.replace("Shipped", &references).as_bytes()).unwrap_err();
    assert!(error.to_string().contains("too many references"), "{error}");
}

#[test]
fn all_errors_are_reported_at_once() {
    let text = ship_update()
        .replace("\"1.0.0\"", "\"1\"")
        .replace("type = \"integer\"", "type = \"int\"")
        .replace("${steps.post.timestamp}", "${steps.pots.timestamp}")
        .replace("jitter = 0.2", "jitter = 2");
    let error = Action::parse("ship-update.md", text.as_bytes()).unwrap_err();
    let lines: Vec<_> = error.problems().iter().map(Diagnostic::line).collect();
    assert_eq!(lines, [3, 28, 59, 61]);
    let shown = error.render(false);
    assert!(shown.contains("--> ship-update.md:61:") && shown.contains("did you mean `post`?"), "{shown}");
}
