//! The styles against the table of OpenAPI 3.1, "Style Examples".

use serde_json::{Value, json};

use crate::style::{Keep, Style, form, header, path, query};

fn color(kind: &str) -> Value {
    match kind {
        "empty" => json!(""),
        "text" => json!("blue"),
        "list" => json!(["blue", "black", "brown"]),
        _ => json!({"R": 100, "G": 200, "B": 150}),
    }
}

#[test]
fn paths_are_written_as_in_the_standard() {
    for (style, explode, kind, expected) in [
        (Style::Matrix, false, "text", ";color=blue"),
        (Style::Matrix, false, "list", ";color=blue,black,brown"),
        (Style::Matrix, false, "object", ";color=R,100,G,200,B,150"),
        (Style::Matrix, true, "list", ";color=blue;color=black;color=brown"),
        (Style::Matrix, true, "object", ";R=100;G=200;B=150"),
        (Style::Label, false, "text", ".blue"),
        (Style::Label, false, "list", ".blue,black,brown"),
        (Style::Label, false, "object", ".R,100,G,200,B,150"),
        (Style::Label, true, "list", ".blue.black.brown"),
        (Style::Label, true, "object", ".R=100.G=200.B=150"),
        (Style::Simple, false, "text", "blue"),
        (Style::Simple, false, "list", "blue,black,brown"),
        (Style::Simple, false, "object", "R,100,G,200,B,150"),
        (Style::Simple, true, "list", "blue,black,brown"),
        (Style::Simple, true, "object", "R=100,G=200,B=150"),
    ] {
        assert_eq!(path("color", style, explode, &color(kind)), expected, "{style:?} {explode} {kind}");
        if style == Style::Simple {
            assert_eq!(header(explode, &color(kind)), expected, "header {explode} {kind}");
        }
    }
    assert_eq!(path("id", Style::Simple, false, &json!("a/b?c")), "a%2Fb%3Fc");
    assert_eq!(path("id", Style::Simple, false, &json!("..")), "%2E%2E");
}

#[test]
fn queries_are_written_as_in_the_standard() {
    for (style, explode, kind, expected) in [
        (Style::Form, false, "empty", "color="),
        (Style::Form, false, "text", "color=blue"),
        (Style::Form, false, "list", "color=blue,black,brown"),
        (Style::Form, false, "object", "color=R,100,G,200,B,150"),
        (Style::Form, true, "list", "color=blue&color=black&color=brown"),
        (Style::Form, true, "object", "R=100&G=200&B=150"),
        (Style::SpaceDelimited, false, "list", "color=blue%20black%20brown"),
        (Style::SpaceDelimited, false, "object", "color=R%20100%20G%20200%20B%20150"),
        (Style::PipeDelimited, false, "list", "color=blue%7Cblack%7Cbrown"),
        (Style::PipeDelimited, false, "object", "color=R%7C100%7CG%7C200%7CB%7C150"),
        (Style::DeepObject, true, "object", "color%5BR%5D=100&color%5BG%5D=200&color%5BB%5D=150"),
    ] {
        let pairs = query("color", style, explode, Keep::Unreserved, &color(kind)).join("&");
        assert_eq!(pairs, expected, "{style:?} {explode} {kind}");
    }
    assert_eq!(query("q", Style::Form, true, Keep::Reserved, &json!("a/b?c&d#e")), ["q=a/b?c%26d%23e"]);
    assert_eq!(query("a&b", Style::Form, true, Keep::Unreserved, &json!(["x y"])), ["a%26b=x%20y"]);
    assert!(query("ids", Style::Form, false, Keep::Unreserved, &json!([])).is_empty());
}

#[test]
fn forms_have_the_styles_of_their_fields() {
    let value = json!({"name": "Tea", "tags": ["a", "b"], "meta": {"x": {"y": 1}}, "ids": [1, 2], "items": [{"id": 1}], "raw": {"a": 1}});
    let styles =
        [("meta", Style::DeepObject, true), ("ids", Style::Form, false), ("items", Style::DeepObject, true)];
    let pairs: Vec<_> =
        form(&value, &styles).into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    let expected =
        ["name=Tea", "tags=a", "tags=b", "meta[x][y]=1", "ids=1,2", "items[0][id]=1", "raw={\"a\":1}"];
    assert_eq!(pairs, expected);
}
