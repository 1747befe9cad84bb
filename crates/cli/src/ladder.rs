//! `wallscope ladder`: from a slow process to a named cause.

use std::fmt::Write as _;
use std::time::Duration;

use clap::ArgGroup;
use serde_json::json;
use wallscope_capture::target::Target;
use wallscope_explain::ladder::{Bottleneck, Cause, Ladder, Reading, Resource, climb};
use wallscope_model::{Recording, State};
use wallscope_report::page::article::{self, Article, Section};
use wallscope_report::text::wrap;

use crate::failure::Failure;
use crate::live::Source;
use crate::output;
use crate::rungs::{self, Climbed};

/// Find the cause: is the CPU the bottleneck, where did the time go, what to do next
#[derive(clap::Args)]
#[command(
    group = ArgGroup::new("form"),
    after_help = "\
Examples:
  wallscope ladder -p 1234                   half a minute of a running process
  wallscope ladder -d 10 -- ./slow --input x a command, from its start
  wallscope ladder rec.pb.gz --explain       a recording, and which rules were tried on what
  wallscope ladder -p 1234 --resolve 1%      as long as shares of 1 % need to stand out
  wallscope ladder rec.pb.gz --html > why.html

The verdict comes from a table of named rules over exact totals and sampled stacks; --explain
prints all of them."
)]
pub struct Args {
    #[command(flatten)]
    source: Source,
    /// Everything as JSON (schema wallscope.ladder/1)
    #[arg(long, group = "form")]
    json: bool,
    /// As Markdown, for a ticket
    #[arg(long, group = "form")]
    md: bool,
    /// As a page of HTML that needs nothing but itself
    #[arg(long, group = "form")]
    html: bool,
    /// Print every rule that was tried, with the figures it looked at
    #[arg(long)]
    explain: bool,
    /// Climb on: count the named functions and time the verdict's in the live process (-p, --cgroup,
    /// -a) with probes, whose cost is printed first
    #[arg(long)]
    go: bool,
    /// The most of one CPU that those probes may cost, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, requires = "go")]
    max_overhead: f64,
    /// Measure a live target until shares as small as this stand out from noise (1%), instead of for
    /// a set time; at most ten minutes
    #[arg(long, value_name = "SHARE", value_parser = parse_share, conflicts_with = "duration")]
    resolve: Option<f64>,
}

/// Longest that a target is measured for the sake of resolution.
const LONGEST: Duration = Duration::from_secs(600);

/// `1%`, `0.5 %`, `0.01`.
fn parse_share(text: &str) -> Result<f64, String> {
    let (number, unit) = match text.strip_suffix('%') {
        Some(number) => (number, 0.01),
        None => (text, 1.0),
    };
    let share: f64 =
        (number.trim().parse()).map_err(|_| "a share is needed, as in 1% or 0.01".to_owned())?;
    let share = share * unit;
    if share > 0.000_09 && share < 1.0 {
        Ok(share)
    } else {
        Err("it must be between 0.01% and 100%".into())
    }
}

/// Runs the verb.
pub fn run(args: Args) -> Result<(), Failure> {
    let target = args.source.target();
    if args.go
        && !matches!(
            target,
            Some(Target::Pids(_) | Target::Cgroup(_) | Target::All)
        )
    {
        return Err(Failure::usage(
            "--go needs a process that is still there: -p PID, --cgroup PATH or -a; for a file or a \
             command, run the printed commands beside the next run",
        ));
    }
    let usual = match args.resolve {
        // A CPU sample, or a period of waiting, comes for each thread at a steady rate: so long does
        // one busy thread need.
        Some(share) => {
            let samples = wallscope_model::stats::samples_for(share);
            Duration::from_secs_f64(samples / SAMPLES_A_SECOND).clamp(SHORTEST, LONGEST)
        }
        None => Duration::from_secs(30),
    };
    let (recording, path) = args.source.recording("ladder", usual)?;
    let ladder = climb(&recording);
    if let Some(share) = args.resolve.filter(|share| ladder.resolves > *share) {
        eprintln!(
            "wallscope: shares below {} are noise in this recording, and {} was asked for: the \
             target did too little; measure for longer with -d",
            resolution(ladder.resolves),
            resolution(share)
        );
    }
    let page = Page {
        recording: &recording,
        ladder: &ladder,
        file: path.display().to_string(),
        explain: args.explain,
        climbed: target
            .filter(|_| args.go)
            .map(|t| rungs::climb(&recording, &ladder, &t, args.max_overhead)),
    };
    if args.html {
        return output::to_stdout(|w| article::write(&page.article(), w));
    }
    let out = if args.json {
        page.json()
    } else if args.md {
        page.markdown()
    } else {
        page.text()
    };
    output::to_stdout(|w| w.write_all(out.as_bytes()))
}

