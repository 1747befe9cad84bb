//! `wallscope doctor -p PID`: the parts of a process that a recording would see.

use wallscope_capture::survey::{Code, Managed, Survey};
use wallscope_symbolize::names::Names;

/// Files that are listed one by one; the rest are only counted.
const MAX_FILES: usize = 12;

/// The survey for people.
pub fn words(survey: &Survey) -> String {
    let mut out = format!("Process {}, {}:\n\n", survey.pid, survey.name);
    if survey.readable {
        out += "  yes  its memory can be read: stacks of its waits, and managed code\n";
    } else {
        out += "  NO   its memory cannot be read\n";
        out += "         lost:  managed code, stacks of its waits without eBPF\n";
        out += "         helps: CAP_SYS_PTRACE, or root\n";
    }
    for runtime in &survey.runtimes {
        out += &of_runtime(runtime);
    }
    if survey.runtimes.is_empty() {
        out += "  -    no runtime of managed code that is read (Python, PHP, Ruby, Java, JavaScript, Go)\n";
    }
    out += &of_made(survey);
    for code in files(survey).iter().take(MAX_FILES) {
        out += &of_code(code);
    }
    if let Some(more) = survey.files.len().checked_sub(MAX_FILES).filter(|n| *n > 0) {
        out += &format!("       {more} more files: --json has them\n");
    }
    out
}

/// The files: first those that lack something, then the largest.
fn files(survey: &Survey) -> Vec<&Code> {
    let mut files: Vec<&Code> = survey.files.iter().collect();
    files.sort_by_key(|c| (c.unwinding.is_none(), std::cmp::Reverse(c.bytes)));
    files
}

fn of_runtime(runtime: &Managed) -> String {
    match (&runtime.refused, runtime.tried) {
        (Some(why), _) => {
            let seen = "lost:  its functions: stacks show the runtime's own code";
            format!("  NO   {}: {why}\n         {seen}\n", runtime.name)
        }
        (None, Some(false)) => format!(
            "  yes  {}, read as other versions describe themselves: not a version that was tried\n",
            runtime.name
        ),
        (None, _) => format!("  yes  {}: its functions and their lines\n", runtime.name),
    }
}

fn of_made(survey: &Survey) -> String {
    let made = &survey.made;
    if made.bytes == 0 {
        return String::new();
    }
    let what = format!("code made at run time, {}", size(made.bytes));
    if !made.named_by.is_empty() {
        return format!("  yes  {what}: named by a {}\n", made.named_by.join(", "));
    }
    if reads_what_it_made(survey) {
        return format!("  yes  {what}: its functions are named from the process itself\n");
    }
    let (name, remedy) = made.maker.unwrap_or(("a runtime that is not known", ""));
    let mut out = format!("  NO   {what}, by {name}: no perf map or jitdump names it\n");
    if !remedy.is_empty() {
        out += &format!("         helps: {remedy}\n");
    }
    out
}

/// Whether a readable runtime names the code that it made.
fn reads_what_it_made(survey: &Survey) -> bool {
    let makes = |r: &Managed| r.name.starts_with("HotSpot") || r.name.starts_with("V8");
    let mut read = survey.runtimes.iter().filter(|r| r.refused.is_none());
    read.any(makes)
}

fn of_code(code: &Code) -> String {
    let names = match code.names {
        Some(names) => of_names(names).1,
        None => "it cannot be read",
    };
    let id = if code.build_id.is_empty() {
        "; no build id"
    } else {
        ""
    };
    let (mark, unwinding) = match &code.unwinding {
        None => ("yes ", "unwinding tables".to_owned()),
        Some(why) => ("NO  ", format!("no unwinding tables ({why})")),
    };
    let size = size(code.bytes);
    format!("  {mark} {}, {size}: {unwinding}; {names}{id}\n", code.path)
}

/// The stable name, and its meaning.
fn of_names(names: Names) -> (&'static str, &'static str) {
    match names {
        Names::DebugInfo => ("debug_info", "functions, inlined ones and lines"),
        Names::Go => ("go", "functions, inlined ones and lines, by Go's table"),
        Names::Symbols => ("symbols", "functions without lines (no debug information)"),
        Names::Exported => (
            "exported",
            "exported functions only (stripped: install its debug package)",
        ),
        Names::Nothing => ("none", "no names (stripped: install its debug package)"),
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        0..0x10_0000 => format!("{} KiB", bytes >> 10),
        _ => format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
    }
}

/// The survey for scripts.
pub fn json(survey: &Survey) -> serde_json::Value {
    let runtimes = survey.runtimes.iter().map(|r| {
        serde_json::json!({
            "name": r.name,
            "file": r.file,
            "read": r.refused.is_none(),
            "error": r.refused,
            "tested": r.tried,
        })
    });
    let files = survey.files.iter().map(|c| {
        serde_json::json!({
            "path": c.path,
            "bytes": c.bytes,
            "build_id": c.build_id,
            "unwinding": c.unwinding.is_none(),
            "error": c.unwinding,
            "names": c.names.map(|n| of_names(n).0),
        })
    });
    serde_json::json!({
        "pid": survey.pid,
        "name": survey.name,
        "memory_readable": survey.readable,
        "runtimes": runtimes.collect::<Vec<_>>(),
        "made_at_run_time": {
            "bytes": survey.made.bytes,
            "named_by": survey.made.named_by,
            "maker": survey.made.maker.map(|m| m.0),
            "remedy": survey.made.maker.map(|m| m.1),
        },
        "files": files.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use wallscope_capture::survey::Made;

    use super::*;

    #[test]
    fn what_is_missing_is_told_with_what_helps() {
        let mut survey = Survey {
            pid: 7,
            name: "app".into(),
            readable: true,
            runtimes: vec![Managed {
                name: "CPython 3.14 in python3.14t".into(),
                file: "/usr/bin/python3.14t".into(),
                refused: Some("it is a free-threaded build".into()),
                tried: None,
            }],
            files: vec![Code {
                path: "/opt/app".into(),
                bytes: 3 << 20,
                build_id: String::new(),
                unwinding: Some("no table".into()),
                names: Some(Names::Nothing),
            }],
            made: Made {
                bytes: 8192,
                named_by: Vec::new(),
                maker: Some(("Ruby", "ruby --yjit-perf")),
            },
        };
        let text = words(&survey);
        for part in [
            "NO   CPython 3.14 in python3.14t: it is a free-threaded build",
            "NO   code made at run time, 8 KiB, by Ruby",
            "helps: ruby --yjit-perf",
            "NO   /opt/app, 3.0 MiB: no unwinding tables (no table); no names",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        let json = json(&survey);
        assert_eq!(json["runtimes"][0]["read"], false);
        assert_eq!(json["files"][0]["names"], "none");
        survey.made.named_by = vec!["perf map of 7 (3 entries)".into()];
        assert!(words(&survey).contains("named by a perf map of 7 (3 entries)"));
    }
}
