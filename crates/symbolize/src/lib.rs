//! Turns code addresses into functions and lines, after a recording has ended.
//!
//! [`resolve`] fills [`Frame::lines`] and [`Recording::functions`] for every frame that has none.
//! It tries these sources in order: Go's pclntab; DWARF, with inlined functions and lines;
//! `.symtab`; `.gnu_debugdata`; `.dynsym`; PLT stubs (`malloc@plt`); `/proc/kallsyms`; perf maps.
//! DWARF and `.symtab` may be in a separate debug file. A function without a name is named by its
//! start (`module+0x1f3a`) if unwind information gives it; otherwise the address stays unresolved.
//! Both cases are counted by cause and returned: a miss is a value, never an error.
//!
//! Addresses are resolved all at once at the end, because then they are known before a table is
//! opened. Modules are processed one at a time: the module is mapped, its addresses are sorted,
//! each of its tables is streamed once, and it is unmapped. Memory does not grow with the debug
//! information, except that compressed sections must be decompressed whole. General symbolisers,
//! which answer one address after another, build and keep an index instead.
//!
//! The files belong to the profiled programs and are untrusted. There is no recursion over their
//! structure, a budget wherever structures can multiply, and a deadline for each module. Names are
//! capped and made printable. Links in a container are never followed out of it.
//!
//! [`jit`] follows run-time code while a recording runs.
//!
//! [`functions`] answers the reverse question, where the functions with a name are. [`mod@names`]
//! tells the best names that a file can give.
//!
//! Not done: debuginfod or any other network access, split DWARF (`.dwo`: lines only), line numbers
//! of kernel code, names of stubs on machines other than x86-64.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod debugfile;
mod demangle;
mod dwarf;
mod elf;
mod extent;
pub mod functions;
mod go;
pub mod jit;
mod kernel;
mod lookup;
mod losses;
mod module;
pub mod names;
mod remembered;
mod source;
mod table;
mod unnamed;

use std::sync::Arc;

use rustc_hash::FxHashMap;
use wallscope_binfmt::kallsyms;
use wallscope_model::{Frame, FrameKind, Line, Loss, Module, ModuleId, ModuleKind, Recording};
use wallscope_procfs::target_file::TargetRoot;

pub use demangle::{Origin, demangle, demangle_from, is_mangled, name_origin, without_arguments};
pub use kernel::KernelSymbols;
pub use remembered::Names;
pub use source::{ModuleSource, Sources};

use jit::{ClockReading, CodeHistory, PerfMap, SourcePosition};
use losses::Losses;
use module::{ModuleAddresses, ModuleFiles};
use table::Table;

