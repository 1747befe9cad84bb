//! Finds the functions that the user names, as places in files.
//!
//! A name is taken as the symbol table has it, else demangled and whole, else without arguments, else
//! as the last parts of a path (`parse` of `json::parse`). The first of these forms with a match counts.
//! Overloads and copies in several modules are functions of their own. Names that are one address are
//! one function. Parts that the compiler put elsewhere (`f.cold`) belong to their function.

use std::{collections::BTreeMap, time::Duration};

use wallscope_binfmt::elf::{Binding, Elf, Symbol};
use wallscope_symbolize::{
    Origin, demangle, demangle_from,
    functions::{self, CodeFile},
    is_mangled, name_origin, without_arguments,
};

use super::{
    modules::Module,
    spec::{fits, is_pattern},
    usdt,
};
use crate::Error;

/// Similar names that are suggested.
const SUGGESTIONS: usize = 5;
/// Time for reading debug information where a name has no code.
const INLINED_LIMIT: Duration = Duration::from_secs(10);

/// A function that was found.
#[derive(Clone, Debug)]
pub struct FoundFunction {
    /// Index of its module.
    pub module: usize,
    /// For people.
    pub name: String,
    /// Virtual address.
    pub address: u64,
    /// Bytes; 0 where the symbol does not say.
    pub size: u64,
    /// Parts put elsewhere: address and size.
    pub parts: Vec<(u64, u64)>,
    /// Place to probe instead of the entry, as a virtual address.
    pub place: Option<u64>,
}

/// Quality of a match, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    Exact,
    Whole,
    Bare,
    Tail,
}

/// A symbol that fits.
struct Candidate {
    fit: Fit,
    raw: Vec<u8>,
    name: String,
    size: u64,
    exported: bool,
    resolver: bool,
}

/// Functions that match `asked` in `modules`, or only in the modules that `among` names.
///
/// # Errors
/// No function matches: the error has the nearest names, or the functions that it was inlined into. Or the
/// function is chosen among several when the program starts.
pub fn functions_named(
    modules: &[Module],
    among: Option<&str>,
    asked: &str,
) -> Result<Vec<FoundFunction>, Error> {
    if let Some(module) = among
        && !modules.iter().any(|m| m.is_called(module))
    {
        return Err(no_module(modules, module));
    }
    let (mut fitting, cold) = fitting(modules, among, asked);
    let best = fitting.values().map(|c| c.fit).min();
    fitting.retain(|_, c| Some(c.fit) == best);
    // The user means neither the resolver's own calls nor those of an old version.
    if !is_pattern(asked) && fitting.values().any(|c| c.resolver) {
        return Err(Error::NoFunction {
            asked: asked.to_owned(),
            why:
                "it is chosen among several versions when the program starts (an indirect function)"
                    .into(),
            instead: format!(
                "name the version, as in '*{asked}*' (with debug symbols), or another module's, as in \
                 MODULE:{asked}"
            ),
        });
    }
    let found: Vec<FoundFunction> = fitting
        .into_iter()
        .filter(|(_, c)| !c.resolver)
        .map(|((module, address), c)| FoundFunction {
            module,
            parts: cold
                .iter()
                .filter(|(m, raw, ..)| *m == module && *raw == c.raw)
                .map(|(.., address, size)| (*address, *size))
                .collect(),
            name: c.name,
            address,
            size: c.size,
            place: None,
        })
        .collect();
    if found.is_empty() {
        return Err(missing(modules, among, asked));
    }
    Ok(found)
}

/// By module and address.
type Fitting = BTreeMap<(usize, u64), Candidate>;
/// Parts put elsewhere: module, function, address and size.
type ColdParts = Vec<(usize, Vec<u8>, u64, u64)>;

