//! S3's XML, as far as it is used: lists of objects, and the code of an error.

use cofferdam_guest::Failure;
use percent_encoding::percent_decode_str;
use roxmltree::{Document, Node};

use crate::Entry;

/// The objects of a list, and the token of the next page where there is one.
pub(crate) fn page(body: &[u8]) -> Result<(Vec<Entry>, Option<String>), Failure> {
    let invalid = |detail: String| {
        Failure::failed("invalid_xml", "The list did not have the expected form.").with_detail(detail)
    };
    let text = std::str::from_utf8(body).map_err(|error| invalid(error.to_string()))?;
    let document = Document::parse(text).map_err(|error| invalid(error.to_string()))?;
    let root = document.root_element();
    let encoded = child(root, "EncodingType") == Some("url");
    let objects = root.children().filter(|node| node.tag_name().name() == "Contents");
    let objects = objects.map(|node| entry(node, encoded).ok_or_else(|| invalid("an object".to_owned())));
    let objects = objects.collect::<Result<Vec<_>, _>>()?;
    let next = child(root, "NextContinuationToken").filter(|_| child(root, "IsTruncated") == Some("true"));
    Ok((objects, next.map(str::to_owned)))
}

/// The code in the body of an error.
pub(crate) fn error_code(body: &[u8]) -> Option<String> {
    let document = Document::parse(std::str::from_utf8(body).ok()?).ok()?;
    let root = document.root_element();
    (root.tag_name().name() == "Error").then(|| child(root, "Code").map(str::to_owned))?
}

fn entry(node: Node<'_, '_>, encoded: bool) -> Option<Entry> {
    let key = child(node, "Key")?;
    Some(Entry {
        key: if encoded { decoded(key)? } else { key.to_owned() },
        size: child(node, "Size")?.parse().ok()?,
        modified: child(node, "LastModified")?.to_owned(),
        etag: child(node, "ETag")?.trim_matches('"').to_owned(),
    })
}

/// The text of a child element; namespaces differ between services.
fn child<'a>(node: Node<'a, '_>, name: &str) -> Option<&'a str> {
    node.children().find(|child| child.tag_name().name() == name)?.text()
}

/// A key as it was before it was encoded for the list: spaces are pluses there.
fn decoded(key: &str) -> Option<String> {
    Some(percent_decode_str(&key.replace('+', " ")).decode_utf8().ok()?.into_owned())
}
