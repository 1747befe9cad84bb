//! What an agent costs on an idle host and under steady switching.
//!
//! Windows with the agent alternate with bare ones; the load of a case is there in all of them. Two figures are set
//! beside each other: the agent's own books (its process and its kernel programs, and beside them its estimate of
//! displaced caches), and how much busier the machine is than in the bare windows before and after. Its memory is its
//! resident size and the kernel's maps. The agent has its default settings but for where its files lie.

use std::time::Duration;

use wallscope_testkit::{Program, Tool};

use super::overhead::Meter;
use crate::agent_process::{Agent, Metrics};
use crate::{Outcome, median};

/// A load, and the most of one CPU that the agent may take under it, percent.
struct Case {
    about: &'static str,
    processes: usize,
    wake_ms: &'static str,
    limit: f64,
}

/// Each waking of a sleeper is two switches.
const CASES: [Case; 3] = [
    Case {
        about: "no load",
        processes: 0,
        wake_ms: "",
        limit: 0.3,
    },
    Case {
        about: "200 processes, 5,000 switches a second",
        processes: 200,
        wake_ms: "80",
        limit: 1.0,
    },
    Case {
        about: "200 processes, 50,000 switches a second",
        processes: 200,
        wake_ms: "8",
        limit: 5.0,
    },
];

/// Time before a window with the agent, which runs for weeks: it reads the mappings of running processes, looks names up,
/// and closes its first windows of 10 s. On an idle host the look-up of names took 0.15 % of one CPU in the second
/// minute, and 0.02 % in the fifth.
const WARM_UP: Duration = Duration::from_secs(240);

/// One window with the agent.
struct Window {
    process: f64,
    programs: f64,
    displaced: f64,
    busier: f64,
    switches: f64,
    memory: f64,
}

/// Measures all cases in `rounds` windows of `seconds` each; whether the agent's books keep to the limits.
///
/// # Errors
/// The agent or a load cannot run here.
pub(super) fn run(tool: &Tool, rounds: usize, seconds: u64) -> Outcome<bool> {
    let meter = Meter::new()?;
    let mut good = true;
    println!(
        "percent of one CPU, medians of {rounds} windows of {seconds} s, each {} s after the agent's start",
        WARM_UP.as_secs()
    );
    println!(
        "load                                      switches/s  process  programs   sum  limit  caches  machine busier"
    );
    for case in &CASES {
        let mut load = Vec::new();
        for _ in 0..case.processes {
            let flags = ["--until-line", "--threads", "1", "--wake-ms", case.wake_ms];
            let mut program = Program::start("parked", &flags)?;
            program.release()?;
            load.push(program);
        }
        let length = Duration::from_secs(seconds);
        let mut bare = busy(&meter, length)?;
        let mut windows = Vec::new();
        for _ in 0..rounds {
            let (mut window, with) = with_agent(tool, &meter, length)?;
            let after = busy(&meter, length)?;
            window.busier = 100.0 * (with - (bare + after) / 2.0);
            bare = after;
            windows.push(window);
        }
        let of = |value: fn(&Window) -> f64| median(windows.iter().map(value).collect());
        let sum = of(|w| w.process + w.programs);
        println!(
            "{:<41} {:>10.0} {:>8.2} {:>9.2} {:>5.2} {:>6.1} {:>7.2} {:>15.2} {:>4.0}",
            case.about,
            of(|w| w.switches),
            of(|w| w.process),
            of(|w| w.programs),
            sum,
            case.limit,
            of(|w| w.displaced),
            of(|w| w.busier),
            of(|w| w.memory),
        );
        good &= sum <= case.limit;
    }
    Ok(good)
}

/// CPU time of the machine in `length`, as a part of one CPU.
fn busy(meter: &Meter, length: Duration) -> Outcome<f64> {
    let before = meter.read()?;
    std::thread::sleep(length);
    Ok(before.until(&meter.read()?) / length.as_secs_f64())
}

/// A window with an agent, and the CPU time of the machine in it, as a part of one CPU.
fn with_agent(tool: &Tool, meter: &Meter, length: Duration) -> Outcome<(Window, f64)> {
    let folder = tempfile::tempdir()?;
    let mut agent = Agent::start(tool.path(), folder.path(), "")?;
    std::thread::sleep(WARM_UP);
    let (before, process) = (agent.metrics()?, cpu_s(agent.pid())?);
    let start = meter.read()?;
    std::thread::sleep(length);
    let end = meter.read()?;
    let (after, process_after) = (agent.metrics()?, cpu_s(agent.pid())?);
    let seconds = length.as_secs_f64();
    let of = |metrics: &Metrics, part: &str| {
        metrics.value(&format!(
            "wallscope_agent_cpu_seconds_total{{part=\"{part}\"}}"
        ))
    };
    // Its metrics are those of its last closed window: windows of 10 s in a whole number of them.
    let part = |part| 100.0 * (of(&after, part) - of(&before, part)) / seconds;
    let memory = |part| after.value(&format!("wallscope_agent_memory_bytes{{part=\"{part}\"}}"));
    let window = Window {
        process: 100.0 * (process_after - process) / seconds,
        programs: part("kernel_programs"),
        displaced: part("displaced_caches"),
        busier: 0.0,
        switches: start.switches_until(&end),
        memory: (memory("resident") + memory("kernel_maps")) / f64::from(1 << 20),
    };
    Ok((window, start.until(&end) / seconds))
}

/// CPU time of a process so far, s, as the kernel counts it.
fn cpu_s(pid: u32) -> Outcome<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, rest) = stat.rsplit_once(')').ok_or("no stat")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
    Ok(ticks / 100.0)
}
