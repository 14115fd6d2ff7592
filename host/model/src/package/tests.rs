//! Tests of valid and invalid packages, from real bytes.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "tests"
)]

use std::time::Instant;

use super::fixture_tests::{component, component_in, connector, manifest, package};
use super::*;

const NAME: &str = "github://acme/test";

fn decoded(bytes: &[u8]) -> Result<decode::ComponentInterface, PackageError> {
    decode::decode(bytes, VALIDATION_TIMEOUT)
}

fn open(component: &[u8]) -> Result<Package, PackageError> {
    Package::open(embed(component, &manifest(NAME, "1.2.3"), &ConnectorDocs::default())?)
}

#[test]
fn a_package_lists_operations_in_both_spellings() {
    let bytes = open(&connector(
        "/// Not kept by the toolchain.
         record the-item { title: string, labels: list<string>, blob: list<u8> }
         variant kind { none, one(u32), many(list<the-item>) }
         enum colour { red, dark-blue }
         flags rights { can-read, can-write }
         type byte = u8;
         create-item: func(item: the-item, kind: option<kind>) -> result<tuple<u64, s8>, failure>;
         forget: func() -> result<_, failure>;
         paint: func(colour: colour, rights: rights, c: char, f: f32) -> result<result<_, string>, failure>;
         raw: func(bytes: list<byte>) -> result<list<byte>, failure>;",
    ))
    .unwrap();
    assert_eq!(bytes.manifest().name().as_str(), NAME);
    assert_eq!(*bytes.digest(), Digest::sha256(bytes.bytes()));
    let shown: Vec<String> = bytes.operations().iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "create_item(item: {title: string, labels: list<string>, blob: bytes}, \
             kind: option<none | one(u32) | many(list<{title: string, labels: list<string>, blob: bytes}>)>) \
             -> tuple<u64, s8>",
            "forget()",
            "paint(colour: red | dark_blue, rights: flags{can_read, can_write}, c: char, f: f32) \
             -> result<_, string>",
            "raw(bytes: bytes) -> bytes",
        ]
    );
    let create = bytes.operation("create_item").unwrap();
    assert_eq!((create.name().wit(), create.interface()), ("create-item", Some("acme:test/ops@1.2.3")));
    assert!(bytes.operation("create-item").is_none());
    assert!(bytes.import_verdicts().iter().all(|verdict| verdict.status() == ImportStatus::Ambient));
    bytes.check_imports().unwrap();
}

#[test]
fn world_level_functions_are_operations() {
    let package = open(&component(
        "package acme:test;
         world it {
             use cofferdam:connector/types@0.1.0.{failure};
             export ping: func() -> result<_, failure>;
         }",
    ));
    let package = package.unwrap();
    assert_eq!(package.operation("ping").unwrap().interface(), None);
}

#[track_caller]
fn refused(component: &[u8], part: &str) {
    let error = decoded(component).unwrap_err();
    assert!(error.to_string().contains(part), "{error}");
    assert!(error.fix().ends_with('.'), "{}", error.fix());
}

#[test]
fn invalid_operations_are_refused_by_name() {
    refused(&connector("add: func(a: u32) -> u32;"), "`acme:test/ops@1.2.3#add`");
    refused(&connector("add: func(a: u32) -> u32;"), "does not return a result");
    refused(&connector("add: func(a: u32);"), "does not return a result");
    refused(&connector("add: func() -> result<u32, string>;"), "not the contract's `failure`");
    refused(&connector("add: func() -> result<u32>;"), "not the contract's `failure`");
    refused(&connector("resource r; add: func(r: r) -> result<_, failure>;"), "`r` has a resource handle");
    refused(&connector("resource r; get: func() -> result<r, failure>;"), "its result has a resource handle");
    refused(&connector("resource r { constructor(); }"), "belongs to a resource");
    refused(&connector("f: func(s: stream<u8>) -> result<_, failure>;"), "streams or futures");
    refused(&connector("f: func(s: future<u8>) -> result<_, failure>;"), "streams or futures");
    refused(&connector("f: func(l: list<u32, 4>) -> result<_, failure>;"), "fixed-length");
    refused(&connector("type a = u32;"), "no operation");
    refused(&component("package acme:test; world it {}"), "no operation");
    refused(
        &component(
            "package acme:test;
             interface one { use cofferdam:connector/types@0.1.0.{failure}; go-on: func() -> result<_, failure>; }
             interface two { use cofferdam:connector/types@0.1.0.{failure}; go-on: func() -> result<_, failure>; }
             world it { export one; export two; }",
        ),
        "both be called `go_on`",
    );
}

