//! Demangles the symbols on standard input, one a line, to compare them with other demanglers.
//!
//! ```text
//! nm -D libphobos2.so | awk '{print $NF}' | cargo run --example demangle -p wallscope-symbolize
//! ```

use std::io::{self, BufRead, Write};

fn main() -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    for line in io::stdin().lock().lines() {
        writeln!(out, "{}", wallscope_symbolize::demangle(line?.as_bytes()))?;
    }
    out.flush()
}
