//! Compares wallscope's figures with a program's own. Every comparison is one row: name, truth, measured
//! figure, limit, passed or not.

pub mod chance;
pub mod ledger;
pub mod share;
pub mod stacks;

use std::fmt;

use serde::{Deserialize, Serialize};

/// Largest difference between a figure and the truth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance<'a> {
    limit: f64,
    unit: &'a str,
}

/// A tolerance of `limit`, in `unit`.
pub fn within(limit: f64, unit: &str) -> Tolerance<'_> {
    Tolerance { limit, unit }
}

/// One comparison.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Row {
    /// The comparison; in parentheses, its subject in this run: a thread, a version, a cause.
    pub what: String,
    /// The figure of the program, or of arithmetic.
    pub truth: String,
    /// Wallscope's figure.
    pub measured: String,
    /// The limit.
    pub limit: String,
    /// Whether the measured figure is within the limit.
    pub pass: bool,
    /// The figures behind the row, if sampling estimates them.
    pub estimate: Option<Estimate>,
}

/// A share that sampling estimates, in percent and percentage points.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Estimate {
    /// The program's own share.
    pub truth: f64,
    /// Wallscope's share.
    pub measured: f64,
    /// Promised largest error, beside sampling.
    pub promise: f64,
    /// Largest error by sampling alone, [`chance::QUANTILE`] standard errors.
    pub chance: f64,
    /// Largest error by time that the host of a virtual machine took: the program's clocks call it waiting, the
    /// ledger on-CPU.
    pub stolen: f64,
    /// Tier that measured it.
    pub tier: String,
}

impl Estimate {
    /// Measured minus truth.
    pub fn error(&self) -> f64 {
        self.measured - self.truth
    }

    /// Largest error with which the row holds.
    pub fn limit(&self) -> f64 {
        self.promise + self.chance + self.stolen
    }
}

