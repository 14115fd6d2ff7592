//! `s3` against moto, which checks every signature.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cofferdam_test_support::services::Moto;
use serde_json::{Value, json};

use super::fixture::{S3, Stage, stage};
use crate::envelope;

fn bucket() -> Value {
    json!({ "name": Moto::BUCKET })
}

fn put(stage: &Stage, key: &str, content: &[u8]) -> String {
    let content = STANDARD.encode(content);
    let args = json!({"bucket": bucket(), "key": key, "content": content, "content_type": "text/x-report"});
    stage.value("s3", "put_object", args).as_str().unwrap().to_owned()
}

fn listed(stage: &Stage, prefix: &str, limit: u32) -> (Vec<Value>, bool) {
    let args = json!({"bucket": bucket(), "prefix": prefix, "limit": limit});
    let page = stage.value("s3", "list_objects", args);
    (page["objects"].as_array().unwrap().clone(), page["more"].as_bool().unwrap())
}

#[test]
fn objects_round_trip_with_any_bytes_and_keys() {
    let Some(stage) = stage() else { return };
    let bytes: Vec<u8> = (0..=255).collect();
    let keys =
        ["shapes/plain.bin", "shapes/with space/ü+&=%~*'(1)!$,;:@?#.bin", "shapes/a//b", "shapes/empty"];
    for key in keys {
        let content: &[u8] = if key.ends_with("empty") { &[] } else { &bytes };
        let etag = put(stage, key, content);
        let got = stage.value("s3", "get_object", json!({"bucket": bucket(), "key": key}));
        let expected =
            json!({"content": STANDARD.encode(content), "content_type": "text/x-report", "etag": etag});
        assert_eq!(got, expected, "{key}");
        let (objects, _) = listed(stage, key, 1);
        assert_eq!((&objects[0]["key"], &objects[0]["etag"]), (&json!(key), &json!(etag)));
        assert_eq!(objects[0]["size"], content.len());
    }
    let (objects, more) = listed(stage, "shapes/", 10);
    assert_eq!((objects.len(), more), (4, false));
    assert_eq!(listed(stage, "shapes/", 3).0.len(), 3);
    assert!(listed(stage, "shapes/", 3).1, "there is a fourth");
    assert_eq!(listed(stage, "nothing/", 10), (vec![], false));
}

#[test]
fn megabytes_are_signed_and_stored() {
    let Some(stage) = stage() else { return };
    let bytes: Vec<u8> = (0..1_500_000_u32).map(|at| (at % 253) as u8).collect();
    put(stage, "large.bin", &bytes);
    let got = stage.value("s3", "get_object", json!({"bucket": bucket(), "key": "large.bin"}));
    assert!(got["content"] == STANDARD.encode(bytes));
}

#[test]
fn every_request_is_signed_without_the_key() {
    let Some(stage) = stage() else { return };
    put(stage, "signed.txt", b"signed");
    let seen = stage.front.seen(S3, "/signed.txt");
    let credential = format!("AWS4-HMAC-SHA256 Credential={}/", stage.moto.access_key());
    let authorization = seen[0].header("authorization").unwrap();
    assert!(authorization.starts_with(&credential), "{authorization}");
    assert!(authorization.contains("/us-east-1/s3/aws4_request"), "{authorization}");
    let sent = format!("{seen:?}");
    assert!(!sent.contains(stage.moto.secret_key()), "{sent}");
}

#[test]
fn wrong_and_unknown_keys_are_distinguished() {
    let Some(stage) = stage() else { return };
    put(stage, "locked.txt", b"locked");
    let args = json!({"bucket": bucket(), "key": "locked.txt"});
    for (identity, code) in [("wrong", "SignatureDoesNotMatch"), ("nobodys", "InvalidAccessKeyId")] {
        let failure = stage.failure_as(identity, "s3", "get_object", args.clone());
        envelope::check(&failure, envelope::upstream("auth", false));
        let details = failure.details();
        assert_eq!((&details["status"], &details["upstream_code"]), (&json!(403), &json!(code)));
        assert_eq!(details["binding"], format!("aws_sigv4/s3/{identity}"), "which key it was");
    }
}

