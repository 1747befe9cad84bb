//! Directories of an agent's windows as FILE, and `agent check`.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use wallscope_agent::store::{Caps, Store, WindowKey};
use wallscope_synthetic::windows::window;

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_wallscope"))
        .args(args)
        .env("TZ", "UTC")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn stored(dir: &Path, windows: std::ops::Range<u64>) {
    let caps = Caps {
        bytes: 1 << 30,
        age: Duration::from_secs(1 << 30),
    };
    let mut store = Store::open(dir, caps, &[]).unwrap();
    for sequence in windows {
        let key = WindowKey {
            host: "h".to_string(),
            boot: "b".to_string(),
            epoch: 1,
            sequence,
        };
        store.add(window(sequence), key).unwrap();
    }
}

fn json(args: &[&str]) -> serde_json::Value {
    let out = run(args);
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{err}");
    serde_json::from_slice(&out.stdout).unwrap()
}

/// Wall time of all threads of a report, ns.
fn wall(report: &serde_json::Value) -> u64 {
    let threads = report["threads"].as_array().unwrap();
    threads.iter().map(|t| t["wall_ns"].as_u64().unwrap()).sum()
}

#[test]
fn a_directory_is_read_by_time_and_service() {
    let dir = tempfile::tempdir().unwrap();
    stored(dir.path(), 0..30);
    let path = dir.path().to_str().unwrap();
    let range = [
        "--from",
        "2026-11-27T14:01:00Z",
        "--until",
        "2026-11-27T14:02:00Z",
    ];
    let report = |more: &[&str]| json(&[&["report", path, "--json"], &range[..], more].concat());
    // Six windows: six threads of 10 s, and half a batch process each.
    assert_eq!(wall(&report(&[])), 6 * 65_000_000_000);
    assert_eq!(report(&[])["threads"].as_array().unwrap().len(), 6 + 6);
    assert_eq!(
        wall(&report(&["--service", "checkout"])),
        6 * 40_000_000_000
    );
    let both = report(&["--service", "checkout", "--service", "batch"]);
    assert_eq!(wall(&both), 6 * 45_000_000_000);
    // Without times: the last five minutes of the directory.
    assert_eq!(
        wall(&json(&["report", path, "--json"])),
        30 * 65_000_000_000
    );
    // The range is told, and a service is a label like others.
    let out = run(&[&["report", path, "--by", "service"], &range[..]].concat());
    let err = String::from_utf8_lossy(&out.stderr);
    assert_eq!(
        err,
        "wallscope: 6 windows, 2026-11-27 14:01:00 to 2026-11-27 14:02:00\n"
    );
    let text = String::from_utf8_lossy(&out.stdout);
    for service in ["checkout", "payments", "batch"] {
        assert!(text.contains(service), "{text}");
    }
}

#[test]
fn other_verbs_read_directories_too() {
    let dir = tempfile::tempdir().unwrap();
    stored(dir.path(), 0..12);
    let path = dir.path().to_str().unwrap();
    let page = dir.path().join("page.html");
    let view = run(&["view", path, "--no-open", "-o", page.to_str().unwrap()]);
    assert!(view.status.success() && page.exists());
    let out = run(&[
        "export",
        path,
        "--format",
        "folded",
        "--service",
        "payments",
    ]);
    assert!(String::from_utf8_lossy(&out.stdout).contains("compute"));
    assert!(
        run(&["ladder", path, "--service", "checkout"])
            .status
            .success()
    );
    // A directory beside itself, at two times.
    let at = |from: &str, until: &str| format!("{path}@2026-11-27T{from}Z..2026-11-27T{until}Z");
    let (base, new) = (at("14:00:00", "14:01:00"), at("14:01:00", "14:02:00"));
    let out = run(&["diff", &base, "--json", "--", &new]);
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{err}");
    assert!(err.contains("14:00:00 to 2026-11-27 14:01:00"), "{err}");
    assert!(err.contains("14:01:00 to 2026-11-27 14:02:00"), "{err}");
}

#[test]
fn wrong_times_and_directories_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let empty = tempfile::tempdir().unwrap();
    stored(dir.path(), 0..2);
    let path = dir.path().to_str().unwrap();
    let file = std::fs::read_dir(path)
        .unwrap()
        .map(|e| e.unwrap().path().display().to_string())
        .find(|p| p.ends_with(".pb.gz"))
        .unwrap();
    for (args, code, says) in [
        (
            vec!["report", path, "--from", "soon"],
            2,
            "--from 'soon' is no time: write 14:00",
        ),
        (
            vec!["report", path, "--from", "-1m", "--until", "-2m"],
            2,
            "is not after --from",
        ),
        (
            vec!["report", path, "--until", "2026-11-27T13:00:00Z"],
            5,
            "there are windows from 2026-11-27T14:00:00+00:00 to 2026-11-27T14:00:20+00:00",
        ),
        (
            vec!["report", empty.path().to_str().unwrap()],
            5,
            "name a file in it, or an agent's directory",
        ),
        (
            vec!["report", &file, "--from", "-1m"],
            2,
            "use --time for a part of a recording",
        ),
        (
            vec!["agent", "check", "--config", "/no/such.toml"],
            5,
            "name another with --config FILE",
        ),
    ] {
        let out = run(&args);
        let err = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{err}");
        assert!(err.contains(says), "{err}");
    }
}

#[test]
fn agent_check_names_line_key_and_allowed_values() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../agent/agent.toml");
    let out = run(&["agent", "check", "--config", example.to_str().unwrap()]);
    assert!(out.status.success());
    assert!(
        String::from_utf8_lossy(&out.stdout)
            .contains("fine. Windows of 10 s in '/var/lib/wallscope'")
    );
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.toml");
    std::fs::write(&file, "[commands]\nkeep = \"everything\"\n").unwrap();
    let out = run(&["agent", "check", "--config", file.to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(5));
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(err.contains("line 2, commands.keep: unknown variant `everything`, expected one of `program`, `redacted`, `all`"), "{err}");
}
