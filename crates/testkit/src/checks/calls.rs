//! Calls of single functions against a program that knows their number, lengths, waits and ways out.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::probing::Prober;
use crate::score::within;
use crate::{Error, Program, Scorecard, Tool, Truth};

use super::Length;

/// Quantiles of calls of a millisecond or more, percent; the program's clocks cost a little on top.
const QUANTILE: f64 = 1.0;
const CLOCKS_NS: f64 = 15_000.0;
/// Ledgers of calls against their wall time, percent.
const LEDGER: f64 = 1.0;

/// The truth of the program with these flags, beside the tool's figures: `asked` is a verb with functions.
fn run(
    tool: &Tool,
    asked: &[&str],
    flags: &[&str],
    length: Length,
) -> Result<(Truth, Value), Error> {
    let seconds = length.text();
    let mut program = Program::start("calls", &[&["--seconds", &*seconds], flags].concat())?;
    let pid = program.pids()[0].to_string();
    // The machine may be slow, and is not judged here.
    let fixed = ["-p", &pid, "--max-overhead", "90"];
    let prober = Prober::start(tool, &[asked, &fixed].concat())?;
    program.release()?;
    let truth = program.truth(Duration::from_secs(120))?;
    let said = prober.stop()?;
    program.finish()?;
    if let Some(why) = said["stopped"].as_str() {
        return Err(Error::CannotRunHere(why.to_string()));
    }
    Ok((truth, said))
}

fn function<'a>(said: &'a Value, name: &str) -> &'a Value {
    said["functions"]
        .as_array()
        .and_then(|all| all.iter().find(|f| f["name"] == name))
        .unwrap_or(&Value::Null)
}

/// A pair of static probes, and the function that they are in.
const PAIR: &str = "usdt:wallscope_truth:begins..usdt:wallscope_truth:ends";
const BEGINS: &str = "usdt:wallscope_truth:begins";
const PROBED: &str = "calls_probed";

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

fn counted(card: &mut Scorecard, truth: &Truth, said: &Value, name: &str) -> f64 {
    let row = truth.functions.iter().find(|f| f.name == name);
    let calls = row.map_or(f64::NAN, |f| f.calls as f64);
    let seen = number(&function(said, name)["calls"]);
    card.near(format!("{name}: calls"), calls, seen, within(0.0, ""));
    calls
}

/// Rows on the quantiles of lengths.
fn quantiles(card: &mut Scorecard, truth: &Truth, said: &Value) -> Result<(), Error> {
    let timed = function(said, "calls_timed");
    for name in ["p50_ns", "p90_ns", "p99_ns"] {
        let right = truth.extra(name)?;
        let off = 100.0 * (number(&timed["quantiles"][name]) - right) / right;
        let most = QUANTILE + 100.0 * CLOCKS_NS / right;
        card.near(format!("calls_timed: {name}"), 0.0, off, within(most, "%"));
    }
    let right = truth.extra("max_ns")?;
    let off = 100.0 * (number(&timed["max_ns"]) - right) / right;
    card.near("calls_timed: max_ns", 0.0, off, within(QUANTILE, "%"));
    Ok(())
}

/// Rows on ledgers: their sum, and the reason of waits in short and in long calls.
fn ledgers(card: &mut Scorecard, said: &Value) {
    for name in ["calls_timed", "calls_recursive", "calls_tail"] {
        let f = function(said, name);
        let wall = number(&f["wall_ns"]);
        let ledger = &f["ledger"];
        let parts = ["on_cpu_ns", "runnable_ns", "blocked_ns"];
        let sum: f64 = parts.iter().map(|p| number(&ledger[p])).sum();
        let off = 100.0 * (sum - wall) / wall;
        card.near(
            format!("{name}: ledgers against wall"),
            0.0,
            off,
            within(LEDGER, "%"),
        );
    }
    let timed = function(said, "calls_timed");
    // Its short calls sleep, its longest ones wait for a lock.
    for (band, reason) in [("p50", "timer"), ("p99", "lock")] {
        let bands = timed["bands"].as_array();
        let row = bands.and_then(|all| all.iter().find(|b| b["name"] == band));
        let ledger = row.map_or(&Value::Null, |b| &b["ledger"]);
        let blocked = number(&ledger["blocked_ns"]);
        let share = 100.0 * number(&ledger["blocked"][reason]) / blocked;
        card.at_least(
            format!("calls_timed: {band} calls blocked for {reason}"),
            share,
            80.0,
            "%",
        );
    }
}

