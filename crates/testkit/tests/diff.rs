//! A wait put into one function of a program is found again by `wallscope diff`: the function, and
//! that it waits.

use wallscope_testkit::live::{self, Outcome};
use wallscope_testkit::tool::{Options, Recorded};
use wallscope_testkit::{Error, Program, Tool};

/// Three seconds of the program `inject` with such flags. The length is told beforehand: slices are
/// then short enough to tell how steady the program is.
fn record(tool: &Tool, flags: &[&str]) -> Result<Recorded, Error> {
    let mut program = Program::start("inject", &[flags, &["--until-line"]].concat())?;
    program.release()?;
    let mut options = Options::at(99);
    options.more = vec!["-d".into(), "3".into()];
    let recorded = tool.attach(program.pids(), &options)?.ends_with(0)?;
    // Its end is all that is left of it: dropped, it is gone.
    drop(program);
    Ok(recorded)
}

/// What the comparison says of `function`: whether it changed, and how.
fn said(tool: &Tool, base: &Recorded, new: &Recorded, function: &str) -> Result<String, Error> {
    let (base, new) = (base.path(), new.path());
    let out = tool.run(&[
        "diff".as_ref(),
        base.as_os_str(),
        "--".as_ref(),
        new.as_os_str(),
        "--json".as_ref(),
        "--by".as_ref(),
        "total".as_ref(),
    ])?;
    let v: serde_json::Value = serde_json::from_slice(&out.stdout).map_err(|e| {
        Error::Output(format!(
            "diff --json: {e}: {}",
            String::from_utf8_lossy(&out.stderr)
        ))
    })?;
    let functions = v["functions"].as_array().cloned().unwrap_or_default();
    let row = functions.iter().find(|f| f["name"] == function);
    Ok(row.map_or("not there".to_string(), |f| {
        f["what"].as_str().unwrap_or("").to_string()
    }))
}

fn experiment() -> Result<Vec<String>, Error> {
    let tool = Tool::find()?;
    let mut wrong = Vec::new();
    for (kind, function, reason) in [
        ("lock", "step_parse", "lock"),
        ("sleep", "step_store", "timer"),
    ] {
        let flags = ["--in", function, "--kind", kind];
        let base = record(&tool, &flags)?;
        let new = record(&tool, &[&flags[..], &["--delay-us", "600"]].concat())?;
        let said = said(&tool, &base, &new, function)?;
        println!("{kind} put into {function}: {said}");
        if !said.contains(&format!("waits ({reason}) more"))
            && said != format!("new: waits ({reason})")
        {
            wrong.push(format!("{kind} put into {function}: {said}"));
        }
    }
    Ok(wrong)
}

#[test]
fn an_injected_wait_is_named_with_its_state() {
    live::test_alone("the injected wait", || match experiment() {
        Ok(wrong) if wrong.is_empty() => Outcome::Held("both are named".into()),
        Ok(wrong) => Outcome::Failed(format!("{wrong:?}")),
        Err(error) => Err::<String, Error>(error).into(),
    });
}