/// What one busy thread is sampled with, a second, by the defaults of `record`.
const SAMPLES_A_SECOND: f64 = 99.0;
/// Shorter recordings have too few blocks of time to tell noise by.
const SHORTEST: Duration = Duration::from_secs(5);

/// Causes that are printed; JSON has all of them.
const MOST_CAUSES: usize = 8;

struct Page<'a> {
    recording: &'a Recording,
    ladder: &'a Ladder,
    file: String,
    explain: bool,
    /// Rungs 3 and 4, where they were climbed.
    climbed: Option<Climbed>,
}

fn percent(share: f64) -> String {
    if share > 0.0 && share < 0.0095 {
        format!("{:.1} %", share * 100.0)
    } else {
        format!("{:.0} %", share * 100.0)
    }
}

/// A small share with one significant digit.
fn resolution(share: f64) -> String {
    let percent = share * 100.0;
    let digits = (-percent.log10().floor()).clamp(0.0, 6.0) as usize;
    format!("{percent:.digits$} %")
}

fn seconds(ns: u64) -> String {
    format!("{:.2} s", ns as f64 / 1e9)
}

fn reading(b: &Bottleneck) -> &'static str {
    match b.reading() {
        Reading::Idle => "no thread did anything",
        Reading::CpuFirst => "CPU-first: look at what it computes",
        Reading::Both => "both: what it computes and what it waits for",
        Reading::WallFirst => "wall-first: look at what it waits for",
    }
}

fn what(c: &Cause) -> String {
    match c.reason {
        Some(reason) => format!("{} ({reason})", c.state.name()),
        None => c.state.name().to_string(),
    }
}

fn place(c: &Cause) -> String {
    let mut out = c.function.to_string();
    if !c.module.is_empty() {
        let _ = write!(out, "  {}", c.module);
    }
    if c.through != c.function && !c.through.is_empty() {
        let _ = write!(out, "  through {}", c.through);
    }
    if let Some(resource) = &c.resource {
        let _ = write!(out, "  for {resource}");
    }
    out
}

fn saturation(r: &Resource) -> String {
    [r.saturation.as_str(), r.errors.as_str()]
        .into_iter()
        .filter(|s| !s.is_empty())
        .collect::<Vec<_>>()
        .join("; ")
}

