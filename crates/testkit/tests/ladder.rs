//! The ladder's verdict on processes with a known cause: a few of the scenarios, and on the lower
//! tiers those that they can answer. `cargo xtask verify --only ladder` makes all of them.

use wallscope_testkit::live;
use wallscope_testkit::scenarios::{ALL, Scenario, attempt};
use wallscope_testkit::{Error, Tool};

/// Makes one scenario and holds the verdict to be right.
fn right(tool: &Tool, s: &Scenario, backend: Option<&str>) {
    let folder = wallscope_testkit::checks::disk_folder(tool);
    let how = backend.map_or(String::new(), |b| format!(" with {b}"));
    live::test_alone(&format!("{}{how}", s.name), || {
        attempt(tool, s, backend, folder.as_ref())
    });
}

fn tool() -> Option<Tool> {
    match Tool::find() {
        Ok(tool) => Some(tool.replayed()),
        Err(Error::CannotRunHere(why)) => {
            live::cannot_run("the ladder", &why);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn verdicts_name_the_cause() {
    if let Some(tool) = tool() {
        // Others by name: WALLSCOPE_SCENARIOS=reactor,two-writes
        let chosen = std::env::var("WALLSCOPE_SCENARIOS").unwrap_or_default();
        let these = |s: &&Scenario| match chosen.as_str() {
            "" => s.short,
            names => names.split(',').any(|name| name == s.name),
        };
        (ALL.iter().filter(these)).for_each(|s| right(&tool, s, None));
    }
}

#[test]
fn verdicts_without_kernel_programs_name_what_can_be_seen() {
    if let Some(tool) = tool() {
        let some = ["hot-spot", "convoy", "upstream", "sleeper"];
        // Each with one of them in turn: `verify` makes all.
        let these = ALL.iter().filter(|s| some.contains(&s.name));
        for (i, s) in these.enumerate() {
            right(&tool, s, Some(s.lower[i % s.lower.len()]));
        }
    }
}
