//! `cargo xtask same-output`: whether two binaries read the same files to the same outputs.
//!
//! Each file of a folder goes through `report --json`, `ladder --json` and `export` in every format
//! that the old binary has, with every view and label that it knows for folded stacks. Output and
//! exit code must be equal byte for byte. Messages on standard error are prose and do not count. Of
//! the HTML page only its data counts: its code belongs to the binary, not to the file.
//!
//! It does not compare recordings: two recordings of one program are never equal.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fs, thread};

use crate::Outcome;

/// Bytes shown on each side of a difference.
const CONTEXT: usize = 40;

/// The task.
///
/// # Errors
/// When a binary cannot be started, names no formats, or the folder holds no file.
pub fn run(old: &str, new: &str, folder: &str) -> Outcome<bool> {
    let compared = compare(Path::new(old), Path::new(new), Path::new(folder))?;
    for line in &compared.different {
        println!("{line}");
    }
    println!(
        "{} files, {} outputs compared, {} differ",
        compared.files,
        compared.outputs,
        compared.different.len()
    );
    Ok(compared.different.is_empty())
}

/// Result of a comparison.
#[derive(Debug, Default)]
pub struct Compared {
    /// Files read.
    pub files: usize,
    /// Outputs of each binary.
    pub outputs: usize,
    /// One line for each output that differs: file, command, the first difference.
    pub different: Vec<String>,
}

/// Compares the outputs of two binaries for each file of `folder`.
///
/// # Errors
/// As [`run`].
pub fn compare(old: &Path, new: &Path, folder: &Path) -> Outcome<Compared> {
    let files = files(folder)?;
    let commands = commands(old)?;
    let jobs: Vec<(&PathBuf, &Vec<String>)> = files
        .iter()
        .flat_map(|file| commands.iter().map(move |command| (file, command)))
        .collect();
    let next = AtomicUsize::new(0);
    let worker = || -> Result<Vec<(usize, String)>, String> {
        let mut found = Vec::new();
        while let Some((file, command)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let before = output(old, command, file)?;
            let after = output(new, command, file)?;
            if let Some(difference) = difference(&before, &after) {
                let name = file.file_name().unwrap_or_default().to_string_lossy();
                let place = files.binary_search(file).unwrap_or_default();
                found.push((
                    place,
                    format!("{name}: {}: {difference}", command.join(" ")),
                ));
            }
        }
        Ok(found)
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let found: Result<Vec<_>, String> = thread::scope(|scope| {
        let running: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        running
            .into_iter()
            .map(|one| {
                one.join()
                    .unwrap_or_else(|_| Err("a comparison panicked".into()))
            })
            .collect()
    });
    let mut different: Vec<(usize, String)> = found?.into_iter().flatten().collect();
    different.sort();
    Ok(Compared {
        files: files.len(),
        outputs: jobs.len(),
        different: different.into_iter().map(|(_, line)| line).collect(),
    })
}

fn files(folder: &Path) -> Outcome<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    match files.is_empty() {
        true => Err(format!("{} holds no file; put recordings there", folder.display()).into()),
        false => Ok(files),
    }
}

/// The commands, without the file.
fn commands(old: &Path) -> Outcome<Vec<Vec<String>>> {
    let owned = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    let mut all = vec![owned(&["report", "--json"]), owned(&["ladder", "--json"])];
    for format in values(old, "--format")? {
        all.push(owned(&["export", "--format", &format]));
    }
    for view in values(old, "--view")? {
        let folded = ["export", "--format", "folded", "--view", &view];
        all.push(owned(&folded));
        all.push([owned(&folded), owned(&["--with", "thread,state,reason"])].concat());
    }
    Ok(all)
}

/// The values that an option of `export` takes, as the binary itself lists them when it is given
/// a wrong one.
fn values(binary: &Path, option: &str) -> Outcome<Vec<String>> {
    let mut command = Command::new(binary);
    command.args(["export", option, "no-such-value", "no-such-file"]);
    let output = command
        .output()
        .map_err(|e| format!("{}: {e}", binary.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let list = said.split_once("[possible values: ");
    let list = list.and_then(|(_, rest)| rest.split_once(']'));
    let Some((list, _)) = list else {
        let binary = binary.display();
        return Err(format!("{binary} names no values of {option}; it says: {said}").into());
    };
    let names = list.split(',').map(|name| name.trim().to_string());
    Ok(names.collect())
}

/// Output of one command, and its exit code.
struct Printed {
    code: Option<i32>,
    bytes: Vec<u8>,
}

fn output(binary: &Path, command: &[String], file: &Path) -> Result<Printed, String> {
    let output = Command::new(binary)
        .args(command)
        .arg(file)
        .output()
        .map_err(|e| format!("{}: {e}", binary.display()))?;
    let is_page = command.iter().any(|word| word == "html");
    Ok(Printed {
        code: output.status.code(),
        bytes: match is_page {
            true => page_data(output.stdout),
            false => output.stdout,
        },
    })
}

/// The recording within a page; the whole page if it holds none.
fn page_data(page: Vec<u8>) -> Vec<u8> {
    let text = String::from_utf8_lossy(&page);
    let data = text.split_once("id=\"data\">");
    match data.and_then(|(_, rest)| rest.split_once("</script>")) {
        Some((data, _)) => data.as_bytes().to_vec(),
        None => page,
    }
}

/// The first difference in words.
fn difference(old: &Printed, new: &Printed) -> Option<String> {
    if old.code != new.code {
        let code = |code: Option<i32>| code.map_or("a signal".into(), |code| code.to_string());
        return Some(format!(
            "ended with {}, was {}",
            code(new.code),
            code(old.code)
        ));
    }
    if old.bytes == new.bytes {
        return None;
    }
    let mut pairs = old.bytes.iter().zip(&new.bytes);
    let shorter = old.bytes.len().min(new.bytes.len());
    let at = pairs.position(|(a, b)| a != b).unwrap_or(shorter);
    Some(format!(
        "byte {at} of {}, was {} bytes: was `{}`, is `{}`",
        new.bytes.len(),
        old.bytes.len(),
        around(&old.bytes, at),
        around(&new.bytes, at)
    ))
}

fn around(bytes: &[u8], at: usize) -> String {
    let shown = &bytes[at.saturating_sub(CONTEXT)..bytes.len().min(at + CONTEXT)];
    String::from_utf8_lossy(shown).escape_debug().to_string()
}
