//! Destinations of unwind tables: the trait, and ordinary memory. Kernel maps are in `kernel_tables.rs`.

use crate::native::abi::{self, HostTable, Mapping, Proc, Rule};
use crate::native::packed_rows::{MAX_RULES, Table};
use crate::runtime::hotspot::abi as hotspot;
use rustc_hash::FxHashMap;
use std::io;

/// Capacity of a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// File ids are below this.
    pub files: usize,
    /// Rule ids are below this.
    pub rules: usize,
    /// Mappings of all processes together.
    pub mappings: usize,
}

/// An operation that the kernel (or memory) refused.
#[derive(Debug, thiserror::Error)]
#[error("unwind tables: {what}: {source}")]
pub struct SinkError {
    /// The operation, in words.
    pub what: &'static str,
    /// The cause.
    pub source: io::Error,
}

/// Destination for the decisions of [`crate::native::TableStore`].
///
/// Readers run at the same time, so the order of writes matters: rules before the tables that use
/// them, tables before mappings, mappings before the process.
pub trait TableSink {
    /// Returns the sink's capacity.
    fn capacity(&self) -> Capacity;
    /// Stores `rules` from id `first` on.
    ///
    /// # Errors
    /// If the kernel refuses.
    fn put_rules(&mut self, first: usize, rules: &[Rule]) -> Result<(), SinkError>;
    /// Stores or replaces tables by file id, all in one call: each call may wait for the kernel.
    ///
    /// # Errors
    /// If the kernel refuses; none of the tables is then reliable.
    fn put_tables(&mut self, tables: &[(u16, Table)]) -> Result<(), SinkError>;
    /// Frees a table.
    ///
    /// # Errors
    /// If the kernel refuses.
    fn drop_table(&mut self, file: u16) -> Result<(), SinkError>;
    /// Replaces mappings from index `first` on. A concurrent reader rejects a half-written entry.
    fn put_mappings(&mut self, first: u32, mappings: &[Mapping]);
    /// Points a process at its mappings.
    ///
    /// # Errors
    /// If the kernel refuses, for example when the map of processes is full.
    fn put_proc(&mut self, tgid: u32, proc: Proc) -> Result<(), SinkError>;
    /// Removes a process and its VM, if they are known.
    fn remove_proc(&mut self, tgid: u32);
    /// Stores the HotSpot VM of a process.
    ///
    /// # Errors
    /// If the kernel refuses, for example when the map is full.
    fn put_hotspot(&mut self, tgid: u32, vm: &hotspot::Proc) -> Result<(), SinkError>;
    /// Returns all processes, including those that the kernel copied at a fork.
    ///
    /// # Errors
    /// If the kernel refuses.
    fn procs(&self) -> Result<Vec<(u32, Proc)>, SinkError>;
}

/// [`TableSink`] in ordinary memory, for unwinding in user space.
#[derive(Debug)]
pub struct MemoryTables {
    pub(crate) rules: Vec<Rule>,
    words: Vec<Table>,
    pub(crate) tables: Vec<HostTable>,
    pub(crate) mappings: Vec<Mapping>,
    pub(crate) procs: FxHashMap<u32, Proc>,
    pub(crate) hotspots: FxHashMap<u32, hotspot::Proc>,
}

// SAFETY: the pointers in `tables` lead into `words`, which moves and is shared along with them.
unsafe impl Send for MemoryTables {}
// SAFETY: nothing is changed through a shared reference.
unsafe impl Sync for MemoryTables {}

impl MemoryTables {
    /// Creates an empty sink.
    pub fn new() -> MemoryTables {
        MemoryTables {
            rules: Vec::new(),
            words: Vec::new(),
            tables: Vec::new(),
            mappings: Vec::new(),
            procs: FxHashMap::default(),
            hotspots: FxHashMap::default(),
        }
    }

    /// The table of a file, if it has one.
    pub(crate) fn table(&self, file: u16) -> Option<&Table> {
        self.words.get(file as usize)
    }

    fn set(&mut self, file: u16, table: Table) {
        let file = file as usize;
        if self.words.len() <= file {
            self.words.resize(file + 1, Table::default());
        }
        self.words[file] = table;
        self.tables = self
            .words
            .iter()
            .map(|t| HostTable {
                words: t.words().as_ptr(),
                count: t.words().len() as u64,
            })
            .collect();
    }
}

impl Default for MemoryTables {
    fn default() -> Self {
        MemoryTables::new()
    }
}

impl TableSink for MemoryTables {
    fn capacity(&self) -> Capacity {
        Capacity {
            files: abi::FILES as usize,
            rules: MAX_RULES,
            mappings: 1 << 20,
        }
    }

    fn put_rules(&mut self, first: usize, rules: &[Rule]) -> Result<(), SinkError> {
        self.rules.resize(first, Rule::default());
        self.rules.extend_from_slice(rules);
        Ok(())
    }

    fn put_tables(&mut self, tables: &[(u16, Table)]) -> Result<(), SinkError> {
        for (file, table) in tables {
            self.set(*file, table.clone());
        }
        Ok(())
    }

    fn drop_table(&mut self, file: u16) -> Result<(), SinkError> {
        self.set(file, Table::default());
        Ok(())
    }

    fn put_mappings(&mut self, first: u32, mappings: &[Mapping]) {
        let end = first as usize + mappings.len();
        if self.mappings.len() < end {
            self.mappings.resize(end, Mapping::default());
        }
        self.mappings[first as usize..end].copy_from_slice(mappings);
    }

    fn put_proc(&mut self, tgid: u32, proc: Proc) -> Result<(), SinkError> {
        self.procs.insert(tgid, proc);
        Ok(())
    }

    fn remove_proc(&mut self, tgid: u32) {
        self.procs.remove(&tgid);
        self.hotspots.remove(&tgid);
    }

    fn put_hotspot(&mut self, tgid: u32, vm: &hotspot::Proc) -> Result<(), SinkError> {
        self.hotspots.insert(tgid, *vm);
        Ok(())
    }

    fn procs(&self) -> Result<Vec<(u32, Proc)>, SinkError> {
        Ok(self.procs.iter().map(|(t, p)| (*t, *p)).collect())
    }
}
