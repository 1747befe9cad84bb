//! Figures as text and as JSON.

use std::fmt::Write as _;
use std::io::Write;
use std::time::Duration;
use wallscope_model::printable::escape_json;

use serde_json::{Value, json};
use wallscope_capture::counter::Source;
use wallscope_capture::session::Options;
use wallscope_model::BlockReason;
use wallscope_model::units;
use wallscope_render::text::wrap;

use super::figures::{Block, Figure, Figures, Run, Unit, spread};
use crate::failure::Failure;

/// Form of the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// For people.
    Text,
    /// JSON.
    Json,
}

/// Output of results, with its form.
pub struct Show {
    form: Form,
    out: Box<dyn Write>,
    width: Option<usize>,
    /// Lines of intervals so far.
    lines: usize,
}

/// Lines of intervals after which the column heads are printed again.
const HEADS_EVERY: usize = 20;

/// The question that only hardware counters answer.
const UNANSWERED: &str = "whether computing is bound by memory or by instructions (instructions per \
                          cycle, cache, branch and TLB misses, top-down)";

impl Show {
    /// Writes to `out`; `width`: cells of a line if `out` is a terminal.
    pub fn new(form: Form, out: Box<dyn Write>, width: Option<usize>) -> Show {
        Show {
            form,
            out,
            width,
            lines: 0,
        }
    }

    /// Prints the figures of an interval that ended `elapsed` after the start.
    pub fn interval(&mut self, elapsed: Duration, f: &Figures) -> Result<(), Failure> {
        let text = if self.form == Form::Json {
            let mut values = serde_json::Map::new();
            for figure in &f.all {
                values.insert(figure.name.clone(), number(figure.value, figure.unit));
            }
            let value = json!({ "until_ns": elapsed.as_nanos() as u64, "values": values });
            escape_json(&format!("{value}\n")).into_owned()
        } else {
            let heads = self.lines.is_multiple_of(HEADS_EVERY);
            self.lines += 1;
            line(elapsed, f, heads)
        };
        write(&mut self.out, &text)
    }

    /// Prints the results of all runs.
    pub fn whole(&mut self, options: &Options, runs: &[Run]) -> Result<(), Failure> {
        let text = if self.form == Form::Json {
            as_json(options, runs)
        } else {
            self.text(options, runs)
        };
        write(&mut self.out, &text)
    }

    fn text(&self, options: &Options, runs: &[Run]) -> String {
        let Some(first) = runs.first() else {
            return String::new();
        };
        let mut out = String::new();
        let say = |out: &mut String, text: &str, indent: usize| {
            for l in wrap(text, self.width, indent) {
                let _ = writeln!(out, "{}", l.trim_end());
            }
        };
        let several = match runs.len() {
            1 => String::new(),
            n => format!(", {n} runs"),
        };
        let d = &first.domain;
        let intro = format!(
            "{}{several}; measured by {} as {} ({})",
            options.target.describe(),
            d.backend,
            d.privilege,
            d.backend_reason
        );
        say(&mut out, &intro, 2);
        for block in [
            Block::Run,
            Block::Ledger,
            Block::Kernel,
            Block::Hardware,
            Block::Derived,
        ] {
            let figures = first.figures.all.iter().filter(|f| f.block == block);
            let mut any = false;
            for f in figures {
                if !any {
                    out.push('\n');
                }
                any = true;
                let _ = writeln!(out, "{}", row(f, runs));
            }
        }
        let (hardware, others): (Vec<_>, Vec<_>) = first
            .figures
            .refused
            .iter()
            .partition(|(_, source, _)| *source == Source::Hardware);
        out.push('\n');
        if runs.len() > 1 {
            say(
                &mut out,
                "Figures are means over the runs, with the standard deviation of a run in percent.",
                2,
            );
        }
        if let Some((_, _, why)) = hardware.first() {
            let names: Vec<&str> = hardware.iter().map(|(name, ..)| name.as_str()).collect();
            let has_some = first.figures.all.iter().any(|f| f.block == Block::Hardware);
            let mut text = format!("not counted: {}: {why}.", names.join(", "));
            if !has_some {
                let _ = write!(text, " So nobody can say here {UNANSWERED}.");
            }
            say(&mut out, &text, 2);
        }
        for (name, _, why) in others {
            say(&mut out, &format!("not counted: {name}: {why}"), 2);
        }
        if first.figures.all.iter().any(|f| f.user_only) {
            say(
                &mut out,
                "(user) counted in user mode only: the right to more is CAP_PERFMON, or sysctl \
                 kernel.perf_event_paranoid=1.",
                2,
            );
        }
        for limit in d.columns.iter().filter(|c| !c.exact) {
            let text = format!("{} is an estimate: {}", limit.state.name(), limit.how);
            say(&mut out, &text, 2);
        }
        out
    }
}

