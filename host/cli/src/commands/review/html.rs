//! The page as HTML: one file without scripts or references, to be attached to a ticket.

use std::fmt::Write as _;

use super::ReviewPage;
use crate::layout::TextStyle;

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;\
    color-scheme:light dark}h1{font-size:1.4rem;overflow-wrap:anywhere}h2{font-size:1.1rem;margin-top:1.5rem}\
    ul{list-style:none;padding:0}li{font-family:ui-monospace,monospace;overflow-wrap:anywhere;padding:.1rem .5rem;\
    border-left:.3rem solid transparent}.good{border-color:#2a7}.doubtful{border-color:#b80}.bad{border-color:#c22;\
    font-weight:bold}";

/// Returns the document.
pub(super) fn document(page: &ReviewPage) -> String {
    let mut body = String::new();
    for (at, section) in page.sections().iter().enumerate() {
        let level = if at == 0 { 1 } else { 2 };
        // Writing to a string cannot fail.
        let _ = write!(body, "<h{level}>{}</h{level}>\n<ul>\n", escaped(&section.title));
        for (tone, line) in &section.lines {
            let class = match tone {
                Some(TextStyle::Good) => " class=\"good\"",
                Some(TextStyle::Doubtful) => " class=\"doubtful\"",
                Some(TextStyle::Bad) => " class=\"bad\"",
                None => "",
            };
            let _ = writeln!(body, "<li{class}>{}</li>", escaped(line));
        }
        body.push_str("</ul>\n");
    }
    let package = &page.review.package;
    let title = escaped(&format!("Review of {}@{}", package.name, package.version));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"content-security-policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n<style>{STYLE}</style>\n\
         </head>\n<body>\n{body}</body>\n</html>\n"
    )
}

/// Returns text of a package, which is untrusted, as text of HTML on one line.
fn escaped(text: &str) -> String {
    cofferdam_core::failure::sanitize_line(text, 4_000)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    #[test]
    fn text_of_a_package_is_no_markup() {
        assert_eq!(super::escaped("<b a=\"&\">"), "&lt;b a=&quot;&amp;&quot;&gt;");
    }
}