#[test]
fn asynchronous_functions_are_refused() {
    let wat = r#"(component
        (type $t (func async (result u32)))
        (import "f" (func $f (type $t)))
        (export "g" (func $f)))"#;
    refused(&wat::parse_str(wat).unwrap(), "asynchronous");
}

#[test]
fn a_failure_type_with_an_extra_field_is_refused() {
    let wit = "package acme:test;
        interface ops {
            record upstream-error { status: u16, code: option<string>, retry-after-ms: option<u64> }
            variant failure { upstream(upstream-error) }
            go: func() -> result<_, failure>;
        }
        world it { export ops; }";
    refused(&component(wit), "not the contract's `failure`");
}

#[test]
fn another_version_of_the_contract_is_its_own_error() {
    for (version, fits) in [("0.1.0", true), ("0.1.9", true), ("0.2.0", false), ("1.1.0", false)] {
        let mut resolve = wit_parser::Resolve::default();
        let types = include_str!("../../../../wit/types.wit").replace("@0.1.0", &format!("@{version}"));
        resolve.push_str("types.wit", &types).unwrap();
        let wit = format!(
            "package acme:test;
             interface ops {{
                 use cofferdam:connector/types@{version}.{{failure}};
                 go: func() -> result<_, failure>;
             }}
             world it {{ export ops; }}"
        );
        match open(&component_in(resolve, &wit)) {
            Ok(_) => assert!(fits, "{version}"),
            Err(error) => {
                assert!(!fits, "{version}: {error}");
                assert_eq!(error.kind(), cofferdam_core::error::HostErrorKind::ContractVersion);
                let text = error.to_string();
                assert!(text.contains(version) && text.contains(CONTRACT_VERSION), "{text}");
            }
        }
    }
}

#[test]
fn undeclared_imports_open_but_fail_the_check() {
    let component = component(
        "package acme:test;
         interface secrets { read: func() -> string; }
         interface ops { use cofferdam:connector/types@0.1.0.{failure}; go: func() -> result<_, failure>; }
         world it { import secrets; import wasi:http/outgoing-handler@0.2.12; import wasi:clocks/wall-clock@0.2.12; export ops; }",
    );
    let package = open(&component).unwrap();
    let denial = package.check_imports().unwrap_err();
    assert_eq!(denial.requested(), "import:acme:test/secrets, import:wasi:http/outgoing-handler");
}

#[test]
fn sections_must_be_single_and_at_the_top() {
    let bare = connector("go: func() -> result<_, failure>;");
    let error = |bytes: Vec<u8>| Package::open(bytes).unwrap_err();
    let custom = |name: &'static str, data: &[u8]| {
        let mut bytes = bare.clone();
        use wasm_encoder::ComponentSection;
        wasm_encoder::CustomSection { name: name.into(), data: data.into() }.append_to_component(&mut bytes);
        bytes
    };
    assert!(matches!(error(bare.clone()), PackageError::SectionMissing { section: MANIFEST_SECTION }));
    let only_manifest = custom(MANIFEST_SECTION, manifest(NAME, "1.0.0").as_bytes());
    assert!(matches!(error(only_manifest), PackageError::SectionMissing { section: DOCS_SECTION }));
    let packed = package(NAME, "1.0.0", "");
    assert!(matches!(
        embed(&packed, "", &ConnectorDocs::default()),
        Err(PackageError::SectionPresent { section: MANIFEST_SECTION })
    ));
    let mut twice = packed.clone();
    let tail = &packed[strip(&packed).unwrap().len()..];
    twice.extend_from_slice(tail);
    assert!(matches!(
        error(twice.clone()),
        PackageError::SectionRepeated { section: MANIFEST_SECTION, count: 2 }
    ));
    assert_eq!(strip(&twice).unwrap(), strip(&packed).unwrap());
    let nested = {
        let mut outer = wasm_encoder::Component::new();
        outer.section(&wasm_encoder::RawSection { id: 4, data: &packed });
        outer.finish()
    };
    assert!(matches!(error(nested.clone()), PackageError::SectionNested { .. }));
    assert!(matches!(embed(&nested, "", &ConnectorDocs::default()), Err(PackageError::SectionNested { .. })));
    assert!(matches!(strip(&nested), Err(PackageError::SectionNested { .. })));
    let not_text = {
        let mut bytes = custom(MANIFEST_SECTION, b"\xff\xfe");
        bytes.extend_from_slice(&custom(DOCS_SECTION, b"{}")[bare.len()..]);
        bytes
    };
    assert!(matches!(error(not_text), PackageError::SectionUnreadable { section: MANIFEST_SECTION, .. }));
    let no_manifest = embed(&bare, "[connector]\n", &ConnectorDocs::default()).unwrap();
    assert!(matches!(error(no_manifest), PackageError::Manifest(_)));
}

