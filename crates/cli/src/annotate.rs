//! `wallscope report FILE --annotate FUNCTION`: its source lines and instructions, with their shares.
//!
//! The samples are in the recording. Sources and instructions are read from the paths that the recording
//! names, and only if the build id proves that the file is the same. If a part cannot be shown, the output
//! says so, with the reason.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use iced_x86::{Decoder, DecoderOptions, Formatter, GasFormatter, Instruction};
use wallscope_analysis::view::{Analysis, Annotation, Spent};
use wallscope_binfmt::elf::{Elf, SymbolTable};
use wallscope_binfmt::mapped::MappedFile;
use wallscope_model::units;
use wallscope_model::{Frame, FrameKind, Function, Module, ModuleId, ModuleKind, Recording, View};
use wallscope_procfs::target_file::{Purpose, Refusal, Rights, TargetPath, TargetRoot};
use wallscope_render::text;
use wallscope_symbolize::{Sources, demangle_from, name_origin, resolve, without_arguments};

use crate::failure::Failure;

/// Lines and instructions shown before and after one that has time.
const AROUND: usize = 3;
/// Share of the function's time from which on a line or instruction is shown with those around it.
const MIN_SHARE: f64 = 0.005;
/// Longest source shown and longest function disassembled, bytes.
const MAX_BYTES: u64 = 16 << 20;
/// Most functions of one name, in different files or modules, that are shown.
const MAX_FUNCTIONS: usize = 4;

/// The one function that matches `name`. Tried in this order: the full name, the name without arguments,
/// the end of a path, any part of the name.
pub fn find(analysis: &Analysis<'_>, name: &str) -> Result<Arc<str>, Failure> {
    let like = analysis.functions_like(name);
    let is = |test: &dyn Fn(&str) -> bool| -> Vec<Arc<str>> {
        like.iter().filter(|n| test(n)).cloned().collect()
    };
    let bare = |n: &str| without_arguments(n) == name;
    let ends = |n: &str| {
        let head = without_arguments(n).strip_suffix(name);
        head.is_some_and(|head| head.ends_with("::") || head.ends_with('.'))
    };
    for found in [is(&|n| n == name), is(&bare), is(&ends), like.clone()] {
        match found.as_slice() {
            [] => {}
            [one] => return Ok(one.clone()),
            several => {
                let names: Vec<&str> = several.iter().take(8).map(|n| &**n).collect();
                return Err(Failure::usage(format!(
                    "'{name}' may be any of {} functions; name one of them: {}",
                    several.len(),
                    names.join(", ")
                )));
            }
        }
    }
    Err(Failure::usage(format!(
        "no function of this recording is called '{name}'; `wallscope report FILE` lists those with \
         most time, and --function REGEX finds others"
    )))
}

/// The text of the annotation of `name`; `owner`: the rights of the recording file's owner.
pub fn text(
    analysis: &Analysis<'_>,
    name: &str,
    view: View,
    owner: &Rights,
) -> Result<String, Failure> {
    let name = find(analysis, name)?;
    let all = analysis.annotations(&name, view);
    let shown = ViewTotal {
        view,
        ns: analysis.total(view).shown_ns(),
    };
    let mut out = String::new();
    if all.is_empty() {
        let _ = writeln!(
            out,
            "{name} has no time in the view {view}; choose another with --view"
        );
        return Ok(out);
    }
    for a in all.iter().take(MAX_FUNCTIONS) {
        head(&mut out, analysis.recording, a, &shown);
        let files = Files::of(analysis.recording, a, owner);
        source(&mut out, a, &files);
        instructions(&mut out, analysis.recording, a, &files);
        out.push('\n');
    }
    if all.len() > MAX_FUNCTIONS {
        let rest: u64 = all[MAX_FUNCTIONS..].iter().map(|a| a.spent.total_ns).sum();
        let _ = writeln!(
            out,
            "and {} more of this name in other files, {} together",
            all.len() - MAX_FUNCTIONS,
            units::ns(rest)
        );
    }
    Ok(out)
}

/// All time of a view.
struct ViewTotal {
    view: View,
    ns: u64,
}

