//! Names of threads: the kernel's, and those of runtimes.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use wallscope_observe::ThreadName;

use super::{Accounts, thread::ThreadAccount};

impl Accounts {
    /// The runtime of a thread's process has a name for it.
    pub fn named(&mut self, named: &ThreadName) {
        let is = |t: &&mut ThreadAccount| (t.pid, t.tid) == (named.pid, named.tid);
        // The last one: ids are used again.
        match self.threads.iter_mut().rev().find(is) {
            Some(thread) => thread.runtime_name = Some(named.name.clone()),
            // Its birth is still on the way.
            None => _ = (self.unmet).insert((named.pid, named.tid), named.name.clone()),
        }
    }

    /// Names that threads have from their runtimes, by index. A name that the program gave a thread in the kernel, and
    /// not only by starting it, stands.
    pub(super) fn names_of_runtimes(&self) -> impl Iterator<Item = (usize, Arc<str>)> {
        let threads = &self.threads;
        let mut programs: FxHashMap<u32, [&Arc<str>; 2]> = FxHashMap::default();
        for leader in threads.iter().filter(|t| t.tid == t.pid) {
            programs.insert(leader.pid, [&leader.name, &leader.first_name]);
        }
        threads.iter().enumerate().filter_map(move |(index, t)| {
            let name = t.runtime_name.as_ref()?;
            let program = programs.get(&t.pid);
            let inherited = program.is_none_or(|names| names.contains(&&t.name));
            inherited.then(|| (index, name.clone()))
        })
    }
}

impl ThreadAccount {
    /// The kernel has this name for it.
    pub(super) fn is_called(&mut self, name: &str) {
        if *self.name != *name {
            self.name = name.into();
        }
        if self.first_name.is_empty() {
            self.first_name = self.name.clone();
        }
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;
    use crate::event::{ThreadEvent, how};

    fn event(id: u64, tid: u32, name: &str) -> ThreadEvent {
        let mut e = ThreadEvent::new_zeroed();
        (e.id, e.pid, e.tid, e.time, e.how) = (id, 1, tid, 2000, how::BORN);
        e.comm[..name.len()].copy_from_slice(name.as_bytes());
        e
    }

    #[test]
    fn a_name_of_the_runtime_stands_where_the_kernel_knows_the_program_only() {
        let mut a = Accounts::new(1000, 100);
        a.thread(&event(1, 1, "python3"));
        a.thread(&event(2, 2, "python3"));
        a.thread(&event(3, 3, "set-by-prctl"));
        a.thread(&event(4, 4, "python3"));
        a.named(&ThreadName {
            pid: 1,
            tid: 5,
            name: "early".into(),
        });
        a.thread(&event(5, 5, "python3"));
        for (tid, name) in [(1, "MainThread"), (2, "loader"), (3, "hidden")] {
            let name = name.into();
            a.named(&ThreadName { pid: 1, tid, name });
        }
        // The program renames itself: its threads keep the name that they began with.
        a.thread(&event(1, 1, "server: idle"));
        let names: Vec<_> = a
            .names_of_runtimes()
            .map(|(i, n)| (i, n.to_string()))
            .collect();
        let all = [(0, "MainThread"), (1, "loader"), (4, "early")];
        assert_eq!(names, all.map(|(i, n)| (i, n.to_owned())));
        let (contexts, ..) = a.finish(3000);
        let names: Vec<&str> = contexts.iter().map(|c| &*c.name).collect();
        assert_eq!(
            names,
            ["MainThread", "loader", "set-by-prctl", "python3", "early"]
        );
    }
}
