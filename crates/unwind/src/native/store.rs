//! The store of unwind tables: which tables exist, and which process uses which.
//!
//! A file gets an id once, by inode and change time, or by build id where copies of one build
//! exist. An id is never reused, so a frame keeps its meaning. A table is built when the first
//! process maps its file.
//!
//! A process's new mappings go to unused entries with a new generation, and then the process
//! switches to them. Kernel programs therefore see the old list or the new one. Entries are reused
//! only when no process points at them, not even one that the kernel copied at a fork.
//!
//! Memory is bounded. Above the limit, tables that no process uses are dropped. If that is not
//! enough, new tables are refused. Both are counted, and stacks through such code end as
//! `TableNotLoaded`.
//!
//! The store does not discover processes or mappings, and opens no file.

use crate::native::abi::{MAP_FP, MAP_NOTHING, MAP_PENDING, Mapping, Proc};
use crate::native::image::{Identity, ImageError};
use crate::native::mapping::{FileKey, MappingSpec, Source};
use crate::native::rules::RuleSet;
use crate::native::sink::{SinkError, TableSink};
use crate::native::slot_allocator::SlotAllocator;
use crate::native::table::{FallbackMethod, Parsed, Table, UnwindMethod};
use crate::runtime::hotspot::abi as hotspot;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::atomic::{AtomicU32, Ordering};

/// Contents of the store, and counts of its refusals since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreStats {
    /// Files with an id.
    pub files: u64,
    /// Tables in the sink now.
    pub tables: u64,
    /// Rows of those tables.
    pub rows: u64,
    /// Bytes of those tables.
    pub table_bytes: u64,
    /// Rules of all files.
    pub rules: u64,
    /// Processes with mappings.
    pub processes: u64,
    /// Mapping entries in use.
    pub mappings: u64,
    /// Tables dropped to keep the limit.
    pub evicted: u64,
    /// Tables not loaded because of the limit, or refused by the kernel.
    pub tables_refused: u64,
    /// Files without an id because all ids were used.
    pub files_refused: u64,
    /// Rows without a rule because the rule set was full.
    pub rules_refused: u64,
    /// Processes without mappings because the entries were used up.
    pub processes_refused: u64,
}

#[derive(Debug)]
enum State {
    Loaded {
        bytes: u64,
        rows: u64,
    },
    FramePointers,
    /// No unwind information, and the reason if there is one.
    Nothing(Option<String>),
    /// Known, but its table is not in the sink.
    Absent,
}

#[derive(Debug)]
struct FileEntry {
    key: FileKey,
    state: State,
    fallback: Option<FallbackMethod>,
    used: u64,
}

#[derive(Debug)]
struct Region {
    first: u32,
    count: u32,
    generation: u32,
    files: Vec<u16>,
}

/// A store of unwind tables in a sink; see the top of this file.
#[derive(Debug)]
pub struct TableStore<S> {
    sink: S,
    rules: RuleSet,
    rules_put: usize,
    /// By id − 1.
    files: Vec<FileEntry>,
    keys: FxHashMap<FileKey, u16>,
    identities: FxHashMap<Identity, u16>,
    /// Built, but not in the sink yet.
    built: Vec<(u16, Table)>,
    processes: FxHashMap<u32, Region>,
    retired: Vec<Region>,
    slots: SlotAllocator,
    generation: u32,
    limit: u64,
    stats: StoreStats,
}

/// Generation counter of all stores of this program, so that an unwinder's cache of one store is
/// invalid in another.
static GENERATION: AtomicU32 = AtomicU32::new(1);

/// Retired lists that are kept before unused ones are searched for.
const MAX_RETIRED_LISTS: usize = 64;
/// Maximum mappings of one process: the kernel programs search no further.
const MAX_MAPPINGS: usize = 1 << 16;

impl<S: TableSink> TableStore<S> {
    /// Creates an empty store that keeps at most `limit` bytes of tables in `sink`.
    ///
    /// # Errors
    /// If the sink refuses the fixed rules.
    pub fn new(mut sink: S, limit: u64) -> Result<TableStore<S>, SinkError> {
        let capacity = sink.capacity();
        let rules = RuleSet::new(capacity.rules);
        sink.put_rules(0, rules.rules())?;
        Ok(TableStore {
            rules_put: rules.rules().len(),
            sink,
            rules,
            files: Vec::new(),
            keys: FxHashMap::default(),
            identities: FxHashMap::default(),
            built: Vec::new(),
            processes: FxHashMap::default(),
            retired: Vec::new(),
            slots: SlotAllocator::new(capacity.mappings as u32),
            generation: 0,
            limit,
            stats: StoreStats::default(),
        })
    }

