//! What goes wrong on the way: threads that come and go, permission that is lost, a target of another
//! kind, and the end of wallscope itself.

use std::{
    fs,
    io::Write as _,
    os::{fd::AsRawFd as _, unix::fs::PermissionsExt as _},
    process::{Command, Stdio},
    time::Duration,
};

use wallscope_testkit::{
    Error, Program, folded, program,
    score::chance,
    tool::{Tool, no_panic},
    truth::FunctionTruth,
};

use crate::{
    place::{Place, program_of_32_bits},
    run::{Outcome, attach, folder, measured, start, tool},
};

/// Promised of shares of threads that live 1 to 2 ms, without kernel programs, percentage points.
const PROMISE: f64 = 2.0;

/// With fewer samples their error leaves nothing to hold. Threads that compute for less than a period had 0 to 3.
const MIN_SAMPLES: u64 = 10;

#[test]
fn threads_that_live_a_millisecond() {
    let Some(tool) = tool() else { return };
    measured("short lives by perf", || {
        let o = attach(&tool, Place::Root, &["--backend", "perf"], "short")?;
        let lost: u64 = o.report.losses.iter().map(|l| l.count).sum();
        let (mut seen, mut late) = (0, 0);
        for t in &o.truth.threads {
            let Some(known) = o.report.thread(t.pid, t.tid) else {
                continue;
            };
            seen += 1;
            // Birth and death enclose its own times.
            let own = t.end_ns.saturating_sub(t.start_ns);
            late += usize::from(t.end_ns > 0 && known.wall_ns < own);
        }
        let all = o.truth.threads.len();
        // A record that did not fit may have been that of a birth or an end.
        if seen * 100 < all * 99 || late * 100 > all {
            return Err(Error::Output(format!(
                "{seen} of {all} seen, {late} with less than their lives; {lost} losses"
            )));
        }
        // Few of them are polled: their waits stand for all.
        let slept: u64 = (o.truth.functions.iter())
            .filter(|f| f.reason == "timer")
            .map(FunctionTruth::blocked_ns)
            .sum();
        let reason = |reason: &str| -> u64 {
            (o.report.threads.iter())
                .filter_map(|t| t.blocked.get(reason))
                .sum()
        };
        let (timer, other) = (reason("timer"), reason("other"));
        let waits = o.report.views.get("off-cpu").copied().unwrap_or_default();
        let percent = |ns: u64| 100.0 * ns as f64 / waits.total_ns as f64;
        let limit = PROMISE + chance::binomial(percent(slept) / 100.0, waits.samples as f64);
        let is_near = (percent(timer) - percent(slept)).abs() <= limit;
        if !is_near || other * 100 > slept {
            return Err(Error::Output(format!(
                "{:.1} % of blocked time is sleep, {other} ns of no known reason; truth {:.1} % ± {limit:.1} \
                 by {} looks",
                percent(timer),
                percent(slept),
                waits.samples
            )));
        }
        Ok(format!("{seen} of {all} threads, with their whole lives"))
    });
    for place in [Place::Root, Place::User] {
        measured(
            &format!("what short lives compute, by perf as {place:?}"),
            || computing_of_short_lives(&attach(&tool, place, &["--backend", "perf"], "short")?),
        );
    }
    measured("short lives by proc", || {
        let o = attach(&tool, Place::Root, &["--backend", "proc"], "short")?;
        let known: u64 = o.report.threads.iter().map(|t| t.on_cpu_ns).sum();
        let rest = o.processes[0]["unattributed_on_cpu_ns"].as_u64();
        let rest = rest.unwrap_or_default();
        let truth: u64 = o.truth.threads.iter().map(|t| t.on_cpu_ns).sum();
        // Birth and death, which no thread can time from inside, are on-CPU time as well.
        if rest == 0 || known + rest < truth {
            return Err(Error::Output(format!("{known} and {rest} ns of {truth}")));
        }
        Ok(format!(
            "{:.0} % of on-CPU time without a thread",
            rest as f64 * 100.0 / (known + rest) as f64
        ))
    });
}

