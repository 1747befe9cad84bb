//! `docs/verification.md`.

use std::fmt::Write;
use std::time::Duration;

use wallscope_testkit::checks::Length;
use wallscope_testkit::disturbance::Disturbance;
use wallscope_testkit::known;

use super::promise::{Experiment, Judged};
use crate::bench::Measured;

/// Where and when.
pub struct Header {
    /// UTC.
    pub date: String,
    /// In words.
    pub machine: String,
    /// Before it began.
    pub load: f64,
}

fn mark(pass: bool) -> &'static str {
    if pass { "yes" } else { "**no**" }
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// An experiment in one line.
pub fn experiment_line(experiment: &Experiment) -> String {
    match &experiment.outcome {
        Err(why) => format!("{:<13} not made: {why}", experiment.name),
        Ok(card) => format!(
            "{:<13} {} of {} rows hold",
            experiment.name,
            card.rows.len() - card.failures(),
            card.rows.len()
        ),
    }
}

/// The promises as a table.
pub fn promises(judged: &[Judged]) -> String {
    let mut text = String::from("| what | required | measured | holds |\n|---|---|---|---|\n");
    for j in judged {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} |",
            j.what,
            j.required,
            cell(&j.measured),
            mark(j.pass)
        );
    }
    text
}

/// Disturbances of an experiment, one per time that it was made, where there is something to say.
fn disturbances(all: &[Disturbance]) -> String {
    match all {
        [one] if !one.is_telling() => String::new(),
        all => {
            let each: Vec<String> = all.iter().map(brief).collect();
            each.join("; again: ")
        }
    }
}

fn brief(d: &Disturbance) -> String {
    format!(
        "host {:.1} %, others {:.1} %, delay {} µs",
        d.stolen * 100.0,
        d.others * 100.0,
        d.delay.as_micros()
    )
}

/// Known weaknesses, and the rows that hold by them.
fn weaknesses(experiments: &[Experiment]) -> String {
    let mut text = String::from("\n## Known weaknesses\n\n");
    if known::ALL.is_empty() {
        text.push_str("None.\n");
    }
    for weakness in known::ALL {
        let _ = writeln!(
            text,
            "- {}: {}: present {}. {}",
            weakness.experiment, weakness.row, weakness.present, weakness.why
        );
    }
    for experiment in experiments {
        let rows = experiment.outcome.iter().flat_map(|card| &card.rows);
        for row in rows.filter(|row| row.limit.starts_with("known")) {
            let _ = writeln!(
                text,
                "- in this run, {}: {}: {}, truth {}, {}",
                experiment.name, row.what, row.measured, row.truth, row.limit
            );
        }
    }
    text
}

/// How rows are judged.
const METHOD: &str = "\
## Method

Nothing is repeated until it passes. A row holds or it does not. If a run was interrupted and continued with the same
binary, the date names each part, and the machines are named in their order. All rows as data:
[verification.jsonl](verification.jsonl).

- **Exact rows** (ledgers, counts, whole stacks) are held to the promise itself. The row over all cases of `odd` leaves
  out stacks inside the few instructions that switch stacks, which have no rule; each case alone counts them.
- **Estimated rows** (shares of functions) are held to the promise plus 5.03 standard errors, shown as
  `± promise + chance`. The standard error follows from the recording's own number of samples in each state and
  the program's number of calls (`crates/testkit/src/score/chance.rs`). Such a limit is exceeded by chance once in
  2,000,000 rows, so that a whole run fails by chance once in 1,000.
  Time that the host took from the program is allowed too, shown as `+ … stolen`: the program's clocks call it
  waiting, and the ledger calls it on-CPU.
- **Bias**: for each tier, the mean signed error of all estimated rows, and that of the row with the largest true
  share of each group, have a limit of a quarter of the mean promise plus 5.03 standard errors of the mean.
- **Disturbances**: steal from `/proc/stat`, CPU time of processes outside the experiment, and the tester's mean
  run-queue delay are measured around each experiment. If one exceeds its limit (1 %, 3 %, 1 ms), the experiment is
  made once more, whatever came out. The second time alone counts.
- **Known weaknesses** hold up to their present error and show it as `known: …` beside the promise.
";

