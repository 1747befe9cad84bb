//! Abilities that the tiers without eBPF took over: requests in flight, stacks at events; and what the
//! perf tier costs threads that switch all the time.

use std::{collections::BTreeMap, ffi::OsString, path::Path};

use serde_json::Value;
use wallscope_testkit::score::{chance, share};
use wallscope_testkit::{Error, Tool};

use crate::{
    place::{Place, through},
    run::{self, Outcome, attach, measured, record, tool},
};

fn off(what: &str, truth: f64, seen: f64, most: f64) -> Result<(), Error> {
    if (truth - seen).abs() <= most {
        return Ok(());
    }
    Err(Error::Output(format!(
        "{what}: {seen:.1}, truth {truth:.1}, ± {most:.1}"
    )))
}

/// An event loop that waits for a slow upstream is not idle, and its upstream has a name.
#[test]
fn a_slow_upstream_is_named_without_kernel_programs() {
    let Some(tool) = tool() else { return };
    for (place, backend) in [(Place::Root, "perf"), (Place::Filtered, "proc")] {
        measured(&format!("upstream by {backend} as {place:?}"), || {
            let o = attach(&tool, place, &["--backend", backend], "upstream")?;
            let port = o.truth.extra("upstream_port")?;
            let address = format!("127.0.0.1:{port}");
            let peers = || o.report.peers.iter();
            let found = peers().find(|p| p.asks && p.address == address);
            let Some(peer) = found else {
                return Err(Error::Output(format!(
                    "no {address} in {:?}",
                    o.report.peers
                )));
            };
            // Some are open at the edges; polls see the others at so many moments.
            let requests = o.truth.extra("requests")?;
            off("requests", requests, peer.requests as f64, 2.0)?;
            let own = |t: &&wallscope_testkit::truth::ThreadTruth| t.name == "loop";
            let own = o.truth.threads.iter().find(own);
            let seen = own.and_then(|t| o.report.thread(t.pid, t.tid));
            let Some(seen) = seen else {
                return Err(Error::Output("the loop was not seen".into()));
            };
            // 51 polled requests had a standard error of 5.4 points (15 recordings); there are about 100.
            let most = 15.0;
            let of_wall = |ns: f64| 100.0 * ns / seen.wall_ns as f64;
            let awaited = of_wall(o.truth.extra("awaited_ns")?);
            let in_flight = of_wall(peer.in_flight_ns as f64);
            off(
                "% of wall until upstream answered",
                awaited,
                in_flight,
                most,
            )?;
            // Beside that it waits for its gate and for its client.
            let owed = of_wall(o.truth.extra("owed_ns")?);
            let apart = seen.blocked.get("lock").copied().unwrap_or(0);
            let busy = seen.wall_ns - seen.idle_ns;
            let busy = of_wall(busy.saturating_sub(apart) as f64);
            off("% of wall not idle", owed, busy, most)?;
            Ok(format!(
                "{} of {requests} requests, not idle {busy:.1} %, truth {owed:.1} %",
                peer.requests
            ))
        });
    }
}

/// An ordinary user may not sample kernel code: that is no loss, and is not given to user code.
#[test]
fn what_may_not_be_sampled_is_told_as_such() {
    let Some(tool) = tool() else { return };
    measured("the kernel's part as an ordinary user", || {
        // Often enough for its little user code to be sampled: without any sample all is [not sampled].
        let more = ["--backend", "perf", "-F", "997", "--max-overhead", "25"];
        let o = attach(&tool, Place::User, &more, "events")?;
        let limits = o.domain["limits"].to_string();
        if !limits.contains("may sample user code only") {
            let why = "perf_event_paranoid below 2: everybody may sample the kernel";
            return Err(Error::CannotRunHere(why.into()));
        }
        let own = o.truth.threads.iter().find(|t| t.name == "events");
        let seen = own.and_then(|t| o.report.thread(t.pid, t.tid));
        let Some(seen) = seen else {
            return Err(Error::Output("its thread was not seen".into()));
        };
        let lines = || (o.stacks.iter()).filter(|l| l.state == "on_cpu" && l.thread == "events");
        let time = |lines: &mut dyn Iterator<Item = &wallscope_testkit::folded::Line>| {
            lines.map(|l| l.ns as f64).sum::<f64>() * 100.0 / seen.on_cpu_ns as f64
        };
        off("% of on-CPU time", 100.0, time(&mut lines()), 0.1)?;
        let lost = lines().filter(|l| l.truncated.as_deref() == Some("lost"));
        off("% lost", 0.0, time(&mut { lost }), 0.0)?;
        // It makes pages and system calls all the time.
        let not_sampled = time(&mut lines().filter(|l| l.is_unsampled()));
        if !(20.0..100.0).contains(&not_sampled) {
            return Err(Error::Output(format!("{not_sampled:.1} % not sampled")));
        }
        Ok(format!("{not_sampled:.1} % of on-CPU time not sampled"))
    });
}

