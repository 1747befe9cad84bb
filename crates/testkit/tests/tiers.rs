//! The truth programs without eBPF: in the place of many users, with the refusals of their hosts. Each run prints
//! its tier and result; things that this machine cannot offer are named as skipped.

#[path = "tiers/bad_days.rs"]
mod bad_days;
#[path = "tiers/lower.rs"]
mod lower;
#[path = "tiers/place.rs"]
mod place;
#[path = "tiers/run.rs"]
mod run;
#[path = "tiers/witness.rs"]
mod witness;

use std::process::{Command, Stdio};

use wallscope_testkit::{Error, folded};

use place::{Place, USER, through};
use run::{attach, blocked, judge, launch, measured, record, tool};

/// Places with one backend, and the programs there. `percent`: how near totals come to the kernel's.
fn everywhere(backend: &str, percent: f64, places: &[(Place, &[&str])]) {
    let Some(tool) = tool() else { return };
    for (place, names) in places {
        for name in *names {
            let what = format!("{name} as {place:?}");
            measured(&what, || {
                let o = attach(&tool, *place, &["--backend", backend], name)?;
                let told = judge(&o, backend, percent)?;
                // A target has no stacks if its memory may not be read, and the domain says so.
                let (all, whole) = blocked(&o, &o.truth.threads[0].name);
                let expected = if *place == Place::NoMemory { 0 } else { 95 };
                if *name == "mix" && (all == 0 || whole * 100 < all * expected) {
                    return Err(Error::Output(format!(
                        "{whole} of {all} ns have whole stacks"
                    )));
                }
                Ok(told)
            });
        }
    }
}

#[test]
fn proc_everywhere() {
    let all = &["mix", "convoy", "rpc"][..];
    let places = [
        (Place::Root, &["mix"][..]),
        (Place::User, all),
        (Place::Filtered, all),
        (Place::NoMemory, &["mix", "rpc"]),
    ];
    everywhere("proc", 0.5, &places);
}

#[test]
fn perf_everywhere() {
    let all = &["mix", "convoy", "rpc"][..];
    let places = [
        (Place::Root, &["mix"][..]),
        (Place::RootNoBpf, &["convoy"]),
        (Place::User, all),
        (Place::UserParanoid, &["mix"]),
        (Place::Filtered, &["mix"]),
    ];
    everywhere("perf", 0.2, &places);
}

#[test]
fn running_threads_have_stacks_with_perf_events() {
    let Some(tool) = tool() else { return };
    for place in [Place::Root, Place::User] {
        measured(&format!("running stacks as {place:?}"), || {
            let o = attach(&tool, place, &["--backend", "perf"], "mix")?;
            let on_cpu: Vec<&folded::Line> =
                o.stacks.iter().filter(|l| l.state == "on_cpu").collect();
            let all: u64 = on_cpu.iter().map(|l| l.ns).sum();
            let whole = on_cpu
                .iter()
                .filter(|l| l.truncated.is_none() && !l.is_unsampled());
            let whole: u64 = whole.map(|l| l.ns).sum();
            if whole * 10 < all * 9 {
                return Err(Error::Output(format!("{whole} of {all} ns")));
            }
            let percent = whole as f64 * 100.0 / all as f64;
            Ok(format!("{percent:.2} % of on-CPU time with whole stacks"))
        });
    }
}

/// What is chosen without being asked, for a command: the best that the place allows.
#[test]
fn the_best_tier_is_chosen_and_the_reason_told() {
    let Some(tool) = tool() else { return };
    for (place, tiers) in [
        (Place::Root, ["ebpf", "ebpf"]),
        (Place::RootNoBpf, ["perf", "proc"]),
        (Place::User, ["perf", "proc"]),
        (Place::UserParanoid, ["proc", "proc"]),
        (Place::Filtered, ["proc", "proc"]),
        (Place::NoMemory, ["proc", "proc"]),
    ] {
        let o = match launch(&tool, &[], |command| place.enter(command)) {
            Ok(o) => o,
            Err(Error::CannotRunHere(why)) => {
                println!("skipped {place:?}: {why}");
                continue;
            }
            Err(e) => panic!("{place:?}: {e}"),
        };
        let backend = o.domain["backend"].as_str().unwrap_or_default();
        // On hosts where ordinary users have no perf events it is one lower.
        assert!(tiers.contains(&backend), "{place:?}: {}", o.domain);
        let reason = o.domain["backend_reason"].as_str().unwrap_or_default();
        if backend != "ebpf" {
            assert!(reason.contains("eBPF is refused"), "{reason}");
            assert!(o.said.contains("eBPF is refused"), "{}", o.said);
        }
        if place == Place::NoMemory {
            let limits = o.domain["limits"].to_string();
            assert!(limits.contains("stacks"), "{limits}");
        }
        println!("{place:?}: {backend} ({reason})");
    }
}

