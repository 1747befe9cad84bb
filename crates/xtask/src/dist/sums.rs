//! SHA-256 sums of the products, as `sha256sum` writes them.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::Outcome;

/// Lines that `sha256sum -c` reads in the folder of the files, in the order of their names.
pub(super) fn lines(files: &[PathBuf]) -> Outcome<String> {
    let mut lines = Vec::new();
    for file in files {
        lines.push((name(file)?, sha256(&fs::read(file)?)));
    }
    lines.sort();
    let line = |(name, sum): &(&str, String)| format!("{sum}  {name}\n");
    Ok(lines.iter().map(line).collect())
}

/// The name of a file, without its folder.
pub(super) fn name(file: &Path) -> Outcome<&str> {
    let name = file.file_name().and_then(|name| name.to_str());
    name.ok_or_else(|| format!("{} has no name in UTF-8", file.display()).into())
}

/// SHA-256 of `bytes`, 64 hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_sha256sum() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["b.tar", "a.deb"].map(|name| folder.path().join(name));
        for file in &files {
            fs::write(file, "abc").unwrap();
        }
        // The example of FIPS 180-2.
        let sum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let wanted = format!("{sum}  a.deb\n{sum}  b.tar\n");
        assert_eq!(lines(&files).unwrap(), wanted);
    }
}
