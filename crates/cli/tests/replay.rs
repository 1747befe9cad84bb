//! `wallscope replay` without root: of a kept log, of a damaged one, and of other files.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use wallscope_testkit::{Tool, books};

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

/// What a refused log is said to be, with exit code 5 and no recording.
fn refused(log: &Path, folder: &Path) -> String {
    let to = folder.join("out.pb.gz");
    let out = replay(log, &to);
    assert_eq!(out.status.code(), Some(5), "{out:?}");
    assert!(!to.exists());
    String::from_utf8(out.stderr).unwrap()
}

/// The logs of truth programs that `cargo xtask fixtures` made.
fn logs() -> Vec<PathBuf> {
    let files = fs::read_dir(fixture("")).unwrap();
    let mut logs: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    logs.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    logs.sort();
    logs
}

#[test]
fn each_log_gives_its_books_twice() {
    let tool = Tool::at(env!("CARGO_BIN_EXE_wallscope"));
    let folder = tempfile::tempdir().unwrap();
    let [one, two] = ["one", "two"].map(|name| folder.path().join(name));
    let mut faults = Vec::new();
    for log in logs() {
        for to in [&one, &two] {
            let out = replay(&log, to);
            assert!(out.status.success(), "{log:?}: {out:?}");
        }
        assert!(
            fs::read(&one).unwrap() == fs::read(&two).unwrap(),
            "{log:?}"
        );
        let books = books::of(&tool, &one).unwrap();
        let at = log.with_extension("books.json");
        if std::env::var_os("WALLSCOPE_WRITE_BOOKS").is_some() {
            let text = serde_json::to_string_pretty(&books).unwrap();
            fs::write(&at, text + "\n").unwrap();
        }
        let expected = serde_json::from_slice(&fs::read(&at).unwrap()).unwrap();
        if let Some(difference) = books::difference(&books, &expected) {
            faults.push(format!("{}: {difference}", log.display()));
        }
    }
    assert!(
        faults.is_empty(),
        "{}\nif the change is wanted, WALLSCOPE_WRITE_BOOKS=1 writes the books anew",
        faults.join("\n")
    );
}

#[test]
fn threads_of_a_convoy_wait_for_its_lock() {
    let tool = Tool::at(env!("CARGO_BIN_EXE_wallscope"));
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("recording");
    for (name, backend) in [
        ("convoy.log", "ebpf"),
        ("convoy-switches.log", "perf"),
        ("convoy-polls.log", "proc"),
    ] {
        let out = replay(&fixture(name), &recording);
        assert!(out.status.success(), "{out:?}");
        let verb = ["report".as_ref(), "--json".as_ref(), recording.as_os_str()];
        let report = tool.run(&verb).unwrap().stdout;
        let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
        assert_eq!(report["domain"]["backend"], backend);
        let stacks = report["stacks"].to_string();
        assert!(stacks.contains("convoy_wait_lock") && stacks.contains("pthread_mutex_lock"));
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
