//! Processes with one known trouble each, and healthy ones, for the ladder's verdict: it has to name the true
//! cause.
//!
//! The table ([`ALL`]) states the trouble of each process from its program's source, never from wallscope's
//! output. The scorer compares state, reason and function of the verdict, and a few
//! words that it has to hold. Other programs of the machine are part of the judgement: a verdict
//! that says truly that they use the CPUs is wrong here, and `live` makes the scenario again only if it
//! measured them too.

mod scenario;
mod table;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::checks::{Length, disk_folder};
use crate::live::{self, Outcome};
use crate::tool::{Options, Recorded};
use crate::{Error, Program, Scorecard, Tool, program, python};

pub use scenario::{Play, Right, Scenario};
pub use table::ALL;

/// Length of a recording, s.
const SECONDS: f64 = 1.5;

/// Makes scenario `s` once, with `backend` (the tool's own choice: `None`).
pub fn attempt(tool: &Tool, s: &Scenario, backend: Option<&str>, folder: &Path) -> Outcome {
    let verdict = record(tool, s, backend, folder).and_then(|r| r.json(&["ladder"]));
    verdict.map(|ladder| ladder["verdict"].clone()).map_or_else(
        |error| Err::<String, Error>(error).into(),
        |verdict| match s.right.on(backend).wrong(&verdict) {
            wrong if wrong.is_empty() => Outcome::Held(text(&verdict, "cause").to_string()),
            wrong => Outcome::Failed(wrong),
        },
    )
}

/// Limit of attempts per scenario and tier in a full run.
const TIMES: u32 = 3;

/// Makes every scenario several times, on the best tier and on the lower ones where they can answer it.
/// Prints each wrong verdict at once.
///
/// # Errors
/// Never: a scenario that cannot be made is a verdict that is not right, or is left out.
pub fn score(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let folder = disk_folder(tool);
    let mut card = Scorecard::default();
    let [mut troubles, mut healthy, mut lower] = [Tally::default(); 3];
    for s in ALL {
        let tally = match s.right.bottleneck {
            true => &mut troubles,
            false => &mut healthy,
        };
        let times = length.repeats.min(TIMES);
        let mut own = Tally::default();
        for _ in 0..times {
            own.add(made(tool, s, None, folder.as_ref()));
        }
        println!(
            "  {:<24} {} of {} right: {}",
            s.name, own.right, own.made, s.about
        );
        tally.right += own.right;
        tally.made += own.made;
        for backend in s.lower {
            (0..times).for_each(|_| lower.add(made(tool, s, Some(backend), folder.as_ref())));
        }
    }
    for (which, tally) in [
        ("troubles", troubles),
        ("healthy", healthy),
        ("lower tiers", lower),
    ] {
        println!("  {which}: {} of {} right", tally.right, tally.made);
    }
    card.at_least("verdicts right, troubles", troubles.percent(), 97.0, "%");
    card.at_most(
        "false alarms on healthy processes",
        f64::from(healthy.made - healthy.right),
        0.0,
        "",
    );
    card.at_least("verdicts right, lower tiers", lower.percent(), 97.0, "%");
    Ok(card)
}

#[derive(Clone, Copy, Default)]
struct Tally {
    made: u32,
    right: u32,
}

impl Tally {
    fn add(&mut self, right: Option<bool>) {
        self.made += u32::from(right.is_some());
        self.right += u32::from(right == Some(true));
    }

    fn percent(self) -> f64 {
        100.0 * f64::from(self.right) / f64::from(self.made.max(1))
    }
}

/// Whether the verdict is right; `None`: the scenario cannot be played here.
fn made(tool: &Tool, s: &Scenario, backend: Option<&str>, folder: &Path) -> Option<bool> {
    let how = backend.map_or(String::new(), |b| format!(" with {b}"));
    let judged = live::judge(s.name, || attempt(tool, s, backend, folder));
    if judged.void.is_some() || !matches!(judged.outcome, Outcome::Held(_)) {
        println!("  {}{how}: {judged}", s.name);
    }
    match judged.outcome {
        Outcome::Held(_) => Some(true),
        Outcome::Failed(_) => Some(false),
        Outcome::CannotRun(_) => None,
    }
}

fn text<'v>(of: &'v Value, key: &str) -> &'v str {
    of[key].as_str().unwrap_or_default()
}

fn record(
    tool: &Tool,
    s: &Scenario,
    backend: Option<&str>,
    folder: &Path,
) -> Result<Recorded, Error> {
    let seconds = format!("{SECONDS}");
    let folder = folder.to_string_lossy();
    let mut program = start(s.play, &seconds, &folder)?;
    let victims: Vec<u32> = match s.play {
        Play::Truth(..) => program.pids().to_vec(),
        _ => program.pids()[1..].to_vec(),
    };
    let options = Options {
        hz: 199,
        more: backend.map_or_else(Vec::new, |b| vec!["--backend".into(), b.into()]),
    };
    let recorder = tool.attach(&victims, &options)?;
    program.release()?;
    program.ended(Duration::from_secs(60))?;
    let recorded = recorder.stop()?;
    program.finish()?;
    Ok(recorded)
}