/// Rows on the time between two static probes.
fn static_probes(card: &mut Scorecard, truth: &Truth, said: &Value) {
    let pair = function(said, PAIR);
    let probed = truth.functions.iter().find(|f| f.name == PROBED);
    let (calls, wall) = probed.map_or((f64::NAN, f64::NAN), |f| (f.calls as f64, f.wall_ns as f64));
    card.near(
        "static probes: pairs",
        calls,
        number(&pair["calls"]),
        within(0.0, ""),
    );
    let off = 100.0 * (number(&pair["wall_ns"]) - wall) / wall;
    // The program's clocks around them cost some, at a millisecond each.
    card.near("static probes: time between", 0.0, off, within(3.0, "%"));
    let ledger = &pair["ledger"];
    let asleep = 100.0 * number(&ledger["blocked"]["timer"]) / number(&ledger["blocked_ns"]);
    card.at_least("static probes: of waits between, asleep", asleep, 95.0, "%");
}

/// Rows on every way out of a function.
fn ways_out(card: &mut Scorecard, truth: &Truth, said: &Value) -> Result<(), Error> {
    // What was thrown passes two frames, and ends where it is caught.
    let thrown = truth.extra("thrown")?;
    for name in ["calls_throwing", "calls_passing"] {
        let ended = &function(said, name)["ended"];
        let seen = number(&ended["by_exception"]);
        card.near(
            format!("{name}: left by exceptions"),
            thrown,
            seen,
            within(0.0, ""),
        );
    }
    let jumped = truth.extra("jumped")?;
    let left = number(&function(said, "calls_jumping")["ended"]["left"]);
    // The last one may not be noticed: nothing comes after it.
    card.near(
        "calls_jumping: left by longjmp",
        jumped,
        left,
        within(1.0, ""),
    );
    let tail = function(said, "calls_tail");
    let long = number(&tail["calls"]) - truth.extra("early")?;
    // That one is timed as well, from the same place on the stack.
    let target = function(said, "calls_tail_target");
    card.near(
        "calls_tail_target: calls",
        long,
        number(&target["calls"]),
        within(0.0, ""),
    );
    let timed = number(&tail["ended"]["with_length"]);
    card.near(
        "calls_tail: timed",
        number(&tail["calls"]),
        timed,
        within(0.0, ""),
    );
    card.at_least(
        "calls_tail: time of what it calls last",
        number(&tail["wall_ns"]),
        long * truth.extra("tail_ns")?,
        "ns",
    );
    Ok(())
}

pub(super) fn calls(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let functions = [
        "calls_timed",
        "calls_recursive",
        "calls_tail",
        "calls_tail_target",
        "calls_jumping",
        "calls_throwing",
        "calls_passing",
        "calls_catching",
    ];
    let asked = [&["latency"], &functions[..], &[PAIR]].concat();
    let (truth, said) = run(tool, &asked, &[], length)?;
    let mut card = Scorecard::default();
    for name in functions {
        let ended = &function(&said, name)["ended"];
        let parts = ["with_length", "left", "too_deep", "still_open"];
        let sum: f64 = parts.iter().map(|p| number(&ended[p])).sum();
        let calls = if ["calls_passing", "calls_tail_target"].contains(&name) {
            number(&function(&said, name)["calls"])
        } else {
            counted(&mut card, &truth, &said, name)
        };
        card.near(format!("{name}: ends"), calls, sum, within(0.0, ""));
    }
    quantiles(&mut card, &truth, &said)?;
    ledgers(&mut card, &said);
    static_probes(&mut card, &truth, &said);
    ways_out(&mut card, &truth, &said)?;
    Ok(card)
}

pub(super) fn counts(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let (truth, said) = run(
        tool,
        &[
            "count",
            "calls_c*",
            "calls_timed",
            "calls_recursive",
            BEGINS,
        ],
        &[],
        length,
    )?;
    let mut card = Scorecard::default();
    for name in [
        "calls_counted",
        "calls_catching",
        "calls_timed",
        "calls_recursive",
    ] {
        counted(&mut card, &truth, &said, name);
    }
    let probed = truth.functions.iter().find(|f| f.name == PROBED);
    let right = probed.map_or(f64::NAN, |f| f.calls as f64);
    let seen = number(&function(&said, BEGINS)["calls"]);
    card.near("a static probe: hits", right, seen, within(0.0, ""));
    let slices = function(&said, "calls_counted")["slices"].as_array();
    let sum: f64 = slices
        .into_iter()
        .flatten()
        .map(|s| number(&s["calls"]))
        .sum();
    let whole = number(&function(&said, "calls_counted")["calls"]);
    card.near("calls_counted: sum over time", whole, sum, within(0.0, ""));
    Ok(card)
}

