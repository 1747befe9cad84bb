//! Workloads that each tool measures in turn while they work on (`pieces.rs`), and the results.

use std::time::Duration;

use wallscope_testkit::go::{GoProgram, PLAIN};
use wallscope_testkit::java;
use wallscope_testkit::node;
use wallscope_testkit::python::interpreters;
use wallscope_testkit::{Error, Program, Tool};

use super::comparison::{Comparison, Start};
use super::effort::Effort;
use super::peer::Peer;
use super::pieces::Steady;
use crate::Outcome;

/// About how long a piece of steady work takes: ten samples, and a tenth of a window or less.
const PIECE: Duration = Duration::from_millis(100);
/// As many turns of the ping-pong take about as long.
const TURNS: u32 = 20_000;

/// Programs that compute without end: name, compared figure, start, and the tools to compare with.
fn computing(tool: &Tool, effort: Effort) -> Vec<Result<Steady, String>> {
    // A unit of the C program takes about a nanosecond; `ns` is the time of a unit in another program.
    let piece = |ns: u64| (PIECE.as_nanos() as u64 / ns).to_string();
    let native = || -> Start {
        let piece = piece(1);
        let flags = move || Program::start("fixed", &["--until-line", "--piece", &piece]);
        Box::new(flags)
    };
    let python = interpreters().map(|all| -> Start {
        let (first, piece) = (all.into_iter().next(), piece(450_000));
        Box::new(move || match &first {
            Some(python) => python.start(&["fixed", "--piece", &piece]),
            None => Err(Error::CannotRunHere("no Python".into())),
        })
    });
    let java = java::installed().map(|all| -> Start {
        let (first, piece) = (all.into_iter().next(), piece(225_000));
        Box::new(move || match &first {
            Some(java) => java.start(&[], &["fixed", "--piece", &piece]),
            None => Err(Error::CannotRunHere("no Java".into())),
        })
    });
    let go = GoProgram::build(PLAIN).map(|built| -> Start {
        let piece = piece(300_000);
        Box::new(move || built.start(&["fixed", "--piece", &piece]))
    });
    let node = node::installed().map(|all| -> Start {
        let piece = piece(3_000_000);
        Box::new(move || all[0].start(&[], &["--piece", &piece]))
    });
    let lower = |how: &str| Some(Peer::wallscope(tool, &["--backend", how]));
    let native_peers = vec![
        lower("perf"),
        lower("proc"),
        Peer::perf(&["-g", "-F", "99"]),
        Peer::perf(&["--call-graph", "dwarf", "-F", "99"]),
        Peer::offcputime("offcputime"),
    ];
    let about = |language: &str| format!("computing{language}: ms a piece of work, the median");
    let all = [
        ("fixed", about(""), Ok(native()), native_peers),
        ("python", about(" in Python"), python, vec![Peer::py_spy()]),
        ("java", about(" in Java"), java, vec![]),
        ("go", about(" in Go"), go, vec![]),
        ("node", about(" in JavaScript"), node, vec![]),
    ];
    let window = Duration::from_secs_f64(effort.seconds);
    all.into_iter()
        .map(|(name, about, start, others)| match start {
            Ok(start) => Ok(Steady {
                name,
                about,
                start,
                peers: measured(tool, others),
                window,
                steady: 0.02,
            }),
            Err(why) => Err(format!("{name}: {why}")),
        })
        .collect()
}

/// wallscope as it is and by interrupts, and the other tools that can run here.
fn measured(tool: &Tool, others: Vec<Option<Peer>>) -> Vec<Peer> {
    let own = [&[][..], &["--off-cpu-stacks", "interrupt"]].map(|more| Peer::wallscope(tool, more));
    own.into_iter()
        .chain(others.into_iter().flatten())
        .collect()
}

/// The worst case: two threads that do nothing but switch.
fn switching(tool: &Tool, effort: Effort) -> Steady {
    let lower = |how: &str| Some(Peer::wallscope(tool, &["--backend", how]));
    let others = vec![
        lower("perf"),
        lower("proc"),
        Peer::perf(&["-g", "-F", "99"]),
        Peer::perf(&["-e", "sched:sched_switch", "-g"]),
        Peer::offcputime("offcputime"),
        Peer::offcputime("offcputime-bpfcc"),
    ];
    let turns = TURNS.to_string();
    Steady {
        name: "pingpong",
        about: format!("a byte through two pipes, two threads on one CPU: ms for {TURNS} turns"),
        start: Box::new(move || Program::start("pingpong", &["--until-line", "--piece", &turns])),
        peers: measured(tool, others),
        window: Duration::from_secs_f64(effort.seconds),
        steady: 0.1,
    }
}

/// The workload of that name; none if it cannot run here, which is printed.
pub(super) fn named(tool: &Tool, effort: Effort, name: &str) -> Outcome<Vec<Comparison>> {
    let mut comparisons = Vec::new();
    let workloads = std::iter::once(Ok(switching(tool, effort))).chain(computing(tool, effort));
    let asked = |workload: &Result<Steady, String>| match workload {
        Ok(workload) => workload.name == name,
        Err(why) => why.starts_with(name),
    };
    for workload in workloads.filter(asked) {
        match workload {
            Ok(workload) => comparisons.push(workload.compare(effort.watches)?),
            Err(why) => println!("left out: {why}"),
        }
    }
    Ok(comparisons)
}
