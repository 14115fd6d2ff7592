//! Documents that are made from the code and committed so that they can be read.

use crate::package::repository;

/// Holds the committed file `path` to `text`; with `COFFERDAM_BLESS` in the environment, writes it first.
///
/// # Panics
/// The file is another text, or cannot be written.
#[track_caller]
pub fn assert_committed(path: &str, text: &str) {
    let file = repository().join(path);
    if std::env::var_os("COFFERDAM_BLESS").is_some() {
        std::fs::create_dir_all(file.parent().unwrap_or(&file)).expect("a directory for the document");
        std::fs::write(&file, text).expect("a document that can be written");
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        committed == text,
        "{path} is not what the code says; run `COFFERDAM_BLESS=1 cargo test --workspace reference` and commit it"
    );
}

/// Holds a part of the committed file `path` to `text`: the lines between `<!-- name -->` and `<!-- end -->`.
///
/// # Panics
/// The file has no such part, or it is another text, or cannot be written.
#[track_caller]
pub fn assert_committed_part(path: &str, name: &str, text: &str) {
    let committed = std::fs::read_to_string(repository().join(path)).unwrap_or_default();
    let begin = format!("<!-- {name} -->\n");
    let (before, rest) = committed.split_once(&begin).expect("a part of this name");
    let (_, after) = rest.split_once("<!-- end -->").expect("the end of the part");
    assert_committed(path, &format!("{before}{begin}\n{}\n\n<!-- end -->{after}", text.trim()));
}
