//! Processes of the file: names, mappings, and where addresses lie in files.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use wallscope_model::{Frame, FrameId, FrameKind, ModuleKind};

use super::super::import::Import;
use super::super::{Mapped, ReadError};
use super::file::c_text;
use super::order::Order;
use super::records::Records;

/// Maximum mappings of a process that are kept: as many as the kernel allows by default.
const MAX_MAPPINGS: usize = 65_530;
/// Maximum processes that are kept; further ones have neither name nor mappings.
const MAX_PROCESSES: usize = 1 << 20;

/// Privilege of the code that a record is about: the lowest bits of `misc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CpuMode {
    Kernel,
    User,
    GuestKernel,
    GuestUser,
    Other,
}

impl CpuMode {
    pub(super) fn of(misc: u16) -> CpuMode {
        match misc & 7 {
            1 => CpuMode::Kernel,
            2 => CpuMode::User,
            4 => CpuMode::GuestKernel,
            5 => CpuMode::GuestUser,
            _ => CpuMode::Other,
        }
    }

    /// The name of code in a guest, for which the host's mappings do not hold.
    pub(super) fn guest(self) -> Option<&'static str> {
        match self {
            CpuMode::GuestKernel => Some("[guest.kernel]"),
            CpuMode::GuestUser => Some("[guest]"),
            _ => None,
        }
    }

    fn is_kernel(self) -> bool {
        matches!(self, CpuMode::Kernel | CpuMode::GuestKernel)
    }
}

/// A mapping's key in the file's table of build ids. The table has other paths for the kernel's code.
///
/// `[kernel.kallsyms]_text` and `/boot/vmlinux` are the kernel, a module is known by its name. Memory
/// without a file has none.
fn build_id_key(path: &str, mode: CpuMode) -> Option<String> {
    match path {
        "//anon" | "[stack]" | "[heap]" | "[vvar]" => return None,
        p if p.starts_with("[guest.kernel.kallsyms") => return Some("[guest.kernel]".to_string()),
        p if p.starts_with("[kernel.kallsyms]") => {}
        p if mode.is_kernel() && !p.starts_with('[') && !p.ends_with(".ko") => {}
        p if mode.is_kernel() => return Some(module_name(p)),
        p => return Some(p.to_string()),
    }
    Some(match mode {
        CpuMode::GuestKernel => "[guest.kernel]".to_string(),
        _ => "[kernel]".to_string(),
    })
}

/// Reads the section of build ids: records of process, id and path.
pub(super) fn build_ids(data: &[u8], order: Order) -> Vec<(String, String)> {
    const WITH_SIZE: u16 = 1 << 15;
    let mut found = Vec::new();
    for r in Records::new(data, order) {
        let (Some(id), Some(path)) = (r.body.get(4..28), r.body.get(28..)) else {
            break;
        };
        let length = match r.misc & WITH_SIZE != 0 {
            true => usize::from(id[20]).min(20),
            // perf before 5.10 wrote no size: ids are shorter by words of zeros.
            false => {
                let words = id[..20].chunks(4).rev();
                20 - 4 * words.take_while(|w| w.iter().all(|b| *b == 0)).count()
            }
        };
        if let Some(key) = build_id_key(&c_text(path), CpuMode::of(r.misc)) {
            found.push((key, hex(&id[..length])));
        }
    }
    found
}

#[derive(Clone, Default)]
struct Process {
    mappings: Arc<BTreeMap<u64, Mapped>>,
    generation: u64,
}

/// State of all processes at one time of the recording.
#[derive(Default)]
pub(super) struct Processes {
    of: FxHashMap<u32, Process>,
    names: FxHashMap<u32, Arc<str>>,
    build_ids: HashMap<String, Arc<str>>,
    /// Kernel modules by address.
    modules: BTreeMap<u64, Mapped>,
    none: BTreeMap<u64, Mapped>,
    /// The address of the kernel's `_text` while it was recorded.
    pub kernel_text: Option<u64>,
    generations: u64,
}

/// A file that a process mapped.
pub(super) struct MappedFile {
    pub path: String,
    /// Its build id, if the record has it.
    pub build_id: Option<String>,
    /// Mode of the CPU when it was mapped: it tells the kernel's mappings.
    pub mode: CpuMode,
}

/// The mapping that holds an address, and its start.
fn mapping_at(list: &BTreeMap<u64, Mapped>, address: u64) -> Option<(u64, Mapped)> {
    let (start, m) = list.range(..=address).next_back()?;
    (address < m.end).then(|| (*start, m.clone()))
}

/// Bytes in lower-case hex.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

impl Processes {
    /// Processes of a file with these build ids.
    pub(super) fn new(build_ids: Vec<(String, String)>) -> Processes {
        let build_ids = build_ids.into_iter().map(|(key, id)| (key, id.into()));
        Processes {
            build_ids: build_ids.collect(),
            ..Processes::default()
        }
    }

    /// A thread got this name.
    pub(super) fn set_name(&mut self, tid: u32, name: String) {
        if self.names.len() < MAX_PROCESSES || self.names.contains_key(&tid) {
            self.names.insert(tid, name.into());
        }
    }

    /// A process began anew by an exec.
    pub(super) fn exec(&mut self, pid: u32) {
        self.of.remove(&pid);
    }

    /// A thread's name, empty where the file has none.
    pub(super) fn name(&self, tid: u32) -> Arc<str> {
        self.names.get(&tid).cloned().unwrap_or_default()
    }

