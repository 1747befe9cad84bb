//! Files that packages share: manual pages, completions, configuration, licences.
//!
//! Pages and completions are written by the packaged binary itself, so they fit its flags.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::binary::Binary;
use super::release::Release;
use super::sums;
use crate::{Outcome, root};

/// Shells, with the names of their completions.
pub(super) const SHELLS: [(&str, &str); 3] = [
    ("bash", "wallscope"),
    ("zsh", "_wallscope"),
    ("fish", "wallscope.fish"),
];

/// Files that packages share.
#[derive(Clone, Debug)]
pub(super) struct Content {
    /// Manual pages by name, such as `wallscope-record.1`.
    pub pages: Vec<(String, Vec<u8>)>,
    /// Completions, in the order of [`SHELLS`].
    pub completions: Vec<Vec<u8>>,
    /// `agent.toml`.
    pub config: Vec<u8>,
    /// The changelog.
    pub changelog: Vec<u8>,
    /// Licences of the program and of the libraries in the static binary.
    pub notice: Vec<u8>,
    /// The text of the MIT licence.
    pub mit: String,
    /// The text of the Apache licence.
    pub apache: Vec<u8>,
    /// The text of the GPL, version 2.
    pub gpl: Vec<u8>,
}

impl Content {
    /// Collects the files; `binary` writes pages and completions.
    ///
    /// # Errors
    /// The binary does not run here, is another version, or refuses the packaged configuration.
    pub(super) fn collect(binary: &Binary, release: &Release) -> Outcome<Content> {
        check_version(binary, release)?;
        let config = root().join("crates/agent/agent.toml");
        let named = config
            .to_str()
            .ok_or("the repository's path is not UTF-8")?;
        said(binary, &["agent", "check", "--config", named])?;
        let completions = SHELLS
            .iter()
            .map(|(shell, _)| said(binary, &["completions", shell]));
        Ok(Content {
            pages: pages(binary)?,
            completions: completions.collect::<Outcome<_>>()?,
            config: fs::read(config)?,
            changelog: fs::read(root().join("CHANGELOG.md"))?,
            notice: fs::read(root().join("packaging/NOTICE"))?,
            mit: fs::read_to_string(root().join("LICENSE-MIT"))?,
            apache: fs::read(root().join("LICENSE-APACHE"))?,
            gpl: fs::read(root().join("LICENSE-GPL-2.0"))?,
        })
    }
}

/// Checks that the binary is of this release.
///
/// # Errors
/// It does not run here, or is another version.
pub(super) fn check_version(binary: &Binary, release: &Release) -> Outcome<()> {
    let told = said(binary, &["--version"])?;
    let told = String::from_utf8_lossy(&told);
    match told.trim() == format!("wallscope {}", release.version) {
        true => Ok(()),
        false => Err(format!("the binary is {told:?}, not {}: build it", release.version).into()),
    }
}

/// Standard output of the binary.
fn said(binary: &Binary, arguments: &[&str]) -> Outcome<Vec<u8>> {
    let output = Command::new(&binary.program).args(arguments).output()?;
    if !output.status.success() {
        let arguments = arguments.join(" ");
        let error = String::from_utf8_lossy(&output.stderr);
        return Err(format!("wallscope {arguments} failed: {error}").into());
    }
    Ok(output.stdout)
}

fn pages(binary: &Binary) -> Outcome<Vec<(String, Vec<u8>)>> {
    let folder = tempfile::tempdir()?;
    let path = folder
        .path()
        .to_str()
        .ok_or("the temporary folder is not UTF-8")?;
    said(binary, &["man", "--output", path])?;
    let mut pages = Vec::new();
    for entry in fs::read_dir(folder.path())? {
        let path = entry?.path();
        pages.push((sums::name(&path)?.to_owned(), fs::read(&path)?));
    }
    pages.sort();
    Ok(pages)
}

/// The files in the folder `folder` of the repository, by their path in it.
pub(super) fn folder(folder: &str) -> Outcome<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    collect(&root().join(folder), "", &mut files)?;
    files.sort();
    Ok(files)
}

fn collect(folder: &Path, prefix: &str, files: &mut Vec<(String, Vec<u8>)>) -> Outcome<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = format!("{prefix}{}", sums::name(&path)?);
        if path.is_dir() {
            collect(&path, &format!("{name}/"), files)?;
        } else {
            files.push((name, fs::read(&path)?));
        }
    }
    Ok(())
}
