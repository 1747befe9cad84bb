//! A wait put into one function of a program is found again by `wallscope diff`: the function, and
//! that it waits.

use wallscope_testkit::live::{self, Outcome};
use wallscope_testkit::tool::{Options, Recorded};
use wallscope_testkit::{Error, Program, Tool};

/// Runs of each side. With one run a side, 5 of 12 comparisons called the injected wait noise; with three, none of
/// four did, and q was 2·10⁻⁷ or less.
const RUNS: usize = 3;

/// Two seconds of the program `inject` with such flags.
fn record(tool: &Tool, flags: &[&str]) -> Result<Recorded, Error> {
    let mut program = Program::start("inject", &[flags, &["--until-line"]].concat())?;
    program.release()?;
    let mut options = Options::at(99);
    options.more = vec!["-d".into(), "2".into()];
    let recorded = tool.attach(program.pids(), &options)?.ends_with(0)?;
    // Its end is all that is left of it: dropped, it is gone.
    drop(program);
    Ok(recorded)
}

/// What the comparison says of `function`: whether it changed, and how.
fn said(tool: &Tool, base: &[Recorded], new: &[Recorded], function: &str) -> Result<String, Error> {
    let paths = |side: &[Recorded]| side.iter().map(Recorded::path).collect::<Vec<_>>();
    let mut verb = vec!["diff".into()];
    verb.extend(paths(base));
    verb.push("--".into());
    verb.extend(paths(new));
    verb.extend(["--json", "--by", "total"].map(Into::into));
    let out = tool.run(&verb)?;
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
        let delayed = [&flags[..], &["--delay-us", "600"]].concat();
        let (mut base, mut new) = (Vec::new(), Vec::new());
        for _ in 0..RUNS {
            base.push(record(&tool, &flags)?);
            new.push(record(&tool, &delayed)?);
        }
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
