//! Documents that are wrong, hostile or odd: an error with its place and a fix, or a connector that is valid.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "tests"
)]

mod support;

use std::time::{Duration, Instant};

use cofferdam_openapi::{Document, DocumentReader, Location, OpenApiError, OperationStatus, Project};
use support::{Texts, assert_valid, file, options, read_text};

fn project(text: &str, patterns: &[&str]) -> Result<Project, OpenApiError> {
    let document = read_text(text)?;
    DocumentReader::new(&document).project(&options(patterns))
}

/// A document with these paths.
fn with_paths(paths: &str) -> String {
    format!(
        "openapi: 3.1.0\ninfo: {{title: T, version: '1'}}\nservers: [{{url: 'https://api.example.com'}}]\npaths:\n{paths}"
    )
}

#[track_caller]
fn assert_refused(result: Result<Project, OpenApiError>, place: &str, words: &str) {
    let error = result.map(drop).expect_err("it is refused");
    assert!(error.place().starts_with(place), "{} is not at {place}: {error}", error.place());
    assert!(error.message().contains(words), "{error}");
    assert!(error.fix().ends_with(['.', '?', '`', '"']), "no fix: {}", error.fix());
}

#[test]
fn swagger_is_refused_with_a_converter() {
    let error = read_text("swagger: '2.0'\npaths: {}\n").unwrap_err();
    assert_eq!(error.place(), "api.yaml#/swagger");
    assert!(error.fix().contains("swagger2openapi"), "{}", error.fix());
    for (text, place) in [("openapi: 4.0.0", "api.yaml#/openapi"), ("a: 1", "api.yaml"), ("[]", "api.yaml")] {
        assert_eq!(read_text(text).unwrap_err().place(), place, "{text}");
    }
}

#[test]
fn syntax_errors_have_line_and_column() {
    assert_eq!(read_text("openapi: 3.1.0\npaths: [\n").unwrap_err().place(), "api.yaml:3:1");
    assert_eq!(read_text("{\"openapi\": \"3.1.0\",\n}").unwrap_err().place(), "api.yaml:2:1");
    assert!(read_text("openapi: 3.1.0\npaths: {}\npaths: {}\n").unwrap_err().message().contains("twice"));
}

#[test]
fn yaml_bombs_are_refused_soon() {
    let mut text = "openapi: 3.1.0\na0: &a0 [1, 2, 3, 4, 5, 6, 7, 8, 9]\n".to_owned();
    for level in 1..40 {
        let aliases = vec![format!("*a{}", level - 1); 9].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
    }
    let started = Instant::now();
    let error = read_text(&text).unwrap_err();
    assert!(error.message().contains("more than"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(5));
    let deep = format!("openapi: 3.1.0\na: {}1{}\n", "[".repeat(5_000), "]".repeat(5_000));
    let error = read_text(&deep).unwrap_err();
    assert!(error.place().starts_with("api.yaml:2:"), "{error}");
}

#[test]
fn references_to_the_network_need_permission() {
    let text = with_paths(
        "  /a:\n    get:\n      responses: {'200': {content: {application/json: {schema: {$ref: 'https://evil.example/s.json#/S'}}}}}\n",
    );
    let error = read_text(&text).unwrap_err();
    assert!(error.place().starts_with("api.yaml#/paths/~1a/get"), "{error}");
    assert!(error.fix().contains("--allow-references"));
    let texts =
        Texts(&[("api.yaml", &text), ("https://evil.example/s.json", "{\"S\": {\"type\": \"string\"}}")]);
    let mut loader = texts;
    let document = Document::read(Location::File("api.yaml".into()), &mut loader, true).unwrap();
    let project = DocumentReader::new(&document).project(&options(&[])).unwrap();
    assert_valid(&project, "allowed");
}

#[test]
fn references_stay_in_the_directory() {
    let read = |reference: &str| {
        let text = with_paths(&format!("  /a: {{$ref: '{reference}'}}\n"));
        let item = "get:\n  operationId: read\n  responses: {'204': {description: ok}}\n";
        let files = [("d/api.yaml", text.as_str()), ("d/parts/item.yaml", item), ("secret.yaml", item)];
        let document = Document::read(Location::File("d/api.yaml".into()), &mut Texts(&files), false)?;
        DocumentReader::new(&document).project(&options(&[]))
    };
    assert_valid(&read("parts/item.yaml").unwrap(), "beside");
    for (reference, words) in [
        ("../secret.yaml", "leaves the document's directory"),
        ("/etc/passwd", "absolute"),
        ("parts/../../secret.yaml", "leaves the document's directory"),
        ("missing.yaml", "cannot be read"),
        ("file:///etc/passwd", "scheme"),
    ] {
        assert_refused(read(reference), "d/api.yaml#/paths/~1a", words);
    }
}

#[test]
fn circles_of_references_are_found() {
    let text = with_paths(
        "  /a:\n    get:\n      operationId: a\n      responses: {'200': {content: {application/json: {schema: {$ref: '#/components/schemas/A'}}}}}\n\
         components:\n  schemas:\n    A: {$ref: '#/components/schemas/B'}\n    B: {$ref: '#/components/schemas/A'}\n",
    );
    let project = project(&text, &[]);
    assert!(project.is_ok_and(|project| file(&project, "wit/service.wit").contains("JSON text")));
    let text = with_paths(
        "  /a:\n    get:\n      operationId: a\n      responses: {'200': {$ref: '#/components/responses/R'}}\n\
         components:\n  responses:\n    R: {$ref: '#/components/responses/R'}\n",
    );
    assert_refused(self::project(&text, &[]), "api.yaml#/paths", "circle");
    let text = with_paths(
        "  /a:\n    get:\n      operationId: a\n      responses: {'200': {content: {application/json: {schema: {$ref: '#/components/schemas/A'}}}}}\n\
         components:\n  schemas:\n    A: {allOf: [{$ref: '#/components/schemas/A'}, {properties: {x: {type: string}}}]}\n",
    );
    assert_refused(self::project(&text, &[]), "api.yaml#/", "circle");
}

#[test]
fn recursive_schemas_become_json_text_inside() {
    let text = with_paths(
        "  /a:\n    get:\n      operationId: tree\n      responses: {'200': {content: {application/json: {schema: {$ref: '#/components/schemas/Tree'}}}}}\n\
         components:\n  schemas:\n    Tree: {type: object, required: [name], properties: {name: {type: string}, children: {type: array, items: {$ref: '#/components/schemas/Tree'}}}}\n",
    );
    let project = project(&text, &[]).unwrap();
    assert_valid(&project, "tree");
    let wit = file(&project, "wit/service.wit");
    assert!(
        wit.contains("children: option<list<string>>") && wit.contains("its schema contains itself"),
        "{wit}"
    );
    assert_eq!(project.report.operations.first().map(|it| &it.status), Some(&OperationStatus::WithJsonText));
}

#[test]
fn duplicate_ids_get_names_of_their_own() {
    let text = with_paths(
        "  /a: {get: {operationId: same, responses: {'204': {description: x}}}}\n  /b/{id}: {get: {operationId: same, responses: {'204': {description: x}}}}\n",
    );
    let project = project(&text, &[]).unwrap();
    assert_valid(&project, "duplicates");
    let names: Vec<_> = project.report.operations.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["same", "get_b_by_id"]);
    assert!(
        project
            .report
            .operations
            .iter()
            .any(|it| it.notes.iter().any(|note| note.contains("another operation")))
    );
}

