//! `cargo xtask soak`: an agent's memory while processes and cgroups come and go without end.
//!
//! Threads of this program start processes, some with a name of their own each, make cgroups with a process in
//! each, and keep some hundred processes alive that live for seconds. The agent's own figures are read twice a
//! second. The highest heap of the last tenth may exceed that of the second tenth by [`MAX_GROWTH`]. The flight
//! recorder keeps 10 s, so that it is full before the second tenth.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::agent_process::Agent;
use crate::{Outcome, release_tool};

/// Most growth of the heap, bytes.
const MAX_GROWTH: u64 = 1 << 20;
/// Time before the parts: the agent forgets stacks that six windows of 10 s did not use, and its caches fill meanwhile.
const WARM_UP: Duration = Duration::from_secs(120);
/// Parts of the run that are compared.
const PARTS: usize = 10;
/// Distance of two readings.
const READ_EVERY: Duration = Duration::from_millis(500);
/// Processes that are alive for some seconds.
const ALIVE: usize = 300;
/// Time between two starts of a storming thread: with two of them 600 starts a second.
const START_EVERY: Duration = Duration::from_micros(3_300);
/// Time between two cgroups: 20,000 an hour.
const CGROUP_EVERY: Duration = Duration::from_millis(180);

/// What the load has done, and whether it goes on.
#[derive(Default)]
struct Load {
    over: AtomicBool,
    processes: AtomicU64,
    cgroups: AtomicU64,
}

impl Load {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// Memory of the agent, bytes.
#[derive(Clone, Copy, Default)]
struct Reading {
    heap: u64,
    resident: u64,
    kernel: u64,
}

impl Reading {
    fn of(agent: &mut Agent) -> Outcome<Reading> {
        let metrics = agent.metrics()?;
        let memory =
            |part| metrics.value(&format!("wallscope_agent_memory_bytes{{part=\"{part}\"}}"));
        Ok(Reading {
            heap: memory("heap") as u64,
            resident: memory("resident") as u64,
            kernel: memory("kernel_maps") as u64,
        })
    }

    fn max(self, other: Reading) -> Reading {
        Reading {
            heap: self.heap.max(other.heap),
            resident: self.resident.max(other.resident),
            kernel: self.kernel.max(other.kernel),
        }
    }
}

/// Runs an agent under the load for `minutes` after [`WARM_UP`]; whether its heap stayed within the bound.
///
/// # Errors
/// The agent cannot run here, or ends.
pub fn run(minutes: u64) -> Outcome<bool> {
    let tool = release_tool()?;
    let folder = tempfile::tempdir()?;
    let settings = "snaps.length = \"10s\"\n";
    let mut agent = Agent::start(tool.path(), folder.path(), settings)?;
    let load = Load::default();
    let length = Duration::from_secs(60 * minutes.max(1));
    let parts = std::thread::scope(|scope| {
        scope.spawn(|| storm(&load, 0));
        scope.spawn(|| storm(&load, 1));
        scope.spawn(|| sleepers(&load));
        scope.spawn(|| cgroups(&load));
        let parts = watch(&mut agent, WARM_UP).and_then(|_| watch(&mut agent, length));
        load.over.store(true, Ordering::Relaxed);
        parts
    })?;
    println!("part   heap KiB   resident KiB   kernel maps KiB");
    for (n, part) in parts.iter().enumerate() {
        let kib = |bytes: u64| bytes / 1024;
        let (heap, resident, kernel) = (part.heap, part.resident, part.kernel);
        println!(
            "{:4} {:10} {:14} {:17}",
            n + 1,
            kib(heap),
            kib(resident),
            kib(kernel)
        );
    }
    let (processes, cgroups) = (&load.processes, &load.cgroups);
    println!(
        "{} processes, {} cgroups in {minutes} minutes and {} s before them",
        processes.load(Ordering::Relaxed),
        cgroups.load(Ordering::Relaxed),
        WARM_UP.as_secs()
    );
    let (second, last) = (parts[1].heap, parts[PARTS - 1].heap);
    if second == 0 {
        return Err("the agent told no heap by the second tenth: use a program for glibc".into());
    }
    println!(
        "highest heap of the last tenth minus that of the second: {} KiB, at most {}",
        (last as i64 - second as i64) / 1024,
        MAX_GROWTH / 1024
    );
    Ok(last <= second + MAX_GROWTH)
}

/// Reads the agent's figures; the highest of each part of `length`.
fn watch(agent: &mut Agent, length: Duration) -> Outcome<[Reading; PARTS]> {
    let started = Instant::now();
    let mut parts = [Reading::default(); PARTS];
    while started.elapsed() < length {
        std::thread::sleep(READ_EVERY);
        let part = started.elapsed().as_secs_f64() / length.as_secs_f64() * PARTS as f64;
        let part = &mut parts[(part as usize).min(PARTS - 1)];
        *part = part.max(Reading::of(agent)?);
    }
    Ok(parts)
}

/// Starts processes that end at once; each fourth has a name that no other has.
fn storm(load: &Load, own: u64) {
    let mut n = 0u64;
    let mut due = Instant::now();
    while !load.is_over() {
        n += 1;
        let started = if n.is_multiple_of(4) {
            let script = format!("echo s{own}-{n} > /proc/$$/comm; :");
            quiet("/bin/sh").args(["-c", &script]).status()
        } else {
            quiet("/bin/true").status()
        };
        load.processes
            .fetch_add(u64::from(started.is_ok()), Ordering::Relaxed);
        due += START_EVERY;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
}

fn quiet(program: &str) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Keeps processes alive for some seconds each.
fn sleepers(load: &Load) {
    let mut alive: std::collections::VecDeque<Child> = Default::default();
    while !load.is_over() {
        if alive.len() == ALIVE
            && let Some(mut oldest) = alive.pop_front()
        {
            let _ = oldest.kill();
            let _ = oldest.wait();
        }
        if let Ok(child) = quiet("/bin/sleep").arg("60").spawn() {
            load.processes.fetch_add(1, Ordering::Relaxed);
            alive.push_back(child);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    for mut child in alive {
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// A hierarchy of cgroups that does not bind CPU time.
fn hierarchy() -> Option<PathBuf> {
    let roots = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"].map(Path::new);
    let root = roots.into_iter().find(|r| r.join("cgroup.procs").exists());
    root.map(|r| r.join(format!("wallscope-soak-{}", std::process::id())))
}

/// Makes cgroups with a process in each, and removes them.
fn cgroups(load: &Load) {
    let Some(top) = hierarchy().filter(|top| fs::create_dir(top).is_ok()) else {
        eprintln!("no cgroups can be made here: the load has none");
        return;
    };
    let mut n = 0;
    while !load.is_over() {
        n += 1;
        match one_cgroup(&top.join(format!("group-{n}"))) {
            Ok(()) => _ = load.cgroups.fetch_add(1, Ordering::Relaxed),
            Err(e) => eprintln!("cgroup {n}: {e}"),
        }
        std::thread::sleep(CGROUP_EVERY);
    }
    let _ = fs::remove_dir(&top);
}

fn one_cgroup(dir: &Path) -> io::Result<()> {
    fs::create_dir(dir)?;
    let mut child = quiet("/bin/sleep").arg("0.05").spawn()?;
    let moved = fs::write(dir.join("cgroup.procs"), child.id().to_string());
    child.wait()?;
    // The kernel lets an ended process go a moment later.
    let mut removed = fs::remove_dir(dir);
    for _ in 0..50 {
        if removed.is_ok() {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
        removed = fs::remove_dir(dir);
    }
    moved.and(removed)
}
