//! Compressed archives: the static binary with its files, and the Kubernetes manifests.

use std::fs::File;
use std::path::{Path, PathBuf};

use flate2::{Compression, GzBuilder};

use super::binary::Binary;
use super::content::{self, Content, SHELLS};
use super::release::Release;
use super::tree::Tree;
use crate::Outcome;

/// Words about the archive.
const README: &str = "\
wallscope, for x86-64 Linux. The program is static and needs no library.

  install -m 755 bin/wallscope /usr/local/bin/
  install -m 644 share/man/man1/* /usr/local/share/man/man1/

An agent, always on: copy etc/wallscope/agent.toml to /etc/wallscope/, and
lib/systemd/system/wallscope-agent.service to /etc/systemd/system/. The unit runs
/usr/bin/wallscope as the user `wallscope`: adapt the path, and make the user with
`useradd --system wallscope`. The agent needs kernel.perf_event_paranoid at 2 or below; Debian sets 3.

NOTICE has the licences.
";

/// Writes the archive of the static binary into `folder`; its path.
///
/// # Errors
/// Those of the file system.
pub(super) fn binary(
    binary: &Binary,
    content: &Content,
    release: &Release,
    folder: &Path,
) -> Outcome<PathBuf> {
    let name = format!("wallscope-{}-x86_64-linux", release.version);
    let mut tree = Tree::default();
    tree.program(format!("{name}/bin/wallscope"), binary.content.as_slice());
    let mut data = |path: &str, bytes: &[u8]| tree.data(format!("{name}/{path}"), bytes);
    data("etc/wallscope/agent.toml", &content.config);
    for (page, text) in &content.pages {
        data(&format!("share/man/man1/{page}"), text);
    }
    for (i, (shell, file)) in SHELLS.iter().enumerate() {
        let path = format!("share/completions/{shell}/{file}");
        data(&path, &content.completions[i]);
    }
    for (unit, text) in content::folder("packaging/systemd")? {
        data(&format!("lib/systemd/system/{unit}"), &text);
    }
    data("README", README.as_bytes());
    data("CHANGELOG.md", &content.changelog);
    data("NOTICE", &content.notice);
    data("LICENSE-MIT", content.mit.as_bytes());
    data("LICENSE-APACHE", &content.apache);
    data("LICENSE-GPL-2.0", &content.gpl);
    write(&tree, release, folder.join(format!("{name}.tar.gz")))
}

/// Writes the archive of the Kubernetes manifests into `folder`; its path.
///
/// # Errors
/// Those of the file system.
pub(super) fn kubernetes(release: &Release, folder: &Path) -> Outcome<PathBuf> {
    let name = format!("wallscope-{}-kubernetes", release.version);
    let mut tree = Tree::default();
    for (manifest, text) in content::folder("packaging/kubernetes")? {
        tree.data(format!("{name}/{manifest}"), text);
    }
    write(&tree, release, folder.join(format!("{name}.tar.gz")))
}

fn write(tree: &Tree, release: &Release, path: PathBuf) -> Outcome<PathBuf> {
    let mut out = GzBuilder::new().write(File::create(&path)?, Compression::best());
    tree.tar(&mut out, release.time)?;
    out.finish()?.sync_all()?;
    Ok(path)
}