/// Children that the target forks count too.
pub(super) fn forked(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let short = Length {
        seconds: length.seconds / 3.0,
        ..length
    };
    let (truth, said) = run(tool, &["count", "calls_counted"], &["--forking"], short)?;
    let mut card = Scorecard::default();
    let calls = counted(&mut card, &truth, &said, "calls_counted");
    card.at_least("calls, some of them in children", calls, 150.0, "");
    Ok(card)
}

/// The calls beyond the 95th percentile wait for a lock, the typical ones sleep: stacks and ledgers of
/// both sides, each a recording of its own; of a process that is there, and of a command.
pub(super) fn slow(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let mut card = Scorecard::default();
    for (how, measure) in [
        ("attached", slow_attached as fn(_, &[&str], _) -> _),
        ("command", slow_command),
    ] {
        let folder = tempfile::tempdir().map_err(|e| Error::Start(format!("a folder: {e}")))?;
        let page = folder.path().join("calls.html");
        let page = page.to_string_lossy();
        measure(
            tool,
            &["calls_timed", "--slow", "p95", "-o", &*page],
            length,
        )?;
        sides(tool, folder.path(), how, &mut card)?;
    }
    Ok(card)
}

fn slow_attached(tool: &Tool, arguments: &[&str], length: Length) -> Result<(), Error> {
    let asked = [&["latency"], arguments].concat();
    run(tool, &asked, &[], length).map(|_| ())
}

fn slow_command(tool: &Tool, arguments: &[&str], length: Length) -> Result<(), Error> {
    let mut child = Command::new(tool.path())
        .arg("latency")
        .args(arguments)
        .arg("--")
        .arg(crate::program::path())
        .args(["calls", "--seconds", &length.text()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| Error::Start(format!("latency: {e}")))?;
    // The program's gate is its standard input, which is the tool's: open from the start, and closed at
    // the end by waiting.
    let gate = child.stdin.as_mut().expect("stdin is piped");
    let told = gate.write_all(b"go\n");
    let ended = child.wait();
    let fails = |e: std::io::Error| Error::Output(format!("latency of a command: {e}"));
    told.map_err(fails)?;
    match ended.map_err(fails)? {
        status if status.success() => Ok(()),
        status => Err(Error::Output(format!("latency of a command: {status}"))),
    }
}

/// What the recordings of slow and typical calls in `folder` say.
fn sides(tool: &Tool, folder: &Path, how: &str, card: &mut Scorecard) -> Result<(), Error> {
    for (side, reason) in [("slow", "lock"), ("typical", "timer")] {
        let file = folder.join(format!("calls-{side}.pb.gz"));
        let file = file.to_string_lossy();
        let read = |verb: &[&str]| -> Result<String, Error> {
            let output = tool.run(&[&[verb[0], &*file], &verb[1..]].concat())?;
            let said = String::from_utf8_lossy(&output.stderr);
            if !output.status.success() {
                return Err(Error::Output(format!("{verb:?}: {said}")));
            }
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        };
        let report: Value = serde_json::from_str(&read(&["report", "--json"])?)
            .map_err(|e| Error::Output(format!("report --json: {e}")))?;
        let threads = report["threads"].as_array().into_iter().flatten();
        // On a busy machine calls are slow for want of a CPU too, which is not asked here.
        let (mut blocked, mut for_it) = (0.0, 0.0);
        for t in threads {
            blocked += number(&t["blocked_ns"]);
            for_it += t["blocked"][reason].as_f64().unwrap_or(0.0);
        }
        let share = 100.0 * for_it / blocked;
        card.at_least(
            format!("{how}: {side} calls: of blocked time, {reason}"),
            share,
            60.0,
            "%",
        );
        // Every stack within a call has its function on it.
        let folded = read(&["export", "--format", "folded", "--view", "wall"])?;
        let (mut all, mut within) = (0.0, 0.0);
        for line in folded.lines().filter(|l| !l.starts_with('[')) {
            let (stack, ns) = line.rsplit_once(' ').unwrap_or((line, "0"));
            let ns: f64 = ns.parse().unwrap_or(0.0);
            all += ns;
            within += if stack.contains("calls_timed") {
                ns
            } else {
                0.0
            };
        }
        let share = 100.0 * within / all;
        let what = format!("{how}: {side} calls: stacks through it");
        card.at_least(what, share, 95.0, "%");
    }
    let text = std::fs::read_to_string(folder.join("calls.html")).unwrap_or_default();
    let drawn = text.contains("calls_timed") && text.contains("</html>");
    card.at_least(
        format!("{how}: the flame graph is drawn"),
        f64::from(u8::from(drawn)),
        1.0,
        "",
    );
    Ok(())
}
