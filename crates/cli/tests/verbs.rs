//! The verbs as a user meets them: output, exit codes, messages.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use wallscope_formats::pprof;
use wallscope_model::scale::scale;
use wallscope_synthetic as synthetic;

fn wallscope() -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_wallscope"));
    c.env_remove("COLUMNS").env_remove("NO_COLOR");
    c
}

fn run(args: &[&str]) -> Output {
    wallscope()
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn file(dir: &Path, name: &str, workers: u32) -> PathBuf {
    let rec = synthetic::recording(workers);
    let path = dir.join(name);
    let bytes = pprof::write(&rec, &scale(&rec), Vec::new()).unwrap();
    std::fs::write(&path, bytes).unwrap();
    path
}

/// One line on stderr, and this exit code.
fn fails(out: &Output, code: i32, says: &[&str]) {
    let err = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(code), "{err}");
    assert!(
        err.starts_with("wallscope: ") && err.lines().count() == 1,
        "{err}"
    );
    for word in says {
        assert!(err.contains(word), "{word}: {err}");
    }
    assert!(out.stdout.is_empty());
}

#[test]
fn report_starts_with_the_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), "a.pb.gz", 4);
    let out = run(&["report", path.to_str().unwrap()]);
    assert!(out.status.success() && out.stderr.is_empty());
    let text = String::from_utf8(out.stdout).unwrap();
    let first = text.lines().next().unwrap();
    assert!(
        first
            .contains(" of 38.1 s of active time (5 of 6 threads; 10.0 s idle or parked left out)"),
        "{first}"
    );
    assert!(first.contains("Faster code cannot reduce"), "{first}");
    assert!(!text.contains('\x1b'), "no colour in a pipe");

    let narrow = wallscope()
        .args(["report", path.to_str().unwrap()])
        .env("COLUMNS", "60")
        .output()
        .unwrap();
    let text = String::from_utf8(narrow.stdout).unwrap();
    assert!(text.lines().all(|l| l.chars().count() <= 60), "{text}");
}

#[test]
fn report_reads_standard_input_and_speaks_json_and_markdown() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), "a.pb.gz", 2);
    let stdin = || std::fs::File::open(&path).unwrap();
    let out = wallscope()
        .args(["report", "-", "--json"])
        .stdin(stdin())
        .output()
        .unwrap();
    let v: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(v["schema"], "wallscope.report/1");
    assert!(v["finding"].as_str().unwrap().contains(" of active time ("));
    let out = wallscope()
        .args(["report", "-", "--md"])
        .stdin(stdin())
        .output()
        .unwrap();
    assert!(out.stdout.starts_with(b"**"));
}

#[test]
fn export_folds_merges_and_writes_files() {
    let dir = tempfile::tempdir().unwrap();
    let a = file(dir.path(), "a.pb.gz", 2);
    let b = file(dir.path(), "b.pb.gz", 3);
    let (a, b) = (a.to_str().unwrap(), b.to_str().unwrap());
    let sum = |args: &[&str]| -> u64 {
        let out = run(args);
        assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
        let text = String::from_utf8(out.stdout).unwrap();
        text.lines()
            .map(|l| l.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap())
            .sum()
    };
    let fold = ["--format", "folded", "--view", "off-cpu"];
    let (one, two) = (
        sum(&[&["export", a], &fold[..]].concat()),
        sum(&[&["export", b], &fold[..]].concat()),
    );
    assert_eq!(sum(&[&["export", a, b], &fold[..]].concat()), one + two);

    let merged = dir.path().join("both.pb.gz");
    let out = run(&[
        "export",
        a,
        b,
        "--format",
        "pprof",
        "-o",
        merged.to_str().unwrap(),
    ]);
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    assert_eq!(
        sum(&[&["export", merged.to_str().unwrap()], &fold[..]].concat()),
        one + two
    );
    let left: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(left.len(), 3, "no temporary file stays: {left:?}");

    let disk = [
        "export", a, "--format", "folded", "--thread", "worker-1", "--reason", "disk",
    ];
    assert_eq!(sum(&disk), 1_800_000_000);
    let out = run(&[&disk[..], &["--with", "thread,state,reason"]].concat());
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(
        text.starts_with("worker-1;clone3;") && text.contains(";blocked;disk 1800000000"),
        "{text}"
    );
}

