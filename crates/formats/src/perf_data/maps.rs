//! Processes of the file: names, mappings, and where addresses lie in files.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use linux_perf_data::DsoKey;
use linux_perf_data::linux_perf_event_reader::CpuMode;
use rustc_hash::FxHashMap;
use wallscope_model::{Frame, FrameId, FrameKind, ModuleKind};

use super::super::import::Import;
use super::super::{Mapped, ReadError};

/// A process has no more mappings than the kernel allows it by default.
const MOST_MAPPINGS: usize = 65_530;
/// More processes than this are not told apart.
const MOST_PROCESSES: usize = 1 << 20;

#[derive(Clone, Default)]
struct Process {
    mappings: Arc<BTreeMap<u64, Mapped>>,
    generation: u64,
}

/// What the file has said of processes so far.
#[derive(Default)]
pub(super) struct Processes {
    of: FxHashMap<u32, Process>,
    names: FxHashMap<u32, Arc<str>>,
    build_ids: HashMap<DsoKey, Arc<str>>,
    /// Kernel modules by address.
    modules: BTreeMap<u64, Mapped>,
    none: BTreeMap<u64, Mapped>,
    /// The address of the kernel's `_text` while it was recorded.
    pub kernel_text: Option<u64>,
    generations: u64,
}

/// Bytes in lower-case hex.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

impl Processes {
    /// A file's build id, as the file's table of them has it.
    pub(super) fn build_id(&mut self, key: DsoKey, id: &[u8]) {
        self.build_ids.insert(key, hex(id).into());
    }

    /// A thread's name; after an exec its process begins anew.
    pub(super) fn comm(&mut self, pid: u32, tid: u32, name: String, exec: bool) {
        if self.names.len() < MOST_PROCESSES || self.names.contains_key(&tid) {
            self.names.insert(tid, name.into());
        }
        if exec {
            self.of.remove(&pid);
        }
    }

    /// A thread's name, empty where the file has none.
    pub(super) fn name(&self, tid: u32) -> Arc<str> {
        self.names.get(&tid).cloned().unwrap_or_default()
    }

    /// A child has its parent's name and mappings.
    pub(super) fn fork(&mut self, (pid, tid): (u32, u32), (ppid, ptid): (u32, u32)) {
        if let Some(name) = self.names.get(&ptid).cloned()
            && self.names.len() < MOST_PROCESSES
        {
            self.names.insert(tid, name);
        }
        if pid != ppid
            && let Some(parent) = self.of.get(&ppid).cloned()
            && self.of.len() < MOST_PROCESSES
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

    /// Something was mapped.
    pub(super) fn map(
        &mut self,
        pid: i32,
        (start, length, offset): (u64, u64, u64),
        path: &str,
        build_id: Option<String>,
        mode: CpuMode,
    ) {
        let end = start.saturating_add(length);
        let build_id: Arc<str> = match build_id {
            Some(id) => id.into(),
            None => DsoKey::detect(path.as_bytes(), mode)
                .and_then(|key| self.build_ids.get(&key).cloned())
                .unwrap_or_default(),
        };
        let mapped = Mapped {
            end,
            offset,
            path: path.into(),
            build_id,
        };
        if pid == -1 || mode == CpuMode::Kernel || mode == CpuMode::GuestKernel {
            if path.starts_with("[kernel.kallsyms]") {
                // perf writes the address of the symbol named behind the bracket here.
                self.kernel_text = Some(offset).filter(|_| path.ends_with("_text"));
            } else if self.modules.len() < MOST_MAPPINGS {
                self.modules.insert(start, mapped);
            }
            return;
        }
        let Ok(pid) = u32::try_from(pid) else { return };
        if !self.of.contains_key(&pid) && self.of.len() >= MOST_PROCESSES {
            return;
        }
        self.generations += 1;
        let process = self.of.entry(pid).or_default();
        process.generation = self.generations;
        let mappings = Arc::make_mut(&mut process.mappings);
        // What it covers is gone; parts of it that stick out stay.
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
        if mappings.len() < MOST_MAPPINGS {
            mappings.insert(start, mapped);
        }
    }

    /// A process's executable mappings by their start.
    pub(super) fn mappings(&self, pid: u32) -> &BTreeMap<u64, Mapped> {
        self.of.get(&pid).map_or(&self.none, |p| &*p.mappings)
    }

    /// A number that is another one whenever the mappings are.
    pub(super) fn generation(&self, pid: u32) -> u64 {
        self.of.get(&pid).map_or(0, |p| p.generation)
    }

    /// The frame of an address.
    pub(super) fn frame(
        &self,
        pid: u32,
        address: u64,
        kernel: bool,
        to: &mut Import,
    ) -> Result<FrameId, ReadError> {
        let within = |list: &BTreeMap<u64, Mapped>| {
            let (start, m) = list.range(..=address).next_back()?;
            (address < m.end).then(|| (*start, m.clone()))
        };
        if kernel {
            let path = match within(&self.modules) {
                Some((_, m)) if !m.path.is_empty() => module_name(&m.path),
                _ => "[kernel]".to_string(),
            };
            let module = to.module(ModuleKind::Kernel, &path, "", 0)?;
            return to.frame(Frame {
                kind: FrameKind::Kernel,
                module: Some(module),
                address,
                lines: Vec::new(),
            });
        }
        let Some((start, m)) = within(self.mappings(pid)) else {
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
