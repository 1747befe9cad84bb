//! `queues` as a user meets it: the line on top, JSON, what-if without a timeline, scaling, and refusals.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use wallscope_formats::pprof;
use wallscope_model::scale::scale;
use wallscope_synthetic as synthetic;

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_wallscope"))
        .arg("queues")
        .args(args)
        .env_remove("COLUMNS")
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs")
}

fn text(args: &[&str]) -> String {
    let out = run(args);
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{args:?}: {err}");
    String::from_utf8(out.stdout).expect("text")
}

fn file(dir: &Path) -> PathBuf {
    let rec = synthetic::recording(4);
    let path = dir.join("a.pb.gz");
    let bytes = pprof::write(&rec, &scale(&rec), Vec::new()).expect("it can be written");
    std::fs::write(&path, bytes).expect("a file");
    path
}

const PAIRS: [&str; 10] = [
    "--at", "1=99", "--at", "4=350", "--at", "8=580", "--at", "16=800", "--at", "32=790",
];

#[test]
fn pairs_alone_give_the_law_and_its_peak() {
    let out = text(&PAIRS);
    assert!(out.starts_with("Throughput peaks at load "), "{out}");
    assert!(
        out.contains("contention σ 0.0") && out.contains("coherence  κ "),
        "{out}"
    );
    let json: Value =
        serde_json::from_str(&text(&[&PAIRS[..], &["--json"]].concat())).expect("JSON");
    assert_eq!(json["schema"], "wallscope.queues/1");
    let peak = json["scaling"]["fit"]["peak_load"]["value"]
        .as_f64()
        .expect("a peak");
    assert!((15.0..32.0).contains(&peak), "{peak}");
}

#[test]
fn a_recording_has_its_queues_or_reasons() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = file(dir.path());
    let path = path.to_str().expect("text");
    let json: Value = serde_json::from_str(&text(&[path, "--json"])).expect("JSON");
    let list = |key: &str| json[key].as_array().cloned().unwrap_or_default();
    assert!(
        !list("queues").is_empty() || !list("not_described").is_empty(),
        "{json}"
    );
    for q in list("queues") {
        assert!(q["because"].as_str().is_some_and(|b| !b.is_empty()), "{q}");
        assert!(
            q["arrivals_per_s"]["value"]
                .as_f64()
                .is_some_and(|v| v > 0.0),
            "{q}"
        );
    }
    for a in list("not_described") {
        assert!(a["reason"].as_str().is_some_and(|r| !r.is_empty()), "{a}");
    }
    let out = text(&[path]);
    assert!(out.lines().all(|l| l.chars().count() <= 100), "{out}");
}

#[test]
fn refusals_say_what_was_wrong_and_what_to_do() {
    for (args, code, says) in [
        (&[][..], 2, "queues needs a recording, or a target"),
        (&["--at", "0=5"], 2, "more than 0"),
        (&["--at", "five"], 2, "N=X"),
        (&["x.pb.gz", "--faster", "f=1"], 2, "TIMES is more than 1"),
        (&["/nowhere.pb.gz"], 5, "cannot read"),
    ] {
        let out = run(args);
        let err = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{args:?}: {err}");
        assert!(
            err.contains(says) && out.stdout.is_empty(),
            "{args:?}: {err}"
        );
    }
    let dir = tempfile::tempdir().expect("a folder");
    let path = file(dir.path());
    let out = run(&[
        path.to_str().expect("text"),
        "--faster",
        "no_such_function=2",
    ]);
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stderr).contains("no_such_function"));
}
