//! Names of functions to probe, and probes that cannot be placed, and why: the exit code and the words.

use std::process::{Command, Output};

use wallscope_testkit::{Error, Program, Tool, live, tool::no_panic};

/// The tool beside a released program, unless it cannot run here.
fn program(flags: &[&str]) -> Option<(Tool, Program)> {
    let ready = Tool::find().and_then(|tool| {
        let mut program = Program::start("calls", flags)?;
        program.release()?;
        Ok((tool, program))
    });
    match ready {
        Ok(ready) => Some(ready),
        Err(Error::CannotRunHere(why)) => {
            live::cannot_run("refused probes", &why);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn says(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn names_that_cannot_be_probed_are_explained() {
    let Some((tool, program)) = program(&["--until-line"]) else {
        return;
    };
    let pid = program.pids()[0].to_string();
    let ask = |verb: &str, what: &str| {
        let arguments = [verb, what, "-p", &pid, "-d", "1"];
        tool.run(&arguments).expect("the tool runs")
    };
    for (what, code, words) in [
        ("calls_timd", 4, "calls_timed"),
        ("calls_inlined", 4, "inlined it everywhere"),
        ("nosuch.so:f", 4, "no such file"),
        ("syscall:raed", 4, "read"),
        ("tracepoint:sched:nosuch", 4, "no such tracepoint"),
        ("usdt:no:such", 4, "no such static probe"),
        ("tracepoint:x", 2, "category"),
    ] {
        let output = ask("count", what);
        let said = says(&output);
        if output.status.code() == Some(3) {
            live::cannot_run("probes", &said);
            continue;
        }
        assert_eq!(output.status.code(), Some(code), "{what}: {said}");
        assert!(said.contains(words), "{what}: {said}");
        no_panic(&said);
    }
    drop(program);
}

#[test]
fn of_several_functions_those_that_return_are_timed() {
    let Some((tool, program)) = program(&["--until-line"]) else {
        return;
    };
    let pid = program.pids()[0].to_string();
    // The functions of a C++ program are probed at their ends, and `fail` has none.
    let ask = |asked: &[&str]| {
        let arguments = [&["latency"], asked, &["-p", &pid, "-d", "500ms"]].concat();
        let output = tool.run(&arguments).expect("the tool runs");
        let said =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        (output.status.code(), said.into_owned())
    };
    let (code, said) = ask(&["fail"]);
    if code == Some(3) && !said.contains("never returns") {
        live::cannot_run("probes", &said);
        return;
    }
    assert_eq!(code, Some(3), "{said}");
    let (code, said) = ask(&["calls_timed", "fail"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("calls_timed (") && said.contains("p50"),
        "{said}"
    );
    assert!(
        said.contains("left out") && said.contains("fail: it never returns"),
        "{said}"
    );
    drop(program);
}

#[test]
fn a_function_without_a_name_is_probed_by_where_it_begins() {
    let whole = wallscope_testkit::program::plain();
    let folder = tempfile::tempdir().expect("a folder can be made");
    // A name without a dot, which a function could have too.
    let stripped = folder.path().join("worker");
    let done = Command::new("strip")
        .arg("-o")
        .args([&stripped, whole])
        .status();
    let symbols = Command::new("nm").arg(whole).output();
    let (Ok(true), Ok(symbols)) = (done.map(|s| s.success()), symbols) else {
        live::cannot_run("functions without names", "no strip and nm (binutils)");
        return;
    };
    let symbols = String::from_utf8_lossy(&symbols.stdout).into_owned();
    let line = symbols.lines().find(|l| l.ends_with(" calls_paced"));
    let address = line.and_then(|l| u64::from_str_radix(l.split(' ').next()?, 16).ok());
    // The linker lays code of such programs out in the file as in memory.
    let name = format!(
        "worker+{:#x}",
        address.expect("the program has that function")
    );
    let ready = Tool::find().and_then(|tool| {
        let mut command = Command::new(&stripped);
        command.args(["--seconds", "20"]);
        let mut program = Program::start_command("plain", command)?;
        program.release()?;
        Ok((tool, program))
    });
    let (tool, program) = match ready {
        Ok(ready) => ready,
        Err(Error::CannotRunHere(why)) => {
            live::cannot_run("functions without names", &why);
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let pid = program.pids()[0].to_string();
    for verb in ["count", "latency"] {
        let arguments = [
            verb,
            &name,
            "-p",
            &pid,
            "-d",
            "700ms",
            "--max-overhead",
            "20",
            "--json",
        ];
        let output = tool.run(&arguments).expect("the tool runs");
        let said = says(&output);
        if output.status.code() == Some(3) {
            live::cannot_run("probes", &said);
            continue;
        }
        assert!(output.status.success(), "{verb}: {said}");
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let function = &json["functions"][0];
        assert_eq!(function["name"], name.as_str(), "{json}");
        assert!(function["calls"].as_u64() > Some(100), "{json}");
        if verb == "latency" {
            assert!(function["mean_ns"].as_u64() > Some(0), "{json}");
        }
    }
    drop(program);
}

#[test]
fn what_is_called_too_often_is_refused_with_the_figure() {
    let Some((tool, program)) = program(&["--until-line", "--hot"]) else {
        return;
    };
    let pid = program.pids()[0].to_string();
    for verb in ["count", "latency"] {
        let arguments = [verb, "calls_counted", "-p", &pid, "-d", "5"];
        let output = tool.run(&arguments).expect("the tool runs");
        let said = says(&output);
        assert_eq!(output.status.code(), Some(3), "{said}");
        if !said.contains("refused to probe calls_counted") {
            live::cannot_run("probes", &said);
            continue;
        }
        assert!(said.contains("calls a second"), "{said}");
        assert!(said.contains("--max-overhead"), "{said}");
    }
    drop(program);
}

/// Ends a shell and its children.
struct Shell(std::process::Child);

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn children_that_end_while_probes_are_placed_do_not_end_the_counting() {
    let Ok(tool) = Tool::find() else {
        live::cannot_run("children that end", "no tool");
        return;
    };
    // One child after the other, each of which lives much shorter than placing takes. Its library is everybody's,
    // so that each process is probed by itself.
    let shell = std::process::Command::new("sh")
        .args(["-c", "while :; do sleep 0.005; done"])
        .spawn();
    let shell = Shell(shell.expect("a shell starts"));
    let pid = shell.0.id().to_string();
    // Whether one is there just then is chance.
    for _ in 0..6 {
        let asked = ["count", "libc.so.6:wait4", "-p", &pid, "-d", "50ms"];
        let output = tool.run(&asked).expect("the tool runs");
        let said = says(&output);
        if output.status.code() == Some(3) {
            live::cannot_run("probes", &said);
            return;
        }
        assert_eq!(output.status.code(), Some(0), "{said}");
    }
    drop(shell);
}
