//! The program of a process: its executable, or the script or module that an interpreter runs.

use super::{Facts, KERNEL};

/// Interpreters by the start of their file's name, with the option before a module.
const INTERPRETERS: [(&str, Option<&str>); 9] = [
    ("python", Some("-m")),
    ("java", Some("-jar")),
    ("node", None),
    ("ruby", None),
    ("perl", None),
    ("php", None),
    ("bash", None),
    ("dash", None),
    ("sh", None),
];

/// Endings that say nothing about a service.
const ENDINGS: [&str; 8] = [".py", ".jar", ".js", ".mjs", ".rb", ".pl", ".php", ".sh"];

/// The program's name.
pub(super) fn name(facts: &Facts) -> String {
    if facts.exe.is_empty() && facts.args.is_empty() {
        // Of a process that ended before it was read only the name is known. Its ancestor identifies a kernel thread.
        return match facts.is_gone && !facts.comm.is_empty() {
            true => facts.comm.clone(),
            false => KERNEL.to_string(),
        };
    }
    let exe = base(facts.exe.strip_suffix(" (deleted)").unwrap_or(&facts.exe));
    let interpreter = INTERPRETERS.iter().find(|(name, _)| {
        let version = exe.strip_prefix(name);
        version.is_some_and(|v| {
            v.chars()
                .all(|c| c.is_ascii_digit() || c == '.' || c == '-')
        })
    });
    interpreter
        .and_then(|(_, module)| script(&facts.args, *module))
        .or(Some(exe.to_string()).filter(|e| !e.is_empty()))
        .unwrap_or_else(|| facts.comm.clone())
}

/// The script or module among an interpreter's arguments.
fn script(args: &[String], module: Option<&str>) -> Option<String> {
    let mut rest = args.iter().skip(1);
    while let Some(arg) = rest.next() {
        if Some(arg.as_str()) == module {
            return rest.next().map(|name| bare(name));
        }
        // Code on the command line is no name.
        if arg == "-c" || arg == "-e" {
            return None;
        }
        if !arg.starts_with('-') {
            return Some(bare(arg));
        }
    }
    None
}

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn bare(path: &str) -> String {
    let name = base(path);
    let ending = ENDINGS.iter().find_map(|e| name.strip_suffix(e));
    ending.filter(|n| !n.is_empty()).unwrap_or(name).to_string()
}
