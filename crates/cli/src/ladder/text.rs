//! The ladder for a terminal.

use std::fmt::Write as _;

use wallscope_model::printable::printable;
use wallscope_render::text::wrap;

use super::{MOST_CAUSES, Page, apart, percent, place, resolution, saturation, what};
use crate::output;

impl Page<'_> {
    /// One page of text, as wide as the terminal.
    pub(super) fn text(&self) -> String {
        let width = output::width();
        let mut out = String::new();
        let mut say = |indent: usize, text: &str| {
            let text = format!("{}{}", " ".repeat(indent), printable(text));
            for line in wrap(&text, width, indent) {
                let _ = writeln!(out, "{line}");
            }
        };
        say(0, &format!("{}.", self.ladder.verdict.cause));
        for (name, says) in self.qualities() {
            match name {
                "" => say(2, &format!("{says}.")),
                name => say(2, &format!("{name}: {says}")),
            }
        }
        say(0, "");
        say(0, "Rung 1: is the CPU the bottleneck?");
        for line in self.first_rung() {
            say(2, &line);
        }
        for r in &self.ladder.host {
            say(
                2,
                &format!(
                    "{:14} {:>6}  {:9}  {}",
                    r.name,
                    r.utilisation.map_or_else(|| "–".into(), percent),
                    r.level.name(),
                    saturation(r)
                ),
            );
        }
        say(0, "");
        say(
            0,
            &format!(
                "Rung 2: where? Shares of active wall time; below {} is noise here",
                resolution(self.ladder.resolves)
            ),
        );
        let causes = match self.shows_causes() {
            true => self.ladder.causes.as_slice(),
            false => &[],
        };
        for c in causes.iter().take(MOST_CAUSES) {
            say(
                2,
                &format!(
                    "{:>6}  {:>6}–{:<6}  {:22} {}",
                    percent(c.share),
                    percent(c.interval.low),
                    percent(c.interval.high),
                    what(c),
                    place(c)
                ),
            );
        }
        let rest = causes.len().saturating_sub(MOST_CAUSES);
        if rest > 0 {
            say(2, &format!("{rest} more (--json has all)"));
        }
        let (heading, rows) = self.apart();
        if !heading.is_empty() {
            say(0, "");
            say(0, &heading);
        }
        for row in rows.iter().take(MOST_CAUSES) {
            let [time, why, what, place] = apart::cells(row);
            say(2, &format!("{time:>10}  {why:10}  {what:22} {place}"));
        }
        let rest = rows.len().saturating_sub(MOST_CAUSES);
        if rest > 0 {
            say(2, &format!("{rest} more (--json has all)"));
        }
        if let Some(climbed) = &self.climbed {
            out.push_str(&climbed.text());
        }
        let probes = self.probes();
        let how = match (&self.climbed, &self.ended) {
            (Some(_), None) => "",
            (_, Some(ended)) if ended.is_gone() => {
                "Rungs 3 and 4 beside the target's next run (each command prints what a call will cost \
                 first)"
            }
            (None, None) => {
                "Rungs 3 and 4: how often, and how distributed? They need probes in the live \
                 process: --go places them, never above --max-overhead; by hand (each prints what a \
                 call will cost first)"
            }
            (_, Some(_)) => {
                "Rungs 3 and 4 by hand (each command prints what a call will cost first)"
            }
        };
        if !how.is_empty() && !probes.is_empty() {
            let _ = writeln!(out);
            for line in wrap(how, width, 0) {
                let _ = writeln!(out, "{line}");
            }
            for command in probes {
                // For copying: never wrapped.
                let _ = writeln!(out, "  {}", printable(&command));
            }
        }
        if self.explain {
            out.push_str("\nRules, in the order they were tried\n");
            for f in &self.ladder.tried {
                let mark = match (f.spoke, f.applied) {
                    (true, _) => "→",
                    (_, true) => "+",
                    _ => " ",
                };
                let rule = format!("{mark} {}: {}. Speaks when {}", f.rule, f.looked_at, f.when);
                for line in wrap(&printable(&rule), width, 4) {
                    let _ = writeln!(out, "{line}");
                }
            }
        }
        out
    }
}
