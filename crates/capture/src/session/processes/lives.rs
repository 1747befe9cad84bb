//! Births, programs and ends of processes.

use std::{sync::Arc, time::Duration};

use wallscope_model::Process;
use wallscope_procfs::target_file::TargetRoot;
use wallscope_unwind::native::TableSink;

use super::{super::address_space::facts_of_program, Processes};
use crate::event::{ThreadEvent, how};

impl<S: TableSink> Processes<S> {
    /// A thread was born, found, or runs a new program.
    pub fn news(&mut self, e: &ThreadEvent) {
        if e.how == how::BORN {
            self.managed.thread_names.born(e.pid);
        }
        match e.how {
            how::EXEC => {
                // The mappings themselves follow the kernel's mapping records.
                let space = self.spaces.entry(e.pid).or_default();
                let left = self.held.take_if(|pid| *pid == e.pid).is_none();
                let left = left.then(|| space.facts.name.clone());
                self.jit.left(e.pid, e.time);
                self.former.entry(e.pid).or_default().push(left);
                self.untold.insert(e.pid);
                self.untold_programs.insert(e.pid);
                space.facts = Process {
                    pid: e.pid,
                    parent: e.parent,
                    name: e.name().into(),
                    // Its first mapping has told it.
                    exe: std::mem::take(&mut space.facts.exe),
                    ..Process::default()
                };
                // Another program may have other rights.
                space.root = None;
                self.changed.insert(e.pid);
                self.programs.unread.insert(e.pid);
                self.pace.started(e.time);
                if self.programs.ration.take(e.time) {
                    self.programs.due.push(e.pid);
                }
            }
            how::BORN if self.spaces.get(&e.pid).is_none_or(|s| s.threads == 0) => {
                let mut space = self.spaces.get(&e.parent).cloned().unwrap_or_default();
                space.facts = Process {
                    pid: e.pid,
                    parent: e.parent,
                    name: e.name().into(),
                    ..space.facts
                };
                (space.threads, space.ended) = (1, false);
                self.untold.insert(e.pid);
                self.jit.born(e.pid, e.parent, e.time);
                self.spaces.insert(e.pid, space);
                self.changed.insert(e.pid);
            }
            _ => {
                if !self.spaces.contains_key(&e.pid) {
                    self.found(e.pid);
                }
                if let Some(space) = self.spaces.get_mut(&e.pid) {
                    space.threads += 1;
                }
            }
        }
    }

    /// Looks up the program of a process, unless that was done.
    pub(super) fn read_program(&mut self, pid: u32) {
        let (true, Some(space)) = (self.programs.unread.remove(&pid), self.spaces.get_mut(&pid))
        else {
            return;
        };
        let root = TargetRoot::of_process(pid).ok();
        let (name, parent) = (space.facts.name.clone(), space.facts.parent);
        space.facts = facts_of_program(pid, &name, parent, root.as_ref());
        space.root = root.map(Arc::new);
        self.untold.insert(pid);
    }

    /// Looks up the programs that are due, of processes that still run.
    pub(super) fn read_due(&mut self) {
        for pid in std::mem::take(&mut self.programs.due) {
            if self.spaces.get(&pid).is_some_and(|space| !space.ended) {
                self.read_program(pid);
            }
        }
    }

    /// Looks up the programs that started faster than the ration allows and still run.
    pub fn read_late(&mut self) {
        for pid in self.programs.unread.clone() {
            self.read_program(pid);
        }
    }

    /// The pause that is due before the next turn, if there is one: programs start too fast.
    pub fn pause(&mut self) -> Option<Duration> {
        self.pace.pause()
    }

    /// `threads` threads of a process have ended, and are gone soon. Without a living thread the process needs no
    /// tables any more.
    pub fn ending(&mut self, pid: u32, threads: u32) {
        if let Some(space) = self.spaces.get_mut(&pid) {
            space.ended |= space.threads <= threads;
        }
    }

    /// Note on the facts that are missing for short processes.
    pub fn never_read(&self) -> Option<String> {
        (self.programs.never_read > 0).then(|| {
            format!(
                "command lines and users of {} processes: programs started faster than they were looked up, and \
                 these ended within a time slice",
                self.programs.never_read
            )
        })
    }

    /// A thread ended; with the last one the process's tables need not be kept at hand.
    pub fn thread_gone(&mut self, pid: u32) {
        if let Some(space) = self.spaces.get_mut(&pid) {
            space.threads = space.threads.saturating_sub(1);
            if space.threads == 0 {
                space.clear();
                space.ended = true;
                self.programs.never_read += u64::from(self.programs.unread.remove(&pid));
                self.changed.remove(&pid);
                self.files.forget(pid);
                self.managed.forget(pid);
                self.jit.gone(pid);
            }
        }
    }

    /// Forgets ended processes: nothing refers to them any more.
    pub fn forget(&mut self, pids: &[u32]) {
        for pid in pids {
            self.former.remove(pid);
            self.untold.remove(pid);
            self.untold_programs.remove(pid);
            self.changed.remove(pid);
            if self.spaces.remove(pid).is_some_and(|space| !space.ended) {
                self.files.forget(*pid);
                self.managed.forget(*pid);
                self.jit.gone(*pid);
            }
        }
    }
}