fn head(out: &mut String, rec: &Recording, a: &Annotation, shown: &ViewTotal) {
    let whole = shown.ns;
    let module = a.module.map_or("", |m| rec.modules[m.0 as usize].name());
    let _ = writeln!(out, "{}  {module}", a.function);
    let unit = &rec.domain.unit;
    let what = match unit.is_time() {
        true => format!("view {}", shown.view),
        false => unit.name().to_string(),
    };
    let _ = writeln!(
        out,
        "{what}: {} of {} in it and what it calls ({}), {} in itself; {} samples",
        units::value(unit, a.spent.total_ns),
        units::value(unit, whole),
        units::share_of(a.spent.total_ns, whole),
        units::share_of(a.spent.own_ns, whole),
        units::count(a.samples)
    );
    let _ = writeln!(
        out,
        "Shares below are of its own {}.",
        units::value(&rec.domain.unit, a.spent.total_ns)
    );
}

/// Own and total shares as two columns; blanks for nothing.
fn shares(spent: Option<&Spent>, whole: u64) -> String {
    let share = |ns: u64| match ns {
        0 => String::new(),
        ns => units::share_of(ns, whole),
    };
    let Some(spent) = spent else {
        return format!("{:>8} {:>8}", "", "");
    };
    format!("{:>8} {:>8}", share(spent.own_ns), share(spent.total_ns))
}

/// Whether `index` is at most `AROUND` away from one that has time.
fn near(hot: &[usize], index: usize) -> bool {
    let from = hot.partition_point(|h| h + AROUND < index);
    hot.get(from).is_some_and(|h| *h <= index + AROUND)
}

/// Opens files that a recording names, with the rights of the processes that named them. A recording
/// that does not belong to root is read with its owner's rights, as its owner can change the names in it.
struct Files(Vec<Rights>);

impl Files {
    fn of(rec: &Recording, a: &Annotation, owner: &Rights) -> Files {
        if !owner.is_root() {
            return Files(vec![owner.clone()]);
        }
        let user = |pid: &u32| rec.processes.iter().find(|p| p.pid == *pid)?.user;
        let users: BTreeSet<_> = a.pids.iter().map(user).collect();
        let rights = users.into_iter().map(|user| match user {
            Some(user) => Rights::of_user(user.uid, user.gid),
            None => Rights::of_nobody(),
        });
        Files(rights.collect())
    }

    /// Opens `path` if each of these may read it.
    fn open(&self, path: &str, purpose: Purpose) -> Result<File, Refusal> {
        let mut opened = Err(Refusal::Absent);
        for rights in &self.0 {
            let root = TargetRoot::of_host(rights.clone())?;
            opened = Ok(root.open(&TargetPath::new(path), purpose)?);
        }
        opened
    }

    /// Sources of names that are read with these rights.
    fn sources(&self) -> Sources {
        let rights = self.0.first().cloned();
        let root = rights.and_then(|r| TargetRoot::of_host(r).ok());
        Sources {
            root: root.map(Arc::new),
            ..Sources::default()
        }
    }
}

fn source(out: &mut String, a: &Annotation, files: &Files) {
    let known: Vec<(u32, &Spent)> = a
        .lines
        .iter()
        .filter(|(line, _)| **line > 0)
        .map(|(line, spent)| (*line, spent))
        .collect();
    if known.is_empty() {
        let _ = writeln!(
            out,
            "\n  no source lines: the module has no line table (build with -g, or -C debuginfo=1)"
        );
        return;
    }
    let _ = writeln!(out, "\n{:>8} {:>8}  {}", "self", "total", a.file);
    let whole = a.spent.total_ns;
    let text = match read(&a.file, files) {
        Ok(text) => text,
        Err(why) => {
            for (line, spent) in &known {
                let _ = writeln!(out, "{} {line:>6}", shares(Some(spent), whole));
            }
            let _ = writeln!(out, "  the source cannot be shown: {why}");
            return;
        }
    };
    let lines: Vec<&str> = text.lines().collect();
    let hot: Vec<usize> = known
        .iter()
        .filter(|(_, s)| s.total_ns as f64 >= MIN_SHARE * whole as f64)
        .map(|(line, _)| *line as usize)
        .collect();
    let past = known.iter().any(|(line, _)| *line as usize > lines.len());
    let mut gap = false;
    let first = (a.start_line.max(1) as usize).min(hot.first().copied().unwrap_or(1));
    for (number, line) in (1..).zip(&lines).skip(first - 1) {
        let spent = a.lines.get(&(number as u32));
        if spent.is_none() && number != a.start_line as usize && !near(&hot, number) {
            gap = true;
            continue;
        }
        if std::mem::take(&mut gap) && number > first {
            let _ = writeln!(out, "{:>24}", "⋮");
        }
        let _ = writeln!(out, "{} {number:>6}  {}", shares(spent, whole), clean(line));
    }
    if past {
        let _ = writeln!(
            out,
            "  the source has fewer lines than were sampled: it has changed since it was compiled"
        );
    }
}