const FAULTS: &str = "page-faults";
const WRITES: &str = "syscalls:sys_enter_write";

/// Events of a recording.
struct Events {
    /// Of the program's thread.
    of_thread: f64,
    by_function: BTreeMap<String, f64>,
    /// Stacks behind the functions.
    stacks: f64,
}

fn events(tool: &Tool, file: &Path, event: &str, tid: u32) -> Result<Events, Error> {
    let file = file.to_str().expect("a plain path");
    let output = tool.run(&["report", file, "--json", "--value", event])?;
    let said: Value = serde_json::from_slice(&output.stdout)
        .map_err(|e| Error::Output(format!("{event}: {e}")))?;
    let rows = |key: &str| said[key].as_array().cloned().unwrap_or_default();
    let thread = rows("threads").into_iter().find(|t| t["tid"] == tid);
    let all = thread.and_then(|t| t["wall_ns"].as_f64()).unwrap_or(0.0);
    let by = rows("functions").into_iter().filter_map(|f| {
        let name = f["name"].as_str()?.to_string();
        Some((name, f["views"]["wall"]["total_ns"].as_f64()?))
    });
    Ok(Events {
        of_thread: all,
        by_function: by.collect(),
        stacks: said["views"]["wall"]["samples"].as_f64().unwrap_or(0.0),
    })
}

#[test]
fn stacks_at_events_of_own_threads() {
    let Some(tool) = tool() else { return };
    for place in [Place::Root, Place::User] {
        // Names of tracepoints are root's to read.
        let events = match place {
            Place::Root => format!("{FAULTS},{WRITES}"),
            _ => FAULTS.to_string(),
        };
        measured(&format!("-e {events} as {place:?}"), || {
            let keep = run::folder();
            let kept = keep.path().join("kept.pb.gz");
            let o = run::record_into(&tool, place, true, "events", Some(&kept), |pid| {
                let arguments = ["--backend", "perf", "-e", &events, "-p", &pid.to_string()];
                arguments.iter().map(OsString::from).collect()
            })?;
            let named = |t: &&wallscope_testkit::truth::ThreadTruth| t.name == "events";
            let own = o.truth.threads.iter().find(named);
            let tid = own.map_or(0, |t| t.tid);
            let mut told = Vec::new();
            for (event, functions) in [
                (FAULTS, &["events_touch"][..]),
                (WRITES, &["events_write_much", "events_write_little"]),
            ] {
                if !events.contains(event) {
                    continue;
                }
                let seen = self::events(&tool, &kept, event, tid)?;
                let right: Vec<f64> = (functions.iter())
                    .map(|name| o.truth.extra(name))
                    .collect::<Result<_, _>>()?;
                let sum: f64 = right.iter().sum();
                // It starts its clock with some faults, and ends with a line.
                off(event, sum, seen.of_thread, 64.0)?;
                for (name, right) in functions.iter().zip(right) {
                    let own = seen.by_function.get(*name).copied().unwrap_or(0.0);
                    let limit = share::ON_CPU + chance::binomial(right / sum, seen.stacks);
                    let limit = limit / 100.0 * sum;
                    off(&format!("{event} in {name}"), right, own, limit)?;
                }
                told.push(format!("{} of {sum} {event}", seen.of_thread));
            }
            Ok(told.join(", "))
        });
    }
}

