//! No file takes a name from a file that, by others or by itself, takes one from it.
//!
//! An edge is a name that one file takes from the file that defines it. `mod` lines and re-exports
//! are no edges: a folder's `mod.rs` may hand on names that its files define. Edges between crates point
//! downward already (`floors`).

use std::collections::{BTreeMap, BTreeSet};

use super::edges::Edges;
use super::ratchet::Excess;
use super::sources::Source;
use super::{c_names, js_imports, rust_modules};

/// Names shown of an edge.
const SHOWN: usize = 4;

/// Files in cycles, each with the number of files in its cycle.
pub fn find(sources: &[Source]) -> Vec<Excess> {
    let mut edges = rust_modules::edges(sources);
    edges.extend(c_names::edges(sources));
    edges.extend(js_imports::edges(sources));
    excesses(&edges)
}

/// Files in cycles of a graph.
pub fn excesses(edges: &Edges) -> Vec<Excess> {
    let mut found = Vec::new();
    for cycle in components(edges) {
        for file in &cycle {
            let taken = edges[file].iter().filter(|(to, _)| cycle.contains(*to));
            let taken: Vec<String> = taken
                .map(|(to, names)| {
                    let names: Vec<&str> = names.iter().take(SHOWN).map(String::as_str).collect();
                    format!("{} from {to}", names.join(", "))
                })
                .collect();
            found.push(Excess {
                thing: file.clone(),
                value: cycle.len(),
                note: format!("files in its cycle; it takes {}", taken.join("; ")),
            });
        }
    }
    found.sort_by(|a, b| a.thing.cmp(&b.thing));
    found
}

/// Strongly connected components of more than one file.
fn components(edges: &Edges) -> Vec<BTreeSet<String>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> = edges
        .keys()
        .map(|from| (from.as_str(), reach(edges, from)))
        .collect();
    let mut found: Vec<BTreeSet<String>> = Vec::new();
    for (from, to) in &reached {
        if !to.contains(from) || found.iter().any(|cycle| cycle.contains(*from)) {
            continue;
        }
        let back = |other: &&str| {
            reached
                .get(other)
                .is_some_and(|theirs| theirs.contains(from))
        };
        let cycle = to.iter().copied().filter(|other| back(other));
        found.push(cycle.map(str::to_string).collect());
    }
    found
}

/// Every file that can be reached by at least one edge.
fn reach<'a>(edges: &'a Edges, from: &str) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        for to in edges.get(file).into_iter().flat_map(BTreeMap::keys) {
            if seen.insert(to.as_str()) {
                open.push(to);
            }
        }
    }
    seen
}