/// All symbols that match.
fn fitting(modules: &[Module], among: Option<&str>, asked: &str) -> (Fitting, ColdParts) {
    let pattern = is_pattern(asked);
    let mut fitting = Fitting::new();
    let mut cold = Vec::new();
    for (index, module) in chosen(modules, among) {
        let Some(elf) = module.elf() else { continue };
        let origin = name_origin(&elf);
        every(&elf, module, &mut |s| {
            if let Some(at) = find_cold(s.name) {
                cold.push((index, s.name[..at].to_vec(), s.address, s.size));
                return;
            }
            let Some((fit, name)) = fit(asked, pattern, s.name, origin) else {
                return;
            };
            let new = Candidate {
                fit,
                raw: s.name.to_vec(),
                name,
                size: s.size,
                exported: s.binding != Binding::Local,
                resolver: s.resolver,
            };
            match fitting.get_mut(&(index, s.address)) {
                Some(old) if rank(old) <= rank(&new) => {}
                Some(old) => *old = new,
                None => {
                    fitting.insert((index, s.address), new);
                }
            }
        });
    }
    (fitting, cold)
}

/// A place in the file that is called `asked`, as reports name code without a symbol. `None`: a function is called
/// so, or no file.
///
/// # Errors
/// The file has no code there.
pub fn unnamed(
    modules: &[Module],
    asked: &str,
    offset: u64,
) -> Option<Result<Vec<FoundFunction>, Error>> {
    let is_file = modules.iter().any(|m| m.is_called(asked));
    (is_file && fitting(modules, None, asked).0.is_empty()).then(|| place(modules, asked, offset))
}

/// A place in a module's file, by offset.
///
/// # Errors
/// No such module, or no code there.
pub fn place(modules: &[Module], asked: &str, offset: u64) -> Result<Vec<FoundFunction>, Error> {
    let mut found = Vec::new();
    for (index, module) in chosen(modules, Some(asked)) {
        let Some(elf) = module.elf() else { continue };
        let Some(at) = elf
            .vaddr_of_offset(offset)
            .filter(|a| elf.is_executable(*a))
        else {
            return Err(Error::NoFunction {
                asked: format!("{asked}+{offset:#x}"),
                why: format!("{} has no code at that offset of its file", module.path),
                instead: "take the offset that a report prints as module+0x…".into(),
            });
        };
        let extent = functions::extent(file_of(&elf, module), at);
        let (address, size, name) = extent.unwrap_or((at, 0, None));
        found.push(FoundFunction {
            module: index,
            name: match name {
                Some(name) if at == address => name,
                Some(name) => format!("{name}+{:#x}", at - address),
                None => format!("{}+{offset:#x}", module.name()),
            },
            address,
            size,
            parts: Vec::new(),
            place: (at != address).then_some(at),
        });
    }
    if found.is_empty() {
        return Err(no_module(modules, asked));
    }
    Ok(found)
}

/// The name of the function that starts at `address` of `module`, with its size.
pub fn starting_at(module: &Module, address: u64) -> Option<(u64, u64)> {
    let elf = module.elf()?;
    let extent = functions::extent(file_of(&elf, module), address)?;
    (extent.0 == address).then_some((extent.0, extent.1))
}

/// Whether exceptions may pass through the target's frames: an unwinder is there.
pub fn may_unwind(modules: &[Module]) -> bool {
    modules.iter().any(|m| {
        let name = m.name();
        let library = ["libgcc_s.", "libstdc++.", "libc++abi.", "libunwind."];
        library.iter().any(|l| name.starts_with(l)) || {
            let mut has = false;
            if let Some(elf) = m.elf() {
                for table in [
                    wallscope_binfmt::elf::SymbolTable::Static,
                    wallscope_binfmt::elf::SymbolTable::Dynamic,
                ] {
                    has |= elf
                        .symbols(table)
                        .any(|s| s.name == b"_Unwind_RaiseException");
                }
            }
            has
        }
    })
}

fn chosen<'a>(
    modules: &'a [Module],
    among: Option<&str>,
) -> impl Iterator<Item = (usize, &'a Module)> {
    let among = among.map(str::to_owned);
    modules
        .iter()
        .enumerate()
        .filter(move |(_, m)| among.as_ref().is_none_or(|a| m.is_called(a)))
}

fn every(elf: &Elf<'_>, module: &Module, visit: &mut dyn FnMut(&Symbol<'_>)) {
    functions::functions(file_of(elf, module), visit);
}