    /// A child has its parent's name and mappings.
    pub(super) fn fork(&mut self, (pid, tid): (u32, u32), (ppid, ptid): (u32, u32)) {
        if let Some(name) = self.names.get(&ptid).cloned()
            && self.names.len() < MAX_PROCESSES
        {
            self.names.insert(tid, name);
        }
        if pid != ppid
            && let Some(parent) = self.of.get(&ppid).cloned()
            && self.of.len() < MAX_PROCESSES
        {
            self.generations += 1;
            let generation = self.generations;
            self.of.insert(
                pid,
                Process {
                    generation,
                    ..parent
                },
            );
        }
    }

    /// A file was mapped.
    pub(super) fn map(
        &mut self,
        pid: i32,
        (start, length, offset): (u64, u64, u64),
        file: MappedFile,
    ) {
        let MappedFile {
            path,
            build_id,
            mode,
        } = file;
        // Addresses of a guest are not addresses of the host.
        if mode.guest().is_some() {
            return;
        }
        let end = start.saturating_add(length);
        let build_id: Arc<str> = match build_id {
            Some(id) => id.into(),
            None => build_id_key(&path, mode)
                .and_then(|key| self.build_ids.get(&key).cloned())
                .unwrap_or_default(),
        };
        let mapped = Mapped {
            end,
            offset,
            path: path.as_str().into(),
            build_id,
        };
        if pid == -1 || mode.is_kernel() {
            if path.starts_with("[kernel.kallsyms]") {
                // Here perf writes the address of the symbol that is named behind the bracket.
                self.kernel_text = Some(offset).filter(|_| path.ends_with("_text"));
            } else if self.modules.len() < MAX_MAPPINGS {
                self.modules.insert(start, mapped);
            }
            return;
        }
        let Ok(pid) = u32::try_from(pid) else { return };
        if !self.of.contains_key(&pid) && self.of.len() >= MAX_PROCESSES {
            return;
        }
        self.generations += 1;
        let process = self.of.entry(pid).or_default();
        process.generation = self.generations;
        let mappings = Arc::make_mut(&mut process.mappings);
        // It replaces the part of an older mapping that it covers.
        let below = mappings.range(..start).next_back();
        if let Some((at, old)) = below.map(|(at, m)| (*at, m.clone()))
            && old.end > start
        {
            if old.end > end {
                let rest = Mapped {
                    offset: old.offset.wrapping_add(end - at),
                    ..old.clone()
                };
                mappings.insert(end, rest);
            }
            if let Some(m) = mappings.get_mut(&at) {
                m.end = start;
            }
        }
        let covered: Vec<u64> = mappings
            .range(start..end.max(start))
            .map(|(at, _)| *at)
            .collect();
        for at in covered {
            if let Some(old) = mappings.remove(&at)
                && old.end > end
            {
                let rest = Mapped {
                    offset: old.offset.wrapping_add(end - at),
                    ..old
                };
                mappings.insert(end, rest);
            }
        }
        if mappings.len() < MAX_MAPPINGS {
            mappings.insert(start, mapped);
        }
    }

    /// A process's executable mappings by their start.
    pub(super) fn mappings(&self, pid: u32) -> &BTreeMap<u64, Mapped> {
        self.of.get(&pid).map_or(&self.none, |p| &*p.mappings)
    }

    /// A number that changes with the mappings.
    pub(super) fn generation(&self, pid: u32) -> u64 {
        self.of.get(&pid).map_or(0, |p| p.generation)
    }

    /// The frame of an address of the kernel.
    pub(super) fn kernel_frame(&self, address: u64, to: &mut Import) -> Result<FrameId, ReadError> {
        let path = match mapping_at(&self.modules, address) {
            Some((_, m)) if !m.path.is_empty() => module_name(&m.path),
            _ => "[kernel]".to_string(),
        };
        let module = to.module(ModuleKind::Kernel, &path, "", 0)?;
        to.frame(Frame {
            kind: FrameKind::Kernel,
            module: Some(module),
            address,
            lines: Vec::new(),
        })
    }

    /// The frame of an address of a process.
    pub(super) fn frame(
        &self,
        pid: u32,
        address: u64,
        to: &mut Import,
    ) -> Result<FrameId, ReadError> {
        let Some((start, m)) = mapping_at(self.mappings(pid), address) else {
            return to.frame(Frame {
                kind: FrameKind::Native,
                module: None,
                address,
                lines: Vec::new(),
            });
        };
        let kind = Import::module_kind(&m.path);
        let (kind, path) = match kind {
            ModuleKind::Kernel => (ModuleKind::Elf, &*m.path),
            ModuleKind::Jit => (ModuleKind::Jit, "[jit]"),
            kind => (kind, &*m.path),
        };
        let module = to.module(kind, path, &m.build_id, pid)?;
        let jit = kind == ModuleKind::Jit;
        to.frame(Frame {
            kind: if jit {
                FrameKind::Jit
            } else {
                FrameKind::Native
            },
            module: Some(module),
            address: if jit {
                address
            } else {
                (address - start).wrapping_add(m.offset)
            },
            lines: Vec::new(),
        })
    }
}

/// `/lib/modules/…/snd-seq.ko` → `[snd_seq]`, as the kernel calls it.
fn module_name(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    match name.split_once(".ko") {
        Some((name, _)) => format!("[{}]", name.replace('-', "_")),
        None => path.to_string(),
    }
}