impl Row {
    /// The comparison without its subject: equal each time that the experiment is made.
    pub fn question(&self) -> String {
        let mut depth = 0u32;
        let mut asked = String::new();
        for c in self.what.chars() {
            match c {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ if depth == 0 => asked.push(c),
                _ => {}
            }
        }
        asked.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// The rows of one experiment.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Scorecard {
    /// The comparisons, in the order they were made.
    pub rows: Vec<Row>,
}

impl Scorecard {
    /// Adds a row.
    pub fn push(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Adds a row that wants an estimated share within its promise and its sampling error.
    pub fn estimate(&mut self, what: impl Into<String>, estimate: Estimate) {
        let stolen = match estimate.stolen {
            0.0 => String::new(),
            stolen => format!(" + {} stolen", figure(stolen, "%")),
        };
        self.rows.push(Row {
            what: what.into(),
            truth: figure(estimate.truth, "%"),
            measured: figure(estimate.measured, "%"),
            limit: format!(
                "± {} + {}{stolen}",
                estimate.promise,
                figure(estimate.chance, "%")
            ),
            pass: estimate.error().abs() <= estimate.limit(),
            estimate: Some(estimate),
        });
    }

    /// Adds a row that holds a figure to an upper limit. A figure that is no number fails.
    pub fn at_most(&mut self, what: impl Into<String>, measured: f64, limit: f64, unit: &str) {
        let pass = measured <= limit;
        self.push(Row {
            what: what.into(),
            measured: figure(measured, unit),
            limit: format!("≤ {}", figure(limit, unit)),
            pass,
            ..Row::default()
        });
    }

    /// Adds a row that holds a figure to a lower limit. A figure that is no number fails.
    pub fn at_least(&mut self, what: impl Into<String>, measured: f64, limit: f64, unit: &str) {
        let pass = measured >= limit;
        self.push(Row {
            what: what.into(),
            measured: figure(measured, unit),
            limit: format!("≥ {}", figure(limit, unit)),
            pass,
            ..Row::default()
        });
    }

    /// Adds a row that wants a figure near the truth, both in the unit of `tolerance`.
    pub fn near(
        &mut self,
        what: impl Into<String>,
        truth: f64,
        measured: f64,
        tolerance: Tolerance<'_>,
    ) {
        let Tolerance { limit, unit } = tolerance;
        let pass = (measured - truth).abs() <= limit;
        self.push(Row {
            what: what.into(),
            truth: figure(truth, unit),
            measured: figure(measured, unit),
            limit: format!("± {}", figure(limit, unit)),
            pass,
            ..Row::default()
        });
    }

    /// Takes over another card's rows, under a heading.
    pub fn extend(&mut self, heading: &str, other: Scorecard) {
        self.rows.extend(other.rows.into_iter().map(|row| Row {
            what: format!("{heading}: {}", row.what),
            ..row
        }));
    }

    /// Whether there are rows and all of them passed: a card without a row proves nothing.
    pub fn passed(&self) -> bool {
        !self.rows.is_empty() && self.rows.iter().all(|row| row.pass)
    }

    /// How many rows did not pass.
    pub fn failures(&self) -> usize {
        self.failed().rows.len()
    }

    /// The rows that did not pass.
    pub fn failed(&self) -> Scorecard {
        let failed = self.rows.iter().filter(|row| !row.pass);
        Scorecard {
            rows: failed.cloned().collect(),
        }
    }
}

/// A figure with at most four significant digits, and its unit.
fn figure(value: f64, unit: &str) -> String {
    let decimals = match value.abs() {
        v if v >= 1000.0 || v == 0.0 => 0,
        v if v >= 100.0 => 1,
        v if v >= 10.0 => 2,
        v if v >= 0.1 => 3,
        _ => 5,
    };
    let space = if unit.is_empty() || unit == "%" {
        ""
    } else {
        " "
    };
    format!("{value:.decimals$}{space}{unit}")
}

impl fmt::Display for Scorecard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heads = ["what", "truth", "measured", "limit"];
        let cells = |row: &Row| {
            [
                row.what.clone(),
                row.truth.clone(),
                row.measured.clone(),
                row.limit.clone(),
            ]
        };
        let mut widths = heads.map(|head| head.chars().count());
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(cells(row)) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let [a, b, c, d] = widths;
        let [what, truth, measured, limit] = heads;
        writeln!(
            f,
            "      {what:a$}  {truth:>b$}  {measured:>c$}  {limit:>d$}"
        )?;
        for row in &self.rows {
            let mark = if row.pass { "ok  " } else { "FAIL" };
            let [what, truth, measured, limit] = cells(row);
            writeln!(
                f,
                "{mark}  {what:a$}  {truth:>b$}  {measured:>c$}  {limit:>d$}"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod canned;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_kept_on_both_sides_and_nonsense_fails() {
        let mut card = Scorecard::default();
        assert!(!card.passed(), "no row proves nothing");
        card.at_most("a", 1.0, 1.0, "%");
        card.at_least("b", 2.0, 2.0, "%");
        card.near("c", 5.0, 5.5, within(0.5, "pp"));
        assert!(card.passed());
        card.at_most("d", 1.01, 1.0, "%");
        card.at_least("e", 1.99, 2.0, "%");
        card.near("f", 5.0, 4.4, within(0.5, "pp"));
        card.near("g", 5.0, f64::NAN, within(0.5, "pp"));
        card.at_most("h", f64::NAN, 1.0, "");
        assert_eq!(card.failures(), 5);
        assert!(!card.passed());
    }

    #[test]
    fn a_row_asks_the_same_for_every_subject() {
        let mut card = Scorecard::default();
        card.at_most("residue, worst thread (mix-0 17)", 0.0, 1.0, "ppm");
        card.at_most("on-cpu py_count (3.8) of it", 0.0, 1.0, "%");
        let asked: Vec<_> = card.rows.iter().map(Row::question).collect();
        assert_eq!(asked, ["residue, worst thread", "on-cpu py_count of it"]);
    }

    #[test]
    fn the_table_shows_what_failed() {
        let mut card = Scorecard::default();
        card.near("share of f", 12.5, 14.0, within(1.0, "%"));
        let text = card.to_string();
        assert!(
            text.contains("FAIL  share of f  12.50%    14.00%  ± 1.000%"),
            "{text}"
        );
    }
}