#[test]
fn names_are_stripped_and_nothing_else() {
    use wasm_encoder::ComponentSection as _;
    let bare = connector("go: func() -> result<_, failure>;");
    let packed = embed(&bare, &manifest(NAME, "1.2.3"), &ConnectorDocs::default()).unwrap();
    let mut named = packed.clone();
    let names = wasm_encoder::CustomSection { name: "component-name".into(), data: b"\x00\x02\x01a".into() };
    names.append_to_component(&mut named);
    let stripped = strip_names(&named).unwrap();
    assert!(stripped == strip_names(&packed).unwrap());
    assert!(!stripped.windows(14).any(|window| window == b"component-name"));
    assert_eq!(Package::open(stripped).unwrap().manifest().version().to_string(), "1.2.3");
}

#[test]
fn packing_and_stripping_round_trip() {
    let bare = connector("go: func() -> result<_, failure>;");
    let mut docs = ConnectorDocs::default();
    docs.insert("go", "Goes.", [("unknown".to_owned(), "x".to_owned())]);
    let text = manifest(NAME, "1.2.3") + "# ä comment, kept verbatim\r\n";
    let packed = embed(&bare, &text, &docs).unwrap();
    assert_eq!(strip(&packed).unwrap(), bare);
    let sections = extract(&packed).unwrap();
    assert_eq!((sections.manifest, &sections.docs), (text.as_str(), &docs));
    let package = Package::open(packed).unwrap();
    let go = package.docs().operation("go").unwrap();
    assert_eq!((go.text(), go.param("unknown")), ("Goes.", None));
}

#[test]
fn unknown_operations_in_idempotency_are_refused() {
    let bare = connector("post-message: func() -> result<_, failure>;");
    let text =
        manifest(NAME, "1.0.0") + "[connector.idempotency.operations]\npost_mesage = \"not_idempotent\"\n";
    let error = Package::open(embed(&bare, &text, &ConnectorDocs::default()).unwrap()).unwrap_err();
    assert_eq!(error.fix(), "Did you mean `post_message`?");
}

#[test]
fn unknown_operations_in_effects_are_refused() {
    let bare = connector("post-message: func() -> result<_, failure>;");
    let text = manifest(NAME, "1.0.0") + "[connector.effects.operations]\npost_mesage = \"additive\"\n";
    let line = text.lines().count();
    let error = Package::open(embed(&bare, &text, &ConnectorDocs::default()).unwrap()).unwrap_err();
    assert_eq!(error.fix(), "Did you mean `post_message`?");
    let told = error.to_string();
    assert!(told.contains("[connector.effects.operations] names `post_mesage`"), "{told}");
    assert!(told.contains(&format!("connector.toml:{line}")), "{told}");
}

