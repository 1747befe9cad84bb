//! Sets of labels, and the resource of a wait in words.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use wallscope_model::{BlockReason, Label, LabelValue, LabelsId};

use crate::places;

/// The key of the label that names the thing waited for.
pub const RESOURCE: &str = "resource";

/// The key of the label that says which program it was, of processes that have run several.
pub const PROGRAM: &str = "program";

/// The key of the label that names the coroutine with which the task began that a thread was running.
pub const TASK: &str = "task";

/// Sets of labels.
#[derive(Default)]
pub struct Labels {
    /// The sets.
    pub sets: Vec<Vec<Label>>,
    ids: FxHashMap<[Option<Arc<str>>; 3], LabelsId>,
}

impl Labels {
    /// The set of exactly these labels.
    pub fn set(&mut self, labels: Vec<Label>) -> LabelsId {
        let known = self.sets.iter().position(|s| *s == labels);
        let index = known.unwrap_or_else(|| {
            self.sets.push(labels);
            self.sets.len() - 1
        });
        LabelsId(index as u32)
    }

    /// The set of this resource, this program and this task, if there is any of them.
    pub fn id(
        &mut self,
        resource: Option<Arc<str>>,
        program: Option<Arc<str>>,
        task: Option<Arc<str>>,
    ) -> Option<LabelsId> {
        let sets = &mut self.sets;
        let values = [resource, program, task];
        values.iter().any(Option::is_some).then(|| {
            *self.ids.entry(values).or_insert_with_key(|values| {
                let label = |(key, value): (&str, &Option<Arc<str>>)| {
                    Some(Label {
                        key: key.into(),
                        value: LabelValue::Text(value.clone()?),
                    })
                };
                let keys = [RESOURCE, PROGRAM, TASK].into_iter();
                sets.push(keys.zip(values).filter_map(label).collect());
                LabelsId((sets.len() - 1) as u32)
            })
        })
    }
}

/// The function of the kernel in which each kernel stack waits, by the stack's hash. `kallsyms`: the text of the
/// kernel's symbols.
pub fn kernel_functions(
    kernel: &FxHashMap<u64, Box<[u64]>>,
    kallsyms: &str,
) -> FxHashMap<u64, Arc<str>> {
    const DEEP: usize = 4;
    let all: Vec<(u64, u64)> = kernel
        .iter()
        .flat_map(|(hash, pcs)| pcs.iter().take(DEEP).map(|pc| (*hash, *pc)))
        .collect();
    let wanted: Vec<u64> = all.iter().map(|(_, pc)| *pc).collect();
    let mut functions = FxHashMap::default();
    for ((hash, _), name) in all.into_iter().zip(places::names(kallsyms, &wanted)) {
        // The caller of a lock waits, not the code of the lock.
        if let Some(name) = name.filter(|n| !places::only_sleeps(n)) {
            functions.entry(hash).or_insert_with(|| name.into());
        }
    }
    functions
}

/// Functions of the kernel that themselves wait for the lock of a process's address space, and for no
/// other, whatever they then do under it.
const ADDRESS_SPACE: [&str; 14] = [
    "__access_remote_vm",
    "__do_sys_brk",
    "__do_sys_mremap",
    "__mm_populate",
    "__vm_munmap",
    "__x64_sys_brk",
    "do_mlock",
    "do_mprotect_pkey",
    "do_user_addr_fault",
    "gup_fast_fallback",
    "lock_mm_and_find_vma",
    "madvise_lock",
    "vm_mmap_pgoff",
    "__x64_sys_mremap",
];

/// Resource of a wait, in words.
pub fn resource(
    reason: Option<BlockReason>,
    function: Option<&Arc<str>>,
    named: Option<&Arc<str>>,
) -> Option<Arc<str>> {
    // One lock, whichever call it is met in.
    let address_space = |f: &Arc<str>| {
        let plain = f.split('.').next().unwrap_or(f);
        ADDRESS_SPACE.contains(&plain)
    };
    let prefix = match reason? {
        BlockReason::KernelLock if function.is_some_and(address_space) => {
            return Some("kernel lock of a process's address space (mmap_lock)".into());
        }
        BlockReason::KernelLock => "kernel lock in",
        // The futex is an address in the VM; the pauses tell more.
        BlockReason::Gc => return None,
        BlockReason::Memory => "memory in",
        BlockReason::Other => "kernel:",
        _ => return named.cloned(),
    };
    match (function, named) {
        (Some(f), Some(n)) => Some(format!("{prefix} {f} ({n})").into()),
        (Some(f), None) => Some(format!("{prefix} {f}").into()),
        (None, n) => n.cloned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_of_an_address_space_is_one_lock_in_whichever_call_it_is_met() {
        let named = |function: &str, call: &str| {
            let (function, call) = (Arc::from(function), Arc::from(call));
            resource(Some(BlockReason::KernelLock), Some(&function), Some(&call)).unwrap()
        };
        let lock = named("__vm_munmap", "munmap");
        assert_eq!(lock, named("vm_mmap_pgoff.isra.0", "mmap"));
        assert!(lock.contains("mmap_lock"));
        assert_eq!(
            &*named("ext4_buffered_write_iter", "pwrite64 /srv/log"),
            "kernel lock in ext4_buffered_write_iter (pwrite64 /srv/log)"
        );
    }

    #[test]
    fn a_wait_for_memory_tells_the_function_that_wants_it() {
        let function = Arc::from("do_swap_page");
        let told = resource(Some(BlockReason::Memory), Some(&function), None);
        assert_eq!(told.as_deref(), Some("memory in do_swap_page"));
    }
}
