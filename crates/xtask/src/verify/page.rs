//! `docs/verification.md`.

use std::fmt::Write;
use std::time::Duration;

use wallscope_testkit::checks::Length;

use super::MOST_STOLEN;
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

/// How often it was made and what the host took each time, where there is something to say.
fn disturbance(stolen: &[f64]) -> String {
    match stolen {
        [] => String::new(),
        [share] if *share < 0.0005 => String::new(),
        shares => {
            let each: Vec<String> = (shares.iter())
                .map(|share| format!("{:.1} %", share * 100.0))
                .collect();
            each.join(", again: ")
        }
    }
}

/// The whole page; `took`: how long, and the share of the CPUs' time that the host took meanwhile.
pub fn write(
    header: &Header,
    (took, stolen): (Duration, f64),
    length: Length,
    judged: &[Judged],
    experiments: &[Experiment],
    measured: &Measured,
) -> String {
    let held = judged.iter().filter(|judged| judged.pass).count();
    let mut text = format!(
        "# Verification\n\n\
         Written by `cargo xtask verify`: one run, nothing repeated until it passes. An experiment \
         is made again, whatever came out, if the host took the CPUs away for more than {} % of \
         their time.\n\n\
         - when: {}, {:.0} minutes\n\
         - where: {}\n\
         - load average before: {:.2}; taken by the host in all: {:.2} % of the CPUs' time\n\
         - recordings of {} s, of managed code {} s; {} of {} promises hold\n\n\
         ## Promises\n\n\
         Each by the worst row that any experiment has on it, or by the benchmark below.\n\n{}",
        MOST_STOLEN * 100.0,
        header.date,
        took.as_secs_f64() / 60.0,
        header.machine,
        header.load,
        stolen * 100.0,
        length.seconds,
        length.managed().1,
        held,
        judged.len(),
        promises(judged)
    );
    text.push_str("\n## Rows that do not hold\n\n");
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
    text.push_str(
        "\n## Experiments\n\n\
         | experiment | asks | rows that hold | taken by the host |\n|---|---|---|---|\n",
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
            disturbance(&experiment.stolen)
        );
    }
    text.push_str(
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
