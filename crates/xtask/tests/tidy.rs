//! The repository is in order, and faults would be found.

use xtask::tidy::{faults, floors, sources, texts};

fn package(name: &str, needs: &[&str], tests_need: &[&str]) -> floors::Crate {
    let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    floors::Crate {
        name: name.into(),
        needs: owned(needs),
        tests_need: owned(tests_need),
    }
}

#[test]
fn dependencies_point_downward() {
    let crates = floors::crates().unwrap();
    assert_eq!(crates.len(), floors::FLOORS.len(), "{crates:?}");
    assert_eq!(floors::violations(&crates), Vec::<String>::new());
}

#[test]
fn a_dependency_upward_or_sideways_is_found() {
    let found = |own| floors::violations(&[own]).len();
    assert_eq!(found(package("wallscope", &["wallscope-capture"], &[])), 0);
    assert_eq!(
        found(package("wallscope-formats", &["wallscope-analysis"], &[])),
        1
    );
    assert_eq!(
        found(package("wallscope-model", &["wallscope-capture"], &[])),
        1
    );
    assert_eq!(found(package("wallscope", &["wallscope-testkit"], &[])), 1);
    assert_eq!(found(package("wallscope", &[], &["wallscope-testkit"])), 0);
    assert_eq!(
        found(package("wallscope-model", &[], &["wallscope-capture"])),
        1
    );
    assert_eq!(found(package("wallscope-new", &[], &[])), 1);
}

#[test]
fn every_rule_holds_or_has_its_exceptions_listed() {
    let sources = sources::all().unwrap();
    assert!(sources.len() > 100, "{} files", sources.len());
    let wrong = faults(&sources).unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_fault_in_a_text_is_found() {
    let path = ["see /ho", "me/someone/x"].concat();
    assert_eq!(texts::faults("a.rs", &path).len(), 1);
    assert_eq!(texts::faults("crates/x/src/utils/mod.rs", "").len(), 1);
    assert_eq!(texts::faults("crates/x/src/util.rs", "").len(), 1);
    assert_eq!(
        texts::faults("crates/x/src/cause.rs", "fn f() {}"),
        Vec::<String>::new()
    );
}

/// clippy.toml forbids to open files that a target may name; the lint holds where a crate asks for it.
#[test]
fn product_crates_ask_for_the_lint_on_opening_files() {
    for (name, floor) in floors::FLOORS {
        if *floor == floors::Floor::Dev {
            continue;
        }
        let root = match name.strip_prefix("wallscope-") {
            Some(folder) => format!("crates/{folder}/src/lib.rs"),
            None => "crates/cli/src/main.rs".into(),
        };
        let text = std::fs::read_to_string(xtask::root().join(&root)).unwrap();
        let asks = text.contains("warn(clippy::disallowed_methods)");
        assert!(asks, "{root} lacks it");
    }
}
