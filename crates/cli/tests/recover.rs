//! `wallscope recover` without root: of a spool, of a whole log, and of other files.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use wallscope_observe::{LogFile, LogReader, LogWriter, Observation};

/// A whole log; `fixtures/README.md` says how it was made.
fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/convoy.log")
}

/// The log as a recorder left it that was killed after `marks` moments.
fn spool(to: &Path, marks: usize) {
    let mut writer = LogWriter::begin(LogFile::create(to).unwrap(), "wallscope", LogFile::BOUND);
    let mut reader = LogReader::open(&fixture()).unwrap();
    let mut met = 0;
    while met < marks {
        let Some(observation) = reader.next() else {
            break;
        };
        met += usize::from(matches!(observation, Observation::Mark(_)));
        writer.append(&observation);
    }
    writer.flush();
}

fn wallscope(verb: &str, log: &Path, to: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_wallscope"))
        .arg(verb)
        .args([log, Path::new("-o"), to])
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
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

#[test]
fn a_spool_gives_the_recording_up_to_its_last_slice() {
    let folder = tempfile::tempdir().unwrap();
    let [log, to] = ["run.pb.gz.spool", "run.pb.gz"].map(|name| folder.path().join(name));
    spool(&log, 6);
    let refused = wallscope("replay", &log, &to);
    assert_eq!(refused.status.code(), Some(5));
    assert!(said(&refused).contains("wallscope recover"), "{refused:?}");
    assert!(!to.exists());

    let out = wallscope("recover", &log, &to);
    assert!(out.status.success(), "{out:?}");
    assert!(said(&out).contains("recovered: the recorder ended early, at "));
    assert!(log.exists(), "the spool stays");
    let report = report(&to);
    let threads = report["threads"].as_array().unwrap();
    assert!(threads.len() >= 4);
    for thread in threads {
        assert_eq!(thread["residue_ns"], 0, "{thread}");
    }
    assert!(report["total"]["blocked"]["lock"].as_u64().unwrap() > 100_000_000);
    let notes = report["domain"]["notes"].to_string();
    assert!(notes.contains("the recorder ended early"), "{notes}");
    assert!(
        notes.contains("functions of the kernel have no names"),
        "{notes}"
    );
    // The program is not there under its path, or is another build.
    let losses = report["losses"].to_string();
    assert!(losses.contains("truth"), "{losses}");
}

#[test]
fn a_whole_log_is_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let made = ["replay", "recover"].map(|verb| {
        let to = folder.path().join(verb);
        let out = wallscope(verb, &fixture(), &to);
        assert!(out.status.success(), "{out:?}");
        fs::read(to).unwrap()
    });
    assert_eq!(made[0], made[1]);
}

#[test]
fn a_spool_without_a_slice_and_other_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let [log, to] = ["log", "to"].map(|name| folder.path().join(name));
    spool(&log, 0);
    fs::write(folder.path().join("other"), "x").unwrap();
    for (file, words) in [("log", "no beginning"), ("other", "no log of observations")] {
        let out = wallscope("recover", &folder.path().join(file), &to);
        assert_eq!(out.status.code(), Some(5), "{out:?}");
        assert!(said(&out).contains(words), "{out:?}");
    }
    assert!(!to.exists());
}

#[test]
fn a_spool_that_is_being_written_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let [log, to] = ["log", "to"].map(|name| folder.path().join(name));
    let file = LogFile::create(&log).unwrap();
    let out = wallscope("recover", &log, &to);
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    assert!(said(&out).contains("belongs to a recording under way"));
    drop(file);
    assert_eq!(wallscope("recover", &log, &to).status.code(), Some(5));
}
