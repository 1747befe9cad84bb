//! Facts of processes for the recording: descriptions, programs, losses.

use std::sync::Arc;

use wallscope_model::Process;
use wallscope_observe::ProgramName;
use wallscope_unwind::native::TableSink;

use super::{super::address_space::AddressSpace, Processes};

impl<S: TableSink> Processes<S> {
    /// The address space of process `pid`.
    pub fn space(&self, pid: u32) -> Option<&AddressSpace> {
        self.spaces.get(&pid)
    }

    /// Takes the facts of each process that changed since the last call.
    pub fn take_facts(&mut self) -> Vec<Process> {
        let pids = std::mem::take(&mut self.untold).into_iter();
        pids.filter_map(|pid| Some(self.spaces.get(&pid)?.facts.clone()))
            .collect()
    }

    /// Takes the program names of each process that called exec since the last call: the previous program, and the
    /// present one.
    pub fn take_programs(&mut self) -> Vec<ProgramName> {
        let mut all = Vec::new();
        for pid in std::mem::take(&mut self.untold_programs) {
            let left = self.former.get(&pid).map_or(0, Vec::len) as u32;
            all.extend((left.saturating_sub(1)..=left).map(|former| ProgramName {
                pid,
                former,
                name: self.program(pid, former),
            }));
        }
        all
    }

    /// The latest facts of each process, by process id.
    pub fn facts(&self) -> Vec<Process> {
        let mut all: Vec<Process> = self.spaces.values().map(|s| s.facts.clone()).collect();
        all.sort_by_key(|p| p.pid);
        all
    }

    /// The program that process `pid` ran after having left `former` others; `None` where it has only
    /// ever run one.
    pub fn program(&self, pid: u32, former: u32) -> Option<Arc<str>> {
        let names = self.former.get(&pid)?;
        names.iter().flatten().next()?;
        match names.get(former as usize) {
            Some(name) => name.clone(),
            None => self.spaces.get(&pid).map(|s| s.facts.name.clone()),
        }
    }

    /// Note on the processes that ran several programs.
    pub fn several_programs(&self) -> Option<String> {
        const EXAMPLES: usize = 4;
        let several = self.former.iter().filter_map(|(pid, names)| {
            let names: Vec<&str> = names.iter().flatten().map(|n| &**n).collect();
            (!names.is_empty()).then_some((pid, names))
        });
        let mut several: Vec<(&u32, Vec<&str>)> = several.collect();
        several.sort_unstable();
        let example = |(pid, names): &(&u32, Vec<&str>)| {
            let last = self.spaces.get(pid).map_or("", |s| &*s.facts.name);
            format!("{last} ({pid}; before: {})", names.join(", "))
        };
        let examples: Vec<String> = several.iter().take(EXAMPLES).map(example).collect();
        let more = if several.len() > EXAMPLES {
            ", …"
        } else {
            ""
        };
        (!several.is_empty()).then(|| {
            format!(
                "processes that became other programs (exec), each under the name of the last: {}, as \
                 {}{more}",
                several.len(),
                examples.join(", ")
            )
        })
    }

    /// Notes for the user on code without unwind information.
    pub fn undescribed(&self) -> Vec<String> {
        self.files.notes()
    }

    /// Cumulative losses of the collector in user space: cause and count.
    pub fn losses(&self) -> Vec<(String, u64)> {
        let mut losses = self.files.losses();
        losses.extend(self.managed.losses());
        losses.extend(self.jit.losses());
        losses.push((
            "mapping record lost (processes read again)".into(),
            self.lost_mappings,
        ));
        losses
    }
}