fn file_of<'a>(elf: &'a Elf<'a>, module: &'a Module) -> CodeFile<'a> {
    CodeFile {
        elf,
        path: module.path.as_ref(),
        root: module.root.as_ref(),
    }
}

/// Position of the suffix that marks a name as a part of another function.
fn find_cold(raw: &[u8]) -> Option<usize> {
    let at = raw.windows(5).position(|w| w == b".cold")?;
    (at > 0).then_some(at)
}

/// Match of the symbol `raw` with `asked`, and its name for people; `None`: no match.
fn fit(asked: &str, pattern: bool, raw: &[u8], origin: Origin) -> Option<(Fit, String)> {
    let text = std::str::from_utf8(raw).ok()?;
    let text = text.split('@').next().unwrap_or(text);
    let mangled = is_mangled(raw) || origin == Origin::Nim;
    let holds_words = !mangled || raw.starts_with(b"_Z") || raw.starts_with(b"_R");
    // Demangling is costly: only names that contain the words asked for can match. Arguments are abbreviated.
    let plain = asked.split(['(', '<']).next().unwrap_or(asked);
    let words = plain.split(|c: char| !c.is_alphanumeric() && c != '_');
    let lacks_word = || !words.clone().all(|w| text.contains(w));
    if !pattern && holds_words && lacks_word() && !asked.contains("operator") {
        return None;
    }
    if !mangled {
        let yes = asked == text || (pattern && fits(asked, text));
        return yes.then(|| (Fit::Exact, text.to_owned()));
    }
    let name = demangle_from(raw, origin);
    if asked == text {
        return Some((Fit::Exact, name));
    }
    let bare = without_arguments(&name);
    if pattern {
        return (fits(asked, text) || fits(asked, bare)).then_some((Fit::Exact, name));
    }
    let fit = if name == asked {
        Fit::Whole
    } else if bare == asked {
        Fit::Bare
    } else if bare
        .strip_suffix(asked)
        .is_some_and(|head| head.ends_with("::") || head.ends_with('.'))
    {
        Fit::Tail
    } else {
        return None;
    };
    Some((fit, name))
}

/// Order of the names of one function: the name that people know is the least.
fn rank(c: &Candidate) -> (Fit, usize, bool, usize) {
    let underscores = c.raw.iter().take_while(|b| **b == b'_').count();
    (c.fit, underscores, !c.exported, c.raw.len())
}

fn no_module(modules: &[Module], asked: &str) -> Error {
    let names: Vec<&str> = modules.iter().take(12).map(Module::name).collect();
    Error::NoFunction {
        asked: asked.to_owned(),
        why: "the target has no such file with code".into(),
        instead: format!("it has {}", names.join(", ")),
    }
}

/// Why there is nothing of that name.
fn missing(modules: &[Module], among: Option<&str>, asked: &str) -> Error {
    let pattern = is_pattern(asked);
    let mut into: Vec<String> = Vec::new();
    for (_, module) in chosen(modules, among) {
        let Some(elf) = module.elf() else { continue };
        let wanted = |name: &str| {
            let bare = without_arguments(name);
            let tail = bare.strip_suffix(asked).is_some_and(|h| h.ends_with("::"));
            name == asked || bare == asked || tail || (pattern && fits(asked, bare))
        };
        let found = functions::inlined(file_of(&elf, module), INLINED_LIMIT, &wanted);
        into.extend(found.into_iter().map(|i| i.into));
    }
    into.sort();
    into.dedup();
    if !into.is_empty() {
        let shown: Vec<&str> = into.iter().take(6).map(String::as_str).collect();
        let more = into.len() - shown.len();
        let more = match more {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        return Error::NoFunction {
            asked: asked.to_owned(),
            why: format!(
                "the compiler inlined it everywhere, so that it has no code of its own: into {}{more}",
                shown.join(", ")
            ),
            instead: "probe one of these, or build it with __attribute__((noinline)) or \
                      #[inline(never)]"
                .into(),
        };
    }
    let near = nearest(modules, among, asked);
    let stripped =
        chosen(modules, among).any(|(_, m)| m.elf().is_some_and(|e| !e.has_static_symbols()));
    let instead = match (near.is_empty(), stripped) {
        (false, _) => format!("the nearest names are {}", near.join(", ")),
        (true, true) => "some of its files are stripped of their symbols: install their debug \
                         symbols, or name a place as module+0xOFFSET"
            .into(),
        (true, false) => "patterns like 'pg_*' are understood".into(),
    };
    let why = match managed(modules) {
        Some(hint) => {
            format!("no function of that name has machine code in the target's files; {hint}")
        }
        None => "no function of that name is in the target's files".into(),
    };
    Error::NoFunction {
        asked: asked.to_owned(),
        why,
        instead,
    }
}

/// Advice on the functions of a managed runtime, if the target has one.
fn managed(modules: &[Module]) -> Option<&'static str> {
    let has = |part: &str| modules.iter().any(|m| m.name().starts_with(part));
    if has("libjvm.so") {
        Some("Java methods have none that stays: use JFR or usdt:hotspot:method__entry")
    } else if has("python") || has("libpython") {
        Some(
            "Python functions have none: `wallscope record` shows them, usdt:python:function__entry \
              counts them where the interpreter has it",
        )
    } else if has("node") {
        Some(
            "JavaScript functions have none that stays: use node's own --cpu-prof, or \
              perf_hooks.timerify",
        )
    } else {
        None
    }
}

