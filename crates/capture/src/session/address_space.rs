//! A process and its mappings.

use std::{collections::BTreeMap, fs, sync::Arc};

use wallscope_model::{FileUser, Process};
use wallscope_procfs::process;
use wallscope_procfs::target_file::TargetRoot;
use wallscope_unwind::native::TableSink;

use super::{
    files::Files,
    mappings::{Mapped, MappingSnapshot},
    moved_code::MovedCode,
};
use crate::backend::ebpf::sideband::Mapping;

/// A process and its executable mappings by their start.
#[derive(Clone, Default)]
pub struct AddressSpace {
    /// Facts of the process for the recording.
    pub facts: Process,
    /// Its mappings.
    pub mappings: BTreeMap<u64, Mapped>,
    /// Where it sees its files.
    pub root: Option<Arc<TargetRoot>>,
    /// Threads alive.
    pub threads: u32,
    /// The last one has ended.
    pub ended: bool,
    /// Snapshot of the mappings, made when it is first asked for; void when they change.
    pub(super) snapshot: Option<MappingSnapshot>,
    /// Files' code in anonymous memory, at any time.
    pub moved: Vec<MovedCode>,
    /// Addresses at which code without a file was seen at any time.
    pub jit: Vec<(u64, u64)>,
}

impl AddressSpace {
    /// Nothing is mapped any more.
    pub fn clear(&mut self) {
        self.snapshot = None;
        self.mappings.clear();
    }

    /// Something is mapped.
    pub fn map<S: TableSink>(&mut self, m: &Mapping, files: &mut Files<S>) {
        // The page of old system calls is the kernel's, and entered by traps only. As code without a file it would
        // make every program look like one that makes code, with a perf map to search for. The page of uprobes is the
        // kernel's, too: it stays in a process that was probed before.
        if m.start >= m.end || matches!(&*m.path, "[vsyscall]" | "[uprobes]") {
            return;
        }
        self.unmap(m.start, m.end);
        let file = files.open(m, self.root.as_ref());
        if file.is_none() {
            match self.jit.last_mut() {
                Some((_, end)) if *end == m.start => *end = m.end,
                _ => self.jit.push((m.start, m.end)),
            }
        }
        self.mappings.insert(
            m.start,
            Mapped {
                end: m.end,
                offset: m.offset,
                file,
            },
        );
    }

    /// The code of a file that is mapped at `start` was moved there by the process.
    pub fn is_moved(&mut self, start: u64) {
        if let Some(m) = self.mappings.get(&start)
            && let Some(file) = m.file
        {
            let moved = MovedCode {
                range: start..m.end,
                file,
                offset: m.offset,
            };
            if !self.moved.contains(&moved) {
                self.moved.push(moved);
            }
        }
    }

    /// Finds the file of the anonymous code mapped at `start`, among those with moved code.
    pub fn name_copy<S: TableSink>(&mut self, pid: u32, start: u64, files: &mut Files<S>) {
        let Some(range) = self.mappings.get(&start).map(|m| start..m.end) else {
            return;
        };
        let mut tried = Vec::new();
        for at in 0..self.moved.len() {
            let file = self.moved[at].file;
            if tried.contains(&file) {
                continue;
            }
            tried.push(file);
            if let Some(offset) = files.copied_from(file, pid, range.clone())
                && let Some(m) = self.mappings.get_mut(&start)
            {
                (m.file, m.offset) = (Some(file), offset);
                return self.is_moved(start);
            }
        }
    }

    /// The file, and the offset in it, of the code at `address` if that was moved there.
    pub fn moved_from(&self, address: u64) -> Option<(u16, u64)> {
        let part = self.moved.iter().find(|m| m.range.contains(&address))?;
        Some((part.file, part.offset + (address - part.range.start)))
    }

    /// Whether all of `start..end` was mapped from a file.
    pub fn is_code_of_a_file(&self, start: u64, end: u64) -> bool {
        let before = self.mappings.range(..=start).next_back();
        before.is_some_and(|(_, m)| m.file.is_some() && m.end >= end)
    }

    /// Snapshot of the mappings. An unchanged process has one.
    pub fn snapshot(&mut self) -> MappingSnapshot {
        let mappings = &self.mappings;
        let taken = self
            .snapshot
            .get_or_insert_with(|| Arc::new(mappings.clone()));
        Arc::clone(taken)
    }

    /// Takes `start..end` out of the mappings there.
    fn unmap(&mut self, start: u64, end: u64) {
        self.snapshot = None;
        let from = self
            .mappings
            .range(..start)
            .next_back()
            .map_or(start, |(s, _)| *s);
        let touched: Vec<(u64, Mapped)> = self
            .mappings
            .range(from..end)
            .filter(|(_, m)| m.end > start)
            .map(|(s, m)| (*s, m.clone()))
            .collect();
        for (s, m) in touched {
            self.mappings.remove(&s);
            if s < start {
                self.mappings.insert(
                    s,
                    Mapped {
                        end: start,
                        ..m.clone()
                    },
                );
            }
            if m.end > end {
                self.mappings.insert(
                    end,
                    Mapped {
                        offset: m.offset + (end - s),
                        ..m
                    },
                );
            }
        }
    }
}

/// Facts that `/proc` has of process `pid`, which has just become the program `name`. A `root` that is known saves
/// reading its user.
pub fn facts_of_program(pid: u32, name: &str, parent: u32, root: Option<&TargetRoot>) -> Process {
    let user = root.map(|root| {
        let (uid, gid) = root.user();
        FileUser { uid, gid }
    });
    Process {
        pid,
        parent,
        name: name.into(),
        exe: exe(pid),
        cmdline: process::cmdline(pid).unwrap_or_default().join(" ").into(),
        unattributed_on_cpu_ns: 0,
        folded_threads: 0,
        user: user.or_else(|| user_of(pid)),
    }
}

fn exe(pid: u32) -> Arc<str> {
    let path = fs::read_link(format!("/proc/{pid}/exe"));
    path.map_or_else(|_| "".into(), |p| p.to_string_lossy().into())
}

fn user_of(pid: u32) -> Option<FileUser> {
    let status = process::status(pid).ok()?;
    let (uid, gid) = status.file_ids.user.zip(status.file_ids.group)?;
    Some(FileUser { uid, gid })
}

/// Facts that `/proc` has of a process; `comm`: its name, where that is known.
pub fn facts(pid: u32, comm: &str) -> Process {
    let name = if comm.is_empty() {
        process::comm(pid, pid).unwrap_or_default()
    } else {
        comm.to_owned()
    };
    Process {
        pid,
        parent: process::stat(pid).map_or(0, |s| s.parent),
        name: name.into(),
        exe: exe(pid),
        cmdline: process::cmdline(pid).unwrap_or_default().join(" ").into(),
        unattributed_on_cpu_ns: 0,
        folded_threads: 0,
        user: user_of(pid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_in_the_middle_splits_what_was_there() {
        let mut s = AddressSpace::default();
        s.mappings.insert(
            0x1000,
            Mapped {
                end: 0x5000,
                offset: 0x100,
                file: Some(1),
            },
        );
        s.unmap(0x2000, 0x3000);
        let all: Vec<_> = s
            .mappings
            .iter()
            .map(|(a, m)| (*a, m.end, m.offset))
            .collect();
        assert_eq!(all, [(0x1000, 0x2000, 0x100), (0x3000, 0x5000, 0x2100)]);
        s.unmap(0, 0x10000);
        assert!(s.mappings.is_empty());
    }
}
