//! The truth programs without eBPF: as root, as an ordinary user, under a filter that refuses what
//! containers refuse, and in namespaces of their own. Each prints its tier and result; what this
//! machine cannot offer is named as skipped.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::{
        fs::PermissionsExt,
        process::{CommandExt, ExitStatusExt},
    },
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use wallscope_testkit::{Error, Program, Tool, Truth, folded, report::Report};

/// In whose place wallscope runs.
#[derive(Clone, Copy, Debug)]
enum Place {
    Root,
    User,
    Filtered,
}

const USER: u32 = 65534;

impl Place {
    fn enter(self, command: &mut Command) {
        match self {
            Place::Root => {}
            Place::User => {
                command.uid(USER).gid(USER);
            }
            Place::Filtered => {
                command.uid(USER).gid(USER);
                // SAFETY: plain system calls on values made before the fork.
                unsafe { command.pre_exec(refuse) };
            }
        }
    }
}

/// Denies `bpf`, `perf_event_open` and `ptrace` to this process and its children.
fn refuse() -> std::io::Result<()> {
    let step = |code: u32, jt, jf, k: u32| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let is = |number: libc::c_long, to| {
        step(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            to,
            0,
            number as u32,
        )
    };
    let mut filter = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        is(libc::SYS_bpf, 3),
        is(libc::SYS_perf_event_open, 2),
        is(libc::SYS_ptrace, 1),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        step(
            libc::BPF_RET | libc::BPF_K,
            0,
            0,
            libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
        ),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the program outlives the calls, and its length is right.
    let ok = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            ) == 0
    };
    if ok {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

/// A recording made in some place, and the truth of its target.
struct Outcome {
    truth: Truth,
    report: Report,
    domain: serde_json::Value,
    stacks: Vec<folded::Line>,
}

fn tool() -> Option<Tool> {
    match Tool::find() {
        Ok(tool) => Some(tool),
        Err(e) => {
            println!("skipped: {e}");
            None
        }
    }
}

/// A folder that everybody may write to.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder can be made");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("it is ours");
    folder
}

fn read(tool: &Tool, file: &Path, truth: Truth) -> Outcome {
    let file = file.to_str().expect("a plain path");
    let text = |arguments: &[&str]| {
        let output = tool.run(arguments).expect("the tool starts");
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).expect("text")
    };
    let json = text(&["report", file, "--json"]);
    let whole: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    Outcome {
        truth,
        report: serde_json::from_str(&json).expect("the contract's JSON"),
        domain: whole["domain"].clone(),
        stacks: folded::parse(&text(&[
            "export",
            file,
            "--format",
            "folded",
            "--view",
            "wall",
            "--with",
            "thread,state",
        ]))
        .expect("folded stacks"),
    }
}

/// Measures a truth program that runs already, from before its work to after it.
fn attach(tool: &Tool, place: Place, backend: &str, name: &str) -> Result<Outcome, Error> {
    let mut command = Command::new(wallscope_testkit::program::path());
    command.args([name, "--seconds", "3", "--hold", "--linger"]);
    if !matches!(place, Place::Root) {
        command.uid(USER).gid(USER);
    }
    let mut program = Program::start_command(name, command)?;
    let folder = folder();
    let file = folder.path().join("recording.pb.gz");
    let mut record = Command::new(tool.path());
    record.args([
        "record",
        "--backend",
        backend,
        "-p",
        &program.pids()[0].to_string(),
        "-o",
    ]);
    record
        .arg(&file)
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    place.enter(&mut record);
    let mut child = record.spawn().map_err(|e| Error::Start(e.to_string()))?;
    let mut said = Vec::new();
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    while let Some(Ok(line)) = lines.next() {
        let live = line.contains("recording");
        said.push(line);
        if live {
            break;
        }
    }
    if !said.last().is_some_and(|line| line.contains("recording")) {
        let status = child.wait().map_err(|e| Error::Start(e.to_string()))?;
        let said = said.join(" / ");
        return Err(match status.code() {
            Some(3) => Error::CannotRunHere(said),
            _ => Error::Output(said),
        });
    }
    program.release()?;
    let truth = program.truth(Duration::from_secs(120))?;
    // SAFETY: a child of ours that has not been waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    said.extend(lines.map_while(Result::ok));
    let status = child.wait().map_err(|e| Error::Start(e.to_string()))?;
    program.finish()?;
    assert!(
        status.success(),
        "{place:?} {status}: {said:?} {:?}",
        status.signal()
    );
    Ok(read(tool, &file, truth))
}

/// Totals within `percent` of what the kernel counted, ledgers closed, the domain honest.
fn judge(o: &Outcome, what: &str, backend: &str, percent: f64) {
    assert_eq!(o.domain["backend"], backend, "{what}");
    let (mut threads, mut worst) = (0, 0f64);
    for t in o.truth.threads.iter().filter(|t| t.work_wall_ns > 0) {
        let Some(seen) = o.report.thread(t.pid, t.tid) else {
            panic!("{what}: thread {} ({}) was not seen", t.tid, t.name);
        };
        threads += 1;
        let off = |a: u64, b: u64| (a as f64 - b as f64).abs() * 100.0 / seen.wall_ns as f64;
        let here = off(seen.on_cpu_ns, t.on_cpu_ns);
        // The program's own figure leaves out its queueing before and after its work, which a busy
        // machine makes longer.
        let queue = off(seen.runnable_ns, t.run_delay_ns);
        assert!(
            queue <= 1.0,
            "{what}: {} queueing is {queue:.3} % off",
            t.name
        );
        worst = worst.max(here);
        assert!(
            here <= percent,
            "{what}: {} is {here:.3} % off: {seen:?} {t:?}",
            t.name
        );
        let residue = seen.residue_ns.unsigned_abs() as f64 / seen.wall_ns as f64;
        assert!(
            residue <= 1e-3,
            "{what}: residue of {}: {}",
            t.name,
            seen.residue_ns
        );
    }
    assert!(threads > 0, "{what}: the program has threads");
    println!("{what}: {backend}, {threads} threads, totals within {worst:.3} % of wall");
}

