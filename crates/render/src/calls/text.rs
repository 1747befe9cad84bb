//! Calls for people: quantiles, then the time of short and of long calls by state and reason, then the limits
//! of the result.

use std::fmt::Write as _;

use wallscope_model::calls::{Band, CallBooks, Calls, FunctionCalls, Lengths};

use super::heat::{Shades, heat};
use super::{CallsDisplay, bands, quantiles};
use crate::text::layout::{clean, pad};
use crate::text::{Style, wrap};
use wallscope_model::units::{count, ns, share, share_of};

/// Parts of a ledger below this share are not named.
const MIN_SHARE: f64 = 0.005;
/// Slow calls that are listed.
const MAX_SLOW: usize = 5;
/// Notes and limits that are printed for a pattern that fits very many.
const MAX_NOTES: usize = 12;

/// The whole result.
pub fn text(calls: &Calls, display: &CallsDisplay, style: &Style) -> String {
    let mut page = Page {
        out: String::new(),
        style,
        calls,
        display,
    };
    if calls.timed {
        for f in &calls.functions {
            page.function(f);
        }
        page.slowest();
    } else {
        page.counts();
    }
    page.trust();
    page.out
}

/// One line a function, for a display that is redrawn during the measurement.
pub fn live(calls: &Calls, display: &CallsDisplay, style: &Style) -> String {
    let mut out = format!(
        "{:.0} s of {}\n",
        calls.window_ns() as f64 / 1e9,
        clean(&calls.domain.target)
    );
    for f in &calls.functions {
        let last = f.slices.last();
        let rate = last.map_or(0.0, |s| {
            s.entered as f64 * 1e9 / s.end_ns.saturating_sub(s.start_ns).max(1) as f64
        });
        let _ = writeln!(
            out,
            "{}  {} calls, now {} a second",
            clean(&f.name),
            count(f.tally.entered),
            count(rate.round() as u64)
        );
        if calls.timed && f.tally.ended > 0 {
            let _ = writeln!(out, "  {}", quantile_line(&f.lengths, f.longest));
            for (name, _, band) in bands(f) {
                let _ = writeln!(out, "  {}", band_line(name, &band));
            }
            if display.heat_map {
                for line in heat(&f.slices, Shades::of(style)) {
                    let _ = writeln!(out, "  {line}");
                }
            }
        }
    }
    out
}

struct Page<'a> {
    out: String,
    style: &'a Style,
    calls: &'a Calls,
    display: &'a CallsDisplay,
}

/// `p50 1.02 ms   p90 …   max …`.
fn quantile_line(lengths: &Lengths, longest: u64) -> String {
    let mut parts: Vec<String> = quantiles(lengths, longest)
        .into_iter()
        .map(|(name, _, v)| format!("{name} {}", ns(v)))
        .collect();
    parts.push(format!("max {}", ns(longest)));
    parts.join("   ")
}

/// `89.1 % on-CPU, 10.9 % timer`.
fn shares(books: &CallBooks) -> String {
    let total = books.total().max(1);
    let parts: Vec<String> = books
        .parts()
        .into_iter()
        .filter(|(_, part)| *part as f64 >= MIN_SHARE * total as f64)
        .map(|(name, part)| {
            let name = match name {
                "on_cpu" => "on-CPU",
                "woken" | "preempted" => "waiting for a CPU",
                other => other,
            };
            (name, part)
        })
        .fold(Vec::<(&str, u64)>::new(), |mut sums, (name, part)| {
            match sums.iter_mut().find(|(n, _)| *n == name) {
                Some((_, sum)) => *sum += part,
                None => sums.push((name, part)),
            }
            sums
        })
        .into_iter()
        .map(|(name, part)| format!("{} {name}", share_of(part, total)))
        .collect();
    parts.join(", ")
}

fn band_line(name: &str, band: &Band) -> String {
    format!(
        "{} calls: {}: {}",
        pad(name, 5),
        pad(&ns(band.wall / band.count.max(1)), -8),
        shares(&band.books)
    )
}

