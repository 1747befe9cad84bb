//! Tables of text: aligned columns, the last one wrapped below itself.

use super::layout::{cells, pad, shorten, wrap};

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its head; empty: it has none.
    pub head: &'static str,
    /// Alignment of its cells.
    pub align: Align,
    /// Most cells of the terminal that it takes; longer text is truncated in the middle.
    pub most: usize,
}

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// A column of text as wide as its longest cell.
pub const fn text_column(head: &'static str) -> Column {
    Column {
        head,
        align: Align::Left,
        most: usize::MAX,
    }
}

/// A column of numbers.
pub const fn number_column(head: &'static str) -> Column {
    Column {
        head,
        align: Align::Right,
        most: usize::MAX,
    }
}

/// Space between columns, cells.
const GAP: usize = 2;
/// Fewest cells of a last column that is wrapped. A narrower one would be a column of words.
const MIN_LAST: usize = 16;

/// The lines of a table, indented by two cells. Heads are left out if all are empty. Without a width, as in a
/// file, no cell is truncated: a longer one moves the rest of its line.
pub fn table(columns: &[Column], rows: &[Vec<String>], width: Option<usize>) -> Vec<String> {
    let heads: Vec<String> = columns.iter().map(|c| c.head.to_owned()).collect();
    let headed = heads.iter().any(|head| !head.is_empty());
    let all: Vec<&Vec<String>> = headed.then_some(&heads).into_iter().chain(rows).collect();
    let cut = |i: usize, cell: &str| match width {
        Some(_) => shorten(cell, columns[i].most),
        None => cell.to_owned(),
    };
    let widths: Vec<usize> = (0..columns.len())
        .map(|i| {
            let of_column = all.iter().filter_map(|row| row.get(i));
            of_column
                .map(|cell| cells(&cut(i, cell)).min(columns[i].most))
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut out = Vec::new();
    for row in all {
        let mut line = "  ".to_string();
        let last = columns.len().saturating_sub(1);
        for (i, column) in columns.iter().enumerate().take(last) {
            let cell = cut(i, row.get(i).map_or("", String::as_str));
            let signed = widths[i] as isize;
            line.push_str(&match column.align {
                Align::Left => pad(&cell, signed),
                Align::Right => pad(&cell, -signed),
            });
            line.push_str(&" ".repeat(GAP));
        }
        let indent = match width {
            Some(width) if width < cells(&line) + MIN_LAST => GAP,
            _ => cells(&line),
        };
        line.push_str(row.get(last).map_or("", String::as_str));
        out.extend(
            wrap(&line, width, indent)
                .into_iter()
                .map(|l| l.trim_end().to_owned()),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{number_column, table, text_column};

    #[test]
    fn without_a_width_a_long_cell_is_whole_and_moves_its_own_line_only() {
        let columns = [
            super::Column {
                most: 6,
                ..text_column("at")
            },
            text_column("because of"),
        ];
        let row = |at: &str| [at, "f"].map(str::to_owned).to_vec();
        let lines = table(&columns, &[row("short"), row("a_long_name")], None);
        let expected = ["  at      because of", "  short   f", "  a_long_name  f"];
        assert_eq!(lines, expected);
    }

    #[test]
    fn columns_are_aligned_and_the_last_one_is_wrapped_below_itself() {
        let columns = [
            number_column("share"),
            text_column("state"),
            text_column("where"),
        ];
        let row = |share: &str, state: &str, place: &str| {
            [share, state, place].map(str::to_owned).to_vec()
        };
        let rows = [
            row("29 %", "blocked (pipe)", "middle_call of a very long name"),
            row("0.4 %", "on_cpu", "f"),
        ];
        let lines = table(&columns, &rows, Some(46));
        let expected = [
            "  share  state           where",
            "   29 %  blocked (pipe)  middle_call of a very",
            "                         long name",
            "  0.4 %  on_cpu          f",
        ];
        assert_eq!(lines, expected);
        let wide = table(&columns, &rows, None);
        assert_eq!(wide.len(), 3, "{wide:?}");
    }
}
