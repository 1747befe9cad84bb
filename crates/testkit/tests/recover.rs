//! A recorder that is killed leaves a spool, and its recording can be made of that; one that ends in
//! order leaves none.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};
use wallscope_observe::{LogReader, Observation};
use wallscope_testkit::{Error, Program, Tool, report::Report, tool::Options, with_tool, wrong};

fn check(is: bool, what: impl FnOnce() -> String) -> Result<(), Error> {
    match is {
        true => Ok(()),
        false => Err(wrong(what())),
    }
}

/// What the kernel counted of all threads of a process at one time: on-CPU time, waiting for a CPU, ns.
#[derive(Clone, Copy)]
struct Counted {
    time: u64,
    sums: [f64; 2],
}

impl Counted {
    fn now(pid: u32) -> Counted {
        let mut sums = [0.0; 2];
        let tasks = fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten();
        for task in tasks.flatten() {
            let text = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            for (sum, value) in sums.iter_mut().zip(text.split_whitespace()) {
                *sum += value.parse::<f64>().unwrap_or(0.0);
            }
        }
        let t = clock_gettime(ClockId::Monotonic);
        Counted {
            time: t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64,
            sums,
        }
    }

    /// The figures at `time`, between two readings.
    fn at(all: &[Counted], time: u64) -> Option<[f64; 2]> {
        let next = all.partition_point(|c| c.time < time);
        let (a, b) = (all.get(next.checked_sub(1)?)?, all.get(next)?);
        let part = (time - a.time) as f64 / (b.time - a.time).max(1) as f64;
        Some([0, 1].map(|i| a.sums[i] + (b.sums[i] - a.sums[i]) * part))
    }
}

/// Reads the kernel's counters each 20 ms until it is told to stop.
fn follow(pid: u32, stop: Arc<AtomicBool>) -> thread::JoinHandle<Vec<Counted>> {
    thread::spawn(move || {
        let mut all = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            all.push(Counted::now(pid));
            thread::sleep(Duration::from_millis(20));
        }
        all
    })
}

/// A recording that was recovered.
type Killed = (Report, serde_json::Value, Vec<Counted>, u64);

/// Records program `name` for `seconds`, kills the recorder, and recovers. Returns the recording's report,
/// the kernel's counters meanwhile, and the time of the kill.
fn killed(tool: &Tool, name: &str, seconds: u64) -> Result<Killed, Error> {
    killed_by(tool, "ebpf", name, seconds)
}

/// [`killed`], measured by `backend`.
fn killed_by(tool: &Tool, backend: &str, name: &str, seconds: u64) -> Result<Killed, Error> {
    let mut program = Program::start(name, &["--seconds", "60"])?;
    let pid = program.pids()[0];
    let stop = Arc::new(AtomicBool::new(false));
    let counters = follow(pid, Arc::clone(&stop));
    let options = Options::at(199).with(&["--backend", backend]);
    let recorder = tool.attach(program.pids(), &options)?;
    program.release()?;
    thread::sleep(Duration::from_secs(seconds));
    let recorded = recorder.kill()?;
    let end = Counted::now(pid).time;
    thread::sleep(Duration::from_millis(50));
    stop.store(true, Ordering::Relaxed);
    let counted = counters.join().map_err(|_| wrong("counters"))?;
    drop(program);
    let mode = fs::metadata(recorded.spool()).map_err(|e| wrong(format!("the spool: {e}")))?;
    check(mode.permissions().mode() & 0o777 == 0o600, || {
        format!("mode {mode:?}")
    })?;
    check(!recorded.path().exists(), || "a recording is there".into())?;
    let said = recorded.recover()?;
    check(said.contains("ended early"), || said.clone())?;
    check(said.contains(&format!("by the {backend} backend")), || {
        said.clone()
    })?;
    is_cut_anywhere(tool, &recorded.spool())?;
    check(recorded.spool().exists(), || "the spool went".into())?;
    Ok((
        recorded.report()?,
        recorded.json(&["report"])?,
        counted,
        end,
    ))
}

/// Holds that a spool gives a recording, or says why it gives none, wherever it is cut.
fn is_cut_anywhere(tool: &Tool, spool: &std::path::Path) -> Result<(), Error> {
    let bytes = fs::read(spool).map_err(|e| wrong(e.to_string()))?;
    let folder = tempfile::tempdir().map_err(|e| wrong(e.to_string()))?;
    let [cut, output] = ["cut.spool", "cut.pb.gz"].map(|name| folder.path().join(name));
    for (part, of) in [(1, 2), (7, 8)] {
        fs::write(&cut, &bytes[..bytes.len() * part / of]).map_err(|e| wrong(e.to_string()))?;
        let all = [
            "recover".as_ref(),
            cut.as_os_str(),
            "-o".as_ref(),
            output.as_os_str(),
        ];
        let done = tool.run(&all)?;
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        // A frame that is cut is lost as a whole; the first ones hold the facts of all files.
        let refused = !done.status.success() && said.contains("nothing can be made of it");
        let recovered = done.status.success() && said.contains("ended early");
        check(refused || recovered, || format!("{part}/{of}: {said}"))?;
        check(output.exists() == recovered, || "a recording stayed".into())?;
        let _ = fs::remove_file(&output);
    }
    Ok(())
}