#[test]
fn selecting_is_the_same_in_every_verb() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), "a.pb.gz", 3);
    let path = path.to_str().unwrap();
    let select = ["--focus", "Inventory", "--state", "blocked"];
    let folded = run(&[&["export", path, "--format", "folded"], &select[..]].concat());
    let sum: u64 = String::from_utf8(folded.stdout)
        .unwrap()
        .lines()
        .map(|l| l.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap())
        .sum();
    let report = run(&[&["report", path, "--json"], &select[..]].concat());
    let v: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    let of = |key: &str| -> u64 {
        let threads = v["threads"].as_array().unwrap();
        threads.iter().map(|t| t[key].as_u64().unwrap()).sum()
    };
    assert!(sum > 0);
    assert_eq!(
        (of("wall_ns"), of("blocked_ns"), of("on_cpu_ns")),
        (sum, sum, 0)
    );
    assert!(
        v["domain"]
            .to_string()
            .contains("selected: state blocked, focus Inventory")
    );

    let misspelt = run(&["report", path, "--focus", "Inventroy"]);
    let err = String::from_utf8(misspelt.stderr).unwrap();
    assert!(
        misspelt.status.success() && err.contains("--focus meets nothing"),
        "{err}"
    );
    let late = run(&["report", path, "--time", "11..12"]);
    fails(&late, 2, &["it lasts 10.000 s", "--time"]);
    let wrong = run(&["report", path, "--focus", "("]);
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn unreadable_input_is_exit_code_5() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), "a.pb.gz", 1);
    let whole = std::fs::read(&path).unwrap();
    let with = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        run(&["report", path.to_str().unwrap()])
    };
    fails(
        &run(&["report", "/no/such/file"]),
        5,
        &["'/no/such/file'", "wallscope record"],
    );
    fails(
        &run(&["report", dir.path().to_str().unwrap()]),
        5,
        &["name a file in it"],
    );
    fails(&with("empty", b""), 5, &["it is empty"]);
    fails(
        &with("cut", &whole[..whole.len() / 2]),
        5,
        &["cut short", "record again"],
    );
    fails(&with("text", b"hello there"), 5, &["hello there"]);
    // All of it can be read, but not that it is all: it is shown, and told.
    let out = with("tail", &whole[..whole.len() - 8]);
    assert_eq!(out.status.code(), Some(5));
    assert!(String::from_utf8_lossy(&out.stderr).contains("ends in the middle"));
    assert!(!out.stdout.is_empty());
    let padded = [&whole[..], &[0; 512]].concat();
    let out = with("padded", &padded);
    assert_eq!(out.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&out.stderr).contains("is left out"));
    let mut broken = whole;
    let middle = broken.len() / 2;
    broken[middle..].fill(0x55);
    fails(&with("broken", &broken), 5, &["'"]);
}

#[test]
fn wrong_use_is_exit_code_2() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), "a.pb.gz", 1);
    let path = path.to_str().unwrap();
    for args in [
        &["no-such-verb"][..],
        &["report"],
        &["report", path, "--json", "--md"],
        &["record", "-e", "", "--", "true"],
        &["export", path],
        &["export", path, "--format", "no-such-format"],
        &[
            "export",
            path,
            "--format",
            "folded",
            "--view",
            "no-such-view",
        ],
        &[
            "export",
            path,
            "--format",
            "folded",
            "--reason",
            "no-such-reason",
        ],
    ] {
        assert_eq!(run(args).status.code(), Some(2), "{args:?}");
    }
    let out = run(&["export", path, "--format", "pprof", "--view", "wall"]);
    fails(
        &out,
        2,
        &["--view is not for --format pprof", "-sample_index"],
    );
}

#[test]
fn places_that_cannot_be_written_are_exit_code_1() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), "a.pb.gz", 1);
    let to = |place: &str| {
        run(&[
            "export",
            path.to_str().unwrap(),
            "--format",
            "pprof",
            "-o",
            place,
        ])
    };
    fails(
        &to("/no/such/folder/out.pb.gz"),
        1,
        &["/no/such/folder", "-o"],
    );
    fails(&to(dir.path().to_str().unwrap()), 1, &["is a folder"]);
    if Path::new("/dev/full").exists() {
        let full = std::fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let out = wallscope()
            .args(["export", path.to_str().unwrap(), "--format", "folded"])
            .stdout(full)
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        fails(&out, 1, &["cannot write to standard output"]);
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
        let help = wallscope().arg("--help").stdout(full.unwrap()).output();
        fails(&help.unwrap(), 1, &["cannot write to standard output"]);
    }
}