    /// The destination of the tables.
    pub fn sink(&self) -> &S {
        &self.sink
    }

    /// The key under which the file with this id was first seen.
    pub fn file_key(&self, id: u16) -> Option<&FileKey> {
        self.files
            .get((id as usize).checked_sub(1)?)
            .map(|f| &f.key)
    }

    /// The id of a file, if it has one.
    pub fn file_id(&self, key: &FileKey) -> Option<u16> {
        self.keys.get(key).copied()
    }

    /// Whether the bytes of a file are needed to unwind its code: it is unknown, or has lost its table.
    pub fn lacks(&self, key: &FileKey) -> bool {
        let Some(id) = self.file_id(key) else {
            return true;
        };
        let is_absent = matches!(self.files[id as usize - 1].state, State::Absent);
        is_absent && !self.built.iter().any(|(built, _)| *built == id)
    }

    /// Reason why a file's code cannot be unwound, if it is more than missing unwind information.
    pub fn file_problem(&self, id: u16) -> Option<&str> {
        match &self.files.get((id as usize).checked_sub(1)?)?.state {
            State::Nothing(reason) => reason.as_deref(),
            _ => None,
        }
    }

    /// Method for a file's code without unwind information, if there is much such code.
    pub fn file_fallback(&self, id: u16) -> Option<FallbackMethod> {
        self.files.get((id as usize).checked_sub(1)?)?.fallback
    }

    /// Contents and refusals so far.
    pub fn stats(&self) -> StoreStats {
        let mut s = self.stats;
        s.files = self.files.len() as u64;
        for f in &self.files {
            if let State::Loaded { bytes, rows } = f.state {
                s.tables += 1;
                s.rows += rows;
                s.table_bytes += bytes;
            }
        }
        s.rules = self.rules.rules().len() as u64;
        s.rules_refused = self.rules.overflows();
        s.processes = self.processes.len() as u64;
        s.mappings = self
            .processes
            .values()
            .chain(&self.retired)
            .map(|r| r.count as u64)
            .sum();
        s
    }

