//! `wallscope diff` as a user and a script meet it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use wallscope_formats::pprof;
use wallscope_model::scale::scale;
use wallscope_model::{
    Above, Actor, ActorId, BlockReason, Hop, LedgerSlice, Peer, Recording, Role, Sample, State,
};
use wallscope_synthetic as synthetic;

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_wallscope"))
        .args(args)
        .env_remove("COLUMNS")
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs")
}

fn write(dir: &Path, name: &str, rec: &Recording) -> PathBuf {
    let path = dir.join(name);
    let bytes = pprof::write(rec, &scale(rec), Vec::new()).unwrap();
    std::fs::write(&path, bytes).unwrap();
    path
}

/// The synthetic service with 50 % more disk time.
fn slower(workers: u32) -> Recording {
    waiting_longer(synthetic::recording(workers), BlockReason::Disk)
}

/// Makes all waits for `reason` 50 % longer.
fn waiting_longer(mut rec: Recording, reason: BlockReason) -> Recording {
    let more = |ns: u64| ns + ns / 2;
    for c in &mut rec.contexts {
        let waits = &mut c.ledger.blocked[reason as usize];
        c.ledger.wall_ns += *waits / 2;
        *waits = more(*waits);
    }
    let dearer = |mut row: LedgerSlice| {
        let waits = &mut row.blocked[reason as usize];
        *waits = more(*waits);
        row
    };
    rec.ledger_slices = rec.ledger_slices.iter().map(dearer).collect();
    for s in &mut rec.samples {
        if s.state == State::Blocked && s.reason == Some(reason) {
            s.ns = more(s.ns);
            s.slices.iter_mut().for_each(|v| v.ns = more(v.ns));
        }
    }
    rec
}

/// Adds a waker to the service's lock waits: a worker in its journal ends 90 % of their time.
fn with_holders(mut rec: Recording) -> Recording {
    let on_disk = |s: &&Sample| s.reason == Some(BlockReason::Disk);
    let writes = rec.samples.iter().find(on_disk).unwrap();
    let (stack, context) = (Some(writes.stack), writes.context);
    rec.actors = vec![Actor::Context(context)];
    for (i, s) in rec.samples.iter().enumerate() {
        if s.reason != Some(BlockReason::Lock) {
            continue;
        }
        rec.hops.push(Hop {
            above: Above::Sample(i as u32),
            role: Role::Woke,
            actor: ActorId(0),
            stack,
            reason: None,
            part: None,
            labels: None,
            count: s.count,
            ns: s.ns / 10 * 9,
        });
    }
    rec
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn what_became_slower_is_named_and_fails_a_script() {
    let dir = tempfile::tempdir().unwrap();
    let a = write(dir.path(), "a.pb.gz", &synthetic::recording(4));
    let b = write(dir.path(), "b.pb.gz", &slower(4));
    let (a, b) = (a.to_str().unwrap(), b.to_str().unwrap());
    let out = run(&["diff", a, "--", b]);
    let said = text(&out.stdout);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(
        said.contains("waits (disk) more") && said.contains("orders::Journal::commit()"),
        "{said}"
    );

    // Options stand before BASE, between, or after NEW.
    let condition = "off-cpu@Journal::commit:+10%";
    for args in [
        &["diff", "--fail-if", condition, a, "--", b][..],
        &["diff", a, "--fail-if", condition, "--", b],
        &["diff", a, "--", b, "--fail-if", condition],
    ] {
        let out = run(args);
        assert_eq!(out.status.code(), Some(10), "{args:?}");
        assert!(
            text(&out.stderr).contains(condition),
            "{}",
            text(&out.stderr)
        );
    }
    let same = run(&["diff", a, "--", a, "--fail-if", "off-cpu:+10%", "--json"]);
    assert!(same.status.success());
    let v: serde_json::Value = serde_json::from_slice(&same.stdout).unwrap();
    assert_eq!(v["schema"], "wallscope.diff/1");
    assert_eq!(v["conditions"][0]["verdict"], "holds");
    let functions = v["functions"].as_array().unwrap();
    assert!(
        functions.iter().all(|f| f["changed"] == false),
        "a file against itself"
    );

    let junit = run(&[
        "diff",
        a,
        "--",
        b,
        "--format",
        "junit",
        "--fail-if",
        "disk:+1%",
    ]);
    assert_eq!(junit.status.code(), Some(10));
    assert!(
        text(&junit.stdout).contains("<failure message="),
        "{}",
        text(&junit.stdout)
    );
    let md = text(&run(&["diff", a, "--", b, "--md"]).stdout);
    assert!(
        md.starts_with("**blocked (disk) in `orders::Journal::commit()` +"),
        "{md}"
    );
}

#[test]
fn who_holds_a_lock_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let base = with_holders(synthetic::recording(4));
    let longer = waiting_longer(synthetic::recording(4), BlockReason::Lock);
    let a = write(dir.path(), "a.pb.gz", &base);
    let b = write(dir.path(), "b.pb.gz", &with_holders(longer));
    let (a, b) = (a.to_str().unwrap(), b.to_str().unwrap());
    let md = text(&run(&["diff", a, "--", b, "--md"]).stdout);
    let first = md.lines().next().unwrap();
    assert!(first.starts_with("**blocked (lock) in `"), "{md}");
    assert!(
        first.contains(", held by `orders::Journal::commit()` (9"),
        "{md}"
    );
    let said = text(&run(&["diff", a, "--", b]).stdout);
    assert!(
        said.contains("held by") && said.contains("thread worker-0"),
        "{said}"
    );
    let json = run(&["diff", a, "--", b, "--json"]);
    let v: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let held = &v["functions"][0]["held_by"];
    assert_eq!(held["thread"], "worker-0");
    let share = held["share"].as_f64().unwrap();
    assert!((0.88..0.92).contains(&share), "{held}");
}

