//! `wallscope calibrate` and `wallscope stat` on programs that know their own totals.

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use wallscope_testkit::report::Thread;
use wallscope_testkit::score::ledger::{Limits, like_the_kernel};
use wallscope_testkit::tool::Options;
use wallscope_testkit::{Error, Program, program, with_tool_alone, wrong};

fn parsed(output: &[u8]) -> Result<Value, Error> {
    let text = String::from_utf8_lossy(output);
    serde_json::from_str(&text).map_err(|e| wrong(format!("no JSON ({e}): {text}")))
}

fn ended(output: &Output, status: i32) -> Result<(), Error> {
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(code) if code == status => Ok(()),
        Some(3) => Err(Error::CannotRunHere(said.into())),
        code => Err(wrong(format!("status {code:?}, not {status}: {said}"))),
    }
}

/// A figure's mean.
fn figure(stat: &Value, name: &str) -> Result<f64, Error> {
    let all = stat["figures"].as_array();
    let found = all.and_then(|all| all.iter().find(|f| f["name"] == name));
    found
        .and_then(|f| f["mean"].as_f64())
        .ok_or_else(|| wrong(format!("no figure {name} in {stat}")))
}

#[test]
fn a_lock_convoy_is_beyond_any_cpu_work() {
    with_tool_alone("calibrate convoy", |tool| {
        let run = tool.measure("convoy", &["--seconds", "2"], &Options::at(199))?;
        let c = run.recorded.json(&["calibrate"])?;
        let ns = |key: &str| c[key].as_u64().unwrap_or(0);
        // Both from the same ledgers, but for idle time.
        let parts = ns("on_cpu_ns") + ns("runnable_ns") + ns("blocked_ns") + ns("unknown_ns");
        let functions = c["functions"].as_array().cloned().unwrap_or_default();
        let sum: u64 = functions.iter().filter_map(|f| f["wall_ns"].as_u64()).sum();
        if parts != ns("wall_ns") || sum != parts {
            return Err(wrong(format!("the parts do not sum: {c:#}")));
        }
        // The kernel's count for the program's threads, and on top of it the time that the kernel leaves out: the
        // host's and the interrupts'. The main thread, which keeps no count, wakes up and ends within the recording
        // too.
        let counted = |thread: &Thread| {
            let own = run.truth.threads.iter().find(|own| own.tid == thread.tid);
            let all = thread.on_cpu_ns as f64;
            own.map_or(all, |own| {
                let kernel = own.on_cpu_ns as f64;
                kernel + all - like_the_kernel(thread, kernel)
            })
        };
        let wall = ns("wall_ns").max(1) as f64;
        let truth = run.report.threads.iter().map(counted).sum::<f64>() / wall;
        let told = c["on_cpu_fraction"].as_f64().unwrap_or(-1.0);
        let all: u64 = run.report.threads.iter().map(|t| t.wall_ns).sum();
        let limit = Limits::default().counters_ppm * 1e-6 * all as f64 / wall;
        if (told - truth).abs() > limit {
            return Err(wrong(format!(
                "on-CPU fraction {told:.5}, by the kernel's count {truth:.5} ± {limit:.5}"
            )));
        }
        let first = functions.first().map(|f| f["name"].to_string());
        if !first.as_ref().is_some_and(|name| name.contains("convoy_")) {
            return Err(wrong(format!("first is {first:?}: {c:#}")));
        }
        Ok(())
    });
}