#[test]
fn events_of_the_kernel_are_refused_to_who_may_not_measure_it() {
    let Some(tool) = tool() else { return };
    let refused = record(&tool, Place::User, "mix", |pid| {
        let arguments = [
            "--backend",
            "perf",
            "-e",
            "context-switches",
            "-p",
            &pid.to_string(),
        ];
        arguments.iter().map(OsString::from).collect()
    });
    match refused {
        Err(Error::CannotRunHere(said)) if said.contains("perf_event_paranoid") => {
            println!("refused: {said}");
        }
        Err(e) => panic!("{e}"),
        // Hosts on which everybody may.
        Ok(o) => println!("skipped: {} may measure the kernel", o.domain["privilege"]),
    }
}

#[test]
fn stacks_at_events_are_refused_where_nothing_tells_of_events() {
    let Some(tool) = tool() else { return };
    let folder = run::folder();
    let file = folder.path().join("recording.pb.gz");
    for (place, backend) in [
        (Place::Root, &["--backend", "proc"][..]),
        (Place::Filtered, &[]),
    ] {
        let arguments = [backend, &["-e", FAULTS, "--", "true"]].concat();
        let arguments: Vec<OsString> = arguments.into_iter().map(OsString::from).collect();
        let Err(Error::CannotRunHere(said)) = run::start(&tool, place, &file, &arguments) else {
            panic!("{place:?}: {FAULTS} by looks at /proc");
        };
        let parts = [
            "cannot take stacks at page-faults",
            "proc backend",
            "doctor",
        ];
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
        assert!(!file.exists(), "{said}");
    }
}

/// A filter refuses them: a setting that allows them already would be no remedy.
#[test]
fn refused_perf_events_are_told_with_what_would_help() {
    let Some(tool) = tool() else { return };
    let setting = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
    let setting: i32 = setting
        .ok()
        .and_then(|s| s.trim().parse().ok())
        .unwrap_or(3);
    let folder = run::folder();
    let file = folder.path().join("recording.pb.gz");
    for place in [Place::UserParanoid, Place::Filtered] {
        let arguments = ["--backend", "perf", "--", "true"].map(OsString::from);
        let Err(Error::CannotRunHere(said)) = run::start(&tool, place, &file, &arguments) else {
            panic!("{place:?}: perf events in spite of the filter");
        };
        let mut doctor = std::process::Command::new(tool.path());
        doctor.args(["doctor", "--json"]);
        place.enter(&mut doctor);
        let told = doctor.output().expect("it can be started");
        let told: serde_json::Value = serde_json::from_slice(&told.stdout).expect("json");
        let all = told["items"].as_array().expect("items");
        let own = all
            .iter()
            .find(|f| f["id"] == "perf_own")
            .expect("it is tried");
        for said in [&*said, own["remedy"].as_str().unwrap_or_default()] {
            assert!(said.contains("seccomp profile"), "{place:?}: {said}");
            assert_eq!(
                said.contains("sudo sysctl"),
                setting > 2,
                "{place:?}: {said}"
            );
        }
    }
}

/// Waits that end while they are looked at are told from each other, and from long ones, as they are.
#[test]
fn waits_too_short_to_be_read_have_their_reasons() {
    let Some(tool) = tool() else { return };
    // About a hundred looks fall into such waits: chance alone goes as far.
    for (backend, most) in [("perf", 15.0), ("proc", 20.0)] {
        measured(&format!("brief waits by {backend}"), || {
            let more = ["--backend", backend, "-F", "399", "--max-overhead", "25"];
            let o = attach(&tool, Place::Root, &more, "brief")?;
            let own = o.truth.threads.iter().find(|t| t.name == "brief");
            let seen = own.and_then(|t| o.report.thread(t.pid, t.tid));
            let (Some(seen), of) = (seen, &o.truth.functions) else {
                return Err(Error::Output("the thread was not seen".into()));
            };
            let all: u64 = of.iter().map(|f| f.blocked_ns()).sum();
            // A machine that others use makes waits for a CPU of them.
            let queue: u64 = of.iter().map(|f| f.run_delay_ns).sum();
            if queue * 4 > all {
                return Err(Error::Output(format!(
                    "{queue} ns in the queue, {all} blocked"
                )));
            }
            let percent = |ns: u64, of: u64| 100.0 * ns as f64 / of.max(1) as f64;
            let mut told = String::new();
            for reason in ["disk", "pipe", "timer"] {
                let truth = of.iter().filter(|f| f.reason == reason);
                let truth = percent(truth.map(|f| f.blocked_ns()).sum(), all);
                let ns = seen.blocked.get(reason).copied().unwrap_or(0);
                let ledger = percent(ns, seen.blocked_ns);
                off(reason, truth, ledger, most)?;
                told += &format!("{reason} {ledger:.1} (truth {truth:.1}) ");
            }
            let lines = o.stacks.iter();
            let lines = lines.filter(|l| l.thread == "brief" && l.state == "blocked");
            for f in of {
                let here = lines.clone().filter(|l| l.contains(&f.name));
                let here = percent(here.map(|l| l.ns).sum(), seen.blocked_ns);
                off(&f.name, percent(f.blocked_ns(), all), here, most)?;
            }
            Ok(told)
        });
    }
}