#[test]
fn a_killed_recorder_leaves_its_recording_up_to_the_last_second() {
    is_recovered_up_to_the_last_second("ebpf");
}

#[test]
fn a_killed_recorder_of_switches_leaves_its_recording_up_to_the_last_second() {
    is_recovered_up_to_the_last_second("perf");
}

#[test]
fn a_killed_recorder_of_polls_leaves_its_recording_up_to_the_last_second() {
    is_recovered_up_to_the_last_second("proc");
}

/// Kills a recorder of a convoy, and compares the recording with the kernel's counters up to its end.
fn is_recovered_up_to_the_last_second(backend: &str) {
    with_tool(
        &format!("recovery of a killed {backend} recording"),
        |tool| {
            let (report, json, counted, end) = killed_by(tool, backend, "convoy", 4)?;
            let window = &report.window;
            let missing = end.saturating_sub(window.end_ns) as f64 / 1e9;
            check((0.0..1.3).contains(&missing), || {
                format!("{missing} s are missing")
            })?;
            let at = |time| Counted::at(&counted, time).ok_or_else(|| wrong("no counters"));
            let (before, after) = (at(window.start_ns)?, at(window.end_ns)?);
            let told: [u64; 2] = [
                report.threads.iter().map(|t| t.on_cpu_ns).sum(),
                report.threads.iter().map(|t| t.runnable_ns).sum(),
            ];
            let length = (window.end_ns - window.start_ns) as f64;
            for (i, state) in ["on-CPU", "runnable"].into_iter().enumerate() {
                let off = (told[i] as f64 - (after[i] - before[i])) / length;
                // Between two readings of the kernel's counters lie 20 ms.
                check(off.abs() < 0.02, || format!("{state}: {off} of the window"))?;
            }
            for t in &report.threads {
                check(t.residue_ns == 0, || format!("residue of {t:?}"))?;
                check(t.wall_ns as f64 > 0.95 * length, || {
                    format!("wall of {t:?}")
                })?;
            }
            // A wait of known length: each thread but the holder waits for the lock.
            let waiting = &json["total"]["blocked"]["lock"];
            let share = waiting.as_f64().unwrap_or(0.0) / (4.0 * length);
            check((0.5..0.8).contains(&share), || format!("lock: {share}"))?;
            let stacks = json["stacks"].to_string();
            for name in ["convoy_wait_lock", "pthread_mutex_lock"] {
                check(stacks.contains(name), || format!("no {name} in {stacks}"))?;
            }
            let notes = json["domain"]["notes"].to_string();
            check(notes.contains("the recorder ended early"), || notes.clone())
        },
    );
}

#[test]
fn names_of_code_made_at_run_time_survive_without_kernel_programs() {
    with_tool("recovery of names by perf and proc", |tool| {
        for backend in ["perf", "proc"] {
            let (_, json, ..) = killed_by(tool, backend, "execs", 3)?;
            let processes = json["processes"].as_array().map_or(0, Vec::len);
            check(processes > 1, || format!("{backend}: {processes}"))?;
            let notes = json["domain"]["notes"].to_string();
            check(notes.contains("s older than its end"), || notes.clone())?;
        }
        // The proc backend does not see the stacks of running threads.
        let (_, json, ..) = killed_by(tool, "perf", "jit", 3)?;
        let functions = json["functions"].to_string();
        check(functions.contains("jit_"), || functions.clone())
    });
}

#[test]
fn figures_of_a_killed_recording_have_an_age() {
    with_tool("recovery of figures", |tool| {
        let (report, json, ..) = killed(tool, "convoy", 12)?;
        let notes = json["domain"]["notes"].to_string();
        check(notes.contains("s older than its end"), || notes.clone())?;
        check(!report.shapes.is_empty(), || "no histograms".into())?;
        check(report.cost.own_cpu_ns > 0, || format!("{:?}", report.cost))
    });
}

#[test]
fn interpreters_and_programs_that_come_and_go_are_named() {
    with_tool("recovery of names", |tool| {
        let (_, json, ..) = killed(tool, "jit", 3)?;
        let functions = json["functions"].to_string();
        check(functions.contains("jit_"), || {
            format!("no code made at run time in {functions}")
        })?;
        let (_, json, ..) = killed(tool, "execs", 3)?;
        let processes = json["processes"].as_array().map_or(0, Vec::len);
        check(processes > 1, || format!("{}", json["processes"]))
    });
}