#[test]
fn a_missing_object_is_not_found() {
    let Some(stage) = stage() else { return };
    for (name, code) in [(Moto::BUCKET, "NoSuchKey"), ("no-such-bucket-of-ours", "NoSuchBucket")] {
        let failure =
            stage.failure("s3", "get_object", json!({"bucket": {"name": name}, "key": "missing.txt"}));
        envelope::check(&failure, envelope::upstream("not_found", false));
        assert_eq!(failure.details()["upstream_code"], code);
    }
}

#[test]
fn objects_are_listed_across_pages_by_token() {
    let Some(stage) = stage() else { return };
    let page = |keys: std::ops::Range<u32>, next: Option<&str>| {
        let object = |at| {
            format!(
                "<Contents><Key>paged/k+{at:04}%2Bx</Key><LastModified>2026-01-31T12:00:00.000Z</LastModified>\
                 <ETag>&quot;e{at}&quot;</ETag><Size>{at}</Size></Contents>"
            )
        };
        let next = next.map(|next| {
            format!("<IsTruncated>true</IsTruncated><NextContinuationToken>{next}</NextContinuationToken>")
        });
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\
             <ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
             <EncodingType>url</EncodingType>{}{}</ListBucketResult>",
            next.unwrap_or_default(),
            keys.map(object).collect::<String>()
        )
    };
    let token = "prefix=paged%2F&continuation-token=1%2Fabc%3D%3D";
    stage.front.answer(S3, token, (200, &[], &page(1000..1200, None)));
    stage.front.answer(S3, "prefix=paged%2F", (200, &[], &page(0..1000, Some("1/abc=="))));
    let (objects, more) = listed(stage, "paged/", 5000);
    assert_eq!((objects.len(), more), (1200, false));
    let keys: HashSet<_> = objects.iter().map(|object| object["key"].as_str().unwrap()).collect();
    assert_eq!(keys.len(), 1200, "none twice");
    assert!(keys.contains("paged/k 0007+x"), "keys are decoded: {:?}", objects[7]);
    assert_eq!(objects[7]["etag"], "e7");
    let (objects, more) = listed(stage, "paged/", 1000);
    assert_eq!((objects.len(), more), (1000, true));
}

#[test]
fn a_list_that_is_not_xml_is_an_error() {
    let Some(stage) = stage() else { return };
    for (prefix, body) in [
        ("broken-1", "<ListBucketResult><Contents><Key>a</Key></Contents></ListBucketResult>"),
        (
            "broken-2",
            "<!DOCTYPE x [<!ENTITY a \"aaaaaaaa\"><!ENTITY b \"&a;&a;&a;\">]><ListBucketResult>&b;</x>",
        ),
        ("broken-3", "not found, but with status 200"),
    ] {
        stage.front.answer(S3, prefix, (200, &[], body));
        let failure = stage.failure("s3", "list_objects", json!({"bucket": bucket(), "prefix": prefix}));
        assert_eq!(failure.details()["connector_code"], "invalid_xml", "{prefix}");
    }
}

#[test]
fn invalid_s3_names_are_refused_before_sending() {
    let Some(stage) = stage() else { return };
    let longest = "x".repeat(1025);
    let get = |name: &str, key: &str| json!({"bucket": {"name": name}, "key": key});
    for args in [
        get(Moto::BUCKET, ""),
        get(Moto::BUCKET, &longest),
        get(Moto::BUCKET, "a/../../other-bucket/secret"),
        get(Moto::BUCKET, "./a"),
        get("Upper", "a"),
        get("a/b", "a"),
        get("..", "a"),
    ] {
        let failure = stage.failure("s3", "get_object", args.clone());
        assert_eq!(failure.code(), "input_invalid", "{args}");
    }
    let failure = stage.failure("s3", "list_objects", json!({"bucket": bucket(), "limit": 0}));
    assert_eq!(failure.code(), "input_invalid");
}