#[test]
fn requests_are_those_served_while_recording() {
    let dir = tempfile::tempdir().unwrap();
    let served = |name: &str, requests: u64| {
        let mut rec = synthetic::recording(4);
        let peer = |asks: bool, pid: u32, requests: u64| Peer {
            pid: 4711,
            asks,
            peer_pid: pid,
            requests,
            connections: 1,
            ..Peer::default()
        };
        // Its requests to others, and to itself, are no requests of others.
        rec.peers = vec![
            peer(false, 0, requests - 10),
            peer(false, 77, 10),
            peer(false, 4711, 5_000),
            peer(true, 88, 9_000),
        ];
        write(dir.path(), name, &rec)
    };
    let (a, b) = (served("a.pb.gz", 100), served("b.pb.gz", 50));
    let (a, b) = (a.to_str().unwrap(), b.to_str().unwrap());
    let value = |args: &[&str]| -> serde_json::Value {
        let args = [&["diff", a, "--", b, "--json", "--per", "request"], args].concat();
        let out = run(&args);
        assert!(out.status.success(), "{}", text(&out.stderr));
        serde_json::from_slice(&out.stdout).unwrap()
    };
    let own = value(&[]);
    let given = value(&["--base-requests", "100", "--new-requests", "50"]);
    assert_eq!(own["whole"], given["whole"]);
    let notes = own["notes"].to_string();
    assert!(notes.contains("100 in the base, 50 in the new"), "{notes}");
    let part = run(&["diff", a, "--", b, "--per", "request", "--time", "2..4"]);
    assert_eq!(part.status.code(), Some(2));
    assert!(text(&part.stderr).contains("whole recording"));
}

#[test]
fn it_can_be_normalised_selected_and_written_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let a = write(dir.path(), "a.pb.gz", &synthetic::recording(4));
    let b = write(dir.path(), "b.pb.gz", &slower(4));
    let (a, b) = (a.to_str().unwrap(), b.to_str().unwrap());
    let value = |args: &[&str]| -> serde_json::Value {
        let out = run(&[&["diff", a, "--", b, "--json"], args].concat());
        assert!(out.status.success(), "{}", text(&out.stderr));
        serde_json::from_slice(&out.stdout).unwrap()
    };
    let base = |v: &serde_json::Value| v["whole"][0]["base"].as_f64().unwrap();
    let raw = base(&value(&["--per", "raw"]));
    let second = base(&value(&["--per", "second"]));
    let request = base(&value(&[
        "--per",
        "request",
        "--base-requests",
        "100",
        "--new-requests",
        "50",
    ]));
    assert!(
        (raw / second - 10.0).abs() < 1e-6,
        "the recording lasts 10 s"
    );
    assert!((raw / request - 100.0).abs() < 1e-6);
    assert!((base(&value(&["--per", "total"])) - 1.0).abs() < 1e-9);
    let selected = value(&["--focus", "Journal", "--by", "total"]);
    let names: Vec<&str> = selected["functions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f["name"].as_str().unwrap())
        .collect();
    assert!(
        names.contains(&"orders::Journal::commit()")
            && !names.contains(&"orders::parse(std::string_view)")
    );

    let page = dir.path().join("d.html");
    let out = run(&[
        "diff",
        a,
        "--",
        b,
        "--format",
        "html",
        "-o",
        page.to_str().unwrap(),
    ]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(
        html.contains("a.pb.gz → b.pb.gz") && html.len() < 100 * 1024,
        "{}",
        html.len()
    );
    let folded = text(&run(&["diff", a, "--", b, "--format", "folded"]).stdout);
    assert!(
        folded
            .lines()
            .all(|l| l.rsplitn(3, ' ').take(2).all(|v| v.parse::<u64>().is_ok())),
        "{folded}"
    );
}

#[test]
fn wrong_use_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let a = write(dir.path(), "a.pb.gz", &synthetic::recording(1));
    let a = a.to_str().unwrap();
    for (args, says) in [
        (&["diff", a][..], "NEW"),
        (&["diff", a, "--", a, "--per", "request"], "--base-requests"),
        (&["diff", a, "--", a, "--format", "junit"], "--fail-if"),
        (&["diff", a, "--", a, "--fail-if", "speed:+2%"], "speed"),
        (&["diff", a, "--", a, "--fdr", "200"], "percentage"),
    ] {
        let out = run(args);
        assert_eq!(out.status.code(), Some(2), "{args:?}");
        assert!(
            text(&out.stderr).contains(says),
            "{args:?}: {}",
            text(&out.stderr)
        );
    }
    let gone = run(&["diff", a, "--", "/nonexistent.pb.gz"]);
    assert_eq!(gone.status.code(), Some(5));
}