/// Fills the lines of all frames that have none. Returns the unresolved addresses by cause, to be
/// appended to [`Recording::losses`]. The counts are of distinct addresses, unless the cause says
/// otherwise.
///
/// ```
/// use std::fs::File;
/// use wallscope_model::{Frame, FrameKind, Module, ModuleId, ModuleKind, Recording};
/// use wallscope_symbolize::{ModuleSource, Sources, resolve};
///
/// fn work() {}
///
/// // The offset in this program's file of the code of `work`.
/// let maps = wallscope_procfs::maps::read(std::process::id())?;
/// let address = work as fn() as usize as u64;
/// let code = maps.iter().find(|m| (m.start..m.end).contains(&address)).expect("it is mapped");
///
/// let mut recording = Recording {
///     modules: vec![Module {
///         kind: ModuleKind::Elf,
///         path: code.path.as_str().into(),
///         build_id: "".into(),
///         pid: 0,
///     }],
///     frames: vec![Frame {
///         kind: FrameKind::Native,
///         module: Some(ModuleId(0)),
///         address: address - code.start + code.offset,
///         lines: Vec::new(),
///     }],
///     ..Recording::default()
/// };
/// let mut sources = Sources::default();
/// let file = File::open("/proc/self/exe")?;
/// sources.modules.insert(ModuleId(0), ModuleSource::from_file(file, 0));
/// assert!(resolve(&mut recording, sources).is_empty());
/// let line = recording.frames[0].lines.last().expect("a name");
/// assert!(recording.functions[line.function.0 as usize].name.ends_with("::work"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn resolve(recording: &mut Recording, mut sources: Sources) -> Vec<Loss> {
    let mut losses = Losses::default();
    let groups = group(&recording.frames, &recording.modules, &mut losses);
    let mut table = Table::new(&mut recording.functions);
    let mut kernel = Vec::new();
    for (module_id, frames) in groups {
        let Some(id) = module_id else {
            kernel = frames;
            continue;
        };
        let module = &recording.modules[id.0 as usize];
        // Taken out, so that its descriptors are closed when it is done.
        let source = sources.modules.remove(&id);
        let (addresses, slots) = distinct(&recording.frames, &frames);
        let lines = match module.kind {
            ModuleKind::Jit if source.is_none() && !sources.perf_maps => {
                let cause = format!(
                    "perf map not read, as pid {} may be another process",
                    module.pid
                );
                losses.add(cause, addresses.len() as u64);
                continue;
            }
            ModuleKind::Jit => {
                let wanted = JitAddresses {
                    pid: module.pid,
                    addresses: &addresses,
                };
                jit(&wanted, source, &mut table, &mut losses)
            }
            _ => {
                let wanted = ModuleAddresses {
                    module,
                    offsets: &addresses,
                };
                let files = ModuleFiles {
                    sources: &sources,
                    kept: source.as_ref(),
                };
                module::resolve(&wanted, files, &mut table, &mut losses)
            }
        };
        for (frame, slot) in frames.iter().zip(slots) {
            recording.frames[*frame].lines.clone_from(&lines[slot]);
        }
    }
    if !kernel.is_empty() {
        let symbols = sources.kallsyms.take();
        kernel_frames(recording, &kernel, symbols, &mut losses);
    }
    losses.finish()
}

