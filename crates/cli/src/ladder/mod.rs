//! `wallscope ladder`: from a slow process to a named cause.
//!
//! ```text
//! mod.rs      the verb, and the content of every form of the page; excluded_time.rs: time that shares leave out
//! text.rs     for a terminal; article.rs: HTML and Markdown; json.rs: for scripts
//! ```

mod article;
mod excluded_time;
mod json;
mod text;

use std::fmt::Write as _;
use std::time::Duration;

use clap::ArgGroup;
use wallscope_capture::session::parse_overhead;
use wallscope_capture::target::Target;
use wallscope_diagnose::ladder::{Bottleneck, Cause, Ladder, Reading, Resource};
use wallscope_model::{Recording, State};
use wallscope_render::page::article as page;

use crate::failure::Failure;
use crate::output;
use crate::probe_steps::{self, Climbed, Ended, TargetRun};
use crate::report::IdleArg;
use crate::source::{OpenedRecording, Source};
use crate::verdict::{VerdictLines, percent};

/// Find the cause: is the CPU the bottleneck, where did the time go, which step is next
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
    /// What to do with the time that shares leave out: idle, parked, for want of work; JSON has it always
    #[arg(long, value_enum, default_value_t = IdleArg::Hide)]
    idle: IdleArg,
    /// Print every rule that was tried, with the figures it looked at
    #[arg(long)]
    explain: bool,
    /// Climb on: count the named functions and time the verdict's in the live process (-p, --cgroup,
    /// -a) with probes; their cost is printed first
    #[arg(long)]
    go: bool,
    /// The most of one CPU that those probes may cost, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, requires = "go", value_parser = parse_overhead)]
    max_overhead: f64,
    /// Measure a live target until shares as small as this stand out from noise (1%), instead of for
    /// a set time; at most ten minutes
    #[arg(long, value_name = "SHARE", value_parser = parse_share, conflicts_with = "duration")]
    resolve: Option<f64>,
}

/// Longest that a target is measured for the sake of resolution.
const MAX_MEASURED: Duration = Duration::from_secs(600);

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
        // Each thread gets samples, of computing or of waiting, at a steady rate. One busy thread needs this
        // time for enough of them.
        Some(share) => {
            let samples = wallscope_model::stats::samples_for(share);
            Duration::from_secs_f64(samples / SAMPLES_A_SECOND).clamp(SHORTEST, MAX_MEASURED)
        }
        None => Duration::from_secs(30),
    };
    let OpenedRecording {
        recording,
        path,
        stop,
    } = args.source.recording("ladder", usual)?;
    let ladder = Ladder::new(&recording);
    // The recording of a command is meant to end with the command.
    let command = matches!(target, Some(Target::Command(_)));
    let why = stop
        .and_then(probe_steps::EarlyEnd::of)
        .filter(|why| match why {
            probe_steps::EarlyEnd::Target => !command,
            // Without `--go` only a recording was asked for.
            probe_steps::EarlyEnd::User => args.go,
        });
    let ended = why.map(|why| Ended::recorded(why, &recording, &ladder));
    let climbed = target
        .filter(|_| args.go && ended.is_none())
        .map(|t| probe_steps::climb(&recording, &ladder, &t, args.max_overhead));
    if let Some(share) = args.resolve.filter(|share| ladder.resolves > *share) {
        eprintln!(
            "wallscope: shares below {} are noise in this recording, and {} was asked for: the \
             target did too little; measure for longer with -d",
            resolution(ladder.resolves),
            resolution(share)
        );
    }
    let shown = Page {
        recording: &recording,
        ladder: &ladder,
        file: path.display().to_string(),
        explain: args.explain,
        idle: args.idle,
        ended: ended.or_else(|| climbed.as_ref().and_then(Climbed::ended)),
        climbed,
    };
    if args.html {
        return output::to_stdout(|w| page::write(&shown.article(), w));
    }
    let out = if args.json {
        shown.json()
    } else if args.md {
        shown.markdown()
    } else {
        shown.text()
    };
    output::to_stdout(|w| w.write_all(out.as_bytes()))
}