fn read(file: &str, files: &Files) -> Result<String, String> {
    if !Path::new(file).is_absolute() {
        return Err(format!("'{file}' is no absolute path"));
    }
    let data = files
        .open(file, Purpose::Source)
        .map_err(|e| format!("{file}: {e}"))?;
    let length = data.metadata().map_err(|e| e.to_string())?.len();
    if length > MAX_BYTES {
        return Err(format!("{file} is {} long", units::bytes(length)));
    }
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut std::io::Read::take(data, MAX_BYTES), &mut bytes)
        .map_err(|e| format!("{file}: {e}"))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Shows characters that a terminal would obey: source files are not trusted.
fn clean(line: &str) -> String {
    text::clean(&line.replace('\t', "    "))
}

/// A stretch of code, by addresses in memory as the file has them.
struct Code<'d> {
    name: String,
    start: u64,
    bytes: &'d [u8],
}

fn instructions(out: &mut String, rec: &Recording, a: &Annotation, files: &Files) {
    let refuse = |out: &mut String, why: &str| {
        let _ = writeln!(out, "\n  no instructions: {why}");
    };
    let Some(module) = a.module.map(|m| &rec.modules[m.0 as usize]) else {
        return refuse(out, "the module is not known");
    };
    match (module.kind, a.kind) {
        (ModuleKind::Elf, FrameKind::Native) => {}
        (ModuleKind::Kernel, _) => {
            return refuse(
                out,
                "the kernel's code is not read; perf annotate can (with vmlinux)",
            );
        }
        (ModuleKind::Source, _) => return refuse(out, "a runtime runs it without machine code"),
        _ => return refuse(out, "the code existed in memory only"),
    }
    let file = match files.open(&module.path, Purpose::Object) {
        Ok(file) => file,
        Err(e) => return refuse(out, &format!("{}: {e}", module.path)),
    };
    let Ok(map) = MappedFile::map(&file) else {
        return refuse(out, &format!("{} is empty", module.path));
    };
    let Ok(elf) = Elf::parse(&map) else {
        return refuse(out, &format!("{} is no ELF file any more", module.path));
    };
    if module.build_id.is_empty() || elf.build_id().as_deref() != Some(&*module.build_id) {
        let why = format!(
            "{} is not proven to be the file that ran (its build id is {}, that of the recording {})",
            module.path,
            elf.build_id().unwrap_or_else(|| "none".into()),
            if module.build_id.is_empty() {
                "none"
            } else {
                &module.build_id
            }
        );
        return refuse(out, &why);
    }
    if !elf.is_x86_64() {
        return refuse(out, "only x86-64 code is taken apart");
    }
    // By address in memory, in ascending order.
    let mut sampled: Vec<(u64, Spent)> = a
        .addresses
        .iter()
        .filter_map(|(offset, spent)| Some((elf.vaddr_of_offset(*offset)?, *spent)))
        .collect();
    sampled.sort_by_key(|(at, _)| *at);
    let codes = codes(&elf, &map, &sampled);
    if codes.is_empty() {
        return refuse(out, "no symbol covers the sampled addresses (stripped?)");
    }
    for code in codes {
        let listing = Listing {
            module,
            elf: &elf,
            files,
            sampled: &sampled,
            whole: a.spent.total_ns,
        };
        listing.disassemble(out, &code);
    }
}

/// The functions (by symbol) that the sampled addresses lie in: one, or those it is inlined into.
fn codes<'d>(elf: &Elf<'_>, bytes: &'d [u8], sampled: &[(u64, Spent)]) -> Vec<Code<'d>> {
    let mut out: Vec<Code<'d>> = Vec::new();
    let origin = name_origin(elf);
    let tables = [SymbolTable::Static, SymbolTable::Dynamic];
    let mut spans: Vec<(u64, u64, &[u8])> = tables
        .into_iter()
        .flat_map(|t| elf.symbols(t))
        .filter(|s| s.function && s.size > 0 && s.size < MAX_BYTES)
        .map(|s| (s.address, s.size, s.name))
        .collect();
    spans.sort_unstable();
    spans.dedup_by_key(|(at, ..)| *at);
    for (at, _) in sampled {
        if out
            .iter()
            .any(|c| (c.start..c.start + c.bytes.len() as u64).contains(at))
        {
            continue;
        }
        let before = &spans[..spans.partition_point(|(start, ..)| start <= at)];
        let Some((start, size, name)) = before.last().filter(|(start, size, _)| at - start < *size)
        else {
            continue;
        };
        let code = elf.offset_of_vaddr(*start).and_then(|from| {
            bytes.get(usize::try_from(from).ok()?..usize::try_from(from + size).ok()?)
        });
        if let Some(code) = code {
            out.push(Code {
                name: demangle_from(name, origin),
                start: *start,
                bytes: code,
            });
        }
    }
    out
}

