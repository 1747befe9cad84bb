//! Targets that end, or begin another program, while they are measured, and measurements that are
//! stopped: measured time is kept and printed, and missing time is stated.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use wallscope_testkit::probing::Prober;
use wallscope_testkit::{Error, Program, Tool, program, with_tool};

/// A process with one busy function, and its parent, which leaves it a zombie when it has ended.
struct Victim {
    _program: Program,
    pid: u32,
}

impl Victim {
    fn start() -> Result<Victim, Error> {
        let mut command = Command::new(program::path());
        command.args(["trouble", "--case", "storm", "--seconds", "600", "--hold"]);
        let mut program = Program::start_command("storm", command)?;
        program.release()?;
        let pid = program.pids()[1];
        let victim = Victim {
            _program: program,
            pid,
        };
        // It runs the function, and no code before it.
        victim.computes(Duration::from_millis(20))?;
        Ok(victim)
    }

    fn id(&self) -> String {
        self.pid.to_string()
    }

    /// Waits until it has computed for `time` more.
    fn computes(&self, time: Duration) -> Result<(), Error> {
        let computed = || -> u64 {
            let text = fs::read_to_string(format!("/proc/{}/schedstat", self.pid));
            let text = text.unwrap_or_default();
            text.split(' ')
                .next()
                .and_then(|n| n.parse().ok())
                .unwrap_or(0)
        };
        let wanted = computed() + time.as_nanos() as u64;
        until("the victim computes", || computed() >= wanted)
    }

    fn ends(&self) {
        if let Some(pid) = Pid::from_raw(self.pid as i32) {
            kill_process(pid, Signal::KILL).expect("it is ours");
        }
    }
}