fn start(play: Play, seconds: &str, folder: &str) -> Result<Program, Error> {
    match play {
        Play::Truth(name, flags) => {
            Program::start(name, &[&["--seconds", seconds], flags].concat())
        }
        Play::Trouble(case) => {
            let mut command = Command::new(program::path());
            command.args(["trouble", "--case", case, "--seconds", seconds]);
            command.args(["--dir", folder, "--hold", "--linger"]);
            Program::start_command(case, command)
        }
        Play::Script(case) => script(case, seconds, folder),
        Play::Program(name, case) => {
            let found = std::env::var_os("PATH").is_some_and(|path| {
                std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
            });
            if !found {
                return Err(Error::CannotRunHere(format!("{name} is not installed")));
            }
            script(case, seconds, folder)
        }
    }
}

fn script(case: &str, seconds: &str, folder: &str) -> Result<Program, Error> {
    let all = python::interpreters()?;
    let mut command = Command::new(&all[0].path);
    command.arg(python::TROUBLE).arg(case);
    command.args(["--seconds", seconds, "--dir", folder]);
    Program::start_command(case, command)
}

impl Right {
    /// The part of it that a backend can answer.
    fn on(self, backend: Option<&str>) -> Right {
        let Some(backend) = backend else { return self };
        let blocked = self.states.contains(&"blocked");
        Right {
            reasons: if blocked { self.reasons } else { &[] },
            functions: if blocked || backend == "perf" {
                self.functions
            } else {
                &[]
            },
            words: &[],
            ..self
        }
    }

    /// Differences of a verdict from the right one; empty: none.
    fn wrong(&self, verdict: &Value) -> String {
        let one_of = |all: &[&str], fits: &dyn Fn(&str) -> bool| {
            all.is_empty() || all.iter().any(|one| fits(one))
        };
        let function = text(verdict, "function");
        let own = function.rsplit('.').next().unwrap_or(function);
        let mut said = ["cause", "root", "rule"]
            .map(|key| text(verdict, key))
            .to_vec();
        said.extend((verdict["more"].as_array().into_iter().flatten()).filter_map(Value::as_str));
        let said = said.join(". ").to_lowercase();
        let mut wrong = Vec::new();
        if verdict["bottleneck"] != self.bottleneck {
            wrong.push(match self.bottleneck {
                true => "nothing is said to be wrong".to_string(),
                false => "a false alarm".to_string(),
            });
        }
        if !one_of(self.states, &|s| text(verdict, "state") == s) {
            wrong.push(format!("its state is {}", self.states.join(" or ")));
        }
        if !one_of(self.reasons, &|r| text(verdict, "reason") == r) {
            wrong.push(format!("its reason is {}", self.reasons.join(" or ")));
        }
        if !one_of(self.functions, &|f| {
            function.starts_with(f) || own.starts_with(f)
        }) {
            wrong.push(format!("its function is {}", self.functions.join(" or ")));
        }
        for words in self.words.iter().filter(|w| !said.contains(**w)) {
            wrong.push(format!("it does not say {words:?}"));
        }
        if wrong.is_empty() {
            return String::new();
        }
        format!("{}; the verdict is {verdict:#}", wrong.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_as_large_as_it_has_to_be() {
        let troubles = ALL.iter().filter(|s| s.right.bottleneck).count();
        assert!(troubles >= 30, "{troubles}");
        assert!(ALL.len() - troubles >= 8);
        let names: std::collections::HashSet<_> = ALL.iter().map(|s| s.name).collect();
        assert_eq!(names.len(), ALL.len(), "names are unique");
    }

    #[test]
    fn a_wrong_verdict_is_told_in_all_its_parts() {
        let right = Right {
            bottleneck: true,
            states: &["blocked"],
            reasons: &["lock"],
            functions: &["pool_acquire"],
            words: &["long"],
        };
        let verdict = |function: &str, cause: &str| {
            serde_json::json!({"bottleneck": true, "state": "blocked", "reason": "lock",
                "function": function, "cause": cause, "more": []})
        };
        assert_eq!(right.wrong(&verdict("pool_acquire", "a Long hold")), "");
        assert_eq!(right.wrong(&verdict("Pool.pool_acquire", "long")), "");
        let wrong = right.wrong(&verdict("main", "short"));
        assert!(
            wrong.contains("pool_acquire") && wrong.contains("\"long\""),
            "{wrong}"
        );
    }
}
