//! The binaries of a release: built, stripped, and examined for the libraries that they need.
//!
//! The static binary is linked with musl, and brings libbpf, libelf and zlib along, which libbpf-sys compiles
//! (`crates/unwind/Cargo.toml` asks for it). glibc is no choice for it: its resolver loads libraries at run time.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object as _, ObjectSection as _};

use crate::{Outcome, installed, root};

const MUSL_TARGET: &str = "x86_64-unknown-linux-musl";
/// `DT_NEEDED` of a dynamic section.
const NEEDED: u64 = 1;
/// Programs that the static build calls, with their Debian packages.
const STATIC_BUILD_NEEDS: &[(&str, &str)] = &[
    ("musl-gcc", "musl-tools"),
    ("autoreconf", "autoconf automake libtool"),
    ("autopoint", "autopoint gettext"),
    ("flex", "flex"),
    ("bison", "bison"),
    ("gawk", "gawk"),
    ("make", "make"),
    ("pkg-config", "pkg-config"),
];
/// Functions that elfutils' programs need and musl lacks. libelf needs none of them, so configure need not find them.
const ABSENT_FUNCTIONS: &[&str] = &["argp_parse", "fts_close", "_obstack_free"];

/// The C library of a binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CLibrary {
    /// glibc, loaded at start.
    Glibc,
    /// musl, linked in.
    Musl,
}

/// A stripped binary.
#[derive(Debug)]
pub(super) struct Binary {
    /// Content of the file.
    pub content: Vec<u8>,
    /// What it needs at run time.
    pub needs: Needs,
    /// A file with the same content that can be run here.
    pub program: tempfile::TempPath,
}

/// Libraries that a binary needs at run time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Needs {
    /// Names of shared libraries, such as `libelf.so.1`.
    pub libraries: BTreeSet<String>,
    /// Oldest glibc that has all symbols, major and minor version.
    pub glibc: Option<(u32, u32)>,
}

impl Binary {
    /// The binary at `path`; built, if there is none.
    ///
    /// # Errors
    /// It cannot be built or stripped, is no ELF file, or is not static though it should be.
    pub(super) fn of(library: CLibrary, path: Option<&Path>) -> Outcome<Binary> {
        let path = match (path, library) {
            (Some(path), _) => path.to_owned(),
            (None, CLibrary::Glibc) => build(&[])?,
            (None, CLibrary::Musl) => build_static()?,
        };
        let program = tempfile::NamedTempFile::new()?.into_temp_path();
        strip(&path, &program)?;
        let content = fs::read(&program)?;
        let needs = Needs::read(&content).map_err(|e| format!("{}: {e}", path.display()))?;
        if library == CLibrary::Musl && !needs.libraries.is_empty() {
            let all: Vec<_> = needs.libraries.into_iter().collect();
            let (path, all) = (path.display(), all.join(", "));
            return Err(format!("{path} is not static: it needs {all}").into());
        }
        Ok(Binary {
            content,
            needs,
            program,
        })
    }
}

impl Needs {
    /// Reads the needs of an ELF file.
    ///
    /// # Errors
    /// It is damaged.
    pub(super) fn read(elf: &[u8]) -> Outcome<Needs> {
        let file = object::File::parse(elf)?;
        let content = |name| file.section_by_name(name).map(|section| section.data());
        let (Some(entries), Some(names)) = (content(".dynamic"), content(".dynstr")) else {
            return Ok(Needs::default());
        };
        let (entries, names) = (entries?, names?);
        let word = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes);
        let mut libraries = BTreeSet::new();
        for entry in entries.chunks_exact(16) {
            if word(&entry[..8])? == NEEDED {
                let at = usize::try_from(word(&entry[8..])?)?;
                let name = names.get(at..).ok_or("a library's name lies outside")?;
                let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
                libraries.insert(std::str::from_utf8(name)?.to_owned());
            }
        }
        let versions = names.split(|byte| *byte == 0).filter_map(glibc_version);
        Ok(Needs {
            libraries,
            glibc: versions.max(),
        })
    }
}

