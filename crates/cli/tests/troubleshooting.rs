//! `docs/troubleshooting.md` is searched for the program's messages: each of its headings must still
//! be printed by something.

use std::path::{Path, PathBuf};

use wallscope_model::StackEnd;

fn root() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).expect("the repository")
}

/// Sources of the program: Rust without tests beside it, and the page.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs" || e == "js") {
            found.push(path);
        }
    }
}

/// A source as it would print: strings over several lines joined, `{…}` and `${…}` as `…`.
fn printed(source: &str) -> String {
    let mut joined = String::new();
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        joined.push_str(line);
        while joined.ends_with('\\') {
            joined.pop();
            joined.push_str(lines.next().unwrap_or_default().trim_start());
        }
        joined.push('\n');
    }
    let mut out = String::new();
    let mut rest = joined.as_str();
    while let Some((before, after)) = rest.split_once('{') {
        out.push_str(before.strip_suffix('$').unwrap_or(before));
        match after.split_once('}') {
            Some((inside, after)) if !inside.contains(['\n', '{', '"']) => {
                out.push('…');
                rest = after;
            }
            _ => rest = after,
        }
    }
    out.push_str(rest);
    out.replace("\\\"", "\"")
}

fn headings(text: &str) -> Vec<&str> {
    let headings = text.lines().filter_map(|l| l.strip_prefix("### "));
    headings
        .map(|h| {
            let inside = h.strip_prefix('`').and_then(|h| h.strip_suffix('`'));
            inside.unwrap_or_else(|| panic!("the heading {h:?} is not literal text"))
        })
        .collect()
}

#[test]
fn each_heading_is_still_printed() {
    let doc = std::fs::read_to_string(root().join("docs/troubleshooting.md")).expect("the page");
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(root().join("crates")).expect("the crates") {
        let path = entry.expect("an entry").path();
        let name = path
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        if !["testkit", "xtask"].contains(&&*name) {
            sources(&path.join("src"), &mut paths);
        }
    }
    sources(&root().join("crates/render/web/js"), &mut paths);
    let texts: Vec<String> = paths
        .iter()
        .map(|p| printed(&std::fs::read_to_string(p).expect("a source")))
        .collect();
    let headings = headings(&doc);
    assert!(headings.len() > 30);
    let gone: Vec<&str> = headings
        .into_iter()
        .filter(|h| !texts.iter().any(|t| t.contains(h)))
        .collect();
    assert!(gone.is_empty(), "nothing prints these any more: {gone:#?}");
}

#[test]
fn a_text_that_nothing_prints_is_found() {
    let source =
        "#[error(\"no {what} at {path:?}: \\\n         it is gone\")]\nformat!(`${n} \\\"x\\\"`)";
    let text = printed(source);
    assert!(text.contains("no … at …: it is gone"), "{text}");
    assert!(text.contains("… \"x\""), "{text}");
    assert!(!text.contains("no … in …"));
}

#[test]
fn every_end_of_a_stack_is_explained() {
    let doc = std::fs::read_to_string(root().join("docs/troubleshooting.md")).expect("the page");
    for end in StackEnd::ALL.iter().filter(|end| !end.is_whole()) {
        assert!(doc.contains(&format!("\n| `{}` |", end.name())), "{end:?}");
    }
}