#[test]
fn in_namespaces_with_few_capabilities_and_on_a_proc_read_only() {
    let Some(tool) = tool() else { return };
    let mut setpriv = vec![
        "setpriv",
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
    ];
    setpriv.extend([
        "--inh-caps",
        "+bpf,+perfmon",
        "--ambient-caps",
        "+bpf,+perfmon",
    ]);
    let spaces = [
        "unshare",
        "--user",
        "--map-root-user",
        "--pid",
        "--fork",
        "--mount-proc",
    ];
    let read_only = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        "mount -o remount,ro,bind /proc && exec \"$@\"",
        "sh",
    ];
    for (what, line, tiers) in [
        ("CAP_BPF and CAP_PERFMON alone", &setpriv[..], &["ebpf"][..]),
        ("user and pid namespaces", &spaces, &["perf", "proc"]),
        ("a read-only /proc", &read_only, &["ebpf"]),
    ] {
        let Some(before) = through(what, line) else {
            continue;
        };
        let o = run::launch_through(&tool, &before, &[]);
        let o = o.unwrap_or_else(|e| panic!("{what}: {e}"));
        let backend = o.domain["backend"].as_str().unwrap_or_default();
        assert!(tiers.contains(&backend), "{what}: {}", o.domain);
        assert!(!o.report.threads.is_empty());
        println!("{what}: {backend}: {}", o.domain["backend_reason"]);
    }
    let Some(before) = through("a read-only /proc", &read_only) else {
        return;
    };
    for backend in ["perf", "proc"] {
        let o = run::launch_through(&tool, &before, &["--backend", backend]);
        let o = o.unwrap_or_else(|e| panic!("{backend}: {e}"));
        assert_eq!(o.domain["backend"], backend);
    }
}

#[test]
fn cgroups_and_the_whole_machine() {
    let Some(tool) = tool() else { return };
    for (place, backend) in [
        (Place::Root, "perf"),
        (Place::Root, "proc"),
        (Place::User, "proc"),
    ] {
        let what = format!("-a by {backend} as {place:?}");
        measured(&what, || {
            let o = record(&tool, place, "mix", |_| {
                vec!["--backend".into(), backend.into(), "-a".into()]
            })?;
            let told = judge(&o, backend, 0.5)?;
            Ok(format!("{told}; {} threads in all", o.report.threads.len()))
        });
    }
    for backend in ["perf", "proc"] {
        measured(&format!("--cgroup by {backend}"), || {
            let o = record(&tool, Place::Root, "mix", |pid| {
                let own = std::fs::read_to_string(format!("/proc/{pid}/cgroup"));
                let own = own.unwrap_or_default();
                let line = own.lines().last().unwrap_or_default();
                let path = line.rsplit(':').next().unwrap_or("/").to_owned();
                vec![
                    "--backend".into(),
                    backend.into(),
                    "--cgroup".into(),
                    path.into(),
                ]
            })?;
            let told = judge(&o, backend, 0.5)?;
            Ok(format!("{told}; {} threads in all", o.report.threads.len()))
        });
    }
}

#[test]
fn a_process_of_another_user_is_measured_as_far_as_it_shows() {
    let Some(tool) = tool() else { return };
    measured("root's program, by nobody", || {
        let o = run::record_of(&tool, Place::User, false, "mix", |pid| {
            vec!["-p".into(), pid.to_string().into()]
        })?;
        let backend = o.domain["backend"].as_str().unwrap_or_default().to_owned();
        let told = judge(&o, &backend, 0.5)?;
        let limits = o.domain["limits"].to_string();
        if backend != "proc" || !limits.contains("reading them is refused") {
            return Err(Error::Output(format!("{backend}: {limits}")));
        }
        Ok(told)
    });
}

#[test]
fn what_proc_hides_is_refused_with_the_reason() {
    let Some(tool) = tool() else { return };
    let user = USER.to_string();
    let hidden = "mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid \"$0\" --regid \"$0\" \
                  --clear-groups \"$@\"";
    let line = ["unshare", "--mount", "sh", "-c", hidden, &user];
    let Some(before) = through("hidepid", &line) else {
        return;
    };
    let folder = run::folder();
    // Not this process: other tests' programs below it belong to the user, and the user may see those.
    let mut target = Command::new("sleep")
        .arg("120")
        .spawn()
        .expect("sleep starts");
    let output = Command::new(&before[0])
        .args(&before[1..])
        .arg(tool.path())
        .args(["record", "-d", "1", "-p", &target.id().to_string(), "-o"])
        .arg(folder.path().join("out.pb.gz"))
        .stdin(Stdio::null())
        .output()
        .expect("it starts");
    target.kill().expect("it is ours");
    target.wait().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("hidepid"), "{said}");
    let o = run::launch_through(&tool, &before, &[]).unwrap_or_else(|e| panic!("hidepid: {e}"));
    println!("hidepid: own programs by {}", o.domain["backend"]);
}

#[test]
fn a_proc_of_other_process_ids_is_refused_with_the_reason() {
    let Some(tool) = tool() else { return };
    let Some(before) = through("pid namespace", &["unshare", "-U", "-r", "-p", "-f"]) else {
        return;
    };
    let folder = run::folder();
    let said = |arguments: &[&str]| {
        let output = Command::new(&before[0])
            .args(&before[1..])
            .arg(tool.path())
            .args(arguments)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .output()
            .expect("it starts");
        let said = [output.stdout, output.stderr].concat();
        (
            output.status.code(),
            String::from_utf8_lossy(&said).into_owned(),
        )
    };
    let (code, refusal) = said(&["record", "-o", "out.pb.gz", "--", "true"]);
    assert_eq!(code, Some(3), "{refusal}");
    assert!(refusal.contains("another pid namespace"), "{refusal}");
    assert!(said(&["doctor"]).1.starts_with("Nothing"), "doctor knows");
}
