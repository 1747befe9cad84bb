//! The table of functions that instrumentation inflates, for people; its rows are
//! [`wallscope_analysis::inflation`]'s.

use wallscope_analysis::inflation::{InflationRow, rows};
use wallscope_model::units::{count, share, value};
use wallscope_model::{Recording, View};

use crate::text::layout::{clean, pad};

/// Functions below this share on both sides are left out of the table, and counted.
const MIN_SHARE: f64 = 0.001;
/// The most rows of the table.
const MAX_ROWS: usize = 30;

fn times(v: f64) -> String {
    match v {
        v if v.is_infinite() => "∞".to_string(),
        v if v < 9.95 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

/// The table for people; `view` is the view of the sampled profile.
pub fn text(instrumented: &Recording, sampled: &Recording, view: View) -> String {
    let rows = rows(instrumented, sampled, view);
    if rows.is_empty() {
        return "No function is in both profiles: are they of the same program, and is it named in \
                both?\n"
            .to_string();
    }
    let worst = (rows.iter().filter(|r| r.inflation().0 > 1.0)).max_by(|a, b| {
        a.instrumented
            .total_cmp(&b.instrumented)
            .then_with(|| b.name.cmp(&a.name))
    });
    let mut out = match worst {
        Some(r) => {
            let (low, high) = r.inflation();
            format!(
                "Instrumentation inflates {}: {} of the time instrumented, {} sampled ({} to {} \
                 times).\n",
                clean(&r.name),
                share(r.instrumented),
                share(r.sampled),
                times(low),
                times(high)
            )
        }
        None => "No function's share is inflated beyond the error of sampling.\n".to_string(),
    };
    out.push_str(&format!(
        "\n{:>12} {:>9} {:>8} {:>16} {:>12}  function\n",
        "calls", "own", "share", "sampled", "inflated"
    ));
    let (shown, rest): (Vec<&InflationRow>, Vec<&InflationRow>) =
        (rows.iter()).partition(|r| r.instrumented >= MIN_SHARE || r.sampled >= MIN_SHARE);
    for r in shown.iter().take(MAX_ROWS) {
        let (low, high) = r.inflation();
        let inflated = match r.differs() {
            true => format!("{}–{} ×", times(low), times(high)),
            false => "noise".to_string(),
        };
        let percent = |v: f64| format!("{:.1}", v * 100.0);
        let sampled = format!("{}–{} %", percent(r.interval.low), percent(r.interval.high));
        out.push_str(&format!(
            "{:>12} {:>9} {:>8} {} {}  {}\n",
            count(r.calls),
            value(&instrumented.domain.unit, r.own),
            share(r.instrumented),
            pad(&sampled, -16),
            pad(&inflated, -12),
            clean(&r.name)
        ));
    }
    let more = rest.len() + shown.len().saturating_sub(MAX_ROWS);
    if more > 0 {
        out.push_str(&format!("and {} more\n", count(more as u64)));
    }
    out.push_str(&format!(
        "\nShares are of the functions that both profiles know, with what only one of them sees below \
         them; sampled: {view}, 95 %.\nThe two profiles are of two runs: what differed between those \
         is in it.\n"
    ));
    out
}
