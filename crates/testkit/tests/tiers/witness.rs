//! Two tiers of one run agree.

use std::{ffi::OsString, time::Duration};

use wallscope_testkit::{Error, Program, Tool};

use crate::{
    place::Place,
    run::{self, Outcome, folder, measured, start, tool},
};

/// How much later than the hook of a switch its record may be dated, ns.
const RECORD_LATER_NS: f64 = 30_000.0;

/// Records one run of a program by both.
fn both(tool: &Tool, name: &str) -> Result<[Outcome; 2], Error> {
    let mut program = Program::start(name, &["--seconds", "3"])?;
    let folder = folder();
    let files = ["ebpf", "perf"].map(|backend| (backend, folder.path().join(backend)));
    let mut recordings = Vec::new();
    for (backend, file) in &files {
        let pids: Vec<String> = program.pids().iter().map(u32::to_string).collect();
        let arguments = ["--backend", backend, "-p", &pids.join(",")].map(OsString::from);
        recordings.push(start(tool, Place::Root, file, &arguments)?);
    }
    program.release()?;
    let truth = program.truth(Duration::from_secs(120))?;
    for recording in recordings.into_iter().rev() {
        recording.stop()?;
    }
    program.finish()?;
    let read = |file| run::read(tool, file, truth.clone(), String::new());
    Ok([read(&files[0].1)?, read(&files[1].1)?])
}

#[test]
fn both_tiers_say_the_same_of_one_run() {
    let Some(tool) = tool() else { return };
    for name in ["mix", "convoy"] {
        measured(&format!("{name} by both"), || {
            let [ebpf, perf] = both(&tool, name)?;
            let mut worst = 0f64;
            for own in ebpf.truth.threads.iter().filter(|t| t.work_wall_ns > 0) {
                let find = |o: &Outcome| o.report.thread(own.pid, own.tid).cloned();
                let (Some(a), Some(b)) = (find(&ebpf), find(&perf)) else {
                    return Err(Error::Output(format!("{} was not seen by both", own.name)));
                };
                // The windows differ by time in which everybody was blocked.
                let longer = a.wall_ns as f64 - b.wall_ns as f64;
                let of_wall = |x: f64| x.abs() * 100.0 / b.wall_ns as f64;
                let put_off = |t: &wallscope_testkit::report::Thread| {
                    t.runnable.get("preempted").copied().unwrap_or(0) as f64
                };
                // Off the CPU as a whole: how much of it was waiting for a CPU the perf backend
                // takes from a counter that for sleepers moved between CPUs is not believed by the
                // other.
                let off = |t: &wallscope_testkit::report::Thread| {
                    (t.runnable_ns + t.blocked_ns) as f64 - put_off(t)
                };
                // What interrupts and the host of a virtual machine took is time on the CPU by the
                // clock, and in part not in the counters that the perf backend's totals come from.
                let taken = ["irq", "stolen"].map(|part| a.on_cpu.get(part).copied().unwrap_or(0));
                let taken = taken.iter().sum::<u64>() as f64;
                let beyond = |more: f64| of_wall(more - more.clamp(0.0, taken));
                // That a thread is put off the perf backend dates by the kernel's record of it, which
                // comes after the hook of the switch and the kernel's work on events in between:
                // its sum of these is shorter, by 26 µs each where that was measured. Its totals are the
                // counters'.
                let later = put_off(&a) - put_off(&b);
                let records = a.involuntary_switches as f64 * RECORD_LATER_NS;
                for (what, here) in [
                    ("on-CPU", beyond(a.on_cpu_ns as f64 - b.on_cpu_ns as f64)),
                    ("preempted", of_wall(later - later.clamp(0.0, records))),
                    ("off the CPU", beyond(off(&b) + longer - off(&a))),
                ] {
                    worst = worst.max(here);
                    if here > 0.3 {
                        return Err(Error::Output(format!(
                            "{what} of {} differs by {here:.3} % of wall: {a:?} {b:?}",
                            own.name
                        )));
                    }
                }
            }
            Ok(format!("totals agree within {worst:.3} % of wall"))
        });
    }
}
