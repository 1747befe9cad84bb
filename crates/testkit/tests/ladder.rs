//! The ladder's verdict on programs whose cause is known: rule, state, reason and function.

use wallscope_testkit::tool::Options;
use wallscope_testkit::{Error, Tool};

struct Scenario {
    program: &'static str,
    flags: &'static [&'static str],
    rule: &'static str,
    /// One of these, empty where the verdict names none.
    reasons: &'static [&'static str],
    /// How the function's name begins.
    function: &'static str,
}

const SCENARIOS: &[Scenario] = &[
    Scenario {
        program: "convoy",
        flags: &[],
        rule: "waiting",
        reasons: &["lock"],
        function: "convoy_wait_lock",
    },
    Scenario {
        program: "disk",
        flags: &[],
        rule: "waiting",
        reasons: &["disk"],
        function: "disk_",
    },
    Scenario {
        program: "rpc",
        flags: &[],
        rule: "waiting",
        reasons: &["network"],
        function: "rpc_",
    },
    Scenario {
        program: "crowd",
        flags: &[],
        rule: "cpu-shortage",
        reasons: &["preempted", "woken"],
        function: "crowd_spin",
    },
    Scenario {
        program: "throttled",
        flags: &[],
        rule: "quota",
        reasons: &["throttled"],
        function: "",
    },
    Scenario {
        program: "shares",
        flags: &["--threads", "1"],
        rule: "computing",
        reasons: &["", "user", "kernel"],
        function: "share_fifty",
    },
];

/// What is wrong with the verdict; `None`: nothing.
fn wrong(tool: &Tool, s: &Scenario) -> Result<Option<String>, Error> {
    let flags = [&["--seconds", "2"], s.flags].concat();
    let run = tool.measure(s.program, &flags, &Options::at(199))?;
    let ladder = run.recorded.json(&["ladder"])?;
    let verdict = &ladder["verdict"];
    let text = |key: &str| verdict[key].as_str().unwrap_or_default();
    let right = text("rule") == s.rule
        && s.reasons.contains(&text("reason"))
        && (text("function").starts_with(s.function)
            && (text("function").is_empty() == s.function.is_empty()));
    let crowded_out = text("rule") == "cpu-shortage" && verdict["outside"] == true;
    if !right && crowded_out {
        return Err(Error::CannotRunHere(format!(
            "others use this machine's CPUs, and the verdict says so: {}",
            text("cause")
        )));
    }
    Ok((!right).then(|| format!("{}: {verdict:#}", s.program)))
}

#[test]
fn verdicts_name_the_cause() {
    let tool = match Tool::find() {
        Ok(tool) => tool,
        Err(Error::CannotRunHere(why)) => return eprintln!("skipped the ladder: {why}"),
        Err(error) => panic!("{error}"),
    };
    for scenario in SCENARIOS {
        // What else runs on the machine is part of what is judged.
        let mut last = None;
        for _ in 0..4 {
            last = match wrong(&tool, scenario) {
                Ok(outcome) => outcome,
                Err(Error::CannotRunHere(why)) => {
                    eprintln!("skipped {}: {why}", scenario.program);
                    None
                }
                Err(error) => panic!("{}: {error}", scenario.program),
            };
            if last.is_none() {
                break;
            }
        }
        assert!(last.is_none(), "{}", last.unwrap_or_default());
    }
}

#[test]
fn a_sleeper_is_no_bottleneck() {
    let tool = match Tool::find() {
        Ok(tool) => tool,
        Err(Error::CannotRunHere(why)) => return eprintln!("skipped the ladder: {why}"),
        Err(error) => panic!("{error}"),
    };
    let ladder = tool
        .record(&["--", "sleep", "1.5"], &Options::at(99))
        .and_then(|recorder| recorder.ends_with(0))
        .and_then(|recorded| recorded.json(&["ladder"]));
    let verdict = match ladder {
        Ok(ladder) => ladder["verdict"].clone(),
        Err(Error::CannotRunHere(why)) => return eprintln!("skipped the sleeper: {why}"),
        Err(error) => panic!("{error}"),
    };
    // On a crowded machine its start alone may take more than an idle process may.
    let rule = verdict["rule"].as_str().unwrap_or_default();
    assert!(["idle", "sleeping"].contains(&rule), "{verdict:#}");
}