#[test]
fn a_recorder_that_ends_in_order_leaves_no_spool() {
    with_tool("the end of a spool", |tool| {
        let signals = [
            (Signal::INT, "ebpf"),
            (Signal::TERM, "ebpf"),
            (Signal::HUP, "ebpf"),
            (Signal::INT, "perf"),
            (Signal::INT, "proc"),
        ];
        for (signal, backend) in signals {
            let mut program = Program::start("convoy", &["--seconds", "60"])?;
            let options = Options::at(99).with(&["--backend", backend]);
            let recorder = tool.attach(program.pids(), &options)?;
            program.release()?;
            let pid = Pid::from_raw(recorder.pid() as i32).ok_or_else(|| wrong("no pid"))?;
            thread::sleep(Duration::from_millis(300));
            kill_process(pid, signal).map_err(|e| wrong(e.to_string()))?;
            let recorded = recorder.ends_with(0)?;
            check(!recorded.spool().exists(), || {
                format!("{signal:?} left a spool")
            })?;
            check(recorded.path().exists(), || {
                format!("{signal:?} left no recording")
            })?;
        }
        Ok(())
    });
}

#[test]
fn stack_memory_is_in_a_log_where_it_is_asked_for() {
    with_tool("stack memory in a log", |tool| {
        let tool = tool.clone().replayed();
        for backend in ["ebpf", "perf", "proc"] {
            for (more, asked) in [(&[][..], false), (&["--keep-memory"], true)] {
                let mut program = Program::start("convoy", &["--seconds", "60"])?;
                let options = Options::at(99).with(&["--backend", backend]).with(more);
                let recorder = tool.attach(program.pids(), &options)?;
                program.release()?;
                thread::sleep(Duration::from_secs(1));
                // Its replay is the same with memory in the log.
                let recorded = recorder.stop()?;
                let mut log = LogReader::open(&recorded.log()).map_err(|e| wrong(e.to_string()))?;
                let told = log.header().memory;
                let mut kept = 0;
                while let Some(observation) = log.next() {
                    kept += usize::from(matches!(observation, Observation::StackMemory(_)));
                }
                // The kernel programs unwind most stacks where they are, and copy no memory.
                let right = kept > 0 || backend == "ebpf";
                check(
                    told == asked && if asked { right } else { kept == 0 },
                    || format!("{backend}, asked: {asked}, told: {told}, {kept} stacks"),
                )?;
            }
        }
        Ok(())
    });
}

/// Runs `record -d 3 -p` of a convoy by a shell that does `first`, in `folder`.
fn recorded_by_shell(tool: &Tool, folder: &std::path::Path, first: &str) -> Result<String, Error> {
    let mut program = Program::start("convoy", &["--seconds", "60"])?;
    program.release()?;
    let record = format!(
        "{first}; exec {} record --timeline -d 3 -o run.pb.gz -p {}",
        tool.path().display(),
        program.pids()[0]
    );
    let output = Command::new("sh")
        .args(["-c", &record])
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| Error::Start(e.to_string()))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.code() {
        Some(0) => Ok(said),
        Some(3) => Err(Error::CannotRunHere(said)),
        code => Err(wrong(format!("{code:?}: {said}"))),
    }
}

fn notes(tool: &Tool, file: &std::path::Path) -> Result<String, Error> {
    let output = tool.run(&["report".as_ref(), "--json".as_ref(), file.as_os_str()])?;
    let report: serde_json::Value =
        serde_json::from_slice(&output.stdout).map_err(|e| wrong(e.to_string()))?;
    Ok(report["domain"]["notes"].to_string())
}

#[test]
fn where_no_file_may_grow_the_spool_ends_and_the_recording_goes_on() {
    with_tool("a spool without room", |tool| {
        let folder = tempfile::tempdir().map_err(|e| wrong(e.to_string()))?;
        // Blocks of 512 bytes: more than the recording has, and fewer than its spool would.
        recorded_by_shell(tool, folder.path(), "ulimit -f 160")?;
        let notes = notes(tool, &folder.path().join("run.pb.gz"))?;
        check(
            notes.contains("the spool 'run.pb.gz.spool' ends after"),
            || notes.clone(),
        )?;
        let left = fs::read_dir(folder.path()).map_or(0, Iterator::count);
        check(left == 1, || format!("{left} files are left"))
    });
}

#[test]
fn a_spool_that_was_left_stays_and_is_told() {
    with_tool("a spool that was left", |tool| {
        let folder = tempfile::tempdir().map_err(|e| wrong(e.to_string()))?;
        let stale = folder.path().join("run.pb.gz.spool");
        fs::write(&stale, "of before").map_err(|e| wrong(e.to_string()))?;
        let said = recorded_by_shell(tool, folder.path(), "true")?;
        let told = said.contains("wallscope recover run.pb.gz.spool -o FILE");
        check(told, || said.clone())?;
        let kept = fs::read(&stale).is_ok_and(|text| text == b"of before");
        check(kept, || "it was written over".into())?;
        let left = fs::read_dir(folder.path()).map_or(0, Iterator::count);
        check(left == 2, || format!("{left} files are left"))
    });
}