#[test]
fn names_in_any_script_are_valid() {
    let text = with_paths(
        "  /données/{größe}:\n    get:\n      operationId: 获取数据\n      parameters:\n        - {name: größe, in: path, required: true, schema: {type: string}}\n        - {name: 'имя', in: query, schema: {type: string}}\n        - {name: '🦀', in: query, schema: {type: string}}\n        - {name: type, in: query, schema: {enum: [self, Self, type, '', '+1', '-1', 'يسار']}}\n      responses: {'200': {content: {application/json: {schema: {type: object, properties: {'ключ': {type: string}, record: {type: string}, 'a b': {type: string}, 'a-b': {type: string}}}}}}}\n",
    );
    let project = project(&text, &[]).unwrap();
    assert_valid(&project, "scripts");
    let wit = file(&project, "wit/service.wit");
    assert!(wit.contains("huo-qu-shu-ju: func("), "{wit}");
    assert!(wit.contains("%record:") && wit.contains("a-b:") && wit.contains("a-b-2:"), "{wit}");
    assert!(file(&project, "src/generated/operations.rs").contains("/donn%C3%A9es/"));
}

#[test]
fn odd_paths_are_read_or_refused() {
    let one = |path: &str| {
        let text = with_paths(&format!(
            "  '{path}': {{get: {{operationId: a, responses: {{'204': {{description: x}}}}}}}}\n"
        ));
        project(&text, &[])
    };
    for path in ["/a/{b}.{c}", "/a/{b}:cancel", "/a?x=1", "/{+rest}", "/a b/\"c\"", "/"] {
        assert_valid(&one(path).unwrap_or_else(|error| panic!("{path}: {error}")), path);
    }
    for (path, words) in [
        ("/a/{b", "not closed"),
        ("/a/b}", "opens nothing"),
        ("/a/{}", "without a name"),
        ("a/b", "slash"),
        ("/a#b", "fragment"),
        ("/a/../b", "dots"),
    ] {
        assert_refused(one(path), "api.yaml#/paths/", words);
    }
}