#[test]
fn a_limit_on_the_size_of_files_fails_with_a_message() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), "a.pb.gz", 1);
    let place = dir.path().join("out");
    let out = Command::new("sh")
        .args(["-c", "ulimit -f 0 && exec \"$@\"", "sh"])
        .arg(env!("CARGO_BIN_EXE_wallscope"))
        .args(["export", "--format", "folded", "-o"])
        .args([&place, &path])
        .output()
        .unwrap();
    fails(
        &out,
        1,
        &[place.to_str().unwrap(), "too large", "ulimit -f"],
    );
    assert!(!place.exists());
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let dir = tempfile::tempdir().unwrap();
    // More than a pipe holds.
    let path = file(dir.path(), "a.pb.gz", 600);
    let mut child = wallscope()
        .args(["report", path.to_str().unwrap(), "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0u8; 1];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut first).unwrap();
    drop(stdout);
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success());
    assert!(
        out.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
}

#[test]
fn help_has_examples_and_lists_every_format() {
    for verb in ["report", "export"] {
        let out = run(&[verb, "--help"]);
        let text = String::from_utf8(out.stdout).unwrap();
        assert!(out.status.success() && text.contains("Examples:"), "{text}");
    }
    let text = String::from_utf8(run(&["export", "--help"]).stdout).unwrap();
    let read = wallscope_formats::Format::read().map(|f| f.name);
    let written = wallscope_render::export::Export::all().map(|e| e.name());
    for name in read.chain(written) {
        assert!(text.contains(name), "{text}");
    }
}

#[test]
fn an_unknown_version_is_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new.pb");
    // Strings "", "wall", "nanoseconds"; a sample type; extension of version 9.
    let mut raw = vec![0x32, 0, 0x32, 4];
    raw.extend(b"wall");
    raw.extend([0x32, 11]);
    raw.extend(b"nanoseconds");
    raw.extend([0x0a, 4, 0x08, 1, 0x10, 2, 0xc2, 0x3e, 2, 0x08, 9]);
    std::fs::File::create(&path)
        .unwrap()
        .write_all(&raw)
        .unwrap();
    let out = run(&["report", path.to_str().unwrap()]);
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{err}");
    assert!(
        err.contains("warning") && err.contains("version 9") && err.contains("update"),
        "{err}"
    );
}

#[test]
fn doctor_tells_what_would_be_seen_of_a_process() {
    let own = std::process::id().to_string();
    let out = run(&["doctor", "-p", &own, "--json"]);
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let v: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(v["process"]["pid"].to_string(), own);
    let exe = std::env::current_exe().unwrap();
    let files = v["process"]["files"].as_array().unwrap();
    let mine = files.iter().find(|f| f["path"] == exe.to_str().unwrap());
    let mine = mine.unwrap_or_else(|| panic!("{} is not in {files:?}", exe.display()));
    assert_eq!(mine["unwinding"], true, "{mine}");
    assert!(
        ["debug_info", "symbols"].contains(&mine["names"].as_str().unwrap()),
        "{mine}"
    );
    let text = String::from_utf8(run(&["doctor", "-p", &own]).stdout).unwrap();
    assert!(text.contains(&format!("Process {own}, verbs")), "{text}");
    fails(
        &run(&["doctor", "-p", "4194304"]),
        4,
        &["no process with pid 4194304"],
    );
}

#[test]
fn what_is_no_process_to_measure_is_refused_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rec.pb.gz");
    let file = file.to_str().unwrap();
    let (told, hear) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let link = std::fs::read_link("/proc/thread-self").unwrap();
        let tid = link.file_name().unwrap().to_str().unwrap().to_owned();
        told.send(tid).unwrap();
        // Until the other end is gone.
        let _ = ended.recv();
    });
    let tid = hear.recv().unwrap();
    let own = std::process::id();
    for backend in ["proc", "perf", "ebpf"] {
        let args = ["record", "-p", &tid, "-d", "1", "--backend", backend];
        let out = run(&[&args[..], &["-o", file]].concat());
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        // Whether it may be used here comes first.
        if out.status.code() == Some(3) {
            println!("skipped: {backend} is not allowed here: {said}");
            continue;
        }
        let why = format!("it is a thread of process {own}; measure that (-p {own})");
        fails(&out, 4, &[&why]);
    }
    drop(end);
    thread.join().unwrap();
    let shell = format!(
        "exec {} record -p $$ -d 1 -o {file}",
        env!("CARGO_BIN_EXE_wallscope")
    );
    let out = std::process::Command::new("sh")
        .args(["-c", &shell])
        .output()
        .unwrap();
    fails(&out, 4, &["it is this wallscope itself"]);
}

