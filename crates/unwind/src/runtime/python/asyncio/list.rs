//! Finds an interpreter's tasks, and those unchanged since the last snapshot.

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Holder, SnapshotRun, TrackedTask};

/// Maximum tasks, and threads of one interpreter.
const MAX_TASKS: usize = 1 << 16;
const MAX_THREADS: usize = 4096;
/// Offset of the referent in a weak reference.
const REFERENT: u64 = 16;
/// Words at most this far apart are read in one piece, bytes.
const MAX_JOINED_DISTANCE: u64 = 512;
/// Maximum attempts to read a task that changes meanwhile.
const MAX_ATTEMPTS: usize = 3;

impl SnapshotRun<'_> {
    /// Returns each interpreter's state, and its `sys.modules`.
    pub(super) fn interpreters(&mut self) -> Vec<(u64, u64)> {
        self.objects.interpreters(self.facts, self.bias)
    }

    /// Returns the containers of this interpreter's tasks.
    pub(super) fn holders(&mut self, (interpreter, modules): (u64, u64)) -> Vec<Holder> {
        let Some(dict) = self.objects.module_dict(modules, "asyncio.tasks") else {
            return Vec::new();
        };
        let offsets = self.objects.offsets;
        let holder = |name: &&str| {
            let object = self.objects.item(dict, name)?;
            // An object that is no set is a set of weak references, written in Python.
            let class = self.objects.type_of(object)?;
            let weak = self.objects.type_name(class)? != "set";
            let at = match weak {
                true => self.objects.attribute(object, "data")?,
                false => object,
            };
            Some(Holder::Set { at, weak })
        };
        let mut found: Vec<_> = offsets.sets.iter().filter_map(holder).collect();
        if !found.is_empty() && offsets.lists.is_some() {
            found.push(Holder::Lists { interpreter });
        }
        found
    }

    /// Returns addresses of candidate tasks; `None` if a set no longer is one.
    fn members(&mut self, holders: &[Holder]) -> Option<FxHashSet<u64>> {
        let mut members = FxHashSet::default();
        for holder in holders {
            match *holder {
                Holder::Set { at, weak } => {
                    let class = self.objects.type_of(at)?;
                    if &*self.type_name(class)? != "set" {
                        return None;
                    }
                    // While a set grows, its table may move.
                    let all = (0..MAX_ATTEMPTS).find_map(|again| {
                        if again > 0 {
                            self.objects.pages.clear();
                        }
                        self.objects.set(at)
                    })?;
                    match weak {
                        true => members.extend(self.referents(&all)),
                        false => members.extend(all),
                    }
                }
                Holder::Lists { interpreter } => self.listed(interpreter, &mut members),
            }
        }
        Some(members)
    }

    /// Reads the referents of weak references.
    fn referents(&mut self, all: &[u64]) -> Vec<u64> {
        let wanted: Vec<_> = all
            .iter()
            .map(|at| (at.wrapping_add(REFERENT), 8))
            .collect();
        let mut words = vec![0u8; 8 * wanted.len()];
        let readable = self.objects.memory.read_all(&wanted, &mut words);
        let words = words.chunks_exact(8).zip(readable);
        let read = words.filter(|(_, readable)| *readable);
        read.map(|(word, _)| u64::from_le_bytes(word.try_into().expect("eight bytes")))
            .filter(|at| *at != 0 && at % 8 == 0 && at >> 47 == 0)
            .collect()
    }

    /// Collects the C tasks in the lists of an interpreter and its threads.
    fn listed(&mut self, interpreter: u64, to: &mut FxHashSet<u64>) {
        let Some(lists) = self.objects.offsets.lists else {
            return;
        };
        let walk = &self.facts.layout.walk;
        let mut heads = vec![interpreter + lists.interpreter];
        let threads = interpreter + u64::from(walk.interp_threads);
        let mut thread = self.objects.pointer(threads).filter(|at| *at != 0);
        while let Some(at) = thread.filter(|_| heads.len() < MAX_THREADS) {
            heads.push(at + lists.thread);
            let next = self.objects.pointer(at + u64::from(walk.ts_next));
            thread = next.filter(|at| *at != 0);
        }
        for head in heads {
            let mut at = self.objects.words(head);
            while let Some([next, _]) = at.filter(|[next, _]| *next != head) {
                let Some(task) = next
                    .checked_sub(lists.node)
                    .filter(|_| to.len() < MAX_TASKS)
                else {
                    break;
                };
                // A cycle without its head: the list changed while it was read.
                if !to.insert(task) {
                    break;
                }
                at = self.objects.words(next);
            }
        }
    }

    /// Returns all tasks by address; `last`: those of the last snapshot. `None` if a container no
    /// longer exists.
    pub(super) fn tasks(
        &mut self,
        holders: &[Holder],
        mut last: FxHashMap<u64, TrackedTask>,
    ) -> Option<FxHashMap<u64, TrackedTask>> {
        let members = self.members(holders)?;
        last.retain(|at, tracked| tracked.whole && members.contains(at));
        let mut tasks = self.held(last.into_iter().collect()).0;
        let known: FxHashSet<u64> = tasks.iter().map(|(at, _)| *at).collect();
        let mut left: Vec<u64> = members
            .into_iter()
            .filter(|at| !known.contains(at))
            .collect();
        left.truncate(MAX_TASKS);
        for again in 0..MAX_ATTEMPTS {
            if again > 0 {
                self.objects.pages.clear();
                self.known.checks.clear();
            }
            let mut read = Vec::with_capacity(left.len());
            let mut moved = Vec::new();
            for at in left {
                match self.task(at) {
                    Some(Some(tracked)) => read.push((at, tracked)),
                    Some(None) => {}
                    None => moved.push(at),
                }
            }
            let (held, others) = self.held(read);
            tasks.extend(held);
            moved.extend(others);
            left = moved;
            if left.is_empty() {
                break;
            }
        }
        self.known.broken += left.len() as u64;
        Some(tasks.into_iter().collect())
    }

    /// Splits the tasks: those with unchanged `seen` words, and the addresses of the others.
    fn held(&mut self, read: Vec<(u64, TrackedTask)>) -> (Vec<(u64, TrackedTask)>, Vec<u64>) {
        let tracked = read.iter().flat_map(|(_, tracked)| &tracked.seen);
        let mut wanted: Vec<u64> = tracked.map(|(at, _)| *at).collect();
        wanted.sort_unstable();
        wanted.dedup();
        // A separate read costs the kernel more than a few extra bytes: join near words.
        let near = |a: &u64, b: &u64| a >> 12 == b >> 12 && b - a <= MAX_JOINED_DISTANCE;
        let mut pieces = Vec::new();
        for run in wanted.chunk_by(near) {
            let (first, last) = (run[0], run[run.len() - 1]);
            pieces.push((first, (last - first) as usize + 8));
        }
        let mut now = vec![0u8; pieces.iter().map(|(_, bytes)| bytes).sum()];
        let readable = self.objects.memory.read_all(&pieces, &mut now);
        let mut words = FxHashMap::default();
        let mut rest = &now[..];
        for (run, ((first, bytes), readable)) in
            wanted.chunk_by(near).zip(pieces.iter().zip(readable))
        {
            let (piece, more) = rest.split_at(*bytes);
            rest = more;
            for at in run.iter().filter(|_| readable) {
                let from = (at - first) as usize;
                let word = piece[from..from + 8].try_into().expect("eight bytes");
                words.insert(*at, u64::from_le_bytes(word));
            }
        }
        let (mut held, mut others) = (Vec::with_capacity(read.len()), Vec::new());
        for (at, tracked) in read {
            match tracked
                .seen
                .iter()
                .all(|(at, was)| words.get(at) == Some(was))
            {
                true => held.push((at, tracked)),
                false => others.push(at),
            }
        }
        (held, others)
    }
}
