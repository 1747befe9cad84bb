//! Old recordings keep their outputs: three files of 0.1.0, one of each backend, give the report and
//! the folded stacks that were written when they were made. Scripts rely on both.
//!
//! `finding` is prose and is left out; the folded stacks stand for `stacks`. `WALLSCOPE_WRITE_EXPECTED=1` writes the expected files anew.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

const RECORDINGS: [&str; 3] = ["ebpf-mix", "perf-convoy", "proc-odd"];

fn path(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recordings")).join(name)
}

fn wallscope(arguments: &[&str], recording: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_wallscope"))
        .args(arguments)
        .arg(path(&format!("{recording}.pb.gz")))
        .output()
        .expect("the binary runs");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// The report without prose and stacks, one element of a list a line: a difference shows where it is.
fn report(recording: &str) -> String {
    let text = wallscope(&["report", "--json"], recording);
    let report: Value = serde_json::from_str(&text).expect("JSON");
    let fields = report.as_object().expect("an object");
    let mut lines = String::new();
    for (key, value) in fields {
        match value {
            _ if ["finding", "stacks"].contains(&key.as_str()) => {}
            Value::Array(elements) => {
                for element in elements {
                    lines.push_str(&format!("{key} {element}\n"));
                }
            }
            value => lines.push_str(&format!("{key} {value}\n")),
        }
    }
    lines
}

#[track_caller]
fn check(recording: &str, kind: &str, found: &str) {
    let path = path(&format!("{recording}.{kind}"));
    if std::env::var_os("WALLSCOPE_WRITE_EXPECTED").is_some() {
        fs::write(&path, found).expect("the expected file can be written");
    }
    let expected = fs::read_to_string(&path).expect("the expected file");
    let differs = expected.lines().zip(found.lines()).find(|(a, b)| a != b);
    assert_eq!(differs, None, "{recording} {kind}");
    assert_eq!(expected.len(), found.len(), "{recording} {kind}");
}

#[test]
fn reports_are_those_of_the_release_that_recorded() {
    for recording in RECORDINGS {
        check(recording, "report.txt", &report(recording));
    }
}

#[test]
fn folded_stacks_are_those_of_the_release_that_recorded() {
    for recording in RECORDINGS {
        let folded = [
            "export",
            "--format",
            "folded",
            "--with",
            "thread,state,reason",
        ];
        check(recording, "folded", &wallscope(&folded, recording));
    }
}
