//! Dependency only downward, never sideways on the same floor.
//!
//! Tests may use more than the product (`[dev-dependencies]`), but never a higher floor. A crate
//! without a floor is a fault: the table below is the plan of the house.

use std::process::Command;

use serde_json::Value;

use crate::{Outcome, root};

/// Where a crate stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Floor {
    /// Part of the product; depends on lower numbers only.
    Product(u8),
    /// For developers: nothing of the product depends on it.
    Dev,
}

/// The plan of the house.
pub const FLOORS: &[(&str, Floor)] = &[
    ("wallscope-model", Floor::Product(0)),
    ("wallscope-procfs", Floor::Product(1)),
    ("wallscope-binfmt", Floor::Product(1)),
    ("wallscope-formats", Floor::Product(1)),
    ("wallscope-analysis", Floor::Product(1)),
    ("wallscope-diagnose", Floor::Product(2)),
    ("wallscope-render", Floor::Product(2)),
    ("wallscope-unwind", Floor::Product(2)),
    ("wallscope-symbolize", Floor::Product(2)),
    ("wallscope-observe", Floor::Product(3)),
    ("wallscope-capture", Floor::Product(4)),
    ("wallscope-agent", Floor::Product(5)),
    ("wallscope", Floor::Product(6)),
    ("wallscope-synthetic", Floor::Dev),
    ("wallscope-testkit", Floor::Dev),
    ("xtask", Floor::Dev),
];

/// A crate and the crates of this repository it depends on.
#[derive(Clone, Debug, Default)]
pub struct Crate {
    /// Its name.
    pub name: String,
    /// Those it depends on to be built.
    pub needs: Vec<String>,
    /// Those its tests depend on.
    pub tests_need: Vec<String>,
}

/// The crates of the workspace, from cargo.
///
/// # Errors
/// When cargo cannot be asked.
pub fn crates() -> Outcome<Vec<Crate>> {
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
        .current_dir(root())
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    let all: Value = serde_json::from_slice(&output.stdout)?;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let name = |value: &Value| value["name"].as_str().unwrap_or_default().to_string();
    let packages = list(&all["packages"]).into_iter().map(|package| {
        let of = |dev: bool| {
            let own = list(&package["dependencies"]).into_iter();
            own.filter(|d| d["path"].is_string() && (d["kind"] == "dev") == dev)
                .map(|d| name(&d))
                .collect()
        };
        Crate {
            name: name(&package),
            needs: of(false),
            tests_need: of(true),
        }
    });
    Ok(packages.collect())
}

fn floor(name: &str) -> Option<Floor> {
    let row = FLOORS.iter().find(|(own, _)| *own == name)?;
    Some(row.1)
}

/// What is not as planned, one line each.
pub fn violations(crates: &[Crate]) -> Vec<String> {
    let mut wrong = Vec::new();
    for own in crates {
        let Some(stands) = floor(&own.name) else {
            wrong.push(format!(
                "{} has no floor; give it one in crates/xtask/src/tidy/floors.rs",
                own.name
            ));
            continue;
        };
        let Floor::Product(number) = stands else {
            continue;
        };
        for other in &own.needs {
            match floor(other) {
                Some(Floor::Product(below)) if below < number => {}
                _ => wrong.push(format!(
                    "{} (floor {number}) depends on {other}, which is not below it",
                    own.name
                )),
            }
        }
        for other in &own.tests_need {
            if matches!(floor(other), Some(Floor::Product(above)) if above > number) {
                wrong.push(format!(
                    "tests of {} (floor {number}) depend on {other}, which is above it",
                    own.name
                ));
            }
        }
    }
    wrong
}