#[test]
fn stacks_of_other_tools_are_compared_in_their_own_unit() {
    let dir = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_string()
    };
    // Which state they were in, and how long it took, is not in such files.
    let a = put(
        "a.folded",
        "main;parse 3000\nmain;store 1000\nmain;load 900\n",
    );
    let b = put(
        "b.folded",
        "main;parse 3020\nmain;store 1400\nmain;load 910\n",
    );
    let said = text(&run(&["diff", &a, "--", &b]).stdout);
    assert!(said.contains("one function changed beyond noise"), "{said}");
    let changed = said.lines().find(|l| l.ends_with("store")).unwrap();
    assert!(
        changed.contains("takes more") && changed.contains("+40.0 %"),
        "{said}"
    );
    assert!(
        said.contains("1,000  1,400") && said.contains("counts of a run"),
        "{said}"
    );
    assert!(
        !said.contains(" ns") && !said.contains(" s "),
        "no times: {said}"
    );
    assert!(said.contains("says how long it was recorded"), "{said}");

    let json = run(&["diff", &a, "--", &b, "--json"]);
    let v: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(
        (&v["unit"], &v["normal"]),
        (&"counts".into(), &"raw".into())
    );
    assert_eq!(v["functions"][0]["states"]["unknown"]["new"], 1400.0);
    let folded = text(&run(&["diff", &a, "--", &b, "--format", "folded"]).stdout);
    assert_eq!(
        folded,
        "main;load 900 910\nmain;parse 3000 3020\nmain;store 1000 1400\n"
    );
    let md = text(&run(&["diff", &a, "--", &b, "--md"]).stdout);
    assert!(md.starts_with("**counts in `store` +400 "), "{md}");

    let same = text(&run(&["diff", &a, "--", &a]).stdout);
    assert!(
        same.contains("no function changed beyond noise; the whole is the same"),
        "{same}"
    );
    // Numbers that are no samples say nothing of their own error.
    let value = ["diff", "--value", "nanoseconds", &a, "--", &b];
    let said = text(&run(&value).stdout);
    assert!(
        said.contains("Of 0 functions judged") && said.contains("3.00 µs"),
        "{said}"
    );

    for (condition, code) in [
        ("wall@store:+10%", 10),
        ("wall@parse:+10%", 0),
        ("wall@store:+10ms", 2),
        ("wall@store:+1pp", 2),
    ] {
        let out = run(&["diff", &a, "--", &b, "--fail-if", condition]);
        assert_eq!(
            out.status.code(),
            Some(code),
            "{condition}: {}",
            text(&out.stderr)
        );
    }
    let out = run(&[
        "diff",
        &a,
        "--",
        &b,
        "--per",
        "total",
        "--fail-if",
        "wall@store:+3ms",
    ]);
    assert_eq!(out.status.code(), Some(2), "{}", text(&out.stderr));
    let out = run(&["diff", &a, "--", &b, "--per", "cpu-second"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(
        text(&out.stderr).contains("no on-CPU time"),
        "{}",
        text(&out.stderr)
    );
    let none = text(&run(&["diff", "--view", "on-cpu", &a, "--", &b]).stdout);
    assert!(none.starts_with("Nothing to compare"), "{none}");
}