/// The share of a function in which threads compute for less than a sampling period. An ordinary user samples user code
/// only, of which the function has more than of all computing.
fn computing_of_short_lives(o: &Outcome) -> Result<String, Error> {
    let lines = || o.stacks.iter().filter(|l| l.state == "on_cpu");
    let sum = |lines: &mut dyn Iterator<Item = &folded::Line>| lines.map(|l| l.ns).sum::<u64>();
    let all = sum(&mut lines());
    let sampled = sum(&mut lines().filter(|l| !l.is_unsampled()));
    let computed = sum(&mut lines().filter(|l| l.contains("short_compute")));
    let known: u64 = o.report.threads.iter().map(|t| t.on_cpu_ns).sum();
    let own = o
        .truth
        .functions
        .iter()
        .filter(|f| f.name == "short_compute");
    let truth = 100.0 * own.map(|f| f.on_cpu_ns).sum::<u64>() as f64 / known as f64;
    let samples = o.report.views.get("on-cpu").map_or(0, |view| view.samples);
    let limit = PROMISE + chance::binomial(truth / 100.0, samples as f64);
    let with_kernel = !o.domain["limits"]
        .to_string()
        .contains("may sample user code only");
    let share = 100.0 * computed as f64 / if with_kernel { all } else { sampled.max(1) } as f64;
    let is_near = share >= truth - limit && (share <= truth + limit || !with_kernel);
    let told = format!("{share:.1} %, truth {truth:.1} % ± {limit:.1} by {samples} samples");
    match is_near && samples >= MIN_SAMPLES {
        true => Ok(told),
        false => Err(Error::Output(told)),
    }
}

/// The end of the target may fall anywhere between two rounds of looks.
#[test]
fn commands_that_end_at_any_moment() {
    let Some(tool) = tool() else { return };
    let folder = folder();
    let file = folder.path().join("recording.pb.gz");
    let file = file.to_str().expect("a plain path");
    for backend in ["perf", "proc"] {
        for lasts in 0..30 {
            let command = format!("exec sleep 0.0{lasts:02}");
            let options = ["record", "--backend", backend, "-o", file, "--"];
            let output = (tool.run(&[&options[..], &["sh", "-c", &command]].concat()))
                .expect("it can be started");
            let said = String::from_utf8_lossy(&output.stderr);
            if output.status.code() == Some(3) {
                println!("skipped: {said}");
                break;
            }
            no_panic(&said);
            assert!(output.status.success(), "{command}: {said}");
            let report = tool.run(&["report", file]).expect("it can be started");
            assert!(report.status.success(), "{command}: {report:?}");
            // Before its start it waited for us, which is no time of its own but for the moment of being woken.
            let folded = ["export", "--format", "folded", "--view", "off-cpu", file];
            let stacks = tool.run(&folded).expect("it can be started");
            let stacks = String::from_utf8_lossy(&stacks.stdout);
            let at_our_gate = (stacks.lines())
                .filter(|line| line.contains("Held::start"))
                .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
            assert!(at_our_gate.sum::<u64>() < 5_000_000, "{command}: {stacks}");
        }
    }
}

/// Like a program that is sent to a machine to run there, or that protects itself against writes.
#[test]
fn a_program_that_is_in_no_file_has_names() {
    let Some(tool) = tool() else { return };
    for backend in ["ebpf", "perf", "proc"] {
        measured(&format!("a program in memory by {backend}"), || {
            let failed = |e: std::io::Error| Error::CannotRunHere(e.to_string());
            let memory = rustix::fs::memfd_create("truth", rustix::fs::MemfdFlags::empty());
            let mut memory = fs::File::from(memory.map_err(|e| failed(e.into()))?);
            let program = fs::read(program::path()).map_err(failed)?;
            memory.write_all(&program).map_err(failed)?;
            let at = format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd());
            let folder = folder();
            let file = folder.path().join("rec.pb.gz");
            let file = file.to_str().expect("a plain path");
            let how = ["record", "--backend", backend, "-o", file, "--"];
            tool.run(&[&how[..], &[&at, "mix", "--seconds", "2"]].concat())?;
            let report = tool.run(&["report", "--json", file])?;
            let report: serde_json::Value =
                serde_json::from_slice(&report.stdout).map_err(|e| Error::Output(e.to_string()))?;
            let functions = report["functions"]
                .as_array()
                .map_or(&[][..], Vec::as_slice);
            let named = functions.iter().find(|f| f["name"] == "mix_sleep");
            match named.map(|f| f["module"].as_str().unwrap_or_default()) {
                Some(module) if module.contains("memfd:truth") => Ok(module.to_owned()),
                other => Err(Error::Output(format!("mix_sleep of {other:?}"))),
            }
        });
    }
}