/// A recording with one thread that is idle while it waits; returns its path and the idle time, ns.
fn with_idle(dir: &Path, name: &str) -> (PathBuf, u64) {
    let mut rec = synthetic::recording(3);
    let waits = |s: &wallscope_model::Sample| s.reason.is_some();
    let who = rec.samples.iter().find(|s| waits(s)).unwrap().context;
    for s in &mut rec.samples {
        s.idle = s.context == who && waits(s);
    }
    let scaled = scale(&rec);
    let idle = |p: &&wallscope_model::scale::Piece| rec.samples[p.sample as usize].idle;
    let idle: u64 = scaled.pieces.iter().filter(idle).map(|p| p.ns).sum();
    rec.contexts[who.0 as usize].ledger.idle_ns = idle;
    let path = dir.join(name);
    std::fs::write(&path, pprof::write(&rec, &scale(&rec), Vec::new()).unwrap()).unwrap();
    (path, idle)
}

#[test]
fn idle_time_is_hidden_where_one_looks_and_nowhere_else() {
    let dir = tempfile::tempdir().unwrap();
    let (path, idle) = with_idle(dir.path(), "idle.pb.gz");
    assert!(idle > 1_000_000_000);
    let path = path.to_str().unwrap();
    let said = |args: &[&str]| {
        let out = run(args);
        let err = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{args:?}: {err}");
        String::from_utf8(out.stdout).unwrap()
    };
    // The page: shown in exports, else as asked.
    let page = |idle: &str| said(&["view", path, "-o", "-", "--idle", idle]);
    assert_eq!(page("hide"), said(&["view", path, "-o", "-"]));
    assert_ne!(page("hide"), page("show"));
    assert_ne!(page("only"), page("show"));
    assert_eq!(page("show"), said(&["export", path, "--format", "html"]));
    // The ladder: set apart and said so; listed where asked for.
    let hidden = said(&["ladder", path]);
    assert!(hidden.contains("; --idle show lists it"), "{hidden}");
    assert!(!hidden.contains("no part of the shares"), "{hidden}");
    let shown = said(&["ladder", path, "--idle", "show"]);
    let only = said(&["ladder", path, "--idle", "only"]);
    for text in [&shown, &only] {
        assert!(text.contains("no part of the shares"), "{text}");
    }
    assert!(shown.lines().count() > only.lines().count(), "{only}");
    let json = |args: &[&str]| -> serde_json::Value { serde_json::from_str(&said(args)).unwrap() };
    let apart = json(&["ladder", path, "--json"])["apart"].clone();
    let rows = apart.as_array().unwrap();
    let sum: u64 = rows.iter().map(|row| row["ns"].as_u64().unwrap()).sum();
    assert!(sum >= idle, "{sum} of {idle}: {apart}");
    // The comparison says how much it left out.
    let text = said(&["diff", path, "--", path]);
    assert!(text.contains("idle time is left out"), "{text}");
    let told = json(&["diff", path, "--json", "--", path]);
    assert_eq!(told["hidden_idle_ns"]["base"], idle);
    let told = json(&["diff", path, "--json", "--idle", "show", "--", path]);
    assert_eq!(
        (&told["idle"], &told["hidden_idle_ns"]["new"]),
        (&"show".into(), &0.into())
    );
}

#[test]
fn a_dash_is_standard_output_and_input_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), "a.pb.gz", 2);
    let path = path.to_str().unwrap();
    let inside = |args: &[&str]| {
        let out = wallscope()
            .args(args)
            .current_dir(dir.path())
            .stdin(std::fs::File::open(path).unwrap())
            .output()
            .unwrap();
        assert!(!dir.path().join("-").exists(), "{args:?} made a file");
        out
    };
    let page = inside(&["view", path, "-o", "-"]);
    assert!(page.status.success() && page.stderr.is_empty());
    assert!(page.stdout.trim_ascii_end().ends_with(b"</html>"));
    for verb in [
        &["export", path, "--format", "folded", "-o", "-"][..],
        &["diff", path, "-o", "-", "--", path],
    ] {
        let out = inside(verb);
        assert!(out.status.success() && !out.stdout.is_empty(), "{verb:?}");
    }
    for verb in [
        &["export", "-", "-", "--format", "folded"][..],
        &["diff", "-", "--", "-"],
    ] {
        fails(&inside(verb), 2, &["standard input can be read once"]);
    }
}

