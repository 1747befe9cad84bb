//! The agent on this machine: its windows hold what a recorder beside it measures, it tells the service manager
//! how it is, and it ends in order.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::{net::UnixDatagram, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use wallscope_testkit::{
    Error, Program, Tool,
    report::{Report, Thread},
    score::ledger::like_the_kernel,
    tool::Options,
    with_tool_alone, wrong,
};

/// Longest wait for something that the agent does in a second.
const LIMIT: Duration = Duration::from_secs(60);

fn check(is: bool, what: impl FnOnce() -> String) -> Result<(), Error> {
    match is {
        true => Ok(()),
        false => Err(wrong(what())),
    }
}

/// A running agent with a folder and a service manager of its own.
struct Agent {
    child: Child,
    folder: tempfile::TempDir,
    manager: UnixDatagram,
    said: std::thread::JoinHandle<String>,
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Agent {
    /// Starts one with windows of a second; returns when it has said that it is ready.
    fn start(tool: &Tool) -> Result<Agent, Error> {
        let folder = tempfile::tempdir().map_err(|e| wrong(e.to_string()))?;
        let place = |name: &str| folder.path().join(name);
        let config = format!(
            "agent.run_dir = {:?}\nstore.dir = {:?}\nwindows.length = \"1s\"\nmetrics.enabled = false\n",
            place("run"),
            place("store")
        );
        let system = |e: std::io::Error| wrong(e.to_string());
        fs::write(place("agent.toml"), config).map_err(system)?;
        let manager = UnixDatagram::bind(place("notify")).map_err(system)?;
        manager.set_read_timeout(Some(LIMIT)).map_err(system)?;
        let mut child = Command::new(tool.path())
            .args(["agent", "--config"])
            .arg(place("agent.toml"))
            .env("NOTIFY_SOCKET", place("notify"))
            .env("WATCHDOG_USEC", "4000000")
            .env_remove("WATCHDOG_PID")
            .stderr(Stdio::piped())
            .spawn()
            .map_err(system)?;
        let stderr = child.stderr.take().ok_or_else(|| wrong("no stderr"))?;
        let said = std::thread::spawn(move || {
            let lines = BufReader::new(stderr).lines().map_while(Result::ok);
            lines.collect::<Vec<_>>().join("\n")
        });
        let mut agent = Agent {
            child,
            folder,
            manager,
            said,
        };
        agent.told("READY=1")?;
        Ok(agent)
    }

    /// Waits until it tells the service manager `news`.
    fn told(&mut self, news: &str) -> Result<(), Error> {
        let started = Instant::now();
        let mut buffer = [0; 4096];
        while started.elapsed() < LIMIT {
            self.manager
                .set_read_timeout(Some(Duration::from_millis(200)))
                .map_err(|e| wrong(e.to_string()))?;
            if let Ok(n) = self.manager.recv(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..n]);
                if text.lines().any(|line| line == news) {
                    return Ok(());
                }
            }
            let ended = self.child.try_wait().ok().flatten();
            if let Some(status) = ended {
                let text = format!("the agent ended before {news}: {status}");
                return Err(match status.code() {
                    Some(3) => Error::CannotRunHere(text),
                    _ => wrong(text),
                });
            }
        }
        Err(wrong(format!("no {news}")))
    }

    fn signal(&self, signal: Signal) -> Result<(), Error> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).map_err(|e| wrong(e.to_string()))
    }

    /// It polls no tasks of runtimes: their sums would grow until it ends.
    fn polls_no_tasks(&self) -> Result<(), Error> {
        let dir = format!("/proc/{}/task", self.child.id());
        let threads = fs::read_dir(&dir).map_err(|e| wrong(format!("{dir}: {e}")))?;
        let names = threads.flatten().map(|thread| {
            let name = fs::read_to_string(thread.path().join("comm"));
            name.unwrap_or_default().trim().to_string()
        });
        let names: Vec<String> = names.collect();
        let has = |name: &str| names.iter().any(|n| n == name);
        check(has("windows") && !has("tasks"), || format!("{names:?}"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `snap` of process `pid`.
    fn snap(&self, tool: &Tool, pid: u32) -> Result<Snap, Error> {
        let file = self.path("snap.pb.gz");
        let text = |path: &Path| path.display().to_string();
        let pid = pid.to_string();
        let config = text(&self.path("agent.toml"));
        let (file, flags) = (text(&file), ["--last", "10m", "--pid"]);
        let verb = [
            &["snap"][..],
            &flags,
            &[&pid, "--config", &config, "-o", &file],
        ];
        ask(tool, &verb.concat())?;
        let json = ask(tool, &["report", &file, "--json"])?;
        let snap = Snap {
            report: serde_json::from_str(&json).map_err(|e| wrong(format!("its report: {e}")))?,
            // Written without line breaks within a note.
            is_whole: json.contains("MiB: all for") && !json.contains("µs on for"),
        };
        check(json.contains("timeline: "), || json.clone())?;
        Ok(snap)
    }

    /// A second agent ends with exit code 1 and names this one, in the same directories or in others.
    fn refuses_another(&self, tool: &Tool) -> Result<(), Error> {
        let elsewhere = self.path("second.toml");
        let dir = |name: &str| self.path("second").join(name);
        let config = format!(
            "agent.run_dir = {:?}\nstore.dir = {:?}\nmetrics.enabled = false\n",
            dir("run"),
            dir("store")
        );
        fs::write(&elsewhere, config).map_err(|e| wrong(e.to_string()))?;
        let id = self.child.id();
        for (config, words) in [
            (self.path("agent.toml"), "another agent runs here"),
            (elsewhere, "another agent measures this host"),
        ] {
            let second = tool.run(&["agent", "--config", &config.display().to_string()])?;
            let said = String::from_utf8_lossy(&second.stderr);
            check(
                second.status.code() == Some(1) && said.contains(&format!("{words} (process {id}")),
                || format!("{}: {said}", second.status),
            )?;
        }
        Ok(())
    }

    /// Ends it by SIGTERM; returns its output.
    fn end(mut self) -> Result<String, Error> {
        self.signal(Signal::TERM)?;
        self.told("STOPPING=1")?;
        let status = self.child.wait().map_err(|e| wrong(e.to_string()))?;
        let said = std::mem::replace(&mut self.said, std::thread::spawn(String::new));
        let said = said.join().map_err(|_| wrong("its output"))?;
        wallscope_testkit::tool::no_panic(&said);
        check(status.success(), || format!("{status}: {said}"))?;
        Ok(said)
    }
}

/// A snap, as a report.
struct Snap {
    report: Report,
    /// The flight recorder kept all intervals, short ones too.
    is_whole: bool,
}

fn ask(tool: &Tool, verb: &[&str]) -> Result<String, Error> {
    let output = tool.run(verb)?;
    let said = String::from_utf8_lossy(&output.stderr);
    check(output.status.success(), || {
        format!("{}: {}: {said}", verb[0], output.status)
    })?;
    String::from_utf8(output.stdout).map_err(|e| wrong(e.to_string()))
}

/// The kernel's counters of a thread since its birth: on-CPU, runnable, ns.
fn counted(pid: u32, tid: u32) -> Result<[u64; 2], Error> {
    let path = format!("/proc/{pid}/task/{tid}/schedstat");
    let text = fs::read_to_string(&path).map_err(|e| wrong(format!("{path}: {e}")))?;
    let mut figures = text.split_whitespace().map_while(|n| n.parse().ok());
    match (figures.next(), figures.next()) {
        (Some(on_cpu), Some(runnable)) => Ok([on_cpu, runnable]),
        _ => Err(wrong(format!("{path}: {text}"))),
    }
}

/// The ledgers of the program's threads by the agent, which saw them from birth, against the kernel's counters; and
/// against the recorder beside it, which saw a part of their lives.
fn compare(truth: &wallscope_testkit::Truth, agent: &Report, beside: &Report) -> Result<(), Error> {
    check(!truth.threads.is_empty(), || "no threads".into())?;
    for known in &truth.threads {
        let of = |report: &Report, name: &str| {
            let thread = report.thread(known.pid, known.tid).cloned();
            thread.ok_or_else(|| wrong(format!("{} is not in {name}", known.name)))
        };
        let (a, b) = (of(agent, "the snap")?, of(beside, "the recording")?);
        check(a.residue_ns == 0, || format!("residue of {a:?}"))?;
        let kernel = counted(known.pid, known.tid)?;
        let on_cpu = |of: &Thread| like_the_kernel(of, kernel[0] as f64) as u64;
        let states = [
            ("on-CPU", on_cpu(&a), on_cpu(&b), kernel[0]),
            ("runnable", a.runnable_ns, b.runnable_ns, kernel[1]),
        ];
        for (state, agent_ns, beside_ns, kernel_ns) in states {
            // The thread is blocked by now; each of some thousand turns may be dated some hundred ns off.
            let most = 200_000 + kernel_ns / 1_000;
            check(agent_ns.abs_diff(kernel_ns) <= most, || {
                let name = &known.name;
                format!("{state} of {name}: {agent_ns} ns, {kernel_ns} by the kernel's count")
            })?;
            check(beside_ns <= agent_ns + most, || {
                format!("{state} of {}: {agent_ns} and {beside_ns} ns", known.name)
            })?;
        }
    }
    Ok(())
}

#[test]
fn windows_hold_what_a_recorder_beside_the_agent_measures() {
    with_tool_alone("an agent's windows", |tool| {
        let mut agent = Agent::start(tool)?;
        let mut program = Program::start("mix", &["--seconds", "3", "--linger"])?;
        let recorder = tool.attach(program.pids(), &Options::at(49))?;
        program.release()?;
        let truth = program.truth(LIMIT)?;
        let recorded = recorder.stop()?;
        let snap = agent.snap(tool, truth.pid)?;
        compare(&truth, &snap.report, &recorded.report()?)?;
        agent.refuses_another(tool)?;
        agent.polls_no_tasks()?;
        agent.told("WATCHDOG=1")?;
        agent.signal(Signal::HUP)?;
        agent.told("RELOADING=1")?;
        agent.told("READY=1")?;
        program.finish()?;
        let said = agent.end()?;
        check(said.contains("read again"), || said.clone())
    });
}

/// The single intervals of a snap against the ledgers of its windows, and their wakers.
fn intervals(truth: &wallscope_testkit::Truth, snap: &Snap) -> Result<(), Error> {
    let (mut locks, mut woken) = (0, 0);
    for known in &truth.threads {
        let thread = (snap.report.thread(known.pid, known.tid))
            .ok_or_else(|| wrong(format!("{} is not in the snap", known.name)))?;
        let lane = thread.timeline.clone().unwrap_or_default();
        // Intervals are as they were counted; corrections since are in the ledger alone.
        let most = thread.repaired_ns + thread.unknown_ns + thread.wall_ns / 1_000;
        for (state, single, ledger) in [
            ("on-CPU", lane.on_cpu_ns, thread.on_cpu_ns),
            ("runnable", lane.runnable_ns, thread.runnable_ns),
            ("blocked", lane.blocked_ns, thread.blocked_ns),
        ] {
            let is_near = match snap.is_whole {
                true => single.abs_diff(ledger) <= most,
                false => single > 0 && single <= ledger + most,
            };
            check(is_near, || {
                let name = &known.name;
                format!("{state} of {name}: {single} ns in intervals, {ledger} in the ledger")
            })?;
        }
        locks += lane.blocks.get("lock").copied().unwrap_or(0);
        woken += lane.woken;
    }
    check(locks > 0 && woken * 100 >= locks * 95, || {
        format!("{locks} waits for the mutex, {woken} waits with a waker")
    })
}

/// A process without capabilities that holds the lock by which agents refuse each other.
fn lock_by_a_user() -> Result<Child, Error> {
    let code = "import fcntl, sys\n\
        file = open('/proc/self/ns/user')\n\
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n\
        print('held', flush=True)\n\
        sys.stdin.read()";
    let system = |e: std::io::Error| wrong(e.to_string());
    let mut user = Command::new("python3")
        .args(["-c", code])
        .uid(65534)
        .gid(65534)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(system)?;
    let mut said = String::new();
    let stdout = user.stdout.take().ok_or_else(|| wrong("no output"))?;
    BufReader::new(stdout)
        .read_line(&mut said)
        .map_err(system)?;
    check(said.trim() == "held", || format!("the lock: {said:?}"))?;
    Ok(user)
}

#[test]
fn a_snap_has_the_single_intervals_of_the_minutes_before_it() {
    with_tool_alone("an agent's flight recorder", |tool| {
        let mut user = lock_by_a_user()?;
        let agent = Agent::start(tool)?;
        let mut program = Program::start("convoy", &["--seconds", "4", "--linger"])?;
        program.release()?;
        let truth = program.truth(LIMIT)?;
        let snap = agent.snap(tool, truth.pid)?;
        intervals(&truth, &snap)?;
        program.finish()?;
        agent.end()?;
        user.kill().map_err(|e| wrong(e.to_string()))?;
        user.wait().map(drop).map_err(|e| wrong(e.to_string()))
    });
}
