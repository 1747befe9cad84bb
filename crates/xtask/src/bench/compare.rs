//! One workload, bare and under each tool, in turn.

use std::fmt;
use std::time::Duration;

use wallscope_testkit::go::{GoProgram, PLAIN};
use wallscope_testkit::java;
use wallscope_testkit::node;
use wallscope_testkit::python::interpreters;
use wallscope_testkit::{Error, Program, Tool};

use super::Effort;
use super::peer::Peer;
use crate::{Outcome, median};

const LIMIT: Duration = Duration::from_secs(300);

/// A workload under several tools.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The workload's name.
    pub workload: &'static str,
    /// What is compared, with its unit.
    pub about: &'static str,
    /// One a tool, the bare run first.
    pub standings: Vec<Standing>,
}

/// How the workload did under one tool.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Who measured.
    pub peer: String,
    /// The figure, median of the rounds.
    pub figure: f64,
    /// Its ratio to the bare run of the same round, median.
    pub ratio: f64,
    /// The lowest and the highest of these ratios.
    pub range: (f64, f64),
    /// wallscope's own cost: kernel programs and own CPU, percent of a CPU, median.
    pub cost_percent: Option<f64>,
}

type Start = Box<dyn Fn() -> Result<Program, Error>>;

struct Workload {
    name: &'static str,
    about: &'static str,
    /// Starts it, up to its READY.
    start: Start,
    figure: &'static str,
    /// In the unit that `about` names.
    scale: f64,
    peers: Vec<Peer>,
}

/// One run of the workload, and wallscope's cost in it.
fn once(workload: &Workload, peer: &Peer) -> Result<(f64, Option<f64>), Error> {
    let mut program = (workload.start)()?;
    let running = peer.attach(program.pids())?;
    program.release()?;
    let truth = program.truth(LIMIT)?;
    let report = running.stop()?;
    program.finish()?;
    let cost = report.map(|report| {
        let window = (report.window.end_ns - report.window.start_ns) as f64;
        100.0 * (report.cost.bpf_ns + report.cost.own_cpu_ns) as f64 / window
    });
    Ok((truth.extra(workload.figure)? * workload.scale, cost))
}

fn compare(mut workload: Workload, effort: Effort) -> Result<Comparison, Error> {
    // A tool that cannot run here is found out before the rounds begin.
    let mut able = Vec::new();
    for peer in std::mem::take(&mut workload.peers) {
        eprintln!("{}: {} …", workload.name, peer.name);
        match once(&workload, &peer) {
            Ok(_) => able.push(peer),
            Err(error) if able.len() < 2 => return Err(error),
            Err(error) => println!("left out: {}: {error}", peer.name),
        }
    }
    let mut figures = vec![Vec::new(); able.len()];
    let mut costs = vec![Vec::new(); able.len()];
    for round in 0..effort.rounds {
        // Back and forth, so that none is always the one after the most disturbing.
        let mut order: Vec<usize> = (0..able.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            let (figure, cost) = once(&workload, &able[index])?;
            figures[index].push(figure);
            costs[index].extend(cost);
        }
    }
    let bare = figures[0].clone();
    let standings = able
        .iter()
        .zip(figures)
        .zip(costs)
        .map(|((peer, own), cost)| {
            let ratios: Vec<f64> = own.iter().zip(&bare).map(|(a, b)| a / b).collect();
            Standing {
                peer: peer.name.clone(),
                figure: median(own),
                range: (
                    ratios.iter().copied().fold(f64::INFINITY, f64::min),
                    ratios.iter().copied().fold(0.0, f64::max),
                ),
                ratio: median(ratios),
                cost_percent: (!cost.is_empty()).then(|| median(cost)),
            }
        });
    Ok(Comparison {
        workload: workload.name,
        about: workload.about,
        standings: standings.collect(),
    })
}

type Managed = (
    &'static str,
    &'static str,
    Result<Start, Error>,
    Option<Peer>,
);

