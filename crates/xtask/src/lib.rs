//! Tasks of the project that are no part of the product.
//!
//! `bench` sets what measuring costs beside the bare program and beside other tools; `verify` holds
//! every promised number at full length and writes `docs/verification.md`; `tidy` keeps the
//! house in order (which crate may depend on which, how long files are, nothing of the machine it
//! was written on). `machine` says where the figures come from.
//!
//! `same-code` shows that a change alters comments only; `tokens` splits texts for it. `same-output`
//! shows that two binaries read the same files to the same outputs.
//!
//! `kernels` makes experiments under other kernels; `prove-diff` holds `wallscope diff` to what it promises, with live recordings.
//!
//! They use the `wallscope` binary as anyone would, built in the release profile.

pub mod bench;
pub mod kernels;
pub mod machine;
pub mod prove_diff;
pub mod same_code;
pub mod same_output;
pub mod tidy;
pub mod tokens;
pub mod verify;

use std::path::{Path, PathBuf};
use std::process::Command;

use wallscope_testkit::Tool;

/// What a task comes to.
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