    /// Builds the tables that `sources` need and that do not exist yet. A large program takes a
    /// second, during which `meanwhile` is called repeatedly. The next call that sets mappings
    /// moves the tables into the sink.
    pub fn build<'s>(
        &mut self,
        sources: impl Iterator<Item = &'s Source<'s>>,
        meanwhile: &mut dyn FnMut(),
    ) {
        for source in sources {
            self.resolve(source, Some(&mut *meanwhile));
        }
    }

    /// Sets the mappings of one process; see [`TableStore::set_processes`].
    ///
    /// # Errors
    /// If the kernel refuses the process.
    pub fn set_process(
        &mut self,
        tgid: u32,
        mappings: &[MappingSpec<'_>],
    ) -> Result<Vec<u16>, SinkError> {
        let mut ids = self.set_processes(&[(tgid, mappings)])?;
        Ok(ids.pop().unwrap_or_default())
    }

    /// Sets the complete lists of executable mappings of several processes, and builds missing
    /// tables.
    ///
    /// One call for many processes is cheaper: the kernel waits for its readers once a call.
    /// Returns the file id of each mapping in the given order; 0 is none.
    ///
    /// # Errors
    /// If the kernel refuses a process; processes before it are set.
    pub fn set_processes(
        &mut self,
        processes: &[(u32, &[MappingSpec<'_>])],
    ) -> Result<Vec<Vec<u16>>, SinkError> {
        let mut ids = Vec::with_capacity(processes.len());
        for (_, mappings) in processes {
            let of_process: Vec<u16> = mappings
                .iter()
                .map(|m| self.resolve(&m.source, None))
                .collect();
            ids.push(of_process);
        }
        self.upload(&ids)?;
        for ((tgid, mappings), ids) in processes.iter().zip(&ids) {
            self.switch(*tgid, mappings, ids)?;
        }
        Ok(ids)
    }

    /// Stores the HotSpot VM of a process.
    ///
    /// # Errors
    /// If the sink refuses.
    pub fn set_hotspot(&mut self, tgid: u32, vm: &hotspot::Proc) -> Result<(), SinkError> {
        self.sink.put_hotspot(tgid, vm)
    }

    /// Removes a process that exited or executed another program.
    pub fn forget_process(&mut self, tgid: u32) {
        self.sink.remove_proc(tgid);
        if let Some(region) = self.processes.remove(&tgid) {
            self.retired.push(region);
            if self.retired.len() > MAX_RETIRED_LISTS {
                // On failure they remain until the next call.
                let _ = self.collect();
            }
        }
    }

    /// Processes with mappings that were marked pending (`uw_is_free` of `bpf/unwind.h`), until
    /// they are set again. Includes processes that share these mappings since a fork.
    ///
    /// # Errors
    /// If the kernel's map cannot be read.
    pub fn outdated(&self) -> Result<Vec<u32>, SinkError> {
        let procs = self.sink.procs()?;
        let voided = procs.iter().filter(|(_, p)| p.voided > 0);
        let voided: FxHashSet<u32> = voided.map(|(_, p)| p.generation).collect();
        let theirs = procs.iter().filter(|(_, p)| voided.contains(&p.generation));
        Ok(theirs.map(|(pid, _)| *pid).collect())
    }

    /// Frees mapping entries that no process points at.
    ///
    /// # Errors
    /// If the kernel's map cannot be read.
    pub fn collect(&mut self) -> Result<(), SinkError> {
        let live: FxHashSet<u32> = self
            .sink
            .procs()?
            .iter()
            .map(|(_, p)| p.generation)
            .collect();
        let (kept, done): (Vec<_>, Vec<_>) = self
            .retired
            .drain(..)
            .partition(|r| live.contains(&r.generation));
        self.retired = kept;
        for region in done {
            self.slots.release(region.first, region.count);
        }
        Ok(())
    }

    /// Returns the id of the file that `source` names, and builds a missing table.
    fn resolve(&mut self, source: &Source<'_>, meanwhile: Option<&mut dyn FnMut()>) -> u16 {
        let Some(key) = source.key() else {
            return 0;
        };
        let now = self.generation as u64;
        if let Some(id) = self.keys.get(key).copied() {
            let entry = &mut self.files[id as usize - 1];
            entry.used = now;
            let pending = self.built.iter().any(|(b, _)| *b == id);
            if matches!(entry.state, State::Absent)
                && !pending
                && let Some(parsed) = source.parse(&mut self.rules, |_| false, meanwhile)
            {
                let (state, fallback) = self.keep(id, parsed);
                let entry = &mut self.files[id as usize - 1];
                (entry.state, entry.fallback) = (state, fallback);
            }
            return id;
        }
        let identities = &self.identities;
        let known = |i: &Identity| identities.contains_key(i);
        let parsed = source.parse(&mut self.rules, known, meanwhile);
        if let Some(Ok(parsed)) = &parsed
            && let Some(identity) = &parsed.identity
            && let Some(id) = self.identities.get(identity).copied()
        {
            self.keys.insert(key.clone(), id);
            self.files[id as usize - 1].used = now;
            return id;
        }
        // Id 0 means no file.
        let limit = self.sink.capacity().files.min(u16::MAX as usize + 1);
        if self.files.len() + 1 >= limit {
            self.stats.files_refused += 1;
            return 0;
        }
        let id = self.files.len() as u16 + 1;
        let (state, fallback) = match parsed {
            None => (State::Absent, None),
            Some(parsed) => self.keep(id, parsed),
        };
        self.files.push(FileEntry {
            key: key.clone(),
            state,
            fallback,
            used: now,
        });
        self.keys.insert(key.clone(), id);
        id
    }

    /// Keeps the result of parsing file `id`; returns its new state.
    fn keep(
        &mut self,
        id: u16,
        parsed: Result<Parsed, ImageError>,
    ) -> (State, Option<FallbackMethod>) {
        let parsed = match parsed {
            Err(ImageError::NotElf) => return (State::FramePointers, None),
            Err(e) => return (State::Nothing(Some(e.to_string())), None),
            Ok(parsed) => parsed,
        };
        if let Some(identity) = parsed.identity {
            self.identities.entry(identity).or_insert(id);
        }
        match parsed.code {
            UnwindMethod::Table(table) => {
                let fallback = table.fallback();
                self.built.push((id, table));
                (State::Absent, fallback)
            }
            UnwindMethod::FramePointers => (State::FramePointers, None),
            UnwindMethod::Nothing => (State::Nothing(None), None),
        }
    }

    /// Moves new tables into the sink, within the limit.
    fn upload(&mut self, wanted: &[Vec<u16>]) -> Result<(), SinkError> {
        let mut built = std::mem::take(&mut self.built);
        if built.is_empty() {
            return Ok(());
        }
        let new: u64 = built.iter().map(|(_, t)| table_bytes(t)).sum();
        let mut held = self.stats().table_bytes;
        if held + new > self.limit {
            let wanted = wanted.iter().flatten().copied().collect();
            held -= self.evict(held + new - self.limit, wanted)?;
        }
        let before = built.len();
        built.retain(|(_, t)| {
            let fits = held + table_bytes(t) <= self.limit;
            if fits {
                held += table_bytes(t);
            }
            fits
        });
        self.stats.tables_refused += (before - built.len()) as u64;
        let rules = self.rules.rules();
        self.sink
            .put_rules(self.rules_put, &rules[self.rules_put..])?;
        self.rules_put = rules.len();
        if self.sink.put_tables(&built).is_err() {
            // Out of kernel memory, for example: this code stays without tables, and the rest goes
            // on.
            self.stats.tables_refused += built.len() as u64;
            return Ok(());
        }
        for (id, table) in built {
            self.files[id as usize - 1].state = State::Loaded {
                bytes: table_bytes(&table),
                rows: table.rows() as u64,
            };
        }
        Ok(())
    }

    /// Drops tables that no process uses, least recently used first, until `need` bytes are free.
    fn evict(&mut self, need: u64, mut in_use: FxHashSet<u16>) -> Result<u64, SinkError> {
        self.collect()?;
        for region in self.processes.values().chain(&self.retired) {
            in_use.extend(&region.files);
        }
        let mut idle: Vec<(u64, u16)> = self
            .files
            .iter()
            .enumerate()
            .filter(|(i, f)| {
                matches!(f.state, State::Loaded { .. }) && !in_use.contains(&(*i as u16 + 1))
            })
            .map(|(i, f)| (f.used, i as u16 + 1))
            .collect();
        idle.sort_unstable();
        let mut freed = 0;
        for (_, id) in idle {
            if freed >= need {
                break;
            }
            self.sink.drop_table(id)?;
            let entry = &mut self.files[id as usize - 1];
            if let State::Loaded { bytes, .. } = entry.state {
                freed += bytes;
            }
            entry.state = State::Absent;
            self.stats.evicted += 1;
        }
        Ok(freed)
    }

    /// Writes a process's mappings and switches to them.
    fn switch(
        &mut self,
        tgid: u32,
        specs: &[MappingSpec<'_>],
        ids: &[u16],
    ) -> Result<(), SinkError> {
        // Generation 0 means none.
        let generation = GENERATION.fetch_add(1, Ordering::Relaxed).max(1);
        self.generation = generation;
        let mut list: Vec<Mapping> = specs
            .iter()
            .zip(ids)
            .filter(|(m, _)| m.start < m.end)
            .map(|(m, id)| Mapping {
                start: m.start,
                end: m.end,
                delta: m.pgoff.wrapping_sub(m.start),
                file: *id as u32 | self.flags(*id, &m.source),
                generation,
            })
            .collect();
        list.sort_by_key(|m| m.start);
        list.truncate(MAX_MAPPINGS);
        let mut files = ids.to_vec();
        files.sort_unstable();
        files.dedup();

        let Some(first) = self.allocate(list.len() as u32)? else {
            self.stats.processes_refused += 1;
            return Ok(());
        };
        let region = Region {
            first,
            count: list.len() as u32,
            generation,
            files,
        };
        self.sink.put_mappings(first, &list);
        let put = self.sink.put_proc(
            tgid,
            Proc {
                first,
                count: region.count,
                generation,
                voided: 0,
            },
        );
        if put.is_err() {
            self.slots.release(region.first, region.count);
            self.stats.processes_refused += 1;
            return put;
        }
        if let Some(old) = self.processes.insert(tgid, region) {
            self.retired.push(old);
        }
        if self.retired.len() > MAX_RETIRED_LISTS {
            self.collect()?;
        }
        Ok(())
    }

    fn flags(&self, id: u16, source: &Source<'_>) -> u32 {
        let state = (id as usize).checked_sub(1).map(|i| &self.files[i].state);
        match (state, source) {
            (None, Source::Anonymous) => MAP_FP,
            (None, _) | (Some(State::Absent), _) => MAP_PENDING,
            (Some(State::FramePointers), _) => MAP_FP,
            (Some(State::Nothing(_)), _) => MAP_NOTHING,
            (Some(State::Loaded { .. }), _) => 0,
        }
    }

    fn allocate(&mut self, count: u32) -> Result<Option<u32>, SinkError> {
        if let Some(first) = self.slots.take(count) {
            return Ok(Some(first));
        }
        self.collect()?;
        Ok(self.slots.take(count))
    }
}

fn table_bytes(table: &Table) -> u64 {
    8 * table.words().len() as u64
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
