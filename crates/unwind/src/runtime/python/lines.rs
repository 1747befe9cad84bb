//! Line tables of code objects: instruction → line.
//!
//! There are three formats (see `Lines`), each a list of steps from the code's first line on.
//! Tables come from the target's memory and may hold anything: an invalid entry ends the search.

use super::layout::Lines;

/// The line of the instruction at `lasti` bytes; `None` if the table does not tell. A function that
/// has not started is at its first line.
pub(crate) fn line(format: Lines, table: &[u8], first: u32, lasti: i32) -> Option<u32> {
    if format == Lines::Places {
        return super::super::ruby::line_at(table, lasti as u32);
    }
    let Ok(at) = u32::try_from(lasti) else {
        return Some(first);
    };
    let found = match format {
        Lines::Increments => increments(table, i64::from(first), at),
        Lines::Ranges => ranges(table, i64::from(first), at),
        Lines::Locations => locations(table, i64::from(first), at),
        Lines::InFrame | Lines::Places => (at > 0).then_some(i64::from(at)),
    };
    found.and_then(|line| u32::try_from(line).ok())
}

/// Pairs of an instruction step and a signed line step; a line applies from its step on.
fn increments(table: &[u8], mut line: i64, at: u32) -> Option<i64> {
    let mut address = 0u32;
    for pair in table.chunks_exact(2) {
        address += u32::from(pair[0]);
        if address > at {
            break;
        }
        line += i64::from(pair[1] as i8);
    }
    Some(line)
}

/// Pairs of a length and a signed line step; −128: no line.
fn ranges(table: &[u8], mut line: i64, at: u32) -> Option<i64> {
    let mut end = 0u32;
    for pair in table.chunks_exact(2) {
        let step = pair[1] as i8;
        if step != -128 {
            line += i64::from(step);
        }
        end += u32::from(pair[0]);
        if end > at {
            return (step != -128).then_some(line);
        }
    }
    None
}

/// Entries that start with a byte that has its high bit set: kind in four bits, length − 1 in units of
/// two bytes in three. Only the line is decoded.
fn locations(table: &[u8], mut line: i64, at: u32) -> Option<i64> {
    let mut bytes = table.iter().copied().peekable();
    let mut end = 0u32;
    while let Some(head) = bytes.next() {
        if head & 0x80 == 0 {
            return None;
        }
        let kind = head >> 3 & 15;
        match kind {
            // Long form, and form without columns: a signed number in groups of six bits, sign
            // lowest.
            13 | 14 => {
                let (mut value, mut shift) = (0u64, 0);
                loop {
                    let byte = bytes.next()?;
                    value |= u64::from(byte & 63) << shift;
                    shift += 6;
                    if byte & 64 == 0 {
                        break;
                    }
                    if shift > 36 {
                        return None;
                    }
                }
                let size = (value >> 1) as i64;
                line += if value & 1 == 1 { -size } else { size };
            }
            // One-line form: 0, 1 or 2 lines on.
            10..=12 => line += i64::from(kind - 10),
            _ => {}
        }
        end += 2 * (u32::from(head & 7) + 1);
        if end > at {
            return (kind != 15).then_some(line);
        }
        while bytes.peek().is_some_and(|b| b & 0x80 == 0) {
            bytes.next();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // Tables made by `compile()` of CPython 3.8, 3.10, 3.11 and 3.12 from this source, a function
    // that begins at line 3 after two blank ones. The lines are those of `dis.findlinestarts`:
    //
    //   def f(x):
    //       y = x
    //       if y:
    //
    //           y += 1
    //       return y
    #[test]
    fn lines_of_real_tables() {
        let lnotab = [0, 1, 4, 1, 4, 2, 8, 1];
        for (lasti, expected) in [
            (-1, 3),
            (0, 4),
            (2, 4),
            (4, 5),
            (6, 5),
            (8, 7),
            (16, 8),
            (18, 8),
        ] {
            assert_eq!(line(Lines::Increments, &lnotab, 3, lasti), Some(expected));
        }
        let pairs = [4, 1, 4, 1, 8, 2, 4, 1];
        for (lasti, expected) in [(0, 4), (4, 5), (8, 7), (14, 7), (16, 8), (18, 8)] {
            assert_eq!(line(Lines::Ranges, &pairs, 3, lasti), Some(expected));
        }
        assert_eq!(line(Lines::Ranges, &pairs, 3, 20), None);
    }

    #[test]
    fn lines_of_location_tables() {
        let v3_11 = [
            128, 0, 216, 8, 9, 128, 65, 216, 7, 8, 240, 0, 2, 5, 15, 224, 8, 9, 136, 81, 137, 6,
            136, 1, 216, 11, 12, 128, 72,
        ];
        let v3_12 = [
            128, 0, 216, 8, 9, 128, 65, 217, 7, 8, 224, 8, 9, 136, 81, 137, 6, 136, 1, 216, 11, 12,
            128, 72,
        ];
        for table in [&v3_11[..], &v3_12[..]] {
            for (lasti, expected) in [(-2, 3), (0, 3), (2, 4), (5, 4), (6, 5), (12, 7), (20, 8)] {
                let found = line(Lines::Locations, table, 3, lasti);
                assert_eq!(found, Some(expected), "at {lasti}");
            }
            assert_eq!(line(Lines::Locations, table, 3, 24), None);
        }
    }

    #[test]
    fn a_range_without_a_line_has_none() {
        let pairs = [4, 1, 2, 0x80, 4, 1];
        assert_eq!(line(Lines::Ranges, &pairs, 10, 4), None);
        assert_eq!(line(Lines::Ranges, &pairs, 10, 6), Some(12));
    }

    proptest! {
        #[test]
        fn no_table_is_too_strange(
            table in proptest::collection::vec(any::<u8>(), 0..200),
            lasti in any::<i32>(),
        ) {
            for format in [Lines::Increments, Lines::Ranges, Lines::Locations] {
                line(format, &table, 7, lasti);
            }
        }
    }
}
