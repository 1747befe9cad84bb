//! Tasks of the project that are no part of the product.
//!
//! | module | task |
//! |---|---|
//! | `bench` | costs of measuring, beside the bare program and other tools |
//! | `verify` | every promised number at full length; writes `docs/verification.md` |
//! | `dist` | packages that people install |
//! | `fixtures` | logs of truth programs for tests of replays |
//! | `kernels` | experiments under other kernels |
//! | `prove_diff` | the promises of `wallscope diff`, by live recordings |
//! | `soak` | memory of an agent under a storm of processes and cgroups |
//! | `tidy` | dependencies, import cycles, sizes, prose |
//! | `same_code`, `tokens` | whether a change alters comments only; tokens of a text |
//! | `same_output` | whether two binaries make equal outputs of the same files |
//! | `web` | bundles of the page's modules |
//! | `machine` | the machine of a figure, in words |
//!
//! The tasks use the `wallscope` binary of the release profile, as a script would.

mod agent_process;
mod archive;
pub mod bench;
pub mod dist;
pub mod fixtures;
pub mod kernels;
pub mod machine;
pub mod prove_diff;
pub mod same_code;
pub mod same_output;
pub mod soak;
pub mod tidy;
pub mod tokens;
pub mod verify;
pub mod web;

use std::path::{Path, PathBuf};
use std::process::Command;

use wallscope_testkit::Tool;

/// Result of a task.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// The repository's root.
pub fn root() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors()
        .nth(2)
        .expect("the crate lies two folders below the root")
}

/// Builds the release binary as it is now, and finds it: the one named by `WALLSCOPE`, if set.
///
/// # Errors
/// When it does not build, or cannot measure here.
pub fn release_tool() -> Outcome<Tool> {
    if std::env::var_os("WALLSCOPE").is_none() {
        let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
        let status = Command::new(cargo)
            .args(["build", "--quiet", "--release", "--package", "wallscope"])
            .current_dir(root())
            .status()?;
        if !status.success() {
            return Err("wallscope does not build".into());
        }
    }
    Ok(Tool::find()?)
}

/// The first of the folders in `PATH` that has the program.
pub fn installed(program: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders)
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}

/// The middle one of some figures; NaN of none.
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    match figures.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => figures[n / 2],
        n => (figures[n / 2 - 1] + figures[n / 2]) / 2.0,
    }
}
