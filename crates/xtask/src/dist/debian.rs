//! The Debian package.
//!
//! `dpkg-deb` writes it: the tool is on every Debian system, and knows the format's limits. `cargo-deb` would
//! bring its own crates and build step for a list of files that stands here in one function.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::{Compression, GzBuilder};

use super::binary::{Binary, Needs};
use super::content::{self, Content, SHELLS};
use super::release::Release;
use super::tree::Tree;
use crate::{Outcome, root};

/// Shared libraries, their packages, and the oldest version that the binary can use.
const PACKAGES: &[(&str, &str)] = &[
    ("libelf.so.1", "libelf1 (>= 0.131)"),
    ("libgcc_s.so.1", "libgcc-s1 (>= 4.2)"),
    ("libz.so.1", "zlib1g (>= 1:1.1.4)"),
];
/// Parts of glibc.
const OF_GLIBC: &[&str] = &["libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"];
const DOC: &str = "usr/share/doc/wallscope";

/// Writes the package into `folder`; its path.
///
/// # Errors
/// `dpkg-deb` is missing or refuses the package; a library has no known Debian package.
pub(super) fn write(
    binary: &Binary,
    content: &Content,
    release: &Release,
    folder: &Path,
) -> Outcome<PathBuf> {
    let files = files(binary, content, release)?;
    let staging = tempfile::tempdir()?;
    files.write(staging.path())?;
    let control = control(&files, &binary.needs, release, staging.path())?;
    control.write(staging.path())?;
    let package = folder.join(format!("wallscope_{}-1_amd64.deb", release.version));
    let output = Command::new("dpkg-deb")
        .args(["--root-owner-group", "-Zxz", "--build"])
        .args([staging.path(), &package])
        .env("SOURCE_DATE_EPOCH", release.time.to_string())
        .output()
        .map_err(|e| format!("cannot start dpkg-deb ({e}): apt-get install dpkg"))?;
    match output.status.success() {
        true => Ok(package),
        false => Err(String::from_utf8_lossy(&output.stderr).into()),
    }
}

/// The files that the package installs.
fn files(binary: &Binary, content: &Content, release: &Release) -> Outcome<Tree> {
    let mut tree = Tree::default();
    tree.program("usr/bin/wallscope", binary.content.as_slice());
    tree.data("etc/wallscope/agent.toml", content.config.as_slice());
    let unit = packaged("systemd/wallscope-agent.service")?;
    tree.data("usr/lib/systemd/system/wallscope-agent.service", unit);
    let level = packaged("debian/10-wallscope.conf")?;
    tree.data("usr/lib/sysctl.d/10-wallscope.conf", level);
    for (name, page) in &content.pages {
        tree.data(format!("usr/share/man/man1/{name}.gz"), gzip(page)?);
    }
    let folders = [
        "usr/share/bash-completion/completions",
        "usr/share/zsh/vendor-completions",
        "usr/share/fish/vendor_completions.d",
    ];
    for (i, (_, name)) in SHELLS.iter().enumerate() {
        let path = format!("{}/{name}", folders[i]);
        tree.data(path, content.completions[i].as_slice());
    }
    for shared in ["grafana", "prometheus"] {
        for (name, file) in content::folder(&format!("packaging/{shared}"))? {
            tree.data(format!("usr/share/wallscope/{shared}/{name}"), file);
        }
    }
    let copyright = packaged("debian/copyright")?;
    tree.data(
        format!("{DOC}/copyright"),
        copyright.replace("@MIT@\n", &indented(&content.mit)),
    );
    tree.data(format!("{DOC}/changelog.gz"), gzip(&content.changelog)?);
    tree.data(
        format!("{DOC}/changelog.Debian.gz"),
        gzip(changelog(release)?.as_bytes())?,
    );
    Ok(tree)
}

/// A file of the repository.
fn packaged(name: &str) -> Outcome<String> {
    Ok(fs::read_to_string(root().join("packaging").join(name))?)
}

/// Control file, scripts and checksums for `files`, which were written to `staging`.
fn control(files: &Tree, needs: &Needs, release: &Release, staging: &Path) -> Outcome<Tree> {
    let template = packaged("debian/control")?;
    let size = files.bytes().div_ceil(1024).to_string();
    let control = template
        .replace("@VERSION@", &format!("{}-1", release.version))
        .replace("@SIZE@", &size)
        .replace("@DEPENDS@", &dependencies(needs)?);
    let mut tree = Tree::default();
    tree.data("DEBIAN/control", control);
    tree.data("DEBIAN/conffiles", packaged("debian/conffiles")?);
    for script in ["postinst", "postrm", "prerm"] {
        let text = packaged(&format!("debian/{script}"))?;
        tree.program(format!("DEBIAN/{script}"), text);
    }
    tree.data("DEBIAN/md5sums", md5_sums(files, staging)?);
    Ok(tree)
}

