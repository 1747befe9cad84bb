//! Names of code made at run time, from perf maps.
//!
//! The map is streamed and only what covers a wanted address is kept, so a map of any size costs
//! one line of memory. Of entries that overlap the later one counts: runtimes append, and reuse
//! addresses of code they have dropped.

use std::io::{self, BufRead, Read};

use wallscope_object::perf_map::{Line, parse_line};

/// The longest line that is read; more of it is dropped.
const MAX_LINE: u64 = 16 << 10;
/// How many entries may cover an address on average before the map is taken for hostile.
const MAX_OVERLAP: usize = 4096;

/// What a perf map says.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// Name by wanted address.
    pub names: Vec<Option<Vec<u8>>>,
    /// Lines that are no entry.
    pub junk: u64,
}

/// Looks up `wanted` (ascending).
pub(crate) fn resolve(map: impl Read, wanted: &[u64]) -> io::Result<Answer> {
    let mut reader = io::BufReader::with_capacity(64 << 10, map);
    let mut answer = Answer {
        names: vec![None; wanted.len()],
        junk: 0,
    };
    let mut budget = wanted.len().saturating_mul(MAX_OVERLAP);
    let mut line = Vec::new();
    loop {
        line.clear();
        if (&mut reader).take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
            return Ok(answer);
        }
        if line.len() as u64 == MAX_LINE && line.last() != Some(&b'\n') {
            skip_line(&mut reader)?;
        }
        match parse_line(&line) {
            Line::Entry(entry) => {
                let end = entry.start + entry.size;
                let from = wanted.partition_point(|w| *w < entry.start);
                let to = wanted.partition_point(|w| *w < end).max(from);
                for name in &mut answer.names[from..to.min(from.saturating_add(budget))] {
                    *name = Some(entry.name.to_vec());
                }
                budget = budget.saturating_sub(to - from);
            }
            Line::Blank => {}
            Line::Junk => answer.junk += 1,
        }
    }
}

fn skip_line(reader: &mut impl BufRead) -> io::Result<()> {
    loop {
        let chunk = reader.fill_buf()?;
        if chunk.is_empty() {
            return Ok(());
        }
        let end = chunk.iter().position(|b| *b == b'\n');
        let used = end.map_or(chunk.len(), |e| e + 1);
        reader.consume(used);
        if end.is_some() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_entries_win_and_junk_is_counted() {
        let map = "\
1000 100 first
# comment
not a line
0x1080 0x10 inner thing
2000 10 x
";
        let wanted = [
            0xfff, 0x1000, 0x107f, 0x1080, 0x108f, 0x1090, 0x1100, 0x2005,
        ];
        let answer = resolve(map.as_bytes(), &wanted).unwrap();
        let names: Vec<String> = answer
            .names
            .iter()
            .map(|n| String::from_utf8_lossy(n.as_deref().unwrap_or(b"-")).into())
            .collect();
        assert_eq!(
            names,
            [
                "-",
                "first",
                "first",
                "inner thing",
                "inner thing",
                "first",
                "-",
                "x"
            ]
        );
        assert_eq!(answer.junk, 1);
    }

    #[test]
    fn a_line_without_end_is_cut_and_the_next_one_read() {
        let long = format!("1000 10 {}\n2000 10 y\n", "z".repeat(1 << 20));
        let answer = resolve(long.as_bytes(), &[0x1000, 0x2000]).unwrap();
        let lengths: Vec<usize> = answer
            .names
            .iter()
            .map(|n| n.as_ref().map_or(0, Vec::len))
            .collect();
        assert_eq!(lengths, [MAX_LINE as usize - 8, 1]);
    }
}
