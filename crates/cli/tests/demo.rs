//! The demonstration service: it serves, it ends by itself, and its report about itself is the
//! point it is there to make.

use std::process::Command;

#[test]
fn most_of_a_request_is_waiting() {
    let output = Command::new(env!("CARGO_BIN_EXE_wallscope-demo"))
        .args(["--seconds", "1.5"])
        .output()
        .unwrap();
    assert!(output.status.success());
    assert!(
        output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("READY "), "{text}");
    let share = |what: &str| -> f64 {
        let line = text.lines().find(|line| line.contains(what));
        let line = line.unwrap_or_else(|| panic!("no line on {what}: {text}"));
        let words: Vec<&str> = line.split_whitespace().collect();
        let percent = words.iter().position(|word| *word == "%").unwrap();
        words[percent - 1].parse().unwrap()
    };
    assert_eq!(share("a request, of"), 100.0);
    let (computing, lock, upstream) = (
        share("computing"),
        share("cache_get"),
        share("query_upstream"),
    );
    assert!(computing > 0.0 && computing < lock + upstream, "{text}");
    let all = computing + lock + upstream + share("the rest");
    assert!((all - 100.0).abs() < 0.5, "{text}");
}

#[test]
fn wrong_usage_fails_and_help_helps() {
    let run = |arguments: &[&str]| {
        let program = env!("CARGO_BIN_EXE_wallscope-demo");
        Command::new(program).args(arguments).output().unwrap()
    };
    let wrong = run(&["--seconds", "soon"]);
    assert!(!wrong.status.success());
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("soon"));
    assert!(String::from_utf8_lossy(&run(&["--help"]).stdout).contains("--seconds"));
}
