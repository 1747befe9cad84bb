//! Opens files of the kernel's own file systems: `/proc`, `/sys`, cgroups.
//!
//! Files of a target are refused: paths through `/proc/PID/root`, `cwd`, `exe`, `fd` or `map_files`.
//! [`crate::target_file`] opens those.

use std::fs::File;
use std::io;
use std::path::{Component, Path};

/// Entries of `/proc/PID` that lead to files of the target.
const TARGETS: [&str; 5] = ["root", "cwd", "exe", "fd", "map_files"];
/// Numbers by which the kernel knows its file systems for control groups (`magic.h`).
const CGROUPS: [i64; 2] = [0x0027_e0eb, 0x6367_7270];

/// Opens `path` for reading.
///
/// # Errors
/// `InvalidInput` if it is outside the kernel's file systems; otherwise the kernel's error.
#[expect(clippy::disallowed_methods, reason = "the path is one of the kernel's")]
pub fn open(path: impl AsRef<Path>) -> io::Result<File> {
    let path = path.as_ref();
    if !path.starts_with("/proc") && !path.starts_with("/sys") {
        // A hierarchy of control groups may be mounted anywhere.
        let file = File::open(path)?;
        let kind = rustix::fs::fstatfs(&file)?.f_type;
        // Unit tests lay out directories as control groups are.
        let is_made_up = cfg!(test) && path.starts_with(std::env::temp_dir());
        return match CGROUPS.contains(&kind) || is_made_up {
            true => Ok(file),
            false => Err(refused(path)),
        };
    }
    let leads_away = |part: Component<'_>| {
        part == Component::ParentDir || TARGETS.iter().any(|t| part.as_os_str() == *t)
    };
    if path.starts_with("/proc") && path.components().any(leads_away) {
        return Err(refused(path));
    }
    File::open(path)
}

fn refused(path: &Path) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("{} is no file of the kernel", path.display()),
    )
}

/// Reads all of `path`.
///
/// # Errors
/// Those of [`open`].
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut open(path)?, &mut bytes)?;
    Ok(bytes)
}

/// Reads all of `path` as text.
///
/// # Errors
/// Those of [`open`]; `InvalidData` if it is not UTF-8.
pub fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    let mut text = String::new();
    io::Read::read_to_string(&mut open(path)?, &mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_the_kernel_are_read() {
        assert!(
            read_to_string("/proc/self/status")
                .unwrap()
                .contains("Pid:")
        );
        for path in [
            "/etc/hostname",
            "/proc/self/root/etc/passwd",
            "/proc/self/cwd/Cargo.toml",
            "/proc/self/exe",
            "/proc/self/fd/0",
            "/proc/../etc/passwd",
        ] {
            let refused = open(path).is_err_and(|e| e.kind() == io::ErrorKind::InvalidInput);
            // A machine may lack the file.
            assert!(refused || !Path::new(path).exists(), "{path}");
        }
    }
}
