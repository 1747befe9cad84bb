//! The driver against a stand-in that keeps to the contract, or does not.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use wallscope_testkit::tool::Options;
use wallscope_testkit::{Error, Tool};

const REPORT: &str = r#"{"schema":"wallscope.report/1","domain":{"backend":"perf"},"views":{"on-cpu":{"total_ns":8,"not_sampled_ns":2,"samples":3}},"window":{"start_ns":1,"end_ns":9,"clock":"CLOCK_MONOTONIC"},
"threads":[{"pid":1,"tid":2,"name":"t","wall_ns":8,"on_cpu_ns":8,"runnable_ns":0,"blocked_ns":0,"unknown_ns":0,"residue_ns":0,
"repaired_ns":0,"on_cpu":{"user":8},"runnable":{},"blocked":{},"idle_ns":0,"voluntary_switches":0,"involuntary_switches":0}],
"processes":[],"functions":[{"name":"f","module":"m","views":{"wall":{"self_ns":8,"total_ns":8,"low_ns":7,"high_ns":9}}}],
"reasons":[],"losses":[{"cause":"c","count":1}],"cost":{"bpf_ns":1,"own_cpu_ns":1,"rss_bytes":1,"kernel_bytes":1,"target_stopped_ns":0}}"#;

/// A shell script in the tool's place; `record` is the body of its record verb.
fn stand_in(folder: &Path, record: &str) -> Tool {
    let path = folder.join("wallscope");
    // A runner in the background ignores SIGINT, its children inherit that, and no shell can undo it.
    let script = format!(
        "#!/usr/bin/env -S --default-signal=INT sh\ncase $1 in\nrecord) {record} ;;\nreport) cat <<'X'\n{REPORT}\nX\n;;\nexport) echo 't;_start;f;on_cpu 8' ;;\nesac\n"
    );
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    Tool::at(path)
}

#[test]
fn a_program_is_held_back_until_the_recording_is_live() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("arguments");
    // Live only once asked for the right thing; ended only by SIGINT.
    let record = format!(
        "echo \"$@\" > {}; trap 'exit 0' INT; echo starting >&2; echo 'recording 1 process' >&2; while :; do sleep 0.01; done",
        trace.display()
    );
    let tool = stand_in(folder.path(), &record);
    let run = tool
        .measure("mix", &["--seconds", "0.2"], &Options::at(499))
        .unwrap();
    let arguments = fs::read_to_string(trace).unwrap();
    assert!(arguments.starts_with("record -F 499 -o "), "{arguments}");
    assert!(
        arguments
            .trim_end()
            .ends_with(&format!("-p {}", run.truth.pid)),
        "{arguments}"
    );
    assert_eq!(run.report.domain.backend, "perf");
    assert_eq!(run.evidence().samples("on-cpu", 4.0), 2.0);
    assert_eq!(run.report.thread(1, 2).unwrap().wall_ns, 8);
    assert_eq!(run.report.function("f", "wall").unwrap().high_ns, 9);
    assert_eq!(run.stacks[0].user_names(), ["_start", "f"]);
    assert!(!run.truth.functions.is_empty());
}

#[test]
fn what_is_not_permitted_is_told_apart_from_what_fails() {
    let folder = tempfile::tempdir().unwrap();
    let outcome = |record: &str| {
        let tool = stand_in(folder.path(), record);
        tool.attach(&[1], &Options::at(99)).unwrap_err()
    };
    let refused = outcome("echo 'needs CAP_BPF' >&2; exit 3");
    assert!(
        matches!(&refused, Error::CannotRunHere(why) if why.contains("CAP_BPF")),
        "{refused}"
    );
    let failed = outcome("echo 'out of luck' >&2; exit 1");
    assert!(
        matches!(&failed, Error::Output(why) if why.contains("out of luck")),
        "{failed}"
    );
}

#[test]
fn a_recorder_that_ends_badly_fails_the_experiment() {
    let folder = tempfile::tempdir().unwrap();
    let record = "trap 'exit 1' INT; echo recording >&2; while :; do sleep 0.01; done";
    let tool = stand_in(folder.path(), record);
    let error = tool
        .measure("mix", &["--seconds", "0.1"], &Options::at(99))
        .unwrap_err();
    assert!(error.to_string().contains("expected 0"), "{error}");
}

#[test]
#[should_panic(expected = "wallscope panicked: recording / thread")]
fn a_panic_is_not_just_another_failure() {
    let folder = tempfile::tempdir().unwrap();
    let said = "thread 'main' panicked at a.rs:1:2:";
    let record = format!(
        "trap 'exit 101' INT; echo recording >&2; echo \"{said}\" >&2; while :; do sleep 0.01; done"
    );
    let tool = stand_in(folder.path(), &record);
    let _ = tool.measure("mix", &["--seconds", "0.1"], &Options::at(99));
}