/// The kernel takes its events away when it begins, which looks like its end.
#[test]
fn a_setuid_command_is_measured_to_its_end() {
    let Some(tool) = tool() else { return };
    for backend in ["perf", "proc"] {
        measured(&format!("setuid by {backend}"), || {
            let failed = |e: std::io::Error| Error::CannotRunHere(e.to_string());
            let folder = folder();
            let (program, file) = (folder.path().join("sleep"), folder.path().join("rec.pb.gz"));
            fs::copy("/bin/sleep", &program).map_err(failed)?;
            fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).map_err(failed)?;
            let mut command = Command::new(tool.path());
            command
                .args(["record", "--backend", backend, "-o"])
                .arg(&file);
            command.arg("--").arg(&program).arg("1");
            Place::User.enter(&mut command);
            let output = command.output().map_err(failed)?;
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            match output.status.code() {
                Some(0) => {}
                Some(3) => return Err(Error::CannotRunHere(said)),
                _ => return Err(Error::Output(format!("{}: {said}", output.status))),
            }
            let report = Command::new(tool.path())
                .args(["report", "--json"])
                .arg(&file)
                .output()
                .map_err(failed)?;
            let report: serde_json::Value =
                serde_json::from_slice(&report.stdout).map_err(|e| Error::Output(e.to_string()))?;
            // It sleeps for a second, whatever it may do.
            let wall = report["threads"][0]["wall_ns"].as_u64().unwrap_or(0);
            if wall < 980_000_000 {
                return Err(Error::Output(format!("{wall} ns of a second: {said}")));
            }
            // What passed between its last record and the first look without any has a state too.
            let residue = report["threads"][0]["residue_ns"]
                .as_i64()
                .unwrap_or(i64::MAX);
            if residue.unsigned_abs() * 1000 > wall {
                return Err(Error::Output(format!(
                    "{residue} ns of {wall} have no state"
                )));
            }
            // The thread has the command's name, and not that of the process that started it.
            let name = &report["threads"][0]["name"];
            if name != "sleep" {
                return Err(Error::Output(format!("its thread is called {name}")));
            }
            Ok(format!("{} ms", wall / 1_000_000))
        });
    }
}

/// How long those that a shell's `script` calls `sleep` were seen by `/proc`, ms.
fn sleeps(tool: &Tool, options: &[&str], script: &str) -> Result<Vec<u64>, Error> {
    let folder = folder();
    let file = folder.path().join("rec.pb.gz");
    let file = file.to_str().expect("a plain path");
    let how = ["record", "--backend", "proc", "-o", file];
    tool.run(&[&how[..], options, &["--", "sh", "-c", script]].concat())?;
    let report = tool.run(&["report", "--json", file])?;
    let report: serde_json::Value =
        serde_json::from_slice(&report.stdout).map_err(|e| Error::Output(e.to_string()))?;
    let threads = report["threads"].as_array().map_or(&[][..], Vec::as_slice);
    let lives = (threads.iter())
        .filter(|t| t["name"] == "sleep")
        .filter_map(|t| Some(t["wall_ns"].as_u64()? / 1_000_000));
    Ok(lives.collect())
}

/// Nobody of those that are left is a child of theirs.
#[test]
fn children_whose_parent_has_ended_are_found() {
    const ORPHANS: &str = "(sleep 0.8 &); (setsid sleep 0.8 &); sleep 1";
    let Some(tool) = tool() else { return };
    measured("orphans by proc", || {
        let mut lives = sleeps(&tool, &[], ORPHANS)?;
        lives.sort_unstable();
        let [one, other, own] = lives[..] else {
            return Err(Error::Output(format!("3 sleeps: {lives:?} ms")));
        };
        if [one, other].iter().any(|ms| ms.abs_diff(800) > 120) || own.abs_diff(1000) > 120 {
            return Err(Error::Output(format!("800, 800, 1000 ms: {lives:?} ms")));
        }
        Ok(format!("{lives:?} ms"))
    });
}

/// Their parent sleeps when they are born, and each of them until it ends.
#[test]
fn children_that_live_for_a_few_looks_are_seen_for_as_long() {
    const SLEEPS: &str = "for i in 1 2 3 4 5 6 7 8; do sleep 0.15; done";
    let Some(tool) = tool() else { return };
    measured("short children by proc", || {
        let lives = sleeps(&tool, &["--max-overhead", "25"], SLEEPS)?;
        // Of each, up to a round at its begin and some at its end are guessed: the middle.
        let all: u64 = lives.iter().sum();
        if lives.len() < 8 || !(1080..=1320).contains(&all) {
            return Err(Error::Output(format!("8 sleeps of 150 ms: {lives:?} ms")));
        }
        Ok(format!("{lives:?} ms"))
    });
}

#[test]
fn permission_that_is_lost_half_way() {
    let Some(tool) = tool() else { return };
    for backend in ["perf", "proc"] {
        measured(&format!("veil by {backend}"), || {
            let o = attach(&tool, Place::User, &["--backend", backend], "veil")?;
            let told = crate::run::judge(&o, backend, 0.5)?;
            let limits = o.domain["limits"].to_string();
            if !limits.contains("reading them is refused") {
                return Err(Error::Output(limits));
            }
            Ok(told)
        });
    }
}

