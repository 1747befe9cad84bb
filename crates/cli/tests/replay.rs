//! `wallscope replay` without root: of a kept log, of a damaged one, and of other files.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// Logs of 1.4 s of the truth program `convoy`: four threads that queue for a mutex. One is of the eBPF
/// tier, one of the proc tier with stops of running threads, one of the perf tier. `fixtures/README.md` says how
/// they were made.
const FIXTURES: [&str; 3] = ["convoy.log", "convoy-polls.log", "convoy-switches.log"];

fn fixture(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    folder.join(name)
}

fn replay(log: &Path, to: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_wallscope"))
        .arg("replay")
        .args([log, Path::new("-o"), to])
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn report(recording: &Path) -> serde_json::Value {
    let out = Command::new(env!("CARGO_BIN_EXE_wallscope"))
        .args(["report", "--json"])
        .arg(recording)
        .output()
        .unwrap();
    assert!(out.status.success(), "{out:?}");
    serde_json::from_slice(&out.stdout).unwrap()
}

/// What a refused log is said to be, with exit code 5 and no recording.
fn refused(log: &Path, folder: &Path) -> String {
    let to = folder.join("out.pb.gz");
    let out = replay(log, &to);
    assert_eq!(out.status.code(), Some(5), "{out:?}");
    assert!(!to.exists());
    String::from_utf8(out.stderr).unwrap()
}

#[test]
fn a_log_gives_the_same_recording_each_time() {
    let folder = tempfile::tempdir().unwrap();
    let [one, two] = ["one", "two"].map(|name| folder.path().join(name));
    let twice = |name: &str| {
        for to in [&one, &two] {
            let out = replay(&fixture(name), to);
            assert!(out.status.success(), "{out:?}");
        }
        assert_eq!(fs::read(&one).unwrap(), fs::read(&two).unwrap());
        report(&one)
    };
    // As the recording had it that was made live beside this log.
    let report = twice("convoy.log");
    let total = &report["total"];
    assert_eq!(total["wall_ns"], 7_476_006_035_u64);
    assert_eq!(total["on_cpu_ns"], 592_323_976);
    assert_eq!(total["runnable_ns"], 465_395_177);
    assert_eq!(total["blocked"]["lock"], 3_933_201_514_u64);
    assert_eq!(report["timeline"]["intervals"], 7213);
    let stacks = report["stacks"].to_string();
    assert!(stacks.contains("convoy_wait_lock") && stacks.contains("pthread_mutex_lock"));
    let report = twice("convoy-polls.log");
    let total = &report["total"];
    assert_eq!(total["wall_ns"], 7_501_658_386_u64);
    assert_eq!(total["on_cpu_ns"], 72_295_049);
    assert_eq!(total["runnable_ns"], 2_057_585_903);
    assert_eq!(total["blocked"]["lock"], 3_476_479_106_u64);
    let stacks = report["stacks"].to_string();
    assert!(stacks.contains("convoy_wait_lock") && stacks.contains("pthread_mutex_lock"));
    let report = twice("convoy-switches.log");
    let total = &report["total"];
    assert_eq!(total["wall_ns"], 7_430_115_592_u64);
    assert_eq!(total["on_cpu_ns"], 160_511_335);
    assert_eq!(total["runnable_ns"], 207_304_649);
    assert_eq!(total["blocked"]["lock"], 4_214_685_265_u64);
    let stacks = report["stacks"].to_string();
    assert!(stacks.contains("convoy_wait_lock") && stacks.contains("pthread_mutex_lock"));
}

/// Ledgers, samples and intervals of a recording, over its whole time and over two stretches of it, where the
/// ledgers come from slices.
fn books(recording: &Path) -> serde_json::Value {
    let stretch = |time: &[&str]| {
        let out = Command::new(env!("CARGO_BIN_EXE_wallscope"))
            .args(["report", "--json"])
            .args(time)
            .arg(recording)
            .output()
            .unwrap();
        assert!(out.status.success(), "{out:?}");
        let whole: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        let keys = ["window", "total", "threads", "views", "timeline", "losses"];
        let part = keys.map(|key| (key.to_string(), whole[key].clone()));
        serde_json::Value::Object(part.into_iter().collect())
    };
    serde_json::json!({
        "whole": stretch(&[]),
        "early": stretch(&["--time", "0.2..0.5"]),
        "late": stretch(&["--time", "1.2..1.5"]),
    })
}

#[test]
fn a_log_gives_the_books_that_were_checked() {
    FIXTURES.into_iter().for_each(gives_its_books);
}

fn gives_its_books(name: &str) {
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("recording.pb.gz");
    let out = replay(&fixture(name), &recording);
    assert!(out.status.success(), "{out:?}");
    let books = books(&recording);
    let expected = fixture(name).with_extension("books.json");
    if std::env::var_os("WALLSCOPE_WRITE_BOOKS").is_some() {
        let text = serde_json::to_string_pretty(&books).unwrap();
        fs::write(&expected, text + "\n").unwrap();
    }
    let expected = fs::read(&expected).unwrap();
    let expected: serde_json::Value = serde_json::from_slice(&expected).unwrap();
    for (stretch, told) in books.as_object().unwrap() {
        for (key, value) in told.as_object().unwrap() {
            let expected = &expected[stretch][key];
            assert!(
                value == expected,
                "{name}, {stretch}, {key}: {value:#}\nexpected: {expected:#}\n\
                 if the change is wanted, WALLSCOPE_WRITE_BOOKS=1 writes the file anew"
            );
        }
    }
}

#[test]
fn a_damaged_log_gives_no_recording_and_says_where_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let half = |name: &str| {
        let whole = fs::read(fixture(name)).unwrap();
        fs::write(&log, &whole[..whole.len() / 2]).unwrap();
        (whole, refused(&log, folder.path()))
    };
    // All of it is in one frame.
    let (_, said) = half("convoy-polls.log");
    assert!(said.contains("before its beginning was whole"), "{said}");
    let (whole, said) = half("convoy.log");
    assert!(
        said.contains("ends early") && said.contains("cut short"),
        "{said}"
    );
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0xff;
    fs::write(&log, &damaged).unwrap();
    assert!(refused(&log, folder.path()).contains("ends early"));
}

#[test]
fn other_files_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    fs::write(
        &log,
        "wallscope observation log\nversion: 99\ntool: wallscope 9.0\n\n",
    )
    .unwrap();
    let said = refused(&log, folder.path());
    assert!(
        said.contains("version is 99") && said.contains("wallscope 9.0"),
        "{said}"
    );
    fs::write(&log, b"\x1f\x8b\x08").unwrap();
    assert!(refused(&log, folder.path()).contains("--keep-log"));
    assert!(refused(&folder.path().join("none"), folder.path()).contains("none"));
}