/// Results of a verification.
pub struct Results<'a> {
    /// Length of the recordings.
    pub length: Length,
    /// The promises.
    pub judged: &'a [Judged],
    /// The experiments.
    pub experiments: &'a [Experiment],
    /// The benchmarks.
    pub measured: &'a Measured,
}

/// The whole page; `took`: how long, and the disturbance meanwhile.
pub fn write(
    header: &Header,
    (took, disturbance): (Duration, Disturbance),
    results: &Results<'_>,
) -> String {
    let Results {
        length,
        judged,
        experiments,
        measured,
    } = *results;
    let held = judged.iter().filter(|judged| judged.pass).count();
    let mut text = format!(
        "# Verification\n\n\
         Written by `cargo xtask verify`.\n\n\
         - when: {}, {:.0} minutes\n\
         - where: {}\n\
         - load average before: {:.2}; disturbance in all: {}\n\
         - recordings of {} s, of managed code {} s; {} of {} promises hold\n\n\
         {METHOD}\n\
         ## Promises\n\n\
         Each by the worst row that any experiment has on it, or by the benchmark below.\n\n{}",
        header.date,
        took.as_secs_f64() / 60.0,
        header.machine,
        header.load,
        brief(&disturbance),
        length.seconds,
        length.managed().1,
        held,
        judged.len(),
        promises(judged)
    );
    text.push_str(&failures(experiments));
    text.push_str(&weaknesses(experiments));
    text.push_str(&overview(experiments));
    text.push_str(&costs(measured));
    text
}

/// Rows that do not hold, and experiments that were not made.
fn failures(experiments: &[Experiment]) -> String {
    let mut text = String::from("\n## Rows that do not hold\n\n");
    let mut none = true;
    for experiment in experiments {
        match &experiment.outcome {
            Err(why) => {
                none = false;
                let _ = writeln!(text, "- {}: not made: {why}", experiment.name);
            }
            Ok(card) => {
                for row in card.rows.iter().filter(|row| !row.pass) {
                    none = false;
                    let truth = match row.truth.as_str() {
                        "" => String::new(),
                        truth => format!(", truth {truth}"),
                    };
                    let _ = writeln!(
                        text,
                        "- {}: {}: {}{truth}, limit {}",
                        experiment.name, row.what, row.measured, row.limit
                    );
                }
            }
        }
    }
    if none {
        text.push_str("None.\n");
    }
    text
}

/// Every experiment, with the number of its rows that hold.
fn overview(experiments: &[Experiment]) -> String {
    let mut text = String::from(
        "\n## Experiments\n\n\
         | experiment | asks | rows that hold | disturbance |\n|---|---|---|---|\n",
    );
    for experiment in experiments {
        let held = match &experiment.outcome {
            Err(_) => "not made".to_string(),
            Ok(card) => format!(
                "{} of {}",
                card.rows.len() - card.failures(),
                card.rows.len()
            ),
        };
        let _ = writeln!(
            text,
            "| {} | {} | {held} | {} |",
            experiment.name,
            experiment.about,
            disturbances(&experiment.disturbances)
        );
    }
    text
}

/// The benchmarks.
fn costs(measured: &Measured) -> String {
    let mut text = String::from(
        "\n## Costs\n\nRatios to the stretches just before and after, in which nobody watched: median of the rounds, and the range.\n",
    );
    for comparison in &measured.comparisons {
        let _ = write!(
            text,
            "\n**{}**, {}\n\n| | figure | ratio | range | own CPU and kernel programs |\n|---|---|---|---|---|\n",
            comparison.workload, comparison.about
        );
        for s in &comparison.standings {
            let cost = s
                .cost_percent
                .map_or(String::new(), |cost| format!("{cost:.3} %"));
            let _ = writeln!(
                text,
                "| {} | {:.1} | {:.3} | {:.3} – {:.3} | {cost} |",
                s.peer, s.figure, s.ratio, s.range.0, s.range.1
            );
        }
    }
    text.push_str("\n| | figure |\n|---|---|\n");
    for figure in &measured.figures {
        let _ = writeln!(
            text,
            "| {} | {:.3} {} |",
            figure.what, figure.value, figure.unit
        );
    }
    text
}
