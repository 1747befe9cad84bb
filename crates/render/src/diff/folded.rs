//! Folded stacks with two columns, base and new, as Brendan Gregg's `difffolded.pl` writes them:
//! which `flamegraph.pl` draws as a differential flame graph.

use std::io::{self, Write};
use wallscope_formats::folded::within_line;

use wallscope_model::Recording;

use wallscope_analysis::diff::Comparison;
use wallscope_analysis::diff::{FrameName, Stacks};

/// A frame as a folded line has it.
fn frame(f: &FrameName) -> String {
    let name = f.name.chars().map(within_line);
    name.chain(f.suffix().chars()).collect()
}

/// Writes the stacks of the recordings that `comparison` was made from, lines sorted bytewise.
/// Values are whole numbers of the comparison's unit: ns, or parts per billion of a whole.
///
/// # Errors
/// Errors of `out`.
pub fn write(
    comparison: &Comparison,
    base: &[Recording],
    new: &[Recording],
    mut out: impl Write,
) -> io::Result<()> {
    let stacks = Stacks::of(comparison, base, new);
    let names: Vec<String> = stacks.frames.iter().map(frame).collect();
    let mut sums: std::collections::BTreeMap<String, [f64; 2]> = Default::default();
    for (path, times) in &stacks.paths {
        let line: Vec<&str> = path.iter().map(|f| names[*f as usize].as_str()).collect();
        let sum = sums.entry(line.join(";")).or_default();
        for (sum, times) in sum.iter_mut().zip(times) {
            *sum += times.iter().sum::<f64>();
        }
    }
    for (line, [base, new]) in sums {
        writeln!(out, "{line} {} {}", base.round() as u64, new.round() as u64)?;
    }
    out.flush()
}
