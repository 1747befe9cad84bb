//! Lengths over time as rows of letters: each column a stretch of time, each row a range of lengths,
//! darker where more calls were.

use wallscope_model::calls::{CallSlice, Lengths};

use wallscope_model::units::ns;

use crate::text::Style;

/// Most columns and rows.
const COLUMNS: usize = 60;
const ROWS: usize = 16;

/// Characters of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shades {
    /// Blocks.
    Unicode,
    /// Letters that every terminal shows.
    Ascii,
}

impl Shades {
    /// The shades that a style's reader can show.
    pub(super) fn of(style: &Style) -> Shades {
        match style.unicode {
            true => Shades::Unicode,
            false => Shades::Ascii,
        }
    }

    /// Characters from none to most.
    fn characters(self) -> [char; 6] {
        match self {
            Shades::Unicode => [' ', '·', '░', '▒', '▓', '█'],
            Shades::Ascii => [' ', '.', ':', '+', '*', '#'],
        }
    }

    /// The line beside the map.
    fn rule(self) -> char {
        match self {
            Shades::Unicode => '│',
            Shades::Ascii => '|',
        }
    }
}

/// The map; empty where there are no calls or no time.
pub fn heat(slices: &[CallSlice], shades: Shades) -> Vec<String> {
    let rule = shades.rule();
    let shades = shades.characters();
    let each = slices.len().div_ceil(COLUMNS).max(1);
    let columns: Vec<Lengths> = slices
        .chunks(each)
        .map(|chunk| {
            let mut sum = Lengths::default();
            chunk.iter().for_each(|s| sum.merge(&s.lengths));
            sum
        })
        .collect();
    let parts = || columns.iter().flat_map(Lengths::parts);
    let (Some(shortest), Some(longest)) = (
        parts().map(|p| p.0.max(1)).min(),
        parts().map(|p| p.1).max(),
    ) else {
        return Vec::new();
    };
    // Rows of a factor of √2, 2, 4…, so that they fit.
    let span = (longest as f64 / shortest as f64).log2();
    let mut step = 0.5;
    while span / step > ROWS as f64 {
        step *= 2.0;
    }
    let first = ((shortest as f64).log2() / step).floor();
    let row_of = |length: u64| ((length.max(1) as f64).log2() / step - first) as usize;
    let rows = row_of(longest - 1) + 1;
    let mut cells = vec![vec![0u64; columns.len()]; rows];
    for (x, column) in columns.iter().enumerate() {
        for (from, to, n) in column.parts() {
            cells[row_of(from + (to - from) / 2).min(rows - 1)][x] += n;
        }
    }
    let most = cells.iter().flatten().copied().max().unwrap_or(1).max(1) as f64;
    let shade = |n: u64| match n {
        0 => shades[0],
        // The scale is logarithmic: single slow calls must show beside thousands of quick ones.
        n => {
            let dark = (1.0 + n as f64).ln() / (1.0 + most).ln();
            shades[1 + ((shades.len() - 2) as f64 * dark).round() as usize]
        }
    };
    let mut lines: Vec<String> = cells
        .iter()
        .enumerate()
        .rev()
        .map(|(row, cells)| {
            let from = ((first + row as f64) * step).exp2() as u64;
            let cells: String = cells.iter().map(|n| shade(*n)).collect();
            format!("{:>9} {rule}{}", ns(from), cells.trim_end())
        })
        .collect();
    let begin = slices.first().map_or(0, |s| s.start_ns);
    let end = slices.last().map_or(0, |s| s.end_ns);
    let column = slices.get(each - 1).map_or(end, |s| s.end_ns) - begin;
    lines.push(format!(
        "{:>9}  0 to {:.1} s, {} a column; darkest: {} calls",
        "",
        (end - begin) as f64 / 1e9,
        ns(column),
        most as u64
    ));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_calls_stand_above_quick_ones() {
        let mut slices = Vec::new();
        for i in 0..10u64 {
            let mut s = CallSlice {
                start_ns: i * 1_000_000_000,
                end_ns: (i + 1) * 1_000_000_000,
                entered: 1000,
                ..CallSlice::default()
            };
            s.lengths.add(1_000_000, 1000);
            if i == 7 {
                s.lengths.add(300_000_000, 1);
            }
            slices.push(s);
        }
        let map = heat(&slices, Shades::Ascii);
        let top = &map[0];
        let dot = top.find('.').expect("the slow call shows");
        assert_eq!(dot - top.find('|').unwrap(), 8, "{map:#?}");
        assert!(map[map.len() - 2].contains("##########"), "{map:#?}");
        assert!(map.last().unwrap().contains("0 to 10.0 s"));
        assert!(heat(&[], Shades::Unicode).is_empty());
    }
}