#[test]
fn the_bundled_service_teaches_its_lesson() {
    with_tool_alone("calibrate", |tool| {
        let folder = tempfile::tempdir().map_err(|e| wrong(e.to_string()))?;
        let file = folder.path().join("demo.pb.gz");
        let file = file.to_str().unwrap_or_default();
        let output = tool.run(&["calibrate", "-d", "2", "-o", file, "--json"])?;
        ended(&output, 0)?;
        let c = parsed(&output.stdout)?;
        let functions = c["functions"].as_array().cloned().unwrap_or_default();
        let of = |name: &str, key: &str| {
            let named = |f: &&Value| f["name"].as_str().is_some_and(|n| n.ends_with(name));
            let found = functions.iter().find(named);
            found.and_then(|f| f[key].as_u64()).unwrap_or(0)
        };
        let by_cpu = functions.iter().max_by_key(|f| f["on_cpu_ns"].as_u64());
        let first = by_cpu.map_or(String::new(), |f| f["name"].to_string());
        if !first.contains("render_page") {
            return Err(wrong(format!("most computing is in {first}: {c:#}")));
        }
        let waiting = of("cache_get", "blocked_ns") + of("query_upstream", "blocked_ns");
        if waiting < 2 * of("render_page", "on_cpu_ns") {
            return Err(wrong(format!("its waits are not seen: {c:#}")));
        }
        // Of a crowded machine's queue nothing is said: it waits for its own.
        let ns = |key: &str| c[key].as_u64().unwrap_or(0);
        let untouchable = ns("untouchable_ns");
        if ns("blocked_ns") < 2 * ns("on_cpu_ns")
            || untouchable == 0
            || untouchable + ns("blocked_behind_cpu_ns") != ns("blocked_ns")
        {
            return Err(wrong(format!("CPU work cannot help it so much: {c:#}")));
        }
        let text = tool.run(&["calibrate", file])?;
        ended(&text, 0)?;
        let text = String::from_utf8_lossy(&text.stdout).into_owned();
        if !(text.contains("No CPU optimisation can touch") && text.contains("render_page")) {
            return Err(wrong(text));
        }
        Ok(())
    });
}

#[test]
fn a_command_is_counted_and_keeps_its_status() {
    with_tool_alone("stat of a command", |tool| {
        let folder = tempfile::tempdir().map_err(|e| wrong(e.to_string()))?;
        let file = folder.path().join("stat.json");
        let name = file.to_str().unwrap_or_default();
        let truth = program::path().to_str().unwrap_or_default();
        let command = [truth, "fixed", "--units", "40"];
        let arguments = [
            &["stat", "-r", "3", "--json", "-o", name, "--"],
            &command[..],
        ]
        .concat();
        let output = tool.run(&arguments)?;
        ended(&output, 0)?;
        let told = std::fs::read(&file).map_err(|e| wrong(e.to_string()))?;
        let stat = parsed(&told)?;
        if stat["runs"] != 3 || stat["status"] != serde_json::json!([0, 0, 0]) {
            return Err(wrong(format!("three runs: {stat:#}")));
        }
        let sum = ["on_cpu", "runnable", "blocked", "unknown"]
            .iter()
            .map(|name| figure(&stat, name))
            .sum::<Result<f64, Error>>()?;
        let wall = figure(&stat, "wall")?;
        if (sum - wall).abs() > 0.001 * wall {
            return Err(wrong(format!("{sum} of {wall} ns are accounted for")));
        }
        // A started program touches pages; its parent's getrusage would say the same.
        if figure(&stat, "page-faults")? < 20.0 || figure(&stat, "elapsed")? <= 0.0 {
            return Err(wrong(format!("nothing counted: {stat:#}")));
        }
        for (script, status) in [("exit 7", 7), ("kill -TERM $$", 128 + 15)] {
            let output = tool.run(&["stat", "--", "sh", "-c", script])?;
            ended(&output, status)?;
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            if !(output.stdout.is_empty() && said.contains("on cpu") && said.contains("elapsed")) {
                return Err(wrong(format!("the command's output is its own: {said}")));
            }
        }
        let output = tool.run(&["stat", "--", "/no/such/program"])?;
        ended(&output, 127)
    });
}