#[test]
fn docs_come_from_the_authors_own_wit() {
    let wit = "package acme:test@1.2.3;
        /// An interface.
        interface ops {
            use cofferdam:connector/types@0.1.0.{failure};
            /// Greets somebody.
            ///
            /// At length.
            greet: func(
                /// Whom to greet.
                /// By full name.
                full-name: string,
                loudly: bool,
            ) -> result<string, failure>;
            /// Not an operation.
            other: func();
        }
        world it { export ops; export plain: interface {
            use cofferdam:connector/types@0.1.0.{failure};
            /// Inline.
            inline-op: func() -> result<_, failure>;
        } }";
    let operations = operations_of(&component(&wit.replace("other: func();", ""))).unwrap();
    let first = ("a.wit".to_owned(), "package acme:test@1.2.3;\ninterface unused {}\n".to_owned());
    let docs = ConnectorDocs::from_wit(&[first, ("b.wit".to_owned(), wit.to_owned())], &operations).unwrap();
    let greet = docs.operation("greet").unwrap();
    assert_eq!(greet.text(), "Greets somebody.\n\nAt length.");
    assert_eq!(greet.param("full_name"), Some("Whom to greet.\nBy full name."));
    assert_eq!(greet.param("loudly"), None);
    assert_eq!(docs.operation("inline_op").unwrap().text(), "Inline.");
    assert_eq!(docs.names().count(), 2);
    let broken =
        ConnectorDocs::from_wit(&[("c.wit".to_owned(), "package a:b; interface {".to_owned())], &operations);
    assert!(broken.unwrap_err().to_string().contains("c.wit:1:24"));
}

#[test]
fn other_file_kinds_are_distinguished() {
    let gzip: &[u8] = b"\x1f\x8b\x08\0\0";
    for (bytes, expected) in [
        (&b""[..], FileKind::Empty),
        (b"\0asm\x01\0\0\0", FileKind::CoreModule),
        (b"\0asm\x0c\0\x01\0", FileKind::OtherVersion),
        (b" (component)", FileKind::Text),
        (b"(module)", FileKind::Text),
        (b"\x7fELF\x02\x01\x01", FileKind::Native),
        (gzip, FileKind::Archive),
        (b"hello", FileKind::Unknown),
    ] {
        let error = Package::open(bytes.to_vec()).unwrap_err();
        assert!(matches!(error, PackageError::NotAComponent { found } if found == expected), "{error}");
    }
    let mut resolve = wit_parser::Resolve::default();
    let package = resolve.push_str("a.wit", "package a:b; interface c { d: func(); }").unwrap();
    let wit_only = wit_component::encode(&resolve, package).unwrap();
    let error = decoded(&wit_only).unwrap_err();
    assert!(matches!(error, PackageError::NotAComponent { found: FileKind::WitPackage }), "{error}");
}

#[test]
fn many_comparisons_are_valid_however_slow() {
    // Large numbers of these make the host stop the worker; two are refused only for having no operation.
    let small = operations_of(&bombs_tests::many_comparisons(2));
    assert!(matches!(small, Err(PackageError::NoOperations)), "{small:?}");
}

#[test]
fn repeated_type_flattening_is_given_up_in_time() {
    let bytes = bombs_tests::many_lifts(2_000);
    assert!(!bytes.is_empty() && bytes.len() < 64 * 1024);
    let patience = std::time::Duration::from_millis(100);
    let refused = super::decode::outline_with(&bytes, super::FEATURES, patience).map(drop).unwrap_err();
    assert!(matches!(refused, PackageError::TooCostly { limit: 100, .. }), "{refused}");
}

#[test]
fn bombs_are_refused_early() {
    let bombs: [(&str, Vec<u8>); 13] = [
        ("instances", bombs_tests::instances(9, 10)),
        ("more instances than a u64 counts", bombs_tests::instances(14, 10_000)),
        ("instances by aliases", bombs_tests::aliased_instances(9, 10)),
        ("nested sections", bombs_tests::nested_sections(20_000)),
        ("nested types", bombs_tests::nested_types(1_000_000)),
        ("ifs", bombs_tests::many_ifs(300_000)),
        ("blocks", bombs_tests::nested_blocks(500_000)),
        ("imports", bombs_tests::imports(1_000_000, 0)),
        ("names", bombs_tests::imports(1, 99_000)),
        ("functions", bombs_tests::functions(200_000)),
        ("bytes", vec![0; MAX_BYTES as usize + 1]),
        ("code", bombs_tests::quadratic_function(200_000)),
        ("constants", bombs_tests::long_constant(100)),
    ];
    for (name, bytes) in bombs {
        let error = Package::open(bytes).unwrap_err();
        assert!(matches!(error, PackageError::TooCostly { .. }), "{name}: {error}");
        assert_eq!(error.kind(), cofferdam_core::error::HostErrorKind::CompileRefused);
    }
}

