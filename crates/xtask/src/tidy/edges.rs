//! Which file takes which names from which other one.

use std::collections::{BTreeMap, BTreeSet};

/// By file, the files that it takes names from, and the names.
pub type Edges = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// Adds an edge; none from a file to itself.
pub fn add(edges: &mut Edges, from: &str, to: &str, name: &str) {
    if from != to {
        let names = edges.entry(from.into()).or_default().entry(to.into());
        names.or_default().insert(name.into());
    }
}