/// A thread's blocked time, and the part of it whose stack reached its root, ns.
fn blocked(o: &Outcome, thread: &str) -> (u64, u64) {
    let lines = o
        .stacks
        .iter()
        .filter(|l| l.thread == thread && l.state == "blocked");
    lines.fold((0, 0), |(all, whole), l| {
        let reached = l.truncated.is_none() && !l.is_unsampled();
        (all + l.ns, whole + if reached { l.ns } else { 0 })
    })
}

fn everywhere(backend: &str, percent: f64) {
    let Some(tool) = tool() else { return };
    for place in [Place::Root, Place::User, Place::Filtered] {
        for name in ["mix", "convoy", "rpc"] {
            let what = format!("{name} as {place:?}");
            match attach(&tool, place, backend, name) {
                Ok(o) => {
                    judge(&o, &what, backend, percent);
                    if name == "mix" {
                        let thread = &o.truth.threads[0].name;
                        let (all, whole) = blocked(&o, thread);
                        assert!(
                            all > 0 && whole * 100 >= all * 95,
                            "{what}: {whole} of {all} whole"
                        );
                    }
                }
                Err(Error::CannotRunHere(why)) => println!("skipped {what}: {why}"),
                Err(e) => panic!("{what}: {e}"),
            }
        }
    }
}

#[test]
fn proc_everywhere() {
    everywhere("proc", 0.5);
}

#[test]
fn perf_everywhere() {
    everywhere("perf", 0.2);
}

#[test]
fn running_threads_have_stacks_with_perf_events() {
    let Some(tool) = tool() else { return };
    for place in [Place::Root, Place::User] {
        let o = match attach(&tool, place, "perf", "mix") {
            Ok(o) => o,
            Err(Error::CannotRunHere(why)) => {
                println!("skipped {place:?}: {why}");
                continue;
            }
            Err(e) => panic!("{place:?}: {e}"),
        };
        let (mut all, mut whole) = (0, 0);
        for l in o.stacks.iter().filter(|l| l.state == "on_cpu") {
            all += l.ns;
            whole += if l.truncated.is_none() && !l.is_unsampled() {
                l.ns
            } else {
                0
            };
        }
        assert!(
            whole * 10 >= all * 9,
            "{place:?}: {whole} of {all} ns on-CPU with whole stacks"
        );
        println!(
            "{place:?}: {:.2} % of on-CPU time with whole stacks",
            whole as f64 * 100.0 / all as f64
        );
    }
}

#[test]
fn where_ebpf_is_refused_the_reason_is_told() {
    let Some(tool) = tool() else { return };
    let folder = folder();
    let file = folder.path().join("recording.pb.gz");
    let mut record = Command::new(tool.path());
    record
        .arg("record")
        .arg("-o")
        .arg(&file)
        .arg("--")
        .arg(wallscope_testkit::program::path());
    record.args(["mix", "--seconds", "1"]).stdin(Stdio::null());
    Place::Filtered.enter(&mut record);
    let output = record.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8(output.stdout).expect("text");
    let truth = text
        .lines()
        .rev()
        .find_map(|l| serde_json::from_str(l).ok())
        .expect("the truth");
    let o = read(&tool, &file, truth);
    assert_eq!(o.domain["backend"], "proc");
    let reason = o.domain["backend_reason"].as_str().unwrap_or_default();
    assert!(reason.contains("eBPF is refused"), "{reason}");
    assert!(said.contains("eBPF is refused"), "{said}");
    println!("{reason}");
}

#[test]
fn in_user_and_pid_namespaces_of_their_own() {
    let Some(tool) = tool() else { return };
    let unshare = [
        "--user",
        "--map-root-user",
        "--pid",
        "--fork",
        "--mount-proc",
    ];
    let works = Command::new("unshare").args(unshare).arg("true").output();
    if !works.is_ok_and(|o| o.status.success()) {
        println!("skipped: this machine permits no new user and pid namespace");
        return;
    }
    let folder = folder();
    let file = folder.path().join("recording.pb.gz");
    let output = Command::new("unshare")
        .args(unshare)
        .arg(tool.path())
        .args(["record", "-o"])
        .arg(&file)
        .arg("--")
        .arg(wallscope_testkit::program::path())
        .args(["mix", "--seconds", "1"])
        .stdin(Stdio::null())
        .output()
        .expect("it starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).expect("text");
    let truth = text
        .lines()
        .rev()
        .find_map(|l| serde_json::from_str(l).ok())
        .expect("the truth");
    let o = read(&tool, &file, truth);
    let backend = o.domain["backend"].as_str().unwrap_or_default();
    assert!(["perf", "proc"].contains(&backend), "{}", o.domain);
    assert!(!o.report.threads.is_empty());
    println!("namespaces: {backend}: {}", o.domain["backend_reason"]);
}
