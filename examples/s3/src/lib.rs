//! Puts, gets and lists objects in Amazon S3 and in services that speak its API.

mod xml;

use cofferdam_guest::http::{self, Response};
use cofferdam_guest::{Failure, connector, log};

connector!("wit/s3.wit", S3);

struct S3;

/// The number of objects listed by default.
const LIMIT: u32 = 1000;
/// The most a caller can ask for.
const MOST: u32 = 10_000;
/// The most the service gives in one response.
const PER_PAGE: usize = 1000;
/// The longest key, in bytes.
const KEY: usize = 1024;

impl Guest for S3 {
    fn put_object(
        bucket: Bucket,
        key: String,
        content: Vec<u8>,
        content_type: Option<String>,
    ) -> Result<String, Failure> {
        let kind = content_type.as_deref().unwrap_or("application/octet-stream");
        let response = checked(http::put(object(&bucket, &key)?).bytes(kind, content).send()?)?;
        etag(&response).ok_or_else(|| Failure::failed("no_etag", "The service did not say what it stored."))
    }

    fn get_object(bucket: Bucket, key: String) -> Result<Object, Failure> {
        let response = checked(http::get(object(&bucket, &key)?).send()?)?;
        let (content_type, etag) = (response.header("content-type").map(str::to_owned), etag(&response));
        Ok(Object { content: response.into_bytes(), content_type, etag })
    }

    fn list_objects(bucket: Bucket, prefix: Option<String>, limit: Option<u32>) -> Result<Page, Failure> {
        let limit = limit.unwrap_or(LIMIT);
        if !(1..=MOST).contains(&limit) {
            return Err(Failure::invalid_input("limit", format!("must be from 1 to {MOST}")));
        }
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let url = self::bucket(&bucket)?;
        let mut objects = Vec::new();
        let mut token = None;
        loop {
            // Keys may have characters that XML has no way to write.
            let request = http::get(&url)
                .query("list-type", 2)
                .query("encoding-type", "url")
                .query("max-keys", (limit - objects.len()).min(PER_PAGE))
                .query_opt("prefix", prefix.as_ref())
                .query_opt("continuation-token", token.as_ref());
            let (page, next) = xml::page(checked(request.send()?)?.bytes())?;
            let read = page.len();
            objects.extend(page);
            log::debug("page read", &[("objects", &objects.len())]);
            if next.is_none() || read == 0 || objects.len() >= limit {
                let more = next.is_some() || objects.len() > limit;
                objects.truncate(limit);
                return Ok(Page { objects, more });
            }
            token = next;
        }
    }
}

/// The URL of a bucket. The name is part of the path, so that one granted host has every bucket.
fn bucket(bucket: &Bucket) -> Result<String, Failure> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte);
    if !(3..=63).contains(&bucket.name.len()) || !bucket.name.bytes().all(plain) {
        let rule = "must be 3 to 63 lower-case letters, digits, dots and hyphens";
        return Err(Failure::invalid_input("bucket.name", rule));
    }
    let endpoint = bucket.endpoint.as_deref().unwrap_or("https://s3.us-east-1.amazonaws.com");
    Ok(format!("{}/{}", endpoint.trim_end_matches('/'), bucket.name))
}

/// The URL of an object: a slash in its key is a slash in the path.
fn object(bucket: &Bucket, key: &str) -> Result<String, Failure> {
    if key.is_empty() || key.len() > KEY {
        return Err(Failure::invalid_input("key", format!("must be 1 to {KEY} bytes")));
    }
    if key.split('/').any(|part| part == "." || part == "..") {
        return Err(Failure::invalid_input("key", "must not have . or .. between slashes"));
    }
    let parts: Vec<_> = key.split('/').map(http::encode_segment).collect();
    Ok(format!("{}/{}", self::bucket(bucket)?, parts.join("/")))
}

/// The version of the content, without the quotes around it.
fn etag(response: &Response) -> Option<String> {
    response.header("etag").map(|etag| etag.trim_matches('"').to_owned())
}

/// The response, unless its status is an error: its code is in the XML then.
fn checked(response: Response) -> Result<Response, Failure> {
    let code = xml::error_code(response.bytes());
    response.error_for_status().map_err(|error| match code {
        Some(code) => error.with_code(code).into(),
        None => error.into(),
    })
}