impl Page<'_> {
    fn line(&mut self, text: &str, indent: usize) {
        for line in wrap(text, self.style.width, indent) {
            self.out.push_str(&line);
            self.out.push('\n');
        }
    }

    fn title(&self, f: &FunctionCalls) -> String {
        match f.module.as_str() {
            "" => clean(&f.name),
            module => format!("{} ({})", clean(&f.name), clean(module)),
        }
    }

    fn per_second(&self, n: u64) -> String {
        let rate = n as f64 * 1e9 / self.calls.window_ns().max(1) as f64;
        if rate < 10.0 {
            format!("{rate:.2}")
        } else {
            count(rate.round() as u64)
        }
    }

    fn counts(&mut self) {
        let mut functions: Vec<&FunctionCalls> = self.calls.functions.iter().collect();
        functions.sort_by_key(|f| std::cmp::Reverse(f.tally.entered));
        let called = functions.iter().filter(|f| f.tally.entered > 0).count();
        self.line(
            &format!(
                "{}, {:.1} s: calls of {} functions",
                clean(&self.calls.domain.target),
                self.calls.window_ns() as f64 / 1e9,
                functions.len()
            ),
            2,
        );
        let _ = writeln!(self.out, "{:>15}  {:>12}  function", "calls", "per second");
        // If there are many, functions that were not called are only counted.
        let most = if functions.len() > 20 {
            called
        } else {
            functions.len()
        };
        for f in functions.iter().take(most) {
            let _ = writeln!(
                self.out,
                "{:>15}  {:>12}  {}",
                count(f.tally.entered),
                self.per_second(f.tally.entered),
                self.title(f)
            );
        }
        if most < functions.len() {
            self.line(
                &format!(
                    "  {} further functions were not called",
                    functions.len() - most
                ),
                2,
            );
        }
    }

    fn function(&mut self, f: &FunctionCalls) {
        let head = format!(
            "{}: {} calls in {:.1} s, {} a second",
            self.title(f),
            count(f.tally.entered),
            self.calls.window_ns() as f64 / 1e9,
            self.per_second(f.tally.entered)
        );
        self.line(&head, 2);
        if f.tally.ended > 0 {
            self.line(&format!("  {}", quantile_line(&f.lengths, f.longest)), 4);
            if let Some(interval) = self.display.expected_interval {
                let corrected = f.lengths.corrected(interval);
                self.line(
                    &format!(
                        "  had one been due each {} (coordinated omission): {}",
                        ns(interval),
                        quantile_line(&corrected, f.longest)
                    ),
                    4,
                );
            }
            for (name, words, band) in bands(f) {
                let line = format!(
                    "  {}  ({words}: {})",
                    band_line(name, &band),
                    count(band.count)
                );
                self.line(&line, 22);
            }
            if self.display.heat_map {
                for line in heat(&f.slices, Shades::of(self.style)) {
                    let _ = writeln!(self.out, "  {line}");
                }
            }
        }
        let t = &f.tally;
        let ends: Vec<String> = [
            (
                t.by_tail_call,
                "ended by a tail call to elsewhere, and are timed up to it",
            ),
            (
                t.by_exception,
                "left by an exception, and are timed up to where it was caught",
            ),
            (
                t.left,
                "left without a return (exception, longjmp, end of the thread), not timed",
            ),
            (t.deep, "too deep in other calls, not timed"),
            (t.open(), "not over yet"),
            (t.begun, "returns of calls that had begun before"),
        ]
        .iter()
        .filter(|(n, _)| *n > 0)
        .map(|(n, words)| format!("{} {words}", count(*n)))
        .collect();
        if !ends.is_empty() {
            self.line(&format!("  of these: {}", ends.join("; ")), 4);
        }
        if self.calls.timed && t.ended == 0 && t.begun == 0 {
            let why = if t.entered > 0 {
                "  no lengths: none of its calls was over in time (it may never return)"
            } else {
                "  no lengths: it was not called meanwhile, or only in calls that had begun before and are \
                 not over (it may never return)"
            };
            self.line(why, 4);
        }
        self.line(&format!("  probes: {}", f.probes), 4);
        self.out.push('\n');
    }

    fn slowest(&mut self) {
        if self.calls.slowest.is_empty() {
            return;
        }
        self.line("The longest calls", 2);
        for s in self.calls.slowest.iter().take(MAX_SLOW) {
            let at = s.start_ns.saturating_sub(self.calls.start_ns) as f64 / 1e9;
            let name = self.calls.functions.get(s.function).map_or("", |f| &f.name);
            let name = match self.calls.functions.len() {
                1 => String::new(),
                _ => format!("  {}", clean(name)),
            };
            let line = format!(
                "  {} at {at:.3} s in {} ({}){name}: {}",
                pad(&ns(s.length), -8),
                clean(&s.thread),
                s.tid,
                shares(&s.books)
            );
            self.line(&line, 14);
        }
        self.out.push('\n');
    }

    fn trust(&mut self) {
        let c = self.calls;
        if let Some(why) = &c.stopped {
            self.line(&format!("Ended early: {why}"), 2);
        }
        let calls: u64 = c.functions.iter().map(|f| f.tally.entered).sum();
        self.line(
            &format!(
                "Probes cost the target {} of one CPU ({} a call); counts are exact{}.",
                share(c.probe_ns as f64 / c.window_ns().max(1) as f64),
                ns(c.probe_ns / calls.max(1)),
                if c.timed {
                    ", lengths within 0.8 %"
                } else {
                    ""
                }
            ),
            2,
        );
        if c.timed
            && let Some(most) = c
                .functions
                .iter()
                .map(|f| f.subtracted)
                .filter(|n| *n > 0)
                .max()
        {
            self.line(
                &format!(
                    "Taken off each length for the probes' own time: {}; for probed calls within it, \
                     their probes' cost too.",
                    ns(most)
                ),
                2,
            );
        }
        for limit in c.domain.limits.iter().take(MAX_NOTES) {
            let remedy = match limit.remedy.as_str() {
                "" => String::new(),
                remedy => format!(" (helps: {remedy})"),
            };
            self.line(&format!("Not seen: {}{remedy}", limit.what), 2);
        }
        for note in c.domain.notes.iter().take(MAX_NOTES) {
            self.line(&format!("Note: {note}"), 2);
        }
        let more = c.domain.notes.len().saturating_sub(MAX_NOTES);
        if more > 0 {
            self.line(&format!("{more} further notes (--json has all)"), 2);
        }
        for loss in &c.losses {
            self.line(&format!("Lost: {} × {}", count(loss.count), loss.cause), 2);
        }
    }
}