/// Waits until `is` is so.
fn until(what: &str, is: impl Fn() -> bool) -> Result<(), Error> {
    let begin = Instant::now();
    while !is() {
        if begin.elapsed() > Duration::from_secs(60) {
            return Err(Error::Protocol(format!("it is never so that {what}")));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// What the tool prints on standard output once it has ended with `status`.
fn printed(prober: Prober, status: i32) -> Result<String, Error> {
    let (code, text, said) = prober.ends()?;
    match code {
        Some(code) if code == status => Ok(text),
        Some(3) => Err(Error::CannotRunHere(said)),
        code => Err(Error::Output(format!("status {code:?}: {text}{said}"))),
    }
}

fn json(text: &str) -> Result<Value, Error> {
    serde_json::from_str(text).map_err(|e| Error::Output(format!("{e}: {text}")))
}

fn check(is: bool, what: &str, told: &Value) -> Result<(), Error> {
    match is {
        true => Ok(()),
        false => Err(Error::Output(format!("not so: {what}: {told:#}"))),
    }
}

fn names_its_own(told: &Value) -> Result<(), Error> {
    let named = told["verdict"]["function"] == HOT;
    check(named, "a function of its own", told)
}

const RECORDING: &str = "wallscope: recording";
const MEASURING: &str = "wallscope: measuring";
/// Where it spends its time, whatever else the machine does; called some hundred times a second.
const HOT: &str = "storm_touch";

/// What the ladder prints where the victim ends as soon as it has said `lines`, in this order.
fn climbed(tool: &Tool, seconds: &str, lines: &[&str], form: &str) -> Result<String, Error> {
    let victim = Victim::start()?;
    let folder = tempfile::tempdir().map_err(|e| Error::Start(e.to_string()))?;
    let file = folder.path().join("out.pb.gz");
    let (pid, file) = (victim.id(), file.to_string_lossy());
    let mut arguments = vec!["ladder", "-p", &pid, "-o", &file, "-d", seconds, "--go"];
    arguments.extend(["--max-overhead", "50", form]);
    let mut prober = Prober::spawn(tool, &arguments)?;
    for line in lines {
        prober.until(line)?;
    }
    if *lines == [RECORDING] {
        victim.computes(Duration::from_millis(200))?;
    }
    victim.ends();
    printed(prober, 0)
}

#[test]
fn before_measuring_begins() {
    with_tool("a target that ends first", |tool| {
        for verb in [
            &["ladder", "-o", "/dev/null"][..],
            &["count", HOT, "-d", "60"],
        ] {
            let victim = Victim::start()?;
            let prober = Prober::spawn(tool, &[verb, &["-p", &victim.id()]].concat())?;
            // The tool has found it, and prepares.
            let folder = format!("/proc/{}/fd", prober.pid());
            until("the tool holds on to the victim", || {
                let all = fs::read_dir(&folder).into_iter().flatten().flatten();
                let mut all = all.filter_map(|fd| fs::read_link(fd.path()).ok());
                all.any(|to| to.to_string_lossy().contains("pidfd"))
                    || !fs::exists(&folder).unwrap_or(false)
            })?;
            victim.ends();
            let (code, text, said) = prober.ends()?;
            match code {
                Some(3) => return Err(Error::CannotRunHere(said)),
                // Preparing was quicker.
                Some(0) if text.contains("the target ended") => {}
                Some(4) if said.contains(&format!("no process with pid {}", victim.pid)) => {}
                _ => return Err(Error::Output(format!("{code:?}: {text}{said}"))),
            }
        }
        Ok(())
    });
}

#[test]
fn on_the_second_rung() {
    with_tool("a target that ends on rung 2", |tool| {
        let told = json(&climbed(tool, "60", &[RECORDING], "--json")?)?;
        check(told["ended"]["rung"] == 2, "on rung 2", &told)?;
        names_its_own(&told)?;
        let missing = told["ended"]["missing"].to_string();
        let both = missing.contains("how often") && missing.contains("how long");
        check(both, "both are missing", &told)?;
        check(told["rungs"].is_null(), "no rungs", &told)?;
        let probes = told["probes"].to_string();
        check(probes.contains("-p PID"), "no pid that is gone", &told)
    });
}

#[test]
fn before_the_third_rung() {
    with_tool("a target that ends before rung 3", |tool| {
        let text = climbed(tool, "500ms", &["wallscope: rung 3"], "--explain")?;
        let words = [HOT, "the target ended: on rung 3, ", "-p PID"];
        match words.iter().find(|words| !text.contains(**words)) {
            None => Ok(()),
            Some(words) => Err(Error::Output(format!("{words} is missing: {text}"))),
        }
    });
}

#[test]
fn on_the_third_rung() {
    with_tool("a target that ends on rung 3", |tool| {
        let lines = ["wallscope: rung 3", MEASURING];
        let told = json(&climbed(tool, "500ms", &lines, "--json")?)?;
        check(told["ended"]["rung"] == 3, "on rung 3", &told)?;
        names_its_own(&told)?;
        let first = &told["rungs"]["counted"][0];
        check(first["function"] == HOT, "a function of its own", &told)?;
        check(first["per_second"].is_number(), "it was counted", &told)?;
        let missing = told["ended"]["missing"].to_string();
        check(
            missing.contains("how long calls of storm_touch"),
            "it was not timed",
            &told,
        )
    });
}

#[test]
fn on_the_fourth_rung() {
    with_tool("a target that ends on rung 4", |tool| {
        let lines = ["wallscope: rung 4", MEASURING];
        let told = json(&climbed(tool, "500ms", &lines, "--json")?)?;
        check(told["ended"]["rung"] == 4, "on rung 4", &told)?;
        check(
            told["ended"]["missing"] == serde_json::json!([]),
            "nothing is missing",
            &told,
        )?;
        let timed = &told["rungs"]["timed"]["functions"][0];
        check(timed["name"] == HOT, "calls were timed", &told)
    });
}

#[test]
fn a_signal_ends_the_climb() {
    with_tool("a climb that is stopped", |tool| {
        let victim = Victim::start()?;
        let folder = tempfile::tempdir().map_err(|e| Error::Start(e.to_string()))?;
        let file = folder.path().join("out.pb.gz");
        let (pid, file) = (victim.id(), file.to_string_lossy());
        let fixed = ["ladder", "-p", &pid, "-o", &file, "--max-overhead", "50"];
        for (seconds, lines, rung) in [
            ("60", &[RECORDING][..], 2),
            ("500ms", &["wallscope: rung 3", MEASURING], 3),
        ] {
            let more = ["-d", seconds, "--go", "--json"];
            let mut prober = Prober::spawn(tool, &[&fixed[..], &more].concat())?;
            for line in lines {
                prober.until(line)?;
            }
            victim.computes(Duration::from_millis(200))?;
            let told = prober.stop()?;
            let by = &told["ended"];
            check(by["by"] == "signal" && by["rung"] == rung, "stopped", &told)?;
            names_its_own(&told)?;
            let missing = by["missing"].to_string();
            check(missing.contains("how long"), "it was not timed", &told)?;
            let probes = told["probes"].to_string();
            check(probes.contains(&format!("-p {pid}")), "it is there", &told)?;
        }
        Ok(())
    });
}

#[test]
fn while_another_verb_measures() {
    with_tool("a target that ends", |tool| {
        for (verb, live) in [
            (&["count", HOT, "--max-overhead", "50"][..], MEASURING),
            (&["latency", HOT, "--max-overhead", "50"], MEASURING),
            (&["stat"], "wallscope: counting"),
            (&["calibrate", "-o", "/dev/null"], RECORDING),
        ] {
            let victim = Victim::start()?;
            let fixed = ["-p", &victim.id(), "-d", "60", "--json"];
            let mut prober = Prober::spawn(tool, &[verb, &fixed].concat())?;
            prober.until(live)?;
            victim.computes(Duration::from_millis(200))?;
            victim.ends();
            let told = json(&printed(prober, 0)?)?;
            match verb[0] {
                "stat" => {
                    let figures = told["figures"].as_array();
                    let on_cpu = figures.and_then(|all| all.iter().find(|f| f["name"] == "on_cpu"));
                    let ns = on_cpu.and_then(|f| f["values"][0].as_f64());
                    check(ns.is_some_and(|ns| ns > 0.1e9), "its time", &told)?;
                }
                "calibrate" => check(told.to_string().contains(HOT), HOT, &told)?,
                _ => {
                    let calls = told["functions"][0]["calls"].as_u64();
                    check(calls.is_some_and(|n| n > 0), "its calls", &told)?;
                    let notes = told["domain"]["notes"].to_string();
                    check(notes.contains("the target ended after"), "its end", &told)?;
                }
            }
        }
        // Before one interval of the live view was over.
        let truth = program::path().to_string_lossy();
        let command = [&*truth, "fixed", "--units", "100"];
        let fixed = ["top", "--once", "-I", "60s", "--idle", "show", "--"];
        let text = printed(Prober::spawn(tool, &[&fixed[..], &command].concat())?, 0)?;
        match text.contains("fixed") {
            true => Ok(()),
            false => Err(Error::Output(format!("top shows nothing of it: {text}"))),
        }
    });
}

#[test]
fn another_program_begins() {
    with_tool("a target that execs", |tool| {
        let mut shell = Command::new("sh")
            .args(["-c", "read line; exec sleep 600"])
            .stdin(Stdio::piped())
            .spawn()
            .map_err(|e| Error::Start(format!("sh: {e}")))?;
        let mut input = shell.stdin.take().expect("it is piped");
        let pid = shell.id().to_string();
        let measured = (|| {
            let prober = Prober::start(tool, &["count", "libc:malloc", "-p", &pid])?;
            input
                .write_all(b"go\n")
                .map_err(|e| Error::Start(e.to_string()))?;
            let name = format!("/proc/{pid}/comm");
            until("sh has become sleep", || {
                fs::read_to_string(&name).is_ok_and(|name| name.trim() == "sleep")
            })?;
            prober.stop()
        })();
        // Both without effect on one that has ended.
        let _ = shell.kill();
        let _ = shell.wait();
        let told = measured?;
        let limits = told["domain"]["limits"].to_string();
        check(
            limits.contains("began another program"),
            "it is said",
            &told,
        )
    });
}