/// Checksums by which `dpkg --verify` finds changed files; configuration may change.
fn md5_sums(files: &Tree, staging: &Path) -> Outcome<Vec<u8>> {
    let paths = files.files().map(|(path, _)| path);
    let output = Command::new("md5sum")
        .args(paths.filter(|path| !path.starts_with("etc/")))
        .current_dir(staging)
        .output()?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(String::from_utf8_lossy(&output.stderr).into()),
    }
}

/// The packages of the libraries that a binary needs, as in `Depends`.
///
/// # Errors
/// A library without a known package.
fn dependencies(needs: &Needs) -> Outcome<String> {
    let mut packages = Vec::new();
    if let Some((major, minor)) = needs.glibc {
        packages.push(format!("libc6 (>= {major}.{minor})"));
    }
    for library in &needs.libraries {
        let known = PACKAGES.iter().find(|(name, _)| name == library);
        match known {
            Some((_, package)) => packages.push((*package).to_owned()),
            None if OF_GLIBC.contains(&library.as_str()) => {}
            None => {
                let text = format!("no Debian package is known for {library}: add it to debian.rs");
                return Err(text.into());
            }
        }
    }
    Ok(packages.join(", "))
}

/// The changelog of the package, in Debian's form.
fn changelog(release: &Release) -> Outcome<String> {
    let (version, date) = (
        release.version,
        release.formatted("%a, %d %b %Y %H:%M:%S +0000")?,
    );
    Ok(format!(
        "wallscope ({version}-1) unstable; urgency=medium\n\n  \
         * Release {version}. /{DOC}/changelog.gz has the changes.\n\n \
         -- the wallscope authors <wallscope@users.noreply.github.com>  {date}\n"
    ))
}

/// A text as a field of a control file.
fn indented(text: &str) -> String {
    let line = |line: &str| match line {
        "" => " .\n".to_owned(),
        line => format!(" {line}\n"),
    };
    text.lines().map(line).collect()
}

/// Compressed, without time and name.
fn gzip(content: &[u8]) -> Outcome<Vec<u8>> {
    let mut out = GzBuilder::new().write(Vec::new(), Compression::best());
    out.write_all(content)?;
    Ok(out.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(libraries: &[&str]) -> Needs {
        Needs {
            libraries: libraries.iter().map(|name| (*name).to_owned()).collect(),
            glibc: Some((2, 35)),
        }
    }

    #[test]
    fn libraries_become_packages_and_unknown_ones_are_named() {
        let known = needs(&["libc.so.6", "libelf.so.1", "libm.so.6"]);
        let depends = dependencies(&known).unwrap();
        assert_eq!(depends, "libc6 (>= 2.35), libelf1 (>= 0.131)");
        let unknown = dependencies(&needs(&["libssl.so.3"])).unwrap_err();
        assert!(unknown.to_string().contains("libssl.so.3"), "{unknown}");
    }

    #[test]
    fn the_control_file_has_no_placeholder_left() {
        let release = Release {
            version: "0.1.0",
            time: 0,
        };
        let mut files = Tree::default();
        files.data("etc/wallscope/agent.toml", "[agent]\n");
        files.data("usr/bin/wallscope", vec![0; 1025]);
        let staging = tempfile::tempdir().unwrap();
        files.write(staging.path()).unwrap();
        let tree = control(&files, &needs(&[]), &release, staging.path()).unwrap();
        let text = |name: &str| {
            let (_, file) = tree.files().find(|(path, _)| *path == name).unwrap();
            String::from_utf8(file.content.clone()).unwrap()
        };
        let control = text("DEBIAN/control");
        // The maintainer's address has the only one.
        assert_eq!(control.matches('@').count(), 1, "{control}");
        assert!(control.contains("\nVersion: 0.1.0-1\n"), "{control}");
        assert!(control.contains("\nInstalled-Size: 2\n"), "{control}");
        assert!(text("DEBIAN/md5sums").ends_with("  usr/bin/wallscope\n"));
        let conffiles = text("DEBIAN/conffiles");
        let installed: Vec<String> = (files.files())
            .map(|(path, _)| format!("/{path}"))
            .filter(|path| path.starts_with("/etc/"))
            .collect();
        assert_eq!(conffiles.lines().collect::<Vec<_>>(), installed);
    }

    #[test]
    fn the_changelog_has_the_form_that_dpkg_reads() {
        let release = Release {
            version: "0.1.0",
            time: 1_000_000_000,
        };
        let text = changelog(&release).unwrap();
        assert!(text.starts_with("wallscope (0.1.0-1) unstable; urgency=medium\n\n  * "));
        assert!(
            text.ends_with(">  Sun, 09 Sep 2001 01:46:40 +0000\n"),
            "{text}"
        );
    }
}