#[test]
fn a_program_of_32_bits_is_refused() {
    let Some(tool) = tool() else { return };
    let folder = folder();
    let path = folder.path().join("program");
    program_of_32_bits(&path).expect("it can be written");
    let mut child = match Command::new(&path).stdin(Stdio::null()).spawn() {
        Ok(child) => child,
        Err(e) => return println!("skipped: this machine runs no 32-bit programs: {e}"),
    };
    let pid = child.id().to_string();
    let running = ["-p", &pid];
    let to_start = ["--", path.to_str().expect("a plain path")];
    for backend in ["ebpf", "perf", "proc"] {
        for target in [running, to_start] {
            let file = folder.path().join("out");
            let file = file.to_str().expect("a plain path");
            let options = ["record", "--backend", backend, "-d1", "-o", file];
            let output = tool.run(&[&options[..], &target].concat());
            let output = output.expect("it starts");
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(3), "{said}");
            assert!(said.contains("32-bit"), "{said}");
        }
    }
    child.kill().expect("it is ours");
    child.wait().expect("it is ours");
}

#[test]
fn stops_show_running_stacks_and_are_accounted_for() {
    let Some(tool) = tool() else { return };
    measured("--allow-stop", || {
        let more = ["--backend", "proc", "--allow-stop", "--max-overhead", "5"];
        let o = attach(&tool, Place::Root, &more, "shares")?;
        let told = crate::run::judge(&o, "proc", 0.5)?;
        let on_cpu: Vec<_> = o.stacks.iter().filter(|l| l.state == "on_cpu").collect();
        let all: u64 = on_cpu.iter().map(|l| l.ns).sum();
        let named = on_cpu.iter().filter(|l| l.contains("shares_run"));
        let named: u64 = named.map(|l| l.ns).sum();
        let stopped = o.cost["target_stopped_ns"].as_u64().unwrap_or_default();
        if named * 10 < all * 8 || stopped == 0 {
            return Err(Error::Output(format!(
                "{named} of {all} ns, {stopped} stopped"
            )));
        }
        Ok(format!(
            "{told}, stopped for {:.3} ms",
            stopped as f64 / 1e6
        ))
    });
    // Without permission nothing is stopped.
    measured("no --allow-stop", || {
        let o = attach(&tool, Place::Root, &["--backend", "proc"], "mix")?;
        assert_eq!(o.cost["target_stopped_ns"], 0);
        Ok("nothing was stopped".into())
    });
}

/// The threads of a process that stand still, or have a tracer.
fn held(pid: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it lives");
    let texts = tasks
        .flatten()
        .map(|task| fs::read_to_string(task.path().join("status")).unwrap_or_default());
    texts
        .filter(|text| !text.contains("TracerPid:\t0") || text.contains("(tracing stop)"))
        .collect()
}

#[test]
fn nobody_stays_stopped_when_wallscope_is_killed() {
    let Some(tool) = tool() else { return };
    let mut program = Program::start("mix", &["--seconds", "600"]).expect("it starts");
    program.release().expect("it runs");
    let pid = program.pids()[0];
    let arguments = [
        "--backend",
        "proc",
        "--allow-stop",
        "-F",
        "4999",
        "--max-overhead",
        "100",
    ];
    let folder = folder();
    for turn in 0..8u64 {
        let mut arguments: Vec<_> = arguments.iter().map(Into::into).collect();
        arguments.extend(["-p".into(), pid.to_string().into()]);
        let file = folder.path().join("out");
        let recording = match start(&tool, Place::Root, &file, &arguments) {
            Ok(recording) => recording,
            Err(e) => panic!("{e}"),
        };
        // At another point of its work each time; none of them may matter.
        std::thread::sleep(Duration::from_micros(20_000 + turn * 1_700));
        // SIGKILL, and waited for: by then the kernel has let go of whatever it traced.
        drop(recording);
        let mut left = held(pid);
        for _ in 0..1000 {
            if left.is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
            left = held(pid);
        }
        assert!(left.is_empty(), "turn {turn}: {left:?}");
    }
}

#[test]
fn the_limit_lowers_the_rate_of_perf_samples_and_the_domain_says_so() {
    let Some(tool) = tool() else { return };
    measured("--max-overhead", || {
        let more = ["--backend", "perf", "-F", "1999", "--max-overhead", "0.05"];
        let o = attach(&tool, Place::Root, &more, "mix")?;
        let events = o.domain["events"].to_string();
        let rate = events.split("asked, ").nth(1).unwrap_or_default();
        let rate: f64 = rate
            .split(' ')
            .next()
            .and_then(|n| n.parse().ok())
            .ok_or_else(|| Error::Output(events.clone()))?;
        if rate > 1000.0 {
            return Err(Error::Output(format!("{rate} Hz: {events}")));
        }
        let told = crate::run::judge(&o, "perf", 0.2)?;
        Ok(format!("{rate} of 1999 Hz; {told}"))
    });
}
