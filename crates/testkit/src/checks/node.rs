//! Node.js: JavaScript functions by V8's perf map, and stacks through V8's own code.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::score::stacks;
use crate::tool::{Options, Run};
use crate::{Error, Program, Scorecard, Tool};

use super::Length;

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/node/truth.js");
/// Promised of user stacks, percent of sampled time.
const WHOLE: f64 = 99.0;

pub(super) fn node(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let there = Command::new("node")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if there.is_err() {
        return Err(Error::CannotRunHere("Node.js is not installed".into()));
    }
    let mut command = Command::new("node");
    command
        .args(["--perf-basic-prof", "--interpreted-frames-native-stack"])
        // Where an inlined function's time goes cannot be told from a perf map.
        .arg("--no-turbo-inlining")
        .args([PROGRAM, "--seconds", &format!("{}", length.seconds)]);
    let mut program = Program::start_command("truth.js", command)?;
    let recorder = tool.attach(program.pids(), &Options::at(499))?;
    program.release()?;
    let truth = program.truth(Duration::from_secs(120))?;
    let recorded = recorder.stop()?;
    let map = format!("/tmp/perf-{}.map", program.pids()[0]);
    program.finish()?;
    // V8 leaves it behind.
    let _ = std::fs::remove_file(map);
    let run = Run::read(truth, recorded)?;
    let mut card = Scorecard::default();
    card.rows
        .extend(stacks::whole(&run.stacks, |_| true, WHOLE).rows);
    let under = |name: &str| -> f64 {
        let named = |f: &crate::folded::Frame| {
            let bare = f.name.trim_start_matches("JS:");
            let bare = bare.trim_start_matches(['*', '~', '^', '+']);
            bare.split(' ').next() == Some(name)
        };
        let of = run.stacks.iter().filter(|l| l.state == "on_cpu");
        let of = of.filter(|l| l.frames.iter().any(named));
        of.map(|l| l.ns as f64).sum()
    };
    let (heavy, light) = (under("jsHeavy"), under("jsLight"));
    // By chance at 499 Hz, two and a half standard deviations of so much time.
    let samples = (heavy + light) / 1e9 * 499.0;
    let chance = 250.0 * (0.75 * 0.25 / samples).sqrt();
    card.near(
        "jsHeavy of it and jsLight, on-cpu",
        75.0,
        100.0 * heavy / (heavy + light),
        chance.max(1.5),
        "%",
    );
    card.at_least("under jsNative", under("jsNative") / 1e6, 1.0, "ms");
    Ok(card)
}
