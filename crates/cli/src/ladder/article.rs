//! The ladder as a page of HTML, and as Markdown for a ticket.

use std::fmt::Write as _;

use wallscope_render::page::article::{Article, Section};

use super::{MAX_CAUSES, Page, excluded_time, percent, resolution, saturation, what};
use crate::probe_steps::Climbed;

impl Page<'_> {
    /// Content of the page.
    pub(super) fn article(&self) -> Article {
        let mut sections = vec![self.host_section()];
        if self.shows_causes() {
            sections.push(self.cause_section());
        }
        sections.extend(self.excluded_section());
        sections.extend(self.probe_section());
        sections.push(Section {
            heading: "The rules, in the order they were tried".into(),
            columns: vec![
                ("rule", false),
                ("applied", false),
                ("looked at", false),
                ("speaks when", false),
            ],
            rows: self.rule_rows(),
            ..Section::default()
        });
        let mut beside = self.parts();
        beside.remove(0);
        if self.explain {
            beside.extend(self.details());
        }
        Article {
            verb: "ladder",
            title: self.recording.domain.target.clone(),
            finding: format!("{}.", self.ladder.verdict.cause),
            beside: (beside.into_iter())
                .map(|(name, says)| (name.to_string(), says))
                .collect(),
            sections,
        }
    }

    /// The resources of the host.
    fn host_section(&self) -> Section {
        let percent_of = |share: Option<f64>| share.map_or_else(|| "–".into(), percent);
        let host = self.ladder.host.iter().map(|r| {
            let level = r.level.name().to_string();
            vec![
                r.name.clone(),
                percent_of(r.utilisation),
                level,
                saturation(r),
            ]
        });
        Section {
            heading: "Rung 1: is the CPU the bottleneck?".into(),
            lines: self.first_rung_lines(),
            columns: vec![
                ("on this host", false),
                ("in use", true),
                ("reading", false),
                ("detail", false),
            ],
            rows: host.collect(),
            ..Section::default()
        }
    }

    fn cause_section(&self) -> Section {
        Section {
            heading: format!(
                "Rung 2: where? Shares are of the active time; below {} they are noise",
                resolution(self.ladder.resolves)
            ),
            columns: vec![
                ("share", true),
                ("95 % interval", true),
                ("state", false),
                ("at", false),
                ("because of (share of these waits)", false),
            ],
            rows: self.cause_rows(MAX_CAUSES * 4),
            ..Section::default()
        }
    }

    /// Time that is no part of the shares, if there is any.
    fn excluded_section(&self) -> Option<Section> {
        let (heading, rows) = self.excluded_time();
        (!heading.is_empty()).then(|| Section {
            heading,
            columns: vec![
                ("time", true),
                ("why", false),
                ("state", false),
                ("where", false),
            ],
            rows: (rows.iter().take(MAX_CAUSES * 4))
                .map(|row| excluded_time::cells(row).to_vec())
                .collect(),
            ..Section::default()
        })
    }

    /// Results of rungs 3 and 4, or the commands that give them.
    fn probe_section(&self) -> Option<Section> {
        let climbed = self
            .climbed
            .as_ref()
            .map_or_else(String::new, Climbed::text);
        let climbed: Vec<String> = (climbed.lines().map(str::trim))
            .filter(|line| !line.is_empty())
            .map(str::to_owned)
            .collect();
        let probes = match climbed.is_empty() || self.ended.is_some() {
            true => self.probes(),
            false => Vec::new(),
        };
        (!climbed.is_empty() || !probes.is_empty()).then(|| Section {
            heading: "Rungs 3 and 4: how often, and how distributed?".into(),
            lines: climbed,
            commands: probes,
            ..Section::default()
        })
    }

    /// The first rung in lines, states among them.
    fn first_rung_lines(&self) -> Vec<String> {
        let mut lines = self.first_rung();
        let states = self.state_rows().into_iter();
        lines.extend(states.map(|row| format!("{}: {} ({})", row[0], row[1], row[2])));
        lines
    }

    /// Every rule that was tried: its name, whether it applied, its figures, when it speaks.
    fn rule_rows(&self) -> Vec<Vec<String>> {
        let rows = self.ladder.tried.iter().map(|f| {
            let applied = match (f.spoke, f.applied) {
                (true, _) => "verdict",
                (_, true) => "yes",
                _ => "no",
            };
            vec![
                f.rule.into(),
                applied.into(),
                f.looked_at.clone(),
                f.when.into(),
            ]
        });
        rows.collect()
    }

    /// As Markdown.
    pub(super) fn markdown(&self) -> String {
        let mut out = format!("**{}.**\n\n", self.ladder.verdict.cause);
        let parts = self.parts().into_iter().skip(1);
        let details = self.explain.then(|| self.details()).into_iter().flatten();
        for (name, says) in parts.chain(details) {
            let _ = match name {
                "" => writeln!(out, "- {says}"),
                name => writeln!(out, "- {name}: {says}"),
            };
        }
        out.push('\n');
        for line in self.first_rung_lines() {
            let _ = writeln!(out, "- {line}");
        }
        out.push_str("\n| on this host | in use | reading | detail |\n|---|---|---|---|\n");
        for r in &self.ladder.host {
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} |",
                r.name,
                r.utilisation.map_or_else(|| "–".into(), percent),
                r.level.name(),
                saturation(r)
            );
        }
        if self.shows_causes() {
            out.push_str("\n| share | 95 % interval | state | at | because of (share of these waits) |\n|--:|---|---|---|---|\n");
            for c in self.ladder.causes.iter().take(MAX_CAUSES) {
                let _ = writeln!(
                    out,
                    "| {} | {}–{} | {} | `{}` | {} |",
                    percent(c.share),
                    percent(c.interval.low),
                    percent(c.interval.high),
                    what(c),
                    escaped(&self.waited_at(c)),
                    escaped(&self.because(c))
                );
            }
        }
        let (heading, rows) = self.excluded_time();
        if !heading.is_empty() {
            let _ = writeln!(out, "\n{heading}");
        }
        if !rows.is_empty() {
            out.push_str("\n| time | why | state | where |\n|--:|---|---|---|\n");
        }
        for row in rows.iter().take(MAX_CAUSES) {
            let [time, why, what, place] = excluded_time::cells(row);
            let place = escaped(&place);
            let _ = writeln!(out, "| {time} | {why} | {what} | `{place}` |");
        }
        if self.explain {
            out.push_str("\n| rule | applied | looked at | speaks when |\n|---|---|---|---|\n");
            for f in &self.ladder.tried {
                let applied = match (f.spoke, f.applied) {
                    (true, _) => "**verdict**",
                    (_, true) => "yes",
                    _ => "no",
                };
                let _ = writeln!(
                    out,
                    "| {} | {applied} | {} | {} |",
                    f.rule, f.looked_at, f.when
                );
            }
        }
        out
    }
}

/// A name as code within a row.
fn escaped(name: &str) -> String {
    name.replace('|', "\\|").replace('`', "'")
}