#[test]
fn computing_is_counted_as_the_program_counts_it() {
    with_tool_alone("stat of a process", |tool| {
        let mut program = Program::start("shares", &["--threads", "1", "--seconds", "1"])?;
        let pid = program.pids()[0].to_string();
        let mut stat = Command::new(tool.path())
            .args(["stat", "--json", "-I", "250ms", "-p", &pid])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| wrong(e.to_string()))?;
        let mut live = String::new();
        if let Some(said) = stat.stderr.take() {
            let mut said = std::io::BufReader::new(said);
            let _ = std::io::BufRead::read_line(&mut said, &mut live);
            // What follows is read to its end, so that nothing blocks.
            std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        }
        if !live.contains("counting") {
            let _ = stat.kill();
            let _ = stat.wait();
            return Err(Error::CannotRunHere(live));
        }
        program.release()?;
        let truth = program.truth(Duration::from_secs(60))?;
        program.finish()?;
        let output = stat.wait_with_output().map_err(|e| wrong(e.to_string()))?;
        ended(&output, 0)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines: Vec<&str> = text
            .lines()
            .take_while(|l| l.starts_with("{\"until"))
            .collect();
        let rest: Vec<&str> = text.lines().skip(lines.len()).collect();
        let whole = parsed(rest.join("\n").as_bytes())?;
        let intervals = lines.iter().map(|l| parsed(l.as_bytes()));
        let intervals = intervals.collect::<Result<Vec<Value>, Error>>()?;
        if intervals.len() < 2 {
            return Err(wrong(format!("intervals: {text}")));
        }
        let computed: u64 = truth.threads.iter().map(|t| t.on_cpu_ns).sum();
        let (told, wall) = (figure(&whole, "on_cpu")?, figure(&whole, "wall")?);
        // Beside its work it starts, waits at its gate and tells its truth.
        let least = computed as f64 - Limits::default().counters_ppm * 1e-6 * wall;
        if told < least || told > 1.2 * computed as f64 + 5e7 {
            return Err(wrong(format!(
                "on CPU for {told} ns, by its own count {computed}"
            )));
        }
        let parts: u64 = intervals
            .iter()
            .filter_map(|i| i["values"]["on_cpu"].as_u64())
            .sum();
        if parts as f64 > told * 1.001 || (parts as f64) < told * 0.5 {
            return Err(wrong(format!("intervals sum to {parts} of {told} ns")));
        }
        Ok(())
    });
}

#[test]
fn wrong_events_and_targets_are_told() {
    with_tool_alone("stat refuses", |tool| {
        let output = tool.run(&["stat", "-e", "page-fault", "--", "true"])?;
        ended(&output, 2)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if !said.contains("page-faults") {
            return Err(wrong(said));
        }
        ended(&tool.run(&["stat", "-p", "4194000", "-d", "1"])?, 4)?;
        ended(&tool.run(&["stat", "-r", "3", "-p", "1"])?, 2)?;
        ended(&tool.run(&["stat"])?, 2)
    });
}

#[test]
fn a_function_is_annotated_line_by_line() {
    with_tool_alone("annotate", |tool| {
        let flags = ["--threads", "1", "--seconds", "1.5"];
        let run = tool.measure("shares", &flags, &Options::at(499))?;
        let path = run.recorded.path();
        let path = path.to_str().unwrap_or_default();
        let of = |function: &str| -> Result<String, Error> {
            let output = tool.run(&["report", path, "--annotate", function, "--view", "on-cpu"])?;
            ended(&output, 0)?;
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        };
        let text = of("share_fifty")?;
        // Sums of the column of its own time, of rows with a number of a line and of instructions.
        let (lines, code) = text
            .split_once("instructions of share_fifty")
            .ok_or_else(|| wrong(format!("no instructions: {text}")))?;
        let sum = |part: &str| -> f64 {
            let shares = part
                .lines()
                .filter_map(|l| l.get(..8)?.trim().strip_suffix(" %"));
            shares.filter_map(|n| n.trim().parse::<f64>().ok()).sum()
        };
        for (what, part) in [("lines", lines), ("instructions", code)] {
            let sum = sum(part);
            if !(97.0..=103.0).contains(&sum) {
                return Err(wrong(format!(
                    "{what} sum to {sum} %, not all of it: {text}"
                )));
            }
        }
        let whole: f64 = text
            .lines()
            .find_map(|l| l.split_once('(')?.1.split_once(" %")?.0.trim().parse().ok())
            .ok_or_else(|| wrong(text.clone()))?;
        if !(36.0..=64.0).contains(&whole) {
            return Err(wrong(format!("{whole} % of computing, not half: {text}")));
        }
        let output = tool.run(&["report", path, "--annotate", "share_"])?;
        ended(&output, 2)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if !(said.contains("share_thirty") && said.contains("share_fifty")) {
            return Err(wrong(said));
        }
        ended(
            &tool.run(&["report", path, "--annotate", "no_such_thing"])?,
            2,
        )
    });
}