/// Instructions of a function, with the time at each.
struct Listing<'a, 'd> {
    module: &'a Module,
    elf: &'a Elf<'d>,
    files: &'a Files,
    /// Time by address in memory, ascending.
    sampled: &'a [(u64, Spent)],
    /// Time of the whole function, ns.
    whole: u64,
}

impl Listing<'_, '_> {
    fn disassemble(&self, out: &mut String, code: &Code<'_>) {
        let Listing { sampled, whole, .. } = *self;
        let mut decoder = Decoder::with_ip(64, code.bytes, code.start, DecoderOptions::NONE);
        let mut all: Vec<(Instruction, Spent)> = Vec::new();
        while decoder.can_decode() {
            let instruction = decoder.decode();
            let (from, to) = (instruction.ip(), instruction.next_ip());
            let mut spent = Spent::default();
            let first = sampled.partition_point(|(at, _)| *at < from);
            for (_, s) in sampled[first..].iter().take_while(|(at, _)| *at < to) {
                spent.own_ns += s.own_ns;
                spent.total_ns += s.total_ns;
            }
            all.push((instruction, spent));
        }
        let hot: Vec<usize> = (0..all.len())
            .filter(|i| all[*i].1.total_ns as f64 >= (MIN_SHARE * whole as f64).max(1.0))
            .collect();
        let shown: Vec<usize> = (0..all.len())
            .filter(|i| all[*i].1.total_ns > 0 || near(&hot, *i))
            .collect();
        let lines = self.lines(shown.iter().map(|i| all[*i].0.ip()));
        let _ = writeln!(
            out,
            "\n{:>8} {:>8}  instructions of {}",
            "self",
            "total",
            clean(&code.name)
        );
        let mut formatter = GasFormatter::new();
        let mut last = None;
        for (index, line) in shown.iter().zip(lines) {
            if last.is_some_and(|l| l + 1 < *index) {
                let _ = writeln!(out, "{:>24}", "⋮");
            }
            last = Some(*index);
            let (instruction, spent) = &all[*index];
            let mut text = String::new();
            formatter.format(instruction, &mut text);
            let text = format!(
                "{} {:>8x}  {:<50}  {line}",
                shares((spent.total_ns > 0).then_some(spent), whole),
                instruction.ip(),
                text
            );
            let _ = writeln!(out, "{}", text.trim_end());
        }
    }

    /// The innermost source line of each address (`file:line`, and the function inlined there); empty if not
    /// known.
    fn lines(&self, addresses: impl Iterator<Item = u64>) -> Vec<String> {
        let frames: Vec<Frame> = addresses
            .map(|at| Frame {
                kind: FrameKind::Native,
                module: Some(ModuleId(0)),
                address: self.elf.offset_of_vaddr(at).unwrap_or(u64::MAX),
                lines: Vec::new(),
            })
            .collect();
        let mut recording = Recording {
            modules: vec![self.module.clone()],
            frames,
            ..Recording::default()
        };
        // A miss leaves the line empty, which says it.
        let _ = resolve(&mut recording, self.files.sources());
        let name = |f: &Function| f.file.rsplit('/').next().unwrap_or_default().to_string();
        recording
            .frames
            .iter()
            .map(|frame| match frame.lines.as_slice() {
                [] => String::new(),
                [line, ..] if line.line == 0 => String::new(),
                [line, outer @ ..] => {
                    let f = &recording.functions[line.function.0 as usize];
                    let inlined = if outer.is_empty() {
                        String::new()
                    } else {
                        format!(" ({})", clean(&f.name))
                    };
                    format!("{}:{}{inlined}", name(f), line.line)
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_near_is_shown() {
        let hot = [10, 30];
        for (index, is) in [
            (6, false),
            (7, true),
            (13, true),
            (14, false),
            (27, true),
            (34, false),
        ] {
            assert_eq!(near(&hot, index), is, "{index}");
        }
        assert!(!near(&[], 5));
    }
}