#[test]
fn smaller_relatives_of_bombs_pass_the_scan() {
    let harmless: [(&str, Vec<u8>); 6] = [
        ("instances", bombs_tests::instances(2, 10)),
        ("instances by aliases", bombs_tests::aliased_instances(2, 10)),
        ("nested sections", bombs_tests::nested_sections(5)),
        ("nested types", bombs_tests::nested_types(5)),
        ("functions", bombs_tests::functions(40_000)),
        ("imports", bombs_tests::imports(100, 100)),
    ];
    for (name, bytes) in harmless {
        prescan::scan(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        let _ = decoded(&bytes);
    }
}

#[test]
fn exponential_types_are_refused() {
    for bytes in [bombs_tests::tuples(100), bombs_tests::lists(1_000)] {
        prescan::scan(&bytes).unwrap();
        assert!(matches!(decoded(&bytes), Err(PackageError::Malformed { .. })));
    }
    let mut items = String::from("type t0 = tuple<string, string, string, string>;\n");
    for level in 1..7 {
        let before = format!("t{}", level - 1);
        items += &format!("type t{level} = tuple<{before}, {before}, {before}, {before}>;\n");
    }
    items += "f: func(a: t6) -> result<_, failure>;";
    refused(&connector(&items), "`a` has a type of more than 10,000 parts");
}

#[test]
fn component_text_cannot_control_a_terminal() {
    let wat = r#"(component (import "\1b[31mEVIL\0aFAKE LOG LINE" (func)) (export "\07b" (func 0)))"#;
    let error = decoded(&wat::parse_str(wat).unwrap()).unwrap_err().to_string();
    assert!(error.contains("EVIL") && !error.contains(['\u{1b}', '\u{7}', '\n']), "{error:?}");
    let docs = br#"{"operations": {"go": {"docs": "\u001b[31mred\u0007"}}}"#;
    let docs = ConnectorDocs::parse(docs).unwrap();
    assert_eq!(docs.operation("go").unwrap().text(), "[31mred");
}

#[test]
fn truncation_and_flipped_bits_never_panic() {
    let whole = package(NAME, "1.0.0", "");
    for length in 0..whole.len() {
        let _ = Package::open(whole[..length].to_vec());
    }
    assert!(Package::open(whole[..whole.len() - 1].to_vec()).is_err());
    let mut state = 7_u64;
    for _ in 0..20_000 {
        let mut bytes = whole.clone();
        for _ in 0..3 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (state >> 33) as usize % bytes.len();
            bytes[at] ^= 1 << (state & 7);
        }
        if let Err(error) = Package::open(bytes) {
            let text = format!("{error} {}", error.fix());
            assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
        }
    }
}

/// Not a test: `cargo test --release -p cofferdam-model measure_the_cost_of_opening -- --ignored --nocapture FILE` by hand,
/// with the component's path in `COFFERDAM_MEASURE`.
#[test]
#[ignore = "a measurement"]
fn measure_the_cost_of_opening() {
    let Ok(path) = std::env::var("COFFERDAM_MEASURE") else { return };
    let bytes = std::fs::read(path).unwrap();
    for _ in 0..3 {
        let start = Instant::now();
        let scan = prescan::scan(&bytes).map(|_| ());
        let scanned = start.elapsed();
        let decoded = decoded(&bytes).map(|world| world.operations.len());
        eprintln!(
            "{} bytes: scan {scanned:?} {scan:?}, decode {:?} {decoded:?}",
            bytes.len(),
            start.elapsed() - scanned
        );
    }
}