/// Samples a second of one busy thread, by the defaults of `record`.
const SAMPLES_A_SECOND: f64 = 99.0;
/// Shorter recordings have too few blocks of time to tell noise by.
const SHORTEST: Duration = Duration::from_secs(5);

/// Causes that are printed; JSON has all of them.
const MAX_CAUSES: usize = 8;

struct Page<'a> {
    recording: &'a Recording,
    ladder: &'a Ladder,
    file: String,
    explain: bool,
    /// Treatment of the time that shares leave out.
    idle: IdleArg,
    /// Rungs 3 and 4, where they were climbed.
    climbed: Option<Climbed>,
    /// The early end of the climb, if any.
    ended: Option<Ended>,
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

fn threads(n: usize) -> String {
    match n {
        1 => "1 thread".into(),
        n => format!("{n} threads"),
    }
}

/// A number of requests with its noun.
fn requests(n: u64) -> String {
    match n {
        1 => "1 request".into(),
        n => format!("{n} requests"),
    }
}

fn reading(b: &Bottleneck) -> &'static str {
    match b.reading() {
        Reading::Idle => "no thread did anything",
        Reading::CpuFirst => "it mostly computes: look at the computing",
        Reading::Both => "both matter: computing and waiting",
        Reading::WallFirst if b.ledger.state_ns(State::Runnable) > b.blocked_ns() => {
            "it mostly waits for a CPU"
        }
        Reading::WallFirst => "it mostly waits: look at the waits",
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
    /// The verdict in at most five lines, each with its name.
    fn parts(&self) -> Vec<(&'static str, String)> {
        self.lines().all()
    }

    fn lines(&self) -> VerdictLines<'_> {
        VerdictLines {
            verdict: &self.ladder.verdict,
            file: &self.file,
        }
    }

    /// Facts behind the verdict, for `--explain`.
    fn details(&self) -> Vec<(&'static str, String)> {
        let mut out = self.lines().details();
        let unseen = self.unseen();
        out.extend((!unseen.is_empty()).then_some(("not seen", unseen)));
        out
    }

    /// The largest causes: share, interval, state, place, root.
    fn cause_rows(&self, most: usize) -> Vec<Vec<String>> {
        let causes = self.ladder.causes.iter().take(most);
        // The others are noise.
        let causes = causes.take_while(|c| c.share >= self.ladder.resolves);
        let row = |c: &Cause| {
            let interval = format!("{}–{}", percent(c.interval.low), percent(c.interval.high));
            let (at, because) = (self.waited_at(c), self.because(c));
            vec![percent(c.share), interval, what(c), at, because]
        };
        causes.map(row).collect()
    }

    /// The place of a cause: its function; with `--explain` also its file, callee and resource.
    fn waited_at(&self, c: &Cause) -> String {
        match self.explain {
            true => place(c),
            false => c.function.to_string(),
        }
    }

    /// Main root of a cause's waits in words; empty: it computes, or none is known.
    fn because(&self, c: &Cause) -> String {
        // Without wakers, only the ends of their own are known.
        let blind = self.recording.hops.is_empty();
        let main = c
            .because
            .first()
            .filter(|root| !blind || root.open.is_none());
        main.map_or_else(String::new, |root| {
            format!("{} ({})", root.words(), percent(root.share))
        })
    }

    /// The blind spots of the recording.
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

    /// The commands that climb rungs 3 and 4 by hand.
    fn probes(&self) -> Vec<String> {
        let gone = self.ended.as_ref().is_some_and(Ended::is_gone);
        let run = match gone {
            true => TargetRun::Next,
            false => TargetRun::Recorded,
        };
        probe_steps::commands(self.recording, self.ladder, run)
    }

    fn next(&self) -> String {
        self.lines().next()
    }

    /// Heading of the commands for rungs 3 and 4; empty: they were climbed.
    fn probes_heading(&self) -> &'static str {
        match (&self.climbed, &self.ended) {
            (Some(_), None) => "",
            (_, Some(ended)) if ended.is_gone() => {
                "Rungs 3 and 4: how often, and how distributed? At the target's next run:"
            }
            (None, None) => {
                "Rungs 3 and 4: how often, and how distributed? With the option --go this command places probes in \
                 the live process, within --max-overhead; by hand (each command prints its cost first):"
            }
            (_, Some(_)) => "Rungs 3 and 4 by hand (each command prints its cost first):",
        }
    }

    /// Active time by state: state, share, time.
    fn state_rows(&self) -> Vec<Vec<String>> {
        let b = &self.ladder.bottleneck;
        let l = &b.ledger;
        let blocked = l.blocked_ns().saturating_sub(l.idle_ns + b.starved_ns);
        let rows = [
            ("on-CPU", l.state_ns(State::OnCpu)),
            ("waiting for a CPU", l.runnable.woken + l.runnable.preempted),
            ("throttled", l.runnable.throttled),
            ("blocked", blocked),
            ("not seen", l.unknown_ns()),
        ];
        let row = |(state, ns): (&str, u64)| vec![state.into(), percent(b.share(ns)), seconds(ns)];
        // These states are shown even without time: a reader expects them.
        let always = ["on-CPU", "waiting for a CPU", "blocked"];
        let told = rows
            .into_iter()
            .filter(|(state, ns)| *ns > 0 || always.contains(state));
        told.map(row).collect()
    }

    fn first_rung(&self) -> Vec<String> {
        let b = &self.ladder.bottleneck;
        let l = &b.ledger;
        let mut out = vec![format!(
            "active time: {} of {} in {}; all shares of rungs 1 and 2 are of it",
            seconds(b.active_ns()),
            threads(b.active_threads),
            seconds(b.window_ns),
        )];
        out.push(format!(
            "{} of it is on a CPU; {}",
            percent(b.on_cpu()),
            reading(b)
        ));
        let apart = [
            (b.parked_ns, format!("{} parked", threads(b.parked_threads))),
            (
                b.ticking_ns,
                format!("{} only ticking", threads(b.ticking_threads)),
            ),
            (l.idle_ns, "idle time of the active threads".to_string()),
            (b.starved_ns, "waits for want of work".to_string()),
        ];
        let apart: Vec<String> = (apart.iter().filter(|(ns, _)| *ns > 0))
            .map(|(ns, what)| format!("{what} ({})", seconds(*ns)))
            .collect();
        if !apart.is_empty() {
            let shown = match self.idle {
                IdleArg::Hide => "; --idle show lists it",
                IdleArg::Show | IdleArg::Only => "",
            };
            out.push(format!("left out: {}{shown}", apart.join(", ")));
        }
        let r = &self.ladder.requests;
        if let Some(mean) = r.mean_ns() {
            let ms = mean as f64 / 1e6;
            out.push(match r.unanswered(b.window_ns) {
                true => format!(
                    "{}, none answered: {ms:.2} ms each so far, on average",
                    requests(r.asked)
                ),
                false => format!("{} answered, {ms:.2} ms each on average", requests(r.asked)),
            });
        } else if let Some(most) = r.at_most_ns() {
            out.push(format!(
                "at least {}, {:.2} ms each at most: shorter than the poll interval",
                requests(r.asked),
                most as f64 / 1e6
            ));
        }
        if let Some(u) = &r.upstream {
            out.push(match u.mean_ns() {
                Some(mean) => format!(
                    "{} to {}, {:.2} ms each on average",
                    requests(u.requests),
                    u.name,
                    mean as f64 / 1e6
                ),
                None => format!("at least {} to {}", requests(u.requests), u.name),
            });
        }
        out.push(format!(
            "context switches: {} voluntary, {} by preemption",
            l.voluntary_switches, l.involuntary_switches
        ));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_for_a_cpu_is_told_from_other_waits() {
        let read = |on_cpu, woken, blocked| {
            let mut b = Bottleneck::default();
            b.ledger.wall_ns = on_cpu + woken + blocked;
            b.ledger.on_cpu.user = on_cpu;
            b.ledger.runnable.woken = woken;
            b.ledger.blocked[0] = blocked;
            reading(&b)
        };
        assert_eq!(read(10, 70, 20), "it mostly waits for a CPU");
        assert_eq!(read(10, 20, 70), "it mostly waits: look at the waits");
        assert_eq!(read(90, 10, 0), "it mostly computes: look at the computing");
    }
}
