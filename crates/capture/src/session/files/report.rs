//! Notes and losses of files, for the user.

use wallscope_unwind::native::{FallbackMethod, TableSink};

use super::Files;

impl<S: TableSink> Files<S> {
    /// Reason why code of file `index` cannot be unwound, if there is one.
    pub fn problem(&self, index: u16) -> Option<&str> {
        let mut ids = self.by_unwinder.iter().filter(|(_, i)| **i == index);
        ids.find_map(|(id, _)| self.store.file_problem(*id))
    }

    /// Notes for the user on files without unwind information.
    pub fn notes(&self) -> Vec<String> {
        let names = |how: FallbackMethod| {
            let ids = (self.by_unwinder.iter())
                .filter(|(id, _)| self.store.file_fallback(**id) == Some(how));
            let mut names: Vec<&str> = ids
                .map(|(_, index)| &*self.entries[*index as usize].path)
                .collect();
            names.sort_unstable();
            names.dedup();
            names.join(", ")
        };
        let words = [
            (
                FallbackMethod::Synthesised,
                "stacks are followed by what its instructions do, where these leave no doubt",
            ),
            (
                FallbackMethod::FramePointers,
                "stacks are followed by frame pointers, as most of its functions keep them; callers of \
                 others would be passed over",
            ),
        ];
        (words.into_iter())
            .map(|(how, told)| (names(how), told))
            .filter(|(names, _)| !names.is_empty())
            .map(|(names, told)| format!("code without unwind information: {told}: {names}"))
            .collect()
    }

    /// Bytes of kernel memory that unwind tables take.
    pub fn table_bytes(&self) -> u64 {
        self.store.stats().table_bytes
    }

    /// Losses of this side, by cause.
    pub fn losses(&self) -> Vec<(String, u64)> {
        let s = self.store.stats();
        let mut losses = vec![
            ("mapped file could not be opened".to_owned(), self.unopened),
            (
                "mappings of a process refused by the kernel".to_owned(),
                self.refused,
            ),
            (
                "unwind table dropped to keep the memory limit".to_owned(),
                s.evicted,
            ),
            (
                "unwind table refused (memory limit)".to_owned(),
                s.tables_refused,
            ),
            (
                "file without an id (too many files)".to_owned(),
                s.files_refused + self.unnumbered,
            ),
            (
                "unwind rule left out (too many rules)".to_owned(),
                s.rules_refused,
            ),
            (
                "process whose mappings did not fit".to_owned(),
                s.processes_refused,
            ),
        ];
        losses.push(self.handles.losses());
        for (why, count) in &self.refusals {
            losses.push((format!("mapped file refused: {why}"), *count));
        }
        let mut ids: Vec<_> = self.by_unwinder.iter().collect();
        ids.sort_unstable();
        for (id, index) in ids {
            if let Some(problem) = self.store.file_problem(*id) {
                let path = &self.entries[*index as usize].path;
                losses.push((format!("no unwind information in {path}: {problem}"), 1));
            }
        }
        losses
    }
}