fn nearest(modules: &[Module], among: Option<&str>, asked: &str) -> Vec<String> {
    let bare = asked.rsplit("::").next().unwrap_or(asked);
    let mut near: Vec<(usize, String)> = Vec::new();
    for (_, module) in chosen(modules, among) {
        let Some(elf) = module.elf() else { continue };
        every(&elf, module, &mut |s| {
            let name = demangle(s.name);
            let own = without_arguments(&name);
            let last = own.rsplit("::").next().unwrap_or(own);
            if last.len().abs_diff(bare.len()) > 4 {
                return;
            }
            let distance = strsim::osa_distance(last, bare);
            if distance > 1 + bare.len() / 4 || near.iter().any(|(_, n)| n == own) {
                return;
            }
            near.push((distance, own.to_owned()));
            if near.len() > 64 {
                near.sort();
                near.truncate(SUGGESTIONS);
            }
        });
    }
    near.sort();
    near.truncate(SUGGESTIONS);
    near.into_iter().map(|(_, n)| n).collect()
}

/// Static probes of that name: for each its module and places.
///
/// # Errors
/// There is none; the error has the names that exist.
pub fn static_probes(
    modules: &[Module],
    among: Option<&str>,
    provider: &str,
    name: &str,
) -> Result<Vec<(usize, Vec<usdt::ProbePlace>)>, Error> {
    let mut found = Vec::new();
    let mut others: Vec<String> = Vec::new();
    for (index, module) in chosen(modules, among) {
        let Some(elf) = module.elf() else { continue };
        let (own, rest): (Vec<_>, Vec<_>) = usdt::probes(&elf)
            .into_iter()
            .partition(|p| p.provider == provider && p.name == name);
        others.extend(
            rest.into_iter()
                .map(|p| format!("{}:{}", p.provider, p.name)),
        );
        if !own.is_empty() {
            found.push((index, own.into_iter().map(|p| p.place).collect()));
        }
    }
    if found.is_empty() {
        others.sort();
        others.dedup();
        let same: Vec<_> = others
            .iter()
            .filter(|o| o.contains(name))
            .cloned()
            .collect();
        let shown = if same.is_empty() { others } else { same };
        return Err(Error::NoFunction {
            asked: format!("usdt:{provider}:{name}"),
            why: "the target's files have no such static probe".into(),
            instead: match shown.is_empty() {
                true => "they have none at all; a program is built with them by \
                         --enable-dtrace, --with-dtrace or the like"
                    .into(),
                false => format!(
                    "there are {}",
                    shown
                        .iter()
                        .take(12)
                        .cloned()
                        .collect::<Vec<_>>()
                        .join(", ")
                ),
            },
        });
    }
    Ok(found)
}

#[cfg(test)]
#[path = "find_tests.rs"]
mod tests;
