//! A thread that looks names up: one file after the other, small ones first.
//!
//! The kernel and small libraries are in most stacks and take milliseconds. The debug information of a large program
//! takes seconds. So most frames have names soon.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use rustc_hash::FxHashMap;
use rustix::time::{ClockId, clock_gettime};
use wallscope_binfmt::kallsyms;
use wallscope_model::{
    Frame, FrameKind, Function, Loss, Module, ModuleId, ModuleKind, Recording, name,
};

use crate::{KernelSymbols, ModuleSource, Sources};

/// Fills the lines of a recording's frames: [`crate::resolve`].
pub(crate) type Resolve = fn(&mut Recording, Sources) -> Vec<Loss>;

/// Module, kind and address of a frame.
pub(crate) type Key = (Option<Module>, FrameKind, u64);

/// The functions of an address.
pub(crate) struct Named {
    /// The kernel module of the code, which its address does not tell.
    pub kernel_module: Option<Module>,
    /// Functions with their lines, innermost first.
    pub lines: Vec<(Function, u32)>,
}

/// Minimum bytes of a large file. Smaller files take some milliseconds.
const LARGE: u64 = 16 << 20;

/// The files of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileSize {
    /// The kernel, and files below [`LARGE`].
    Small,
    /// Files of [`LARGE`] or of unknown size.
    Large,
}

impl FileSize {
    /// Both, in the order of their numbers.
    pub(crate) const ALL: [FileSize; 2] = [FileSize::Small, FileSize::Large];
}

/// A request to the thread.
pub(crate) enum Request {
    /// Look names up, for this CPU time and until the present file is read.
    Name(Question, Duration),
    /// Forget the kernel's symbols.
    Forget,
}

/// Addresses without names, and the files that name them.
pub(crate) struct Question {
    /// Addresses by module.
    groups: Vec<Group>,
    /// Sources without modules.
    sources: Sources,
}

/// Addresses of one module.
struct Group {
    keys: Vec<Key>,
    source: Option<ModuleSource>,
}

/// A message from the thread.
pub(crate) enum News {
    /// Names of one module's addresses.
    Found(Vec<(Key, Named)>),
    /// A thread has answered its question; the CPU time that this took.
    Done(FileSize, Duration),
}

impl Question {
    /// Asks for `keys`, addresses of the modules of `recording`; a question for each of [`FileSize::ALL`].
    pub(crate) fn by_size(
        keys: Vec<Key>,
        recording: &Recording,
        mut sources: Sources,
    ) -> [Question; 2] {
        let mut by_module: FxHashMap<Option<Module>, Vec<Key>> = FxHashMap::default();
        for key in keys {
            by_module.entry(key.0.clone()).or_default().push(key);
        }
        let mut files: FxHashMap<&Module, ModuleSource> = FxHashMap::default();
        for (id, module) in (0u32..).zip(&recording.modules) {
            if let Some(source) = sources.modules.remove(&ModuleId(id)) {
                files.insert(module, source);
            }
        }
        let groups = by_module.into_iter().map(|(module, keys)| Group {
            source: module.as_ref().and_then(|m| files.remove(m)),
            keys,
        });
        let mut small: Vec<Group> = groups.collect();
        small.sort_by_key(Group::size);
        let large = small.split_off(small.partition_point(|g| g.size() < LARGE));
        let common = Sources {
            modules: FxHashMap::default(),
            root: sources.root.clone(),
            kallsyms: None,
            debug_directories: sources.debug_directories.clone(),
            ..sources
        };
        [(small, common), (large, sources)].map(|(groups, sources)| Question { groups, sources })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }
}

impl Group {
    /// Size of the module's file, bytes; 0 for the kernel.
    fn size(&self) -> u64 {
        if self.is_kernel() {
            return 0;
        }
        let source = self.source.as_ref();
        let bytes = source
            .and_then(|s| s.bytes.as_ref())
            .map(|b| b.len() as u64);
        let file = source.and_then(|s| s.file.as_ref()?.metadata().ok());
        bytes.or(file.map(|f| f.len())).unwrap_or(u64::MAX)
    }

    fn is_kernel(&self) -> bool {
        self.keys.iter().any(|(module, kind, _)| {
            let in_kernel = |m: &Module| m.kind == ModuleKind::Kernel;
            *kind == FrameKind::Kernel || module.as_ref().is_some_and(in_kernel)
        })
    }

    /// The module's addresses as a recording without names.
    fn recording(&self) -> Recording {
        let module = self.keys.first().and_then(|(module, ..)| module.clone());
        let frame = |(module, kind, address): &Key| Frame {
            kind: *kind,
            module: module.as_ref().map(|_| ModuleId(0)),
            address: *address,
            lines: Vec::new(),
        };
        Recording {
            frames: self.keys.iter().map(frame).collect(),
            modules: module.into_iter().collect(),
            ..Recording::default()
        }
    }
}

