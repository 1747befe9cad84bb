//! Edges between JavaScript files, by `import`.

use std::collections::BTreeMap;

use super::braced_facts::{is_name, plain};
use super::edges::{Edges, add};
use super::sources::Source;
use crate::tokens::Language;

/// One `import` or `export … from`.
#[derive(Debug)]
struct From {
    /// File it names.
    file: String,
    /// Name there, name here; `*` for all.
    names: Vec<(String, String)>,
    reexport: bool,
}

/// The edges between the scripts. A name that a file only hands on leads to the file behind it.
pub fn edges(sources: &[Source]) -> Edges {
    let scripts = sources
        .iter()
        .filter(|s| s.is_code_in(Language::JavaScript));
    let imports: BTreeMap<&str, Vec<From>> = scripts
        .map(|source| (source.path.as_str(), imports(source)))
        .collect();
    let mut edges = Edges::new();
    for (path, own) in &imports {
        for from in own.iter().filter(|from| !from.reexport) {
            for (name, _) in &from.names {
                let target = defining(&imports, &from.file, name, imports.len());
                if imports.contains_key(target.as_str()) {
                    add(&mut edges, path, &target, name);
                }
            }
        }
    }
    edges
}

/// The file behind a name of `file`, at most `hops` re-exports away.
fn defining(imports: &BTreeMap<&str, Vec<From>>, file: &str, name: &str, hops: usize) -> String {
    let own = imports
        .get(file)
        .into_iter()
        .flatten()
        .filter(|f| f.reexport);
    let next = own.into_iter().find_map(|from| {
        let names = from.names.iter();
        let mut there = names
            .filter(|(_, here)| here == name)
            .map(|(there, _)| there);
        Some((from.file.as_str(), there.next_back()?))
    });
    match next {
        Some((next, there)) if hops > 0 => defining(imports, next, there, hops - 1),
        _ => file.to_string(),
    }
}

fn imports(source: &Source) -> Vec<From> {
    let texts: Vec<&str> = source.tokens.iter().map(|t| plain(&t.text)).collect();
    let mut found = Vec::new();
    for (at, text) in texts.iter().enumerate() {
        let next = texts.get(at + 1).copied().unwrap_or_default();
        let begins = match *text {
            "import" => next != "(" && next != ".",
            "export" => next == "{" || next == "*",
            _ => false,
        };
        let length = texts[at..].iter().position(|t| is_string(t));
        let (true, Some(length)) = (begins, length) else {
            continue;
        };
        let clause = &texts[at + 1..at + length];
        if clause.last() != Some(&"from") && !clause.is_empty() {
            continue;
        }
        let target = texts[at + length].trim_matches(['"', '\'']);
        found.push(From {
            file: resolved(&source.path, target),
            names: names(clause),
            reexport: *text == "export",
        });
    }
    found
}

fn is_string(text: &str) -> bool {
    text.starts_with(['"', '\''])
}

/// The names of a clause: `{a, b as c}`, `* as d`, `e`.
fn names(clause: &[&str]) -> Vec<(String, String)> {
    let words: Vec<&str> = clause
        .iter()
        .copied()
        .filter(|w| *w == "*" || is_name(w))
        .collect();
    let mut names = Vec::new();
    let mut at = 0;
    while at < words.len() && words[at] != "from" {
        let there = words[at].to_string();
        let renamed = words.get(at + 1) == Some(&"as");
        let here = words.get(at + 2).filter(|_| renamed);
        names.push((there.clone(), here.map_or(there, |here| here.to_string())));
        at += if renamed { 3 } else { 1 };
    }
    names
}

/// The path that `target` means in the file `from`.
fn resolved(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}