/// Switches a second of a thread that certainly has its records rationed (above 15,000).
const HASTY: f64 = 40_000.0;

/// Two threads that hand a byte to and fro do not have each switch recorded; their totals stay exact.
#[test]
fn who_switches_all_the_time_is_recorded_in_turns() {
    let Some(tool) = tool() else { return };
    measured("pingpong by perf", || {
        let o: Outcome = run::record_into(&tool, Place::Root, true, "pingpong", None, |pid| {
            let arguments = ["--backend", "perf", "-p", &pid.to_string()];
            arguments.iter().map(OsString::from).collect()
        })?;
        let told = run::judge(&o, "perf", 0.5)?;
        let hasty = o
            .truth
            .threads
            .iter()
            .any(|t| t.voluntary_switches as f64 * 1e9 > HASTY * t.work_wall_ns.max(1) as f64);
        if !hasty {
            return Ok(format!(
                "{told}; skipped: this machine does not switch so often now"
            ));
        }
        let limits = o.domain["limits"].to_string();
        if !limits.contains("switch very often") {
            return Err(Error::Output(format!(
                "every switch was recorded: {limits}"
            )));
        }
        for own in o.truth.threads.iter().filter(|t| t.work_wall_ns > 0) {
            let seen = o.report.thread(own.pid, own.tid);
            let seen = seen.map_or(0, |t| t.voluntary_switches);
            off("switches", own.voluntary_switches as f64, seen as f64, 50.0)?;
        }
        Ok(told)
    });
}

/// The capabilities that `doctor` prints for containers, and no others, give all that the ebpf backend needs, and
/// probes; where they are there, no finding asks for them.
#[test]
fn the_capabilities_of_the_recipe_are_enough() {
    let Some(tool) = tool() else { return };
    let recipe = tool
        .run(&["doctor", "--print", "docker"])
        .expect("it is printed");
    let recipe = String::from_utf8(recipe.stdout).expect("text");
    let words: Vec<&str> = recipe.split_ascii_whitespace().collect();
    let given = words.windows(2).filter(|w| w[0] == "--cap-add");
    let given: Vec<String> = given.map(|w| format!("+{}", w[1].to_lowercase())).collect();
    assert!(given.len() > 1, "{recipe}");
    let set = format!("-all,{}", given.join(","));
    let line = [
        "setpriv",
        &*format!("--bounding-set={set}"),
        &*format!("--inh-caps={set}"),
    ];
    let Some(line) = through("the capabilities of the recipe", &line) else {
        return;
    };
    let path = tool.path().to_str().expect("a plain path");
    let told = std::process::Command::new(&line[0])
        .args(&line[1..])
        .args([path, "doctor", "--json"])
        .output()
        .expect("it can be started");
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).expect("json");
    assert_eq!(told["backend"], "ebpf", "{told:#}");
    let refused = told["items"].as_array().expect("items").iter();
    for finding in refused.filter(|f| f["allowed"] == false) {
        let remedy = finding["remedy"].as_str().unwrap_or_default();
        assert!(!remedy.contains("CAP_PERFMON"), "{finding:#}");
    }
}