/// Looks names up in files of `size` until the other end of `news` is dropped.
pub(crate) fn run(
    asked: &Receiver<Request>,
    (size, news): (FileSize, &Sender<News>),
    resolve: Resolve,
) {
    // The kernel's symbols are read before the first request.
    let mut kernel = (size == FileSize::Small).then(symbols);
    for request in asked {
        let Request::Name(Question { groups, sources }, at_most) = request else {
            kernel = None;
            continue;
        };
        let begin = cpu_time();
        for group in groups {
            if group.is_kernel() {
                kernel.get_or_insert_with(symbols);
            }
            let mut recording = group.recording();
            let sources = Sources {
                modules: (group.source.map(|s| (ModuleId(0), s)))
                    .into_iter()
                    .collect(),
                root: sources.root.clone(),
                kallsyms: kernel.clone(),
                debug_directories: sources.debug_directories.clone(),
                ..sources
            };
            // `wallscope record` counts frames without names by cause.
            let _ = resolve(&mut recording, sources);
            let found = group.keys.into_iter().zip(&recording.frames);
            let found = found.map(|(key, frame)| (key, named(&recording, frame)));
            if news.send(News::Found(found.collect())).is_err() {
                return;
            }
            if cpu_time().saturating_sub(begin) >= at_most {
                break;
            }
        }
        let took = cpu_time().saturating_sub(begin);
        if news.send(News::Done(size, took)).is_err() {
            return;
        }
    }
}

/// The names of a frame that was looked up. A frame without names is not looked up again: its address is its name.
///
/// Mangled names are left out. They are a tenth of a window's bytes, and probes are found by the demangled ones.
fn named(recording: &Recording, frame: &Frame) -> Named {
    let lines = frame.lines.iter();
    let mut lines: Vec<(Function, u32)> = lines
        .map(|l| (recording.functions[l.function.0 as usize].clone(), l.line))
        .collect();
    for (function, _) in &mut lines {
        if !function.system_name.is_empty() {
            function.system_name = function.name.clone();
        }
    }
    if lines.is_empty() {
        let address = name::address(recording, frame);
        let function = Function {
            name: address.as_str().into(),
            system_name: address.as_str().into(),
            file: "".into(),
            start_line: 0,
        };
        lines.push((function, 0));
    }
    let module = frame.module.map(|m| &recording.modules[m.0 as usize]);
    Named {
        kernel_module: module.filter(|m| m.kind == ModuleKind::Kernel).cloned(),
        lines,
    }
}

/// CPU time of this thread so far. The time on the clock would grow with the load of the host.
pub(crate) fn cpu_time() -> Duration {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

/// The kernel's symbols of code; empty: they cannot be read.
fn symbols() -> Arc<KernelSymbols> {
    let text = code(&kallsyms::read().unwrap_or_default());
    Arc::new(KernelSymbols::new(text))
}

/// The lines of `/proc/kallsyms` that name code, and the lines after them, which may end that code. These are half of
/// the text, or less.
fn code(text: &str) -> Arc<str> {
    let mut kept = String::new();
    let mut after_code = false;
    for line in text.split_inclusive('\n') {
        let is_code = kallsyms::parse_line(line.trim_end()).is_some_and(|s| s.is_code());
        if is_code || after_code {
            kept.push_str(line);
        }
        after_code = is_code;
    }
    kept.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_stays_only_where_it_ends_code() {
        let text = "1000 T a\n2000 t b\t[m]\n3000 D c\n4000 d e\n5000 t f\nno symbol\n";
        let kept = code(text);
        assert_eq!(
            &*kept,
            "1000 T a\n2000 t b\t[m]\n3000 D c\n5000 t f\nno symbol\n"
        );
    }

    #[test]
    fn small_files_come_first_and_large_ones_apart() {
        let module = |kind, path: &str| Module {
            kind,
            path: path.into(),
            build_id: "".into(),
            pid: 0,
        };
        let bytes = |n| ModuleSource::from_bytes(vec![0; n]);
        let modules = [
            (module(ModuleKind::Elf, "gone"), None),
            (
                module(ModuleKind::Elf, "large"),
                Some(bytes(LARGE as usize)),
            ),
            (module(ModuleKind::Elf, "small"), Some(bytes(20))),
            (module(ModuleKind::Elf, "smaller"), Some(bytes(10))),
            (module(ModuleKind::Kernel, "[kernel]"), None),
        ];
        let keys = (modules.iter())
            .map(|(m, _)| (Some(m.clone()), FrameKind::Native, 1))
            .collect();
        let recording = Recording {
            modules: modules.iter().map(|(m, _)| m.clone()).collect(),
            ..Recording::default()
        };
        let mut sources = Sources::default();
        for (i, (_, source)) in (0u32..).zip(modules) {
            sources.modules.extend(source.map(|s| (ModuleId(i), s)));
        }
        let questions = Question::by_size(keys, &recording, sources);
        let path = |group: &Group| group.recording().modules[0].path.to_string();
        let [small, large] = questions.map(|q| q.groups.iter().map(path).collect::<Vec<_>>());
        assert_eq!(small, ["[kernel]", "smaller", "small"]);
        assert_eq!(large, ["large", "gone"]);
    }
}