/// A figure's value for people.
fn shown(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Ns => units::ns(value.round() as u64),
        Unit::Count => units::count(value.round() as u64),
        Unit::Bytes => units::bytes(value.round() as u64),
        Unit::Cpus | Unit::Ratio => format!("{value:.2}"),
        Unit::Share => units::share(value),
    }
}

/// A figure's line: value, name, ratio to another figure, variation.
fn row(f: &Figure, runs: &[Run]) -> String {
    let values: Vec<f64> = runs.iter().map(|r| r.figures.value(&f.name)).collect();
    let (mean, deviation) = spread(&values);
    let of = |name: &str| {
        let all: Vec<f64> = runs.iter().map(|r| r.figures.value(name)).collect();
        spread(&all).0
    };
    let (depth, label) = match f.name.rsplit_once('.') {
        Some((_, part)) if f.block == Block::Ledger => (2, part),
        _ => (0, f.name.as_str()),
    };
    let label = label.replace('_', " ");
    let beside = match (f.block, f.unit) {
        (Block::Ledger, _) if f.name == "wall" => "of all threads together".to_string(),
        (Block::Ledger, _) => {
            let wall = of("wall");
            if wall > 0.0 {
                format!("{} of wall", units::share(mean / wall))
            } else {
                String::new()
            }
        }
        (Block::Kernel | Block::Hardware, Unit::Count) if of("elapsed") > 0.0 => {
            format!("{} a second", rate(mean * 1e9 / of("elapsed")))
        }
        _ => String::new(),
    };
    let mut line = format!(
        "  {:>14}  {:indent$}{label}",
        shown(mean, f.unit),
        "",
        indent = depth
    );
    if f.user_only {
        line += " (user)";
    }
    if !beside.is_empty() {
        let pad = 46usize.saturating_sub(line.chars().count()).max(2);
        let _ = write!(line, "{:pad$}{beside}", "");
    }
    if let Some(deviation) = deviation
        && mean > 0.0
    {
        let pad = 70usize.saturating_sub(line.chars().count()).max(2);
        let _ = write!(line, "{:pad$}± {:.1} %", "", 100.0 * deviation / mean);
    }
    let share = runs
        .iter()
        .filter_map(|r| r.figures.find(&f.name))
        .map(|f| f.share)
        .fold(1.0, f64::min);
    if share < 0.995 {
        let _ = write!(
            line,
            "  (scaled: counted {:.0} % of the time)",
            share * 100.0
        );
    }
    line
}

fn rate(v: f64) -> String {
    match v {
        v if v >= 1e9 => format!("{:.2} G", v / 1e9),
        v if v >= 1e6 => format!("{:.2} M", v / 1e6),
        v if v >= 1e4 => format!("{:.1} k", v / 1e3),
        v if v >= 100.0 => format!("{v:.0}"),
        v => format!("{v:.1}"),
    }
}