impl Page<'_> {
    /// The verdict's sentences after the first.
    fn qualities(&self) -> Vec<(&'static str, String)> {
        let v = &self.ladder.verdict;
        let mut out: Vec<(&str, String)> = v.more.iter().map(|says| ("", says.clone())).collect();
        if v.bottleneck {
            out.push((
                "explains",
                format!("{} of active wall time", percent(v.share)),
            ));
            out.push(("gone, it would save", v.bound.clone()));
        }
        if !v.also.is_empty() {
            out.push(("also true", v.also.join(", ") + " (--explain says on what)"));
        }
        if !v.confidence.is_empty() {
            out.push(("how sure", v.confidence.clone()));
        }
        out.push(("not seen", self.unseen()));
        out.push(("next", self.next()));
        out.retain(|(_, says)| !says.is_empty());
        out
    }

    /// What this instrument could not see.
    fn unseen(&self) -> String {
        let domain = &self.recording.domain;
        let mut out: Vec<String> = domain.limits.iter().map(|l| l.what.clone()).collect();
        let lost: u64 = self.recording.losses.iter().map(|l| l.count).sum();
        if lost > 0 {
            out.push(format!("{lost} losses by name in the report"));
        }
        if self.recording.host.is_empty() {
            out.push("the host: the recording has no facts of it".into());
        }
        out.join("; ")
    }

    fn next(&self) -> String {
        let (v, file) = (&self.ladder.verdict, &self.file);
        if let Some(pid) = v.look_at {
            return format!("wallscope ladder -p {pid}");
        }
        match (v.state, v.reason, &v.function) {
            (Some(State::Blocked), Some("lock"), _) => format!("wallscope locks {file}"),
            (Some(State::Blocked), _, Some(function)) => {
                format!("wallscope why {file} --function '{function}'")
            }
            (Some(State::OnCpu), ..) => format!("wallscope view {file} (view on-cpu)"),
            (Some(State::Runnable), ..) => format!("wallscope view {file} (view runq)"),
            _ => format!("wallscope report {file}"),
        }
    }

    fn first_rung(&self) -> Vec<String> {
        let b = &self.ladder.bottleneck;
        let l = &b.ledger;
        let share = |ns| percent(b.share(ns));
        let mut out = vec![format!(
            "{} of active wall time on a CPU; {}",
            percent(b.on_cpu()),
            reading(b)
        )];
        out.push(format!(
            "{} active threads, {} of wall time in {}: on-CPU {}, waiting for a CPU {}, throttled \
             {}, blocked {}, unseen {}",
            b.active_threads,
            seconds(b.active_ns()),
            seconds(b.window_ns),
            share(l.state_ns(State::OnCpu)),
            share(l.runnable.woken + l.runnable.preempted),
            share(l.runnable.throttled),
            share(l.blocked_ns().saturating_sub(l.idle_ns + b.starved_ns)),
            share(l.unknown_ns()),
        ));
        let apart = [
            (b.parked_ns, format!("{} parked threads", b.parked_threads)),
            (
                b.ticking_ns,
                format!("{} that only tick", b.ticking_threads),
            ),
            (l.idle_ns, "idle time of the others".to_string()),
            (b.starved_ns, "their waits for want of work".to_string()),
        ];
        let apart: Vec<String> = (apart.iter().filter(|(ns, _)| *ns > 0))
            .map(|(ns, what)| format!("{what} ({})", seconds(*ns)))
            .collect();
        if !apart.is_empty() {
            out.push(format!("set apart: {}", apart.join(", ")));
        }
        let r = &self.ladder.requests;
        if let Some(mean) = r.mean_ns() {
            out.push(format!(
                "{} requests answered, {:.2} ms each on average",
                r.asked,
                mean as f64 / 1e6
            ));
        }
        if let Some(u) = &r.upstream {
            out.push(format!(
                "{} requests to {}, {:.2} ms each on average",
                u.requests,
                u.name,
                u.mean_ns() as f64 / 1e6
            ));
        }
        out.push(format!(
            "left the CPU {} times by its own will, {} times put off it",
            l.voluntary_switches, l.involuntary_switches
        ));
        out
    }

    fn text(&self) -> String {
        let width = output::width();
        let mut out = String::new();
        let mut say = |indent: usize, text: &str| {
            for line in wrap(&format!("{}{text}", " ".repeat(indent)), width, indent) {
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
        for c in self.ladder.causes.iter().take(MOST_CAUSES) {
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
        let rest = self.ladder.causes.len().saturating_sub(MOST_CAUSES);
        if rest > 0 {
            say(2, &format!("{rest} more (--json has all)"));
        }
        let probes = rungs::commands(self.recording, self.ladder);
        if let Some(climbed) = &self.climbed {
            out.push_str(&climbed.text());
        } else if !probes.is_empty() {
            say(0, "");
            say(
                0,
                "Rungs 3 and 4: how often, and how distributed? They need probes in the live \
                 process: --go places them, never above --max-overhead; by hand (each prints what a \
                 call will cost first)",
            );
            for command in probes {
                // For copying: never wrapped.
                let _ = writeln!(out, "  {command}");
            }
        }
        if self.explain {
            out.push_str("\nRules, in the order they were tried\n");
            for f in &self.ladder.fired {
                let mark = match (f.spoke, f.applied) {
                    (true, _) => "→",
                    (_, true) => "+",
                    _ => " ",
                };
                for line in wrap(
                    &format!("{mark} {}: {}. Speaks when {}", f.rule, f.looked_at, f.when),
                    width,
                    4,
                ) {
                    let _ = writeln!(out, "{line}");
                }
            }
        }
        out
    }

    fn article(&self) -> Article {
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
        let causes = self.ladder.causes.iter().take(MOST_CAUSES * 4).map(|c| {
            let interval = format!("{}–{}", percent(c.interval.low), percent(c.interval.high));
            vec![percent(c.share), interval, what(c), place(c)]
        });
        let rules = self.ladder.fired.iter().map(|f| {
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
        let mut sections = vec![
            Section {
                heading: "Rung 1: is the CPU the bottleneck?".into(),
                lines: self.first_rung(),
                columns: vec![
                    ("resource", false),
                    ("in use", true),
                    ("reading", false),
                    ("", false),
                ],
                rows: host.collect(),
                ..Section::default()
            },
            Section {
                heading: format!(
                    "Rung 2: where? Shares of active wall time; below {} is noise here",
                    resolution(self.ladder.resolves)
                ),
                columns: vec![
                    ("share", true),
                    ("95 %", true),
                    ("state", false),
                    ("where", false),
                ],
                rows: causes.collect(),
                ..Section::default()
            },
        ];
        let climbed = self
            .climbed
            .as_ref()
            .map_or_else(String::new, Climbed::text);
        let climbed: Vec<String> = (climbed.lines().map(str::trim))
            .filter(|line| !line.is_empty())
            .map(str::to_owned)
            .collect();
        let probes = match climbed.is_empty() {
            true => rungs::commands(self.recording, self.ladder),
            false => Vec::new(),
        };
        if !climbed.is_empty() || !probes.is_empty() {
            sections.push(Section {
                heading: "Rungs 3 and 4: how often, and how distributed?".into(),
                lines: climbed,
                commands: probes,
                ..Section::default()
            });
        }
        sections.push(Section {
            heading: "The rules, in the order they were tried".into(),
            columns: vec![
                ("rule", false),
                ("applied", false),
                ("looked at", false),
                ("speaks when", false),
            ],
            rows: rules.collect(),
            ..Section::default()
        });
        let beside = self.qualities().into_iter();
        Article {
            verb: "ladder",
            title: self.recording.domain.target.clone(),
            finding: format!("{}.", self.ladder.verdict.cause),
            beside: beside
                .map(|(name, says)| (name.to_string(), says))
                .collect(),
            sections,
        }
    }

    fn markdown(&self) -> String {
        let mut out = format!("**{}.**\n\n", self.ladder.verdict.cause);
        for (name, says) in self.qualities() {
            let _ = match name {
                "" => writeln!(out, "- {says}."),
                name => writeln!(out, "- {name}: {says}"),
            };
        }
        out.push('\n');
        for line in self.first_rung() {
            let _ = writeln!(out, "- {line}");
        }
        out.push_str("\n| resource | in use | reading | |\n|---|---|---|---|\n");
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
        out.push_str("\n| share | 95 % | state | where |\n|--:|---|---|---|\n");
        for c in self.ladder.causes.iter().take(MOST_CAUSES) {
            let _ = writeln!(
                out,
                "| {} | {}–{} | {} | `{}` |",
                percent(c.share),
                percent(c.interval.low),
                percent(c.interval.high),
                what(c),
                place(c).replace('|', "\\|").replace('`', "'")
            );
        }
        if self.explain {
            out.push_str("\n| rule | applied | looked at | speaks when |\n|---|---|---|---|\n");
            for f in &self.ladder.fired {
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

    fn json(&self) -> String {
        let (b, v) = (&self.ladder.bottleneck, &self.ladder.verdict);
        let l = &b.ledger;
        let value = json!({
            "schema": "wallscope.ladder/1",
            "verdict": {
                "rule": v.rule,
                "bottleneck": v.bottleneck,
                "outside": v.outside,
                "state": v.state.map(State::name),
                "reason": v.reason,
                "function": v.function,
                "resource": v.resource,
                "holder": v.holder,
                "cause": v.cause,
                "more": v.more,
                "also": v.also,
                "share": v.share,
                "confidence": v.confidence,
                "bound": v.bound,
                "not_seen": self.unseen(),
                "next": self.next(),
            },
            "bottleneck": {
                "reading": b.reading().name(),
                "on_cpu_fraction": b.on_cpu(),
                "window_ns": b.window_ns,
                "active_ns": b.active_ns(),
                "on_cpu_ns": l.state_ns(State::OnCpu),
                "runnable_ns": l.state_ns(State::Runnable),
                "throttled_ns": l.runnable.throttled,
                "blocked_ns": l.blocked_ns(),
                "idle_ns": l.idle_ns,
                "unknown_ns": l.unknown_ns(),
                "active_threads": b.active_threads,
                "parked_threads": b.parked_threads,
                "parked_ns": b.parked_ns,
                "ticking_threads": b.ticking_threads,
                "ticking_ns": b.ticking_ns,
                "starved_ns": b.starved_ns,
                "voluntary_switches": l.voluntary_switches,
                "involuntary_switches": l.involuntary_switches,
            },
            "requests": {
                "asked": self.ladder.requests.asked,
                "mean_ns": self.ladder.requests.mean_ns(),
                "upstream": self.ladder.requests.upstream.as_ref().map(|u| json!({
                    "name": u.name,
                    "pid": u.pid,
                    "requests": u.requests,
                    "mean_ns": u.mean_ns(),
                })),
            },
            "host": self.ladder.host.iter().map(|r| json!({
                "name": r.name,
                "utilisation": r.utilisation,
                "saturation": r.saturation,
                "errors": r.errors,
                "level": r.level.name(),
            })).collect::<Vec<_>>(),
            "resolves": self.ladder.resolves,
            "causes": self.ladder.causes.iter().map(|c| json!({
                "state": c.state.name(),
                "reason": c.reason,
                "function": &*c.function,
                "module": &*c.module,
                "through": &*c.through,
                "resource": c.resource.as_deref(),
                "ns": c.ns,
                "share": c.share,
                "low": c.interval.low,
                "high": c.interval.high,
                "threads": c.threads,
                "thread": &*c.thread,
            })).collect::<Vec<_>>(),
            "probes": rungs::commands(self.recording, self.ladder),
            "rungs": self.climbed.as_ref().map(Climbed::json),
            "rules": self.ladder.fired.iter().map(|f| json!({
                "rule": f.rule,
                "when": f.when,
                "looked_at": f.looked_at,
                "applied": f.applied,
                "spoke": f.spoke,
            })).collect::<Vec<_>>(),
        });
        format!("{value:#}\n")
    }
}