/// Programs in managed code: name, what is compared, how to start them, and whom else to compare with.
fn managed(effort: Effort) -> Vec<Managed> {
    // A unit of the C program is about a nanosecond; `ns`: of one here.
    let flags = move |ns: u64| (effort.units / ns).to_string();
    let python = interpreters().map(|all| -> Start {
        let first = all.into_iter().next();
        Box::new(move || match &first {
            Some(python) => python.start(&["fixed", "--units", &flags(450_000)]),
            None => Err(Error::CannotRunHere("no Python".into())),
        })
    });
    let java = java::installed().map(|all| -> Start {
        let first = all.into_iter().next();
        Box::new(move || match &first {
            Some(java) => java.start(&["fixed", "--units", &flags(225_000)]),
            None => Err(Error::CannotRunHere("no Java".into())),
        })
    });
    let go = GoProgram::build(PLAIN).map(|built| -> Start {
        Box::new(move || built.start(&["fixed", "--units", &flags(300_000)]))
    });
    let node = node::installed()
        .map(|()| -> Start { Box::new(move || node::start(&[], &["--units", &flags(3_000_000)])) });
    vec![
        (
            "python",
            "a fixed amount of computing in Python: ms of wall time",
            python,
            Peer::py_spy(),
        ),
        (
            "java",
            "a fixed amount of computing in Java: ms of wall time",
            java,
            None,
        ),
        (
            "go",
            "a fixed amount of computing in Go: ms of wall time",
            go,
            None,
        ),
        (
            "node",
            "a fixed amount of computing in JavaScript: ms of wall time",
            node,
            None,
        ),
    ]
}

/// All workloads.
pub(super) fn all(tool: &Tool, effort: Effort) -> Outcome<Vec<Comparison>> {
    let first = || {
        vec![
            Peer::nobody(),
            Peer::wallscope(tool, &[]),
            Peer::wallscope(tool, &["--off-cpu-stacks", "window"]),
        ]
    };
    let with = |others: Vec<Option<Peer>>| first().into_iter().chain(others.into_iter().flatten());
    let lower = |how: &str| Some(Peer::wallscope(tool, &["--backend", how]));
    let switching = vec![
        lower("perf"),
        lower("proc"),
        Peer::perf(&["-g", "-F", "99"]),
        Peer::perf(&["-e", "sched:sched_switch", "-g"]),
        Peer::offcputime("offcputime"),
        Peer::offcputime("offcputime-bpfcc"),
    ];
    let computing = vec![
        lower("perf"),
        lower("proc"),
        Peer::perf(&["-g", "-F", "99"]),
        Peer::perf(&["--call-graph", "dwarf", "-F", "99"]),
        Peer::offcputime("offcputime"),
    ];
    let mut workloads = vec![
        Workload {
            name: "pingpong",
            about: "a byte through two pipes, two threads on one CPU: ns a turn",
            start: Box::new(move || {
                Program::start("pingpong", &["--rounds", &effort.turns.to_string()])
            }),
            figure: "ns_per_round",
            scale: 1.0,
            peers: with(switching).collect(),
        },
        Workload {
            name: "fixed",
            about: "a fixed amount of computing: ms of wall time",
            start: Box::new(move || {
                Program::start("fixed", &["--units", &effort.units.to_string()])
            }),
            figure: "wall_ns",
            scale: 1e-6,
            peers: with(computing).collect(),
        },
    ];
    for (name, about, started, peer) in managed(effort) {
        match started {
            Ok(start) => workloads.push(Workload {
                name,
                about,
                start,
                figure: "wall_ns",
                scale: 1e-6,
                peers: with(vec![peer]).collect(),
            }),
            Err(why) => println!("left out: {name}: {why}"),
        }
    }
    let mut comparisons = Vec::new();
    for workload in workloads {
        comparisons.push(compare(workload, effort)?);
    }
    Ok(comparisons)
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.workload, self.about)?;
        let width = self.standings.iter().map(|s| s.peer.len()).max();
        let width = width.unwrap_or(0);
        for s in &self.standings {
            write!(
                f,
                "  {:width$}  {:>9.1}  {:>6.3} × ({:.3} – {:.3})",
                s.peer, s.figure, s.ratio, s.range.0, s.range.1
            )?;
            match s.cost_percent {
                Some(cost) => writeln!(f, "  own cost {cost:.3} % of a CPU")?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}
