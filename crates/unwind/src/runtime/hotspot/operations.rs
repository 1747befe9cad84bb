//! The VM's operations, as the symbols of its file name them.
//!
//! The class of an operation is known by its virtual table, which the file's symbols name:
//! `VM_G1CollectForAllocation`. A file without symbols (`strip`) names none.

use crate::runtime::Image;

/// A class of VM operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Virtual address that its objects begin with.
    pub table: u64,
    /// Its name without `VM_`.
    pub name: String,
    /// Whether it collects garbage.
    pub collects: bool,
}

/// Virtual addresses of a file's variables, and the classes of its operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Symbols {
    /// The last one is 0 if the file does not name it.
    pub(super) variables: [u64; 6],
    operations: Vec<Operation>,
}

/// Names of [`Symbols::variables`].
const VARIABLES: [&str; 6] = [
    "_ZN20SafepointSynchronize13_wait_barrierE",
    "VMOperation_lock",
    "Heap_lock",
    "_ZN8VMThread17_cur_vm_operationE",
    "_ZN8VMThread18_next_vm_operationE",
    "JNICritical_lock",
];

/// Bytes in front of the first function of a virtual table.
const TABLE_HEAD: u64 = 16;

/// Operations that collect garbage, by the beginnings of their names; with the kind of collection.
const COLLECTIONS: &[(&str, &str)] = &[
    ("G1CollectForAllocation", "young"),
    ("G1CollectFull", "full"),
    ("G1TryInitiateConcMark", "young"),
    ("G1PauseRemark", "remark"),
    ("G1PauseCleanup", "cleanup"),
    ("G1Concurrent", "remark"),
    ("CGC_Operation", "remark"),
    ("ParallelGCFailedAllocation", "young"),
    ("ParallelCollectForAllocation", "young"),
    ("ParallelGCSystemGC", "full"),
    ("ParallelGCCollect", "full"),
    ("GenCollectForAllocation", "young"),
    ("GenCollectFull", "full"),
    ("SerialCollectForAllocation", "young"),
    ("SerialGCCollect", "full"),
    ("CollectForMetadataAllocation", "full"),
    ("ZMarkStart", "mark start"),
    ("ZMarkEnd", "mark end"),
    ("ZRelocateStart", "relocate start"),
    ("XMarkStart", "mark start"),
    ("XMarkEnd", "mark end"),
    ("XRelocateStart", "relocate start"),
    ("ShenandoahFullGC", "full"),
    ("ShenandoahDegeneratedGC", "degenerated"),
    ("ShenandoahInitMark", "mark start"),
    ("ShenandoahFinalMark", "mark end"),
    ("ShenandoahInitUpdateRefs", "update start"),
    ("ShenandoahFinalUpdateRefs", "update end"),
    ("ShenandoahFinalRoots", "mark end"),
];

/// Returns the kind of collection of the VM operation `name`; `None`: it collects nothing.
pub fn collection(name: &str) -> Option<&'static str> {
    let row = COLLECTIONS
        .iter()
        .find(|(begin, _)| name.starts_with(begin))?;
    Some(row.1)
}

impl Symbols {
    /// Reads the symbols of a file; `None`: it does not name a variable that must be there.
    pub(super) fn of(image: &Image<'_>) -> Option<Symbols> {
        let mut variables = [0; VARIABLES.len()];
        let mut operations = Vec::new();
        for (name, address) in image.variables() {
            if let Some(i) = VARIABLES.iter().position(|v| *v == name) {
                variables[i] = address;
            } else if let Some(name) = operation(name) {
                operations.push(Operation {
                    table: address + TABLE_HEAD,
                    collects: collection(name).is_some(),
                    name: name.to_owned(),
                });
            }
        }
        operations.sort_by_key(|o| o.table);
        let needed = &variables[..VARIABLES.len() - 1];
        let whole = needed.iter().all(|at| *at != 0) && !operations.is_empty();
        whole.then_some(Symbols {
            variables,
            operations,
        })
    }

    /// The classes of operations.
    pub(crate) fn operations(&self) -> &[Operation] {
        &self.operations
    }
}

/// Returns the class of VM operations with this symbol of a virtual table, without `VM_`.
fn operation(symbol: &str) -> Option<&str> {
    let rest = symbol.strip_prefix("_ZTV")?;
    let name = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    let length: usize = rest[..rest.len() - name.len()].parse().ok()?;
    name.strip_prefix("VM_").filter(|_| name.len() == length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_known_by_their_virtual_tables() {
        let name = operation("_ZTV25VM_G1CollectForAllocation");
        assert_eq!(name, Some("G1CollectForAllocation"));
        assert_eq!(operation("_ZTV25VM_G1CollectFull"), None);
        assert_eq!(operation("_ZTV9G1Policy1"), None);
        assert_eq!(operation("_ZTVN2ab5VM_AbE"), None);
        assert_eq!(operation("VM_Exit"), None);
    }

    #[test]
    fn collections_have_kinds_and_other_operations_none() {
        assert_eq!(collection("G1CollectForAllocation"), Some("young"));
        assert_eq!(collection("ZRelocateStartYoung"), Some("relocate start"));
        assert_eq!(collection("ThreadDump"), None);
        assert_eq!(collection("GC_HeapInspection"), None);
    }
}
