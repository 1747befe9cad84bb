//! The page's bundles: `crates/render/web/dist`, made by esbuild from `js/` and `page.css`.
//!
//! Bundles are committed, so that a build needs no npm. The first line of each names the release of
//! esbuild and two SHA-256 sums: of everything it was made from, and of the code below that line. A
//! test compares both sums, so a stale or an edited bundle is found without npm.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{Outcome, root};

/// Bundles by name, each with the file that it starts from.
const BUNDLES: &[(&str, &str)] = &[
    ("page.js", "js/main.js"),
    ("delta.js", "js/delta.js"),
    ("page.css", "page.css"),
];

/// Options of esbuild. Lines are broken so that a change of one function is a small diff.
const OPTIONS: &[&str] = &[
    "--bundle",
    "--minify",
    "--format=esm",
    "--target=es2022",
    "--charset=utf8",
    "--legal-comments=none",
    "--line-limit=240",
    "--log-level=warning",
];

/// What the task does with the bundles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Makes them anew.
    Write,
    /// Makes them beside the committed ones and compares.
    Check,
}

fn web() -> PathBuf {
    root().join("crates/render/web")
}

fn hex_sum(bytes: &[u8]) -> String {
    let sum = Sha256::digest(bytes);
    sum.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The release of esbuild that `package.json` asks for.
fn esbuild_release() -> Outcome<String> {
    let path = web().join("package.json");
    let package: Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
    let release = package["devDependencies"]["esbuild"].as_str();
    let missing = || format!("{} names no esbuild among devDependencies", path.display());
    Ok(release.ok_or_else(missing)?.to_string())
}

/// The sum of everything that bundles are made from: esbuild's release and options, each source.
fn source_sum(release: &str) -> Outcome<String> {
    let web = web();
    let mut sources = vec![web.join("page.css")];
    for entry in fs::read_dir(web.join("js"))? {
        sources.push(entry?.path());
    }
    sources.sort();
    let mut sums = format!("{release} {}\n", OPTIONS.join(" "));
    for path in sources {
        let name = path.strip_prefix(&web)?.display().to_string();
        sums.push_str(&format!("{} {name}\n", hex_sum(&fs::read(&path)?)));
    }
    Ok(hex_sum(sums.as_bytes()))
}

/// The first line of a bundle with that code.
fn first_line(release: &str, sources: &str, code: &str) -> String {
    let own = hex_sum(code.as_bytes());
    format!("/* cargo xtask web: esbuild {release}, sources {sources}, code {own} */\n")
}

/// Faults of the committed bundles, one line each; none where all are current. Needs no npm.
///
/// # Errors
/// When sources or bundles cannot be read.
pub fn faults() -> Outcome<Vec<String>> {
    let release = esbuild_release()?;
    let sources = source_sum(&release)?;
    let mut faults = Vec::new();
    for (name, _) in BUNDLES {
        let text = fs::read_to_string(web().join("dist").join(name))?;
        faults.extend(fault(&text, &release, &sources).map(|fault| format!("dist/{name} {fault}")));
    }
    Ok(faults)
}

/// The fault of one bundle: it was edited, or its sources are others now.
pub fn fault(text: &str, release: &str, sources: &str) -> Option<&'static str> {
    let (first, code) = text.split_once('\n').unwrap_or((text, ""));
    if !first.ends_with(&format!("code {} */", hex_sum(code.as_bytes()))) {
        return Some("was edited: change its sources, then run `cargo xtask web`");
    }
    let current = first_line(release, sources, code);
    (current.trim_end() != first).then_some("is stale: run `cargo xtask web`, which needs npm")
}

/// Makes the bundles in `folder`.
fn bundle(folder: &Path) -> Outcome<()> {
    let web = web();
    let release = esbuild_release()?;
    let program = esbuild(&release)?;
    for (name, start) in BUNDLES {
        let made = Command::new(&program)
            .arg(start)
            .args(OPTIONS)
            .current_dir(&web)
            .output()?;
        if !made.status.success() {
            return Err(String::from_utf8_lossy(&made.stderr).into_owned().into());
        }
        let code = String::from_utf8(made.stdout)?;
        let first = first_line(&release, &source_sum(&release)?, &code);
        fs::write(folder.join(name), first + &code)?;
    }
    Ok(())
}

/// The path of esbuild in that release, installed by npm where it is missing.
fn esbuild(release: &str) -> Outcome<PathBuf> {
    let web = web();
    let program = web.join("node_modules/.bin/esbuild");
    let version = |program: &Path| -> Option<String> {
        let said = Command::new(program).arg("--version").output().ok()?;
        Some(String::from_utf8_lossy(&said.stdout).trim().to_string())
    };
    if version(&program).as_deref() == Some(release) {
        return Ok(program);
    }
    let installed = Command::new("npm")
        .args(["ci", "--silent", "--no-audit", "--no-fund"])
        .current_dir(&web)
        .status()
        .map_err(|e| format!("npm cannot be started: {e}; install it, for esbuild"))?;
    match version(&program) {
        Some(found) if found == release => Ok(program),
        found => Err(format!(
            "npm ({installed}) left esbuild {} and not {release} in {}; run npm ci there",
            found.unwrap_or_else(|| "missing".to_string()),
            web.display()
        )
        .into()),
    }
}

/// Makes the bundles, or compares them with new ones.
///
/// # Errors
/// When esbuild is missing and cannot be installed, or refuses the sources.
pub fn run(mode: Mode) -> Outcome<bool> {
    let committed = web().join("dist");
    if mode == Mode::Write {
        fs::create_dir_all(&committed)?;
        bundle(&committed)?;
        return Ok(true);
    }
    let folder = tempfile::tempdir()?;
    bundle(folder.path())?;
    let mut same = true;
    for (name, _) in BUNDLES {
        if fs::read(folder.path().join(name))? != fs::read(committed.join(name))? {
            println!("dist/{name} is not what its sources give: run `cargo xtask web`");
            same = false;
        }
    }
    Ok(same)
}
