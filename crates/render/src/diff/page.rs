//! The differential flame graph as one HTML file: both sides in one tree, wide as either, coloured by
//! the change, with the table of changes beside it. Its code is `web/js/delta.js` over the same
//! flame graph as a recording's page, in a bundle of its own, and as little may leave it.

use std::io::{self, Write};

use serde_json::{Value, json};
use wallscope_model::{FrameKind, Recording};

use super::text::{Shown, rests_on, sentence};
use crate::page::trie::Builder;
use crate::page::{Content, DELTA, assemble};
use wallscope_analysis::diff::relative;
use wallscope_analysis::diff::{Comparison, FunctionRow, Normal, Unit};
use wallscope_analysis::diff::{Stacks, Times};

/// Most nodes that the page is given; the smallest beyond are left out, and it says so.
const MAX_STACKS: usize = 200_000;
/// Rows of functions.
const MAX_FUNCTIONS: usize = 2_000;

/// Writes the recordings that `comparison` was made from, base and new, as one page.
///
/// # Errors
/// Those of `out`.
pub fn write(
    comparison: &Comparison,
    [base, new]: [&[Recording]; 2],
    title: &str,
    out: &mut impl Write,
) -> io::Result<()> {
    let stacks = Stacks::of(comparison, base, new);
    let payload = payload(comparison, stacks, title).to_string();
    let content = Content {
        title,
        lead: "",
        payload: payload.as_bytes(),
    };
    assemble(&DELTA, &content, out)
}

/// The page's number for a kind of code.
fn kind(kind: FrameKind) -> u8 {
    match kind {
        FrameKind::Native
        | FrameKind::Python
        | FrameKind::Php
        | FrameKind::Ruby
        | FrameKind::Java
        | FrameKind::JavaScript => 0,
        FrameKind::Kernel => 1,
        FrameKind::Jit => 2,
    }
}

/// The rows of functions.
fn functions(c: &Comparison) -> Vec<Value> {
    let unit = c.unit();
    let row = |r: &FunctionRow| {
        let d = &r.all;
        json!({
            "name": &*r.function.name, "module": &*r.function.module, "changed": r.changed,
            "what": r.what(), "base": unit.value(d.base), "new": unit.value(d.new),
            "delta": unit.difference(d.delta, (d.high - d.low) / 2.0),
            "relative": relative(d), "size": d.delta,
        })
    };
    c.functions.iter().take(MAX_FUNCTIONS).map(row).collect()
}

fn payload(c: &Comparison, stacks: Stacks, title: &str) -> Value {
    let size = |t: &Times| t.iter().flatten().sum::<f64>();
    let mut paths: Vec<(Vec<u32>, Times)> = stacks.paths.into_iter().collect();
    paths.sort_by(|a, b| {
        size(&b.1)
            .total_cmp(&size(&a.1))
            .then_with(|| a.0.cmp(&b.0))
    });
    let left_out: f64 = paths.iter().skip(MAX_STACKS).map(|(_, t)| size(t)).sum();
    paths.truncate(MAX_STACKS);
    paths.sort_by(|a, b| a.0.cmp(&b.0));
    let mut builder = Builder::new();
    let nodes: Vec<u32> = (paths.iter())
        .map(|(path, times)| {
            let entries: Vec<u32> = path.iter().map(|f| f + 1).collect();
            builder.add(&entries, size(times).round() as u64)
        })
        .collect();
    let trie = builder.finish();
    // Own times by node: base then new, by state; most nodes have none.
    let mut own: Vec<(u32, Times)> = (nodes.iter().zip(paths))
        .map(|(node, (_, times))| (trie.renumbered[*node as usize], times))
        .collect();
    own.sort_unstable_by_key(|(node, _)| *node);
    let unit = c.unit();
    let mut notes = rests_on(c, Shown::default());
    if left_out > 0.0 {
        notes.push(format!(
            "the picture has the {MAX_STACKS} largest stacks; {} in smaller ones is left out",
            unit.value(
                left_out
                    / if c.options.normal == Normal::Total {
                        1e9
                    } else {
                        1.0
                    }
            )
        ));
    }
    json!({
        "version": 1,
        "title": title,
        "sentence": sentence(c),
        "share": unit == Unit::Share,
        "unit": c.measured.name(),
        "per": unit.per(),
        "about": c.about(),
        "runs": [c.runs.0, c.runs.1],
        "view": c.options.view.name(),
        "fdr": c.options.fdr,
        "names": stacks.frames.iter().map(|f| &*f.name).collect::<Vec<_>>(),
        "modules": stacks.frames.iter().map(|f| &*f.module).collect::<Vec<_>>(),
        "kinds": stacks.frames.iter().map(|f| kind(f.kind)).collect::<Vec<_>>(),
        "inlined": stacks.frames.iter().map(|f| u8::from(f.inlined)).collect::<Vec<_>>(),
        "pops": trie.pops,
        "entry": trie.entry,
        "own": own.iter().map(|(node, t)| json!([
            node, t[0].map(f64::round), t[1].map(f64::round),
        ])).collect::<Vec<_>>(),
        "functions": functions(c),
        "notes": notes,
    })
}