/// A stretch as one line.
fn line(elapsed: Duration, f: &Figures, heads: bool) -> String {
    let seconds = f.value("elapsed") / 1e9;
    let wall = f.value("wall");
    let share = |name: &str| {
        if wall > 0.0 {
            format!("{:.1} %", 100.0 * f.value(name) / wall)
        } else {
            "–".into()
        }
    };
    let a_second = |name: &str| match f.find(name) {
        Some(figure) if seconds > 0.0 => rate(figure.value / seconds),
        _ => "–".into(),
    };
    let most = BlockReason::ALL
        .iter()
        .map(|r| (f.value(&format!("blocked.{}", r.name())), r.name()))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .filter(|(ns, _)| *ns > 0.0)
        .map_or("–".to_string(), |(ns, name)| {
            format!("{name} {:.1} %", 100.0 * ns / wall.max(1.0))
        });
    let named = ["voluntary_switches", "involuntary_switches"];
    let events: Vec<&Figure> = f
        .all
        .iter()
        .filter(|x| matches!(x.block, Block::Kernel | Block::Hardware))
        .filter(|x| !named.contains(&x.name.as_str()))
        .collect();
    let mut out = String::new();
    if heads {
        let _ = write!(
            out,
            "{:>9} {:>7} {:>6} {:>7} {:>7} {:>7} {:>8} {:>8}",
            "until", "threads", "CPUs", "on-CPU", "runq", "blocked", "vol/s", "invol/s"
        );
        for e in &events {
            let _ = write!(
                out,
                " {:>w$}",
                format!("{}/s", e.name),
                w = e.name.len().max(8) + 2
            );
        }
        out += "  most blocked on\n";
    }
    let _ = write!(
        out,
        "{:>7.2} s {:>7} {:>6.2} {:>7} {:>7} {:>7} {:>8} {:>8}",
        elapsed.as_secs_f64(),
        f.value("threads"),
        f.value("cpus_used"),
        share("on_cpu"),
        share("runnable"),
        share("blocked"),
        a_second(named[0]),
        a_second(named[1]),
    );
    for e in &events {
        let _ = write!(
            out,
            " {:>w$}",
            a_second(&e.name),
            w = e.name.len().max(8) + 2
        );
    }
    let _ = writeln!(out, "  {most}");
    out
}

/// Times and counts are integers.
fn number(value: f64, unit: Unit) -> Value {
    match unit {
        Unit::Ns | Unit::Count | Unit::Bytes => json!(value.round() as u64),
        Unit::Cpus | Unit::Ratio | Unit::Share => json!(value),
    }
}

fn as_json(options: &Options, runs: &[Run]) -> String {
    let Some(first) = runs.first() else {
        return String::new();
    };
    let d = &first.domain;
    let figures: Vec<Value> = first
        .figures
        .all
        .iter()
        .map(|f| {
            let values: Vec<f64> = runs.iter().map(|r| r.figures.value(&f.name)).collect();
            let (mean, deviation) = spread(&values);
            let counted = runs.iter().filter_map(|r| r.figures.find(&f.name));
            json!({
                "name": f.name,
                "unit": f.unit.name(),
                "mean": number(mean, f.unit),
                "stddev": deviation,
                "values": values.iter().map(|v| number(*v, f.unit)).collect::<Vec<_>>(),
                "counted_share": counted.map(|f| f.share).fold(1.0, f64::min),
                "user_only": f.user_only,
            })
        })
        .collect();
    let refused: Vec<Value> = first
        .figures
        .refused
        .iter()
        .map(|(name, source, why)| {
            json!({ "name": name, "hardware": *source == Source::Hardware, "why": why })
        })
        .collect();
    let has_hardware = first.figures.all.iter().any(|f| f.block == Block::Hardware);
    let asked = first
        .figures
        .refused
        .iter()
        .any(|r| r.1 == Source::Hardware);
    let unanswered: Vec<&str> = (asked && !has_hardware)
        .then_some(UNANSWERED)
        .into_iter()
        .collect();
    let columns: Vec<Value> = d
        .columns
        .iter()
        .map(|c| json!({ "state": c.state.name(), "exact": c.exact, "how": c.how }))
        .collect();
    wallscope_render::json::text(&json!({
        "schema": "wallscope.stat/1",
        "target": options.target.describe(),
        "backend": d.backend,
        "backend_reason": d.backend_reason,
        "privilege": d.privilege,
        "columns": columns,
        "runs": runs.len(),
        "status": runs.iter().map(|r| r.status).collect::<Vec<_>>(),
        "figures": figures,
        "not_counted": refused,
        "unanswered": unanswered,
    }))
}

/// Writes, and takes a reader that went away for the end.
fn write(out: &mut dyn Write, text: &str) -> Result<(), Failure> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Err(Failure::reader_gone()),
        Err(e) => Err(anyhow::Error::new(e)
            .context("cannot write the results")
            .into()),
    }
}