#[test]
fn servers_are_resolved_or_refused() {
    let one = |servers: &str| {
        project(
            &format!(
                "openapi: 3.0.3\ninfo: {{title: T, version: '1'}}\nservers: {servers}\npaths: {{/a: {{get: {{operationId: a, responses: {{'204': {{description: x}}}}}}}}}}\n"
            ),
            &[],
        )
    };
    let hosts = |servers: &str| {
        let project = one(servers).unwrap_or_else(|error| panic!("{servers}: {error}"));
        let manifest = file(&project, "connector.toml");
        manifest.lines().find(|line| line.starts_with("hosts")).unwrap_or_default().to_owned()
    };
    let variables = "[{url: 'https://{region}.example.com:{port}/v1', variables: {region: {default: eu}, port: {default: '8443'}}}]";
    assert_eq!(hosts(variables), "hosts = [\"eu.example.com:8443\"]");
    assert_eq!(hosts("[{url: 'http://a.example.com'}]"), "hosts = [\"http://a.example.com:80\"]");
    assert_eq!(
        hosts("[{url: 'http://a.example.com'}, {url: 'https://a.example.com'}]"),
        "hosts = [\"a.example.com:443\"]"
    );
    assert_eq!(hosts("[{url: 'http://localhost:8080'}]"), "hosts = [\"http://localhost:8080\"]");
    let plain = one("[{url: 'http://a.example.com'}]").unwrap();
    assert!(
        plain.report.operations.iter().any(|it| it.notes.iter().any(|note| note.contains("without TLS")))
    );
    for (servers, words) in [
        ("[{url: 'https://10.0.0.1/v1'}]", "cannot be granted"),
        ("[{url: 'https://169.254.169.254'}]", "cannot be granted"),
        ("[{url: 'https://[::1]/'}]", "cannot be granted"),
        ("[{url: '/v1'}]", "relative"),
        ("[]", "no server"),
        ("[{url: 'https://{x}.example.com'}]", "variable"),
        ("[{url: 'https://{x}.example.com', variables: {x: {}}}]", "no default"),
        ("[{url: 'ftp://a.example.com'}]", "neither https nor http"),
        ("[{url: 'https://user:pass@a.example.com'}]", "user name"),
        ("[{url: 'https://a.example.com/?x=1'}]", "query"),
    ] {
        assert_refused(one(servers), "api.yaml#", words);
    }
}

#[test]
fn a_thousand_parameters_become_a_record() {
    let many = |count: usize| {
        let parameters: String = (0..count)
            .map(|n| format!("        - {{name: p{n}, in: query, schema: {{type: string}}}}\n"))
            .collect();
        let paths = format!(
            "  /a:\n    get:\n      operationId: a\n      parameters:\n{parameters}      responses: {{'204': {{description: x}}}}\n"
        );
        project(&with_paths(&paths), &[])
    };
    let project = many(1_000).unwrap();
    assert_valid(&project, "a thousand");
    assert!(file(&project, "wit/service.wit").contains("parameters: a-parameters"));
    assert_refused(many(1_001), "api.yaml#/paths/~1a/get", "1001 parameters");
}

#[test]
fn dead_references_are_errors_of_their_operations() {
    let text = with_paths(
        "  /a:\n    get:\n      operationId: a\n      responses: {'200': {content: {application/json: {schema: {$ref: '#/components/schemas/Nope'}}}}}\n  /b: {get: {operationId: b, responses: {'204': {description: x}}}}\n",
    );
    let project = project(&text, &[]).unwrap();
    let statuses: Vec<_> = project.report.operations.iter().map(|it| &it.status).collect();
    assert!(
        matches!(statuses.as_slice(), [OperationStatus::Refused(error), OperationStatus::Exact] if error.message().contains("leads nowhere"))
    );
    assert_refused(self::project(&text, &["a"]), "api.yaml#/paths/~1a/get", "leads nowhere");
    assert_refused(self::project(&text, &["bb*"]), "--operations", "no operation matches");
}

#[test]
fn empty_documents_are_refused() {
    assert_refused(project("openapi: 3.1.0\n", &[]), "api.yaml#", "no operations");
    assert_refused(project("openapi: 3.1.0\npaths: {/a: {}}\n", &[]), "api.yaml#", "no operations");
    let odd = with_paths("  /a: {trace: {operationId: a, responses: {'200': {description: x}}}}\n");
    assert_refused(project(&odd, &[]), "api.yaml#/paths/~1a/trace", "TRACE");
}

#[test]
fn many_operations_have_to_be_chosen() {
    let paths: String = (0..300)
        .map(|n| {
            format!("  /p{n}: {{get: {{operationId: o{n}, responses: {{'204': {{description: x}}}}}}}}\n")
        })
        .collect();
    assert_refused(project(&with_paths(&paths), &[]), "api.yaml#", "300 operations");
    assert_eq!(project(&with_paths(&paths), &["o1*"]).unwrap().report.operations.len(), 111);
}

#[test]
fn large_documents_are_read_in_seconds() {
    let Some(dir) = support::descriptions() else { return };
    let started = Instant::now();
    let document = support::read(&dir.join("github.json")).unwrap();
    let project = DocumentReader::new(&document).project(&options(&["issues/*"])).unwrap();
    assert!(project.report.operations.len() > 20);
    // The bound of the issue is for an optimised build; this one is not.
    let bound = if cfg!(debug_assertions) { 60 } else { 5 };
    let took = started.elapsed();
    println!("GitHub: {} bytes read and issues/* generated in {took:?}", document.bytes());
    assert!(took < Duration::from_secs(bound), "{took:?}");
}