/// Groups the frames to resolve by module, in order of modules; `None` collects the kernel's.
fn group(
    frames: &[Frame],
    modules: &[Module],
    losses: &mut Losses,
) -> Vec<(Option<ModuleId>, Vec<usize>)> {
    let mut groups: FxHashMap<Option<ModuleId>, Vec<usize>> = FxHashMap::default();
    for (i, frame) in frames.iter().enumerate() {
        if !frame.lines.is_empty() {
            continue;
        }
        let module = frame.module.filter(|m| (m.0 as usize) < modules.len());
        let is_kernel = frame.kind == FrameKind::Kernel
            || module.is_some_and(|m| modules[m.0 as usize].kind == ModuleKind::Kernel);
        match module {
            _ if is_kernel => groups.entry(None).or_default().push(i),
            Some(id) => groups.entry(Some(id)).or_default().push(i),
            None => losses.add("address in no known module", 1),
        }
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_unstable_by_key(|g| g.0);
    groups
}

/// Returns the distinct addresses of `frames`, ascending, and the position of each frame's address
/// among them.
fn distinct(all: &[Frame], frames: &[usize]) -> (Vec<u64>, Vec<usize>) {
    let mut addresses: Vec<u64> = frames.iter().map(|f| all[*f].address).collect();
    addresses.sort_unstable();
    addresses.dedup();
    let slots = frames
        .iter()
        .map(|f| addresses.partition_point(|a| *a < all[*f].address))
        .collect();
    (addresses, slots)
}

fn kernel_frames(
    recording: &mut Recording,
    frames: &[usize],
    symbols: Option<Arc<KernelSymbols>>,
    losses: &mut Losses,
) {
    let (addresses, slots) = distinct(&recording.frames, frames);
    let count = addresses.len() as u64;
    let read = || kallsyms::read().map(|text| Arc::new(KernelSymbols::new(text.into())));
    let symbols = match symbols.map_or_else(read, Ok) {
        Ok(symbols) => symbols,
        Err(_) => {
            losses.add("kernel symbols cannot be read (/proc/kallsyms)", count);
            return;
        }
    };
    if symbols.is_hidden() {
        losses.add("kernel symbols are hidden (kernel.kptr_restrict)", count);
        return;
    }
    let found = symbols.resolve(&addresses);
    let missing = found.iter().filter(|f| f.is_none()).count();
    losses.add("no symbols: kernel", missing as u64);
    let mut table = Table::new(&mut recording.functions);
    let lines: Vec<Vec<Line>> = found
        .iter()
        .map(|f| {
            let line = f.as_ref().map(|f| Line {
                function: table.plain(f.name.as_bytes()),
                line: 0,
            });
            line.into_iter().collect()
        })
        .collect();
    for (frame, slot) in frames.iter().zip(slots) {
        let in_module = found[slot].as_ref().map_or("", |f| f.module.as_str());
        if !in_module.is_empty() {
            let module = Module {
                kind: ModuleKind::Kernel,
                path: format!("[{in_module}]").into(),
                build_id: Arc::default(),
                pid: 0,
            };
            let id = kernel_module(&mut recording.modules, &module);
            recording.frames[*frame].module = Some(id);
        }
        recording.frames[*frame].lines.clone_from(&lines[slot]);
    }
}

/// Returns the entry of a kernel module in the table of modules; adds a missing one.
fn kernel_module(modules: &mut Vec<Module>, wanted: &Module) -> ModuleId {
    let known = modules
        .iter()
        .position(|m| m.kind == ModuleKind::Kernel && m.path == wanted.path);
    let index = known.unwrap_or_else(|| {
        modules.push(wanted.clone());
        modules.len() - 1
    });
    ModuleId(u32::try_from(index).unwrap_or(u32::MAX))
}

/// Addresses of code that a process made at run time.
struct JitAddresses<'a> {
    pid: u32,
    /// Ascending, without duplicates.
    addresses: &'a [u64],
}

fn jit(
    wanted: &JitAddresses<'_>,
    source: Option<ModuleSource>,
    table: &mut Table<'_>,
    losses: &mut Losses,
) -> Vec<Vec<Line>> {
    let JitAddresses { pid, addresses } = *wanted;
    let none = vec![Vec::new(); addresses.len()];
    let count = addresses.len() as u64;
    let source = source.unwrap_or_default();
    let map = source.file.or_else(|| {
        let root = source.root;
        let root = root.or_else(|| TargetRoot::of_process(pid).ok().map(Arc::new))?;
        PerfMap::find(pid, &root).unwrap_or_else(|refusal| {
            losses.add(format!("perf map refused: {refusal}: pid {pid}"), count);
            None
        })
    });
    let Some(map) = map else {
        losses.add(format!("no perf map: pid {pid}"), count);
        return none;
    };
    let mut history = CodeHistory::new(u64::MAX);
    let mut map = PerfMap::new(map);
    if map
        .follow(&mut history, ClockReading::default(), usize::MAX)
        .is_err()
    {
        losses.add(format!("unreadable perf map: pid {pid}"), count);
        return none;
    }
    map.finish(&mut history);
    let names: Vec<Option<SourcePosition>> = addresses.iter().map(|a| history.at(*a, 0)).collect();
    let missing = names.iter().filter(|n| n.is_none()).count();
    losses.add(format!("not in the perf map: pid {pid}"), missing as u64);
    losses.add(
        format!("lines of the perf map that are no entry: pid {pid}"),
        map.junk,
    );
    losses.add(
        format!("entries of the perf map beyond what is kept: pid {pid}"),
        history.refused,
    );
    names
        .iter()
        .map(|name| {
            let line = name.as_ref().map(|place| Line {
                function: table.source(place.name.as_bytes(), &place.file, 0),
                line: place.line,
            });
            line.into_iter().collect()
        })
        .collect()
}

/// The examples of README.md are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