/// The version that `GLIBC_2.34` names.
fn glibc_version(name: &[u8]) -> Option<(u32, u32)> {
    let text = std::str::from_utf8(name).ok()?.strip_prefix("GLIBC_")?;
    let mut parts = text.split('.').map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

fn strip(from: &Path, to: &Path) -> Outcome<()> {
    let status = Command::new("strip")
        .args(["--strip-unneeded", "--remove-section=.comment", "-o"])
        .args([to, from])
        .status()
        .map_err(|e| format!("cannot start strip ({e}): apt-get install binutils"))?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("strip cannot read {}", from.display()).into()),
    }
}

/// Builds the release with further arguments of cargo; the program.
fn build(further: &[&str]) -> Outcome<PathBuf> {
    build_with(&mut cargo(further))
}

fn cargo(further: &[&str]) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo
        .args(["build", "--locked", "--release", "--package", "wallscope"])
        .args([
            "--bin",
            "wallscope",
            "--message-format=json-render-diagnostics",
        ])
        .args(further)
        .current_dir(root());
    cargo
}

/// Runs cargo; the program that its messages name.
fn build_with(cargo: &mut Command) -> Outcome<PathBuf> {
    let output = cargo.stderr(std::process::Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err("wallscope does not build".into());
    }
    let messages = String::from_utf8(output.stdout)?;
    let program = messages.lines().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        Some(PathBuf::from(message["executable"].as_str()?))
    });
    program.ok_or_else(|| "cargo names no program".into())
}

fn build_static() -> Outcome<PathBuf> {
    let missing = STATIC_BUILD_NEEDS
        .iter()
        .filter(|(program, _)| installed(program).is_none());
    let packages: Vec<&str> = missing.map(|(_, package)| *package).collect();
    if !packages.is_empty() {
        let packages = packages.join(" ");
        return Err(format!(
            "the static binary cannot be built here: apt-get install {packages}; \
             or name one: --static-binary PATH"
        )
        .into());
    }
    let headers = root().join("target/dist/musl-include");
    write_headers(&headers)?;
    let mut cargo = cargo(&["--target", MUSL_TARGET]);
    cargo.env("CC_x86_64_unknown_linux_musl", "musl-gcc").env(
        "CFLAGS_x86_64_unknown_linux_musl",
        format!("-I{}", headers.display()),
    );
    for function in ABSENT_FUNCTIONS {
        cargo.env(format!("ac_cv_search_{function}"), "none required");
    }
    build_with(&mut cargo).map_err(|e| {
        format!("{e}; the target may be missing: rustup target add {MUSL_TARGET}").into()
    })
}

/// Makes a folder with the kernel's headers, which musl's folder lacks, and a stand-in for `argp.h`.
fn write_headers(folder: &Path) -> Outcome<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    let of_machine = "/usr/include/x86_64-linux-gnu/asm";
    let asm = if Path::new(of_machine).is_dir() {
        of_machine
    } else {
        "/usr/include/asm"
    };
    for (name, from) in [
        ("asm", asm),
        ("asm-generic", "/usr/include/asm-generic"),
        ("linux", "/usr/include/linux"),
    ] {
        symlink(from, folder.join(name))?;
    }
    fs::copy(root().join("packaging/musl/argp.h"), folder.join("argp.h"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_as_numbers() {
        assert_eq!(glibc_version(b"GLIBC_2.34"), Some((2, 34)));
        assert_eq!(glibc_version(b"GLIBC_2.2.5"), Some((2, 2)));
        assert!(glibc_version(b"GLIBC_2.4") < glibc_version(b"GLIBC_2.34"));
        assert_eq!(glibc_version(b"GLIBC_PRIVATE"), None);
        assert_eq!(glibc_version(b"GCC_3.0"), None);
    }

    #[test]
    fn this_program_needs_a_c_library_and_a_damaged_one_is_refused() {
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        let needs = Needs::read(&own).unwrap();
        assert!(needs.libraries.contains("libc.so.6"), "{needs:?}");
        assert!(needs.glibc >= Some((2, 14)), "{needs:?}");
        assert!(Needs::read(b"no program").is_err());
    }
}