#[test]
fn what_is_not_in_a_recording_is_answered_with_what_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), "a.pb.gz", 2);
    let path = path.to_str().unwrap();
    fails(
        &run(&["why", path, "--thread", "wroker"]),
        2,
        &["'wroker'", "its threads are", "worker-1"],
    );
    let by = |key: &str| {
        let out = run(&["report", path, "--by", key]);
        assert!(out.status.success());
        String::from_utf8(out.stderr).unwrap()
    };
    assert_eq!(by("thread"), "");
    let warned = by("endpiont");
    assert!(
        warned.contains("--by endpiont meets nothing") && warned.contains("thread, process"),
        "{warned}"
    );
}

/// A line of its own, commands to a terminal, a change of the direction of writing, and the ends of HTML and of Markdown.
const HOSTILE: &str =
    "x\r\nINJECTED \x1b[31m\u{9b}2J\u{202e}fdp\u{2066}\x07\0\u{7f}\u{2028}</script><img src=a>`|";

/// A recording in which every name that a target or its user chooses is hostile.
fn hostile() -> wallscope_model::Recording {
    let mut rec = synthetic::recording(2);
    let name = |kept: &str| std::sync::Arc::<str>::from(format!("{kept}{HOSTILE}"));
    rec.domain.target.push_str(HOSTILE);
    rec.domain.notes.push(HOSTILE.into());
    rec.contexts.iter_mut().for_each(|c| c.name = name(&c.name));
    for p in &mut rec.processes {
        (p.name, p.exe, p.cmdline) = (name(&p.name), name(&p.exe), name(&p.cmdline));
    }
    for f in &mut rec.functions {
        (f.name, f.file) = (name(&f.name), name(&f.file));
    }
    rec.modules.iter_mut().for_each(|m| m.path = name(&m.path));
    rec
}

#[test]
fn names_do_no_harm_in_any_output() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("odd.pb.gz");
    let rec = hostile();
    std::fs::write(&path, pprof::write(&rec, &scale(&rec), Vec::new()).unwrap()).unwrap();
    let path = path.to_str().unwrap();
    let export = |format: &'static str| vec!["export", path, "--format", format];
    let said = |arguments: &[&str]| {
        let out = run(arguments);
        let text = String::from_utf8(out.stdout).unwrap();
        assert!(out.status.success(), "{arguments:?}");
        assert!(text.contains('x'), "{arguments:?} says nothing");
        let obeyed = |c: char| c != '\n' && wallscope_model::printable::is_obeyed(c);
        if let Some(at) = text.find(obeyed) {
            let from = text[..at]
                .char_indices()
                .rev()
                .nth(40)
                .map_or(0, |(i, _)| i);
            panic!("{arguments:?} prints {:?}", &text[from..at + 4]);
        }
        assert!(
            !text.contains("\nINJECTED"),
            "{arguments:?} prints a line of the target's"
        );
        text
    };
    for arguments in [
        vec!["report", path],
        vec!["report", path, "--md"],
        vec!["locks", path],
        vec!["ladder", path],
        vec!["diff", path, "--", path],
        export("folded"),
        export("svg"),
        export("markdown"),
        export("html"),
        export("callgrind"),
    ] {
        let text = said(&arguments);
        assert!(
            !text.contains("<img src=a>") || !text.contains("<html"),
            "{arguments:?}"
        );
    }
    for arguments in [
        vec!["report", path, "--json"],
        vec!["ladder", path, "--json"],
        vec!["diff", path, "--json", "--", path],
        export("json"),
        export("speedscope"),
        export("firefox"),
    ] {
        let text = said(&arguments);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(value.is_object(), "{arguments:?}");
    }
    // A reader of JSON gets the name as it is.
    let report: serde_json::Value =
        serde_json::from_str(&said(&["report", path, "--json"])).unwrap();
    let thread = report["threads"][0]["name"].as_str().unwrap();
    assert!(thread.ends_with(HOSTILE), "{thread:?}");
}

#[test]
fn names_in_messages_do_nothing_to_a_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let mut rec = synthetic::recording(1);
    rec.contexts[0].name = "red\x1b[31m\nand\x07".into();
    let path = dir.path().join("odd.pb.gz");
    std::fs::write(&path, pprof::write(&rec, &scale(&rec), Vec::new()).unwrap()).unwrap();
    let out = run(&["why", path.to_str().unwrap(), "--thread", "none"]);
    fails(&out, 2, &["red", "and"]);
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(!said.trim_end().contains(char::is_control), "{said:?}");
}
